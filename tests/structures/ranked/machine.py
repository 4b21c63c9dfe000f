"""Hypothesis state machines that drive `Tops` and `Validity` beside their naive twins: batches and runs of versions over few keys, orders
that tie, rows that move to other slots, readings of pinned versions; `check()` after each step."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import DELETE, INSERT
from structures.core.entry_tree import EntryRoot
from structures.index.indexes import Entries
from structures.ranked.entries import RankedChanges, room
from structures.ranked.tops import Tops
from structures.ranked.validity import NOBODY, Validity
from tests.naive.ranked import Ranked, firsts, validities
from tests.structures.machines import Reading, ReadingMachine

ORDERS = st.one_of(st.integers(0, 3), st.sampled_from((-(2**63), 2**63 - 1)))
SHAPES = st.lists(st.tuples(st.integers(0, 2), ORDERS, st.integers(0, 5)), max_size=14)
Change = tuple[int, int, Ranked]  # version, sign


def packed(rows: Any) -> Entries:
    some = [(one.key, one.order, one.rank, 0) for one in rows], [one.slot for one in rows]
    return Entries(np.array(some[0], np.int64).reshape(-1, 4), np.array(some[1], np.int32))


class TopsMachine(ReadingMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, Ranked] = {}
        self.ranks: dict[int, int] = {}

    @initialize(most=st.sampled_from((1, 1, 2, 3, 7)), exact=st.booleans(), shapes=SHAPES)
    def begin(self, most: int, exact: bool, shapes: list[tuple[int, int, int]]) -> None:
        """`exact`: ranks are coordinates, so that no rows tie."""
        self.most, self.exact = most, exact
        rank = None if exact else lambda slots: np.array([self.ranks[slot] for slot in slots.tolist()], np.int64)
        self.tops = Tops(4 if exact else 2, most, rank, 1 << 20, 1 << 20)
        self.tops._listed = room(3)  # so that rows are listed in pieces
        self.rows = {one.slot: one for one in self.new(shapes)}
        self.tops.load(1, packed(self.rows.values()))
        self.validate()

    def new(self, shapes: list[tuple[int, int, int]]) -> list[Ranked]:
        """Of which no two tie in their rank too."""
        made = []
        for key, order, rank in shapes:
            self.slot += 1
            made.append(Ranked(key, order, 100 * rank + self.slot, self.slot))
            self.ranks[self.slot] = made[-1].rank
        return made

    def validate(self) -> None:
        self.tops.check(tuple(root for root, _ in self.pins.values()))
        assert self.tops.rows == len(self.rows)
        everything = list(self.rows.values())
        keys, slots = np.array([one.key for one in everything], np.int64), np.array([one.slot for one in everything], np.int32)
        held = self.tops.holds(self.tops.root, keys, slots)
        assert {one.slot for one, holds in zip(everything, held.tolist(), strict=True) if holds} == firsts(everything, self.most)

    def pinned(self) -> tuple[EntryRoot, dict[int, Ranked]]:
        wanted = firsts(self.rows.values(), self.most)
        return self.tops.root, {slot: self.rows[slot] for slot in wanted}

    def change(self, changes: list[Change]) -> None:
        """A version on: what is told of each group is what its changes do to the first rows of its key."""
        self.version += 1
        self.tops.require(len(changes))
        changes = sorted(changes, key=lambda one: (one[0], one[2].key, one[1]))
        groups = [list(some) for _, some in groupby(changes, lambda one: (one[0], one[2].key))]
        ends = np.cumsum([len(some) for some in groups]) if groups else np.empty(0, np.int64)
        signs = np.array([sign for _, sign, _ in changes], np.int8)
        emitted = self.tops.apply(self.version, RankedChanges(packed([one for _, _, one in changes]), signs, ends.astype(np.int64)))
        self.tops.reclaim(self.version, self.pin_array(), 1 << 40)
        assert (np.diff(emitted.groups) >= 0).all()
        for number, some in enumerate(groups):
            before = firsts(self.rows.values(), self.most)
            for _, sign, one in some:
                if sign == DELETE:
                    del self.rows[one.slot]
            for _, sign, one in some:
                if sign == INSERT:
                    self.rows[one.slot] = one
            after = firsts(self.rows.values(), self.most)
            mine = emitted.slots[emitted.groups == number].tolist()
            assert mine == sorted(mine, key=lambda slot: slot >= 0), "what comes is told before what goes"
            assert sorted(~slot for slot in mine if slot < 0) == sorted(before - after)
            assert sorted(slot for slot in mine if slot >= 0) == sorted(after - before)
        self.validate()

    def doomed(self, data: st.DataObject) -> list[Ranked]:
        slots = st.sampled_from(sorted(self.rows))
        return [self.rows[slot] for slot in data.draw(st.lists(slots, unique=True, max_size=8))] if self.rows else []

    @rule(shapes=SHAPES, data=st.data())
    def batch(self, shapes: list[tuple[int, int, int]], data: st.DataObject) -> None:
        """All as one version."""
        self.change([*((0, DELETE, one) for one in self.doomed(data)), *((0, INSERT, one) for one in self.new(shapes))])

    @rule(shapes=SHAPES, data=st.data())
    def run(self, shapes: list[tuple[int, int, int]], data: st.DataObject) -> None:
        """A version each; some of what comes goes again."""
        found: list[Change] = [(2 * at, DELETE, one) for at, one in enumerate(self.doomed(data))]
        for at, one in enumerate(self.new(shapes)):
            found.append((2 * at + 1, INSERT, one))
            if at % 3 == 2:
                found.append((2 * at + 4, DELETE, one))
        self.change(found)

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """Rows give up their slots for others, as they are, or with another order."""
        found: list[Change] = []
        for one in self.doomed(data):
            self.slot += 1
            self.ranks[self.slot] = one.rank
            order = data.draw(st.one_of(st.just(one.order), ORDERS))
            found += [(0, DELETE, one), (0, INSERT, one._replace(order=order, slot=self.slot))]
        self.change(found)

    @precondition(lambda self: self.rows)
    @rule(key=st.integers(0, 3))
    def empty(self, key: int) -> None:
        """All rows go, or those of a key."""
        self.change([(0, DELETE, one) for one in self.rows.values() if key in (3, one.key)])

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), key=st.sampled_from((None, None, 0, 1, 5)))
    def open(self, data: st.DataObject, key: int | None) -> None:
        version = self.some_pin(data)
        root, rows = self.pins[version]
        self.readings.append(Reading(self.tops.of(root, key), {(one.slot,) for one in rows.values() if key in (None, one.key)}, version))


def worded(rank: int) -> list[int]:
    """In the order of the numbers; none begins another, and many begin alike."""
    digits = np.base_repr(rank % 1000, 2)
    return [rank // 1000, len(digits), *map(int, digits)]


class ValidityMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.slot = 0
        self.rows: dict[int, Ranked] = {}
        self.ranks: dict[int, int] = {}

    def words_of(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        words = [worded(self.ranks[slot]) for slot in slots.tolist()]
        return np.cumsum([0, *map(len, words)], dtype=np.int64), np.array([word for some in words for word in some], np.int64)

    @initialize(exact=st.booleans(), filled=st.booleans(), shapes=SHAPES)
    def begin(self, exact: bool, filled: bool, shapes: list[tuple[int, int, int]]) -> None:
        """`exact`: ranks are coordinates, not words."""
        self.filled = filled
        self.validity = Validity(1 if exact else self.words_of, filled, 1 << 20)
        self.validity._listed = room(3)
        self.rows = {one.slot: one for one in self.new(shapes)}
        self.validity.load(packed(self.rows.values()))
        self.validate()

    def new(self, shapes: list[tuple[int, int, int]]) -> list[Ranked]:
        made = []
        for key, order, rank in shapes:
            self.slot += 1
            made.append(Ranked(key, order, 1000 * rank + self.slot, self.slot))
            self.ranks[self.slot] = made[-1].rank
        return made

    def validate(self) -> None:
        self.validity.check()
        spans = self.validity.spans()
        found = zip(spans.key.tolist(), spans.left.tolist(), spans.slot.tolist(), spans.right.tolist(), strict=True)
        assert {(key, left): (slot, right) for key, left, slot, right in found} == validities(self.rows.values(), POS_INF)

    def state(self) -> dict[tuple[int, int], tuple[int, int]]:
        """With nobody at the beginning of each key, if that counts."""
        found = validities(self.rows.values(), POS_INF)
        for key in range(3) if self.filled else ():
            first = min((order for of, order in found if of == key), default=None)
            if first != NEG_INF:
                found[key, NEG_INF] = NOBODY, POS_INF if first is None else first - 1
        return found

    @rule(shapes=SHAPES, data=st.data(), alone=st.booleans())
    def change(self, shapes: list[tuple[int, int, int]], data: st.DataObject, alone: bool) -> None:
        """As one version, or a version each."""
        slots = st.sampled_from(sorted(self.rows))
        doomed = [self.rows[slot] for slot in data.draw(st.lists(slots, unique=True, max_size=8))] if self.rows else []
        drawn = [*((DELETE, one) for one in doomed), *((INSERT, one) for one in self.new(shapes))]
        self.follow([(at if alone else 0, sign, one) for at, (sign, one) in enumerate(drawn)])

    def follow(self, found: list[Change]) -> None:
        found.sort(key=lambda one: (one[0], one[2].key, one[2].order, one[1]))
        groups = [list(some) for _, some in groupby(found, lambda one: (one[0], one[2].key))]
        ends = np.cumsum([len(some) for some in groups], dtype=np.int64)
        self.validity.require_index(len(found))
        if not found:
            return
        emitted = self.validity.apply(
            RankedChanges(packed([one for _, _, one in found]), np.array([sign for _, sign, _ in found], np.int8), ends)
        )
        for number, some in enumerate(groups):
            before, key = self.state(), some[0][2].key
            for _, sign, one in some:
                if sign == DELETE:
                    del self.rows[one.slot]
                else:
                    self.rows[one.slot] = one
            after, mine = self.state(), emitted.group == number
            positions = [(key, at) for at in emitted.at[mine].tolist()]
            assert positions == sorted(set(positions)), "places in order, each once"
            for inputs, column, until in ((before, emitted.before, emitted.until_before), (after, emitted.after, emitted.until_after)):
                for position, slot, end in zip(positions, column[mine].tolist(), until[mine].tolist(), strict=True):
                    assert slot == inputs.get(position, (NOBODY, 0))[0] and (position not in inputs or end == inputs[position][1])
            differ = {position for position in before.keys() | after.keys() if before.get(position) != after.get(position)}
            assert differ <= set(positions), "a place that changes is not told"
        self.validate()

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """Rows give up their slots for others, as they are."""
        if not self.rows:
            return
        doomed = [self.rows[slot] for slot in data.draw(st.lists(st.sampled_from(sorted(self.rows)), unique=True, max_size=8))]
        moved = []
        for one in doomed:
            self.slot += 1
            self.ranks[self.slot] = one.rank
            moved.append(one._replace(slot=self.slot))
        self.follow([*((0, DELETE, one) for one in doomed), *((0, INSERT, one) for one in moved)])

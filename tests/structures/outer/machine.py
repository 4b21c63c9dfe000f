"""A Hypothesis state machine that drives an `OuterTree` beside its naive twin: batches and runs on both sides, rows and partners that move
to other slots or can have no partner, open ends and edges of int64, readings of pinned versions; `check()` after each step."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entry_tree import Root
from structures.event_tree import runs
from structures.event_tree.runs import LONELY
from structures.interval.tree import IntervalTree
from structures.outer import tree as outer_tree
from structures.outer.tree import OuterTree
from tests.naive import outer
from tests.naive.interval_join import Interval, entries
from tests.structures.event_tree.machine import ENDS, SHAPES, Change, follow, packed
from tests.structures.machines import Reading, ReadingMachine, Row, empty_chunks

Sides = tuple[dict[int, Interval], dict[int, Interval]]


class Pinned(NamedTuple):
    pairs: Root
    alone: tuple[Root, Root]
    sides: Sides


class OuterMachine(ReadingMachine):
    @initialize(outer=st.integers(0, 1), full=st.booleans(), shapes=st.lists(SHAPES, max_size=40))
    def begin(self, outer: int, full: bool, shapes: list[tuple[bool, int, int, int]]) -> None:
        usual = outer_tree.CHUNK, outer_tree.MANY
        outer_tree.CHUNK, outer_tree.MANY = 3, 2  # deltas are told in pieces, and some rows are not counted
        self.tree = OuterTree(IntervalTree("pair", 1 << 20), outer, full, 1 << 20)
        outer_tree.CHUNK, outer_tree.MANY = usual
        self.outer, self.full = outer, full
        self.sides: Sides = ({}, {})
        for is_row, one in self.new(shapes):
            self.sides[not is_row][one.slot] = one
        self.tree.load(1, *(entries(side.values()) for side in self.sides))
        self.judge()

    def new(self, shapes: list[tuple[bool, int, int, int]]) -> list[tuple[bool, Interval]]:
        made = []
        for is_row, key, left, right in shapes:
            self.slot += 1
            lonely = key == 2 and self.slot % 4 == 0 and (is_row or self.full)
            made.append((is_row, Interval(0, LONELY if lonely else key, min(left, right), max(left, right), self.slot)))
        return made

    def wanted(self) -> set[Row]:
        """Rows of the outer set and its partners, as their twin has them; what the tree tells is by set."""
        return {*outer.told(*self.sides, self.full)}

    def by_side(self, row: Row) -> Row:
        return row if self.outer == 0 else row[::-1]

    def roots(self) -> tuple[Root, Root]:
        first, second = (alone.root for alone in self.tree.alone)
        return first, second

    def judge(self) -> None:
        pins = self.pins.values()
        self.tree.check(tuple(pin.alone for pin in pins))
        self.tree.pairs.check(self.tree.pairs.root, tuple(pin.pairs for pin in pins))
        wanted = self.wanted()
        for s, side in enumerate(self.sides):
            alone = self.tree.alone[s ^ self.outer]
            held = alone.holds(alone.root, entries(side.values())).tolist()
            found = {slot for slot, holds in zip(side, held, strict=True) if holds}
            assert found == {row[s] for row in wanted if row[1 - s] == -1}

    def pinned(self) -> Pinned:
        return Pinned(self.tree.pairs.root, self.roots(), (dict(self.sides[0]), dict(self.sides[1])))

    # --- changes

    def drawn(self, data: st.DataObject, shapes: list[tuple[bool, int, int, int]]) -> list[Change]:
        """Changes of either side, in any order."""
        kinds = ((runs.OUTER_MOVE, runs.OUTER_DELETE, runs.OUTER_INSERT), (runs.PARTNER_MOVE, runs.PARTNER_DELETE, runs.PARTNER_INSERT))
        found: list[Change] = []
        for side, (move, delete, _) in zip(self.sides, kinds, strict=True):
            doomed = data.draw(st.lists(st.sampled_from(sorted(side)), unique=True, max_size=6)) if side else []
            moving = doomed[:2] if data.draw(st.booleans()) else []
            found += [(move, side[slot]._replace(slot=slot + 1000), slot) for slot in moving]
            found += [(delete, side[slot], -1) for slot in doomed if slot not in moving]
        return found + [(kinds[not is_row][2], one, -1) for is_row, one in self.new(shapes)]

    def change(self, changes: list[Change], limit: int | None) -> list[tuple[list[Row], list[Row], bool]]:
        """A version on: of each change the rows that go and that come, and whether it was too much."""
        self.version += 1
        for store in (self.tree.pairs, *self.tree.alone):
            empty_chunks(store.arena, self.version)
        self.tree.require(2 * len(changes), *(len(side) + len(changes) for side in self.sides))
        try:
            deltas = self.tree.apply(self.version, packed(changes), limit)
        except KeyError as missing:  # all that goes was there
            raise AssertionError(str(missing)) from missing
        found = []
        for start, end, too_large in zip(deltas.starts, deltas.ends, deltas.too_large, strict=True):
            told = deltas.rows[:, start:end].T.tolist()
            gone, come = ([self.by_side((one, other)) for one, other, comes in told if comes == sign] for sign in (0, 1))
            found.append((gone, come, bool(too_large)))
        while self.tree.reclaim(self.version, self.pin_array(), 1 << 40):
            pass
        return found

    def moved(self, changes: list[Change]) -> set[Row]:
        """The rows that there are, at the slots to which these changes move them."""
        to: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for kind, one, former in changes:
            if kind in (runs.OUTER_MOVE, runs.PARTNER_MOVE):
                to[kind == runs.PARTNER_MOVE][former] = one.slot
        return {tuple(of.get(slot, slot) for of, slot in zip(to, row, strict=True)) for row in self.wanted()}

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data())
    def batch(self, shapes: list[tuple[bool, int, int, int]], data: st.DataObject) -> None:
        """All as one version: what is told adds up to what differs, and an outer row is told alone once at most."""
        changes = sorted(self.drawn(data, shapes))
        before, sums, alone = self.moved(changes), Counter[Row](), Counter[int]()
        for gone, come, too_large in self.change(changes, 1 << 40):
            assert not too_large
            sums.update(come)
            sums.subtract(gone)
            alone.update(row for row, partner in [*gone, *come] if partner == -1)
        for change in changes:
            follow(*self.sides, change)
        after = self.wanted()
        assert {row: n for row, n in sums.items() if n} == dict.fromkeys(after - before, 1) | dict.fromkeys(before - after, -1)
        assert all(n == 1 for n in alone.values()), "a row flips twice"
        self.judge()

    @rule(shapes=st.lists(SHAPES, max_size=6), data=st.data(), limit=st.sampled_from((None, 2, 1 << 40)))
    def singles(self, shapes: list[tuple[bool, int, int, int]], data: st.DataObject, limit: int | None) -> None:
        """One after another, each judged alone."""
        changes = data.draw(st.permutations(self.drawn(data, shapes)))
        for change, (gone, come, too_large) in zip(changes, self.change(changes, limit), strict=True):
            before = self.moved([change])
            follow(*self.sides, change)
            after = self.wanted()
            if limit is None or too_large:
                assert not gone and not come
                assert limit is None or len(before ^ after) > limit
            else:
                assert sorted(gone) == sorted(before - after) and sorted(come) == sorted(after - before), (change, gone, come)
        self.judge()

    @precondition(lambda self: any(self.sides))
    @rule(which=st.booleans())
    def empty(self, which: bool) -> None:
        """All rows of a side go."""
        kind = runs.PARTNER_DELETE if which else runs.OUTER_DELETE
        changes: list[Change] = [(kind, one, -1) for one in self.sides[which].values()]
        self.change(changes, None)
        for change in changes:
            follow(*self.sides, change)
        self.judge()

    # --- reading

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), s=st.integers(0, 1), key=st.sampled_from((None, None, 0, 1, LONELY)))
    def open(self, data: st.DataObject, s: int, key: int | None) -> None:
        """The rows alone of a version, or its pairs."""
        version = self.some_pin(data)
        pin: Pinned = self.pins[version]
        if data.draw(st.booleans()):
            wanted = {self.by_side(pair) for pair in outer.pairs(*pin.sides)}
            self.readings.append(Reading(self.tree.pairs.rows(pin.pairs), wanted, version))
            return
        low, high = sorted((data.draw(ENDS), data.draw(ENDS))) if data.draw(st.booleans()) else (NEG_INF, POS_INF)
        alone = [pin.sides[s][row[s]] for row in outer.told(*pin.sides, self.full) if row[1 - s] == -1]
        wanted = {(one.slot,) for one in alone if key in (None, one.key) and one.left <= high and one.right >= low}
        window = None if (low, high) == (NEG_INF, POS_INF) else (low, high)
        own = s ^ self.outer
        self.readings.append(Reading(self.tree.alone[own].rows(pin.alone[own], key, window), wanted, version))

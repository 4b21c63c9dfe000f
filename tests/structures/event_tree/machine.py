"""A Hypothesis state machine that drives a `Matching` beside its naive twin: batches and runs on both sides, joins of a set with itself,
rows and partners that move to other slots, open ends and edges of int64, readings of pinned versions; `check()` after each step."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.core.cursor import Cursor
from structures.core.encoding import NEG_INF, POS_INF
from structures.event_tree import runs
from structures.event_tree.matching import LONELY, Matching, MatchRoot, Moves
from structures.event_tree.tree import EventTree
from tests.naive.interval_join import Interval, entries, meet
from tests.naive.matching import emitted
from tests.structures.machines import Reading, ReadingMachine

EDGES = (NEG_INF, NEG_INF + 1, -2, -1, POS_INF - 1, POS_INF)  # from -2 and -1 to the last ones lengths are just beyond int64, or not
ENDS = st.one_of(st.integers(0, 12), st.sampled_from(EDGES))
SHAPES = st.tuples(st.booleans(), st.integers(0, 2), ENDS, ENDS)  # whether it is a row; key, ends in any order
WEIGHTS = st.sampled_from((0, 1, -7, 2**62, -(2**63), 2**63 - 1))
Change = tuple[int, Interval, int]  # kind, at its new slot, the former one


def packed(changes: list[Change]) -> Moves:
    columns = entries(one for _, one, _ in changes)
    kinds, former = np.array([kind for kind, _, _ in changes], np.int8), np.array([slot for _, _, slot in changes], np.int32)
    done = np.zeros(len(changes), np.int64)
    return Moves(kinds, columns.key, columns.left, columns.right, columns.slot, former, done)


def follow(rows: dict[int, Interval], others: dict[int, Interval], change: Change) -> None:
    """Have both sides changed, of which these are what a twin keeps."""
    kind, one, former = change
    of = rows if kind in (runs.OUTER_MOVE, runs.OUTER_DELETE, runs.OUTER_INSERT) else others
    if kind in (runs.OUTER_MOVE, runs.PARTNER_MOVE):
        del of[former]
        of[one.slot] = one
    elif kind in (runs.OUTER_DELETE, runs.PARTNER_DELETE):
        del of[one.slot]
    else:
        of[one.slot] = one


class SidesMachine(ReadingMachine):
    """Of a structure over rows and partners, which has some of the rows to be read."""

    def listed(self, root: Any, key: int | None, window: tuple[int, int] | None) -> Cursor:
        """Reads these rows of a version."""
        raise NotImplementedError

    def new(self, shapes: list[tuple[bool, int, int, int]]) -> list[tuple[bool, Interval]]:
        made = []
        for is_row, key, left, right in shapes:
            self.slot += 1
            lonely = key == 2 and is_row and self.slot % 4 == 0
            made.append((is_row, Interval(0, LONELY if lonely else key, min(left, right), max(left, right), self.slot)))
        return made

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), key=st.sampled_from((None, None, 0, 1, LONELY)), window=st.one_of(st.none(), st.tuples(ENDS, ENDS)))
    def open(self, data: st.DataObject, key: int | None, window: tuple[int, int] | None) -> None:
        version = self.some_pin(data)
        root, rows = self.pins[version]
        window = None if window is None else (min(window), max(window))
        low, high = window or (NEG_INF, POS_INF)
        wanted = {(one.slot,) for one in rows.values() if key in (None, one.key) and one.left <= high and one.right >= low}
        self.readings.append(Reading(self.listed(root, key, window), wanted, version))


class MatchMachine(SidesMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, Interval] = {}
        self.others: dict[int, Interval] = {}

    @initialize(emits_matched=st.booleans(), itself=st.booleans(), shapes=st.lists(SHAPES, max_size=40))
    def begin(self, emits_matched: bool, itself: bool, shapes: list[tuple[bool, int, int, int]]) -> None:
        self.emits_matched, self.itself = emits_matched, itself
        self.matching = Matching(emits_matched, itself, 1 << 20)
        for is_row, one in self.new(shapes):
            if is_row or itself:
                self.rows[one.slot] = one
            if (not is_row or itself) and one.key != LONELY:
                self.others[one.slot] = one
        self.matching.load(1, entries(self.rows.values()), entries(self.others.values()))
        self.validate()

    def wanted(self) -> set[int]:
        return emitted(self.rows, self.others, self.emits_matched, self.itself)

    def validate(self) -> None:
        self.matching.check(tuple(root for root, _ in self.pins.values()))
        assert self.matching.count(self.matching.root) == len(self.wanted())
        everything = list(self.rows.values())
        held = self.matching.holds(self.matching.root, entries(everything))
        assert {one.slot for one, holds in zip(everything, held.tolist(), strict=True) if holds} == self.wanted()

    def pinned(self) -> tuple[MatchRoot, dict[int, Interval]]:
        wanted = self.wanted()
        return self.matching.root, {slot: row for slot, row in self.rows.items() if slot in wanted}

    # --- changes

    def drawn(self, data: st.DataObject, shapes: list[tuple[bool, int, int, int]]) -> list[list[Change]]:
        """Changes that go together: of a set with itself those of a row and of it as a partner."""
        found: list[list[Change]] = []
        slots = st.sampled_from(sorted({*self.rows, *self.others}))
        doomed = data.draw(st.lists(slots, unique=True, max_size=8)) if self.rows or self.others else []
        moving = set(doomed[: data.draw(st.integers(0, len(doomed)))][:2])
        for slot in doomed:
            mine: list[Change] = []
            for of, move, delete in (
                (self.rows, runs.OUTER_MOVE, runs.OUTER_DELETE),
                (self.others, runs.PARTNER_MOVE, runs.PARTNER_DELETE),
            ):
                if slot in of and slot in moving:
                    mine.append((move, of[slot]._replace(slot=slot + 1000), slot))
                elif slot in of:
                    mine.append((delete, of[slot], -1))
            found.append(mine)
        for is_row, one in self.new(shapes):
            mine = []
            if (not is_row or self.itself) and one.key != LONELY:
                mine.append((runs.PARTNER_INSERT, one, -1))
            if is_row or self.itself:
                mine.append((runs.OUTER_INSERT, one, -1))
            found.append(mine)
        return [sorted(mine) for mine in found]

    def change(self, changes: list[Change], limit: int | None) -> list[tuple[set[int], set[int], bool]]:
        """A version on: of each change what goes, what comes, and whether it was too much."""
        self.version += 1
        self.matching.require(len(self.rows) + len(changes), len(self.others) + len(changes))
        try:
            deltas = self.matching.apply(self.version, packed(changes), limit)
        except KeyError as missing:  # all that goes was there
            raise AssertionError(str(missing)) from missing
        found = []
        for start, end, too_large in zip(deltas.starts, deltas.ends, deltas.too_large, strict=True):
            emitted = deltas.rows[0, start:end].tolist()
            deleted, inserted = [~slot for slot in emitted if slot < 0], [slot for slot in emitted if slot >= 0]
            assert len(set(deleted)) == len(deleted) and len(set(inserted)) == len(inserted), "told twice"
            found.append((set(deleted), set(inserted), bool(too_large)))
        self.matching.reclaim(self.version, self.pin_array(), 1 << 40)
        return found

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data(), in_steps=st.booleans())
    def batch(self, shapes: list[tuple[bool, int, int, int]], data: st.DataObject, in_steps: bool) -> None:
        """All as one version: a row that stays flips at most once. `in_steps`: by `STEPS_UNMATCHED`, and within a step in any order."""
        changes = sorted(change for mine in self.drawn(data, shapes) for change in mine)
        if in_steps and not self.emits_matched:
            changes = sorted(data.draw(st.permutations(changes)), key=lambda change: int(runs.STEPS_UNMATCHED[change[0]]))
        before, moved = self.wanted(), {former: one.slot for kind, one, former in changes if kind == runs.OUTER_MOVE}
        found = self.change(changes, 1 << 40)
        for change in changes:
            follow(self.rows, self.others, change)
        before, after = {moved.get(slot, slot) for slot in before}, self.wanted()
        deleted, inserted = ([slot for one in found for slot in one[sign]] for sign in (0, 1))
        assert len(set(deleted)) == len(deleted) and len(set(inserted)) == len(inserted), "a row flips twice"
        assert set(deleted) == before - after and set(inserted) == after - before, (deleted, inserted, before, after)
        self.validate()

    @rule(shapes=st.lists(SHAPES, max_size=6), data=st.data(), limit=st.sampled_from((None, 2, 1 << 40)))
    def singles(self, shapes: list[tuple[bool, int, int, int]], data: st.DataObject, limit: int | None) -> None:
        """One after another, each judged alone."""
        changes = [change for mine in data.draw(st.permutations(self.drawn(data, shapes))) for change in mine]
        found = self.change(changes, limit)
        for change, (deleted, inserted, too_large) in zip(changes, found, strict=True):
            kind, one, former = change
            before = self.wanted() if not self.itself else set()
            follow(self.rows, self.others, change)
            if limit is None:
                assert not deleted and not inserted
            elif not self.itself:  # else a row is its own partner only once both have changed
                before = {one.slot if slot == former and kind == runs.OUTER_MOVE else slot for slot in before}
                assert not too_large, "it is given up where a chunk is full"
                assert deleted == before - self.wanted() and inserted == self.wanted() - before, (change, deleted, inserted)
        self.validate()

    @precondition(lambda self: self.others or self.rows)
    @rule(which=st.booleans())
    def empty(self, which: bool) -> None:
        """All partners go, or all rows."""
        kind, of = (runs.OUTER_DELETE, self.rows) if which or self.itself else (runs.PARTNER_DELETE, self.others)
        changes: list[Change] = [(kind, one, -1) for one in of.values()]
        if self.itself:
            changes += [(runs.PARTNER_DELETE, one, -1) for one in self.others.values()]
        self.change(changes, None)
        for change in changes:
            follow(self.rows, self.others, change)
        self.validate()

    # --- reading

    def listed(self, root: MatchRoot, key: int | None, window: tuple[int, int] | None) -> Cursor:
        return self.matching.rows(root, key, window)

    @rule(shapes=st.lists(SHAPES, max_size=20))
    def count(self, shapes: list[tuple[bool, int, int, int]]) -> None:
        """Partners counted."""
        tree = EventTree(1 << 16)
        made = [one._replace(key=min(one.key, 1)) for _, one in self.new(shapes)]
        some = entries(made)
        tree.load(some, entries([]))
        tree.check()
        assert tree.count(some).tolist() == [sum(meet(one, other) for other in made) for one in made]

"""A Hypothesis state machine that drives a `Cover` beside its naive twin: batches and runs on both sides, intervals that touch, rows and
partners that move to other slots, open ends and edges of int64, readings of pinned versions; `check()` after each step."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.core.encoding import NEG_INF, POS_INF
from structures.cover import tree
from structures.cover.changes import SPARE
from structures.cover.tree import CHUNK, LONELY, Cover, CoverRoot
from structures.event_tree import runs
from tests.naive.cover import Stretch, stretches
from tests.naive.interval_join import Interval, entries
from tests.structures.event_tree.machine import Change, follow, packed
from tests.structures.machines import Reading, ReadingMachine

EDGES = (NEG_INF, NEG_INF + 1, POS_INF - 1, POS_INF)
ENDS = st.one_of(st.integers(0, 20), st.sampled_from(EDGES))
LENGTHS = st.one_of(st.integers(0, 3), st.integers(0, 12))
SHAPES = st.one_of(  # whether it is a row; key, ends in any order
    st.tuples(st.booleans(), st.integers(0, 2), ENDS, ENDS),
    st.tuples(st.booleans(), st.just(0), st.integers(0, 20), LENGTHS).map(lambda one: (*one[:3], one[2] + one[3])),
)
Shape = tuple[bool, int, int, int]
Found = list[tuple[list[Stretch], list[Stretch], bool]]  # of each change what goes, what comes, and whether it was too much


class CoverMachine(ReadingMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, Interval] = {}
        self.others: dict[int, Interval] = {}

    @initialize(covered=st.booleans(), shapes=st.lists(SHAPES, max_size=40))
    def begin(self, covered: bool, shapes: list[Shape]) -> None:
        self.covered = covered
        tree.CHUNK = SPARE + 4  # so that deltas are told in pieces
        self.cover = Cover(covered, 1 << 20)
        tree.CHUNK = CHUNK
        for is_row, one in self.new(shapes):
            (self.rows if is_row else self.others)[one.slot] = one
        self.cover.load(1, entries(self.rows.values()), entries(self.others.values()))
        self.validate()

    def new(self, shapes: list[Shape]) -> list[tuple[bool, Interval]]:
        made = []
        for is_row, key, left, right in shapes:
            self.slot += 1
            lonely = key == 2 and is_row
            made.append((is_row, Interval(0, LONELY if lonely else key, min(left, right), max(left, right), self.slot)))
        return made

    def wanted(self) -> set[Stretch]:
        return stretches(self.rows, self.others, self.covered)

    def validate(self) -> None:
        self.cover.check(tuple(root for root, _, _ in self.pins.values()))
        self.ends(Reading(self.cover.stretches(self.cover.root), self.wanted(), self.version), 1 << 16)

    def pinned(self) -> tuple[CoverRoot, dict[int, Interval], set[Stretch]]:
        return self.cover.root, dict(self.rows), self.wanted()

    # --- changes

    def drawn(self, data: st.DataObject, shapes: list[Shape]) -> list[Change]:
        found: list[Change] = []
        for of, move, delete in (
            (self.rows, runs.OUTER_MOVE, runs.OUTER_DELETE),
            (self.others, runs.PARTNER_MOVE, runs.PARTNER_DELETE),
        ):
            doomed = data.draw(st.lists(st.sampled_from(sorted(of)), unique=True, max_size=5)) if of else []
            moving = data.draw(st.integers(0, min(1, len(doomed))))
            found += [(move, of[slot]._replace(slot=slot + 1000), slot) for slot in doomed[:moving]]
            found += [(delete, of[slot], -1) for slot in doomed[moving:]]
            if of is self.rows:
                found += [(runs.OUTER_INSERT, of[slot]._replace(slot=slot + 2000), -1) for slot in doomed[moving : moving + 2]]
        found += [(runs.OUTER_INSERT if is_row else runs.PARTNER_INSERT, one, -1) for is_row, one in self.new(shapes)]
        return found

    def change(self, changes: list[Change], limit: int | None) -> Found:
        """A version on."""
        self.version += 1
        self.cover.require(len(self.rows) + len(changes), len(self.others) + len(changes))
        try:
            deltas = self.cover.apply(self.version, packed(changes), limit)
        except KeyError as missing:  # all that goes was there
            raise AssertionError(str(missing)) from missing
        found = []
        for start, end, too_large in zip(deltas.starts, deltas.ends, deltas.too_large, strict=True):
            emitted = [tuple(row) for row in deltas.rows[:, start:end].T.tolist()]
            deleted, inserted = [(~slot, *ends) for slot, *ends in emitted if slot < 0], [row for row in emitted if row[0] >= 0]
            assert all(first <= last for _, first, last in deleted + inserted), "an empty stretch"
            found.append((deleted, inserted, bool(too_large)))
        self.cover.reclaim(self.version, self.pin_array(), 1 << 40)
        return found

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data())
    def batch(self, shapes: list[Shape], data: st.DataObject) -> None:
        """All as one version: what is told adds up to the difference."""
        changes = sorted(self.drawn(data, shapes))
        before, moved = self.wanted(), {former: one.slot for kind, one, former in changes if kind == runs.OUTER_MOVE}
        found = self.change(changes, 1 << 40)
        for change in changes:
            follow(self.rows, self.others, change)
        before, after = {(moved.get(slot, slot), *ends) for slot, *ends in before}, self.wanted()
        net = Counter(row for _, inserted, _ in found for row in inserted)
        net.subtract(row for deleted, _, _ in found for row in deleted)
        assert {row for row, count in net.items() if count == 1} == after - before
        assert {row for row, count in net.items() if count == -1} == before - after
        assert all(-1 <= count <= 1 for count in net.values())
        self.validate()

    @rule(shapes=st.lists(SHAPES, max_size=6), data=st.data(), limit=st.sampled_from((None, 2, 1 << 40)))
    def singles(self, shapes: list[Shape], data: st.DataObject, limit: int | None) -> None:
        """One after another, each judged alone: nothing that stays is told."""
        changes = data.draw(st.permutations(self.drawn(data, shapes)))
        found = self.change(changes, limit)
        for change, (deleted, inserted, too_large) in zip(changes, found, strict=True):
            kind, one, former = change
            before = self.wanted()
            follow(self.rows, self.others, change)
            if limit is None or too_large:
                assert not deleted and not inserted
                assert limit is None or len(before ^ self.wanted()) > limit, "given up for nothing"
            else:
                if kind == runs.OUTER_MOVE:
                    before = {(one.slot if slot == former else slot, *ends) for slot, *ends in before}
                assert sorted(deleted) == sorted(before - self.wanted()) and sorted(inserted) == sorted(self.wanted() - before), change
        self.validate()

    @precondition(lambda self: self.others or self.rows)
    @rule(which=st.booleans())
    def empty(self, which: bool) -> None:
        """All partners go, or all rows."""
        kind, of = (runs.OUTER_DELETE, self.rows) if which else (runs.PARTNER_DELETE, self.others)
        self.change([(kind, one, -1) for one in of.values()], None)
        of.clear()
        self.validate()

    # --- reading

    @precondition(lambda self: self.pins)
    @rule(
        data=st.data(), key=st.sampled_from((None, None, 0, 1, LONELY)), window=st.one_of(st.none(), st.tuples(ENDS, ENDS)),
        given=st.booleans(),
    )  # fmt: skip
    def open(self, data: st.DataObject, key: int | None, window: tuple[int, int] | None, given: bool) -> None:
        """All stretches, or of a key, or of some rows, that meet a window."""
        version = self.some_pin(data)
        root, rows, wanted = self.pins[version]
        window = None if window is None else (min(window), max(window))
        low, high = window or (NEG_INF, POS_INF)
        mine = [one for one in rows.values() if key in (None, one.key)]
        if given:
            mine = mine[::2]
        cursor = self.cover.of_rows(root, entries(mine), window) if given else self.cover.stretches(root, key, window)
        slots = {one.slot for one in mine}
        wanted = {one for one in wanted if one[0] in slots and one[1] <= high and one[2] >= low}
        self.readings.append(Reading(cursor, wanted, version))

"""A Hypothesis state machine that drives a `CliqueTree` beside its naive twin: batches, pins, reads by bits, windows, look-ups, unpins;
`check()` after every batch, and no dead ends but where a walk begins."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from structures.arena import NEG_INF, POS_INF
from structures.clique_tree import CliqueTree, Cursor, Root
from tests.naive.clique_join import Row, cliques
from tests.naive.interval_join import Interval, entries, in_window

POINTS = st.one_of(st.integers(0, 30), st.sampled_from([NEG_INF, POS_INF, 0, 0, 7]))
ENDS = st.one_of(
    st.tuples(st.integers(0, 30), st.integers(0, 9)).map(lambda ends: (ends[0], ends[0] + ends[1])),
    st.tuples(POINTS, POINTS).map(lambda ends: (min(ends), max(ends))),
)
SHAPES = st.tuples(st.integers(0, 2), ENDS)


def as_rows(slots: np.ndarray) -> list[Row]:
    return [tuple(sorted(row)) for row in slots.T.tolist()]


class Reading:
    """A cursor that is read a bit now and then, and what it must have read in the end, with so many dead ends at most."""

    def __init__(self, cursor: Cursor, wanted: set[Row], version: int, dead_ends: int | None) -> None:
        self.cursor, self.wanted, self.version, self.dead_ends = cursor, wanted, version, dead_ends
        self.rows: list[Row] = []

    def read(self, limit: int) -> bool:
        """Read up to `limit` rows; whether that was the end, all rows right."""
        slots = self.cursor.fill(limit)
        assert slots.shape[1] <= limit
        self.rows += as_rows(slots)
        if not self.cursor.done:
            return False
        assert sorted(self.rows) == sorted(self.wanted)
        assert self.dead_ends is None or self.cursor.dead_ends <= self.dead_ends
        return True


class CliqueMachine(RuleBasedStateMachine):
    @initialize(t=st.integers(3, 5), shapes=st.lists(SHAPES, max_size=20), keyed=st.booleans())
    def begin(self, t: int, shapes: list[tuple[int, tuple[int, int]]], keyed: bool) -> None:
        self.t, self.keyed = t, keyed
        self.tree = CliqueTree(t, 1 << 20)
        self.version, self.slot = 1, 0
        self.now: dict[int, Interval] = {}
        self.pins: dict[int, tuple[Root, dict[int, Interval]]] = {}
        self.readings: list[Reading] = []
        for new in self._new(shapes):
            self.now[new.slot] = new
        self.root = self.tree.bulk_load(1, entries(self.now.values()))
        self.tree.check(self.root)

    def _new(self, shapes: list[tuple[int, tuple[int, int]]]) -> list[Interval]:
        made = []
        for key, (left, right) in shapes:
            self.slot += 1
            made.append(Interval(0, key if self.keyed else 0, left, right, self.slot))
        return made

    @rule(shapes=st.lists(SHAPES, max_size=8), data=st.data())
    def batch(self, shapes: list[tuple[int, tuple[int, int]]], data: st.DataObject) -> None:
        self.version += 1
        least = max(0, len(self.now) - 24)
        doomed = data.draw(st.lists(st.sampled_from(sorted(self.now)), unique=True, min_size=least, max_size=least + 8)) if self.now else []
        before = cliques(self.t, self.now.values())
        deletes = [self.now.pop(slot) for slot in doomed]
        between = cliques(self.t, self.now.values())
        inserts = self._new(shapes)
        self.now.update({new.slot: new for new in inserts})
        after = cliques(self.t, self.now.values())
        got: dict[int, list[Row]] = {-1: [], 1: []}

        def sink(sign: int, slots: np.ndarray) -> bool:
            got[sign] += as_rows(slots)
            return True

        self.root = self.tree.apply(self.version, entries(deletes), entries(inserts), sink)
        assert sorted(got[-1]) == sorted(before - between)
        assert sorted(got[1]) == sorted(after - between)
        self.tree.reclaim(self.version, np.array(sorted(self.pins), np.int64))
        self.tree.check(self.root, tuple(root for root, _ in self.pins.values()))
        assert self.tree.is_empty(self.root) == (not after)

    @rule()
    def pin(self) -> None:
        self.pins[self.version] = (self.root, dict(self.now))

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.pins)))
        self.readings = [r for r in self.readings if r.version != version]
        del self.pins[version]

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), points=st.tuples(POINTS, POINTS), how=st.integers(0, 5), key=st.integers(0, 2))
    def open(self, data: st.DataObject, points: tuple[int, int], how: int, key: int) -> None:
        version = data.draw(st.sampled_from(sorted(self.pins)))
        root, then = self.pins[version]
        lo, hi = min(points), max(points)
        every = list(then.values())
        some, dead_ends = every, 1 if how else 0
        if how == 0:
            cursor = self.tree.rows(root)
        elif how == 1:
            cursor, some = self.tree.rows(root, key=key), [x for x in every if x.key == key]
        elif how == 2:
            cursor, some = self.tree.rows(root, window=(lo, hi)), in_window(every, lo, hi)
            dead_ends = 2 * len({x.key for x in every}) + 1
        elif how == 3:
            cursor, some = self.tree.rows(root, key, (lo, hi)), [x for x in in_window(every, lo, hi) if x.key == key]
        elif every:
            given = data.draw(st.lists(st.sampled_from(every), unique=True, max_size=3 if how == 5 else 1))
            window = (lo, hi) if key else None
            cursor, dead_ends = self.tree.partners(root, entries(given), window), len(given)
            some = in_window(every, lo, hi) if window else every
        else:
            return
        wanted = cliques(self.t, some)
        if how > 3:
            wanted = {row for row in wanted if not {x.slot for x in given}.isdisjoint(row)}
        self.readings.append(Reading(cursor, wanted, version, dead_ends))

    @precondition(lambda self: self.readings)
    @rule(data=st.data(), limit=st.sampled_from([1, 2, 7, 1000]), fork=st.booleans())
    def read(self, data: st.DataObject, limit: int, fork: bool) -> None:
        i = data.draw(st.integers(0, len(self.readings) - 1))
        if fork:
            self.readings[i].cursor = self.readings[i].cursor.clone()
        if self.readings[i].read(limit):
            self.readings.pop(i)

    def teardown(self) -> None:
        for reading in getattr(self, "readings", []):
            while not reading.read(50):
                pass

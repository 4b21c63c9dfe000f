"""A Hypothesis state machine that drives an `IJHeap` beside its naive twin: topologies, batches, pins, reads by bits, windows, look-ups,
least and greatest rows, unpins; `check()` after every batch."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from structures.arena import NEG_INF, POS_INF
from structures.ij_goals import FUEL_MOST
from structures.ij_heap import Cursor, IJHeap, Root, Topology
from tests.naive.interval_join import Interval, entries, in_window
from tests.naive.multiway_join import Row, bounded, rows, tuples

POINTS = st.one_of(st.integers(0, 30), st.sampled_from([NEG_INF, POS_INF, 0, 0, 7]))
SHAPES = st.tuples(st.integers(0, 5), st.integers(0, 2), POINTS, POINTS)


@st.composite
def topologies(draw: st.DrawFn, most: int = 5) -> Topology:
    """Paths, stars, cycles, cliques, and random connected graphs: a random tree with some more edges."""
    t = draw(st.integers(2, most))
    shape = draw(st.sampled_from(["path", "star", "cycle", "clique", "any"]))
    edges = [(i, i + 1) for i in range(t - 1)]
    if shape == "star":
        edges = [(0, i) for i in range(1, t)]
    elif shape == "cycle" and t > 2:
        edges.append((0, t - 1))
    elif shape == "clique":
        edges = [(i, j) for j in range(t) for i in range(j)]
    elif shape == "any":
        edges = [(draw(st.integers(0, j - 1)), j) for j in range(1, t)]
        edges += [(i, j) for j in range(t) for i in range(j) if draw(st.integers(0, 3)) == 0]
    return Topology(t, edges)


class Reading:
    """A cursor that is read a bit now and then, and what it must have read in the end."""

    def __init__(self, cursor: Cursor, wanted: list[Row], version: int, height: int, strict: bool) -> None:
        self.cursor, self.wanted, self.version, self.height, self.strict = cursor, wanted, version, height, strict
        self.rows: list[Row] = []

    def read(self, limit: int) -> bool:
        """Read up to `limit` rows; whether that was the end, all rows right, with dead ends within their bound."""
        slots = self.cursor.fill(limit)
        assert slots.shape[1] <= limit
        self.rows += map(tuple, slots.T.tolist())
        if not self.cursor.done:
            return False
        assert sorted(self.rows) == sorted(self.wanted)
        if self.strict:
            assert self.cursor.dead_ends <= FUEL_MOST + len(self.rows) + len(slots) * (self.height + 1)
        return True


class IJMachine(RuleBasedStateMachine):
    @initialize(topology=topologies(), shapes=st.lists(SHAPES, max_size=50), keyed=st.booleans())
    def begin(self, topology: Topology, shapes: list[tuple[int, int, int, int]], keyed: bool) -> None:
        self.topology, self.keyed = topology, keyed
        self.heap = IJHeap(topology, 1 << 20)
        self.version, self.slot = 1, 0
        self.now: dict[int, Interval] = {}
        self.pins: dict[int, tuple[Root, dict[int, Interval]]] = {}
        self.readings: list[Reading] = []
        for new in self._new(shapes):
            self.now[new.slot] = new
        self.root = self.heap.bulk_load(1, entries(self.now.values()))
        self.heap.check(self.root)

    def _new(self, shapes: list[tuple[int, int, int, int]]) -> list[Interval]:
        made = []
        for s, key, a, b in shapes:
            self.slot += 1
            made.append(Interval(s % self.topology.t, key if self.keyed else 0, min(a, b), max(a, b), self.slot))
        return made

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data())
    def batch(self, shapes: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
        self.version += 1
        doomed = data.draw(st.lists(st.sampled_from(sorted(self.now)), unique=True, max_size=12)) if self.now else []
        before = rows(self.topology, self.now.values())
        deletes = [self.now.pop(slot) for slot in doomed]
        between = rows(self.topology, self.now.values())
        inserts = self._new(shapes)
        self.now.update({new.slot: new for new in inserts})
        after = rows(self.topology, self.now.values())
        got: dict[int, list[Row]] = {-1: [], 1: []}

        def sink(sign: int, slots: np.ndarray) -> bool:
            got[sign] += map(tuple, slots.T.tolist())
            return True

        self.root = self.heap.apply(self.version, entries(deletes), entries(inserts), sink)
        assert sorted(got[-1]) == sorted(before - between)
        assert sorted(got[1]) == sorted(after - between)
        self.heap.reclaim(self.version, np.array(sorted(self.pins), np.int64))
        self.heap.check(self.root, tuple(root for root, _ in self.pins.values()))
        assert self.heap.is_empty(self.root) == (not after)

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
        some, strict = every, True
        if how == 0:
            cursor = self.heap.rows(root)
        elif how == 1:
            cursor, some = self.heap.rows(root, key=key), [x for x in every if x.key == key]
        elif how == 2:
            cursor, some, strict = self.heap.rows(root, window=(lo, hi)), in_window(every, lo, hi), False
        elif how == 3:
            cursor, some = self.heap.rows(root, key, (lo, hi)), [x for x in in_window(every, lo, hi) if x.key == key]
        elif every:
            s = data.draw(st.sampled_from(every)).set
            given = data.draw(st.lists(st.sampled_from([x for x in every if x.set == s]), unique=True, max_size=3 if how == 5 else 1))
            cursor, strict = self.heap.partners(root, entries(given), (lo, hi)), len(given) < 2
            some = [x for x in in_window(every, lo, hi) if x.set != s or x in given]
        else:
            return
        wanted = list(rows(self.topology, some))
        self.readings.append(Reading(cursor, wanted, version, root.height, strict))

    @precondition(lambda self: self.readings)
    @rule(data=st.data(), limit=st.sampled_from([1, 2, 7, 1000]), fork=st.booleans())
    def read(self, data: st.DataObject, limit: int, fork: bool) -> None:
        i = data.draw(st.integers(0, len(self.readings) - 1))
        if fork:
            self.readings[i].cursor = self.readings[i].cursor.clone()
        if self.readings[i].read(limit):
            self.readings.pop(i)

    @rule(a=st.lists(POINTS, min_size=5, max_size=5), b=st.lists(POINTS, min_size=5, max_size=5), key=st.integers(0, 2))
    def extremes(self, a: list[int], b: list[int], key: int) -> None:
        """Least and greatest rows under any bounds, from one side and from both."""
        t = self.topology.t
        a, b = a[:t], b[:t]
        every = list(self.now.values())
        for highs, lows in ((a, b), (None, b), (a, None)):
            most, least = highs or [POS_INF] * t, lows or [NEG_INF] * t
            found = tuples(self.topology, bounded(every, key, most, least))
            low = self.heap.min_ij(self.root, least, highs, key)
            high = self.heap.max_ij(self.root, most, lows, key)
            assert (low is None) == (high is None) == (not found)
            if low is not None and high is not None:
                lefts, rights = [x.left for x in self._row(low)], [x.right for x in self._row(high)]
                assert lefts == [min(row[i].left for row in found) for i in range(t)]
                assert rights == [max(row[i].right for row in found) for i in range(t)]
                assert self._row(low) in found and self._row(high) in found

    def _row(self, slots: np.ndarray) -> tuple[Interval, ...]:
        return tuple(self.now[slot] for slot in slots.tolist())

    def teardown(self) -> None:
        for reading in getattr(self, "readings", []):
            while not reading.read(50):
                pass

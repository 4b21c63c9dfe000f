"""A Hypothesis state machine that drives an `IJHeap` beside its naive twin: topologies, batches, pins, reads by bits, windows, look-ups,
least and greatest rows, unpins; `check()` after every batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.core.encoding import NEG_INF, POS_INF
from structures.ij_heap.goals import FUEL_MOST
from structures.ij_heap.heap import IJHeap, Topology
from tests.naive.interval_join import Interval, entries, in_window
from tests.naive.multiway_join import Row, bounded, rows, tuples
from tests.structures.machines import BatchMachine, Reading

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


class IJMachine(BatchMachine):
    @initialize(topology=topologies(), shapes=st.lists(SHAPES, max_size=50), keyed=st.booleans())
    def begin(self, topology: Topology, shapes: list[tuple[int, int, int, int]], keyed: bool) -> None:
        self.topology, self.keyed = topology, keyed
        self.load(IJHeap(topology, 1 << 20), self._new(shapes))

    def wanted(self, some: Iterable[Interval]) -> set[Row]:
        return rows(self.topology, some)

    def _new(self, shapes: list[tuple[int, int, int, int]]) -> list[Interval]:
        made = []
        for s, key, a, b in shapes:
            self.slot += 1
            made.append(Interval(s % self.topology.t, key if self.keyed else 0, min(a, b), max(a, b), self.slot))
        return made

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data())
    def batch(self, shapes: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
        self.change(self.doomed(data), self._new(shapes))

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), points=st.tuples(POINTS, POINTS), how=st.integers(0, 5), key=st.integers(0, 2))
    def open(self, data: st.DataObject, points: tuple[int, int], how: int, key: int) -> None:
        version = self.some_pin(data)
        root, then = self.pins[version]
        lo, hi = min(points), max(points)
        every = list(then.values())
        some, strict = every, True
        if how == 0:
            cursor = self.tree.rows(root)
        elif how == 1:
            cursor, some = self.tree.rows(root, key=key), [x for x in every if x.key == key]
        elif how == 2:
            cursor, some, strict = self.tree.rows(root, window=(lo, hi)), in_window(every, lo, hi), False
        elif how == 3:
            cursor, some = self.tree.rows(root, key, (lo, hi)), [x for x in in_window(every, lo, hi) if x.key == key]
        elif every:
            s = data.draw(st.sampled_from(every)).set
            given = data.draw(st.lists(st.sampled_from([x for x in every if x.set == s]), unique=True, max_size=3 if how == 5 else 1))
            cursor, strict = self.tree.partners(root, entries(given), (lo, hi)), len(given) < 2
            some = [x for x in in_window(every, lo, hi) if x.set != s or x in given]
        else:
            return
        wanted = self.wanted(some)
        dead_ends = FUEL_MOST + len(wanted) + self.topology.t * (root.height + 1)
        self.readings.append(Reading(cursor, wanted, version, dead_ends if strict else None))

    @rule(a=st.lists(POINTS, min_size=5, max_size=5), b=st.lists(POINTS, min_size=5, max_size=5), key=st.integers(0, 2))
    def extremes(self, a: list[int], b: list[int], key: int) -> None:
        """Least and greatest rows under any bounds, from one side and from both."""
        t = self.topology.t
        a, b = a[:t], b[:t]
        every = list(self.now.values())
        for highs, lows in ((a, b), (None, b), (a, None)):
            most, least = highs or [POS_INF] * t, lows or [NEG_INF] * t
            found = tuples(self.topology, bounded(every, key, most, least))
            low = self.tree.min_ij(self.root, least, highs, key)
            high = self.tree.max_ij(self.root, most, lows, key)
            assert (low is None) == (high is None) == (not found)
            if low is not None and high is not None:
                lefts, rights = [x.left for x in self._row(low)], [x.right for x in self._row(high)]
                assert lefts == [min(row[i].left for row in found) for i in range(t)]
                assert rights == [max(row[i].right for row in found) for i in range(t)]
                assert self._row(low) in found and self._row(high) in found

    def _row(self, slots: np.ndarray) -> tuple[Interval, ...]:
        return tuple(self.now[slot] for slot in slots.tolist())

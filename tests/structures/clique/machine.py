"""A Hypothesis state machine that drives a `CliqueTree` beside its naive twin: batches, pins, reads by bits, windows, look-ups, unpins;
`check()` after every batch, and no dead ends but where a walk begins."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.clique.tree import CliqueTree
from structures.core.encoding import NEG_INF, POS_INF
from tests.naive.clique_join import Row, cliques
from tests.naive.interval_join import Interval, entries, in_window
from tests.structures.machines import BatchMachine, Reading

POINTS = st.one_of(st.integers(0, 30), st.sampled_from([NEG_INF, POS_INF, 0, 0, 7]))
ENDS = st.one_of(
    st.tuples(st.integers(0, 30), st.integers(0, 9)).map(lambda ends: (ends[0], ends[0] + ends[1])),
    st.tuples(POINTS, POINTS).map(lambda ends: (min(ends), max(ends))),
)
SHAPES = st.tuples(st.integers(0, 2), ENDS)


def as_rows(slots: np.ndarray) -> list[Row]:
    return [tuple(sorted(row)) for row in slots.T.tolist()]


class CliqueMachine(BatchMachine):
    @initialize(t=st.integers(3, 5), shapes=st.lists(SHAPES, max_size=20), keyed=st.booleans())
    def begin(self, t: int, shapes: list[tuple[int, tuple[int, int]]], keyed: bool) -> None:
        self.t, self.keyed = t, keyed
        self.load(CliqueTree(t, 1 << 20), self._new(shapes))

    def wanted(self, some: Iterable[Interval]) -> set[Row]:
        return cliques(self.t, some)

    def rows_of(self, slots: np.ndarray) -> list[Row]:
        return as_rows(slots)

    def _new(self, shapes: list[tuple[int, tuple[int, int]]]) -> list[Interval]:
        made = []
        for key, (left, right) in shapes:
            self.slot += 1
            made.append(Interval(0, key if self.keyed else 0, left, right, self.slot))
        return made

    @rule(shapes=st.lists(SHAPES, max_size=8), data=st.data())
    def batch(self, shapes: list[tuple[int, tuple[int, int]]], data: st.DataObject) -> None:
        self.change(self.doomed(data, max(0, len(self.now) - 24), 8), self._new(shapes))

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), points=st.tuples(POINTS, POINTS), how=st.integers(0, 5), key=st.integers(0, 2))
    def open(self, data: st.DataObject, points: tuple[int, int], how: int, key: int) -> None:
        version = self.some_pin(data)
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
        wanted = self.wanted(some)
        if how > 3:
            wanted = {row for row in wanted if not {x.slot for x in given}.isdisjoint(row)}
        self.readings.append(Reading(cursor, wanted, version, dead_ends))

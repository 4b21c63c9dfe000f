"""A Hypothesis state machine that drives an `IntervalTree` beside its naive twin: batches, pins, reads by
bits, windows, look-ups, unpins; `check()` after every batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.core.arena import B
from structures.core.encoding import NEG_INF, POS_INF
from structures.interval.changes import EMITTED
from structures.interval.tree import IntervalTree
from tests.naive.interval_join import Interval, Pair, entries, in_window, pairs
from tests.structures.batches import apply_singly
from tests.structures.machines import BatchMachine, Reading, transposed

POINTS = st.one_of(st.integers(0, 30), st.sampled_from([NEG_INF, POS_INF, 0, 0, 7]))
SHAPES = st.tuples(st.integers(0, 1), st.integers(0, 2), POINTS, POINTS)


class IntervalMachine(BatchMachine):
    SPARE = B

    @initialize(kind=st.sampled_from(["pair", "self", "list"]), shapes=st.lists(SHAPES, max_size=40), keyed=st.booleans())
    def begin(self, kind: str, shapes: list[tuple[int, int, int, int]], keyed: bool) -> None:
        self.kind, self.keyed = kind, keyed
        self.load(IntervalTree(kind, 1 << 20), self._new(shapes))

    def wanted(self, some: Iterable[Interval]) -> set[Pair]:
        return pairs(self.kind, some)

    def rows_of(self, slots: np.ndarray) -> list[Pair]:
        if self.kind == "list":
            return [(slot, -1) for slot in slots[0].tolist()]
        rows = transposed(slots)
        return [(min(row), max(row)) for row in rows] if self.kind == "self" else rows

    def _new(self, shapes: list[tuple[int, int, int, int]]) -> list[Interval]:
        made = []
        for s, key, a, b in shapes:
            self.slot += 1
            made.append(Interval(s if self.kind == "pair" else 0, key if self.keyed else 0, min(a, b), max(a, b), self.slot))
        return made

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data())
    def batch(self, shapes: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
        self.change(self.doomed(data), self._new(shapes))

    @rule(shape=SHAPES)
    def emit(self, shape: tuple[int, int, int, int]) -> None:
        """A version on, in which an interval that is not in the tree is told its partners."""
        self.version += 1
        (one,) = self._new([shape])
        others = list(self.now.values())
        wanted = self.wanted([*others, one]) - self.wanted(others)
        emitted = apply_singly(self.tree, self.version, np.array([EMITTED], np.int8), self.packed([one]), len(wanted))
        assert sorted(self.rows_of(emitted[0]) if emitted else []) == sorted(wanted)
        self.root = self.tree.root
        self.tree.check(self.root, tuple(root for root, _ in self.pins.values()))

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), points=st.tuples(POINTS, POINTS), how=st.integers(0, 4), key=st.integers(0, 2))
    def open(self, data: st.DataObject, points: tuple[int, int], how: int, key: int) -> None:
        version = self.some_pin(data)
        root, then = self.pins[version]
        lo, hi = min(points), max(points)
        every = list(then.values())
        if how == 0:
            cursor, wanted = self.tree.rows(root), self.wanted(every)
        elif how == 1:
            cursor, wanted = self.tree.rows(root, key=key), self.wanted([a for a in every if a.key == key])
        elif how == 2:
            cursor, wanted = self.tree.rows(root, window=(lo, hi)), self.wanted(in_window(every, lo, hi))
        elif how == 3:
            mine = [a for a in in_window(every, lo, hi) if a.key == key]
            cursor, wanted = self.tree.rows(root, key, (lo, hi)), self.wanted(mine)
        elif every:
            one = data.draw(st.sampled_from(every))
            cursor = self.tree.partners(root, entries([one]), (lo, hi))
            input = 0 if one.set == 0 else 1
            wanted = self.wanted(in_window(every, lo, hi))
            wanted = {r for r in wanted if (one.slot in r if self.kind == "self" else r[input] == one.slot)}
        else:
            return
        self.readings.append(Reading(cursor, wanted, version))

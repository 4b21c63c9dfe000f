"""A Hypothesis state machine that drives a `BoxTree` beside its naive twin: batches, pins, reads by bits, windows, look-ups,
unpins; `check()` after every batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.box.layout import ROOM
from structures.box.tree import BoxTree, Entries
from structures.core.arena import B
from structures.core.encoding import NEG_INF, POS_INF
from tests.naive.box_join import Box, Pair, entries, in_window, pairs
from tests.structures.machines import BatchMachine, Reading, transposed

POINTS = st.one_of(st.integers(0, 20), st.sampled_from([NEG_INF, POS_INF, 0, 0, 7]))
INPUTS = st.tuples(POINTS, POINTS)
SHAPES = st.tuples(st.integers(0, 1), st.integers(0, 1), st.tuples(INPUTS, INPUTS, INPUTS))
Shape = tuple[int, int, tuple[tuple[int, int], ...]]


def in_order(kind: str, slots: np.ndarray) -> list[Pair]:
    rows = transposed(slots)
    return [(min(row), max(row)) for row in rows] if kind == "self" else rows


class BoxMachine(BatchMachine):
    SPARE = B + ROOM

    @initialize(
        kind=st.sampled_from(["pair", "self"]), dimensions=st.integers(2, 3), shapes=st.lists(SHAPES, max_size=40), keyed=st.booleans()
    )
    def begin(self, kind: str, dimensions: int, shapes: list[Shape], keyed: bool) -> None:
        self.kind, self.dimensions, self.keyed = kind, dimensions, keyed
        self.load(BoxTree(dimensions, kind, 1 << 22), self._new(shapes))

    def packed(self, some: Iterable[Box]) -> Entries:
        return entries(some, self.dimensions)

    def wanted(self, some: Iterable[Box]) -> set[Pair]:
        return pairs(self.kind, some)

    def rows_of(self, slots: np.ndarray) -> list[Pair]:
        return in_order(self.kind, slots)

    def _new(self, shapes: list[Shape]) -> list[Box]:
        made = []
        for s, key, inputs in shapes:
            self.slot += 1
            left, right = zip(*(sorted(input) for input in inputs[: self.dimensions]), strict=True)
            made.append(Box(s if self.kind == "pair" else 0, key if self.keyed else 0, left, right, self.slot))
        return made

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data())
    def batch(self, shapes: list[Shape], data: st.DataObject) -> None:
        self.change(self.doomed(data), self._new(shapes))
        for key in range(2):
            mine = [one for one in self.now.values() if one.key == key]
            reading = Reading(self.tree.rows(self.root, key), self.wanted(mine), self.version)
            while not self.ends(reading, 5):
                pass

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), inputs=st.tuples(INPUTS, INPUTS, INPUTS), how=st.integers(0, 4), key=st.integers(0, 2))
    def open(self, data: st.DataObject, inputs: tuple[tuple[int, int], ...], how: int, key: int) -> None:
        version = self.some_pin(data)
        root, then = self.pins[version]
        lo, hi = (np.array(ends) for ends in zip(*(sorted(input) for input in inputs[: self.dimensions]), strict=True))
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
            cut = data.draw(st.booleans())
            cursor = self.tree.partners(root, self.packed([one]), (lo, hi) if cut else None)
            input = 0 if one.set == 0 else 1
            wanted = self.wanted(in_window(every, lo, hi) if cut else every)
            wanted = {r for r in wanted if (one.slot in r if self.kind == "self" else r[input] == one.slot)}
        else:
            return
        self.readings.append(Reading(cursor, wanted, version))

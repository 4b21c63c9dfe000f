"""A Hypothesis state machine that drives a `BoxTree` beside its naive twin: batches, pins, reads by bits, windows, look-ups,
unpins; `check()` after every batch."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from structures.arena import NEG_INF, POS_INF
from structures.box_tree import BoxTree, Cursor, Root
from tests.naive.box_join import Box, Pair, entries, in_window, pairs

POINTS = st.one_of(st.integers(0, 20), st.sampled_from([NEG_INF, POS_INF, 0, 0, 7]))
SIDES = st.tuples(POINTS, POINTS)
SHAPES = st.tuples(st.integers(0, 1), st.integers(0, 1), st.tuples(SIDES, SIDES, SIDES))
Shape = tuple[int, int, tuple[tuple[int, int], ...]]


def in_order(kind: str, rows: np.ndarray) -> list[Pair]:
    found = list(zip(*rows.tolist(), strict=True))
    return [(min(r), max(r)) for r in found] if kind == "self" else found


class Reading:
    """A cursor that is read a bit now and then, and what it must have read in the end."""

    def __init__(self, cursor: Cursor, wanted: set[Pair], version: int) -> None:
        self.cursor, self.wanted, self.version = cursor, wanted, version
        self.rows: list[Pair] = []

    def read(self, kind: str, limit: int) -> bool:
        """Read up to `limit` rows; whether that was the end, all rows right."""
        rows = self.cursor.fill(limit)
        assert rows.shape[1] <= limit
        self.rows += in_order(kind, rows)
        if not self.cursor.done:
            return False
        assert len(self.rows) == len(set(self.rows)), "a row twice"
        assert set(self.rows) == self.wanted
        return True


class BoxMachine(RuleBasedStateMachine):
    @initialize(
        kind=st.sampled_from(["pair", "self"]), dimensions=st.integers(2, 3), shapes=st.lists(SHAPES, max_size=40), keyed=st.booleans()
    )
    def begin(self, kind: str, dimensions: int, shapes: list[Shape], keyed: bool) -> None:
        self.kind, self.dimensions, self.keyed = kind, dimensions, keyed
        self.tree = BoxTree(dimensions, kind, 1 << 22)
        self.version, self.slot = 1, 0
        self.now: dict[int, Box] = {}
        self.pins: dict[int, tuple[Root, dict[int, Box]]] = {}
        self.readings: list[Reading] = []
        for new in self._new(shapes):
            self.now[new.slot] = new
        self.root = self.tree.bulk_load(1, entries(self.now.values(), dimensions))
        self.tree.check(self.root)

    def _new(self, shapes: list[Shape]) -> list[Box]:
        made = []
        for s, key, sides in shapes:
            self.slot += 1
            left, right = zip(*(sorted(side) for side in sides[: self.dimensions]), strict=True)
            made.append(Box(s if self.kind == "pair" else 0, key if self.keyed else 0, left, right, self.slot))
        return made

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data())
    def batch(self, shapes: list[Shape], data: st.DataObject) -> None:
        self.version += 1
        doomed = data.draw(st.lists(st.sampled_from(sorted(self.now)), unique=True, max_size=12)) if self.now else []
        before = pairs(self.kind, self.now.values())
        deletes = [self.now.pop(slot) for slot in doomed]
        between = pairs(self.kind, self.now.values())
        inserts = self._new(shapes)
        self.now.update({new.slot: new for new in inserts})
        got: dict[int, list[Pair]] = {-1: [], 1: []}

        def sink(sign: int, slots: np.ndarray) -> bool:
            got[sign] += in_order(self.kind, slots)
            return True

        self.root = self.tree.apply(self.version, entries(deletes, self.dimensions), entries(inserts, self.dimensions), sink)
        assert sorted(got[-1]) == sorted(before - between)
        assert sorted(got[1]) == sorted(pairs(self.kind, self.now.values()) - between)
        self.tree.reclaim(self.version, np.array(sorted(self.pins), np.int64))
        self.tree.check(self.root, tuple(root for root, _ in self.pins.values()))
        assert self.tree.is_empty(self.root) == (not pairs(self.kind, self.now.values()))
        for key in range(2):
            reading = Reading(
                self.tree.rows(self.root, key), pairs(self.kind, [a for a in self.now.values() if a.key == key]), self.version
            )
            while not reading.read(self.kind, 5):
                pass

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
    @rule(data=st.data(), sides=st.tuples(SIDES, SIDES, SIDES), how=st.integers(0, 4), key=st.integers(0, 2))
    def open(self, data: st.DataObject, sides: tuple[tuple[int, int], ...], how: int, key: int) -> None:
        version = data.draw(st.sampled_from(sorted(self.pins)))
        root, then = self.pins[version]
        lo, hi = (np.array(ends) for ends in zip(*(sorted(side) for side in sides[: self.dimensions]), strict=True))
        every = list(then.values())
        if how == 0:
            cursor, wanted = self.tree.rows(root), pairs(self.kind, every)
        elif how == 1:
            cursor, wanted = self.tree.rows(root, key=key), pairs(self.kind, [a for a in every if a.key == key])
        elif how == 2:
            cursor, wanted = self.tree.rows(root, window=(lo, hi)), pairs(self.kind, in_window(every, lo, hi))
        elif how == 3:
            mine = [a for a in in_window(every, lo, hi) if a.key == key]
            cursor, wanted = self.tree.rows(root, key, (lo, hi)), pairs(self.kind, mine)
        elif every:
            one = data.draw(st.sampled_from(every))
            cut = data.draw(st.booleans())
            cursor = self.tree.partners(root, entries([one], self.dimensions), (lo, hi) if cut else None)
            side = 0 if one.set == 0 else 1
            wanted = pairs(self.kind, in_window(every, lo, hi) if cut else every)
            wanted = {r for r in wanted if (one.slot in r if self.kind == "self" else r[side] == one.slot)}
        else:
            return
        self.readings.append(Reading(cursor, wanted, version))

    @precondition(lambda self: self.readings)
    @rule(data=st.data(), limit=st.sampled_from([1, 2, 7, 1000]), fork=st.booleans())
    def read(self, data: st.DataObject, limit: int, fork: bool) -> None:
        i = data.draw(st.integers(0, len(self.readings) - 1))
        if fork:
            self.readings[i].cursor = self.readings[i].cursor.clone()
        if self.readings[i].read(self.kind, limit):
            self.readings.pop(i)

    def teardown(self) -> None:
        for reading in getattr(self, "readings", []):
            while not reading.read(self.kind, 50):
                pass

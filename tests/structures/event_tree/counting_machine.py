"""A Hypothesis state machine that drives a `Counting` beside its naive twin: runs of changes of both sides, each of which tells what the
number of pairs and the sums change by; two sets, and one with itself; weights at the edges of int64, lengths in common, some of them beyond
it; `check()` after each step."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from structures.core.encoding import NEG_INF, POS_INF
from structures.event_tree.counting import COMMON, DELETE, INSERT, LENGTHS, MEASURE, MOVE, OWN, THEIRS, Counting, EventChanges, Measures
from tests.naive.counting import Weighted, totals
from tests.naive.interval_join import Interval, entries
from tests.structures.event_tree.machine import ENDS, WEIGHTS

SHAPES = st.tuples(st.integers(0, 1), st.integers(0, 2), ENDS, ENDS, st.tuples(WEIGHTS, WEIGHTS))  # side, key, ends in any order, weights
W = 3  # weights: the first one stands for places, where lengths are added up
OF_LENGTHS = [(COMMON, -1), (LENGTHS, -1), (COMMON, 1), (COMMON, 0), (LENGTHS, 1)]
Shape = tuple[int, int, int, int, tuple[int, int]]
Change = tuple[int, int, Weighted, int]  # kind, side, at its new slot, the former one


def packed(changes: list[Change]) -> EventChanges:
    columns = entries(one.interval for _, _, one, _ in changes)
    kind, role = (np.array([change[at] for change in changes], np.int8) for at in (0, 1))
    former = np.array([change[3] for change in changes], np.int32)
    weights = np.array([one.weights for _, _, one, _ in changes], np.int64).reshape(-1, W)
    return EventChanges(kind, role, columns.key, columns.left, columns.right, columns.slot, former, weights)


def finite(*ends: int) -> list[int]:
    return [max(NEG_INF + 1, min(end, POS_INF - 1)) for end in ends]


def amounts(measured: Measures) -> list[list[int]]:
    """Of each change the number of rows, and the sums, as Python's numbers."""
    sums = [[low + (middle << 32) + (high << 64) for low, middle, high in one] for one in measured.sums.tolist()]
    return [[rows, *of] for rows, of in zip(measured.rows.tolist(), sums, strict=True)]


class CountingMachine(RuleBasedStateMachine):
    @initialize(itself=st.sampled_from((0, 0, 1, 2)), lengths=st.booleans(), shapes=st.lists(SHAPES, max_size=40))
    def begin(self, itself: int, lengths: bool, shapes: list[Shape]) -> None:
        self.itself, self.lengths, self.slot = itself, lengths and itself != 1, 0
        self.inputs: tuple[dict[int, Weighted], dict[int, Weighted]] = ({}, {})
        if itself:
            self.inputs = (self.inputs[0], self.inputs[0])
        more = OF_LENGTHS if self.lengths else []
        first = [(0, 0), (OWN, 1), (THEIRS, 1), (OWN, 2), *more]
        second = [(0, 0), (THEIRS, 1), (OWN, 1), (THEIRS, 2), *more]
        if itself == 1:
            first = second = [(0, 0)]
        if itself == 2:
            first = second = [(0, 0), (OWN | THEIRS, 1), (OWN | THEIRS, 1), (OWN | THEIRS, 2), *more]
        self.recipes = first
        self.counting = Counting((W, W), (first, second), itself, 1 << 20)
        if itself:
            self.follow([(INSERT, 0, one, -1) for _, one in self.new(shapes)])
        else:
            for input, one in self.new(shapes):
                self.inputs[input][one.interval.slot] = one
            loaded = [entries(one.interval for one in input.values()) for input in self.inputs]
            weights = [np.array([one.weights for one in input.values()], np.int64).reshape(-1, W) for input in self.inputs]
            self.counting.load(loaded[0], loaded[1], (weights[0], weights[1]))
        self.validate()

    def new(self, shapes: list[Shape]) -> list[tuple[int, Weighted]]:
        made = []
        for input, key, left, right, weights in shapes:
            self.slot += 1
            if self.lengths:
                left, right = finite(left, right)
            one = Interval(input, key, min(left, right), max(left, right), self.slot)
            made.append((0 if self.itself else input, Weighted(one, (0, *weights))))
        return made

    def wanted(self) -> list[int]:
        return totals([input.values() for input in self.inputs], self.recipes, self.itself)

    def validate(self) -> None:
        self.counting.check()
        assert self.counting.intervals == len(self.inputs[0]) + (0 if self.itself else len(self.inputs[1]))

    def follow(self, changes: list[Change]) -> None:
        """Each is told against what the ones before it left."""
        self.counting.require(len(self.inputs[0]) + len(changes), len(self.inputs[1]) + len(changes))
        try:
            found = amounts(self.counting.follow(packed(changes)))
        except KeyError as missing:  # all that goes was there
            raise AssertionError(str(missing)) from missing
        for (kind, input, one, former), emitted in zip(changes, found, strict=True):
            before, of = self.wanted(), self.inputs[input]
            if kind == MOVE:
                del of[former]
            if kind == DELETE:
                del of[one.interval.slot]
            else:
                of[one.interval.slot] = one
            after = self.wanted()
            deleted, inserted = (after, before) if kind == DELETE else (before, after)
            assert emitted == [x - y for x, y in zip(inserted, deleted, strict=True)], (kind, input, one)
            if kind == MEASURE:
                del of[one.interval.slot]

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data())
    def run(self, shapes: list[Shape], data: st.DataObject) -> None:
        changes: list[Change] = []
        for input, of in enumerate(self.inputs[:1] if self.itself else self.inputs):
            doomed = data.draw(st.lists(st.sampled_from(sorted(of)), unique=True, max_size=6)) if of else []
            moving = data.draw(st.integers(0, len(doomed)))
            for number, slot in enumerate(doomed):
                one = of[slot]
                if number < moving:
                    changes.append((MOVE, input, one._replace(interval=one.interval._replace(slot=slot + 100_000)), slot))
                else:
                    changes.append((DELETE, input, one, -1))
        kinds = st.sampled_from((INSERT, INSERT, INSERT, MEASURE))
        changes += [(data.draw(kinds), input, one, -1) for input, one in self.new(shapes)]
        self.follow(data.draw(st.permutations(changes)))
        self.validate()

    @rule(input=st.integers(0, 1))
    def empty(self, input: int) -> None:
        input = 0 if self.itself else input
        self.follow([(DELETE, input, one, -1) for one in list(self.inputs[input].values())])
        self.validate()

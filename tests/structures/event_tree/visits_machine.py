"""A Hypothesis state machine that drives `Visits` beside its naive twin: runs of changes of rows, each of which tells what its partners
add up to, and of partners, each of which tells the rows that it meets; `check()` after each step."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from structures.event_tree.counting import OWN, THEIRS
from structures.event_tree.visits import DELETE, INSERT, MEASURE, MOVE, Visits
from tests.naive.counting import Weighted, totals
from tests.naive.interval_join import Interval, entries, meet
from tests.structures.event_tree.counting_machine import OF_LENGTHS, SHAPES, Change, Shape, W, amounts, finite, packed


class VisitsMachine(RuleBasedStateMachine):
    @initialize(lengths=st.booleans(), shapes=st.lists(SHAPES, max_size=40))
    def begin(self, lengths: bool, shapes: list[Shape]) -> None:
        self.lengths, self.slot, self.version = lengths, 0, 1
        self.inputs: tuple[dict[int, Weighted], dict[int, Weighted]] = ({}, {})
        self.recipe = [(0, 0), (OWN, 1), (THEIRS, 1), (THEIRS, 2), *(OF_LENGTHS if lengths else [])]
        self.visits = Visits(W, self.recipe, 1 << 20)
        for input, one in self.new(shapes):
            self.inputs[input][one.interval.slot] = one
        rows, partners = (entries(one.interval for one in input.values()) for input in self.inputs)
        weights = np.array([one.weights for one in self.inputs[1].values()], np.int64).reshape(-1, W)
        self.visits.require(len(rows.slot), len(partners.slot))
        self.visits.load(1, rows, partners, weights)
        self.validate()

    def new(self, shapes: list[Shape]) -> list[tuple[int, Weighted]]:
        made = []
        for input, key, left, right, weights in shapes:
            self.slot += 1
            if self.lengths:
                left, right = finite(left, right)
            made.append((input, Weighted(Interval(0, key, min(left, right), max(left, right), self.slot), (0, *weights))))
        return made

    def validate(self) -> None:
        self.visits.check()
        assert self.visits.entries == len(self.inputs[0]) + len(self.inputs[1])

    def follow(self, changes: list[Change]) -> None:
        """Each is told against what the ones before it left."""
        self.version += 1
        self.visits.require(len(self.inputs[0]) + len(changes), len(self.inputs[1]) + len(changes))
        hits, found = dict[int, list[int]](), list[list[int]]()
        try:
            for _, measured, numbers, slots in self.visits.follow(self.version, packed(changes)):
                found = amounts(measured)
                for number, slot in zip(numbers.tolist(), slots.tolist(), strict=True):
                    hits.setdefault(number, []).append(slot)
        except KeyError as missing:  # all that goes was there
            raise AssertionError(str(missing)) from missing
        for number, (kind, input, one, former) in enumerate(changes):
            of = self.inputs[input]
            if kind == MOVE:
                del of[former]
            if kind == DELETE:
                del of[one.interval.slot]
            elif kind != MEASURE:
                of[one.interval.slot] = one
            met = hits.get(number, [])
            if input == 0:
                alone = totals([[one], self.inputs[1].values()], self.recipe, 0)
                assert not met and found[number] == (alone if kind != MOVE else [0] * len(alone)), (kind, one)
            else:
                wanted = [] if kind == MOVE else [slot for slot, row in self.inputs[0].items() if meet(row.interval, one.interval)]
                assert sorted(met) == sorted(wanted), (kind, one)
        self.visits.reclaim(self.version, 1 << 40)

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data())
    def run(self, shapes: list[Shape], data: st.DataObject) -> None:
        changes: list[Change] = []
        for input, of in enumerate(self.inputs):
            doomed = data.draw(st.lists(st.sampled_from(sorted(of)), unique=True, max_size=6)) if of else []
            moving = data.draw(st.integers(0, len(doomed)))
            for number, slot in enumerate(doomed):
                one = of[slot]
                if number < moving:
                    changes.append((MOVE, input, one._replace(interval=one.interval._replace(slot=slot + 100_000)), slot))
                else:
                    changes.append((DELETE, input, one, -1))
        changes += [(MEASURE if input == 0 and self.slot % 5 == 0 else INSERT, input, one, -1) for input, one in self.new(shapes)]
        self.follow(data.draw(st.permutations(changes)))
        self.validate()

    @rule(input=st.integers(0, 1))
    def empty(self, input: int) -> None:
        self.follow([(DELETE, input, one, -1) for one in list(self.inputs[input].values())])
        self.validate()

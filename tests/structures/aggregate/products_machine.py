"""A Hypothesis state machine that drives `Products` beside its naive twin: runs of rows that come and go in two to four relations, each of
which tells what the number of rows of the join and the sums change by; `check()` after each step."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from structures.aggregate.products import Members, Products
from tests.naive.products import Member, totals

KEYS = 3
WEIGHTS = st.one_of(st.integers(-3, 12), st.sampled_from((2**63 - 1, -(2**63), 2**62, 2**32, -(2**32), 2**31)))
MEMBERS = st.builds(Member, st.integers(0, 3), st.integers(0, KEYS - 1), st.tuples(WEIGHTS, WEIGHTS))
SUMS = (0, 0), (1, 1), (0, 1), (1, 0)  # relation, weight


def packed(changes: list[tuple[int, Member]]) -> Members:
    signs, roles = (np.array(values, np.int8) for values in ([sign for sign, _ in changes], [one.relation for _, one in changes]))
    weights = np.array([one.weights for _, one in changes], np.int64).reshape(-1, 2)
    return Members(signs, roles, np.array([one.key for _, one in changes], np.int32), weights)


class ProductsMachine(RuleBasedStateMachine):
    @initialize(relations=st.integers(2, 4))
    def begin(self, relations: int) -> None:
        self.relations, self.rows = relations, list[Member]()
        self.products = Products(relations, SUMS, 64)

    @rule(rows=st.lists(MEMBERS, max_size=10), data=st.data())
    def run(self, rows: list[Member], data: st.DataObject) -> None:
        doomed = data.draw(st.lists(st.sampled_from(range(len(self.rows))), unique=True, max_size=8)) if self.rows else []
        new = [one._replace(relation=one.relation % self.relations) for one in rows]
        changes = [(-1, self.rows[at]) for at in doomed] + [(data.draw(st.sampled_from((1, 1, 0))), one) for one in new]
        self.follow(data.draw(st.permutations(changes)))

    @rule()
    def empty(self) -> None:
        self.follow([(-1, one) for one in self.rows])
        assert not self.products._store.cells[:KEYS].any()

    def follow(self, changes: list[tuple[int, Member]]) -> None:
        self.products.require(KEYS)
        try:
            measured = self.products.follow(packed(changes))
        except KeyError as missing:  # all that goes was there
            raise AssertionError(str(missing)) from missing
        sums = [[low + (middle << 32) + (high << 64) for low, middle, high in one] for one in measured.sums.tolist()]
        for (sign, one), rows, emitted in zip(changes, measured.rows.tolist(), sums, strict=True):
            before = totals(self.rows, self.relations, SUMS)
            if sign < 0:
                self.rows.remove(one)
            else:
                self.rows.append(one)
            after = totals(self.rows, self.relations, SUMS)
            deleted, inserted = (after, before) if sign < 0 else (before, after)
            assert [rows, *emitted] == [x - y for x, y in zip(inserted, deleted, strict=True)], (sign, one)
            if sign == 0:  # it moves to another slot: it is measured, and changes nothing
                self.rows.remove(one)
        self.products.check(KEYS)

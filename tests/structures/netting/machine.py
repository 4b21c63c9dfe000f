"""Rows that go and come in some versions, and moves of what they consist of, netted and compared with a count of each row."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from structures.netting.merging import merged
from structures.netting.net import Moves, NetRows, netted

Row = tuple[int, ...]
EDGES = (-1, 2**31 - 1, 2**63 - 1, -(2**63))
VALUES = st.one_of(st.integers(0, 3), st.sampled_from(EDGES))
MOST = 32  # rows of all versions
NUMBERS = st.integers(0, 2)  # of a version


def left(rows: list[tuple[int, bool, Row]], moves: list[dict[tuple[int, int], int]]) -> tuple[list[tuple[int, Row]], ...]:
    """The naive twin: what goes, and what comes, each with its version; of the rows that come, those that come in the place of another, and
    which. `moves`: of each column by version and value."""
    net: Counter[tuple[int, Row]] = Counter()
    for version, is_inserted, row in rows:
        net[version, row] += 1 if is_inserted else -1
    is_deleted, is_inserted = ([one for one, times in net.items() if times * sign > 0] for sign in (-1, 1))
    back = {}
    for version, row in is_deleted:
        to = tuple(moved.get((version, value), value) for moved, value in zip(moves, row, strict=True))
        if to != row and net[version, to] > 0:
            back[version, row] = version, to
    return is_deleted, is_inserted, [*back], [*back.values()]


def once(rows: list[tuple[int, bool, Row]]) -> list[tuple[int, bool, Row]]:
    """In the order of the versions, without those that come, or go, though they have already."""
    net: Counter[tuple[int, Row]] = Counter()
    kept = []
    for version, is_inserted, row in sorted(rows, key=lambda one: one[0]):
        if net[version, row] != (1 if is_inserted else -1):
            net[version, row] += 1 if is_inserted else -1
            kept.append((version, is_inserted, row))
    return kept


class NettingMachine(RuleBasedStateMachine):
    """Every example is netted anew: nothing is kept between two."""

    @initialize(columns=st.integers(1, 3))
    def begin(self, columns: int) -> None:
        self.columns = columns

    @rule(data=st.data())
    def net(self, data: st.DataObject) -> None:
        row = st.tuples(*[VALUES] * self.columns)
        rows = once(data.draw(st.lists(st.tuples(NUMBERS, st.booleans(), row), max_size=MOST)))
        drawn = st.dictionaries(st.tuples(NUMBERS, VALUES), VALUES, max_size=6)
        moves = [data.draw(drawn) for _ in range(self.columns)]
        emitted = NetRows(
            np.array([version for version, _, _ in rows], np.int64),
            np.array([is_inserted for _, is_inserted, _ in rows], np.bool_),
            np.array([row for _, _, row in rows], np.int64).reshape(-1, self.columns).T.copy(),
        )
        every = [(*of, new) for moved in moves for of, new in moved.items()]
        columns = np.array(every, np.int64).reshape(-1, 3).T.copy()
        is_deleted, is_inserted, pairs = netted(emitted, Moves(*columns, np.cumsum([len(moved) for moved in moves])))
        names = [(version, row) for version, _, row in rows]
        wanted = left(rows, moves)
        for found, those in ((is_deleted, wanted[0]), (is_inserted, wanted[1])):
            self.validate([names[at] for at in found.tolist()], those)
        self.validate([names[at] for at in is_deleted[pairs[0]].tolist()], wanted[2])
        assert [names[at] for at in is_inserted[pairs[1]].tolist()] == [
            wanted[3][wanted[2].index(names[at])] for at in is_deleted[pairs[0]].tolist()
        ]

    @rule(is_deleted=st.lists(NUMBERS, max_size=9).map(sorted), is_inserted=st.lists(NUMBERS, max_size=9).map(sorted))
    def merge(self, is_deleted: list[int], is_inserted: list[int]) -> None:
        found = merged(np.array(is_deleted, np.int64), np.array(is_inserted, np.int64))
        rows = [(version, False, at) for at, version in enumerate(is_deleted)]
        rows = sorted([*rows, *((version, True, len(is_deleted) + at) for at, version in enumerate(is_inserted))])
        assert found.order.tolist() == [row for _, _, row in rows], "the order of the rows"
        versions = sorted({*is_deleted, *is_inserted})
        assert found.versions.tolist() == versions, "which versions change something"
        assert found.starts.tolist() == [sum(row[0] < version for row in rows) for version in [*versions, 9]], "where a version starts"
        assert found.deletes.tolist() == [is_deleted.count(version) for version in versions], "how many rows go"

    @staticmethod
    def validate(found: list[tuple[int, Row]], wanted: list[tuple[int, Row]]) -> None:
        assert sorted(found) == sorted(wanted), "what is left"
        assert [version for version, _ in found] == sorted(version for version, _ in wanted), "versions are out of order"

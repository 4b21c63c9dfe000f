"""A Hypothesis state machine that drives unions of ANDs with groups beside a naive twin: batches, pins, reads by bits, given
tuples, unpins; `check()` after every batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.qdag.union import Branch, Or
from tests.naive.natural_join import entries, join
from tests.structures.machines import Reading, Row, transposed
from tests.structures.qdag.machine import CODES, POINTS, Relations, Shape, Trees, TreesMachine

# Of each branch its atoms, and those of its groups. A relation may stand in groups and outside of them.
SHAPES = [
    Shape((2, 2), ((0, (0, 1)),), (((1, (0, 1)),),)),
    Shape((2, 2, 2), ((0, (0, 1)), (1, (1, 2))), (((2, (0, 2)),), ((0, (2, 0)),))),
    Shape((2, 1), ((0, (0, 1)),)),
    Shape((2, 1), ((1, (0,)), (1, (1,)))),
    Shape((2, 3, 1), ((0, (0, 1)), (0, (1, 2)), (2, (2,))), (((0, (0, 1)), (0, (1, 2))),)),
    Shape((2, 3, 1), ((1, (2, 0, 1)),), (((2, (1,)), (2, (0,))),)),
    Shape((2, 3, 1), ((1, (0, 1, 2)),)),
    Shape((1,), ((0, (0,)),)),
]
UNIONS = [(0,), (1,), (2, 3), (3, 2), (4, 5, 6), (6, 4), (7, 7), (4,)]


class Union(NamedTuple):
    branches: list[Shape]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Union:
        return cls([SHAPES[number] for number in numbers])

    @property
    def arities(self) -> tuple[int, ...]:
        return max((one.arities for one in self.branches), key=len)

    @property
    def dimension(self) -> int:
        return self.branches[0].dimension

    def wanted(self, now: Relations) -> set[Row]:
        """The tuples."""
        found: set[Row] = set()
        for one in self.branches:
            groups = [[(now[relation], own) for relation, own in group] for group in one.absent]
            relations, variables = [now[relation] for relation, _ in one.atoms], [own for _, own in one.atoms]
            by_slot = [{entry[-1]: entry for entry in relation} for relation in relations]
            for slots in join(relations, variables, (), groups):
                values = [dict(zip(own, known[slot], strict=False)) for own, known, slot in zip(variables, by_slot, slots, strict=True)]
                found.add(tuple({v: code for some in values for v, code in some.items()}[v] for v in range(one.dimension)))
        return found


def union_over(union: Union, of: Trees) -> Or:
    """Over trees of all orders."""

    def atoms(listed: Sequence[tuple[int, tuple[int, ...]]]) -> list:  # type: ignore[type-arg]
        return [of._atom(relation, own) for relation, own in listed]

    return Or(of.trees, union.dimension, [Branch(atoms(one.atoms), [atoms(group) for group in one.absent]) for one in union.branches])


class UnionMachine(TreesMachine):
    @initialize(union=st.sampled_from(UNIONS), points=st.lists(POINTS, max_size=30), least=st.sampled_from([1, 1, 40, 10**6]))
    def begin(self, union: tuple[int, ...], points: list[tuple[int, Row, int]], least: int) -> None:
        self.union = Union.of(union)
        self.of = Trees(Shape(self.union.arities, self.union.branches[0].atoms), least=least)
        self.join = union_over(self.union, self.of)
        loaded = self._new(points)
        for relation, given in enumerate(loaded):
            self.of.load(1, relation, given)
        self.now: Relations = tuple(map(frozenset, loaded))
        self.root = self.of.trees.roots
        self._read_all()

    @rule(points=st.lists(POINTS, max_size=10), data=st.data())
    def batch(self, points: list[tuple[int, Row, int]], data: st.DataObject) -> None:
        self.version += 1
        deleted = [data.draw(st.lists(st.sampled_from(sorted(one)), unique=True, max_size=8)) if one else [] for one in self.now]
        inserted = self._new(points)
        before = self.now, self.root
        for relation, (less, more) in enumerate(zip(deleted, inserted, strict=True)):
            self.of.change(self.version, relation, less, False)
            self.of.change(self.version, relation, more, True)
        self.now = tuple(one.difference(less).union(more) for one, less, more in zip(self.now, deleted, inserted, strict=True))
        self.root = self.of.trees.roots
        self.of.trees.check(self.root, (before[1], *(root for root, _ in self.pins.values())))
        self._delta(before, (self.now, self.root))
        self._delta((self.now, self.root), before)
        self.of.trees.reclaim(self.version, self.pin_array())
        self.of.trees.check(self.root, tuple(root for root, _ in self.pins.values()))
        self._read_all()

    def _delta(self, old: tuple[Relations, tuple], new: tuple[Relations, tuple]) -> None:  # type: ignore[type-arg]
        """What comes from one version to another is what the branches' changed atoms tell."""
        found: set[Row] = set()
        for number, one in enumerate(self.union.branches):
            for position, (relation, _) in enumerate(one.all_atoms):
                first, last = (old, new) if position < len(one.atoms) else (new, old)
                tuples = {entry[:-1] for entry in last[0][relation]} - {entry[:-1] for entry in first[0][relation]}
                given = entries([(*some, 0) for some in sorted(tuples)], self.union.arities[relation])[:, :-1]
                emitted = self.emit(self.join.changes(number, position, given, new[1], old[1]), 4, new[0])
                assert len(emitted) == len(set(emitted)), "a tuple twice"
                found |= set(emitted)
        assert found == self.union.wanted(new[0]) - self.union.wanted(old[0])

    def emit(self, cursor, limit: int, then: Relations) -> list[Row]:  # type: ignore[no-untyped-def]
        """The tuples, each shown by rows of one branch that have its values."""
        emitted: list[Row] = []
        while not cursor.done:
            rows = cursor.fill(limit)
            emitted += self._tuples(rows, then)
        return emitted

    def _tuples(self, rows: np.ndarray, then: Relations) -> list[Row]:
        lines, emitted = self.join.lines, []
        for row in transposed(rows):
            slots, values = row[:lines], row[lines:]
            (number,) = {n for n, start in enumerate(self.join.starts) if slots[start] >= 0}
            one, start = self.union.branches[number], self.join.starts[number]
            assert all((slot >= 0) == (start <= i < start + len(one.atoms)) for i, slot in enumerate(slots))
            for (relation, own), slot in zip(one.atoms, slots[start:], strict=False):
                assert (*(values[v] for v in own), slot) in then[relation]
            emitted.append(values)
        return emitted

    def _read_all(self) -> None:
        cursor = self.join.rows(self.root)
        emitted = self.emit(cursor, 3, self.now)
        assert len(emitted) == len(set(emitted)), "a tuple twice"
        assert set(emitted) == self.union.wanted(self.now)

    def pinned(self) -> tuple:  # type: ignore[type-arg]
        return self.root, self.now

    def rows_of(self, *chunk: np.ndarray) -> list[Row]:
        return [row[self.join.lines :] for row in transposed(*chunk)]

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), codes=st.lists(CODES, min_size=3, max_size=3), bound=st.booleans())
    def open(self, data: st.DataObject, codes: list[int], bound: bool) -> None:
        version = self.some_pin(data)
        roots, then = self.pins[version]
        wanted = self.union.wanted(then)
        given = None
        if bound:
            given = tuple(codes[: self.union.dimension])
            if wanted and data.draw(st.booleans()):
                given = data.draw(st.sampled_from(sorted(wanted)))
            wanted &= {given}
        self.readings.append(Reading(self.join.rows(roots, given), wanted, version))

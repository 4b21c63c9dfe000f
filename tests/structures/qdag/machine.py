"""A Hypothesis state machine that drives quadtrees and the ANDs over them beside a naive twin: batches, runs of single changes, pins,
reads by bits, given values, given entries, other versions of some atoms, unpins; `check()` after every batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.qdag.qdag import And, Atom
from structures.qdag.run import STEP_DELETE, STEP_ENTER, STEP_INSERT, STEP_LEAVE, Runs
from structures.quadtree.trees import QuadTrees
from tests.naive.natural_join import Entry, entries, join
from tests.structures.machines import Reading, ReadingMachine, Row, read_all, transposed

Relations = tuple[frozenset[Entry], ...]
CODES = st.one_of(st.integers(0, 3), st.integers(0, 12), st.sampled_from([1, 2, 2**20 + 1, 2**30 - 1]))
POINTS = st.tuples(st.integers(0, 3), st.tuples(CODES, CODES, CODES), st.integers(1, 3))


class Shape(NamedTuple):
    """arities of the relations; of each atom its relation and its variables, and of those of each NOT EXISTS group."""

    arities: tuple[int, ...]
    atoms: tuple[tuple[int, tuple[int, ...]], ...]
    absent: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...] = ()

    @property
    def dimension(self) -> int:
        return 1 + max(v for _, own in self.atoms for v in own)

    @property
    def all_atoms(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        return self.atoms + tuple(atom for group in self.absent for atom in group)


SHAPES = [
    Shape((2,), ((0, (0, 1)), (0, (1, 2)), (0, (2, 0)))),  # a triangle in one graph
    Shape((2, 2, 2), ((0, (0, 1)), (1, (1, 2)), (2, (0, 2)))),
    Shape((2, 1), ((0, (0, 1)), (0, (1, 0)), (1, (1,)))),
    Shape((2, 2, 2, 2), ((0, (0, 1)), (1, (1, 2)), (2, (2, 3)), (3, (3, 0)))),
    Shape((3, 2, 1), ((0, (0, 1, 2)), (1, (2, 3)), (2, (3,)), (1, (0, 3)))),
    Shape((3, 3), ((0, (0, 1, 2)), (1, (1, 2, 3)))),
    Shape((1,), ((0, (0,)), (0, (0,)))),
]


@contextmanager
def finding() -> Iterator[None]:
    """Of nothing that is there do the trees say that it is not."""
    try:
        yield
    except KeyError as answer:
        assert "not in the tree" not in str(answer), f"of entries that are there: {answer}"
        raise


class Trees:
    """Of each relation a tree for each set of coordinates, but all, to come first; `least` entries have a compact form."""

    def __init__(self, shape: Shape, words: int = 1 << 22, least: int = 1) -> None:
        self.shape = shape
        self.orders = [
            (relation, first, (*first, *(j for j in range(arity) if j not in first)))
            for relation, arity in enumerate(shape.arities)
            for size in range(arity)
            for first in combinations(range(arity), size)
        ]
        self.trees = QuadTrees([(len(order), len(first)) for _, first, order in self.orders], words, least)
        absent = [[self._atom(*one) for one in group] for group in shape.absent]
        self.join = And(self.trees, shape.dimension, [self._atom(*one) for one in shape.atoms], absent)
        bases: list[list[tuple[int, Row]]] = [[] for _ in shape.arities]
        for number, (relation, _, order) in enumerate(self.orders):
            bases[relation].append((number, (*order, len(order))))
        if not absent:
            self.runs = Runs(self.join, bases, [relation for relation, _ in shape.atoms], capacity=3, budget=5)

    def _atom(self, relation: int, variables: tuple[int, ...]) -> Atom:
        own = {
            frozenset(variables[j] for j in first): (number, tuple(variables[j] for j in order))
            for number, (of, first, order) in enumerate(self.orders)
            if of == relation
        }
        return Atom(frozenset(variables), own)

    def _each(self, relation: int, given: Sequence[Entry]) -> list[tuple[int, np.ndarray]]:
        found = entries(given, self.shape.arities[relation])
        return [(n, np.ascontiguousarray(found[:, [*order, len(order)]])) for n, (of, _, order) in enumerate(self.orders) if of == relation]

    def load(self, version: int, relation: int, given: Sequence[Entry]) -> None:
        for tree, found in self._each(relation, given):
            self.trees.bulk_load(version, tree, found)

    def change(self, version: int, relation: int, given: Sequence[Entry], inserted: bool) -> None:
        for tree, found in self._each(relation, given):
            self.trees.require(len(found), 1)
            with finding():
                (self.trees.insert if inserted else self.trees.delete)(version, tree, found)

    def wanted(self, versions: Sequence[Relations], codes: Sequence[int] = ()) -> set[Row]:
        """The rows over these versions, one an atom."""
        then = iter(versions)
        relations = [next(then)[relation] for relation, _ in self.shape.atoms]
        groups = [[(next(then)[relation], own) for relation, own in group] for group in self.shape.absent]
        return join(relations, [own for _, own in self.shape.atoms], codes, groups)


class TreesMachine(ReadingMachine):
    """Over the trees `of` some relations."""

    of: Trees

    def _new(self, points: list[tuple[int, Row, int]]) -> list[list[Entry]]:
        """Up to three entries of a tuple each."""
        made: list[list[Entry]] = [[] for _ in self.of.shape.arities]
        for relation, codes, copies in points:
            relation %= len(made)
            for _ in range(copies):
                self.slot += 1
                made[relation].append((*codes[: self.of.shape.arities[relation]], self.slot))
        return made


class QdagMachine(TreesMachine):
    @initialize(shape=st.sampled_from(SHAPES), points=st.lists(POINTS, max_size=25), least=st.sampled_from([1, 1, 40, 10**6]))
    def begin(self, shape: Shape, points: list[tuple[int, Row, int]], least: int) -> None:
        self.shape, self.of = shape, Trees(shape, least=least)
        self.now: Relations = tuple(frozenset() for _ in shape.arities)
        loaded = self._new(points)
        for relation, given in enumerate(loaded):
            self.of.load(1, relation, given)
        self.now = tuple(map(frozenset, loaded))
        self.root = self.of.trees.roots
        self.of.trees.check(self.root)
        self._read_all()

    @rule(points=st.lists(POINTS, max_size=10), data=st.data(), emptied=st.integers(0, 9))
    def batch(self, points: list[tuple[int, Row, int]], data: st.DataObject, emptied: int) -> None:
        """`emptied`: the number of a relation that loses all that it has, where there is one."""
        self.version += 2
        deleted = [data.draw(st.lists(st.sampled_from(sorted(one)), unique=True, max_size=8)) if one else [] for one in self.now]
        deleted = [sorted(one) if number == emptied else some for number, (one, some) in enumerate(zip(self.now, deleted, strict=True))]
        inserted = self._new(points)
        for step, changed in enumerate((deleted, inserted)):
            before = self.now, self.root
            self.now = tuple(
                one - set(some) if changed is deleted else one | set(some) for one, some in zip(self.now, changed, strict=True)
            )
            for relation, given in enumerate(changed):
                self.of.change(self.version - 1 + step, relation, given, changed is inserted)
            self.root = self.of.trees.roots
            self.of.trees.check(self.root, (before[1], *(root for root, _ in self.pins.values())))
            self._delta(changed, changed is inserted, before, (self.now, self.root))
        self.of.trees.reclaim(self.version, self.pin_array())
        self.of.trees.check(self.root, tuple(root for root, _ in self.pins.values()))
        self._read_all()

    @rule(tree=st.integers(0, 9), code=CODES)
    def reach(self, tree: int, code: int) -> None:
        self.of.trees.reach(tree % len(self.of.trees.shapes), code)

    @rule(points=st.lists(POINTS, min_size=1, max_size=6), data=st.data(), limit=st.sampled_from([None, 2, 1000]))
    def run(self, points: list[tuple[int, Row, int]], data: st.DataObject, limit: int | None) -> None:
        """Single changes, each of a row that goes, comes, is replaced, or moves to another slot."""
        steps: list[tuple[int, int, int, int]] = []
        flat: list[int] = []
        wanted: dict[tuple[int, bool], set[Row]] = {}
        for change, (relation, codes, _) in enumerate(points):
            relation %= len(self.now)
            self.slot += 1
            inserted: Entry = (*codes[: self.shape.arities[relation]], self.slot)
            here = sorted(self.now[relation])
            kind = data.draw(st.sampled_from(["come", "go", "replace", "move"])) if here else "come"
            deleted = data.draw(st.sampled_from(here)) if kind != "come" else None
            inserted = (*deleted[:-1], self.slot) if kind == "move" and deleted else inserted
            signs = (STEP_LEAVE, STEP_ENTER) if kind == "move" else (STEP_DELETE, STEP_INSERT)
            for sign, entry in zip(signs, (deleted, inserted if kind != "go" else None), strict=True):
                if entry is not None:
                    steps.append((change, sign, relation, len(flat)))
                    flat += entry
                    before = self.now
                    after = self.now[relation] - {entry} if sign in (STEP_LEAVE, STEP_DELETE) else self.now[relation] | {entry}
                    self.now = (*before[:relation], after, *before[relation + 1 :])
                    old, new = self.of.wanted(self._all(before)), self.of.wanted(self._all(self.now))
                    if sign > STEP_ENTER and old != new and limit is not None:
                        wanted[change, sign == STEP_INSERT] = old ^ new
        self.of.trees.require(len(steps) * len(self.of.orders), 1)
        found: dict[tuple[int, bool], list[Row]] = {}
        with finding():
            for emitted in self.of.runs.follow(self.version, np.array(steps, np.int64), np.array(flat, np.int32), limit):
                rows = found.setdefault((emitted.change, emitted.inserted), [])
                rows += transposed(emitted.rows)
                if emitted.too_large:
                    assert limit is not None and len(wanted[emitted.change, emitted.inserted]) > limit
                    rows[:] = wanted[emitted.change, emitted.inserted]
        assert {key: set(rows) for key, rows in found.items()} == wanted
        assert all(len(rows) == len(wanted[key]) for key, rows in found.items()), "a row of the delta twice"
        self.version = self.of.trees.version
        self.root = self.of.trees.roots
        self.of.trees.reclaim(self.version, self.pin_array())
        self.of.trees.check(self.root, tuple(root for root, _ in self.pins.values()))

    def _read_all(self) -> None:
        rows = read_all(self.of.join.rows(self._all(self.root)), 3)
        assert len(rows) == len(set(rows)), "a row twice"
        assert set(rows) == self.of.wanted(self._all(self.now))

    def _all(self, one: tuple) -> list:  # type: ignore[type-arg]
        return [one] * len(self.shape.all_atoms)

    def _delta(self, changed: list[list[Entry]], inserted: bool, before: tuple, after: tuple) -> None:  # type: ignore[type-arg]
        """Each changed row of the view falls to exactly one atom."""
        found: list[Row] = []
        for position, (relation, _) in enumerate(self.shape.atoms):
            versions = [(after if other < position else before)[1] for other in range(len(self.shape.atoms))]
            given = entries(changed[relation], self.shape.arities[relation])
            found += read_all(self.of.join.partners(versions, position, given), 4)
        old, new = self.of.wanted(self._all(before[0])), self.of.wanted(self._all(after[0]))
        assert len(found) == len(set(found)), "a row of the delta twice"
        assert set(found) == (new - old if inserted else old - new)

    def pinned(self) -> Any:
        return self.root, self.now

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), codes=st.lists(st.one_of(st.just(-1), CODES), min_size=4, max_size=4), bound=st.booleans())
    def open(self, data: st.DataObject, codes: list[int], bound: bool) -> None:
        version = self.some_pin(data)
        roots, then = self.pins[version]
        given = codes[: self.shape.dimension]
        if bound:
            _, own = data.draw(st.sampled_from(self.shape.atoms))
            given = [code if v in own else -1 for v, code in enumerate(given)]
        cursor = self.of.join.rows(self._all(roots), given if bound else None)
        self.readings.append(Reading(cursor, self.of.wanted(self._all(then), given if bound else ()), version))

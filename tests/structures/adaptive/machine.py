"""A Hypothesis state machine that drives chains and bow-ties over the same indexes beside a naive twin: batches, single changes, moves,
pins, reads by bits (whole by either algorithm and any stack, of given entries, of given keys), unpins; `check()` after every version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.adaptive import bow_tie
from structures.adaptive.bow_tie import BowTie
from structures.adaptive.elimination import Elimination
from structures.adaptive.intersect import Intersect
from structures.index.indexes import OrderedIndexes
from tests.naive.natural_join import Entry
from tests.structures.index.following_machine import FollowingMachine, Key, Relations, Variables, View, atoms_of
from tests.structures.index.planting_machine import PlantingMachine

VALUES = st.one_of(st.integers(0, 3), st.integers(-40, 40), st.sampled_from([-(2**63), 2**63 - 1, 1000]))
TUPLES = st.tuples(st.integers(0, 3), st.tuples(*[VALUES] * 3), st.integers(1, 2))


class Shape(NamedTuple):
    """arities of the relations; of each view its atoms, each a relation and its variables."""

    arities: Variables
    views: tuple[tuple[tuple[int, Variables], ...], ...]


SHAPES = [
    Shape((1, 2, 1), (((0, (0,)), (1, (0, 1)), (2, (1,))), ((0, (0,)), (2, (0,)), (1, (0, 1))))),
    Shape((1, 2), (((0, (1,)), (1, (1, 0)), (0, (0,))), ((1, (0, 1)), (0, (1,)), (0, (0,))), ((1, (0, 1)), (1, (1, 0)), (0, (0,))))),
    Shape((1, 3, 2), (((0, (0,)), (1, (1, 0, 2)), (2, (0, 1))), ((1, (0, 1, 2)), (1, (1, 2, 0))), ((0, (0,)),) * 3)),
    Shape((2, 1), (((1, (0,)), (0, (0, 1)), (1, (1,))),)),
]


def orders_of(atoms: Sequence[Variables]) -> list[list[Variables]]:
    """Of each atom the variables of its indexes: of a chain those in more atoms first, of a bow-tie's S both ways."""
    if is_bow_tie(atoms):
        return [[(0, 1), (1, 0)] if len(own) == 2 else [own] for own in atoms]
    return [[tuple(sorted(own, key=lambda v: (-sum(v in other for other in atoms), v)))] for own in atoms]


def is_bow_tie(atoms: Sequence[Variables]) -> bool:
    return sorted(map(sorted, atoms)) == [[0], [0, 1], [1]]


def adaptive_of(
    indexes: OrderedIndexes, made: dict[Key, int], atoms: Sequence[tuple[int, Variables]], given: Relations, load: bool = True,
    one_index: bool = False,
) -> Any:  # fmt: skip
    """Over the indexes that it needs; those that nobody made yet are loaded. `load`: a bow-tie is, too; `one_index`: it is read by one."""
    variables = [own for _, own in atoms]
    found = atoms_of(indexes, made, atoms, orders_of(variables), given)
    if not is_bow_tie(variables):
        return Intersect(indexes, found)
    if one_index:
        return Elimination(indexes, found)
    made_one = BowTie(indexes, found)
    if load:
        made_one.load()
    return made_one


class AdaptiveMachine(PlantingMachine, FollowingMachine):
    WIDTH, CHUNK, WHOLE = 3, 2, 3

    def __init__(self) -> None:
        super().__init__()
        self.few = patch.object(bow_tie, "MOST_AT_ONCE", 12)
        self.few.start()

    def teardown(self) -> None:
        super().teardown()
        self.few.stop()

    @initialize(shape=st.sampled_from(SHAPES), tuples=st.lists(TUPLES, max_size=30))
    def begin(self, shape: Shape, tuples: list[tuple[int, Entry, int]]) -> None:
        self.prepare(shape.arities, tuples)
        self.views = [View(adaptive_of(self.indexes, self.made, atoms, self.now), atoms) for atoms in shape.views]
        ties = [atoms for atoms in shape.views if is_bow_tie([own for _, own in atoms])][:1]
        self.views += [View(adaptive_of(self.indexes, self.made, atoms, self.now, one_index=True), atoms) for atoms in ties]
        self._settle()

    def another(self, view: View) -> View:
        return View(adaptive_of(self.indexes, self.made, view.atoms, self.now, load=False), view.atoms)

    def whole(self, tree: Any, root: Any, position: int, how: int) -> Any:
        if isinstance(tree, BowTie):
            return Elimination.rows(tree, root) if how == 1 else tree.rows(root, most_ranges=1 + how)
        return tree.rows(root)

    def held(self, view: View, root: Any) -> list[tuple[int, int]]:
        return super().held(view, root) + [(3, at) for at in root.levels[1:]]

    @rule(tuples=st.lists(TUPLES, max_size=10), data=st.data())
    def batch(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject) -> None:
        self.change_at_once(tuples, data)

    @rule(tuples=st.lists(TUPLES, max_size=5), data=st.data(), limit=st.sampled_from([0, 3, 10**6, None]))
    def singles(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject, limit: int | None) -> None:
        self.change_singly(tuples, data, limit)

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), values=st.tuples(*[VALUES] * 3), how=st.integers(0, 4))
    def open(self, data: st.DataObject, values: Entry, how: int) -> None:
        self.open_one(data, values, how)

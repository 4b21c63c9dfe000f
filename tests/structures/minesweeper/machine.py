"""A Hypothesis state machine that drives two Minesweepers over the same indexes beside a naive twin, as that of the tree-tracker does: the
constraints that are kept between versions have room for no row, with small trees and short logs, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from structures.index.indexes import OrderedIndexes
from structures.minesweeper import logged_tree
from structures.minesweeper.cds import KEPT_SIZE, PRIVATE_SIZE, Size
from structures.minesweeper.minesweeper import Minesweeper, MinesweeperCursor, index_orders
from tests.naive.natural_join import Entry
from tests.structures.index.following_machine import Key, Relations, View, atoms_of
from tests.structures.tree_tracker.machine import TUPLES, TrackerMachine

Atoms = tuple[tuple[int, tuple[int, ...]], ...]  # of each its relation, and its variables
SMALL = Size(100, 100)
MOST_LOGGED, BUDGET = logged_tree.MOST_LOGGED, MinesweeperCursor._BUDGET

# Arities of the relations; of each view its atoms, and the order of its variables.
SHAPES: list[tuple[tuple[int, ...], tuple[tuple[Atoms, tuple[int, ...]], ...]]] = [
    ((2, 1, 2, 1), ((((0, (0, 1)), (1, (1,)), (2, (1, 2)), (3, (2,))), (0, 1, 2)), (((0, (0, 1)), (0, (1, 2)), (1, (2,))), (1, 0, 2)))),
    ((2, 2), ((((0, (0, 1)), (1, (1, 2)), (0, (0, 2))), (0, 1, 2)), (((1, (0, 1)), (1, (1, 2)), (1, (2, 0))), (2, 0, 1)))),
    ((2,), ((((0, (0, 1)), (0, (1, 2)), (0, (2, 3)), (0, (3, 0))), (0, 2, 1, 3)), (((0, (0, 1)), (0, (1, 0))), (0, 1)))),
    ((1, 3, 2), ((((0, (0,)), (1, (0, 1, 2)), (2, (2, 1)), (2, (0, 1))), (2, 1, 0)), (((1, (2, 0, 1)), (0, (1,)), (0, (1,))), (1, 2, 0)))),
    ((2, 1), ((((0, (0, 1)), (0, (0, 2)), (0, (0, 3)), (1, (1,)), (1, (3,))), (0, 1, 2, 3)), (((0, (0, 1)), (1, (0,))), (1, 0)))),
    ((4, 2), ((((0, (0, 1, 2, 3)), (1, (3, 0)), (1, (2, 4))), (3, 0, 2, 1, 4)), (((0, (0, 1, 2, 3)), (0, (3, 2, 1, 0))), (1, 3, 0, 2)))),
]
TRIANGLES: list[tuple[tuple[int, ...], tuple[tuple[Atoms, tuple[int, ...]], ...]]] = [
    ((2, 2, 2), ((((0, (0, 1)), (1, (1, 2)), (2, (0, 2))), (0, 1, 2)), (((2, (1, 0)), (0, (0, 2)), (1, (1, 2))), (2, 0, 1)))),
    ((2,), ((((0, (0, 1)), (0, (1, 2)), (0, (2, 0))), (0, 1, 2)), (((0, (0, 1)), (0, (1, 2)), (0, (0, 2))), (1, 2, 0)))),
]


def mined(
    indexes: OrderedIndexes, made: dict[Key, int], atoms: Sequence[tuple[int, tuple[int, ...]]], order: Sequence[int],
    given: Relations, sizes: tuple[Size, Size] = (PRIVATE_SIZE, KEPT_SIZE),
) -> Minesweeper:  # fmt: skip
    """Over the indexes that it needs; those that nobody made yet are loaded."""
    found = atoms_of(indexes, made, atoms, index_orders([own for _, own in atoms], order), given)
    return Minesweeper(indexes, found, order, *sizes)


def none_has_a_row(miner: Minesweeper, tuples: set[tuple[int, ...]]) -> None:
    """The kept constraints have room for none of these, the values of the rows level by level."""
    for pattern, low, high, mask in miner.kept():
        assert mask > 0, "a constraint follows from no atom"
        for t in tuples:
            where = all(value is None or value == t[d] for d, value in enumerate(pattern))
            assert not (where and low <= t[len(pattern)] <= high), f"{pattern}, {low} to {high} has the row {t}"


class MinesweeperMachine(TrackerMachine):
    @initialize(
        shape=st.sampled_from(SHAPES), tuples=st.lists(TUPLES, max_size=30), most=st.sampled_from([MOST_LOGGED, 4]),
        small=st.tuples(st.booleans(), st.booleans()),
    )  # fmt: skip
    def begin(
        self, shape: tuple[tuple[int, ...], tuple[tuple[Atoms, tuple[int, ...]], ...]], tuples: list[tuple[int, Entry, int]], most: int,
        small: tuple[bool, bool],
    ) -> None:  # fmt: skip
        self._begin(shape, tuples, most, small)

    def _begin(
        self, shape: tuple[tuple[int, ...], tuple[tuple[Atoms, tuple[int, ...]], ...]], tuples: list[tuple[int, Entry, int]], most: int,
        small: tuple[bool, bool],
    ) -> None:  # fmt: skip
        logged_tree.MOST_LOGGED = most  # of the logs that are made next
        self.prepare(shape[0], tuples)
        sizes = SMALL if small[0] else PRIVATE_SIZE, SMALL if small[1] else KEPT_SIZE
        given = {position: sorted(one) for position, one in self.now.items()}
        self.views = [View(mined(self.indexes, self.made, atoms, order, given, sizes), atoms) for atoms, order in shape[1]]
        self._settle()

    def teardown(self) -> None:
        logged_tree.MOST_LOGGED = MOST_LOGGED
        super().teardown()

    def _settle(self) -> None:
        super()._settle()
        for view in self.views:
            values = {one[-1]: one for entries in self.now.values() for one in entries}
            tuples = set()
            for row in view.wanted(self.now):
                of = {v: value for slot, (_, own) in zip(row, view.atoms, strict=True) for v, value in zip(own, values[slot], strict=False)}
                tuples.add(tuple(of[v] for v in view.tree.shape.order))
            none_has_a_row(view.tree, tuples)

    def whole(self, tree: Any, root: Any, position: int, how: int) -> Any:
        return tree.rows(root)


class TriangleMachine(MinesweeperMachine):
    """Of triangles alone, with readings that end early in their calls."""

    @initialize(
        shape=st.sampled_from(TRIANGLES), tuples=st.lists(TUPLES, max_size=40), small=st.booleans(),
        budget=st.sampled_from([5, 40, BUDGET]),
    )  # fmt: skip
    def begin(
        self, shape: tuple[tuple[int, ...], tuple[tuple[Atoms, tuple[int, ...]], ...]], tuples: list[tuple[int, Entry, int]], small: bool,
        budget: int,
    ) -> None:  # fmt: skip
        MinesweeperCursor._BUDGET = budget
        self._begin(shape, tuples, MOST_LOGGED, (small, False))

    def teardown(self) -> None:
        super().teardown()
        MinesweeperCursor._BUDGET = BUDGET

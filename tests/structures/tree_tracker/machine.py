"""A Hypothesis state machine that drives two tree-trackers over the same indexes beside a naive twin: batches, single changes, moves, pins,
reads by bits from any atom, TT-gamma, given entries, given keys, unpins; `check()` after every version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.index.indexes import OrderedIndexes
from structures.tree_tracker.tracker import TreeTracker, index_orders
from tests.naive.natural_join import Entry
from tests.structures.index.following_machine import FollowingMachine, Key, Relations, Variables, View, atoms_of

VALUES = st.one_of(st.integers(0, 2), st.sampled_from([-(2**63), 2**63 - 1]))
TUPLES = st.tuples(st.integers(0, 4), st.tuples(*[VALUES] * 4), st.integers(1, 2))


class Shape(NamedTuple):
    """arities of the relations; of each view its atoms, each a relation and its variables, and the edges of its join tree."""

    arities: tuple[int, ...]
    views: tuple[tuple[tuple[tuple[int, tuple[int, ...]], ...], tuple[tuple[int, int], ...]], ...]


_CHAIN = ((0, 1), (1, 2), (2, 3))
SHAPES = [
    Shape((2, 1, 2, 1), ((((0, (0, 1)), (1, (1,)), (2, (1, 2)), (3, (2,))), _CHAIN), (((0, (0, 1)), (0, (1, 2)), (1, (2,))), _CHAIN[:2]))),
    Shape(
        (1, 3, 1, 2),
        (
            (((0, (0,)), (1, (0, 1, 2)), (2, (2,)), (3, (1, 2))), ((0, 1), (1, 2), (1, 3))),
            (((3, (0, 1)), (3, (1, 2))), ((0, 1),)),
        ),
    ),
    Shape(
        (2,),
        (
            (((0, (0, 1)), (0, (1, 2)), (0, (2, 3))), ((0, 1), (1, 2))),
            (((0, (0, 1)), (0, (0, 1)), (0, (1, 0))), ((0, 1), (0, 2))),
        ),
    ),
    Shape(
        (3, 2, 2),
        (
            (((0, (0, 1, 2)), (1, (0, 3)), (2, (1, 4))), ((0, 1), (0, 2))),
            (((1, (0, 1)), (0, (3, 1, 0)), (2, (3, 5)), (2, (3, 6))), _CHAIN),
        ),
    ),
    Shape(
        (4, 4),
        (
            (((0, (0, 1, 2, 3)), (1, (2, 0, 4, 1))), ((0, 1),)),
            (((0, (0, 1, 2, 3)), (1, (3, 5, 6, 7)), (1, (3, 8, 9, 0))), ((0, 1), (0, 2))),
        ),
    ),
    Shape(
        (2, 2, 1),
        (
            (((0, (0, 1)), (1, (1, 2)), (0, (2, 3)), (2, (1,)), (2, (3,)), (1, (0, 4))), ((0, 1), (1, 2), (0, 3), (2, 4), (0, 5))),
            (((2, (0,)), (0, (0, 1)), (1, (0, 2)), (2, (0,))), _CHAIN),
        ),
    ),
]


def tracker_of(
    indexes: OrderedIndexes, made: dict[Key, int], atoms: Sequence[tuple[int, Variables]], edges: Sequence[tuple[int, int]],
    given: Relations,
) -> TreeTracker:  # fmt: skip
    """Over the indexes that it needs; those that nobody made yet are loaded."""
    return TreeTracker(indexes, atoms_of(indexes, made, atoms, index_orders([own for _, own in atoms], edges), given), edges)


class TrackerMachine(FollowingMachine):
    @initialize(shape=st.sampled_from(SHAPES), tuples=st.lists(TUPLES, max_size=30))
    def begin(self, shape: Shape, tuples: list[tuple[int, Entry, int]]) -> None:
        self.prepare(shape.arities, tuples)
        self.views = [View(tracker_of(self.indexes, self.made, *one, self.now), one[0]) for one in shape.views]
        self._settle()

    def whole(self, tree: Any, root: Any, position: int, how: int) -> Any:
        return tree.rows(root, position, reduced=how == 1)

    @rule(tuples=st.lists(TUPLES, max_size=10), data=st.data())
    def batch(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject) -> None:
        self.change_at_once(tuples, data)

    @rule(tuples=st.lists(TUPLES, max_size=5), data=st.data(), limit=st.sampled_from([0, 10**6, None]))
    def singles(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject, limit: int | None) -> None:
        self.change_singly(tuples, data, limit)

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), values=st.tuples(*[VALUES] * 4), how=st.integers(0, 3))
    def open(self, data: st.DataObject, values: Entry, how: int) -> None:
        self.open_one(data, values, how)

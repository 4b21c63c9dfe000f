"""Make the structures of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.planning.plans.plan import InnerJoin, Plan, PlanShape, ProductFactor
from service.planning.quadtree_shapes import tree_shapes
from service.query.model import ALGORITHMS, Query
from service.tables.indexes import SharedIndexes
from service.tables.inputs import Input
from service.tables.relations import Relation
from service.views.joins.as_of_join import AsOfJoin
from service.views.joins.indexed_join import IndexedJoin
from service.views.joins.match_join import MatchJoin
from service.views.joins.outer_join import OuterJoin
from service.views.joins.overlap_join import OverlapJoin
from service.views.joins.product_join import Factor, ProductJoin
from service.views.joins.protocol import Join
from service.views.joins.qdag_join import QdagJoin
from service.views.joins.reading_join import (
    BowTieJoin,
    EliminationJoin,
    IntersectJoin,
    MinesweeperJoin,
    ReadingJoin,
    TreeTrackerJoin,
    ViewTreeJoin,
)
from service.views.joins.tree_join import TreeJoin
from service.views.joins.union_join import UnionAllJoin, UnionJoin

_READING: Mapping[PlanShape, type[ReadingJoin[Any]]] = {
    "view_tree": ViewTreeJoin, "tree_tracker": TreeTrackerJoin, "minesweeper": MinesweeperJoin, "intersect": IntersectJoin,
    "bow_tie": BowTieJoin, "elimination": EliminationJoin,
}  # fmt: skip

_ROOMS = {
    "interval-tree": ("interval",),
    "ij-heap": ("ij_heap",),
    "box-tree": ("box",),
    "view-tree": ("view_tree",),
    "join-tree": ("join_tree",),
    "qdag": ("qdag",),
    "nested-loop": ("interval",),
    "tree-tracker": ("tree_tracker",),
    "minesweeper": ("minesweeper",),
    "elimination": ("minesweeper",),  # except for bow-ties
    "intersect": ("adaptive",),
    "bow-tie": ("adaptive",),
    "lqdag": ("qdag",),
    "match-tree": ("event_tree",),  # LEFT and FULL JOIN also need those of the core
    "event-tree": ("event_tree",),  # also needs those of groups; gaps need another one
}
assert {*_ROOMS} == {*ALGORITHMS}


def rooms_of(plan: Plan) -> set[str]:
    """Return the rooms of `structures` that a view with this plan uses, including its deltas; others only as these import them."""
    return _rooms_of(plan) | {"netting"}


def _rooms_of(plan: Plan) -> set[str]:
    """Return those that `join_of` uses for the plan."""
    if plan.shape in ("latest", "as_of"):
        return {"ranked"} | ({"interval"} if plan.shape == "as_of" else set())
    if plan.core is not None:
        own = {"aggregate", "grouped"} if plan.core.shape == "list" else {"aggregate"}
        return own | ({*_ROOMS[plan.algorithm]} if plan.algorithm == "event-tree" else _rooms_of(plan.core))
    if plan.shape in ("gaps", "coverage"):
        return {"cover"}
    if plan.outer is not None:
        kept = [one for one in plan.outer.joins if plan.shape == "outer" or len(one.positions) > 1]
        own = set[str]()
        if plan.shape == "match":
            own = {"outer"} if any(one.plan is not None and one.plan.shape == "pair" for one in kept) else {"event_tree"}
        return own.union(*(_rooms_of(one.plan) for one in kept if one.plan is not None))
    if plan.parts:
        return set().union(*(_rooms_of(part.plan) for part in plan.parts))
    if plan.shape == "elimination":
        return {"adaptive"}
    return {"clique"} if plan.shape.startswith("clique") else {*_ROOMS[plan.algorithm]}


def join_of(query: Query, plan: Plan, inputs: Sequence[Input], indexes: SharedIndexes | None, part: bool = False) -> Join:
    """Return an empty join with all its address space reserved; `inputs`: including those of NOT EXISTS; `indexes`: None for private ones;
    `part`: of a product, which passes through a batch twice. OSError, MemoryError: there is no room."""
    if (reading := _READING.get(plan.shape)) is not None:
        return reading(query, plan, inputs, indexes if indexes is not None else SharedIndexes(), indexes is None, part)
    match plan.shape:
        case "product":
            relations = {input.relation.name: input.relation for input in inputs}
            return ProductJoin([_factor(one, relations) for one in plan.parts])
        case "union_all":
            relations = {input.relation.name: input.relation for input in inputs}
            return UnionAllJoin([_factor(one, relations) for one in plan.parts])
        case "outer":
            assert plan.outer is not None
            return OuterJoin(plan.outer, inputs, len(query.aliases), _make_kept)
        case "match":
            assert plan.outer is not None
            return MatchJoin(plan.outer, inputs, len(query.aliases), _make_kept, query.retain is not None)
        case "as_of":
            return AsOfJoin(query, plan, inputs)
        case "join_tree":
            return TreeJoin(inputs, plan.tree, query.never)
        case "qdag" | "union":
            assert plan.graph is not None
            over_quadtrees = UnionJoin if plan.shape == "union" else QdagJoin
            return over_quadtrees(inputs, plan.graph, tree_shapes(query, plan.graph), query.never)
        case "indexed":
            assert plan.binding is not None
            return IndexedJoin(inputs, plan.binding, query.never, listed=part)
        case _:
            return OverlapJoin(query, plan, inputs)


def _make_kept(one: InnerJoin, inputs: Sequence[Input]) -> Join:
    assert one.plan is not None
    return join_of(one.query, one.plan, inputs, None, part=True)


def _factor(part: ProductFactor, relations: Mapping[str, Relation]) -> Factor:
    whole = part.query.whole
    inputs = [Input(whole, position, relations[name]) for position, (_, name) in enumerate(whole.aliases)]
    return Factor(join_of(part.query, part.plan, inputs, None, part=True), inputs, part.positions)

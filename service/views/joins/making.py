"""The structures that a plan asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.planning.plans.plan import Part, Plan
from service.planning.quadtree_shapes import tree_shapes
from service.query.model import ALGORITHMS, Query
from service.tables.indexes import SharedIndexes
from service.tables.relations import Relation
from service.tables.sides import Side
from service.views.joins.adaptive_join import BowTieJoin, IntersectJoin
from service.views.joins.indexed_join import IndexedJoin
from service.views.joins.minesweeper_join import MinesweeperJoin
from service.views.joins.overlap_join import OverlapJoin
from service.views.joins.product_join import Factor, ProductJoin
from service.views.joins.protocol import Join
from service.views.joins.qdag_join import QdagJoin
from service.views.joins.tree_join import TreeJoin
from service.views.joins.tree_tracker_join import TreeTrackerJoin
from service.views.joins.union_join import UnionJoin
from service.views.joins.view_tree_join import ViewTreeJoin

_ROOMS = {
    "interval-tree": ("interval",),
    "ij-heap": ("ij_heap",),
    "box-tree": ("box",),
    "view-tree": ("view_tree",),
    "join-tree": ("join_tree",),
    "qdag": ("qdag",),
    "nested-loop": ("interval", "join_tree"),
    "tree-tracker": ("tree_tracker",),
    "minesweeper": ("minesweeper",),
    "elimination": ("minesweeper",),
    "intersect": ("adaptive",),
    "bow-tie": ("adaptive",),
    "lqdag": ("qdag",),
}
assert {*_ROOMS} == {*ALGORITHMS}


def rooms_of(plan: Plan) -> set[str]:
    """The rooms of `structures` that `join_of` takes for the plan; further ones only as these import them."""
    if plan.parts:
        return set().union(*(rooms_of(part.plan) for part in plan.parts))
    return {"clique"} if plan.shape.startswith("clique") else {*_ROOMS[plan.algorithm]}


def join_of(query: Query, plan: Plan, sides: Sequence[Side], indexes: SharedIndexes, part: bool = False) -> Join:
    """Empty, all address space reserved; `sides`: also of the aliases of NOT EXISTS; `part`: of a product, which goes through a batch twice
    and has indexes of its own. OSError, MemoryError: there is no room."""
    if plan.parts:
        relations = {side.relation.name: side.relation for side in sides}
        return ProductJoin([_factor(part, relations, indexes) for part in plan.parts])
    if plan.paths:
        return ViewTreeJoin(sides, plan.paths, query.never, SharedIndexes() if part else indexes, part)
    if plan.levels:
        return MinesweeperJoin(sides, plan.tracks, plan.levels, query.never, SharedIndexes() if part else indexes, part)
    if plan.shape in ("intersect", "bow_tie"):
        adaptive = IntersectJoin if plan.shape == "intersect" else BowTieJoin
        return adaptive(sides, plan.tracks, query.never, SharedIndexes() if part else indexes, part)
    if plan.tracks:
        return TreeTrackerJoin(sides, plan.tracks, plan.edges, query.never, SharedIndexes() if part else indexes, part)
    if plan.tree:
        return TreeJoin(sides, plan.tree, query.never)
    if plan.graph is not None:
        over_quadtrees = UnionJoin if query.branches else QdagJoin
        return over_quadtrees(sides, plan.graph, tree_shapes(query, plan.graph), query.never)
    if plan.binding is not None:
        return IndexedJoin(sides, plan.binding, query.never, listed=part)
    return OverlapJoin(query, plan, sides)


def _factor(part: Part, relations: Mapping[str, Relation], indexes: SharedIndexes) -> Factor:
    sides = [Side(part.query, place, relations[name]) for place, (_, name) in enumerate(part.query.aliases)]
    return Factor(join_of(part.query, part.plan, sides, indexes, part=True), sides, part.places)

"""The structures that a plan asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.indexes import SharedIndexes
from service.joins.indexed_join import IndexedJoin
from service.joins.live_join import LiveJoin
from service.joins.product_join import Factor, ProductJoin
from service.joins.protocol import Join
from service.joins.qdag_join import QdagJoin
from service.joins.qdag_trees import tree_shapes
from service.joins.tree_join import TreeJoin
from service.joins.view_tree_join import ViewTreeJoin
from service.plans.plan import Part, Plan
from service.relations import Relation
from service.sides import Side
from service.terms import Query


def join_of(query: Query, plan: Plan, sides: Sequence[Side], indexes: SharedIndexes, part: bool = False) -> Join:
    """Empty, all address space reserved; `part`: of a product, which goes through a batch twice and has indexes of its own. OSError,
    MemoryError: there is no room."""
    if plan.parts:
        relations = {side.relation.name: side.relation for side in sides}
        return ProductJoin([_factor(part, relations, indexes) for part in plan.parts])
    if plan.paths:
        return ViewTreeJoin(sides, plan.paths, query.never, SharedIndexes() if part else indexes, part)
    if plan.tree:
        return LiveJoin(sides, plan.tree, query.never)
    if plan.graph is not None:
        return QdagJoin(sides, plan.graph, tree_shapes(query, plan.graph), query.never)
    if plan.binding is not None:
        return IndexedJoin(sides, plan.binding, query.never, listed=part)
    return TreeJoin(query, plan, sides)


def _factor(part: Part, relations: Mapping[str, Relation], indexes: SharedIndexes) -> Factor:
    sides = [Side(part.query, place, relations[name]) for place, (_, name) in enumerate(part.query.aliases)]
    return Factor(join_of(part.query, part.plan, sides, indexes, part=True), sides, part.places)

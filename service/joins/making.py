"""The structures that a plan asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.joins.indexed_join import IndexedJoin
from service.joins.live_join import LiveJoin
from service.joins.product_join import Factor, ProductJoin
from service.joins.protocol import Join
from service.joins.qdag_join import QdagJoin
from service.joins.qdag_trees import tree_shapes
from service.joins.tree_join import TreeJoin
from service.plans.plan import Part, Plan
from service.relations import Relation
from service.sides import Side
from service.terms import Query


def join_of(query: Query, plan: Plan, sides: Sequence[Side], part: bool = False) -> Join:
    """Empty, all address space reserved; `part`: of a product. OSError, MemoryError: there is no room."""
    if plan.parts:
        relations = {side.relation.name: side.relation for side in sides}
        return ProductJoin([_factor(part, relations) for part in plan.parts])
    if plan.tree:
        return LiveJoin(sides, plan.tree, query.never)
    if plan.graph is not None:
        return QdagJoin(sides, plan.graph, tree_shapes(query, plan.graph), query.never)
    if plan.binding is not None:
        return IndexedJoin(sides, plan.binding, query.never, listed=part)
    return TreeJoin(query, plan, sides)


def _factor(part: Part, relations: Mapping[str, Relation]) -> Factor:
    sides = [Side(part.query, place, relations[name]) for place, (_, name) in enumerate(part.query.aliases)]
    return Factor(join_of(part.query, part.plan, sides, part=True), sides, part.places)

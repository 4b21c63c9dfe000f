"""Natural joins of two to eight aliases whose variable sets form a chain, by an adaptive walk over shared ordered indexes.

Each class of equal columns is a separate variable, and the indexes are those of `view_tree`. Source: *Towards Instance Optimal Join
Algorithms*; docs/design/natural-joins.md (*intersect*).
"""

from __future__ import annotations

from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import Plan, columns_of, first_notes, indexes_of, names, path_of
from service.query.model import Query
from structures.adaptive.shape import MOST_ATOMS, is_chain
from structures.index.layout import MOST_ARITY
from structures.view_tree.tree import path_orders

THEOREM = "Towards Instance Optimal Join Algorithms for Data in Indexes, Corollary 3.4"
_LIMITS = f"up to {MOST_ATOMS} relations and {MOST_ARITY} join columns per relation"
WORDS = f"natural joins in which one of any two relations has all variables of the other, {_LIMITS}"


def make(query: Query, relations: Relations) -> Plan | None:
    count = len(query.aliases)
    if count > MOST_ATOMS or query.cross or not is_natural(query, relations):
        return None
    columns = columns_of(query)
    orders = path_orders([frozenset(own) for own in columns])
    if orders is None or not is_chain(orders) or max(map(len, columns)) > MOST_ARITY:
        return None
    tracks = tuple((path_of(order, own),) for order, own in zip(orders, columns, strict=True))
    bounds = {
        "space": "O(n)",
        "update": "O(log n) per index, and the part of the walk that has the changed row's values",
        "delay": f"no bound between rows; all Z tuples in O({count} D + Z) look-ups of O(log n), D comparisons in the shortest proof",
    }
    notes = (
        *first_notes(query, relations),
        "the cost of a reading depends on how the values interleave: few look-ups if they are apart, all entries if they alternate",
        f"indexes, shared with other views that use the same: {indexes_of(query, tracks)}",
    )
    cls = f"natural join, {count} relations, {hypergraph(query).words}"
    return Plan(cls, "intersect", THEOREM, "best-effort", bounds, notes, "intersect", names(query), tracks=tracks)

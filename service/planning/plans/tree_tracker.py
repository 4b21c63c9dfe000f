"""Acyclic natural joins of two to eight aliases, by look-ups that learn which rows are dead ends, over shared ordered indexes.

Each class of equal columns is a separate variable, as in `view_tree`. Source: *TreeTracker Join*; docs/design/natural-joins.md
(*tree-tracker*).
"""

from __future__ import annotations

from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import Plan, columns_of, first_notes, indexes_of, names, path_of
from service.planning.tree_shape import join_tree, outward
from service.query.model import Query
from structures.index.layout import MOST_ARITY
from structures.tree_tracker.no_goods import MOST
from structures.tree_tracker.shape import MOST_ATOMS, index_orders

THEOREM = "TreeTracker Join: A Composable Join Algorithm that Yields Optimal Acyclic Multi-Way Joins, Theorem 5.7"
WORDS = f"acyclic natural joins without comparisons, up to {MOST_ARITY} join columns per relation"


def make(query: Query, relations: Relations) -> Plan | None:
    count = len(query.aliases)
    if count > MOST_ATOMS or query.cross or not is_natural(query, relations):
        return None
    tree, columns = join_tree(query, relations), columns_of(query)
    if tree is None or max(map(len, columns)) > MOST_ARITY:
        return None
    edges = tuple((edge.near, edge.far) for edge in tree[::2])
    orders = index_orders([sorted(own, key=lambda v: own[v]) for own in columns], edges)
    tracks = tuple(tuple(path_of(order, own) for order in one) for one, own in zip(orders, columns, strict=True))
    bounds = {
        "space": f"O(n) per index; there are {sum(map(len, tracks))}",
        "update": "O(log n) per index, and the rows and dead ends of the join from the changed row",
        "delay": f"no bound between rows; all r rows in {count - 1} · (r + dangling rows met) look-ups of O(log n)",
    }
    notes = (
        *first_notes(query, relations),
        "a row without a partner further down the join tree is looked up once per reading, then skipped, for the first "
        f"{MOST:,} of them; the bound holds as long as there are no more",
        f"indexes, shared with other views that use the same: {indexes_of(query, tracks)}",
    )
    cls = f"natural join, {count} relations, {hypergraph(query).words}"
    order = tuple(names(query)[position] for position in outward(tree))
    return Plan(cls, "tree-tracker", THEOREM, "best-effort", bounds, notes, "tree_tracker", order, edges=edges, tracks=tracks)

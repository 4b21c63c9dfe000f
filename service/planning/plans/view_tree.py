"""Hierarchical natural joins of two to eight aliases: a view tree over shared ordered indexes.

Each class of equal columns is a separate variable, so that an index is on plain columns and can be shared.
Source: Berkholz, Keppeler and Schweikardt; docs/design/natural-joins.md (*view-tree*).
"""

from __future__ import annotations

from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import Plan, columns_of, first_notes, indexes_of, names, path_of
from service.query.model import Query
from structures.index.layout import MOST_ARITY
from structures.view_tree.tree import path_orders

THEOREM = "Berkholz, Keppeler and Schweikardt, Answering Conjunctive Queries under Updates: hierarchical natural joins"
WORDS = f"hierarchical natural joins (the relations of any two variables are nested or disjoint), up to {MOST_ARITY} variables per relation"


def make(query: Query, relations: Relations) -> Plan | None:
    if query.cross or not is_natural(query, relations):
        return None
    columns = columns_of(query)
    if max(map(len, columns)) > MOST_ARITY:
        return None
    orders = path_orders([frozenset(own) for own in columns])
    if orders is None:
        return None
    tracks = tuple((path_of(order, own),) for order, own in zip(orders, columns, strict=True))
    bounds = {
        "space": "O(n)",
        "update": "O(1) look-ups of O(log n)",
        "delay": "O(1) look-ups of O(log n)",
    }
    notes = (*first_notes(query, relations), f"indexes, shared with other views that use the same: {indexes_of(query, tracks)}")
    cls = f"natural join, {len(query.aliases)} relations, {hypergraph(query).words}"
    return Plan(cls, "view-tree", THEOREM, "strict", bounds, notes, "view_tree", names(query), tracks=tracks)

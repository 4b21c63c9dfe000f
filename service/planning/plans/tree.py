"""Two to eight aliases that form a tree, each edge answered by one index: a join tree.

It also keeps EXISTS, NOT EXISTS and LEFT JOIN that are connected to an alias by one edge: the alias's rows need a partner there, must have
none, or may lack it.

Source: Yannakakis' algorithm under updates; docs/design/ij-heap.md (*Overlaps together with equality*).
"""

from __future__ import annotations

from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations
from service.planning.plans import outer
from service.planning.plans.plan import Plan, dimensions, first_notes, names, topology
from service.planning.tree_shape import join_tree, outward, tree_with_subqueries
from service.query.model import Query

WORDS = (
    "joins whose conditions form a tree, with equalities and at most one interval condition per edge, and EXISTS, NOT EXISTS and LEFT JOIN "
    "that are connected to one alias by one edge"
)
VISITS = "a change visits the partners of its row, and of each row that becomes live or ceases to be live"
_WINDOWS = "a window is checked alias by alias during the walk"
YANNAKAKIS = "Yannakakis' algorithm under updates (Idris, Ugarte and Vansummeren, The Dynamic Yannakakis Algorithm)"


def make(query: Query, relations: Relations) -> Plan | None:
    tree = join_tree(query, relations)
    if tree is None:
        return None
    count, most = len(query.aliases), dimensions(query, relations)
    shape = "" if count == 2 else f", {topology(count, [(edge.near, edge.far) for edge in tree[::2]])}"
    keyed = ", keyed" if query.equal else ""
    words = f"interval join, {most}-D, {count} relations{shape}{keyed}"
    cls = words if most else f"natural join, {count} relations, {hypergraph(query).words}"
    notes = first_notes(query, relations)
    guarantee, of = "strict", "row added or removed"  # of two aliases: a changed row's partners are its delta
    if count > 2:
        guarantee, of = "delay", "partner of the changed row"
        notes += (VISITS,)
    if query.overlaps:
        notes += (_WINDOWS,)
    bounds = {"space": "O(n)", "update": f"O(log n) per {of}", "delay": "O(log n)"}
    order = tuple(names(query)[position] for position in outward(tree))
    return Plan(cls, "join-tree", None if most else YANNAKAKIS, guarantee, bounds, notes, "join_tree", order, tree=tree)


def make_with_subqueries(query: Query, relations: Relations) -> Plan | None:
    """The same with subqueries, including NOT EXISTS groups."""
    subqueries = outer.subqueries_of(query)
    if isinstance(subqueries, str) or query.core.never or any(subquery.join.never for subquery in subqueries):
        return None
    tree = tree_with_subqueries(query, subqueries, relations)
    if tree is None:
        return None
    whole = query.whole
    shape = topology(len(whole.aliases), [(edge.near, edge.far) for edge in tree[::2]])
    spanned = any(edge.near_span is not None for edge in tree)
    keyed = ", keyed" if whole.equal else ""
    cls = f"{outer.kind_of(subqueries)}{', 1-D' if spanned else ''}, {len(whole.aliases)} relations, {shape}{keyed}"
    of_subqueries = (note for subquery in subqueries for note in first_notes(subquery.join, relations))
    windows = (_WINDOWS,) if whole.overlaps else ()
    notes = (*dict.fromkeys((*first_notes(query, relations), *of_subqueries)), outer.NULLS, VISITS, *windows)
    update = "O(log n) per partner of the changed row, and per row that gains its first or loses its last partner"
    bounds = {"space": "O(n)", "update": update, "delay": "O(log n)"}
    order = tuple(names(query)[position] for position in outward(tree))
    theorem = None if spanned else YANNAKAKIS
    return Plan(cls, "join-tree", theorem, "delay", bounds, notes, "join_tree", order, tree=tree)

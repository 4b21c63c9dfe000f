"""Two to eight aliases that form a tree, each edge answered by one index: a join tree.

Source: Yannakakis' algorithm under updates; docs/design/ij-heap.md (*Overlaps together with equality*).
"""

from __future__ import annotations

from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations
from service.planning.plans.plan import Plan, dimensions, first_notes, names, topology
from service.planning.tree_shape import join_tree, outward
from service.query.model import Query

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
        notes += ("a change visits the partners of its row, and those of the rows that become live or cease to be live",)
    if query.overlaps:
        notes += ("a window is checked alias by alias during the walk",)
    bounds = {"space": "O(n)", "update": f"O(log n) per {of}", "delay": "O(log n)"}
    order = tuple(names(query)[place] for place in outward(tree))
    return Plan(cls, "join-tree", None if most else YANNAKAKIS, guarantee, bounds, notes, "join_tree", order, tree=tree)

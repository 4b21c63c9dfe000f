"""Two to eight aliases that hang together as a tree, each edge by what one index answers: a join tree.

Source: Yannakakis' algorithm, kept live; docs/design/ij-heap.md (*Overlaps together with equality*).
"""

from __future__ import annotations

from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations
from service.planning.plans.plan import Plan, dimensions, first_notes, names, topology
from service.planning.tree_shape import join_tree, outward
from service.query.model import Query

YANNAKAKIS = "Yannakakis' algorithm, kept live (Idris, Ugarte and Vansummeren, The Dynamic Yannakakis Algorithm)"


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
    guarantee, of = "strict", "row that comes or goes"  # of two aliases: a changed row's partners are its delta
    if count > 2:
        guarantee, of = "delay", "partner of the changed row"
        notes += ("a change looks at its row's partners, and at those of the rows that it brings to life or kills",)
    if query.overlaps:
        notes += ("a window is checked alias by alias, on the way",)
    bounds = {"space": "O(n)", "update": f"O(log n) per {of}", "delay": "O(log n)"}
    order = tuple(names(query)[place] for place in outward(tree))
    return Plan(cls, "join-tree", None if most else YANNAKAKIS, guarantee, bounds, notes, "join_tree", order, tree=tree)

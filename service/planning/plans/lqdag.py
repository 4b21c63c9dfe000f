"""Natural joins less what NOT EXISTS groups leave out: quadtrees, read as lazy qdags.

Source: Navarro, Reutter and Rojas-Ledesma, section 4; docs/design/natural-joins.md (*lqdag*).
"""

from __future__ import annotations

from service.errors import Problem
from service.planning.hypergraph import Hypergraph, graph_with_absent, hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import Plan, first_notes, names
from service.planning.quadtree_shapes import tree_shapes
from service.query.assembly import unsupported
from service.query.model import Query
from structures.qdag.layout import MOST_ATOMS, MOST_VARIABLES
from structures.quadtree.layout import MOST_ARITY

THEOREM = "Navarro, Reutter and Rojas-Ledesma, Optimal Joins using Compact Data Structures, Theorem 4.4"
_LIMITS = f"{MOST_ATOMS} relations, {MOST_VARIABLES} variables, {MOST_ARITY} per relation"
WORDS = f"natural joins with NOT EXISTS, up to {_LIMITS}, without products or comparisons"


def make(query: Query, relations: Relations) -> Plan | None:
    if not query.absent:
        return None
    graph = _graph(query, relations)
    if isinstance(graph, str):
        return None
    count, trees = len(graph.atoms), len(tree_shapes(query, graph).orders)
    bounds = {
        "space": f"O(n) per quadtree; there {'are' if trees > 1 else 'is'} {trees}",
        "update": "O(log n) per quadtree, and O~(AGM) of the join with one alias reduced to the changed row",
        "delay": f"no bound between rows; all in O(AGM · 2^{graph.dimension} · {count} · log n), AGM of the join without NOT EXISTS",
    }
    told = ", ".join(f"NOT EXISTS ({', '.join(map(_told, group.aliases))})" for group in query.absent)
    notes = (
        *first_notes(query, relations),
        f"{told}: leaves rows out, at the cost of up to one look-up per row and relation, without any further search",
        "a change in NOT EXISTS searches for the rows that it removes or brings back, unless another row has the same values",
    )
    if len(query.aliases) > 1:
        cls = f"natural join, {len(query.aliases)} relations, {hypergraph(query).words}"
    else:
        cls = "selection, 1 relation"
    return Plan(f"{cls}, with NOT EXISTS", "lqdag", THEOREM, "best-effort", bounds, notes, "qdag", names(query), graph=graph)


def _told(aliased: tuple[str, str]) -> str:
    alias, relation = aliased
    return relation if relation == alias else f"{relation} AS {alias}"


def refusal(query: Query, relations: Relations) -> Problem:
    """Why a view with NOT EXISTS has no plan."""
    why = _graph(query, relations)
    assert isinstance(why, str)
    return unsupported("NOT EXISTS in this view", f"{why}; a view with NOT EXISTS is a join on equality only, of up to {_LIMITS}")


def _graph(query: Query, relations: Relations) -> Hypergraph | str:
    """Its graph, or in words why it has none that can be kept."""
    if query.cross:
        return "it has a product (CROSS JOIN)"
    if len(query.aliases) > 1 and not is_natural(query, relations):
        return "it joins by more than equality"
    graph = graph_with_absent(query)
    if isinstance(graph, str):
        return graph
    for what, found, most in (("relations", len(graph.atoms), MOST_ATOMS), ("variables", graph.dimension, MOST_VARIABLES)):
        if found > most:
            return f"it has {found} {what}"
    if graph.arity > MOST_ARITY:
        return f"one of its relations is compared in {graph.arity} variables"
    return graph

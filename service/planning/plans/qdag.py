"""Natural joins of two to eight aliases, cyclic ones above all: quadtrees, read as qdags.

Source: Navarro, Reutter and Rojas-Ledesma, Theorem 3.8; docs/design/natural-joins.md (*qdag*).
"""

from __future__ import annotations

from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import Plan, first_notes, names
from service.planning.quadtree_shapes import tree_shapes
from service.query.model import Query
from structures.qdag.layout import MOST_ATOMS, MOST_VARIABLES
from structures.quadtree.layout import MOST_ARITY

THEOREM = "Navarro, Reutter and Rojas-Ledesma, Optimal Joins using Compact Data Structures, Theorem 3.8"
WORDS = f"natural joins over up to {MOST_VARIABLES} variables, {MOST_ARITY} per relation, without comparisons"
AGM = "AGM is the minimum product of |R|^x(R) over all fractional edge covers x: the weights of the relations of a variable add up to 1"


def make(query: Query, relations: Relations) -> Plan | None:
    count = len(query.aliases)
    if count > MOST_ATOMS or query.cross or not is_natural(query, relations):
        return None
    graph = hypergraph(query)
    if not all(graph.atoms) or graph.dimension > MOST_VARIABLES or graph.arity > MOST_ARITY:
        return None
    trees = len(tree_shapes(query, graph).orders)
    bounds = {
        "space": f"O(n) per quadtree; there {'are' if trees > 1 else 'is'} {trees}",
        "update": "O(log n) per quadtree, and O~(AGM) of the join with one alias reduced to the changed row",
        "delay": f"no bound between rows; all of them in O(AGM · 2^{graph.dimension} · {count} · log n)",
    }
    notes = (*first_notes(query, relations), "worst-case optimal in total, not per row: subgrids without rows are searched too", AGM)
    cls = f"natural join, {count} relations, {graph.words}"
    return Plan(cls, "qdag", THEOREM, "best-effort", bounds, notes, "qdag", names(query), graph=graph)

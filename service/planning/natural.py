"""What `explain` reports for a natural join, whatever its algorithm: variables and class, a join tree, the maximum number of rows."""

from __future__ import annotations

from typing import Any

from service.planning.acyclicity import nested_elimination_order
from service.planning.agm import agm_json
from service.planning.binding import Counts
from service.planning.hypergraph import Hypergraph, hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.tree_shape import join_tree
from service.query.conditions import ColumnRef
from service.query.model import Query


def natural_json(query: Query, relations: Relations, counts: Counts | None) -> dict[str, Any] | None:
    """None if it is not a natural join, or several by UNION or EXCEPT.

    class              as in the plans
    variables          by name, the columns of each; several in one entry are compared together
    elimination_order  of the variables, a nested one; None: not beta-acyclic
    join_tree          its edges: two aliases and the variables that both have; None: cyclic, or a product
    agm                as `agm_json`
    """
    if query.branches or query.united or query.subqueries or not is_natural(query, relations):
        return None
    graph, relations = hypergraph(query), query.defined(relations)
    names = _variables(query, graph)
    order = nested_elimination_order(graph.edges)
    rows = None if counts is None else [counts.rows(position) for position in range(len(query.aliases))]
    return {
        "class": graph.words,
        "variables": names,
        "elimination_order": None if order is None else [list(names)[variable] for variable in order],
        "join_tree": _join_tree(query, relations, graph, list(names)),
        "agm": agm_json(query, graph, relations, rows),
    }


def _variables(query: Query, graph: Hypergraph) -> dict[str, list[str]]:
    """A variable is named after its first column."""
    columns: list[list[str]] = [[] for _ in range(graph.dimension)]
    for (alias, _), atom in zip(query.aliases, graph.atoms, strict=True):
        for one in atom:
            columns[one.variable] += [" ".join(str(ColumnRef(alias, name)) for name in choice) for choice in (one.columns, *one.same)]
    return {one[0]: one for one in columns}


def _join_tree(query: Query, relations: Relations, graph: Hypergraph, names: list[str]) -> list[dict[str, Any]] | None:
    tree = join_tree(query, relations)
    if tree is None:
        return None
    aliases = [alias for alias, _ in query.aliases]
    ends = [(edge.near, edge.far) for edge in tree[::2]]
    return [{"aliases": [aliases[x], aliases[y]], "by": [names[v] for v in sorted(graph.edges[x] & graph.edges[y])]} for x, y in ends]

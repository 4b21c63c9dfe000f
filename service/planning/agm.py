"""The AGM bound of a natural join: the maximum number of its rows, given the numbers of rows of its relations.

Source: Atserias, Grohe and Marx, Size Bounds and Query Plans for Relational Joins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import NamedTuple

from service.planning.acyclicity import Edge, variables
from service.planning.hypergraph import Hypergraph
from service.planning.meets import Relations
from service.query.model import Query


class Cover(NamedTuple):
    """A fractional edge cover: a weight for each edge, such that those of each variable's edges add up to at least 1; and its cost."""

    weights: tuple[float, ...]
    cost: float


def cheapest_cover(edges: Sequence[Edge], costs: Sequence[float]) -> Cover:
    """The cheapest fractional edge cover for edges with these costs, none below 0; by linear programming, a few ms."""
    from highspy import Highs  # 0.1 s to import, and few ask

    program = Highs()  # type: ignore[no-untyped-call]
    program.setOptionValue("output_flag", False)
    weights = [program.addVariable(0.0, 1.0, cost) for cost in costs]
    for v in variables(edges):
        program.addConstr(sum(weight for weight, edge in zip(weights, edges, strict=True) if v in edge) >= 1.0)
    program.minimize()
    return Cover(tuple(map(float, program.vals(weights))), float(program.getObjectiveValue()))


def agm_json(query: Query, graph: Hypergraph, relations: Relations, counts: Sequence[float] | None) -> dict[str, object]:
    """The bound as `explain` shows it.

    exponent  of n, if all relations have n rows
    cover     the weight of each alias, in the product of |R|^weight that is the bound
    rows      the bound by these numbers of rows; not without `counts`
    """
    edges = edges_of_rows(query, graph, relations)
    cover = cheapest_cover(edges, [1.0] * len(edges))
    shown: dict[str, object] = {"exponent": round(cover.cost, 6)}
    if counts is not None:
        cover = cheapest_cover(edges, [log2(max(1.0, count)) for count in counts])
        shown["rows"] = 0.0 if min(counts) == 0 else round(2**cover.cost, 3)
    weights: Mapping[str, float] = {alias: round(x, 6) + 0.0 for (alias, _), x in zip(query.aliases, cover.weights, strict=True)}
    return shown | {"cover": weights}


def edges_of_rows(query: Query, graph: Hypergraph, relations: Relations) -> list[Edge]:
    """The variables of each alias, and an additional one if they do not contain its key: rows of a view are combinations of rows, which the
    join variables alone do not identify."""
    edges = []
    for position, ((_, name), edge, atom) in enumerate(zip(query.aliases, graph.edges, graph.atoms, strict=True)):
        joined = {column for one in atom for choice in (one.columns, *one.same) for column in choice}
        edges.append(edge if set(relations[name].key) <= joined else edge | {graph.dimension + position})
    return edges

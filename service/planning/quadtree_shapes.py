"""Which quadtrees a natural join needs."""

from __future__ import annotations

from typing import Any, NamedTuple

from service.planning.hypergraph import Hypergraph
from service.query.model import Query


class Shapes(NamedTuple):
    """bases    of each alias, the index of its set of tuples
    orders   of each tree, its base, which of the attributes come first, and which follow
    domains  of each variable, the index of its domain
    """

    bases: tuple[int, ...]
    orders: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    domains: tuple[int, ...]


def tree_shapes(query: Query, graph: Hypergraph) -> Shapes:
    """With NOT EXISTS alone, a group's atoms have separate trees, because a batch changes them in another step."""
    query, known = query.whole, list[Any]()
    bases, grouped = [], {position for group in graph.absent for position in group if not graph.families}
    together = [{*own, *(position for index in groups for position in graph.absent[index])} for own, groups in graph.families]
    together = together or [set(range(len(graph.atoms)))]
    for position, ((alias, relation), atom) in enumerate(zip(query.aliases, graph.atoms, strict=True)):
        filters = {f.of("") for f in query.filters if f.alias == alias}
        tuples = [(attribute.columns, attribute.same, (position, attribute.variable) in graph.nulls) for attribute in atom]
        one = relation, filters, tuples, position in grouped
        if one not in known:
            known.append(one)
        bases.append(known.index(one))
    orders = []
    for base in range(len(known)):
        aliases = [position for position, one in enumerate(bases) if one == base]
        wanted: set[tuple[int, ...]] = {()}
        for position in aliases:
            own = [attribute.variable for attribute in graph.atoms[position]]
            for other in set().union(*(family for family in together if position in family)):
                theirs = {attribute.variable for attribute in graph.atoms[other]}
                shared = tuple(j for j, v in enumerate(own) if v in theirs)
                if other != position and len(shared) < len(own):
                    wanted.add(shared)
        arity = len(graph.atoms[aliases[0]])
        orders += [(base, first, tuple(j for j in range(arity) if j not in first)) for first in sorted(wanted)]
    domains = list(range(graph.dimension))
    columns: dict[tuple[str, tuple[str, ...]], int] = {}
    for (_, relation), atom in zip(query.aliases, graph.atoms, strict=True):
        for attribute in atom:
            old, new = domains[attribute.variable], domains[columns.setdefault((relation, attribute.columns), attribute.variable)]
            domains = [new if one == old else one for one in domains]
    return Shapes(tuple(bases), tuple(orders), tuple(domains))

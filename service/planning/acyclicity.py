"""Classes of natural joins, by their hypergraph, whose vertices are the variables and whose edges are the variables of the atoms.

    hierarchical  ⊂  beta-acyclic  ⊂  acyclic (alpha-acyclic)

A variable of a single atom does not affect the class, so only join variables are considered. Joins are full: nothing is projected away.
Edges may be empty and may be repeated. Costs are in the number of edges and variables, at most eight and a few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

Edge = frozenset[int]
MOST_EXACT = 10  # variables beyond which a treewidth is only bounded


def is_acyclic(edges: Sequence[Edge]) -> bool:
    """Whether the GYO reduction, which removes variables of a single edge and edges within another, leaves nothing.

    Source: Graham, On the universal relation; Yu and Ozsoyoglu, An algorithm for tree-query membership of a distributed query.
    """
    while True:
        lonely = {v for edge in edges for v in edge if sum(v in other for other in edges) == 1}
        reduced = [edge - lonely for edge in edges]
        kept = [edge for edge in dict.fromkeys(reduced) if not any(edge < other for other in reduced)]
        if kept == list(edges):
            return len(kept) <= 1
        edges = kept


def is_hierarchical(edges: Sequence[Edge]) -> bool:
    """Whether the sets of edges of any two variables are nested or disjoint. For full joins these are the q-hierarchical ones.

    Source: Dalvi and Suciu, The dichotomy of probabilistic inference; Berkholz, Keppeler and Schweikardt, Answering Conjunctive Queries
    under Updates (Definition 3.1), whose second condition concerns variables that are projected away.
    """
    atoms = [{i for i, edge in enumerate(edges) if v in edge} for v in variables(edges)]
    return all(x <= y or y <= x or x.isdisjoint(y) for x, y in combinations(atoms, 2))


def nested_elimination_order(edges: Sequence[Edge]) -> tuple[int, ...] | None:
    """The variables v1 … vn so that for each k the edges of vk, restricted to v1 … vk, are a chain of subsets; None: not beta-acyclic.

    The last is any nest point, a variable whose edges are a chain, and the rest is an order without it. Source: Ngo, Nguyen, Ré and Rudra,
    Beyond Worst-case Analysis for Joins with Minesweeper (Proposition 4.2); Brouwer and Kolen, A super-balanced hypergraph has a nest
    point.
    """
    last: list[int] = []
    left = list(edges)
    while any(left):
        point = next((v for v in variables(left) if _is_nest_point(left, v)), None)
        if point is None:
            return None
        last.append(point)
        left = [edge - {point} for edge in left]
    return tuple(reversed(last))


def nested_elimination_orders(edges: Sequence[Edge]) -> Iterator[tuple[int, ...]]:
    """All of them. O(edges · variables²) each: without a nest point, the rest of a beta-acyclic join is beta-acyclic."""
    if nested_elimination_order(edges) is None:
        return
    if not any(edges):
        yield ()
    for v in variables(edges):
        if _is_nest_point(edges, v):
            for order in nested_elimination_orders([edge - {v} for edge in edges]):
                yield (*order, v)


def least_width_order(edges: Sequence[Edge]) -> tuple[int, ...]:
    """The variables v1 … vn, at most `MOST_EXACT`, so that eliminating vn … v1 joins the fewest neighbours at once: at most the treewidth.
    Among several that may be eliminated next, the one that joins the fewest new pairs. O(2^v v⁴).

    Source: as for `treewidth`.
    """
    graph = {v: set().union(*(edge for edge in edges if v in edge)) - {v} for v in variables(edges)}
    last: list[int] = []
    while graph:
        width = _least_width(graph)

        def keeps_width(v: int, width: int = width) -> bool:
            left = {u: set(around) for u, around in graph.items()}
            return _eliminate(left, v) <= width and _least_width(left) <= width

        point = min((v for v in graph if keeps_width(v)), key=lambda v: (sum(1 for _ in _fill(graph, v)), v))
        _eliminate(graph, point)
        last.append(point)
    return tuple(reversed(last))


def treewidth(edges: Sequence[Edge]) -> tuple[int, bool]:
    """Of the graph in which the variables of an edge are neighbours, and whether that is exact or an upper bound.

    Variables whose neighbours are all neighbours of each other are eliminated first, which loses nothing. Then, of all orders of the
    rest, one whose greatest degree at elimination is least, by dynamic programming over the sets of what is eliminated; beyond
    `MOST_EXACT` variables the order that joins the fewest neighbours each time. O(2^v v²).
    Source: Bodlaender, Fomin, Koster, Kratsch and Thilikos, On exact algorithms for treewidth (Section 3); Bodlaender, Koster and
    van den Eijkhof, Pre-processing rules for triangulation of probabilistic networks (simplicial vertices).
    """
    graph = {v: set().union(*(edge for edge in edges if v in edge)) - {v} for v in variables(edges)}
    width = 0
    while (simple := next((v for v in graph if not any(_fill(graph, v))), None)) is not None:
        width = max(width, _eliminate(graph, simple))
    if not graph:
        return width, True
    if len(graph) <= MOST_EXACT:
        return max(width, _least_width(graph)), True
    while graph:
        width = max(width, _eliminate(graph, min(graph, key=lambda v: (sum(1 for _ in _fill(graph, v)), v))))
    return width, False


def variables(edges: Iterable[Edge]) -> list[int]:
    return sorted(frozenset().union(*edges))


def _is_nest_point(edges: Sequence[Edge], v: int) -> bool:
    """Whether the edges of v are a chain of subsets."""
    by_size = sorted((edge for edge in edges if v in edge), key=len)
    return all(x <= y for x, y in zip(by_size, by_size[1:], strict=False))


def _fill(graph: dict[int, set[int]], v: int) -> Iterator[tuple[int, int]]:
    """The pairs of neighbours of v that are not neighbours of each other."""
    return ((x, y) for x, y in combinations(sorted(graph[v]), 2) if y not in graph[x])


def _eliminate(graph: dict[int, set[int]], v: int) -> int:
    """Make the neighbours of v neighbours of each other and remove v; returns how many there were."""
    around = graph.pop(v)
    for x in around:
        graph[x] |= around
        graph[x] -= {x, v}
    return len(around)


def _least_width(graph: dict[int, set[int]]) -> int:
    """The least width of an elimination order; `best[s]`: of those that begin with the set of vertices s (a bit each)."""
    indices = {v: i for i, v in enumerate(graph)}
    around = [sum(1 << indices[x] for x in graph[v]) for v in graph]
    best = [0] * (1 << len(graph))
    for deleted in range(1, len(best)):
        lasts = [i for i in range(len(graph)) if deleted >> i & 1]
        best[deleted] = min(max(best[deleted ^ 1 << i], _degree(around, deleted ^ 1 << i, i)) for i in lasts)
    return best[-1]


def _degree(around: Sequence[int], deleted: int, start: int) -> int:
    """The neighbours of vertex `start` once the others in `deleted` are eliminated: those that it reaches through them."""
    seen, waiting = 1 << start, [start]
    while waiting:
        new = around[waiting.pop()] & ~seen
        seen |= new
        waiting += [i for i in range(len(around)) if new >> i & deleted >> i & 1]
    return (seen & ~deleted & ~(1 << start)).bit_count()

"""The tree of a join: which aliases are joined directly, and by which conditions; the input of `tree_join`.

Aliases are vertices. An edge carries one equality for each class of equal columns that both aliases have, and at most one condition
of intervals: so one keyed index answers it. A class may span more aliases than two; in a tree it holds iff the aliases that have it
hang together by edges that carry it. Such a tree exists iff a heaviest spanning tree, an edge weighing what both ends share, weighs
as much as all conditions need: one for each condition of intervals, and for a class of c aliases c - 1. So `a.k = b.k and b.k = c.k
and a.k = c.k` is a path, and an overlap between a and c then decides which.

Source: acyclic hypergraphs and their join trees, as Bernstein and Goodman (Power of natural semijoins) and Maier (The Theory of Relational
Databases) have it: a join tree is a heaviest spanning tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from service.planning.binding import equal_classes
from service.planning.meets import Relations, meets_of, residual_of
from service.query.model import ColumnRef, Meet, Query, Span


class Edge(NamedTuple):
    """From the rows of alias number `near` to their partners in `far`: columns that are pairwise equal, spans that meet (None: neither)."""

    near: int
    far: int
    near_columns: tuple[str, ...]
    far_columns: tuple[str, ...]
    near_span: Span | None
    far_span: Span | None

    @property
    def back(self) -> Edge:
        return Edge(self.far, self.near, self.far_columns, self.near_columns, self.far_span, self.near_span)


def join_tree(query: Query, relations: Relations) -> tuple[Edge, ...] | None:
    """Both directions of each edge; None if the conditions do not form a tree or an index cannot answer one. O(aliases² conditions)."""
    if len(query.aliases) < 2 or query.cross or residual_of(query, relations):
        return None
    aliases = [alias for alias, _ in query.aliases]
    classes, meets = equal_classes(query), meets_of(query, relations)
    shared = {
        (x, y): (
            [one for one in classes if {aliases[x], aliases[y]} <= {ref.alias for ref in one}],
            [meet for meet in meets if {aliases[x], aliases[y]} == {meet.left.alias, meet.right.alias}],
        )
        for x, y in combinations(range(len(aliases)), 2)
    }
    if any(len(met) > 1 for _, met in shared.values()):
        return None
    weights = {pair: len(common) + len(met) for pair, (common, met) in shared.items()}
    tree = _heaviest(len(aliases), weights)
    needed = len(meets) + sum(len({ref.alias for ref in one}) - 1 for one in classes)
    if len(tree) < len(aliases) - 1 or sum(weights[pair] for pair in tree) != needed:
        return None
    edges = [_edge(aliases, pair, *shared[pair]) for pair in tree]
    return tuple(one for edge in edges for one in (edge, edge.back))


def _heaviest(count: int, weights: dict[tuple[int, int], int]) -> list[tuple[int, int]]:
    """The edges of a heaviest spanning forest (Kruskal), of equally heavy ones the first."""
    part = list(range(count))
    tree = []
    for x, y in sorted(weights, key=lambda pair: -weights[pair]):
        if weights[x, y] and part[x] != part[y]:
            tree.append((x, y))
            part = [part[x] if one == part[y] else one for one in part]
    return sorted(tree)


def _edge(aliases: Sequence[str], pair: tuple[int, int], classes: list[list[ColumnRef]], meets: list[Meet]) -> Edge:
    near, far = (aliases[place] for place in pair)
    columns = []
    for one in classes:
        ours, theirs = ([ref.column for ref in one if ref.alias == alias] for alias in (near, far))
        # Of an alias that has several, all are equal to the other's first.
        columns += [(name, theirs[0]) for name in ours] + [(ours[0], name) for name in theirs[1:]]
    spans = (meets[0].of(near), meets[0].of(far)) if meets else (None, None)
    return Edge(*pair, tuple(x for x, _ in columns), tuple(y for _, y in columns), *spans)


def outward(edges: Sequence[Edge]) -> tuple[int, ...]:
    """The order in which the whole view binds the aliases: first one with the most edges, as each edge is looked up once per row."""
    neighbours = {edge.near: [other.far for other in edges if other.near == edge.near] for edge in edges}
    order = [max(sorted(neighbours), key=lambda place: len(neighbours[place]))]
    for place in order:  # grows meanwhile: breadth first
        order += [far for far in neighbours[place] if far not in order]
    return tuple(order)

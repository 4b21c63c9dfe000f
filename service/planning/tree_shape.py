"""The tree of a join: which aliases are joined directly, and by which conditions; the input of `tree_join`.

Aliases are vertices. An edge has one equality for each class of equal columns that both aliases have, and at most one condition of
intervals: so one keyed index answers it. A class may span more than two aliases; in a tree it holds iff the aliases that have it are
connected by edges that have it. Such a tree exists iff a heaviest spanning tree, in which the weight of an edge is the number of conditions
that both ends share, weighs as much as all conditions need: one for each condition of intervals, and for a class of c aliases c - 1. So
`a.k = b.k and b.k = c.k and a.k = c.k` is a path, and an overlap between a and c then decides which.

Subqueries of a view (EXISTS, NOT EXISTS, LEFT JOIN) are separate trees, each connected by one edge to an alias outside of it.

Source: acyclic hypergraphs and their join trees, according to Bernstein and Goodman (Power of natural semijoins) and Maier (The Theory of
Relational Databases): a join tree is a heaviest spanning tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Literal, NamedTuple

from service.planning.binding import equal_classes
from service.planning.meets import Relations, meets_of, residual_of
from service.query.conditions import ColumnRef, Condition
from service.query.model import MAX_ALIASES, Meet, Query, Span, Subquery, SubqueryKind

LinkKind = Literal["required", "exists", "absent", "optional", "inward"]
_OF_SUBQUERIES: Mapping[SubqueryKind, LinkKind] = {"exists": "exists", "absent": "absent", "optional": "optional"}


class Edge(NamedTuple):
    """From the rows of alias `near` to their partners in `far`: columns that are pairwise equal, spans that meet (None: neither).

    kind     what a row of `near` has to have there; of an edge that a subquery hangs on the subquery's kind, and back from the subquery
    "inward"
    filters  of an inward edge: the subquery's conditions on `far`. A row of `far` that does not meet them has no partner along the edge
    """

    near: int
    far: int
    near_columns: tuple[str, ...]
    far_columns: tuple[str, ...]
    near_span: Span | None
    far_span: Span | None
    kind: LinkKind = "required"
    filters: tuple[Condition, ...] = ()

    @property
    def back(self) -> Edge:
        kind: LinkKind = "required" if self.kind == "required" else "inward"
        return Edge(self.far, self.near, self.far_columns, self.near_columns, self.far_span, self.near_span, kind)


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


def tree_with_subqueries(query: Query, subqueries: Sequence[Subquery], relations: Relations) -> tuple[Edge, ...] | None:
    """The same for a view with these subqueries, over the aliases of `Query.whole`. None also if a subquery is connected by more than one
    edge, or must exist, or not, for rows of an optional one."""
    core, whole = query.core, query.whole
    if len(whole.aliases) > MAX_ALIASES:
        return None
    positions = {alias: position for position, (alias, _) in enumerate(whole.aliases)}
    always = {alias for alias, _ in core.aliases}
    found = _placed(core, join_tree(core, relations) if len(core.aliases) > 1 else (), positions)
    for subquery in subqueries:
        # The alias that it hangs on comes last: of equal edges those within the subquery are taken.
        join = replace(subquery.join, aliases=(*subquery.own, subquery.join.aliases[0]))
        own = _placed(join, join_tree(join, relations), positions)
        kind = _OF_SUBQUERIES.get(subquery.kind)
        if found is None or own is None or kind is None or (kind != "optional" and subquery.on not in always):
            return None
        outward = [edge for edge in own if edge.near == positions[subquery.on]]
        if len(outward) != 1:
            return None
        link = outward[0]._replace(kind=kind)
        filters = tuple(one for one in join.filters if one.alias == subquery.on and one not in whole.filters)
        found += (link, link.back._replace(filters=filters), *(edge for edge in own if positions[subquery.on] not in (edge.near, edge.far)))
    return found


def _placed(query: Query, edges: tuple[Edge, ...] | None, positions: dict[str, int]) -> tuple[Edge, ...] | None:
    """The edges of a query's tree, with these positions of its aliases."""
    at = [positions[alias] for alias, _ in query.aliases]
    return None if edges is None else tuple(edge._replace(near=at[edge.near], far=at[edge.far]) for edge in edges)


def behind(edges: Sequence[Edge], *kinds: LinkKind) -> set[int]:
    """The aliases of the subqueries of these kinds, and of those that are connected to them."""
    found = [edge.far for edge in edges if edge.kind in kinds]
    for position in found:  # grows meanwhile
        found += [edge.far for edge in edges if edge.near == position and edge.kind != "inward" and edge.far not in found]
    return set(found)


def _heaviest(count: int, weights: dict[tuple[int, int], int]) -> list[tuple[int, int]]:
    """The edges of a heaviest spanning forest (Kruskal); among equally heavy ones the first."""
    component = list(range(count))
    tree = []
    for x, y in sorted(weights, key=lambda pair: -weights[pair]):
        if weights[x, y] and component[x] != component[y]:
            tree.append((x, y))
            component = [component[x] if one == component[y] else one for one in component]
    return sorted(tree)


def _edge(aliases: Sequence[str], pair: tuple[int, int], classes: list[list[ColumnRef]], meets: list[Meet]) -> Edge:
    near, far = (aliases[position] for position in pair)
    columns = []
    for one in classes:
        ours, theirs = ([ref.column for ref in one if ref.alias == alias] for alias in (near, far))
        # Of an alias that has several, all are equal to the other's first.
        columns += [(name, theirs[0]) for name in ours] + [(ours[0], name) for name in theirs[1:]]
    spans = (meets[0].of(near), meets[0].of(far)) if meets else (None, None)
    return Edge(*pair, tuple(x for x, _ in columns), tuple(y for _, y in columns), *spans)


def outward(edges: Sequence[Edge]) -> tuple[int, ...]:
    """The order in which the whole view binds the aliases of its rows: first the one with the most edges among those that each row has,
    because each edge is looked up once per row."""
    hidden = behind(edges, "exists", "absent")
    neighbours = {edge.near: [other.far for other in edges if other.near == edge.near and other.far not in hidden] for edge in edges}
    order = [max(sorted({*neighbours} - hidden - behind(edges, "optional")), key=lambda position: len(neighbours[position]))]
    for position in order:  # grows meanwhile: breadth first
        order += [far for far in neighbours[position] if far not in order]
    return tuple(order)

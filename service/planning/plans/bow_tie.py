"""Natural joins of the shape R(X), S(X, Y), T(Y), X and Y one variable each: by the holes between the values of R and T (`bow-tie`), or by
one index of S (`elimination`).

Source: *Towards Instance Optimal Join Algorithms*; docs/design/natural-joins.md (*bow-tie*).
"""

from __future__ import annotations

from typing import NamedTuple

from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import Path, Plan, columns_of, first_notes, indexes_of, names, path_of
from service.query.model import Query
from structures.adaptive.bow_tie import MOST_AT_ONCE

THEOREM = "Towards Instance Optimal Join Algorithms for Data in Indexes, Theorem 4.2"
THEOREM_ONE_INDEX = "Towards Instance Optimal Join Algorithms for Data in Indexes, Theorem C.4"
WORDS = "natural joins of the shape R(X), S(X, Y), T(Y), where X and Y are one variable each"


class _Shape(NamedTuple):
    """The indexes of each alias; the aliases R and T, and S; its columns X and Y."""

    tracks: tuple[tuple[Path, ...], ...]
    ends: tuple[str, str]
    pair: str
    x: str
    y: str


def _shape(query: Query, relations: Relations) -> _Shape | None:
    if query.cross or not is_natural(query, relations):
        return None
    columns = columns_of(query)
    if sorted(map(sorted, columns)) != [[0], [0, 1], [1]]:
        return None
    tracks: tuple[tuple[Path, ...], ...] = tuple(
        (path_of((0, 1), own), path_of((1, 0), own)) if len(own) == 2 else (path_of(tuple(own), own),) for own in columns
    )
    named = {tuple(sorted(own)): name for name, own in zip(names(query), columns, strict=True)}
    x, y = (next(own[v][0] for own in columns if len(own) == 2) for v in (0, 1))
    return _Shape(tracks, (named[0,], named[1,]), named[0, 1], x, y)


def _class(query: Query) -> str:
    return f"natural join, 3 relations, {hypergraph(query).words}"


def make_by_one_index(query: Query, relations: Relations) -> Plan | None:
    """Algorithm 9."""
    shape = _shape(query, relations)
    if shape is None:
        return None
    bounds = {
        "space": "O(n) per index; there are 4",
        "update": "O(log n) per index, and the rows and dead ends from the changed row",
        "delay": "no bound between rows; all r rows in O((D + r) log n), where D comparisons prove, by one index of "
        f"{shape.pair}, that there are no others",
    }
    notes = (
        *first_notes(query, relations),
        f"reading finds each value of {shape.pair}.{shape.x} that {shape.ends[0]} has, then its values of {shape.pair}.{shape.y} that "
        f"{shape.ends[1]} has; changes of {shape.ends[1]} use an index of {shape.pair} by {shape.y}",
        f"indexes, shared with other views that use the same: {indexes_of(query, shape.tracks)}",
    )
    return Plan(
        _class(query), "elimination", THEOREM_ONE_INDEX, "best-effort", bounds, notes, "elimination", names(query), tracks=shape.tracks
    )


def make(query: Query, relations: Relations) -> Plan | None:
    shape = _shape(query, relations)
    if shape is None:
        return None
    ends, pair = shape.ends, shape.pair
    bounds = {
        "space": f"O(n log U): besides the indexes, about 40 bytes per row of {pair} for each factor of 16 in U, the range of values of X",
        "update": f"O(log n) per index, O(log U log n) for a row of {pair}, amortised, and the rows and dead ends from the changed row",
        "delay": "no bound between rows; all Z tuples in O(((h_X + 1) (h_Y + 1) + Z) log U) look-ups of O(log n), h_X and h_Y holes",
    }
    notes = (
        *first_notes(query, relations),
        f"the cost of a reading depends on the holes, the gaps between values of {ends[0]} and of {ends[1]} in which {pair} has values",
        f"X is {pair}.{shape.x}, Y is {pair}.{shape.y}",
        f"a two-dimensional tree of {pair} is kept for this view alone; a value of X far from all others makes it deeper: with more than "
        f"{MOST_AT_ONCE:,} rows, the view is then rebuilt, while it can be read and changed",
    )
    return Plan(
        _class(query), "bow-tie", THEOREM, "best-effort", bounds, notes, "bow_tie", names(query), tracks=shape.tracks
    )

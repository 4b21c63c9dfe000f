"""Natural joins of the shape R(X), S(X, Y), T(Y), X and Y one column each, by the holes between the values of R and T.

Source: *Towards Instance Optimal Join Algorithms*; docs/design/natural-joins.md (*bow-tie*).
"""

from __future__ import annotations

from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import Path, Plan, columns_of, first_notes, names, path_of
from service.query.model import Query
from structures.adaptive.bow_tie import MOST_AT_ONCE

THEOREM = "Towards Instance Optimal Join Algorithms for Data in Indexes, Theorem 4.2"
WORDS = "natural joins of the shape R(X), S(X, Y), T(Y), where X and Y are one column each"


def make(query: Query, relations: Relations) -> Plan | None:
    if query.cross or not is_natural(query, relations):
        return None
    columns = columns_of(query)
    if sorted(map(sorted, columns)) != [[0], [0, 1], [1]]:
        return None
    tracks: tuple[tuple[Path, ...], ...] = tuple(
        (path_of((0, 1), own), path_of((1, 0), own)) if len(own) == 2 else (path_of(tuple(own), own),) for own in columns
    )
    names_ = names(query)
    ends, pair = [name for name, own in zip(names_, columns, strict=True) if len(own) == 1], names_[list(map(len, columns)).index(2)]
    by_x, by_y = (next(own[v][0] for own in columns if len(own) == 2) for v in (0, 1))
    bounds = {
        "space": f"O(n log U): besides the indexes, about 40 bytes per row of {pair} for each factor of 16 in U, the range of values of X",
        "update": f"O(log n) per index, O(log U log n) for a row of {pair}, amortised, and the rows and dead ends from the changed row",
        "delay": "no bound between rows; all Z tuples in O(((h_X + 1) (h_Y + 1) + Z) log U) look-ups of O(log n), h_X and h_Y holes",
    }
    notes = (
        *first_notes(query, relations),
        f"the cost of a reading depends on the holes, the gaps between values of {ends[0]} and of {ends[1]} in which {pair} has values",
        f"X is {pair}.{by_x}, Y is {pair}.{by_y}",
        f"a two-dimensional tree of {pair} is kept for this view alone; a value of X far from all others makes it deeper: with more than "
        f"{MOST_AT_ONCE:,} rows the view is then built anew, while it is read and changed",
    )
    cls = f"natural join, 3 relations, {hypergraph(query).words}"
    return Plan(cls, "bow-tie", THEOREM, "best-effort", bounds, notes, "bow_tie", names_, tracks=tracks, amortised=True)

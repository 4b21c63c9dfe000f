"""Enumerations of a relation: everything, the rows whose intervals meet a window, the row with a key.

A relation has no index of its intervals: a window reads all rows, in pieces, beside the writer. Cost: 20 ns a row and interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from service.errors import Problem
from service.planning.meets import span_of
from service.query.model import IntervalRef, Span
from service.reading.lookups import Window, parsed, search, window_of
from service.reading.readings import TableReading
from service.tables.endpoints import stored_endpoints
from service.tables.relations import Relation
from service.tables.resolution import Slots


def read_relation(
    relation: Relation, version: int, rows: int, window: Window | None, key: Mapping[str, str] | None, may_search: bool
) -> TableReading | None:
    """The requested rows at a pinned version, which has so many in all. Problem `bad-parameter`.

    A key is found in O(1), unless its row has changed since the version: then it is searched among all rows if `may_search`, else None is
    returned.
    """
    meets = _meeting(relation, window) if window else None
    if key is None:
        return TableReading(relation, version, rows, meets)
    names = relation.key
    if set(key) != set(names):
        needed, given = ", ".join(f"where.{name}" for name in names), ", ".join(sorted(key))
        raise Problem("bad-parameter", f"where: a row of {relation.name} is looked up by its whole key, {needed}, not by {given}")
    keys = parsed(relation, names, key, "where")
    slots = relation.table.find_at(version, keys)
    if slots is None:
        if not may_search:
            return None
        slots = search(relation, version, keys)
    return TableReading(relation, version, rows, meets, slots)


def _meeting(relation: Relation, window: Window) -> Callable[[Slots], Slots]:
    """Those of some slots whose rows meet all windows."""
    intervals = relation.definition.intervals
    found = list[tuple[Span, int, int]]()
    for name, ends in window.items():
        declared = ", ".join(intervals) or "none"
        if name and name not in intervals:
            raise Problem("bad-parameter", f"overlaps.{name}: {relation.name} has no interval {name}; it declares {declared}")
        if not name and (len(intervals) != 1 or len(window) > 1):
            raise Problem("bad-parameter", f"overlaps: name the interval, overlaps.<interval>=lo,hi; {relation.name} declares {declared}")
        chosen = name or next(iter(intervals))
        type_ = relation.definition.column(intervals[chosen].start_column).kind
        span = span_of(IntervalRef(relation.name, chosen), relation.definition)
        found.append((span, *window_of(ends, type_)))
    return partial(meeting, relation, found)


def meeting(relation: Relation, windows: list[tuple[Span, int, int]], slots: Slots) -> Slots:
    """Those of these slots whose rows' spans meet all windows (span, encoded ends). A null end is unbounded, a null point meets nothing."""
    for span, low, high in windows:
        if not len(slots):
            break
        left, right = stored_endpoints(relation.table, span, slots)
        meets = (left <= high) & (right >= low)
        if len(span.columns) == 1 and relation.definition.column(span.columns[0]).nullable:
            _, (null,) = relation.table.numbers(span.columns, slots)
            if null is not None:
                meets &= ~np.asarray(null)
        slots = slots[meets]
    return slots

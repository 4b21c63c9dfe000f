"""Enumerations of a relation: everything, the rows whose intervals meet a window, the row with a key.

A relation has no index on its intervals: a window reads all rows, in pieces, beside the writer. Cost: 20 ns a row and interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from service.errors import bad_parameter
from service.reading.lookups import parsed, slot_of
from service.reading.readings import TableReading
from service.reading.windows import BoundWindow, Window, bound_of, met, parameter_of
from service.tables.relations import Relation
from service.tables.resolution import Slots


def read_relation(
    relation: Relation, version: int, rows: int, window: Window | None, key: Mapping[str, str] | None, may_search: bool
) -> TableReading | None:
    """Return the requested rows at a pinned version, which has `rows` in all. Problem `bad-parameter`.

    A key is found in O(1), unless its row has changed since the version: then all rows are searched if `may_search`; otherwise the result
    is None.
    """
    meets = _meeting(relation, window) if window else None
    if key is None:
        return TableReading(relation, version, rows, meets)
    names = relation.key
    if set(key) != set(names):
        needed, given = ", ".join(f"where.{name}" for name in names), ", ".join(sorted(key))
        raise bad_parameter("where", f"a row of {relation.name} is looked up by its whole key, {needed}, not by {given}")
    slots = slot_of(relation, version, parsed(relation, names, key, "where"), may_search)
    return None if slots is None else TableReading(relation, version, rows, meets, slots)


def _meeting(relation: Relation, window: Window) -> Callable[[Slots], Slots]:
    """Return a function that chooses the slots whose rows meet all windows."""
    intervals, bounds = relation.definition.intervals, list[BoundWindow]()
    for name, ends in window.items():
        if not name and (len(intervals) != 1 or len(window) > 1):
            declared = ", ".join(intervals) or "none"
            raise bad_parameter("overlaps", f"name the interval, overlaps.<interval>=lo,hi; {relation.name} declares {declared}")
        bounds.append(bound_of(relation.name, relation.definition, name or next(iter(intervals)), ends, parameter_of(name)))
    return lambda slots: slots[met(relation, bounds, slots)]

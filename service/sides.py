"""One alias of a view: which rows of its relation take part, and with what entry in the structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.endpoints import stored_endpoints
from service.planner import Plan
from service.query import needed_columns, select_mask
from service.relations import Relation
from service.resolution import NO_SLOTS, Slots
from service.terms import Query
from structures.interval_tree import Entries

Codes = Callable[[pa.RecordBatch], Slots]
NO_ENTRIES = Entries(np.empty(0, np.uint8), NO_SLOTS, np.empty(0, np.int64), np.empty(0, np.int64), NO_SLOTS)


class Chosen(NamedTuple):
    """Entries, and which rows they were made of (None: of all)."""

    entries: Entries
    places: npt.NDArray[np.int64] | None


class Side:
    """What alias number `place` brings. `set` is its set in the structure.

    output   columns that the view's rows read
    varying  what the view reads and may differ between two rows of one key: if a changed row keeps it, the view's rows do not change
    """

    def __init__(self, query: Query, plan: Plan, place: int, relation: Relation) -> None:
        self.alias = query.aliases[place][0]
        self.relation = relation
        self.set = place if plan.shape == "pair" else 0
        self.filters = [f for f in query.filters if f.column.alias == self.alias]
        self.join = [pair[place].column for pair in query.equal]
        refs = [ref for pair in query.overlaps for ref in pair if ref.alias == self.alias]
        self.interval = relation.definition.intervals[refs[0].interval] if refs else None
        needed = needed_columns(query, self.alias, relation.definition)
        self.output = needed or relation.key
        self.identity = list(dict.fromkeys([*needed, *relation.key]))
        # A set may stand for more than one alias.
        aliases = [alias for alias, name in query.aliases if name == relation.name]
        shown = [column for alias in aliases for column in needed_columns(query, alias, relation.definition)]
        compared = [ref.column for pair in (*query.less, *query.not_equal) for ref in pair if ref.alias in aliases]
        ends = [self.interval.start_column, self.interval.end_column] if self.interval else []
        self._filtered = list(dict.fromkeys(f.column.column for f in self.filters))
        used = dict.fromkeys([*shown, *self.join, *ends, *self._filtered, *compared])
        self.varying = [name for name in used if name not in relation.key]

    def entries(self, slots: Slots, codes: Codes | None) -> Chosen:
        """The entries of those rows at these slots that take part: the filters hold and no join column is null. Cost: O(n)."""
        table = self.relation.table
        places: npt.NDArray[np.int64] | None = None
        if self.filters:
            mask = self._read(self._filtered, slots, lambda rows: select_mask(self.filters, rows))
            if not mask.all():
                places = np.flatnonzero(mask)
                slots = slots[places]
        count = len(slots)
        if self.interval is None:  # a list, in the order of its slots
            left = right = np.zeros(count, np.int64)
        else:
            left, right = stored_endpoints(table, self.interval, slots)
        if codes is None:
            key = np.zeros(count, np.int32)
        else:
            key = self._read(self.join, slots, codes)
            if count and key.min() < 0:
                kept = np.flatnonzero(key >= 0)
                places = kept if places is None else places[kept]
                key, left, right, slots = key[kept], left[kept], right[kept], slots[kept]
        return Chosen(Entries(np.full(len(slots), self.set, np.uint8), key, left, right, slots), places)

    def _read(self, names: list[str], slots: Slots, work: Callable[[pa.RecordBatch], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """What `work` makes of these columns, a number a row."""
        parts = [work(rows) for _, rows in self.relation.table.take_pieces(names, slots)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def joined(parts: list[Entries]) -> Entries:
    """All of them in one."""
    parts = [part for part in parts if len(part.slot)]
    if not parts:
        return NO_ENTRIES
    if len(parts) == 1:
        return parts[0]
    return Entries(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

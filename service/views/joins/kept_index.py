"""One alias's entries in an interval tree, ordered by key and span: in which a bound row's partners are found in O(log n)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.planning.binding import Index
from service.tables.resolution import Slots
from service.tables.sides import Side, Source, joined
from service.tables.store import FREED_AT_ONCE, Domain, Numbers
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import NO_ENTRIES, Entries
from structures.interval.tree import Cursor, IntervalTree, Root

_CALLS = 3  # of a tree's `apply` a version: moves, deletes, inserts


class KeptIndex:
    """All rows of a side, and the domain of their keys."""

    def __init__(self, side: Side, index: Index) -> None:
        types = [side.relation.schema.field(name).type for name in index.columns]
        self.source = Source(side, 0, index.columns, index.span)
        self.domain = Domain(types) if types else None
        self.tree = IntervalTree("pair")  # of which set 1 stays empty: it is only looked up
        self._codes = self.domain.look_up_of if self.domain is not None else None
        self._taken = self.domain.acquire_of if self.domain is not None else None

    def load(self, version: int, parts: Sequence[Slots]) -> None:
        entries = joined([self.source.entries(slots, self._taken).entries for slots in parts])
        if len(entries.slot):
            self.tree.bulk_load(version, entries)

    def insert(self, version: int, slots: Slots) -> None:
        entries = self.source.entries(slots, self._taken).entries
        if len(entries.slot):
            self.tree.apply(version, NO_ENTRIES, entries, None)

    def delete(self, version: int, slots: Slots) -> None:
        entries = self.source.entries(slots, self._codes).entries
        if len(entries.slot):
            self.tree.apply(version, entries, NO_ENTRIES, None)
            if self.domain is not None:
                self.domain.release(entries.key, version)

    def move(self, version: int, before: Slots, after: Slots) -> None:
        """Rows that keep all that the view uses, from slot to slot."""
        chosen = self.source.entries(after, self._codes)
        if len(chosen.entries.slot):
            old = before if chosen.indices is None else before[chosen.indices]
            self.tree.apply(version, chosen.entries._replace(slot=old), chosen.entries, None)

    def of_code(self, root: Root, code: int) -> Cursor:
        """(slots, zeros): the rows with this code of the key; 0 of an index without one."""
        ends = np.array([NEG_INF]), np.array([POS_INF])
        return self.tree.partners(root, Entries(np.ones(1, np.uint8), np.array([code], np.int32), *ends, np.zeros(1, np.int32)))

    def require(self, changes: int, keys: int, text_bytes: int) -> None:
        """MemoryError unless so many changes of its alias surely fit."""
        self.tree.require(changes, _CALLS)
        if self.domain is not None:
            self.domain.require(keys, text_bytes)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self.tree.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return self.domain is not None and self.domain.reclaim(oldest_needed, pins)

    @property
    def bytes(self) -> int:
        return int(self.tree.live_bytes) + (self.domain.bytes if self.domain is not None else 0)

    def check(self) -> None:
        self.tree.check(self.tree.root)
        if self.domain is not None:
            self.domain.check()

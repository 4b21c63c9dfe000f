"""A shared index that is made beside the writer, from the rows of a held version.

    load, settle    beside the writer: read the rows, follow the recorded changes, sort the entries
    put             in the writer's turn: a piece of the entries goes into the store in order, without a search; after the last one, a
                    piece of the changes recorded since

Its texts have codes of the indexes' dictionary as soon as they are read or recorded. No two methods run at once: the object belongs to its
builder, or to the writer while the builder waits for it or has ended.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from service.tables.changes import Run
from service.tables.resolution import Slots
from service.tables.shared_index import SharedIndex, joined
from structures.core.entries import DELETE, INSERT
from structures.index.indexes import Entries, Growth, OrderedIndexes, index_order

_CHUNK = 1 << 14  # rows to read at once: the writer may wait for their codes
_PUT = 1 << 14  # entries to put into the store at once: two or three milliseconds
_FOLLOWED = 1 << 10  # and changed ones to follow


class IndexLoad:
    """The index, which is in no store before `put`, and its entries."""

    def __init__(self, index: SharedIndex) -> None:
        self.index = index
        self._parts: list[Entries] = []  # each row's entry once, in one of them; in the order of the index if there is only one
        self._noted: list[tuple[Entries, Entries]] = []  # deleted and inserted ones, in order, not followed yet
        self._fresh = 0  # entries recorded since the last `put`
        self._released: list[Slots] = []  # codes of texts to release, once for each former entry
        self._growth: Growth | None = None

    def load(self, version: int, progress: Callable[[float], None]) -> None:
        """Read the rows of a held version. `progress` may raise. O(n log n)."""
        table = self.index.relation.table
        for slots in table.scanned(version, _CHUNK):
            self._parts.append(self._inserted(slots))
            if len(slots):
                progress(slots.item(-1) / table.used)
        self._sort()

    def note(self, run: Run) -> None:
        """Record changes of rows; the old ones can still be read. MemoryError, without any reference added: the texts have no room."""
        deleted, inserted = self.index.entries(run.old[run.old >= 0], False)[0], self._inserted(run.new[run.new >= 0])
        if len(deleted.slot) or len(inserted.slot):
            self._noted.append((deleted, inserted))
            self._fresh += len(deleted.slot) + len(inserted.slot)

    def settle(self) -> None:
        """Follow the recorded changes. O(n)."""
        if not self._noted or self._growth is not None:
            return
        noted, self._noted = self._noted, []
        deleted, inserted = (joined(parts) for parts in zip(*noted, strict=True))
        when_deleted, when_inserted = (
            np.repeat(np.arange(len(noted)), [len(part.slot) for part in parts]) for parts in zip(*noted, strict=True)
        )
        slots, backwards = np.unique(deleted.slot[::-1], return_index=True)
        last = np.append(when_deleted[::-1][backwards], -1)  # a slot may be freed, and used again for another row
        position = np.searchsorted(slots, inserted.slot)
        stays = (np.append(slots, -1)[position] != inserted.slot) | (last[position] <= when_inserted)
        self._parts = [self._entries.take(np.flatnonzero(~np.isin(self._entries.slot, slots))), inserted.take(np.flatnonzero(stays))]
        self._released.append(self.index.text_codes(deleted))
        self._sort()

    def put(self, structure: OrderedIndexes, version: int) -> bool:
        """Put a piece more into the store, at the newest version, which was begun; return whether that is all. MemoryError: there is no
        room."""
        most, self._fresh = max(_FOLLOWED, 2 * self._fresh), 0
        if self._growth is None:
            self._growth = structure.growth(structure.add(len(self.index.order.columns)), self._entries)
            self.index.number = self._growth.index
        if self._parts:
            structure.require(len(self._growth.entries.slot), 1)
            if not structure.grow(self._growth, _PUT):
                return False
            self._parts = []
        while self._noted and most > 0:
            deleted, inserted = self._noted[0]
            count = len(deleted.slot) + len(inserted.slot)
            structure.require(count, 1)
            signs = np.repeat(np.array([DELETE, INSERT], np.int8), (len(deleted.slot), len(inserted.slot)))
            structure.apply(np.full(count, self.index.number), signs, np.zeros(count, np.int64), joined((deleted, inserted)))
            del self._noted[0]  # its inserts belong to the index from now on
            self._released.append(self.index.text_codes(deleted))
            most -= count
        if self._noted:
            return False
        self._release(self._released, version)
        return True

    def abandon(self, structure: OrderedIndexes | None, version: int) -> bool:
        """Discard the index; `version` is the newest. Return whether part of it is in the store, which must then be removed."""
        is_there, rest = self._growth is not None, self._parts
        if self._growth is not None and self._parts:
            assert structure is not None
            structure.begin(version)
            there = structure.end_growth(self._growth)
            rest = [self._growth.entries.take(np.arange(there, len(self._growth.entries.slot)))]
        held = [self.index.text_codes(part) for part in (*rest, *(inserted for _, inserted in self._noted))]
        self._parts, self._noted, self._growth = [], [], None
        self._release([*held, *self._released], version)
        return is_there

    def _inserted(self, slots: Slots) -> Entries:
        """Return the entries of inserted rows; their texts gain references."""
        self.index.require_texts(slots)
        return self.index.entries(slots, True)[0]

    @property
    def _entries(self) -> Entries:
        """All entries, in the order of the index."""
        assert len(self._parts) == 1, "its rows are being read"
        return self._parts[0]

    def _sort(self) -> None:
        entries = joined(self._parts)
        self._parts = [entries.take(index_order(entries, len(self.index.order.columns))) if len(entries.slot) else entries]

    def _release(self, codes: list[Slots], version: int) -> None:
        self._released = []
        if self.index.text_columns and codes:
            self.index.texts.release(np.concatenate(codes), version)

"""A shared index that is made beside the writer, of the rows of a version that is held.

    load, settle    beside the writer: read the rows, follow what was noted, sort the entries
    put             in the writer's turn: the entries go into the store in their order, without a search, then the changes noted since, few

Its texts have codes of the indexes' dictionary from the moment that they are read. Nobody calls two methods at once: it is its builder's,
or the writer's while the builder waits for it or has ended.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from service.tables.changes import Run
from service.tables.resolution import Slots
from service.tables.shared_index import SharedIndex, joined
from structures.index.indexes import NO_ENTRIES, Changes, Entries, OrderedIndexes, index_order

_CHUNK = 1 << 14  # rows that are read at once: the writer may wait for their codes


class Loading:
    """The index, which is in no store before `put`, and its entries."""

    def __init__(self, index: SharedIndex) -> None:
        self.index = index
        self._parts: list[Entries] = []  # each row's entry once, in one of them; in the order of the index if there is only one
        self._gone: list[Slots] = []  # noted, and not settled yet
        self._come: list[Slots] = []
        self._released: list[Slots] = []  # codes of texts, once for each entry that was there

    def load(self, version: int, progress: Callable[[float], None]) -> None:
        """Read the rows of a version, which is held. `progress` may raise. O(n log n)."""
        table, start = self.index.relation.table, 0
        while start >= 0:
            progress(start / max(1, table.used))
            slots, start = table.scan(version, start, _CHUNK)
            self._parts.append(self.index.entries(slots, True)[0])
        self._sort()

    def note(self, run: Run) -> None:
        """These rows have changed since."""
        self._gone.append(run.old[run.old >= 0])
        self._come.append(run.new[run.new >= 0])

    def settle(self) -> None:
        """Follow what was noted. O(n)."""
        if not self._gone:
            return
        changes = self._changes()
        stays = ~np.isin(self._entries.slot, changes.deletes.slot)
        self._parts = [self._entries.take(np.flatnonzero(stays)), changes.inserts]
        self._released.append(self.index.text_codes(changes.deletes))
        self._sort()

    def put(self, structure: OrderedIndexes, version: int) -> None:
        """Let it be an index of the store, of the newest version, which was begun. MemoryError: there is no room."""
        entries, changes = self._entries, self._changes()
        structure.require(len(entries.slot) + len(changes.deletes.slot) + len(changes.inserts.slot), 1)
        self.index.number = structure.add(len(self.index.order.columns))
        if len(entries.slot):
            structure.build(self.index.number, entries)
        if len(changes.deletes.slot) or len(changes.inserts.slot):
            structure.apply({self.index.number: changes})
        self._parts, released = [], [*self._released, self.index.text_codes(changes.deletes)]
        self._release(released, version)

    def abandon(self, version: int) -> None:
        """Nobody wants it; `version` is the newest."""
        held, self._parts = [self.index.text_codes(part) for part in self._parts], []
        self._release([*held, *self._released], version)

    @property
    def _entries(self) -> Entries:
        """All, in the order of the index."""
        assert len(self._parts) == 1, "its rows are being read"
        return self._parts[0]

    def _changes(self) -> Changes:
        """What was noted, which is over with this."""
        gone, come = (np.concatenate(parts) if parts else NO_ENTRIES.slot for parts in (self._gone, self._come))
        self._gone, self._come = [], []
        deletes = self._entries.take(np.flatnonzero(np.isin(self._entries.slot, gone)))
        return Changes(deletes, self.index.entries(come, True)[0] if len(come) else NO_ENTRIES)

    def _sort(self) -> None:
        entries = joined(self._parts)
        self._parts = [entries.take(index_order(entries, len(self.index.order.columns))) if len(entries.slot) else entries]

    def _release(self, codes: list[Slots], version: int) -> None:
        self._released = []
        if self.index.text_columns and codes:
            self.index.texts.release(np.concatenate(codes), version)

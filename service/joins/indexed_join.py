"""Any join, by look-ups: alias after alias is bound, each by the index that fits best what is bound already (`binding`).

Nothing is kept but the indexes: each an interval tree over one alias, ordered by (key, left), in which a bound row's partners are found in
O(log n). What an index does not know is checked on each candidate, and a row bound may have no partner further on: so the delay between
rows and the cost of a change have no bound but the candidates (`best-effort`). A changed row is bound first, and alias by alias: all
deletes while the later aliases still have theirs, then all inserts, so that each row of the delta falls to exactly one of its parts.

Costs: space O(n) an index; a change O(log n) an index and its candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from service.binding import Binding, Index
from service.joins.changes import Change, parted
from service.joins.indexed_cursor import Given, IndexedCursor, Scan
from service.joins.protocol import Bounds, Sink
from service.resolution import Resolved, Slots
from service.sides import NO_ENTRIES, Side, Source, joined
from service.store import Domain
from service.versions import Numbers
from structures.interval_tree import IntervalTree, Root

_CHUNK = 1 << 16  # rows in a step of building, or of a delta
_CALLS = 3  # of a tree's `apply` a version: moves, deletes, inserts


class IndexedRoot(NamedTuple):
    """One version: of the relations, and of each index."""

    version: int
    roots: tuple[Root, ...]


class KeptIndex:
    """One index: entries of a side by key and span."""

    def __init__(self, side: Side, index: Index) -> None:
        self.source = Source(side, 0, index.columns, index.span)
        self.tree = IntervalTree("pair")  # of which set 1 stays empty: it is only looked up
        types = [side.relation.schema.field(name).type for name in index.columns]
        self.domain = Domain(types) if types else None
        self._acquire = self.domain.acquire if self.domain is not None else None
        self._look_up = self.domain.look_up if self.domain is not None else None

    def load(self, version: int, parts: Sequence[Slots]) -> None:
        entries = joined([self.source.entries(slots, self._acquire).entries for slots in parts])
        if len(entries.slot):
            self.tree.bulk_load(version, entries)

    def insert(self, version: int, slots: Slots) -> None:
        entries = self.source.entries(slots, self._acquire).entries
        if len(entries.slot):
            self.tree.apply(version, NO_ENTRIES, entries, None)

    def delete(self, version: int, slots: Slots) -> None:
        entries = self.source.entries(slots, self._look_up).entries
        if len(entries.slot):
            self.tree.apply(version, entries, NO_ENTRIES, None)
            if self.domain is not None:
                self.domain.release(entries.key, version)

    def move(self, version: int, before: Slots, after: Slots) -> None:
        """Rows that keep all that the view uses, from slot to slot."""
        chosen = self.source.entries(after, self._look_up)
        if len(chosen.entries.slot):
            old = before if chosen.places is None else before[chosen.places]
            self.tree.apply(version, chosen.entries._replace(slot=old), chosen.entries, None)

    def require(self, changes: int, keys: int, text_bytes: int) -> None:
        self.tree.require(changes, _CALLS)
        if self.domain is not None:
            self.domain.require(keys, text_bytes)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> None:
        self.tree.reclaim(oldest_needed, pins)
        if self.domain is not None:
            self.domain.reclaim(oldest_needed, pins)


class IndexedJoin:
    """See the module's head."""

    def __init__(self, sides: Sequence[Side], binding: Binding, never: bool) -> None:
        self.sides, self.binding = list(sides), binding
        self.never = never
        self.indexes = [KeptIndex(sides[index.place], index) for index in binding.indexes]
        self._of_place = [[one for one in self.indexes if one.source.side.place == side.place] for side in sides]
        self._version = 0

    @property
    def root(self) -> IndexedRoot:
        return IndexedRoot(self._version, tuple(index.tree.root for index in self.indexes))

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        self._version = version
        if self.never:
            return
        for number, index in enumerate(self.indexes):
            side, parts, start = index.source.side, [], 0
            while start >= 0:
                slots, start = side.relation.table.scan(version, start, _CHUNK)
                parts.append(slots)
            index.load(version, parts)
            progress((number + 1) / len(self.indexes))

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        for index in self.indexes:
            one = resolved.get(index.source.side.relation.name)
            if one is not None:
                inserts = one.inserts
                index.require(len(one.deletes) + inserts.num_rows, inserts.num_rows, inserts.get_total_buffer_size())

    def apply(self, version: int, changes: Mapping[str, Change], sink: Sink | None) -> None:
        self._version = version
        if self.never:
            return
        parts = {}
        for side in self.sides:
            change = changes.get(side.relation.name)
            if change is not None:
                parts[side.place] = part = parted(side, change, sink is not None)
                if len(part.before):
                    for index in self._of_place[side.place]:
                        index.move(version, part.before, part.after)
        for place, part in parts.items():
            if len(part.old):
                sink = self._tell(sink, False, place, part.old)
                for index in self._of_place[place]:
                    index.delete(version, part.old)
        for place, part in parts.items():
            if len(part.new):
                for index in self._of_place[place]:
                    index.insert(version, part.new)
                sink = self._tell(sink, True, place, part.new)

    def _tell(self, sink: Sink | None, come: bool, place: int, slots: Slots) -> Sink | None:
        """The rows of these changed ones, as the indexes stand; None once the sink wants no more."""
        if sink is None:
            return None
        cursor = self.partners(self.root, place, slots, None)
        while not cursor.done:
            rows = cursor.fill(_CHUNK)
            if len(rows[0]) and not sink(come, rows):
                return None
        return sink

    def reclaim(self, oldest_needed: int, pins: Numbers) -> None:
        for index in self.indexes:
            index.reclaim(oldest_needed, pins)

    def rows(self, root: IndexedRoot, window: Bounds | None) -> IndexedCursor:
        place = self.binding.first
        return IndexedCursor(self, root, place, Scan(self.sides[place], root.version, None), window)

    def partners(self, root: IndexedRoot, place: int, slots: Slots, window: Bounds | None) -> IndexedCursor:
        return IndexedCursor(self, root, place, Given(self.sides[place].chosen(slots)), window)

    def of_key(self, root: IndexedRoot, place: int, key: pa.RecordBatch, window: Bounds | None) -> IndexedCursor:
        return IndexedCursor(self, root, place, Scan(self.sides[place], root.version, key), window)

    def surely_empty(self, root: IndexedRoot) -> bool:
        return self.never or any(one.count0 == 0 for one in root.roots)

    def entries(self, root: IndexedRoot) -> int:
        return sum(one.count0 for one in root.roots)

    @property
    def bytes(self) -> int:
        return sum(one.tree.live_bytes() + (one.domain.bytes if one.domain is not None else 0) for one in self.indexes)

    @property
    def retired_bytes(self) -> int:
        return sum(index.tree.retired_bytes for index in self.indexes)

    def check(self) -> None:
        for index in self.indexes:
            index.tree.check(index.tree.root)
            if index.domain is not None:
                index.domain.check()

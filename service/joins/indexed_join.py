"""Any join, by look-ups: alias after alias is bound, each by the index that fits best what is bound already (`binding`).

Nothing is kept but the indexes. What an index does not know is checked on each candidate, and a row bound may have no partner further on:
so the delay between rows and the cost of a change have no bound but the candidates (`best-effort`). A changed row is bound first.

Costs: space O(n) an index; a change O(log n) an index and its candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from service.binding import Binding, Index
from service.joins.indexed_cursor import Found, Given, IndexedCursor, Scan, Start
from service.joins.kept_index import KeptIndex
from service.joins.live_index import of_code
from service.joins.over_indexes import IndexedRoot, OverIndexes
from service.joins.protocol import Bounds
from service.resolution import Slots
from service.sides import Side


class IndexedJoin(OverIndexes):
    """See the module's head."""

    def __init__(self, sides: Sequence[Side], binding: Binding, never: bool, listed: bool) -> None:
        """`listed`: the rows of the alias that is bound first are kept in an index, too, else they are read from their table."""
        super().__init__(sides, binding, never)
        kept = [*binding.indexes, Index(binding.first, (), None)] if listed else binding.indexes
        self.indexes = [KeptIndex(sides[index.place], index) for index in kept]
        self._listed = listed
        self._of_place = [[one for one in self.indexes if one.source.side.place == side.place] for side in sides]

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        self._version = version
        if self.never:
            return
        for number, index in enumerate(self.indexes):
            index.load(version, self.rows_of(index.source.side, version))
            progress((number + 1) / len(self.indexes))

    def _move(self, version: int, side: Side, before: Slots, after: Slots) -> None:
        for index in self._of_place[side.place]:
            index.move(version, before, after)

    def _leave(self, version: int, place: int, slots: Slots) -> None:
        for index in self._of_place[place]:
            index.delete(version, slots)

    def _enter(self, version: int, place: int, slots: Slots) -> None:
        for index in self._of_place[place]:
            index.insert(version, slots)

    def rows(self, root: IndexedRoot, window: Bounds | None) -> IndexedCursor:
        place = self.binding.first
        start: Start = Scan(self.sides[place], root.version, None)
        if self._listed:
            start = Found(of_code(self.indexes[-1], root.roots[-1], 0))
        return IndexedCursor(self, root, place, start, window)

    def partners(self, root: IndexedRoot, place: int, slots: Slots, window: Bounds | None) -> IndexedCursor:
        return IndexedCursor(self, root, place, Given(self.sides[place].chosen(slots)), window)

    def of_key(self, root: IndexedRoot, place: int, key: pa.RecordBatch, window: Bounds | None) -> IndexedCursor:
        return IndexedCursor(self, root, place, Scan(self.sides[place], root.version, key), window)

    def surely_empty(self, root: IndexedRoot) -> bool:
        return self.never or any(one.count0 == 0 for one in root.roots)

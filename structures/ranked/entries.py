"""The base of both structures of the room: rows in an ordered index, written in place, and the first of them, some of which may tie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from structures.index.indexes import Entries, OrderedIndexes, index_order, items_of
from structures.index.layout import IndexArena
from structures.ranked.changes import GROUP, MISSING, MOST, STATE_WORDS, TIED, ListedRows

CHUNK = 1 << 16  # rows that are listed at once

Rank = Callable[[np.ndarray], np.ndarray]
"""Of slots numbers in the order in which their rows stand if they tie: int64[n]."""


class RankedChanges(NamedTuple):
    """n changes: entries whose first coordinate is the key, an int32 >= 0; signs int8[n], DELETE or INSERT; the changes of group g, all of
    one key, deletes first, end before ends[g] (int64)."""

    entries: Entries
    signs: np.ndarray
    ends: np.ndarray

    def groups(self, first: int, end: int) -> RankedChanges:
        """The changes of some groups."""
        begin = int(self.ends[first - 1]) if first else 0
        part = slice(begin, int(self.ends[end - 1]))
        entries = Entries(np.ascontiguousarray(self.entries.coordinates[part]), np.ascontiguousarray(self.entries.slot[part]))
        return RankedChanges(entries, np.ascontiguousarray(self.signs[part]), self.ends[first:end] - begin)


class RankedRows:
    """Rows by key and order. Only the writer uses them."""

    def __init__(self, arity: int, most: int, rank: Rank | None, words: int) -> None:
        """`arity`: coordinates of an entry, including the key; `most`: rows that are listed for each key or place; `rank`: None if no two
        rows tie; `words`: address space of the index."""
        self._arity, self._most, self._rank = arity, most, rank
        self._indexes = OrderedIndexes(words)
        self._index = self._indexes.add(arity)
        self._listed = room(CHUNK)
        self.steps = 0  # rows visited so far for what is reported

    @property
    def rows(self) -> int:
        """The number of all rows, listed or not."""
        return int(self._indexes.count(self._index, self._indexes.root(self._index)))

    @property
    def arena(self) -> IndexArena:
        """The arena of the index."""
        return self._indexes.arena

    @property
    def index_bytes(self) -> int:
        return int(self._indexes.live_bytes)

    def load_index(self, entries: Entries) -> Entries:
        """Fill the index, which is empty. Returns the entries in its order. O(n log n). MemoryError: they do not fit."""
        entries = entries.take(index_order(entries, self._arity))
        self._indexes.load(self._index, entries)
        return entries

    def all_entries(self) -> Entries:
        """All entries in the order of the index. O(n)."""
        n, root = self.rows, self._indexes.root(self._index)
        if n == 0:
            return Entries(np.empty((0, self._arity), np.int64), np.empty(0, np.int32))
        return self._indexes.entries(self._index, root).fill(n)

    def require_index(self, changes: int) -> None:
        """MemoryError unless this number of changes certainly fits. O(1)."""
        self._indexes.require(changes, 1)

    def state(self) -> np.ndarray:
        state = np.zeros(STATE_WORDS, np.int64)
        state[MOST], state[TIED] = self._most, self._rank is not None
        return state

    def change(
        self, changes: RankedChanges, state: np.ndarray, kernel: Any, more: tuple[Any, ...]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Have `kernel` make the changes, from the state on; more: its other arguments. Returns, for the rows that came or come first, the
        slot, the list, and whether the row is in the list after the changes. KeyError: an entry to be deleted was not there, or one to be
        inserted was."""
        parts, items = list[tuple[np.ndarray, ...]](), items_of(changes.entries)
        nodes, writing, holder = self._indexes.arena.nodes, self._indexes.arena.writing, self._indexes.holder(self._index)
        while state.item(GROUP) < len(changes.ends):
            n = kernel(nodes, writing, holder, items, changes.signs, changes.ends, *more, self._listed)
            parts.append(tuple(column[:n].copy() for column in self._listed))
            if n == 0 and state.item(GROUP) < len(changes.ends):  # more rows tie than there is room for
                self._listed = room(2 * len(self._listed.slot))
        if missing := state.item(MISSING):
            raise KeyError(f"{missing} rows that were to go were not there, or rows that came were")
        slots, of, after, sure = parts[0] if len(parts) == 1 else (np.concatenate(columns) for columns in zip(*parts, strict=True))
        self.steps += len(slots)
        if self._rank is None:
            return slots, of, after
        kept = self._chosen(slots, 2 * of + after, sure != 0)
        return slots[kept], of[kept], after[kept]

    def _chosen(self, slots: np.ndarray, lists: np.ndarray, sure: np.ndarray) -> np.ndarray:
        """bool[n]: which of the listed rows come first. lists: int64[n], equal for rows of one list."""
        kept, doubtful = sure.copy(), np.flatnonzero(~sure)
        if len(doubtful):
            assert self._rank is not None
            numbers, at, inverse = np.unique(lists, return_index=True, return_inverse=True)
            left = self._most - np.bincount(inverse, sure, len(numbers)).astype(np.int64)
            mine = inverse[doubtful]
            order = np.lexsort((self._rank(slots[doubtful]), mine))
            begins = np.flatnonzero(np.diff(mine[order], prepend=-1))
            position = np.arange(len(mine)) - np.repeat(begins, np.diff(begins, append=len(mine)))
            kept[doubtful[order]] = position < left[mine[order]]
        return kept

    def firsts(self, entries: Entries, common: int) -> np.ndarray:
        """bool[n]: which of all entries, in the order of the index, come first among those with the same first coordinates."""
        n, coordinates = len(entries.slot), entries.coordinates[:, : self._arity]
        differs = np.ones(n, np.bool_)
        differs[1:] = (coordinates[1:, :common] != coordinates[:-1, :common]).any(axis=1)
        order = np.arange(n)
        if self._rank is not None and n:
            ties = np.concatenate((np.zeros(1, np.bool_), (coordinates[1:] == coordinates[:-1]).all(axis=1)))
            of_a_tie = ties | np.append(ties[1:], False)
            rank = np.zeros(n, np.int64)
            rank[of_a_tie] = self._rank(entries.slot[of_a_tie])
            order = np.lexsort((rank, np.cumsum(~ties)))
        begins = np.flatnonzero(differs)
        kept = np.zeros(n, np.bool_)
        kept[order] = np.arange(n) - np.repeat(begins, np.diff(begins, append=n)) < self._most
        return kept

    def check_index(self) -> None:
        self._indexes.check()


def room(rows: int) -> ListedRows:
    return ListedRows(np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int8), np.empty(rows, np.int8))

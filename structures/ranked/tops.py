"""The first rows of each key in an order, under change, each version readable.

Problem: rows (key, order, slot) come and go; keep the first `most` of each key, in a list that can be read at every version that is still
pinned, and tell which rows come into it and go.

    all rows        an ordered index of (key, order …), written in place: the writer alone reads it
    the first ones  a persistent list (`event_tree/lists.py`), by key

Changes are taken in groups, one for each key and version, so that what is told of one is exact: no row of it goes and comes.

Rows whose coordinates are equal tie. If that may be, a rank is asked for: those of lower rank stand first. All rows that tie with the last
one listed are looked at then.

Invariants, by which `check()` names what broke: those of the index, and of the list, and
    R1  the list has just the first rows of each key

Costs (n rows): a change O(log n + most), and as much as rows tie; memory 8 bytes a coordinate and 4 a row, full to a quarter at least, and
27 to 40 a row that is listed. Source: docs/design/queries.md (*Latest rows*).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from structures.core.control import STORE_WORDS
from structures.core.cursor import Cursor
from structures.core.entries import DELETE, INSERT
from structures.core.entries import Entries as ListEntries
from structures.core.entry_tree import Root
from structures.core.kernel import compiled
from structures.event_tree.lists import RowList
from structures.index.indexes import Entries, OrderedIndexes, index_order, items_of
from structures.index.layout import INDEX_WORDS
from structures.ranked.changes import GROUP, MISSING, MOST, STATE_WORDS, TIED, Listed, change_groups, change_list

_CHUNK = 1 << 16  # rows that are listed at once
_TOGETHER = 1 << 18  # rows of groups that are followed together, about

Rank = Callable[[np.ndarray], np.ndarray]
"""Of slots numbers in the order in which their rows stand if they tie: int64[n]."""


class Changes(NamedTuple):
    """n changes: entries whose first coordinate is the key, an int32 >= 0; signs int8[n], DELETE or INSERT; those of group g, all of one
    key, deletes first, end before ends[g] (int64)."""

    entries: Entries
    signs: np.ndarray
    ends: np.ndarray


class Told(NamedTuple):
    """Rows that come into the list, and (~slot) rows that go; group by group, those that go first."""

    groups: np.ndarray
    slots: np.ndarray


class Tops:
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, arity: int, most: int, rank: Rank | None, words: int = STORE_WORDS, index_words: int = INDEX_WORDS) -> None:
        """`arity`: coordinates of an entry, the key included. `rank`: None if no two rows tie. `words`, `index_words`: address space of the
        list and of the index, in 8-byte words (not memory)."""
        self._most, self._rank = most, rank
        self._indexes = OrderedIndexes(index_words)
        self._index = self._indexes.add(arity)
        self.list = RowList(words)
        self._listed = _room(_CHUNK)
        self.steps = 0  # rows looked at so far for what is told

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        return self.list.root

    @property
    def rows(self) -> int:
        """All of them, listed or not."""
        return int(self._indexes.count(self._index, self._indexes.root(self._index)))

    # --- writing

    def load(self, version: int, entries: Entries) -> None:
        """Fill it; it is empty. O(n log n). MemoryError: it cannot fit."""
        entries = entries.take(index_order(entries, self._indexes.arity(self._index)))
        self._indexes.load(self._index, entries)
        self.list.load(version, _listed(entries.take(self._firsts(entries))))

    def require(self, changes: int) -> None:
        """Raise MemoryError unless so many changes surely fit. O(1)."""
        self._indexes.require(changes, 1)
        self.list.require(self.list.root.counts[0] + changes)

    def apply(self, version: int, changes: Changes) -> Told:
        """Make these changes, as `version`. KeyError: what was to go was not there, or what came was; the structure is damaged."""
        self.list.begin(version)
        parts, step = [Told(np.empty(0, np.int64), np.empty(0, np.int32))], max(1, _TOGETHER // (2 * self._most))
        for first in range(0, len(changes.ends), step):
            parts.append(self._follow(changes, first, changes.ends[first : first + step]))
        told = parts[1] if len(parts) == 2 else Told(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        self._change_list(changes, told)
        return told

    def _follow(self, changes: Changes, first: int, ends: np.ndarray) -> Told:
        """The groups from number `first` on whose changes end there."""
        begin = int(changes.ends[first - 1]) if first else 0
        part = slice(begin, int(ends[-1]))
        entries = Entries(np.ascontiguousarray(changes.entries.coordinates[part]), np.ascontiguousarray(changes.entries.slot[part]))
        slots, groups, after, sure = self._changed(entries, np.ascontiguousarray(changes.signs[part]), ends - begin)
        self.steps += len(slots)
        if self._rank is not None:
            kept = self._chosen(slots, 2 * groups + after, sure != 0)
            slots, groups, after = slots[kept], groups[kept], after[kept]
        numbers = groups << 32 | slots
        mine, others = numbers[after == 0], numbers[after != 0]
        differs = np.empty(len(slots), np.bool_)
        differs[after == 0] = ~np.isin(mine, others, assume_unique=True)
        differs[after != 0] = ~np.isin(others, mine, assume_unique=True)
        slots = np.where(after == 0, ~slots, slots)
        return Told(groups[differs] + first, slots[differs])

    def _changed(self, entries: Entries, signs: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, ...]:
        """The columns of `Listed` for all these groups."""
        state = np.zeros(STATE_WORDS, np.int64)
        state[MOST], state[TIED] = self._most, self._rank is not None
        parts, items = list[tuple[np.ndarray, ...]](), items_of(entries)
        nodes, writing = self._indexes.arena.nodes, self._indexes.arena.writing
        while state.item(GROUP) < len(ends):
            holder = self._indexes.holder(self._index)
            n = compiled(change_groups)(nodes, writing, holder, items, signs, ends, state, self._listed)
            parts.append(tuple(column[:n].copy() for column in self._listed))
            if n == 0 and state.item(GROUP) < len(ends):  # rows without number tie
                self._listed = _room(2 * len(self._listed.slot))
        if missing := state.item(MISSING):
            raise KeyError(f"{missing} rows that were to go were not there, or rows that came were")
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))

    def _chosen(self, slots: np.ndarray, lists: np.ndarray, sure: np.ndarray) -> np.ndarray:
        """bool[n]: of rows that are listed, those that stand first. lists: int64[n], ascending."""
        kept, doubtful = sure.copy(), np.flatnonzero(~sure)
        if len(doubtful):
            assert self._rank is not None
            mine = lists[doubtful]
            order = np.lexsort((self._rank(slots[doubtful]), mine))
            begins = np.flatnonzero(np.diff(mine, prepend=-1))
            lengths = np.diff(begins, append=len(mine))
            place = np.arange(len(mine)) - np.repeat(begins, lengths)
            low, high = np.searchsorted(lists, mine[begins]), np.searchsorted(lists, mine[begins], "right")
            before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sure)))
            left = self._most - (before[high] - before[low])
            kept[doubtful[order]] = place < np.repeat(left, lengths)
        return kept

    def _firsts(self, entries: Entries) -> np.ndarray:
        """bool[n]: of all entries, in the order of the index, those that stand first of their keys."""
        keys, n = entries.coordinates[:, 0], len(entries.slot)
        order = np.arange(n)
        if self._rank is not None and n:
            coordinates = entries.coordinates[:, : self._indexes.arity(self._index)]
            ties = np.concatenate((np.zeros(1, np.bool_), (coordinates[1:] == coordinates[:-1]).all(axis=1)))
            of_a_tie = ties | np.append(ties[1:], False)
            rank = np.zeros(n, np.int64)
            rank[of_a_tie] = self._rank(entries.slot[of_a_tie])
            order = np.lexsort((rank, np.cumsum(~ties)))
        begins = np.flatnonzero(np.diff(keys, prepend=-1))
        place = np.arange(n) - np.repeat(begins, np.diff(begins, append=n))
        kept = np.zeros(n, np.bool_)
        kept[order] = place < self._most
        return kept

    def _change_list(self, changes: Changes, told: Told) -> None:
        """Bring the list to what all of this leaves: a row may come and go in several versions."""
        gone = told.slots < 0
        keys = changes.entries.coordinates[changes.ends[told.groups] - 1, 0]
        slots, first, inverse = np.unique(np.where(gone, ~told.slots, told.slots), return_index=True, return_inverse=True)
        net = np.bincount(inverse, np.where(gone, -1, 1), len(slots)).astype(np.int64)
        some = np.flatnonzero(net)
        order = some[np.lexsort((slots[some], keys[first[some]]))]
        entries = _entries(keys[first[order]], slots[order])
        if compiled(change_list)(self.list.arena.nodes, self.list.arena.writing, net[order].astype(np.int8), entries):
            raise KeyError("a row that goes was not in the list")
        self.list.compact(len(order))

    def reclaim(self, oldest: int, pins: np.ndarray, most: int) -> bool:
        """As `Versioned.reclaim`."""
        return self.list.reclaim(oldest, pins, most)

    # --- reading

    def of(self, root: Root, key: int | None = None) -> Cursor:
        """The first rows of a version: of all keys, or of one."""
        return self.list.rows(root, key)

    def holds(self, root: Root, keys: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """bool[n]: which of the rows with these keys, at these slots, a version lists. O(log n) each."""
        return self.list.holds(root, _entries(keys, slots))

    @property
    def bytes(self) -> int:
        return self._indexes.live_bytes + self.list.live_bytes

    @property
    def retired_bytes(self) -> int:
        return self.list.retired_bytes

    def check(self, others: tuple[Root, ...] = ()) -> None:
        """Prove the invariants of the newest version, and that no block is lost, given the other roots in use."""
        self._indexes.check()
        self.list.check(self.root, others)
        n = self.rows
        found = self._indexes.entries(self._index, self._indexes.root(self._index)).fill(n) if n else None
        wanted = np.sort(found.slot[self._firsts(found)]) if found is not None else np.empty(0, np.int32)
        cursor, parts = self.of(self.root), [np.empty(0, np.int32)]
        while not cursor.done:
            parts.append(np.array(cursor.fill(_CHUNK)[0]))
        assert np.array_equal(np.sort(np.concatenate(parts)), wanted), "R1: the list has other rows than the first of each key"


def _room(rows: int) -> Listed:
    return Listed(np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int8), np.empty(rows, np.int8))


def _listed(entries: Entries) -> ListEntries:
    return _entries(entries.coordinates[:, 0], entries.slot)


def _entries(keys: np.ndarray, slots: np.ndarray) -> ListEntries:
    """Entries of the list."""
    n, zeros = len(slots), np.zeros(len(slots), np.int64)
    return ListEntries(np.zeros(n, np.uint8), np.ascontiguousarray(keys, np.int32), zeros, zeros, np.ascontiguousarray(slots, np.int32))


__all__ = ["DELETE", "INSERT", "Changes", "Entries", "Told", "Tops"]

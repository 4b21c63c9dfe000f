"""The first rows of each key in an order, under updates, each version readable.

Problem: rows (key, order, slot) come and go; keep the first `most` of each key, in a list that can be read at every version that is still
pinned, and report which rows enter and leave it.

    all rows        an ordered index of (key, order …), written in position: only the writer reads it (`entries.py`)
    the first ones  a persistent list (`ordered/lists.py`), by key

Changes are applied in groups, one for each key and version, so that the report of a group is exact: no row both enters and leaves.

Rows whose coordinates are equal tie. If that is possible, a rank is requested: rows of lower rank come first. All rows that tie with the
last one listed are then visited.

Invariants, by which `check()` names what broke: those of the index, and of the list, and
    R1  the list has exactly the first rows of each key

Costs (n rows): a change O(log n + most), and the number of rows that tie; memory 8 bytes a coordinate and 4 a row, at least a quarter full,
and 27 to 40 a listed row. Source: docs/design/queries.md (*Latest rows*).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.control import STORE_WORDS
from structures.core.cursor import Cursor
from structures.core.entries import Entries as ListEntries
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.index.indexes import Entries
from structures.ordered.lists import RowList
from structures.ranked.changes import change_groups, change_list
from structures.ranked.entries import Rank, RankedChanges, RankedRows

_CHUNK = 1 << 16  # rows that are read at once
_TOGETHER = 1 << 18  # approximate rows of the groups that are applied together


class TopChanges(NamedTuple):
    """Rows that enter the list, and (~slot) rows that leave it; group by group, leaving rows first."""

    groups: np.ndarray
    slots: np.ndarray


class Tops(RankedRows):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, arity: int, most: int, rank: Rank | None, words: int = STORE_WORDS, index_words: int = STORE_WORDS) -> None:
        """As `RankedRows`; `words`: address space of the list in 8-byte words (not memory)."""
        super().__init__(arity, most, rank, index_words)
        self.list = RowList(words)

    @property
    def root(self) -> EntryRoot:
        """The newest version, published or not."""
        return self.list.root

    # --- writing

    def load(self, version: int, entries: Entries) -> None:
        """Fill the structure, which is empty. O(n log n). MemoryError: the rows do not fit."""
        entries = self.load_index(entries)
        kept = self.firsts(entries, 1)
        self.list.load(version, _entries(entries.coordinates[kept, 0], entries.slot[kept]))

    def require(self, changes: int) -> None:
        """Raise MemoryError unless this number of changes certainly fits. O(1)."""
        self.require_index(changes)
        self.list.require(self.list.root.counts[0] + changes)

    def apply(self, version: int, changes: RankedChanges) -> TopChanges:
        """Apply these changes, as `version`. KeyError: a row to be deleted was not there, or one to be inserted was; the structure is
        damaged."""
        self.list.begin(version)
        parts, step = [TopChanges(np.empty(0, np.int64), np.empty(0, np.int32))], max(1, _TOGETHER // (2 * self._most))
        for first in range(0, len(changes.ends), step):
            end = min(len(changes.ends), first + step)
            emitted = self._follow(changes.groups(first, end))
            parts.append(TopChanges(emitted.groups + first, emitted.slots))
        emitted = parts[1] if len(parts) == 2 else TopChanges(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        self._change_list(changes, emitted)
        return emitted

    def _follow(self, changes: RankedChanges) -> TopChanges:
        state = self.state()
        slots, groups, after = self.change(changes, state, compiled(change_groups), (state,))
        numbers = groups << 32 | slots
        mine, others = numbers[after == 0], numbers[after != 0]
        differs = np.empty(len(slots), np.bool_)
        differs[after == 0] = ~np.isin(mine, others, assume_unique=True)
        differs[after != 0] = ~np.isin(others, mine, assume_unique=True)
        return TopChanges(groups[differs], np.where(after == 0, ~slots, slots)[differs])

    def _change_list(self, changes: RankedChanges, emitted: TopChanges) -> None:
        """Apply the net effect of all groups to the list: a row may come and go in several versions."""
        deleted = emitted.slots < 0
        keys = changes.entries.coordinates[changes.ends[emitted.groups] - 1, 0]
        slots, first, inverse = np.unique(np.where(deleted, ~emitted.slots, emitted.slots), return_index=True, return_inverse=True)
        net = np.bincount(inverse, np.where(deleted, -1, 1), len(slots)).astype(np.int64)
        some = np.flatnonzero(net)
        order = some[np.lexsort((slots[some], keys[first[some]]))]
        entries = _entries(keys[first[order]], slots[order])
        if compiled(change_list)(self.list.arena.nodes, self.list.arena.writing, net[order].astype(np.int8), entries):
            raise KeyError("a row that goes was not in the list")

    def reclaim(self, oldest: int, pins: np.ndarray, most: int) -> bool:
        """As `Versioned.reclaim`."""
        return self.list.reclaim(oldest, pins, most)

    # --- reading

    def of(self, root: EntryRoot, key: int | None = None) -> Cursor:
        """The first rows of a version: of all keys, or of one."""
        return self.list.rows(root, key)

    def holds(self, root: EntryRoot, keys: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """bool[n]: which of the rows with these keys, at these slots, are in the list of a version. O(log n) each."""
        return self.list.holds(root, _entries(keys, slots))

    @property
    def bytes(self) -> int:
        return self.index_bytes + self.list.live_bytes

    def check(self, others: tuple[EntryRoot, ...] = ()) -> None:
        """Prove the invariants of the newest version, and that no block is lost, given the other roots in use."""
        self.check_index()
        self.list.check(self.root, others)
        found = self.all_entries()
        cursor, parts = self.of(self.root), [np.empty(0, np.int32)]
        while not cursor.done:
            parts.append(np.array(cursor.fill(_CHUNK)[0]))
        listed, wanted = np.sort(np.concatenate(parts)), np.sort(found.slot[self.firsts(found, 1)])
        assert np.array_equal(listed, wanted), "R1: the list has other rows than the first of each key"


def _entries(keys: np.ndarray, slots: np.ndarray) -> ListEntries:
    """Build entries of the list."""
    n, zeros = len(slots), np.zeros(len(slots), np.int64)
    return ListEntries(np.zeros(n, np.uint8), np.ascontiguousarray(keys, np.int32), zeros, zeros, np.ascontiguousarray(slots, np.int32))

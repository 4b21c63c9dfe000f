"""Ordered indexes: sets of tuples with slots in lexicographic order, shared by all readers, at every version that is still pinned.

Problem: under inserts and deletes of entries (1 to 8 int64 coordinates, a slot), answer `find_gap`, `seek`, whether a prefix is there, how
many entries begin with it, and which, at any pinned version. This is the cost model of Minesweeper and of adaptive intersection, and the
basis of view trees (`view_tree/tree.py`).

All indexes, of whatever arity, lie in one arena (`layout.py`; `changes.py` has the invariants), so that a kernel can read several at once,
and views that require the same order of the same relation share one index. A version is written in steps, each a *tick* of the arena:
the roots before and after each stay readable until the next version. Pins of versions are mapped to ticks.

Costs (n entries, of arity k)
    load            O(n log n), the sort
    apply           O(log n) a change; blocks are copied once a tick
    seek, find_gap, has_prefix, count    O(log n)
    entries         O(log n) to the first, O(1) amortised between
    memory          8 k + 4 bytes an entry, in leaves at least half full
Source: B+-trees; docs/design/natural-joins.md (*Common ground*).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from structures.core.blocks import ALL_BLOCKS
from structures.core.control import VERSION
from structures.core.cursor import Resumable
from structures.core.kernel import compiled, contiguous
from structures.core.ticks import Ticks
from structures.core.versioned import VersionedStructure
from structures.index import layout
from structures.index.changes import INNER_FILL, LEAF_FILL, build_inner, build_leaves, drop_some
from structures.index.check import check_indexes
from structures.index.layout import IndexArena, size_of
from structures.index.runs import Steps, change_in_order
from structures.index.search import COPIED, GAP_WORDS, LEAF_, Items, count_prefix, gap, range_fill, seek_position

__all__ = ["NO_ENTRIES", "IndexCursor", "Entries", "OrderedIndexes", "Run"]



class Entries(NamedTuple):
    """n entries: coordinates int64[n, width], C-contiguous, of which an index of arity k takes the first k; slot int32[n], >= 0."""

    coordinates: np.ndarray
    slot: np.ndarray

    def take(self, positions: np.ndarray) -> Entries:
        return Entries(self.coordinates[positions], self.slot[positions])


NO_ENTRIES = Entries(np.empty((0, layout.MOST_ARITY), np.int64), np.empty(0, np.int32))


def items_of(entries: Entries) -> Items:
    """The entries in the form that kernels take. TypeError: their arrays do not fit (a single entry is not checked: it is contiguous)."""
    if len(entries.slot) > 1:
        contiguous((np.int64, np.int32), entries)
    return Items(entries.coordinates.reshape(-1), entries.coordinates.shape[1], entries.slot)


class Run(NamedTuple):
    """The result of `apply`: n changes, each of an index, by ascending tick, and the root of the index after it. common: int8[n], the
    number of first coordinates that another entry of the index shared with it, as the changes were made one after another."""

    indexes: np.ndarray
    signs: np.ndarray
    ticks: np.ndarray
    entries: Entries
    common: np.ndarray
    after: np.ndarray

    @property
    def groups(self) -> np.ndarray:
        """int64[g + 1]: the first change of each tick, and the number of changes."""
        begins = np.ones(len(self.ticks) + 1, np.bool_)
        begins[1:-1] = self.ticks[1:] != self.ticks[:-1]
        return np.flatnonzero(begins)


class Growth:
    """An empty index that is being filled in pieces with entries in its order, level by level from the leaves up. Its blocks are in no tree
    before the last piece."""

    def __init__(self, index: int, arity: int, entries: Entries) -> None:
        self.index, self.entries = index, entries
        self.fill, self.children = LEAF_FILL.item(arity), INNER_FILL.item(arity)
        self.below: np.ndarray | None = None  # the complete level below; None while the leaves are written
        self.level = np.empty(-(-len(entries.slot) // self.fill), np.int64)  # the blocks of the level that is being written
        self.made = 0  # blocks of it written so far

    def go_up(self) -> bool:
        """Begin the next level, above the one just completed. Returns whether that one is the root, and there is none."""
        if len(self.level) > 1:
            self.below, self.level, self.made = self.level, np.empty(-(-len(self.level) // self.children), np.int64), 0
            return False
        return True


class IndexCursor(Resumable):
    """A reading of the entries from a place on that have its first `common` coordinates; plain data. `fill` releases the GIL."""

    def __init__(self, arena: IndexArena, arity: int, root: int, position: Sequence[int], common: int) -> None:
        _require_prefix(position, arity)
        self._arena, self._arity, self._root = arena, arity, root
        self._prefix = _array(position), common
        self._Z = np.zeros(3, np.int64)
        self._Z[:COPIED] = compiled(seek_position)(arena.nodes, root, arity, self._prefix[0], len(position))

    def fill(self, limit: int) -> Entries:
        """Up to `limit` >= 1 further entries; fewer at the end only (`done`)."""
        coordinates, slots = np.empty((limit, self._arity), np.int64), np.empty(limit, np.int32)
        n = compiled(range_fill)(self._arena.nodes, self._root, self._arity, *self._prefix, self._Z, coordinates, slots)
        return Entries(coordinates[:n], slots[:n])

    @property
    def done(self) -> bool:
        return self._Z.item(LEAF_) == 0


def _require_prefix(prefix: Sequence[int], arity: int) -> None:
    """ValueError if an index of this arity has fewer coordinates."""
    if len(prefix) > arity:
        raise ValueError(f"{len(prefix)} coordinates are asked of an index of {arity}")


def _require_entries(entries: Entries, arity: int) -> None:
    """ValueError unless each has a slot and as many coordinates as an index of this arity takes."""
    rows, width = entries.coordinates.shape
    if rows != len(entries.slot) or (rows > 0 and width < arity):
        raise ValueError(f"{rows} entries of {width} coordinates, {len(entries.slot)} slots: an index takes {arity} coordinates and a slot")


def index_order(entries: Entries, arity: int) -> np.ndarray:
    """The places of the entries in the order of an index. O(n log n)."""
    columns = [entries.slot.astype(np.int64), *(entries.coordinates[:, j] for j in range(arity - 1, -1, -1))]
    if len(entries.slot) < 2:
        return np.zeros(len(entries.slot), np.int64)
    spans = [(int(column.min()), int(column.max()) - int(column.min()) + 1) for column in columns]
    total = 1
    for _, span in spans:
        total *= span
    if total >= 2**63:
        return np.lexsort(columns)
    positions, times = np.zeros(len(entries.slot), np.int64), 1
    for column, (least, span) in zip(columns, spans, strict=True):
        positions += (column - least) * times
        times *= span
    return np.argsort(positions)


class OrderedIndexes(VersionedStructure[IndexArena]):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile. A root is an int; 0: empty."""

    def __init__(self, words: int = layout.INDEX_WORDS) -> None:
        """`words`: the arena's address space in 8-byte words (not memory)."""
        self.arena = IndexArena(words)
        self._arrays = self.arena.nodes, self.arena.writing
        self._made = 0
        self._arities = np.zeros(layout.MOST_TREES, np.int8)  # of the indexes in use; 0 for others
        self._removed: dict[int, list[int]] = {}  # by arity: to read a root of a pinned version, the arity of its index's number is needed
        self._leaving: dict[int, np.ndarray] = {}  # indexes whose blocks are being dropped, and the progress (`drop_on`)
        self._version, self._ticks = 0, Ticks()

    # --- indexes

    def add(self, arity: int) -> int:
        """Add an empty index. Returns its number. ValueError: its arity is not 1 to 8; MemoryError: 2**20 numbers are used, including those
        of removed ones."""
        if not 1 <= arity <= layout.MOST_ARITY:
            raise ValueError(f"no index of {arity} coordinates")
        if self._removed.get(arity):
            index = self._removed[arity].pop()
        elif self._made < layout.MOST_TREES:
            index = self._made
            self._made += 1
        else:
            raise MemoryError(f"there are {layout.MOST_TREES} indexes")
        h = self.holder(index)
        self.arena.C[h + layout.ROOT], self.arena.C[h + layout.ARITY], self.arena.C[h + layout.BLOCKS] = 0, arity, 0
        self._arities[index] = arity
        return index

    def remove(self, index: int, most: int = ALL_BLOCKS) -> bool:
        """Remove the index from the newest version; pinned versions still see it. At most `most` of its blocks are dropped. Returns whether
        these are all; if not, call it again, in this version or a later one. KeyError: there is no such index, or it is removed."""
        h = self.holder(index)
        way = self._leaving.get(index)
        if way is None:
            self._arity_in_use(index)
            self._arities[index] = 0
            root = self.root(index)
            way = self._leaving[index] = np.array([1 if root else 0, root, *[0] * (2 * layout.MOST_LEVELS - 1)], np.int64)
            self.arena.C[h + layout.ROOT] = 0
        drop_some(*self._arrays, h, way, most)
        if way[0]:
            return False
        del self._leaving[index]
        self._removed.setdefault(self.arity(index), []).append(index)
        return True

    def holder(self, index: int) -> int:
        """The place in C that describes the index's tree."""
        return layout.TREES + layout.TREE_WORDS * index

    def arity(self, index: int) -> int:
        arity: int = self.arena.C.item(self.holder(index) + layout.ARITY)
        return arity

    def root(self, index: int) -> int:
        """The newest version, published or not."""
        root: int = self.arena.C.item(self.holder(index) + layout.ROOT)
        return root

    # --- writing

    def begin(self, version: int) -> None:
        """Begin a version, to which all later writes belong. ValueError: it is below the last."""
        if version < self._version:
            raise ValueError(f"version {version} is below {self._version}")
        if version != self._version:
            self._end_version()
            self._version = version
        self.arena.C[VERSION] += 1

    def load(self, index: int, entries: Entries) -> None:
        """Fill an empty index. KeyError: there is no such index; ValueError: it is not empty, or the entries do not fit its arity;
        MemoryError: there is no room. Nothing is done then."""
        arity = self._arity_in_use(index)
        if self.root(index):
            raise ValueError("only an empty index is loaded")
        _require_entries(entries, arity)
        self.require(len(entries.slot), 1)
        if len(entries.slot):
            self.build(index, entries.take(index_order(entries, arity)))

    def build(self, index: int, entries: Entries) -> None:
        """Fill an empty index with entries in its order."""
        self.grow(self.growth(index, entries), ALL_BLOCKS)

    def growth(self, index: int, entries: Entries) -> Growth:
        """Prepare to fill an empty index with entries in its order; nothing is written yet."""
        return Growth(index, self.arity(index), entries)

    def grow(self, growth: Growth, most: int) -> bool:
        """Write the blocks of about `most` entries or children more, in the current version. Returns whether the index, empty until then,
        has all entries."""
        h = self.holder(growth.index)
        while most > 0:
            below, fill = growth.below, growth.fill if growth.below is None else growth.children
            first, growth.made = growth.made, min(len(growth.level), growth.made + -(-most // fill))
            if below is None:
                build_leaves(*self._arrays, h, items_of(growth.entries), growth.level, first, growth.made)
            else:
                build_inner(*self._arrays, h, below, growth.level, first, growth.made)
            most -= fill * (growth.made - first)
            if growth.made < len(growth.level):
                return False
            if growth.go_up():
                self.arena.C[h + layout.ROOT] = growth.level[0] if len(growth.level) else 0
                return True
        return False

    def end_growth(self, growth: Growth) -> int:
        """End the growth: the index has the entries written so far, and gets no more. Returns their number. O(leaves)."""
        entries = len(growth.entries.slot)
        if growth.below is None:
            entries = entries * growth.made // max(1, len(growth.level))
            growth.level = growth.level[: growth.made]
        self.grow(growth, ALL_BLOCKS)
        return entries

    def require(self, changes: int, ticks: int) -> None:
        """Raise MemoryError unless this number of inserts and deletes, in this number of ticks, certainly fits. O(1).

        A change writes two blocks a level at worst; a tick copies no block twice, and makes two a change at worst.
        """
        blocks = self.arena.blocks
        levels = blocks.bit_length() + 2
        if not self.arena.has_room(layout.BLOCK * min(changes * 2 * levels, ticks * (blocks + 2 * changes + 1))):
            raise MemoryError(f"the ordered indexes have reached the size of their arena ({8 * self.arena.M.size} bytes)")

    def order(self, index: int, entries: Entries) -> np.ndarray:
        """int64[n]: the places of the entries in the order of an index, which is the best one for changing them."""
        return index_order(entries, self.arity(index))

    def apply(self, index: np.ndarray, sign: np.ndarray, tick: np.ndarray, entries: Entries) -> Run:
        """Insert (sign INSERT or ENTER) and delete (DELETE or LEAVE) entries one after another in the current version, number i in the
        index that index[i] (int64) names. tick: int64[n], ascending; the roots after each tick stay readable.

        Deleted entries must be there and inserted ones not: KeyError, with all others done. KeyError, ValueError, TypeError, and nothing
        done: there is no such index, or entries do not fit it. O(log n) a change.
        """
        n = len(index)
        contiguous((np.int64, np.int8, np.int64), (index, sign, tick))
        if not len(sign) == len(tick) == len(entries.slot) == n:
            given = f"{n}, {len(sign)} and {len(tick)} for {len(entries.slot)}"
            raise ValueError(f"a run has an index, a sign and a tick for each entry, not {given}")
        run = Run(index, sign, tick, entries, np.empty(n, np.int8), np.empty(n, np.int64))
        self.require(n, len(run.groups) - 1)
        steps = Steps(index, sign, tick)
        refused = compiled(change_in_order)(*self._arrays, self._arities, steps, items_of(entries), run.after, run.common)
        if refused >= 0:
            _require_entries(entries, self._arity_in_use(index.item(refused)))
        self._none_missing()
        return run

    def _arity_in_use(self, index: int) -> int:
        """The arity of the index. KeyError: there is no such index, or it is removed."""
        arity: int = self._arities.item(index) if 0 <= index < self._made else 0
        if arity == 0:
            raise KeyError(f"there is no index {index}")
        return arity

    def _none_missing(self) -> None:
        missing, self.arena.C[layout.MISSING] = int(self.arena.C[layout.MISSING]), 0
        if missing:
            raise KeyError(f"{missing} deleted entries were not there, or inserted ones were")

    def reclaim(self, oldest: int, pins: np.ndarray, most: int = ALL_BLOCKS) -> bool:
        """Free blocks that no version >= `oldest` and no pin (ascending int64) can see, about `most` at most. Returns whether there may be
        more."""
        self._end_version()
        return self.arena.reclaim(*self._ticks.keep(oldest, pins), most)

    def _end_version(self) -> None:
        """Record that the version has come to this tick; it may continue."""
        self._ticks.end(self._version, int(self.arena.C[VERSION]))

    # --- reading

    def count(self, index: int, root: int, prefix: Sequence[int] = ()) -> int:
        """The number of entries that begin with these coordinates. ValueError: the index has fewer."""
        _require_prefix(prefix, self.arity(index))
        if not prefix:
            return size_of(self.arena.W, self.arity(index), root) if root else 0
        return int(compiled(count_prefix)(self.arena.nodes, root, self.arity(index), _array(prefix), len(prefix)))

    def seek(self, index: int, root: int, position: Sequence[int]) -> tuple[int, ...] | None:
        """The first entry, coordinates and slot, whose first coordinates are not below these. ValueError: the index has fewer."""
        found = IndexCursor(self.arena, self.arity(index), root, position, 0).fill(1)
        return (*found.coordinates[0].tolist(), int(found.slot[0])) if len(found.slot) else None

    def find_gap(self, index: int, root: int, prefix: Sequence[int], value: int) -> tuple[int | None, int | None]:
        """The greatest coordinate <= value, and the least >= value, of those that follow this prefix; None if there is none. ValueError:
        none can follow it."""
        _require_prefix((*prefix, value), self.arity(index))
        found = np.empty(GAP_WORDS, np.int64)
        compiled(gap)(self.arena.nodes, root, self.arity(index), _array((*prefix, value)), len(prefix), found)
        below, low, above, high = found.tolist()
        return low if below else None, high if above else None

    def entries(self, index: int, root: int, prefix: Sequence[int] = ()) -> IndexCursor:
        """The entries that begin with these coordinates, in order. ValueError: the index has fewer."""
        return IndexCursor(self.arena, self.arity(index), root, prefix, len(prefix))

    def bytes(self, index: int) -> int:
        """Bytes of the newest version's blocks."""
        return 8 * layout.BLOCK * int(self.arena.C[self.holder(index) + layout.BLOCKS])

    def check(self, others: Iterable[tuple[int, int]] = ()) -> None:
        """Prove the invariants of the newest version, and that no block is lost (given arity and root of every tree of others in use);
        AssertionError names the invariant."""
        removed = {index for indexes in self._removed.values() for index in indexes}
        made = [(self.arity(index), self.root(index)) for index in range(self._made) if index not in removed]
        check_indexes(self.arena, [*made, *others], [(self.arity(index), way) for index, way in self._leaving.items()])


def _array(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)

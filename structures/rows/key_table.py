"""The slot of a row by its key: one open-addressing table, linear probing.

Rows, stored or passed in, have one layout (a *row set*), so that all schemas use the same kernels:

    kinds    int8[c]         what a cell holds: PLAIN (64 bits), FLOAT (its bits), TEXT (its length in bytes)
    key      int64[k]        the columns of the key
    cells    int64[n, w]     a row is w cells side by input: c columns, then null bits (32 a cell)
    places   int64[n]        the beginning of the row's texts in `heap`, in column order without gaps
    heap     uint8[...]

An entry is one int64: the upper half 31 bits of a keyed hash (the tag), the lower half slot + 1; 0 is empty. The tag alone
determines where an entry belongs, so the table grows without reading the rows, and a removed entry's followers are
moved back (no tombstones). If tags are equal, the key columns are compared.

Invariants
    I1  an entry is reached from its tag's place without an empty entry between
    I2  `count` entries are not empty; at most 3/4 of the table
    I3  the entry's tag is the hash of its row's key; no two entries have equal keys

A large table grows gradually: while the last sixteenth of its room fills, its entries are copied into a larger one, some places for each
inserted entry, from the last place to the first; then that one replaces it. Look-ups use only the old one.

    places   0 ..... rest ............ last     of the old table, which is whole
              to copy    copied                 into the larger one; inserts and removals meanwhile apply to both

A removal moves entries to lower places, so from the copied part to the part to copy, and copying twice has no effect. Only entries at the
front, because the end was full, could move the other way: they are copied first, or as they are inserted. So the larger table is written at
two places at a time, which the copying has reached; its pages are allocated one after the other, and no batch waits for all of them.

    I4  while it grows, the larger table has exactly the entries of the old one that lie from `rest` on, those at the front whose place
        would be there, and some of those below

Costs: find, enter, remove O(1) expected a row, growing included: a batch pays for at most 32 places a row. 11 to 22 bytes a key once
large, and up to twice as many more while it grows. What the next rows need is prefetched: without that, a batch takes 1.6 times as long.
The arithmetic stays below 2**63 at every step: it must have the same results without the JIT. Numba inlines the functions called for each
row, which makes look-ups a fifth faster than leaving it to LLVM, forced or not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.hashing import SECRET, State, begin_hash, end_hash, take_word
from structures.core.kernel import arrays, compiled, kernel, prefetch, wide
from structures.core.reserve import reserve

PLAIN, FLOAT, TEXT = 0, 1, 2
NULLS_A_CELL = 32
ALL_BITS = 0x7FFFFFFF  # of a hash

_NEGATIVE_ZERO = -(2**63)
_NAN = 0x7FF8000000000000
_SMALLEST = 64  # fewest entries
_GROWS_AT_ONCE = 1 << 14  # places that are copied in a tenth of a millisecond
_GROWS_FROM = 11  # sixteenths of the places, of the twelve that may be used
_POSITIONS = 32  # places copied for each inserted entry: all of them before half of the remaining room is used
_STEP = 1 << 11  # fewest places that are worth a call
_LOOKED_AT = 1 << 10  # places at the front, where an empty one is expected soon
_RESERVED = 1 << 17  # fewest places for which address space is reserved
AHEAD = 8  # rows between two of these: prefetching an entry, prefetching the row there, using it
_FEW = 64  # entries that are removed one by one even if they are all entries


@arrays("int8[::1]", "int64[::1]", "int64[:,::1]", "int64[::1]", "Array(uint8, 1, 'C', True)")
class RowSet(NamedTuple):
    """Rows passed in. `heap` is read-only, also when it is empty."""

    kinds: np.ndarray
    key: np.ndarray
    cells: np.ndarray
    positions: np.ndarray
    heap: np.ndarray


@arrays("int8[::1]", "int64[::1]", "int64[:,::1]", "int64[::1]", "uint8[::1]")
class SlotRows(NamedTuple):
    """Rows by slot."""

    kinds: np.ndarray
    key: np.ndarray
    cells: np.ndarray
    positions: np.ndarray
    heap: np.ndarray


@kernel
def _plain(cell: int, kind: int) -> int:
    """Return the cell in the form used for comparison: -0.0 is 0.0, and all NaNs are equal."""
    if kind == FLOAT:
        if cell == _NEGATIVE_ZERO:
            return wide(0)
        if (cell & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000:
            return wide(_NAN)
    return wide(cell)


@kernel(inline="always")
def text_start(kinds: Any, cells: Any, positions: Any, row: int, column: int) -> int:
    """Return the beginning of the text of this column in the heap."""
    start = positions[row]
    for before in range(column):
        if kinds[before] == TEXT:
            start += cells[row, before]
    return start


@kernel(inline="always")
def _take_text(state: State, heap: Any, start: int, length: int) -> State:
    end = start + length
    at = start
    while at < end - 3:
        state = take_word(state, wide(heap[at]) | wide(heap[at + 1]) << 8 | wide(heap[at + 2]) << 16 | wide(heap[at + 3]) << 24)
        at += 4
    word = wide(0)
    while at < end:
        word = word << 8 | wide(heap[at])
        at += 1
    return take_word(state, word)


@kernel(inline="always")
def tag_of(rows: RowSet | SlotRows, row: int, hashing: Any) -> int:
    """Return the hash of the row's key. `hashing`: a mask of the bits used, and the key of the hash."""
    kinds, key, cells, positions, heap = rows
    state = begin_hash(hashing[1], hashing[2])
    for column in key:
        cell = _plain(cells[row, column], kinds[column])
        if kinds[column] == TEXT:
            state = _take_text(state, heap, text_start(kinds, cells, positions, row, column), cell)
        state = take_word(state, cell & 0xFFFFFFFF)
        if kinds[column] != TEXT:
            state = take_word(state, (cell >> 32) & 0xFFFFFFFF)
    return end_hash(state) & hashing[0]


@kernel
def same_bytes(heap: Any, start: int, heap2: Any, start2: int, length: int) -> bool:
    for i in range(length):
        if heap[start + i] != heap2[start2 + i]:
            return False
    return True


@kernel
def same_key(stored: SlotRows | RowSet, slot: int, given: RowSet, row: int) -> bool:
    """Return whether a stored row, or another given one, has the key of a given one."""
    kinds, key, cells, positions, heap = stored
    kinds2, key2, cells2, places2, heap2 = given
    for j in range(len(key)):
        kind = kinds[key[j]]
        length = cells[slot, key[j]]
        if _plain(length, kind) != _plain(cells2[row, key2[j]], kind):
            return False
        if kind == TEXT:
            start = text_start(kinds, cells, positions, slot, key[j])
            start2 = text_start(kinds2, cells2, places2, row, key2[j])
            if not same_bytes(heap, start, heap2, start2, length):
                return False
    return True


@kernel
def entry_of(tag: int, slot: int) -> int:
    return wide(tag) << 32 | (wide(slot) + 1)


@kernel(inline="always")
def probe(entries: Any, stored: SlotRows | RowSet, tag: int, given: RowSet, row: int) -> tuple[int, int]:
    """Return the slot of the entry with the key of a given row, whose tag this is, -1: there is none; and in this case the place for it."""
    last = len(entries) - 1
    at, slot = tag & last, wide(-1)
    while entries[at] != 0 and slot < 0:
        if entries[at] >> 32 == tag:
            other = (entries[at] & 0xFFFFFFFF) - 1
            if same_key(stored, other, given, row):
                slot = other
        at = (at + 1) & last
    return slot, at


@kernel("void(int64[::1], int64[::1], SlotRows, RowSet, int32[::1])")
def find_rows(entries: Any, hashing: Any, stored: SlotRows, given: RowSet, out: Any) -> None:
    """Set out[i] to the slot of the stored row with the key of given row i, or -1. O(1) a row, expected."""
    for row in range(len(out)):  # hashes first, so that the look-ups wait for memory side by side
        out[row] = tag_of(given, row, hashing)
    last, end, cells = len(entries) - 1, len(out) - 1, stored.cells.reshape(stored.cells.size)
    for row in range(len(out)):
        prefetch(entries, wide(out[min(row + 2 * AHEAD, end)]) & last)
        expected = (entries[wide(out[min(row + AHEAD, end)]) & last] & 0xFFFFFFFF) - 1
        prefetch(cells, max(expected, 0) * stored.cells.shape[1] + stored.key[0])
        out[row], _ = probe(entries, stored, wide(out[row]), given, row)


@kernel("void(int64[::1], SlotRows, int32[::1], int32[::1])")
def read_tags(hashing: Any, stored: SlotRows, slots: Any, tags: Any) -> None:
    """Set tags[i] to that of the stored row at slots[i]. O(1) a row."""
    end, cells = len(slots) - 1, stored.cells.reshape(stored.cells.size)
    for i in range(len(slots)):
        prefetch(cells, wide(slots[min(i + 2 * AHEAD, end)]) * stored.cells.shape[1] + stored.key[0])
        tags[i] = tag_of(stored, slots[i], hashing)


@kernel("int64(int64[::1], int32[::1], int32[::1])")
def remove_rows(entries: Any, slots: Any, tags: Any) -> int:
    """Remove the entries of stored rows with these tags. Returns how many were there. O(1) a row, expected."""
    last, end = len(entries) - 1, len(slots) - 1
    removed = 0
    for i in range(len(slots)):
        prefetch(entries, wide(tags[min(i + 2 * AHEAD, end)]) & last)
        tag = wide(tags[i])
        wanted = entry_of(tag, slots[i])
        hole = tag & last
        while entries[hole] != 0 and entries[hole] != wanted:
            hole = (hole + 1) & last
        if entries[hole] == 0:
            continue
        removed += 1
        at = (hole + 1) & last
        while entries[at] != 0:
            home = (entries[at] >> 32) & last
            if (at - home) & last >= (at - hole) & last:
                entries[hole] = entries[at]
                hole = at
            at = (at + 1) & last
        entries[hole] = 0
    return removed


@kernel
def _put(entries: Any, entry: int) -> None:
    """Insert the entry unless it is in the table."""
    last = len(entries) - 1
    at = (entry >> 32) & last
    while entries[at] != 0 and entries[at] != entry:
        at = (at + 1) & last
    entries[at] = entry


@kernel("void(int64[::1], int64, int64, int64[::1])")
def _copy_entries(entries: Any, first: int, end: int, larger: Any) -> None:
    """Insert the entries at the places [first, end) into the larger table. O(1) a place."""
    for position in range(end - 1, first - 1, -1):
        if entries[position] != 0:
            _put(larger, entries[position])


@kernel("void(int64[::1], int64, int64[::1], int64[::1], SlotRows, int32[::1])")
def _copy_rows(entries: Any, rest: int, larger: Any, hashing: Any, stored: SlotRows, slots: Any) -> None:
    """Insert into the larger table the entries of stored rows that the copying will not find: all except those below `rest`, from the
    places of their tags on. O(1) a row, expected."""
    last = len(entries) - 1
    for slot in slots:
        tag = tag_of(stored, slot, hashing)
        home, wanted = tag & last, entry_of(tag, slot)
        at = home
        while at < rest and entries[at] != wanted and entries[at] != 0:
            at += 1
        if at >= rest:
            _put(larger, wanted)


def hashing_with(hash_mask: int) -> np.ndarray:
    """Return the parameters of `tag_of`."""
    return np.array([hash_mask, *SECRET])


def _positions(count: int) -> np.ndarray:
    """Return an array of empty places. Raises MemoryError. Free memory of the allocator would have to be zeroed at once, so large arrays
    are reserved."""
    if count < _RESERVED:
        return np.zeros(count, np.int64)
    try:
        return reserve(8 * count, np.int64)
    except OSError as error:
        raise MemoryError(f"no address space for {count} keys: {error}") from None


class KeyTable:
    """The entries and their number. `hash_mask` keeps fewer bits of the hash: for tests of collisions."""

    def __init__(self, hash_mask: int = ALL_BITS) -> None:
        self.hashing = hashing_with(hash_mask)
        self.entries = _positions(_SMALLEST)
        self.count = 0
        self._larger: np.ndarray | None = None  # while it grows
        self._rest = 0  # places that are still to be copied
        self._debt = 0  # places to copy for the entries inserted so far

    def make_room(self, more: int) -> None:
        """Grow so that `more` entries fit. O(more), amortised. Raises MemoryError, with nothing changed."""
        needed = (self.count + more) * 4 // 3 + 1
        size = len(self.entries)
        if needed > size:
            if self._larger is None or needed > len(self._larger):
                self._begin(1 << (needed - 1).bit_length())
            self._copy(self._rest)
        elif self._larger is None and size > _GROWS_AT_ONCE and (self.count + more) * 16 > size * _GROWS_FROM:
            self._begin(2 * size)

    def _begin(self, size: int) -> None:
        self._larger = _positions(size)
        self._rest, self._debt = len(self.entries), 0
        empty = np.flatnonzero(self.entries[:_LOOKED_AT] == 0)
        front = int(empty[0]) if len(empty) else int(np.argmin(self.entries != 0))  # there is an empty one
        _copy_entries(self.entries, 0, front, self._larger)

    def _copy(self, positions: int) -> None:
        """Copy `positions` places, and replace the table by the larger one when all are copied."""
        assert self._larger is not None
        first = max(0, self._rest - positions)
        _copy_entries(self.entries, first, self._rest, self._larger)
        self._rest, self._debt = first, 0
        if first == 0:
            self.entries, self._larger = self._larger, None

    def entered(self, stored: SlotRows, slots: np.ndarray, count: int) -> None:
        """Note that the rows at these slots (int32[n]) have entries, `count` of them new."""
        self.count += count
        if self._larger is not None and count:
            compiled(_copy_rows)(self.entries, self._rest, self._larger, self.hashing, stored, slots)
            self._debt += _POSITIONS * count
            if self._debt >= _STEP:
                self._copy(self._debt)

    def remove(self, stored: SlotRows, slots: np.ndarray) -> None:
        """Remove the entries of these stored rows (int32[n], each once), which are there. O(1) if they are all entries."""
        if len(slots) == self.count > _FEW:
            self.entries, self._larger = _positions(len(self.entries)), None
            self.count = 0
            return
        tags = np.empty(len(slots), np.int32)
        compiled(read_tags)(self.hashing, stored, slots, tags)
        removed = compiled(remove_rows)(self.entries, slots, tags)
        if self._larger is not None:
            compiled(remove_rows)(self._larger, slots, tags)
        self.count -= removed
        assert removed == len(slots), "a slot that is not in the key table"

    @property
    def bytes(self) -> int:
        """Bytes of memory, including what the larger table will need soon."""
        return self.entries.nbytes + (self._larger.nbytes if self._larger is not None else 0)

    def check(self) -> None:
        """Prove I2 and I4."""
        entries = self.entries[self.entries != 0]
        assert len(entries) == self.count <= len(self.entries) * 3 // 4, "I2: count of entries"
        if self._larger is not None:
            copied = self._larger[self._larger != 0]
            assert len(np.unique(copied)) == len(copied) and np.isin(copied, entries).all(), "I4: an entry of no row"
            positions = np.flatnonzero(self.entries)
            is_reached = (positions >= self._rest) | (positions < (entries >> 32 & len(self.entries) - 1))
            assert np.isin(entries[is_reached], copied).all(), "I4: an entry was not copied"

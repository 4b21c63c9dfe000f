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

Costs: find, enter, remove O(1) expected a row, amortised: a table that is full is copied to one twice as long, within the batch. 11 to 22
bytes a key. What the next rows need is prefetched: without that, a batch takes 1.6 times as long.
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


@kernel("void(int64[::1], int64[::1])")
def _copy_entries(entries: Any, larger: Any) -> None:
    """Insert all entries into a larger table, which is empty. O(1) a place."""
    last = len(larger) - 1
    for entry in entries:
        if entry != 0:
            at = (entry >> 32) & last
            while larger[at] != 0:
                at = (at + 1) & last
            larger[at] = entry


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

    def make_room(self, more: int) -> None:
        """Grow so that `more` entries fit. O(more), amortised. Raises MemoryError, with nothing changed."""
        needed = (self.count + more) * 4 // 3 + 1
        if needed > len(self.entries):
            larger = _positions(1 << (needed - 1).bit_length())
            compiled(_copy_entries)(self.entries, larger)
            self.entries = larger

    def remove(self, stored: SlotRows, slots: np.ndarray) -> None:
        """Remove the entries of these stored rows (int32[n], each once), which are there. O(1) if they are all entries."""
        if len(slots) == self.count > _FEW:
            self.entries, self.count = _positions(len(self.entries)), 0
            return
        tags = np.empty(len(slots), np.int32)
        compiled(read_tags)(self.hashing, stored, slots, tags)
        removed = compiled(remove_rows)(self.entries, slots, tags)
        self.count -= removed
        assert removed == len(slots), "a slot that is not in the key table"

    @property
    def bytes(self) -> int:
        return self.entries.nbytes

    def check(self) -> None:
        """Prove I2."""
        assert np.count_nonzero(self.entries) == self.count <= len(self.entries) * 3 // 4, "I2: count of entries"

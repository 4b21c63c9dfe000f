"""From a key to the slot of its row: one open-addressing table, linear probing.

Rows, stored or handed in, have one layout (a *row set*), so that every schema runs through the same kernels:

    kinds    int8[c]         what a cell holds: PLAIN (64 bits), FLOAT (its bits), TEXT (its length in bytes)
    key      int64[k]        which columns are the key
    cells    int64[n, w]     a row is w cells side by side: c columns, then null bits (32 a cell)
    places   int64[n]        where the row's texts begin in `heap`, in column order without gaps
    heap     uint8[...]

An entry is one int64: the upper half 31 bits of hash (the tag), the lower half slot + 1; 0 is empty. The tag alone
says where an entry belongs, so the table grows without looking at the rows, and a removed entry's followers are
moved back (no tombstones). Tags that are equal decide nothing: the key columns are compared.

Invariants
    I1  an entry is reached from its tag's place without an empty entry between
    I2  `count` entries are not empty; at most 3/4 of the table
    I3  the entry's tag is the hash of its row's key; no two entries have equal keys

Costs: find, enter, remove O(1) expected a row; growing O(size), amortised O(1). 11 to 22 bytes a key once large.
The arithmetic stays below 2**63 at every step: it must give the same without the JIT. What each row needs is inlined by Numba, which
makes look-ups a fifth faster than leaving it to LLVM, forced or not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, kernel, wide

PLAIN, FLOAT, TEXT = 0, 1, 2
ALL_BITS = 0x7FFFFFFF  # of a hash

_NEGATIVE_ZERO = -(2**63)
_NAN = 0x7FF8000000000000
_SMALLEST = 64  # entries


@arrays("int8[::1]", "int64[::1]", "int64[:,::1]", "int64[::1]", "Array(uint8, 1, 'C', True)")
class RowSet(NamedTuple):
    """Rows that are given. `heap` is read-only, also when it is empty."""

    kinds: np.ndarray
    key: np.ndarray
    cells: np.ndarray
    places: np.ndarray
    heap: np.ndarray


@arrays("int8[::1]", "int64[::1]", "int64[:,::1]", "int64[::1]", "uint8[::1]")
class Stored(NamedTuple):
    """Rows by slot."""

    kinds: np.ndarray
    key: np.ndarray
    cells: np.ndarray
    places: np.ndarray
    heap: np.ndarray


@kernel
def _mix(state: int, word: int) -> int:
    """A round of hashing; both below 2**32. (The constants of Wellons' lowbias32.)"""
    state = state ^ word
    state ^= state >> 16
    state = (state * 0x21F0AAAD) & 0xFFFFFFFF
    state ^= state >> 15
    state = (state * 0x735A2D97) & 0xFFFFFFFF
    return state ^ (state >> 15)


@kernel
def _plain(cell: int, kind: int) -> int:
    """The cell as it is compared: -0.0 is 0.0, and every NaN is one."""
    if kind == FLOAT:
        if cell == _NEGATIVE_ZERO:
            return wide(0)
        if (cell & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000:
            return wide(_NAN)
    return wide(cell)


@kernel(inline="always")
def text_start(kinds: Any, cells: Any, places: Any, row: int, column: int) -> int:
    """Where the text of this column lies in the heap."""
    start = places[row]
    for before in range(column):
        if kinds[before] == TEXT:
            start += cells[row, before]
    return start


@kernel(inline="always")
def _mix_text(state: int, heap: Any, start: int, length: int) -> int:
    end = start + length
    whole = end - 3
    at = start
    while at < whole:
        word = wide(heap[at]) | wide(heap[at + 1]) << 8 | wide(heap[at + 2]) << 16 | wide(heap[at + 3]) << 24
        state = ((state ^ word) * 0x21F0AAAD) & 0xFFFFFFFF
        state ^= state >> 15
        at += 4
    while at < end:
        state = ((state ^ wide(heap[at])) * 0x735A2D97) & 0xFFFFFFFF
        state ^= state >> 15
        at += 1
    return state


@kernel(inline="always")
def tag_of(rows: RowSet | Stored, row: int, hash_mask: int) -> int:
    """The hash of the row's key, cut by `hash_mask`."""
    kinds, key, cells, places, heap = rows
    state = wide(0x5BD1E995)
    for column in key:
        cell = _plain(cells[row, column], kinds[column])
        if kinds[column] == TEXT:
            state = _mix_text(state, heap, text_start(kinds, cells, places, row, column), cell)
        state = _mix(state, cell & 0xFFFFFFFF)
        if kinds[column] != TEXT:
            state = _mix(state, (cell >> 32) & 0xFFFFFFFF)
    return state & hash_mask


@kernel
def same_bytes(heap: Any, start: int, heap2: Any, start2: int, length: int) -> bool:
    for i in range(length):
        if heap[start + i] != heap2[start2 + i]:
            return False
    return True


@kernel
def same_key(stored: Stored, slot: int, given: RowSet, row: int) -> bool:
    """Whether a stored row has the key of a given one."""
    kinds, key, cells, places, heap = stored
    kinds2, key2, cells2, places2, heap2 = given
    for j in range(len(key)):
        kind = kinds[key[j]]
        length = cells[slot, key[j]]
        if _plain(length, kind) != _plain(cells2[row, key2[j]], kind):
            return False
        if kind == TEXT:
            start = text_start(kinds, cells, places, slot, key[j])
            start2 = text_start(kinds2, cells2, places2, row, key2[j])
            if not same_bytes(heap, start, heap2, start2, length):
                return False
    return True


@kernel
def entry_of(tag: int, slot: int) -> int:
    return wide(tag) << 32 | (wide(slot) + 1)


@kernel("void(int64[::1], int64, Stored, RowSet, int32[::1])")
def find_rows(entries: Any, hash_mask: int, stored: Stored, given: RowSet, out: Any) -> None:
    """out[i]: the slot of the stored row with the key of given row i, or -1."""
    for row in range(len(out)):  # hashes first: the look-ups then wait for memory side by side
        out[row] = tag_of(given, row, hash_mask)
    last = len(entries) - 1
    for row in range(len(out)):
        tag = wide(out[row])
        at = tag & last
        slot = wide(-1)
        while entries[at] != 0 and slot < 0:
            if entries[at] >> 32 == tag:
                other = (entries[at] & 0xFFFFFFFF) - 1
                if same_key(stored, other, given, row):
                    slot = other
            at = (at + 1) & last
        out[row] = slot


@kernel("int64(int64[::1], int64, Stored, int32[::1])")
def remove_rows(entries: Any, hash_mask: int, stored: Stored, slots: Any) -> int:
    """Take out the entries of stored rows; -> how many were there."""
    last = len(entries) - 1
    removed = 0
    for slot in slots:
        tag = tag_of(stored, slot, hash_mask)
        wanted = entry_of(tag, slot)
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
def _move_entries(entries: Any, larger: Any) -> None:
    last = len(larger) - 1
    for entry in entries:
        if entry != 0:
            at = (entry >> 32) & last
            while larger[at] != 0:
                at = (at + 1) & last
            larger[at] = entry


class KeyTable:
    """The entries and their count. `hash_mask` keeps fewer bits of the hash: for tests of collisions."""

    def __init__(self, hash_mask: int = ALL_BITS) -> None:
        self.hash_mask = hash_mask
        self.entries = np.zeros(_SMALLEST, np.int64)
        self.count = 0

    def make_room(self, more: int) -> None:
        """Grow so that `more` entries fit."""
        needed = (self.count + more) * 4 // 3 + 1
        if needed > len(self.entries):
            larger = np.zeros(1 << (needed - 1).bit_length(), np.int64)
            _move_entries(self.entries, larger)
            self.entries = larger

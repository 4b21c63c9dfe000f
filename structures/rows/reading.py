"""Kernels that read rows by slot, for readers that have pinned a version."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, fence, kernel, wide
from structures.rows.key_table import NULLS_A_CELL, TEXT, SlotRows, same_bytes, text_start
from structures.rows.retired import LIVING

STRETCH_BITS = 12  # binary logarithm of the slots of a stretch


@arrays("int64[::1]", "int32[::1]", "int32[::1]")
class Run(NamedTuple):
    """Changes, each of which replaces the row at the slot `old` by the one at `new`; -1: there is none. offsets: the number reported for
    each change."""

    offsets: np.ndarray
    old: np.ndarray
    new: np.ndarray


@arrays("int64[::1]", "boolean[::1]", "int32[::1]")
class RowMoves(NamedTuple):
    """The rows that changes remove and add: for each one the offset of its change, whether it is added, and its slot."""

    offsets: np.ndarray
    is_inserted: np.ndarray
    slots: np.ndarray


@kernel("UniTuple(int64, 2)(int64[::1], int64[::1], int32[::1], int64, int64, int64, int32[::1])")
def scan(born: Any, died: Any, kept: Any, version: int, start: int, used: int, out: Any) -> tuple[int, int]:
    """Fill `out` with visible slots from `start` on. Returns their number, and the slot from which to continue. Stretches of which no slot
    is `kept` are skipped: visible rows keep theirs.

    A slot may be freed and reused between the two reads of it, so `died` is read first: a `died` of the new row comes after the new `born`,
    which is above any version that was pinned by then, and an old `died` hides the row. O(slots visited), and O(1) a stretch that is
    skipped. Unsigned places need no check for negative indices: four times as fast.
    """
    one, count, slot, behind, room = np.uint64(1), np.uint64(0), np.uint64(start), np.uint64(used), np.uint64(len(out))
    while slot < behind and count < room:
        stretch = slot >> np.uint64(STRETCH_BITS)
        after = min(behind, (stretch + one) << np.uint64(STRETCH_BITS))
        if kept[stretch] == 0:
            slot = after
            continue
        first = count
        for _ in range(min(after - slot, room - count)):
            out[count] = slot
            end = died[slot]
            count += np.uint64((end == LIVING) | (version < end))
            slot += one
        fence()
        last, count = count, first
        for i in range(first, last):
            found = out[i]
            out[count] = found
            count += np.uint64(born[np.uint64(found)] <= version)
    return wide(count), wide(slot)


@kernel("int64(int64[::1], int64[::1], int32[::1], int64, int64, int64[::1], int32[::1])")
def scan_from(born: Any, died: Any, kept: Any, version: int, used: int, starts: Any, out: Any) -> int:
    """Set `out` to the first visible slot from each of these ascending slots on, each slot once. Returns their number. Cost: as `scan`."""
    count = 0
    for start in starts:
        if count and start <= out[count - 1]:
            continue
        found, _ = scan(born, died, kept, version, start, used, out[count : count + 1])
        if found == 0:
            break
        count += found
    return count


@kernel("void(int64[:,::1], int64[::1], int32[::1], int64[:,::1])")
def gather(cells: Any, columns: Any, slots: Any, out: Any) -> None:
    """Set out[j, i] to column columns[j] of the row slots[i]. O(1) a cell.

    Rows are read column by column, by unsigned places, which need no check for negative indices: so the processor gathers several cells at
    a time, three to four times as many a second as row by row.
    """
    for j in range(len(columns)):
        column = np.uint64(columns[j])
        for i in range(len(slots)):
            out[j, i] = cells[np.uint64(slots[i]), column]


@kernel("int64(int64[:,::1], int64, int64, int32[::1], uint8[::1])")
def gather_valid(cells: Any, cell: int, bit: int, slots: Any, bitmap: Any) -> int:
    """Write Arrow's validity bits of one column into a bitmap of zeros. Returns the number of nulls. O(n)."""
    nulls = 0
    for i in range(len(slots)):
        null = (cells[slots[i], cell] >> bit) & 1
        nulls += null
        bitmap[i >> 3] |= np.uint8((1 - null) << (i & 7))
    return nulls


@kernel("void(int8[::1], int64[:,::1], int64[::1], uint8[::1], int64, int32[::1], int32[::1], uint8[::1])", allocates=True)
def gather_text(kinds: Any, cells: Any, positions: Any, heap: Any, column: int, slots: Any, offsets: Any, data: Any) -> None:
    """Write the texts of a column one after the other, as Arrow stores them: row i from byte offsets[i] to offsets[i + 1] of `data`; the
    offsets are given. O(1) a byte."""
    starts = np.empty(len(slots), np.int64)  # first, so that the copies wait for memory side by side
    for i in range(len(slots)):
        starts[i] = text_start(kinds, cells, positions, slots[i], column)
    for i in range(len(slots)):
        move = starts[i] - offsets[i]
        for at in range(wide(offsets[i]), wide(offsets[i + 1])):
            data[at] = heap[at + move]


@kernel
def look_alike(stored: SlotRows, columns: Any, row: int, row2: int) -> bool:
    """Return whether two rows are identical in these columns, bit by bit."""
    kinds, _, cells, positions, heap = stored
    nullable = cells.shape[1] > len(kinds)
    for column in columns:
        if nullable:
            cell = len(kinds) + column // NULLS_A_CELL
            if ((cells[row, cell] ^ cells[row2, cell]) >> (column % NULLS_A_CELL)) & 1:
                return False
        if cells[row, column] != cells[row2, column]:
            return False
        if kinds[column] == TEXT:
            start = text_start(kinds, cells, positions, row, column)
            start2 = text_start(kinds, cells, positions, row2, column)
            if not same_bytes(heap, start, heap, start2, cells[row, column]):
                return False
    return True


@kernel("void(SlotRows, int64[::1], int32[::1], int32[::1], boolean[::1])")
def same(stored: SlotRows, columns: Any, slots: Any, others: Any, out: Any) -> None:
    """Set out[i] to whether the rows slots[i] and others[i] are identical in these columns. O(1) a cell, and a byte of text."""
    for i in range(len(slots)):
        out[i] = look_alike(stored, columns, wide(slots[i]), wide(others[i]))


@kernel("int64(SlotRows, int64[::1], Run, RowMoves)")
def differing(stored: SlotRows, columns: Any, run: Run, moved: RowMoves) -> int:
    """Find the rows that changes to one of these columns remove and add. Returns their number. O(columns) a change."""
    n = wide(0)
    for i in range(len(run.old)):
        old, new = wide(run.old[i]), wide(run.new[i])
        if old >= 0 and new >= 0 and look_alike(stored, columns, old, new):
            continue
        for is_inserted in (False, True):
            slot = new if is_inserted else old
            if slot >= 0:
                moved.offsets[n], moved.is_inserted[n], moved.slots[n] = run.offsets[i], is_inserted, slot
                n += 1
    return n

"""Rows that succeed one another: the newest row of each of many things is kept. The rows reported for a thing, version after version, are
compared with it, and each one that differs replaces it.

    positions[code]   1 + the slot of the newest row of a thing, 0: it has none; the first cell of that row is the code
    shown[column]  the bits of a cell that are compared: readers see these. If only other bits differ, the row keeps its slot, and they are
                   overwritten in place

A row that is replaced within the run is also written, and dies in the version in which it is born: deltas report it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, fence, kernel, prefetch, wide
from structures.rows.reading import STRETCH_BITS
from structures.rows.retired import LIVING


@arrays("int64[::1]", "int64[::1]", "int32[::1]", "int32[::1]", "int64", "int64")
class Slots(NamedTuple):
    """The slots of the rows: their lives, how many of each stretch are not free, the free slots and their number, and the first slot that
    was never used."""

    born: np.ndarray
    died: np.ndarray
    kept: np.ndarray
    free: np.ndarray
    free_count: int
    used: int


@arrays("int32[::1]", "int64[::1]")
class Succession(NamedTuple):
    """See the module docstring."""

    positions: np.ndarray
    shown: np.ndarray


@arrays("int64[:, ::1]", Slots, Succession)
class NewestRows(NamedTuple):
    """The stored rows, their slots, and the arrays of the succession."""

    cells: np.ndarray
    slots: Slots
    succession: Succession


@arrays("int32[::1]", "int64[::1]", "int64[:, ::1]", "boolean[::1]")
class SuccessionRows(NamedTuple):
    """Reported rows, in the order of versions: for each one the code, the number of the version (a code occurs once in each), the row, and
    whether there is one at all; afterwards, whether it has been added."""

    codes: np.ndarray
    versions: np.ndarray
    rows: np.ndarray
    there: np.ndarray


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int32[::1]")
class VersionSlots(NamedTuple):
    """The numbers of the versions that change something; where the slots of each begin, and at the end their total number; how many slots
    of each were removed, which come first; and the slots."""

    versions: np.ndarray
    starts: np.ndarray
    deletes: np.ndarray
    slots: np.ndarray


@kernel
def differ(emitted: Any, i: int, cells: Any, slot: int, shown: Any) -> bool:
    """Return whether two rows differ in what is shown, except for the first cell."""
    for column in range(1, emitted.shape[1]):
        if (emitted[i, column] ^ cells[slot, column]) & shown[column]:
            return True
    return False


@kernel
def copy_hidden(emitted: Any, i: int, cells: Any, slot: int) -> None:
    """Overwrite the cells that differ in a row that looks the same. Readers may read the shown bits of the same words meanwhile."""
    for column in range(1, emitted.shape[1]):
        if emitted[i, column] != cells[slot, column]:
            cells[slot, column] = emitted[i, column]


@kernel
def slot_of(slots: Slots, taken: int) -> int:
    """Return the slot to be taken next: from the top of `free`, then from `used` on."""
    if taken < slots.free_count:
        return wide(slots.free[slots.free_count - 1 - taken])
    return slots.used + taken - slots.free_count


@kernel
def prefetch_slot(words: Any, width: int, slots: Slots, slot: int) -> None:
    """Prefetch what the next row at this slot overwrites. `words`: the cells of all rows, `width` a row."""
    prefetch(words, slot * width)
    prefetch(words, (slot + 1) * width - 1)  # most rows lie in two lines
    prefetch(slots.born, slot)
    prefetch(slots.died, slot)


@kernel
def begin_life(slots: Slots, slot: int, version: int) -> None:
    """Begin the life of a row that has been written."""
    slots.born[slot] = version
    fence()  # see `scan`
    if slots.died[slot] != LIVING:
        slots.died[slot] = LIVING
    slots.kept[slot >> STRETCH_BITS] += 1


@kernel("UniTuple(int64, 3)(NewestRows, SuccessionRows, int64, VersionSlots, int32[::1])")
def succeed(newest: NewestRows, emitted: SuccessionRows, version: int, found: VersionSlots, deleted: Any) -> tuple[int, int, int]:
    """`take_positions` as an entry point. O(width) for each reported row."""
    return take_positions(newest, emitted, version, found, deleted)


@kernel
def take_positions(
    newest: NewestRows, emitted: SuccessionRows, version: int, found: VersionSlots, deleted: Any
) -> tuple[int, int, int]:
    """Let the reported rows replace the newest ones. Returns the numbers of versions that change something, of rows removed, and of rows
    added. The slots of removed rows are written into `deleted`. O(cells)."""
    cells, slots, positions, shown = newest.cells, newest.slots, newest.succession.positions, newest.succession.shown
    changed, lost, new = wide(0), wide(0), wide(0)
    low = wide(0)
    while low < len(emitted.codes):
        high, first = low, lost + new
        while high < len(emitted.codes) and emitted.versions[high] == emitted.versions[low]:
            code = wide(emitted.codes[high])
            position = wide(positions[code]) - 1
            if position >= 0 and emitted.there[high] and not differ(emitted.rows, high, cells, position, shown):
                emitted.there[high] = False
                copy_hidden(emitted.rows, high, cells, position)
            elif position >= 0:
                positions[code] = 0
                slots.died[position] = version
                deleted[lost] = position
                found.slots[lost + new] = position
                lost += 1
            high += 1
        deletes = lost + new - first
        for i in range(low, high):
            if not emitted.there[i]:
                continue
            code, slot = wide(emitted.codes[i]), slot_of(slots, new)
            cells[slot, 0] = code
            for column in range(1, cells.shape[1]):
                cells[slot, column] = emitted.rows[i, column]
            begin_life(slots, slot, version)
            positions[code] = slot + 1
            found.slots[lost + new] = slot
            new += 1
        if lost + new > first:
            found.versions[changed], found.starts[changed], found.deletes[changed] = emitted.versions[low], first, deletes
            changed += 1
        low = high
    found.starts[changed] = lost + new
    return changed, lost, new

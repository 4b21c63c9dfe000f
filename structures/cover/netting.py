"""What the changes of each version leave of the stretches that they tell: one that comes by one of them and goes by another is none of the
version's.

Those of a version are looked up in a table, by a hash of the slot and both ends; it is empty again when the next version begins.

Costs: O(1) a stretch told, and O(log m) for each that goes, of m rows that moved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.hashing import SECRET, begin_hash, end_hash, take_long, take_word
from structures.core.kernel import arrays, compiled, kernel, wide
from structures.core.runs import Deltas

GOES, COMES, PAIRS = range(3)


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[:,::1]", "boolean[::1]", "int32[::1]", "int32[::1]")
class Told(NamedTuple):
    """Of each change the number of its version (ascending), and what it tells (`runs.Deltas`); rows that moved, by their old slots."""

    offsets: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    too_large: np.ndarray
    old: np.ndarray
    new: np.ndarray


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class Table(NamedTuple):
    """table: places, with 1 + the number of the row that told a stretch first, or 0. key: of the hash. Of each row told places: where its
    stretch is; sums: if it was the first, how often the stretch comes less how often it goes, else 0."""

    table: np.ndarray
    key: np.ndarray
    places: np.ndarray
    sums: np.ndarray


@arrays("int64[:,::1]", "int32[:,::1]", "int64[:,::1]", "int64[:,::1]", "int64[:,::1]", "int64[::1]")
class Left(NamedTuple):
    """What goes, and what comes: of each the number of its version, slot, start and last. pairs: of a stretch that goes, and one that comes
    in the same version with equal ends at the slot that its row moved to, the numbers among these. counts: how many of each."""

    offsets: np.ndarray
    slots: np.ndarray
    starts: np.ndarray
    lasts: np.ndarray
    pairs: np.ndarray
    counts: np.ndarray


def netted(offsets: np.ndarray, deltas: Deltas, old: np.ndarray, new: np.ndarray) -> Left:
    """What is left of these changes, version by version, of each in the order in which it was told; nothing of a version of which a change
    told too much. `offsets`: of each change the number of its version, ascending; `old`, `new`: where a row was and where it is now.
    Cost: see the module's head."""
    n, by_old = deltas.rows.shape[1], np.argsort(old)
    told = Told(offsets, deltas.starts, deltas.ends, deltas.rows, deltas.too_large, old[by_old], new[by_old])
    table = Table(np.zeros(2 << n.bit_length(), np.int64), SECRET, np.empty(n, np.int64), np.zeros(n, np.int64))
    offset, start, last, pairs = (np.empty((2, n), np.int64) for _ in range(4))
    left = Left(offset, np.empty((2, n), np.int32), start, last, pairs, np.zeros(3, np.int64))
    compiled(net)(told, table, left)
    return left


@kernel("void(Told, Table, Left)")
def net(told: Told, table: Table, left: Left) -> None:
    first = wide(0)
    while first < len(told.offsets):
        end, too_large = first, False
        while end < len(told.offsets) and told.offsets[end] == told.offsets[first]:
            too_large |= told.too_large[end]
            end += 1
        low, high = told.starts[first], told.ends[end - 1]
        if not too_large and low < high:
            add_up(told, table, low, high)
            take_what_comes(told, table, left, told.offsets[first], low, high)
            take_what_goes(told, table, left, told.offsets[first], low, high)
            for r in range(low, high):
                table.table[table.places[r]] = 0
        first = end


@kernel
def add_up(told: Told, table: Table, low: int, high: int) -> None:
    for r in range(low, high):
        signed = told.rows[0, r]
        at = place_of(told, table, slot_of(signed), told.rows[1, r], told.rows[2, r])
        if table.table[at] == 0:
            table.table[at] = r + 1
        table.places[r] = at
        table.sums[table.table[at] - 1] += -1 if signed < 0 else 1


@kernel(forceinline=True)
def slot_of(signed: int) -> int:
    return ~signed if signed < 0 else signed


@kernel
def place_of(told: Told, table: Table, slot: int, start: int, last: int) -> int:
    """Where this stretch is in the table, or would be."""
    state = take_word(begin_hash(table.key[0], table.key[1]), slot)
    mask = len(table.table) - 1
    at = end_hash(take_long(take_long(state, start), last)) & mask
    while table.table[at] != 0:
        r = table.table[at] - 1
        if slot_of(told.rows[0, r]) == slot and told.rows[1, r] == start and told.rows[2, r] == last:
            break
        at = (at + 1) & mask
    return at


@kernel
def take_what_comes(told: Told, table: Table, left: Left, offset: int, low: int, high: int) -> None:
    """Its sum is from now on how many have come up to it, by which a pair knows it."""
    for r in range(low, high):
        if table.sums[r] > 0:
            put(told, left, COMES, offset, r)
            table.sums[r] = left.counts[COMES]


@kernel
def take_what_goes(told: Told, table: Table, left: Left, offset: int, low: int, high: int) -> None:
    for r in range(low, high):
        if table.sums[r] < 0:
            put(told, left, GOES, offset, r)
            to = moved_to(told, slot_of(told.rows[0, r]))
            other = table.table[place_of(told, table, to, told.rows[1, r], told.rows[2, r])] if to >= 0 else 0
            if other > 0 and table.sums[other - 1] > 0:
                i = left.counts[PAIRS]
                left.pairs[GOES, i], left.pairs[COMES, i] = left.counts[GOES] - 1, table.sums[other - 1] - 1
                left.counts[PAIRS] += 1


@kernel
def put(told: Told, left: Left, side: int, offset: int, r: int) -> None:
    i = left.counts[side]
    left.offsets[side, i], left.slots[side, i] = offset, slot_of(told.rows[0, r])
    left.starts[side, i], left.lasts[side, i] = told.rows[1, r], told.rows[2, r]
    left.counts[side] = i + 1


@kernel
def moved_to(told: Told, slot: int) -> int:
    """Where the row at this slot is now; -1: it has not moved."""
    low, high = 0, len(told.old)
    while low < high:
        middle = (low + high) >> 1
        if told.old[middle] < slot:
            low = middle + 1
        else:
            high = middle
    return wide(told.new[low]) if low < len(told.old) and told.old[low] == slot else wide(-1)

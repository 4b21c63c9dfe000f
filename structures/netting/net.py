"""The net changes of each version: a row that comes by one change of the version and goes by another is not reported.

Problem: given the rows that go and come in many versions, as tuples of columns, report for each version those that have gone in the end,
and those that have come, and which of these replace others: their columns are those of a row that goes, moved as the version moves them.

The rows of a version are looked up in a table, by a hash of all columns, which is emptied before the next version. A version in which rows
only go, or only come, does not require it.

Costs: O(columns) a reported row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.hashing import SECRET, begin_hash, end_hash, take_long
from structures.core.kernel import arrays, compiled, kernel

DELETED, INSERTED, PAIRS = range(3)


@arrays("int64[::1]", "boolean[::1]", "int64[:,::1]")
class NetRows(NamedTuple):
    """For each row the offset of its version (ascending), and whether it comes or goes; columns[c]: of all rows."""

    versions: np.ndarray
    is_inserted: np.ndarray
    columns: np.ndarray


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class Moves(NamedTuple):
    """For each move the offset of its version, the value of a column before, and after; the moves of column c end before ends[c]."""

    versions: np.ndarray
    old: np.ndarray
    new: np.ndarray
    ends: np.ndarray


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]", "int32[:,::1]")
class MoveTable(NamedTuple):
    """table: places, with 1 + the number of the first of equal rows, or 0. key: of the hash. wanted: the row to look up. positions: for
    each row its place; sums: for the first of equal rows how often it comes less how often it goes, otherwise 0. moving[c]: places, with
    1 + the number of a move of column c, or 0."""

    table: np.ndarray
    key: np.ndarray
    wanted: np.ndarray
    positions: np.ndarray
    sums: np.ndarray
    moving: np.ndarray


@arrays("int64[:,::1]", "int64[:,::1]", "int64[::1]")
class Remainder(NamedTuple):
    """rows: the numbers of the rows that go, and of those that come. pairs: for a row that goes, and one that replaces it, their places
    among these. counts: the number of each."""

    rows: np.ndarray
    pairs: np.ndarray
    counts: np.ndarray


def netted(emitted: NetRows, moves: Moves) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int64[g], int64[c], int64[2, p]: the numbers of the rows that go, and of those that come, in the order in which they were reported;
    the pairs as in `Remainder`. In a version, the times that a row comes and goes must differ by at most one. Cost: see the module's
    head."""
    n, columns = len(emitted.versions), len(emitted.columns)
    moving = np.zeros((columns, 2 << len(moves.old).bit_length()), np.int32)
    size = 2 << n.bit_length()
    table = MoveTable(np.zeros(size, np.int64), SECRET, np.empty(columns, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64), moving)
    left = Remainder(np.empty((2, n), np.int64), np.empty((2, n), np.int64), np.zeros(3, np.int64))
    compiled(net)(emitted, moves, table, left)
    is_deleted, is_inserted, pairs = left.counts.tolist()
    return left.rows[DELETED, :is_deleted], left.rows[INSERTED, :is_inserted], left.pairs[:, :pairs]


@kernel("void(NetRows, Moves, MoveTable, Remainder)")
def net(emitted: NetRows, moves: Moves, table: MoveTable, left: Remainder) -> None:
    """Cancel rows that go and come in one version; `emitted`: ascending by version. Writes what remains into `left`. O(1) a row,
    expected."""
    position_moves(moves, table)
    low = 0
    while low < len(emitted.versions):
        high, version, inserted = low, emitted.versions[low], 0
        while high < len(emitted.versions) and emitted.versions[high] == version:
            inserted += emitted.is_inserted[high]
            high += 1
        if inserted == 0 or inserted == high - low:
            for r in range(low, high):
                put(left, INSERTED if inserted else DELETED, r)
        else:
            add_up(emitted, table, low, high)
            take_what_comes(table, left, low, high)
            take_what_goes(emitted, moves, table, left, low, high)
            for r in range(low, high):
                table.table[table.positions[r]] = 0
        low = high


@kernel
def position_moves(moves: Moves, table: MoveTable) -> None:
    first, mask = 0, table.moving.shape[1] - 1
    for c in range(len(moves.ends)):
        for m in range(first, moves.ends[c]):
            at = mixed(moves.old[m]) & mask
            while table.moving[c, at] != 0:
                at = (at + 1) & mask
            table.moving[c, at] = m + 1
        first = moves.ends[c]


@kernel
def add_up(emitted: NetRows, table: MoveTable, low: int, high: int) -> None:
    for r in range(low, high):
        for c in range(len(emitted.columns)):
            table.wanted[c] = emitted.columns[c, r]
        table.positions[r] = at = position_of(emitted, table)
        if table.table[at] == 0:
            table.table[at] = r + 1
        table.sums[table.table[at] - 1] += 1 if emitted.is_inserted[r] else -1


@kernel
def position_of(emitted: NetRows, table: MoveTable) -> int:
    """The place in the table of the row that equals `wanted`, or the one where it would be inserted."""
    state = begin_hash(table.key[0], table.key[1])
    for c in range(len(table.wanted)):
        state = take_long(state, table.wanted[c])
    mask = len(table.table) - 1
    at = end_hash(state) & mask
    while table.table[at] != 0 and not looks_so(emitted, table.wanted, table.table[at] - 1):
        at = (at + 1) & mask
    return at


@kernel
def looks_so(emitted: NetRows, wanted: np.ndarray, r: int) -> bool:
    for c in range(len(wanted)):
        if emitted.columns[c, r] != wanted[c]:
            return False
    return True


@kernel(forceinline=True)
def put(left: Remainder, input: int, r: int) -> None:
    left.rows[input, left.counts[input]] = r
    left.counts[input] += 1


@kernel
def take_what_comes(table: MoveTable, left: Remainder, low: int, high: int) -> None:
    """Append the rows that come; the sum of each becomes the number of rows appended up to it, by which a pair refers to it."""
    for r in range(low, high):
        if table.sums[r] > 0:
            put(left, INSERTED, r)
            table.sums[r] = left.counts[INSERTED]


@kernel
def take_what_goes(emitted: NetRows, moves: Moves, table: MoveTable, left: Remainder, low: int, high: int) -> None:
    for r in range(low, high):
        if table.sums[r] < 0:
            put(left, DELETED, r)
            if move(emitted, moves, table, r):
                other = table.table[position_of(emitted, table)] - 1
                if other >= 0 and table.sums[other] > 0:
                    i = left.counts[PAIRS]
                    left.pairs[DELETED, i], left.pairs[INSERTED, i] = left.counts[DELETED] - 1, table.sums[other] - 1
                    left.counts[PAIRS] += 1


@kernel
def move(emitted: NetRows, moves: Moves, table: MoveTable, r: int) -> bool:
    """Write the row as moved by its version into `wanted`. Returns whether it differs."""
    wanted, moved = table.wanted, False
    for c in range(len(wanted)):
        wanted[c] = emitted.columns[c, r]
        m = find_move(moves, table, c, emitted.versions[r], wanted[c])
        if m >= 0:
            wanted[c] = moves.new[m]
            moved = True
    return moved


@kernel(forceinline=True)
def mixed(value: int) -> int:
    """Return 31 bits that depend on all bits of a value. Values are often consecutive, or differ by a power of two: used as they are, they
    would fill one run of places."""
    value = ((value ^ (value >> 31)) & 0x7FFFFFFF) * 0x7FEB352D & 0x7FFFFFFF
    value = (value ^ (value >> 15)) * 0x31848BAB & 0x7FFFFFFF
    return value ^ (value >> 16)


@kernel
def find_move(moves: Moves, table: MoveTable, c: int, version: int, old: int) -> int:
    """The move of a column's value in this version; -1 if there is none."""
    mask = table.moving.shape[1] - 1
    at = mixed(old) & mask
    while table.moving[c, at] != 0:
        m = table.moving[c, at] - 1
        if moves.old[m] == old and moves.versions[m] == version:
            return m
        at = (at + 1) & mask
    return -1


__all__ = ["Moves", "NetRows", "netted"]

"""What the changes of each version leave of the rows that they tell: one that comes by one of them and goes by another is none of the
version's.

Problem: of many versions, rows that go and come, as tuples of columns; of each version tell those that have gone in the end, and those that
have come, and which of these stand in the places of others: their columns are those of a row that goes, moved as the version moves them.

Those of a version are looked up in a table, by a hash of all columns; it is empty again when the next version begins. Up to FEW are
compared with each other. A version in which rows only go, or only come, does without.

Costs: O(columns) a row told, and O(log m) for each column of one that goes and may move, of m moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.hashing import SECRET, begin_hash, end_hash, take_long
from structures.core.kernel import arrays, compiled, kernel

GOES, COMES, PAIRS = range(3)
FEW = 8


@arrays("int64[::1]", "boolean[::1]", "int64[:,::1]")
class Told(NamedTuple):
    """Of each row the number of its version (ascending), and whether it comes, else it goes; columns[c]: of all rows."""

    versions: np.ndarray
    comes: np.ndarray
    columns: np.ndarray


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class Moves(NamedTuple):
    """Of each move the number of its version, what a column has before, and after; those of column c end before ends[c], and ascend by
    version and `old`."""

    versions: np.ndarray
    old: np.ndarray
    new: np.ndarray
    ends: np.ndarray


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]", "boolean[:,::1]")
class Table(NamedTuple):
    """table: places, with 1 + the number of the first row told that looks so, or 0. key: of the hash. wanted: what is looked up. Of each
    row places: where it is; sums: if it was the first, how often it comes less how often it goes, else 0. moving[c]: by the last bits of
    a value whether one with the same is moved in column c."""

    table: np.ndarray
    key: np.ndarray
    wanted: np.ndarray
    places: np.ndarray
    sums: np.ndarray
    moving: np.ndarray


@arrays("int64[:,::1]", "int64[:,::1]", "int64[::1]")
class Left(NamedTuple):
    """rows: the numbers of those that go, and of those that come. pairs: of one that goes, and one that comes in its place, the places
    among these. counts: how many of each."""

    rows: np.ndarray
    pairs: np.ndarray
    counts: np.ndarray


def netted(told: Told, moves: Moves) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int64[g], int64[c], int64[2, p]: the numbers of the rows that go, and of those that come, in the order in which they were told; the
    pairs as in `Left`. Of a version a row comes once more often than it goes, or once less, or as often. Cost: see the module's head."""
    n, columns = len(told.versions), len(told.columns)
    moving = np.zeros((columns, 8 << len(moves.old).bit_length()), np.bool_)
    places = np.zeros(2 << n.bit_length(), np.int64)
    table = Table(places, SECRET, np.empty(columns, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64), moving)
    left = Left(np.empty((2, n), np.int64), np.empty((2, n), np.int64), np.zeros(3, np.int64))
    compiled(net)(told, moves, table, left)
    goes, comes, pairs = left.counts.tolist()
    return left.rows[GOES, :goes], left.rows[COMES, :comes], left.pairs[:, :pairs]


@kernel("void(Told, Moves, Table, Left)")
def net(told: Told, moves: Moves, table: Table, left: Left) -> None:
    mark_moving(moves, table)
    low = 0
    while low < len(told.versions):
        high, version, come = low, told.versions[low], 0
        while high < len(told.versions) and told.versions[high] == version:
            come += told.comes[high]
            high += 1
        if come == 0 or come == high - low:
            for r in range(low, high):
                put(left, COMES if come else GOES, r)
        else:
            add_up(told, table, low, high)
            take_what_comes(table, left, low, high)
            take_what_goes(told, moves, table, left, low, high)
            for r in range(low, high if high - low > FEW else low):
                table.table[table.places[r]] = 0
        low = high


@kernel
def mark_moving(moves: Moves, table: Table) -> None:
    first, mask = 0, table.moving.shape[1] - 1
    for c in range(len(moves.ends)):
        for m in range(first, moves.ends[c]):
            table.moving[c, moves.old[m] & mask] = True
        first = moves.ends[c]


@kernel
def add_up(told: Told, table: Table, low: int, high: int) -> None:
    for r in range(low, high):
        for c in range(len(told.columns)):
            table.wanted[c] = told.columns[c, r]
        if high - low <= FEW:
            first = alike(told, table, low, r)
        else:
            at = place_of(told, table)
            if table.table[at] == 0:
                table.table[at] = r + 1
            table.places[r] = at
            first = table.table[at] - 1
        table.sums[first] += 1 if told.comes[r] else -1


@kernel
def alike(told: Told, table: Table, low: int, high: int) -> int:
    """The first of the rows [low, high) that looks as `wanted`; `high`: there is none."""
    for r in range(low, high):
        if looks_so(told, table.wanted, r):
            return r
    return high


@kernel
def place_of(told: Told, table: Table) -> int:
    """Where the row that looks as `wanted` is in the table, or would be."""
    state = begin_hash(table.key[0], table.key[1])
    for c in range(len(table.wanted)):
        state = take_long(state, table.wanted[c])
    mask = len(table.table) - 1
    at = end_hash(state) & mask
    while table.table[at] != 0 and not looks_so(told, table.wanted, table.table[at] - 1):
        at = (at + 1) & mask
    return at


@kernel
def looks_so(told: Told, wanted: np.ndarray, r: int) -> bool:
    for c in range(len(wanted)):
        if told.columns[c, r] != wanted[c]:
            return False
    return True


@kernel(forceinline=True)
def put(left: Left, side: int, r: int) -> None:
    left.rows[side, left.counts[side]] = r
    left.counts[side] += 1


@kernel
def take_what_comes(table: Table, left: Left, low: int, high: int) -> None:
    """Its sum is from now on how many have come up to it, by which a pair knows it."""
    for r in range(low, high):
        if table.sums[r] > 0:
            put(left, COMES, r)
            table.sums[r] = left.counts[COMES]


@kernel
def take_what_goes(told: Told, moves: Moves, table: Table, left: Left, low: int, high: int) -> None:
    for r in range(low, high):
        if table.sums[r] < 0:
            put(left, GOES, r)
            if move(told, moves, table, r):
                few = high - low <= FEW
                other = alike(told, table, low, high) if few else table.table[place_of(told, table)] - 1
                if 0 <= other < high and table.sums[other] > 0:
                    i = left.counts[PAIRS]
                    left.pairs[GOES, i], left.pairs[COMES, i] = left.counts[GOES] - 1, table.sums[other] - 1
                    left.counts[PAIRS] += 1


@kernel
def move(told: Told, moves: Moves, table: Table, r: int) -> bool:
    """How a row looks once its version has moved it is in `wanted`; whether it looks different."""
    wanted, moved, first, mask = table.wanted, False, 0, table.moving.shape[1] - 1
    for c in range(len(wanted)):
        wanted[c] = told.columns[c, r]
        m = find_move(moves, first, moves.ends[c], told.versions[r], wanted[c]) if table.moving[c, wanted[c] & mask] else -1
        if m >= 0:
            wanted[c] = moves.new[m]
            moved = True
        first = moves.ends[c]
    return moved


@kernel
def find_move(moves: Moves, low: int, end: int, version: int, old: int) -> int:
    """Of the moves [low, end) the one of this version from here; -1: there is none."""
    high = end
    while low < high:
        middle = (low + high) >> 1
        if moves.versions[middle] < version or (moves.versions[middle] == version and moves.old[middle] < old):
            low = middle + 1
        else:
            high = middle
    return low if low < end and moves.versions[low] == version and moves.old[low] == old else -1


__all__ = ["Moves", "Told", "netted"]

"""No-goods: entries that a walk has found to be in no row, each with the entry at which its group continues.

A table uses open addressing: COUNT entries, whether it can still grow (GROWS), then pairs of a key and an address. An *address* is a leaf
and the number of an entry in it, or 0, the end of the index. A key is an address and its atom, or 0: the pair is free. The table is a
cache: what it does not have is found again. Addresses are valid while the version is pinned, so a table serves readings of one version
only.

The address stored for a no-good is the next entry that was not a no-good at that time, so a look-up skips a run of them in few steps, which
the next look-up saves (path halving).

Source: *TreeTracker Join*, Section 5; union and find as in Tarjan and van Leeuwen, Worst-case analysis of set union algorithms.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np

from structures.core.kernel import compiled, kernel
from structures.index.layout import BLOCK, BLOCK_BITS

COUNT, GROWS, PAIRS = range(3)
MOST = 1 << 20  # most entries, 16 bytes each in a table that is at most half full
_FIRST = 1 << 8
ATOM_BITS = 3


@kernel
def address_of(leaf: int, i: int) -> int:
    return leaf | i


@kernel
def leaf_of(address: int) -> int:
    return (address >> BLOCK_BITS) << BLOCK_BITS


@kernel
def entry_of(address: int) -> int:
    return address & (BLOCK - 1)


@kernel
def position_of(table: Any, address: int, atom: int) -> int:
    """The place of the entry's key, or the one where it would be inserted."""
    key = (address << ATOM_BITS) | atom
    mask = ((len(table) - PAIRS) >> 1) - 1
    h = ((((key ^ (key >> 31)) & 0x7FFFFFFF) * 0x9E3779B1) >> 24) & mask  # below 2**63
    while table[PAIRS + 2 * h] != 0 and table[PAIRS + 2 * h] != key:
        h = (h + 1) & mask
    return PAIRS + 2 * h


@kernel
def is_full(table: Any) -> bool:
    return 4 * table[COUNT] >= len(table) - PAIRS


@kernel
def must_grow(table: Any) -> bool:
    return table[GROWS] != 0 and is_full(table)


@kernel
def note(table: Any, address: int, atom: int, following: int) -> bool:
    """Store a no-good; False if it was stored before."""
    p = position_of(table, address, atom)
    if table[p] != 0:
        return False
    table[p], table[p + 1] = (address << ATOM_BITS) | atom, following
    table[COUNT] += 1
    return True


@kernel
def passed_over(table: Any, address: int, atom: int) -> tuple[int, int]:
    """The first entry from this one on that is not a no-good, 0 at the end; and the number of steps to it."""
    steps = 0
    while address != 0:
        p = position_of(table, address, atom)
        if table[p] == 0:
            break
        following = table[p + 1]
        if following != 0:
            further = position_of(table, following, atom)
            if table[further] != 0:
                table[p + 1] = following = table[further + 1]
        address = following
        steps += 1
    return address, steps


@kernel
def is_first(table: Any) -> bool:
    """Whether the table has never grown."""
    return len(table) == PAIRS + 4 * _FIRST


@kernel
def forget_all(table: Any) -> None:
    table[COUNT] = 0
    for p in range(PAIRS, len(table)):
        table[p] = 0


@kernel("void(int64[::1], int64[::1])")
def copy_all(table: Any, other: Any) -> None:
    """Copy all entries of a table into another, larger one, which is empty. Cost: O(len(table))."""
    for p in range(PAIRS, len(table), 2):
        if table[p] != 0:
            atom = table[p] & ((1 << ATOM_BITS) - 1)
            note(other, table[p] >> ATOM_BITS, atom, table[p + 1])


class NoGoods:
    """A table that cursors of one version, and of one plan, share: only the holder of `lock` may read and write it."""

    def __init__(self, most: int = MOST) -> None:
        self.lock = Lock()
        self._most = most
        self.table = self._new(_FIRST)

    def _new(self, entries: int) -> np.ndarray:
        table = np.zeros(PAIRS + 4 * entries, np.int64)
        table[GROWS] = entries < self._most
        return table

    @property
    def bytes(self) -> int:
        return int(self.table.nbytes)

    def grow(self) -> None:
        """Enlarge the table, if it may grow further."""
        if must_grow(self.table):
            larger = self._new((len(self.table) - PAIRS) // 2)
            compiled(copy_all)(self.table, larger)
            self.table = larger

"""Intervals as input of the structures: their columns, the signs of changes, and the order of a tree."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import KEY_MAX
from structures.core.kernel import arrays, compiled, contiguous, kernel, prefetch, wide
from structures.core.reserve import SLOTS

DELETE, INSERT, LEAVE, ENTER = -1, 1, -2, 2  # LEAVE and ENTER: a delete and an insert without a delta


@arrays("uint8[::1]", "int32[::1]", "int64[::1]", "int64[::1]", "int32[::1]")
class Entries(NamedTuple):
    """Intervals, closed, as columns of length n: set uint8 (0 or 1), key int32 >= 0, left <= right int64, slot int32 in [0, 2**30)."""

    set: np.ndarray
    key: np.ndarray
    left: np.ndarray
    right: np.ndarray
    slot: np.ndarray

    def require_columns(self) -> None:
        """Raise TypeError unless the columns are valid arguments of kernels (a single entry is not checked: it is always contiguous).
        Kernels that write check their lengths (`first_refused`)."""
        if len(self.key) > 1:
            contiguous((np.uint8, np.int32, np.int64, np.int64, np.int32), self)

    def require(self, sets: int) -> None:
        """Do the same as `require_columns`; raise ValueError unless all entries, intervals or boxes (their ends one after another), have a
        set below `sets`, and keys, ends and slots as described above. O(n)."""
        self.require_columns()
        self.require_even()
        e = compiled(first_refused)(self, sets)
        if e >= 0:
            d = len(self.left) // len(self.key)
            left, right = (ends[e * d : (e + 1) * d].tolist() for ends in (self.left, self.right))
            raise ValueError(
                f"entry {e} (set {self.set[e]}, key {self.key[e]}, from {left} to {right}, slot {self.slot[e]}) cannot be kept: sets "
                f"are below {sets}, keys from 0 to {KEY_MAX - 1}, slots from 0 to {SLOTS - 1}, and no left end lies beyond its right one"
            )

    def require_even(self) -> None:
        """Raise ValueError unless the columns have one length, except for ends in several dimensions. O(1)."""
        if is_ragged(self):
            raise ValueError(f"the columns of entries have different lengths: {', '.join(str(len(column)) for column in self)}")

    def only_set(self) -> int:
        """Return the set of all entries, of which there is at least one. Raises ValueError if they are of several sets. O(n)."""
        first: int = self.set.item(0)
        if len(self.set) > 1 and (self.set != first).any():
            raise ValueError("entries of several sets are given where those of one are looked up")
        return first

    def take(self, positions: np.ndarray) -> Entries:
        return Entries(*(column[positions] for column in self))


def require_key(key: int | None) -> None:
    """Raise ValueError unless it is a key of entries; None: any key."""
    if key is not None and not 0 <= key < KEY_MAX:
        raise ValueError(f"{key} is not a key: keys are 0 to {KEY_MAX - 1}")


def room_for(count: int, dimensions: int = 1) -> Entries:
    """Return columns to be filled; left and right are flat: the ends of an entry in all dimensions, one after another."""
    wide_enough = (count, count, count * dimensions, count * dimensions, count)
    kinds = (np.uint8, np.int32, np.int64, np.int64, np.int32)
    return Entries(*(np.empty(size, kind) for size, kind in zip(wide_enough, kinds, strict=True)))


ORDER_OF_ONE = np.zeros(1, np.int64)  # the order of one entry; never written
NO_ENTRIES = Entries(*(np.empty(0, kind) for kind in (np.uint8, np.int32, np.int64, np.int64, np.int32)))


class Entry(NamedTuple):
    """One entry, its numbers widened."""

    set: int
    key: int
    left: int
    right: int
    slot: int


@kernel
def entry_of(entries: Entries, e: int) -> Entry:
    return Entry(wide(entries.set[e]), wide(entries.key[e]), entries.left[e], entries.right[e], wide(entries.slot[e]))


@arrays("int32[::1]", "int64")
class RowBuffer(NamedTuple):
    """The output for up to `stride` rows: the slots of alias i are at out[stride * i:]."""

    out: np.ndarray
    stride: int


@kernel
def prefetch_entry(entries: Entries, e: int, dimensions: int) -> None:
    """Prefetch all columns of an entry."""
    prefetch(entries.set, e)
    prefetch(entries.key, e)
    prefetch(entries.left, e * dimensions)
    prefetch(entries.right, e * dimensions)
    prefetch(entries.slot, e)


@kernel
def is_ragged(entries: Entries) -> bool:
    """Return whether the columns differ in length; left and right may be a multiple as long."""
    n, ends = len(entries.key), len(entries.left)
    return len(entries.set) != n or len(entries.slot) != n or len(entries.right) != ends or ends < n or ends % max(1, n) != 0


@kernel("int64(Entries, int64)")
def first_refused(entries: Entries, sets: int) -> int:
    """Return the number of the first invalid entry, 0 if the columns differ in length, -1 if all are valid. left, right: the ends of each
    entry in all dimensions, one after another. O(n)."""
    n = len(entries.key)
    if is_ragged(entries):
        return 0
    dimensions = len(entries.left) // max(1, n)
    for e in range(n):
        if entries.set[e] >= sets or not (0 <= entries.key[e] < KEY_MAX and 0 <= entries.slot[e] < SLOTS):
            return e
        for j in range(e * dimensions, (e + 1) * dimensions):
            if entries.left[j] > entries.right[j]:
                return e
    return -1


@kernel("void(int64[::1], int64[::1], int64[::1])", allocates=True)
def order_ties(order: Any, positions: Any, codes: Any) -> None:
    """Order runs of equal positions[order] by their codes, ascending. O(n log n) in the largest run."""
    i, n = 0, len(order)
    while i < n:
        j = i + 1
        while j < n and positions[order[j]] == positions[order[i]]:
            j += 1
        if j - i > 16:
            run = order[i:j].copy()
            order[i:j] = run[np.argsort(codes[run])]
        else:
            for a in range(i + 1, j):
                e = order[a]
                b = a
                while b > i and codes[order[b - 1]] > codes[e]:
                    order[b] = order[b - 1]
                    b -= 1
                order[b] = e
        i = j


def tree_order(sets: np.ndarray, keys: np.ndarray, lefts: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return the places of the entries in the tree's order, (key, left, slot code). O(n log n)."""
    n = len(keys)
    if n == 1:
        return ORDER_OF_ONE
    if n == 0:
        return np.empty(0, np.int64)
    codes = 2 * slots.astype(np.int64) + sets
    key, span = int(keys.min()), int(keys.max()) - int(keys.min())
    positions = lefts
    if span:
        least = int(lefts.min())
        width = int(lefts.max()) - least + 1
        if (span + 1) * width >= 2**63:
            return np.lexsort((codes, lefts, keys))
        positions = (keys.astype(np.int64) - key) * width + (lefts - least)
    order = np.argsort(positions)
    order_ties(order, positions, codes)
    return order

"""Intervals as the structures take them: their columns, the signs of changes, the order of a tree, and what changes did."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import kernel

DELETE, INSERT, LEAVE, ENTER = -1, 1, -2, 2  # LEAVE and ENTER: a delete and an insert without a delta


class Entries(NamedTuple):
    """Intervals, closed, as columns of length n: set uint8 (0 or 1), key int32 >= 0, left <= right int64, slot int32 in [0, 2**30)."""

    set: np.ndarray
    key: np.ndarray
    left: np.ndarray
    right: np.ndarray
    slot: np.ndarray

    def take(self, places: np.ndarray) -> Entries:
        return Entries(*(column[places] for column in self))


class Deltas(NamedTuple):
    """What each of n changes did: of change i the rows starts[i]:ends[i] of the slots (as a sink gets them), or too_large[i] and none."""

    starts: np.ndarray
    ends: np.ndarray
    slots0: np.ndarray
    slots1: np.ndarray
    too_large: np.ndarray


@kernel("void(int64[::1], int64[::1], int64[::1])", allocates=True)
def order_ties(order: Any, places: Any, codes: Any) -> None:
    """Within runs of equal places[order], put the smaller code first."""
    i, n = 0, len(order)
    while i < n:
        j = i + 1
        while j < n and places[order[j]] == places[order[i]]:
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
    """The places of the entries in the tree's order, (key, left, slot code). O(n log n)."""
    n = len(keys)
    if n == 1:
        return np.zeros(1, np.int64)
    if n == 0:
        return np.empty(0, np.int64)
    codes = 2 * slots.astype(np.int64) + sets
    key, span = int(keys.min()), int(keys.max()) - int(keys.min())
    places = lefts
    if span:
        least = int(lefts.min())
        width = int(lefts.max()) - least + 1
        if (span + 1) * width >= 2**63:
            return np.lexsort((codes, lefts, keys))
        places = (keys.astype(np.int64) - key) * width + (lefts - least)
    order = np.argsort(places)
    order_ties(order, places, codes)
    return order

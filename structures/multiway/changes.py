"""What the writers of both trees share: the state of a run of changes, and the order of entries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.entries import Entries, tree_order
from structures.core.kernel import arrays

AT, ACTIVE, MISSING = range(3)  # the state N of a run
REFUSED = -1  # in place of rows: an entry is none, and nothing was done


@arrays("int64", Entries, "int64[::1]")
class Changes(NamedTuple):
    """The entries `order[N[AT]:]` are still to be put, or cut if sign < 0."""

    sign: int
    entries: Entries
    order: np.ndarray


def entry_order(sets: np.ndarray, keys: np.ndarray, lefts: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """The places of the entries in the tree's order, (key, left, code = 8 * slot + set). O(n log n)."""
    return tree_order(sets, keys, lefts, 4 * slots.astype(np.int64))

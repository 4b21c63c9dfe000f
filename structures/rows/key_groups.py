"""Which of the rows passed in have the same key.

Problem: find out whether a key occurs twice in a batch, and which rows share it, for any schema. A table of the batch alone, of the same
layout as the key table (`key_table.py`), in which each key has the number of its first row.

Costs: O(1) expected a row; 8 bytes a row, and 16 to 32 while they are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.kernel import compiled, kernel, prefetch, wide
from structures.rows.key_table import AHEAD, ALL_BITS, RowSet, entry_of, hashing_with, probe, tag_of


@kernel("int64(int64[::1], RowSet, int64[::1], int64[::1])")
def group_rows(hashing: Any, given: RowSet, entries: Any, out: Any) -> int:
    """Set out[i] to the first row with the key of row i, and return the number of different keys. `entries`: zeros, a power of two, more
    than there are rows. O(1) a row, expected."""
    for row in range(len(out)):
        out[row] = tag_of(given, row, hashing)
    last, end, groups = len(entries) - 1, len(out) - 1, wide(0)
    for row in range(len(out)):
        prefetch(entries, out[min(row + 2 * AHEAD, end)] & last)
        tag = out[row]
        first, at = probe(entries, given, tag, given, row)
        if first < 0:
            entries[at], first = entry_of(tag, row), wide(row)
            groups += 1
        out[row] = first
    return groups


def key_groups(given: RowSet, hash_mask: int = ALL_BITS) -> np.ndarray | None:
    """Return int64[n], for each row the first one with its key; None if no key occurs twice. `hash_mask` as for `KeyTable`."""
    n = len(given.cells)
    out, entries = np.empty(n, np.int64), np.zeros(1 << (2 * n).bit_length(), np.int64)
    return None if compiled(group_rows)(hashing_with(hash_mask), given, entries, out) == n else out

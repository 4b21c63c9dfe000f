"""Rows that go, and rows that come, as the changes of one version after another.

    goes   0 0 3      of versions 0, 0, 3          versions  0 1 3
    comes  0 1        of versions 0, 1    ──>      starts    0 3 4 5
                                                   deletes   2 0 1
                                                   order     those that go 0, 1; that come 0; that come 1; that go 2

Costs: O(1) a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.kernel import arrays, compiled, kernel


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class MergedRuns(NamedTuple):
    """versions: those that change something, ascending; starts: where the rows of each begin, followed by the number of rows; deletes: the
    number of rows of each that go, which come first. order: for each row its number among those that go, followed by those that come."""

    versions: np.ndarray
    starts: np.ndarray
    deletes: np.ndarray
    order: np.ndarray


def merged(is_deleted: np.ndarray, is_inserted: np.ndarray) -> MergedRuns:
    """Merge rows that go and rows that come, given the numbers of their versions, int64 and ascending."""
    n = len(is_deleted) + len(is_inserted)
    found = MergedRuns(np.empty(n, np.int64), np.empty(n + 1, np.int64), np.empty(n, np.int64), np.empty(n, np.int64))
    versions = compiled(merge)(is_deleted, is_inserted, found)
    return MergedRuns(found.versions[:versions], found.starts[: versions + 1], found.deletes[:versions], found.order)


@kernel("int64(int64[::1], int64[::1], MergedRuns)")
def merge(is_deleted: np.ndarray, is_inserted: np.ndarray, found: MergedRuns) -> int:
    """Returns the number of versions. O(n)."""
    n, i, j = 0, 0, 0
    while i < len(is_deleted) or j < len(is_inserted):
        version = is_deleted[i] if j == len(is_inserted) or (i < len(is_deleted) and is_deleted[i] <= is_inserted[j]) else is_inserted[j]
        found.versions[n], found.starts[n], first = version, i + j, i
        while i < len(is_deleted) and is_deleted[i] == version:
            found.order[i + j] = i
            i += 1
        found.deletes[n] = i - first
        while j < len(is_inserted) and is_inserted[j] == version:
            found.order[i + j] = len(is_deleted) + j
            j += 1
        n += 1
    found.starts[n] = i + j
    return n

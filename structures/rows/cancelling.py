"""Cancel out rows that were both inserted and deleted."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.kernel import compiled, kernel


@kernel("int64(int32[::1], int32[::1])")
def _cancel(deleted: Any, inserted: Any) -> int:
    """`cancel` for ascending slots: moves what is left to the front of each array, and returns how many of each cancel out. O(slots)."""
    i, j, k = 0, 0, 0
    while i < len(deleted) and j < len(inserted):
        if deleted[i] == inserted[j]:
            i, j, k = i + 1, j + 1, k + 1
        elif deleted[i] < inserted[j]:
            deleted[i - k] = deleted[i]
            i += 1
        else:
            inserted[j - k] = inserted[j]
            j += 1
    if k > 0:
        for at in range(i, len(deleted)):
            deleted[at - k] = deleted[at]
        for at in range(j, len(inserted)):
            inserted[at - k] = inserted[at]
    return k


def cancel(deleted: np.ndarray, inserted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort both arrays, int32 and contiguous, in place, and remove what they have in common. Returns the rest of each. Cost: that of
    sorting."""
    deleted.sort()
    inserted.sort()
    count = compiled(_cancel)(deleted, inserted)
    return deleted[: len(deleted) - count], inserted[: len(inserted) - count]

"""Rows that have come and gone meanwhile: only what remains of them is to be followed."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.kernel import compiled, kernel


@kernel("int64(int32[::1], int32[::1])")
def _cancel(gone: Any, come: Any) -> int:
    """`cancelled`, of ascending slots, in place. Returns how many of each cancel out. O(slots)."""
    i, j, k = 0, 0, 0
    while i < len(gone) and j < len(come):
        if gone[i] == come[j]:
            i, j, k = i + 1, j + 1, k + 1
        elif gone[i] < come[j]:
            gone[i - k] = gone[i]
            i += 1
        else:
            come[j - k] = come[j]
            j += 1
    if k > 0:
        for at in range(i, len(gone)):
            gone[at - k] = gone[at]
        for at in range(j, len(come)):
            come[at - k] = come[at]
    return k


def cancelled(gone: np.ndarray, come: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the slots that occur more often in `gone` than in `come`, and the reverse: int32, ascending, as often as they do so. Both
    arrays, int32 and contiguous, are sorted in place. Cost: that of sorting."""
    gone.sort()
    come.sort()
    count = compiled(_cancel)(gone, come)
    return gone[: len(gone) - count], come[: len(come) - count]

"""Cancel out rows that were both inserted and deleted."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.kernel import compiled, kernel


@kernel("int64(int32[::1], int32[::1])")
def _cancel(gone: Any, come: Any) -> int:
    """`cancel` for ascending slots: moves what is left to the front of each array, and returns how many of each cancel out. O(slots)."""
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


def cancel(gone: np.ndarray, come: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort both arrays, int32 and contiguous, in place, and remove what they have in common. Returns the rest of each. Cost: that of
    sorting."""
    gone.sort()
    come.sort()
    count = compiled(_cancel)(gone, come)
    return gone[: len(gone) - count], come[: len(come) - count]

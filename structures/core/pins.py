"""The rule for reusing blocks of trees and slots of rows: which pins still see them.

A block or slot that lived in [born, retired) may be reused when `retired` is at most the oldest version that can still be
pinned, and no pin p has born <= p < retired. All code that reuses them compares `retired` itself, and asks here about the pins.
"""

from __future__ import annotations

from typing import Any

from structures.core.kernel import kernel


@kernel
def holder(pins: Any, born: int, retired: int) -> int:
    """Return the index of the oldest pin p with born <= p < retired, -1 if there is none; pins ascend. O(log pins)."""
    lo, hi = 0, len(pins)
    while lo < hi:
        mid = (lo + hi) // 2
        if pins[mid] < born:
            lo = mid + 1
        else:
            hi = mid
    return lo if lo < len(pins) and pins[lo] < retired else -1


@kernel
def pinned(pins: Any, born: int, retired: int) -> bool:
    """Return whether some pin holds it."""
    return holder(pins, born, retired) >= 0

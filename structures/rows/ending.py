"""End most of the newest rows of a succession at once (`succession.py`), as fast as memory is read and written."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.kernel import compiled, kernel, wide
from structures.rows.rows import RowStore
from structures.rows.succession import NewestRows, Succession


@kernel("int64(NewestRows, boolean[::1], int64, int32[::1])")
def _end_others(newest: NewestRows, stays: Any, version: int, deleted: Any) -> int:
    """`end_others`; returns the number of slots written into `deleted`. O(codes)."""
    died, positions = newest.slots.died, newest.succession.positions
    lost = wide(0)
    for code in range(len(stays)):
        position = wide(positions[code]) - 1
        if position >= 0 and not stays[code]:
            positions[code] = 0
            died[position] = version
            deleted[lost] = position
            lost += 1
    return lost


def end_others(rows: RowStore, version: int, stays: np.ndarray, succession: Succession, most: int) -> np.ndarray:
    """End the rows of all things with codes below len(stays), except those that stay (bool[n], by code); there are `most` rows. Returns
    int32[m], their slots. O(codes)."""
    deleted = np.empty(most, np.int32)
    slots = deleted[: compiled(_end_others)(NewestRows(rows.cells, rows.slots(), succession), stays, version, deleted)]
    rows.retired.add(version, slots)
    return slots

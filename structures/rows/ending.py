"""End most of the newest rows of a succession at once (`succession.py`), as fast as memory is read and written."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.kernel import compiled, kernel, wide
from structures.rows.rows import Rows
from structures.rows.succession import Newest, Succession


@kernel("int64(Newest, boolean[::1], int64, int32[::1])")
def _end_others(newest: Newest, stays: Any, version: int, gone: Any) -> int:
    """`end_others`; returns the number of slots written into `gone`. O(codes)."""
    died, places = newest.slots.died, newest.succession.places
    lost = wide(0)
    for code in range(len(stays)):
        place = wide(places[code]) - 1
        if place >= 0 and not stays[code]:
            places[code] = 0
            died[place] = version
            gone[lost] = place
            lost += 1
    return lost


def end_others(rows: Rows, version: int, stays: np.ndarray, succession: Succession, most: int) -> np.ndarray:
    """End the rows of all things with codes below len(stays), except those that stay (bool[n], by code); there are `most` rows. Returns
    int32[m], their slots. O(codes)."""
    gone = np.empty(most, np.int32)
    slots = gone[: compiled(_end_others)(Newest(rows.cells, rows.slots(), succession), stays, version, gone)]
    rows.retired.add(version, slots)
    return slots

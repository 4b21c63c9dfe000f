"""End most of the newest rows of a succession at once (`succession.py`), as fast as memory is read and written."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.kernel import compiled, kernel, wide
from structures.pages.touch import touch, whole
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


def end_others(rows: Rows, version: int, stays: np.ndarray, succession: Succession, gone: np.ndarray) -> np.ndarray:
    """End the rows of all things with codes below len(stays), except those that stay (bool[n], by code). Returns int32[m], their slots, in
    `gone`, which has room for all rows and must not be changed afterwards. O(codes)."""
    slots = gone[: compiled(_end_others)(Newest(rows.cells, rows.slots(), succession), stays, version, gone)]
    rows.retired.add(version, slots)
    return slots


def touch_lives(rows: Rows) -> None:
    """Have the system allocate the memory in which the ends of the rows' lives are written, before many are written at once. Any thread.
    O(rows)."""
    touch(rows.died.__array_interface__["data"][0], whole(8 * rows.used))

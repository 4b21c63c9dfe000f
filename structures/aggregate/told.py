"""Which of the rows that were told of groups differ from those before them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, kernel, wide

COMES, GOES = 1, 2  # bits of a fate


@arrays("int32[::1]", "int64[:, ::1]", "boolean[::1]")
class Told(NamedTuple):
    """Of each telling, in order, the group's code, the row, and whether there is one at all."""

    codes: np.ndarray
    rows: np.ndarray
    there: np.ndarray


@arrays("int32[::1]", "int32[::1]", "int64[:, ::1]")
class Known(NamedTuple):
    """By code: 1 + the place of the group's row among `cells`, 0 without one; and zeros, which are zeros again afterwards."""

    places: np.ndarray
    last: np.ndarray
    cells: np.ndarray


@arrays("int8[::1]", "int32[::1]", "boolean[::1]")
class Fates(NamedTuple):
    """Of each telling: whether its row comes, and whether the one before it goes; that one's place among the cells, or -1 - k: it is that
    of telling k; whether its row is the group's last one."""

    fate: np.ndarray
    before: np.ndarray
    last: np.ndarray


@kernel
def differ(left: Any, i: int, right: Any, j: int) -> bool:
    """Whether two rows differ behind the first cell."""
    for column in range(1, left.shape[1]):
        if left[i, column] != right[j, column]:
            return True
    return False


@kernel("void(Told, Known, Fates)")
def compare(told: Told, known: Known, fates: Fates) -> None:
    """Compare each row with the one that its group had before. O(cells)."""
    for k in range(len(told.codes)):
        code, there = wide(told.codes[k]), told.there[k]
        fates.fate[k], fates.before[k], fates.last[k] = 0, 0, False
        e, place = wide(known.last[code]) - 1, wide(known.places[code]) - 1
        if e >= 0:
            had = told.there[e]
            changed = had != there or (there and differ(told.rows, k, told.rows, e))
        else:
            had = place >= 0
            changed = had != there or (there and differ(told.rows, k, known.cells, place))
        if changed:
            fates.fate[k] = (COMES if there else 0) | (GOES if had else 0)
            fates.before[k] = -1 - e if e >= 0 else place
            known.last[code] = k + 1
    for k in range(len(told.codes)):
        code = wide(told.codes[k])
        if known.last[code] > 0:
            fates.last[known.last[code] - 1] = True
            known.last[code] = 0

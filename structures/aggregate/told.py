"""Which of the rows that were told of groups differ from those before them: these go, and those come."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, kernel, wide

NOTHING = -1  # neither a slot nor, below it, the number of a row


@arrays("int32[::1]", "int64[::1]", "int64[:, ::1]", "boolean[::1]")
class Told(NamedTuple):
    """Of each telling, in order, the group's code, the number of its version, the row, and whether there is one at all."""

    codes: np.ndarray
    versions: np.ndarray
    rows: np.ndarray
    there: np.ndarray


@arrays("int32[::1]", "int32[::1]", "int64[:, ::1]")
class Known(NamedTuple):
    """By code: 1 + the slot of the group's row among `cells`, 0 without one; and zeros, which are zeros again afterwards."""

    places: np.ndarray
    last: np.ndarray
    cells: np.ndarray


@arrays("int32[::1]", "int32[::1]", "boolean[::1]")
class Fates(NamedTuple):
    """Of each telling: what goes by it, a slot or -2 - j, the row that comes with number j; the number with which its row comes; NOTHING.
    Of each row that comes: whether it is its group's last one."""

    before: np.ndarray
    comes: np.ndarray
    stays: np.ndarray


@arrays("int32[::1]", "int64[::1]", "int32[::1]", "int64[::1]")
class Moves(NamedTuple):
    """The slots that go, and those that come, each with the number of its version."""

    old: np.ndarray
    old_versions: np.ndarray
    new: np.ndarray
    new_versions: np.ndarray


@kernel
def differ(left: Any, i: int, right: Any, j: int) -> bool:
    """Whether two rows differ behind the first cell."""
    for column in range(1, left.shape[1]):
        if left[i, column] != right[j, column]:
            return True
    return False


@kernel("UniTuple(int64, 2)(Told, Known, Fates, int32[::1], int64[:, ::1])")
def compare(told: Told, known: Known, fates: Fates, gone: Any, rows: Any) -> tuple[int, int]:
    """Compare each row with the one that its group had before. -> how many known rows go, and how many rows come. The slots of the former
    are put into `gone`, and have no place any more, the latter into `rows`: the first cell is the group's code. O(cells)."""
    lost, n = wide(0), wide(0)
    for k in range(len(told.codes)):
        code, there = wide(told.codes[k]), told.there[k]
        fates.before[k] = fates.comes[k] = NOTHING
        e, place = wide(known.last[code]) - 1, wide(known.places[code]) - 1
        if e >= 0:
            had = told.there[e]
            changed = had != there or (there and differ(told.rows, k, told.rows, e))
        else:
            had = place >= 0
            changed = had != there or (there and differ(told.rows, k, known.cells, place))
        if not changed:
            continue
        if had and e >= 0:
            fates.before[k] = -2 - fates.comes[e]
            fates.stays[fates.comes[e]] = False
        elif had:
            fates.before[k] = gone[lost] = place
            lost += 1
            known.places[code] = 0
        if there:
            rows[n, 0] = code
            for column in range(1, rows.shape[1]):
                rows[n, column] = told.rows[k, column]
            fates.comes[k] = n
            fates.stays[n] = True
            n += 1
        known.last[code] = k + 1
    for k in range(len(told.codes)):
        known.last[wide(told.codes[k])] = 0
    return lost, n


@kernel("UniTuple(int64, 2)(Told, Known, Fates, int32[::1], Moves)")
def settle(told: Told, known: Known, fates: Fates, slots: Any, moves: Moves) -> tuple[int, int]:
    """Of what `compare` has found, the rows that come being at these slots: note the places of those that stay. -> how many slots go, and
    come. O(tellings)."""
    old, new = wide(0), wide(0)
    for k in range(len(told.codes)):
        before, i = wide(fates.before[k]), wide(fates.comes[k])
        if before != NOTHING:
            moves.old[old] = before if before >= 0 else slots[-2 - before]
            moves.old_versions[old] = told.versions[k]
            old += 1
        if i != NOTHING:
            moves.new[new] = slots[i]
            moves.new_versions[new] = told.versions[k]
            new += 1
            if fates.stays[i]:
                known.places[wide(told.codes[k])] = slots[i] + 1
    return old, new

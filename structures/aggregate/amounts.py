"""Writing kernel for many rows of a group at once: their number, and the change of each of the group's sums.

The effect of a join's change on a group is counted, without visiting rows (`event_tree/counting.py`); here it is added to the group's
cells. An amount is three digits as in an INT_SUM: 32 bits, 32 bits, and the rest with the sign.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.aggregate.layout import (
    COUNT,
    GROUPS,
    HIGHEST,
    LOW32,
    LOWEST,
    MIDDLE,
    ROWS,
    STAMP,
    STEP_KIND,
    STEP_WORD,
    WRONG,
    Plan,
    Store,
)
from structures.aggregate.results import emit
from structures.core.kernel import arrays, kernel, wide


@arrays("int64[::1]", "int64[:,:,::1]")
class Measures(NamedTuple):
    """For each of n changes the number of rows that it concerns, and the change of each of s sums: int64[n, s, 3]."""

    rows: np.ndarray
    sums: np.ndarray


@arrays("int32[::1]", "int8[::1]", "int64[::1]", "int64[:,:,::1]")
class Amounts(NamedTuple):
    """For each of n changes the group's code, the sign (1 comes, -1 goes), the number of rows (int64[n]), and, for each step of the plan,
    all of which are COUNT or INT_SUM, the amount: int64[n, steps, 3]."""

    codes: np.ndarray
    signs: np.ndarray
    rows: np.ndarray
    sums: np.ndarray


@arrays("int32[::1]", "int64[::1]", "int64[:, ::1]")
class GroupReports(NamedTuple):
    """For each report of a group its code, the version's number, and the row: int64[n, width], or int64[0, width] if rows are not
    wanted."""

    codes: np.ndarray
    versions: np.ndarray
    rows: np.ndarray


@kernel(forceinline=True)
def put_digits(sums: Any, i: int, step: int, low: int, high: int) -> None:
    """Write the amount low + high * 2**32."""
    over = (low >> 32) + (high & LOW32)
    sums[i, step, LOWEST], sums[i, step, MIDDLE], sums[i, step, HIGHEST] = low & LOW32, over & LOW32, (high >> 32) + (over >> 32)


@kernel
def add_digits(cells: Any, code: int, w: int, amounts: Amounts, i: int, step: int) -> None:
    """Add an amount to a sum, or subtract it."""
    sums, sign = amounts.sums, wide(amounts.signs[i])
    over = cells[code, w + LOWEST] + sign * sums[i, step, LOWEST]
    cells[code, w + LOWEST] = over & LOW32
    over = cells[code, w + MIDDLE] + sign * sums[i, step, MIDDLE] + (over >> 32)
    cells[code, w + MIDDLE] = over & LOW32
    cells[code, w + HIGHEST] += sign * sums[i, step, HIGHEST] + (over >> 32)


@kernel
def add_amount(plan: Plan, store: Store, amounts: Amounts, i: int) -> None:
    """Apply change number i, of some rows, to its group."""
    cells, control = store.cells, store.control
    code, sign = wide(amounts.codes[i]), wide(amounts.signs[i])
    before = cells[code, ROWS]
    now = before + sign * amounts.rows[i]
    cells[code, ROWS] = now
    if (now != 0) != (before != 0):
        control[GROUPS] += sign
    if now < 0:
        control[WRONG] += 1
    for step in range(len(plan.steps)):
        w = plan.steps[step, STEP_WORD]
        if plan.steps[step, STEP_KIND] == COUNT:
            cells[code, w] += sign * (amounts.sums[i, step, LOWEST] + (amounts.sums[i, step, MIDDLE] << 32))
        else:
            add_digits(cells, code, w, amounts, i, step)


@kernel("int64(Plan, Store, Amounts, int64[::1], int64, GroupReports)")
def add_amounts(plan: Plan, store: Store, amounts: Amounts, ends: Any, stamp: int, emitted: GroupReports) -> int:
    """Apply the changes version after version: those of number v end before ends[v], and have the stamp `stamp + v`. After each version,
    report the groups that have gained or lost rows and were not touched with this stamp before. Returns the number of reports. O(1) a
    change and accumulator, and a report."""
    n, i = wide(0), wide(0)
    for v in range(len(ends)):
        first = n
        while i < ends[v]:
            code = wide(amounts.codes[i])
            if amounts.rows[i] != 0:
                add_amount(plan, store, amounts, i)
                if store.cells[code, STAMP] != stamp + v:
                    store.cells[code, STAMP] = stamp + v
                    emitted.codes[n], emitted.versions[n] = code, v
                    n += 1
            i += 1
        for k in range(first, n if len(emitted.rows) else first):
            emit(plan, store, wide(emitted.codes[k]), emitted.rows, k)
    return n

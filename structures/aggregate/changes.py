"""Writing kernels: add rows to groups and remove them."""

from __future__ import annotations

from typing import Any

from structures.aggregate.layout import (
    COUNT,
    FLOAT_SUM,
    GROUPS,
    HIGHEST,
    INT_SUM,
    LOW32,
    LOWEST,
    MIDDLE,
    ROWS,
    STAMP,
    STEP_COLUMN,
    STEP_KIND,
    STEP_WORD,
    VALUES,
    WRONG,
    GroupedColumns,
    Plan,
    Store,
)
from structures.aggregate.limbs import add_float, give_back
from structures.aggregate.results import emit
from structures.aggregate.values import count_value
from structures.core.kernel import kernel, wide


@kernel
def add_int(cells: Any, code: int, w: int, value: int, sign: int) -> None:
    """Add a number, or subtract it, in 128 bits."""
    over = cells[code, w + LOWEST] + sign * (value & LOW32)
    cells[code, w + LOWEST] = over & LOW32
    upper = value >> 32
    over = cells[code, w + MIDDLE] + sign * (upper & LOW32) + (over >> 32)
    cells[code, w + MIDDLE] = over & LOW32
    cells[code, w + HIGHEST] += sign * (upper >> 32) + (over >> 32)


@kernel
def add_row(plan: Plan, store: Store, rows: GroupedColumns, i: int) -> None:
    """Add row number i to its group, or remove it."""
    cells, control = store.cells, store.control
    code, sign = wide(rows.codes[i]), wide(rows.signs[i])
    number = wide(0)
    cells[code, ROWS] += sign
    if cells[code, ROWS] == (1 if sign > 0 else 0):
        control[GROUPS] += sign
    if cells[code, ROWS] < 0:
        control[WRONG] += 1
    for step in range(len(plan.steps)):
        kind, column, w = plan.steps[step, STEP_KIND], plan.steps[step, STEP_COLUMN], plan.steps[step, STEP_WORD]
        if kind == VALUES:
            number += 1
        if rows.nulls[column, i]:
            continue
        value = rows.values[column, i]
        if kind == COUNT:
            cells[code, w] += sign
        elif kind == INT_SUM:
            add_int(cells, code, w, value, sign)
        elif kind == FLOAT_SUM:
            add_float(cells, code, w, store.limbs, value, sign)
        else:
            left = count_value(store.tree, code * plan.trees + number - 1, value, sign, store.scratch)
            if left == (1 if sign > 0 else 0):
                cells[code, w] += sign
            if left < 0:
                control[WRONG] += 1
    if cells[code, ROWS] == 0:
        for step in range(len(plan.steps)):
            if plan.steps[step, STEP_KIND] == FLOAT_SUM:
                give_back(cells, code, plan.steps[step, STEP_WORD], store.limbs)


@kernel("int64(Plan, Store, GroupedColumns, int64[::1], int64, int32[::1])")
def add_all(plan: Plan, store: Store, rows: GroupedColumns, order: Any, stamp: int, touched: Any) -> int:
    """Apply all rows, in this order. Returns the number of groups touched that did not have this stamp: their codes are written into
    `touched`, and they have it now. Cost: that of `groups`, a row."""
    n = wide(0)
    for i in order:
        code = wide(rows.codes[i])
        add_row(plan, store, rows, i)
        if store.cells[code, STAMP] != stamp:
            store.cells[code, STAMP] = stamp
            touched[n] = code
            n += 1
    return n


@kernel("int64(Plan, Store, GroupedColumns, int64[::1], int64, int32[::1], int64[::1], int64[:, ::1])")
def add_in_order(plan: Plan, store: Store, rows: GroupedColumns, numbers: Any, stamp: int, codes: Any, versions: Any, out: Any) -> int:
    """`add_versions` as an entry point. Cost: that of `groups`, a row and a report."""
    return add_versions(plan, store, rows, numbers, stamp, codes, versions, out)


@kernel
def add_versions(plan: Plan, store: Store, rows: GroupedColumns, numbers: Any, stamp: int, codes: Any, versions: Any, out: Any) -> int:
    """Apply the rows version after version: `numbers` ascend, and version v has the stamp `stamp + v`. After each, report the groups that
    it has touched. Returns the number of reports; codes, versions, out: for each the group, the version's number, and the row."""
    n, first = wide(0), wide(0)
    for i in range(len(numbers)):
        code, version = wide(rows.codes[i]), numbers[i]
        add_row(plan, store, rows, i)
        if store.cells[code, STAMP] != stamp + version:
            store.cells[code, STAMP] = stamp + version
            codes[n] = code
            versions[n] = version
            n += 1
        if i + 1 == len(numbers) or numbers[i + 1] != version:
            for k in range(first, n):
                emit(plan, store, wide(codes[k]), out, k)
            first = n
    return n


@kernel("void(Plan, Store, int32[::1], int64[:, ::1])")
def emit_all(plan: Plan, store: Store, codes: Any, out: Any) -> None:
    """out[k]: the row of group codes[k]. O(1) a cell, O(log n) one of MIN or MAX."""
    for k in range(len(codes)):
        emit(plan, store, wide(codes[k]), out, k)

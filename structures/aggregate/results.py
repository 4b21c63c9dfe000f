"""The result of a group: a row of cells in the layout of `rows.Rows`, its code first, null bits last."""

from __future__ import annotations

from typing import Any

from structures.aggregate.layout import (
    BEYOND,
    COUNTED,
    HIGHEST,
    KIND,
    LOW32,
    LOWEST,
    MIDDLE,
    NULLS_A_CELL,
    OF_COUNT,
    OF_FLOAT_MEAN,
    OF_FLOAT_SUM,
    OF_GREATEST_FLOAT,
    OF_INT_MEAN,
    OF_INT_SUM,
    OF_LEAST,
    OF_LEAST_FLOAT,
    OF_ROWS,
    OF_WIDE_SUM,
    OUT,
    ROWS,
    SCALE,
    SIGN,
    TREE,
    WORD,
    Plan,
    Store,
    bits_of,
)
from structures.aggregate.limbs import float_sum, quotient
from structures.aggregate.values import greatest, least
from structures.core.kernel import kernel

_FIRST = 1074 // 32  # the limb of 2**0, and its place there
_UP = 1074 % 32
_DOWN = 32 - _UP
_HIGH, _LOW = divmod(10**38, 1 << 64)


@kernel
def low_word(s0: int, s1: int) -> int:
    """Two digits of 32 bits as the low word of two's complement."""
    return ((s1 - ((s1 >> 31) << 32)) << 32) | s0


@kernel
def fits_int64(s1: int, s2: int) -> bool:
    return s2 == -(s1 >> 31)


@kernel
def fits_38_digits(low: int, high: int) -> bool:
    """Whether the number of 128 bits has at most 38 decimal digits."""
    if high >= 0:
        return high < _HIGH or (high == _HIGH and 0 <= low < _LOW)
    return high > -_HIGH - 1 or (high == -_HIGH - 1 and -_LOW < low < 0)


@kernel
def int_mean(cells: Any, code: int, w: int, digits: Any, divisors: tuple[int, int]) -> int:
    """The bits of the sum divided by both divisors, rounded once."""
    s0, s1, s2 = cells[code, w + LOWEST], cells[code, w + MIDDLE], cells[code, w + HIGHEST]
    sign = 1
    if s2 < 0:
        sign, over = -1, -s0
        s0 = over & LOW32
        over = -s1 + (over >> 32)
        s1 = over & LOW32
        s2 = -s2 + (over >> 32)
    digits[0] = (s0 << _UP) & LOW32
    digits[1] = (s0 >> _DOWN) | ((s1 << _UP) & LOW32)
    digits[2] = (s1 >> _DOWN) | ((s2 & ((1 << _DOWN) - 1)) << _UP)
    digits[3] = (s2 >> _DOWN) & LOW32
    digits[4] = (s2 >> _DOWN) >> 32
    bits = quotient(digits, 5, _FIRST, divisors)
    return bits | SIGN if sign < 0 else bits


@kernel
def emit(plan: Plan, store: Store, code: int, out: Any, k: int) -> None:
    """out[k]: the row of a group. Its first cell is the code, or -1 - code for a group without rows. Rows without cells for null bits have
    only results that are null just without rows."""
    cells, results = store.cells, plan.results
    width, columns = out.shape[1], 1
    for r in range(len(results)):
        columns += 2 if results[r, KIND] == OF_WIDE_SUM else 1
    for i in range(columns, width):
        out[k, i] = 0
    out[k, 0] = code if cells[code, ROWS] > 0 else -1 - code
    column, beyond = 1, code * 0
    for r in range(len(results)):
        kind, w = results[r, KIND], results[r, WORD]
        count = cells[code, results[r, COUNTED]]
        value, null = code * 0, count == 0
        if kind == OF_ROWS:
            value, null = cells[code, ROWS], False
        elif kind == OF_COUNT:
            value, null = cells[code, w], False
        elif null:
            pass
        elif kind == OF_INT_SUM:
            null = not fits_int64(cells[code, w + MIDDLE], cells[code, w + HIGHEST])
            if null:
                beyond += 1
            else:
                value = low_word(cells[code, w + LOWEST], cells[code, w + MIDDLE])
        elif kind == OF_INT_MEAN:
            value = int_mean(cells, code, w, store.scratch, (count, results[r, SCALE]))
        elif kind == OF_FLOAT_SUM:
            value = float_sum(cells, code, w, store.limbs, store.scratch, (1, 1))
        elif kind == OF_FLOAT_MEAN:
            value = float_sum(cells, code, w, store.limbs, store.scratch, (count, 1))
        elif kind == OF_WIDE_SUM:
            low, high = low_word(cells[code, w + LOWEST], cells[code, w + MIDDLE]), cells[code, w + HIGHEST]
            null = not fits_38_digits(low, high)
            if null:
                beyond += 1
            else:
                value = high
                out[k, column + 1] = low
        else:
            group = code * plan.trees + results[r, TREE]
            if kind == OF_LEAST or kind == OF_LEAST_FLOAT:
                value = least(store.tree, group, store.scratch)
            else:
                value = greatest(store.tree, group, store.scratch)
            if kind == OF_LEAST_FLOAT or kind == OF_GREATEST_FLOAT:
                value = bits_of(value)
        out[k, column] = value
        null = null and columns < width
        if null:
            out[k, columns + column // NULLS_A_CELL] |= 1 << (column % NULLS_A_CELL)
        column += 1
        if kind == OF_WIDE_SUM:
            if null:
                out[k, column] = 0
                out[k, columns + column // NULLS_A_CELL] |= 1 << (column % NULLS_A_CELL)
            column += 1
    store.control[BEYOND] += beyond - cells[code, OUT]
    cells[code, OUT] = beyond

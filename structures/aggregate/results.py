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
    OF_FILLED,
    OF_FLOAT_MEAN,
    OF_FLOAT_SUM,
    OF_GREATEST_FLOAT,
    OF_INT_MEAN,
    OF_INT_SUM,
    OF_LEAST,
    OF_LEAST_FLOAT,
    OF_ROWS,
    OF_WIDE_SUM,
    OF_WIDER_MEAN,
    OF_WIDER_SUM,
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
def is_wide(kind: int) -> bool:
    return kind == OF_WIDE_SUM or kind == OF_WIDER_SUM


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
def of_int(cells: Any, code: int, w: int) -> tuple[int, int, int, int, int]:
    """The digits of an INT_SUM: four of 32 bits, and the rest with the sign."""
    s2 = cells[code, w + HIGHEST]
    return cells[code, w + LOWEST], cells[code, w + MIDDLE], s2 & LOW32, (s2 >> 32) & LOW32, s2 >> 63


@kernel
def wider(cells: Any, code: int, w: int, h: int) -> tuple[int, int, int, int, int]:
    """The same of a sum of 2**64 h + w, words as signed numbers."""
    s2 = cells[code, w + HIGHEST]
    d2 = (s2 & LOW32) + cells[code, h + LOWEST]
    d3 = (s2 >> 32) + cells[code, h + MIDDLE] + (d2 >> 32)
    return cells[code, w + LOWEST], cells[code, w + MIDDLE], d2 & LOW32, d3 & LOW32, cells[code, h + HIGHEST] + (d3 >> 32)


@kernel
def mean(sum: tuple[int, int, int, int, int], n: int, digits: Any, divisors: tuple[int, int]) -> int:
    """The bits of the sum divided by both divisors, rounded once; n: 5, or 7 for a sum of more than 127 bits."""
    d0, d1, d2, d3, d4 = sum
    sign = 1
    if d4 < 0:
        sign, d0 = -1, -d0
        d1 = -d1 + (d0 >> 32)
        d2 = -d2 + (d1 >> 32)
        d3 = -d3 + (d2 >> 32)
        d4 = -d4 + (d3 >> 32)
        d0, d1, d2, d3 = d0 & LOW32, d1 & LOW32, d2 & LOW32, d3 & LOW32
    digits[0] = (d0 << _UP) & LOW32
    digits[1] = (d0 >> _DOWN) | ((d1 << _UP) & LOW32)
    digits[2] = (d1 >> _DOWN) | ((d2 << _UP) & LOW32)
    digits[3] = (d2 >> _DOWN) | ((d3 << _UP) & LOW32)
    digits[4] = (d3 >> _DOWN) | ((d4 << _UP) & LOW32)
    digits[5] = (d4 >> _DOWN) & LOW32
    digits[6] = (d4 >> _DOWN) >> 32
    bits = quotient(digits, n, _FIRST, divisors)
    return bits | SIGN if sign < 0 else bits


@kernel
def emit(plan: Plan, store: Store, code: int, out: Any, k: int) -> None:
    """out[k]: the row of a group. Its first cell is the code, or -1 - code for a group without rows. Rows without cells for null bits have
    only results that are null just without rows."""
    cells, results = store.cells, plan.results
    width, columns = out.shape[1], 1
    for r in range(len(results)):
        columns += 2 if is_wide(results[r, KIND]) else 1
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
        elif null or kind == OF_FILLED:
            pass
        elif kind == OF_INT_SUM:
            null = not fits_int64(cells[code, w + MIDDLE], cells[code, w + HIGHEST])
            if null:
                beyond += 1
            else:
                value = low_word(cells[code, w + LOWEST], cells[code, w + MIDDLE])
        elif kind == OF_INT_MEAN:
            value = mean(of_int(cells, code, w), 5, store.scratch, (count, results[r, SCALE]))
        elif kind == OF_WIDER_MEAN:
            value = mean(wider(cells, code, w, results[r, TREE]), 7, store.scratch, (count, results[r, SCALE]))
        elif kind == OF_FLOAT_SUM:
            value = float_sum(cells, code, w, store.limbs, store.scratch, (1, 1))
        elif kind == OF_FLOAT_MEAN:
            value = float_sum(cells, code, w, store.limbs, store.scratch, (count, 1))
        elif is_wide(kind):
            d0, d1, d2, d3, d4 = wider(cells, code, w, results[r, TREE]) if kind == OF_WIDER_SUM else of_int(cells, code, w)
            low, high = low_word(d0, d1), low_word(d2, d3)
            null = not fits_int64(d3, d4) or not fits_38_digits(low, high)
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
        if is_wide(kind):
            if null:
                out[k, column] = 0
                out[k, columns + column // NULLS_A_CELL] |= 1 << (column % NULLS_A_CELL)
            column += 1
    store.control[BEYOND] += beyond - cells[code, OUT]
    cells[code, OUT] = beyond

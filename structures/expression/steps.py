"""Arithmetic of int64 and float64, step by step, as SQL has it: a result outside of int64 and a division by zero are null.

A float is its bits. A step has an operation and two registers, whose words it reads; its own result is the next register:

    LOAD         column `a` of the row
    CONSTANT     the word `a`, or null if `b` is 1
    FROM_INT     the float next to register `a`
    + - * / %    of registers `a` and `b`, of ints (ADD to MOD) or, FLOATS more, of floats

Costs: 1 to 3 ns a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.kernel import kernel, wide

ADD, SUBTRACT, MULTIPLY, DIVIDE, REMAINDER, FROM_INT, LOAD, CONSTANT, FLOATS = range(9)
WORDS, NULLS = range(2)  # lines of registers
_LEAST = -(2**63)


@kernel
def of_ints(operation: int, x: int, y: int) -> tuple[int, bool]:
    """Return the result, and whether it is null. A quotient is truncated towards zero, and a remainder has the sign of x."""
    if operation == ADD:
        found = x + y
        return wide(found), ((x ^ found) & (y ^ found)) < 0
    if operation == SUBTRACT:
        found = x - y
        return wide(found), ((x ^ y) & (x ^ found)) < 0
    if operation == MULTIPLY:
        found = x * y
        # The product of the floats is within 2 ** 12 of the true one, from which a wrapped one is at least 2 ** 64 away.
        return wide(found), bool(abs(np.float64(found) - np.float64(x) * np.float64(y)) > 2.0**62)
    if y == 0 or (y == -1 and x == _LEAST and operation == DIVIDE):
        return wide(0), True
    if y == -1:  # the processor traps at the quotient of the least int64
        return wide(-x if operation == DIVIDE else 0), False
    quotient, rest = x // y, x % y
    if rest != 0 and (x < 0) != (y < 0):
        quotient, rest = quotient + 1, rest - y
    return wide(quotient if operation == DIVIDE else rest), False


@kernel
def of_floats(operation: int, x: int, y: int) -> tuple[int, bool]:
    """The same of floats; NaN divided by zero is NaN."""
    a, b = np.int64(x).view(np.float64), np.int64(y).view(np.float64)
    if operation >= DIVIDE and b == 0 and a == a:
        return wide(0), True
    if operation == ADD:
        found = a + b
    elif operation == SUBTRACT:
        found = a - b
    elif operation == MULTIPLY:
        found = a * b
    elif operation == DIVIDE:
        found = a / b if b != 0 else a
    else:
        found = np.fmod(a, b)
    return wide(np.float64(found).view(np.int64)), False


@kernel
def result(operation: int, x: int, y: int) -> tuple[int, bool]:
    """Return the word of a step that reads other registers, of which none is null, and whether it is null."""
    if operation == FROM_INT:
        return wide(np.float64(x).view(np.int64)), False
    return of_floats(operation - FLOATS, x, y) if operation >= FLOATS else of_ints(operation, x, y)


@kernel("void(int64, int64[::1], int64[::1], int64[::1], boolean[::1])")
def results(operation: int, left: Any, right: Any, out: Any, null: Any) -> None:
    """Do the same for all rows; `null` is set where it is. O(n)."""
    for i in range(len(out)):
        out[i], null[i] = result(operation, left[i], right[i])

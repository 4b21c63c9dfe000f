"""Steps of arithmetic beside Python's integers and floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from structures.expression.steps import ADD, DIVIDE, FLOATS, FROM_INT, MULTIPLY, REMAINDER, SUBTRACT, results

LEAST, MOST = -(2**63), 2**63 - 1
INTS = st.one_of(st.integers(LEAST, MOST), st.sampled_from((LEAST, LEAST + 1, -1, 0, 1, MOST)), st.integers(-(2**32), 2**32))
WHOLE: dict[int, Callable[[int, int], int]] = {
    ADD: lambda x, y: x + y,
    SUBTRACT: lambda x, y: x - y,
    MULTIPLY: lambda x, y: x * y,
    DIVIDE: lambda x, y: math.trunc(Fraction(x, y)),
    REMAINDER: lambda x, y: x - y * math.trunc(Fraction(x, y)),
}


def found(operation: int, x: Any, y: Any) -> tuple[int, bool]:
    out, null = np.empty(1, np.int64), np.zeros(1, np.bool_)
    with np.errstate(all="ignore"):
        results(operation, np.array([x]).view(np.int64), np.array([y]).view(np.int64), out, null)
    return int(out[0]), bool(null[0])


@pytest.mark.parametrize("operation", WHOLE)
@given(INTS, INTS)
@example(LEAST, -1)
@example(-1, LEAST)
@example(3037000500, 3037000500)
@example(-3037000500, 3037000500)
@example(MOST, 1)
@example(1 << 62, 2)
def test_ints(operation: int, x: int, y: int) -> None:
    word, null = found(operation, x, y)
    if operation in (DIVIDE, REMAINDER) and y == 0:
        assert null
        return
    exact = WHOLE[operation](x, y)
    assert null == (not LEAST <= exact <= MOST) and (null or word == exact)


@pytest.mark.parametrize("operation", WHOLE)
@given(st.floats(), st.floats())
@example(math.nan, 0.0)
@example(-0.0, -0.0)
@example(1.0, -0.0)
def test_floats(operation: int, x: float, y: float) -> None:
    word, null = found(operation + FLOATS, x, y)
    assert null == (operation in (DIVIDE, REMAINDER) and y == 0 and not math.isnan(x))
    if not null:
        with np.errstate(all="ignore"):
            functions = {ADD: np.add, SUBTRACT: np.subtract, MULTIPLY: np.multiply, DIVIDE: np.divide, REMAINDER: np.fmod}
            wanted = functions[operation](np.float64(x), np.float64(y))
        value = np.int64(word).view(np.float64)
        assert math.isnan(value) == math.isnan(wanted) and (math.isnan(value) or value.view(np.int64) == wanted.view(np.int64))


@given(INTS)
def test_ints_as_floats(x: int) -> None:
    assert found(FROM_INT, x, 0) == (int(np.float64(x).view(np.int64)), False)

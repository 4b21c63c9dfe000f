"""The aggregates of groups: by a state machine, and on hostile sums."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
from hypothesis import settings

from structures.aggregate import layout
from structures.aggregate.changes import emit_all
from structures.aggregate.groups import Groups, Step
from structures.aggregate.layout import GroupedColumns
from structures.aggregate.limbs import SIZES, quotient
from structures.core.kernel import compiled
from tests.naive.aggregate import float_of, float_sum
from tests.structures.aggregate.machine import AggregateMachine


class TestAggregates(AggregateMachine.TestCase):
    settings = settings(max_examples=60, stateful_step_count=12, deadline=None)


def summing() -> Groups:
    steps = Step()
    word, count = steps.of(layout.FLOAT_SUM, 0), steps.of(layout.COUNT, 0)
    return Groups(steps, [(layout.OF_FLOAT_SUM, word, count, 0, 1), (layout.OF_FLOAT_MEAN, word, count, 0, 1)], 4, 1 << 10)


def floats(values: list[float], sign: int, codes: list[int] | None = None) -> GroupedColumns:
    n = len(values)
    bits = np.array(values, np.float64).view(np.int64).reshape(1, n)
    return GroupedColumns(
        np.array(codes or [0] * n, np.int32), np.full(n, sign, np.int8), np.ascontiguousarray(bits), np.zeros((1, n), np.uint8)
    )


def sum_and_mean(groups: Groups) -> tuple[float, float]:
    ((_, total, mean, _),) = groups.emit(np.zeros(1, np.int32)).tolist()
    return float_of(total), float_of(mean)


def test_a_row_without_cells_for_nulls_ends_where_it_ends() -> None:
    """A group without rows has nulls everywhere; where none is ever shown, rows have no bits for them."""
    steps = Step()
    total, values = steps.of(layout.INT_SUM, 0), steps.of(layout.VALUES, 0)
    results = [(layout.OF_INT_MEAN, total, layout.ROWS, 0, 1), (layout.OF_WIDE_SUM, total, layout.ROWS, 0, 1),
               (layout.OF_GREATEST, values, values, 0, 1)]  # fmt: skip
    groups = Groups(steps, results, 5, 8)
    row = GroupedColumns(np.zeros(1, np.int32), np.ones(1, np.int8), np.full((1, 1), 7), np.zeros((1, 1), np.uint8))
    groups.add(row)
    groups.add(row._replace(signs=-row.signs))
    around = np.full((3, 5), 99)
    compiled(emit_all)(groups._plan, groups._store, np.zeros(1, np.int32), around[1:2])
    assert around[1, 0] == -1 and (around[[0, 2]] == 99).all()


def test_any_order_and_all_that_has_gone_leave_no_trace() -> None:
    rng = random.Random(4)
    hostile = [1e308, -1e308, 5e-324, 1e16, 1.0, -1e16, 0.1, 2.0**-1022, 1e300, -1e300]
    values = [rng.choice(hostile) * rng.choice((1, 0.5, 0.3)) for _ in range(200)]
    others = [math.ldexp(rng.random(), rng.randrange(-1070, 1020)) for _ in range(300)]
    found = set()
    for _ in range(6):
        groups = summing()
        rng.shuffle(values)
        mixed = [*((1, value) for value in values), *((1, value) for value in others)]
        rng.shuffle(mixed)
        groups.add(floats([value for _, value in mixed], 1))
        rng.shuffle(others)
        groups.add(floats(others, -1))
        groups.check(100)
        found.add(groups.emit(np.zeros(1, np.int32)).tobytes())
    assert len(found) == 1
    fresh = summing()
    fresh.add(floats(values, 1))
    assert fresh.emit(np.zeros(1, np.int32)).tobytes() in found
    assert sum_and_mean(fresh) == (float_sum(values), float_sum(values, len(values)))


def test_halves_are_rounded_to_even_and_a_trace_below_breaks_the_tie() -> None:
    for values in (
        [2.0**53, 1.0], [2.0**53, 1.0, 5e-324], [2.0**53 + 2, 1.0], [2.0**53, 1.0, -5e-324], [1e308, 1e308], [-1e308, -1e308, 1e292],
        [5e-324], [5e-324, 5e-324, 5e-324], [2.0**-1022, -5e-324], [1.0, 2.0**-53], [1.0, 2.0**-53, 2.0**-1000], [1.0, -(2.0**-54)],
    ):  # fmt: skip
        groups = summing()
        groups.add(floats(values, 1))
        assert sum_and_mean(groups) == (float_sum(values), float_sum(values, len(values))), values


def test_a_group_keeps_small_extents_for_money() -> None:
    groups = summing()
    rng = random.Random(1)
    groups.add(floats([round(rng.random() * 10**6, 2) for _ in range(5000)], 1, [i % 100 for i in range(5000)]))
    assert int(groups._store.limbs.control[0]) == 1 + 100 * SIZES[0]
    groups.check(100)


def test_averages_of_many_rows() -> None:
    """Divisors above 2**31 go bit by bit: the count is set by hand."""
    rng = random.Random(2)
    for _ in range(300):
        digits = np.zeros(96, np.int64)
        number = rng.getrandbits(rng.randrange(1, 200))
        n = max(1, -(-number.bit_length() // 32))
        for i in range(n):
            digits[i] = number >> (32 * i) & 0xFFFFFFFF
        low, divisors = rng.randrange(0, 60), (rng.randrange(1, 1 << rng.randrange(1, 62)), rng.choice((1, 10**18, 100)))
        exact = Fraction(number) * Fraction(2) ** (32 * low - 1074) / divisors[0] / divisors[1]
        try:
            wanted = exact.numerator / exact.denominator
        except OverflowError:
            wanted = math.inf
        assert float_of(int(quotient(digits, np.int64(n), np.int64(low), (np.int64(divisors[0]), np.int64(divisors[1]))))) == wanted


def test_tens_of_thousands_of_values() -> None:
    """The tree grows to several levels, and shrinks."""
    steps = Step()
    word = steps.of(layout.VALUES, 0)
    results = [(layout.OF_LEAST, word, word, 0, 1), (layout.OF_GREATEST, word, word, 0, 1), (layout.OF_COUNT, word, 0, 0, 1)]
    groups = Groups(steps, results, 5, 1 << 10)
    rng = np.random.default_rng(5)
    values, codes = rng.integers(0, 3000, 40_000), rng.integers(0, 50, 40_000).astype(np.int32)

    def rows(part: slice, sign: int) -> GroupedColumns:
        n = len(codes[part])
        return GroupedColumns(
            codes[part], np.full(n, sign, np.int8), np.ascontiguousarray(values[part].reshape(1, n)), np.zeros((1, n), np.uint8)
        )

    groups.add(rows(slice(None), 1))
    for first in range(0, 40_000, 8000):
        left = slice(first, None)
        out = groups.emit(np.arange(50, dtype=np.int32))
        for code in range(50):
            mine = values[left][codes[left] == code]
            assert out[code, 1:4].tolist() == [mine.min(), mine.max(), len(set(mine.tolist()))]
        groups.check(100)
        groups.add(rows(slice(first, first + 8000), -1))
    groups.check(100)
    assert groups.groups == 0

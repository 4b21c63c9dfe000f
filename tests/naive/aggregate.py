"""The naive twin of `structures.aggregate`: a list of rows for each group; sums are fractions."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import NamedTuple


class Row(NamedTuple):
    """An integer, and a float by its bits; each may be null."""

    number: int | None
    bits: int | None


def float_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def bits_of(value: float) -> int:
    """Return the bits of a float; NaN has a single form."""
    return int(struct.unpack("<q", struct.pack("<d", math.nan if math.isnan(value) else value))[0])


def nearest(number: Fraction) -> float:
    """Round to the nearest, ties to even; infinite beyond the greatest float."""
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def float_sum(values: list[float], divisor: int = 1) -> float | None:
    if not values:
        return None
    odd = {value for value in values if math.isinf(value)}
    if len(odd) == 2 or any(math.isnan(value) for value in values):
        return math.nan
    if odd:
        return odd.pop()
    return nearest(sum(map(Fraction, values), Fraction()) / divisor)


def position(value: float) -> tuple[bool, float]:
    """Return a sort key: NaN is the greatest, and -0.0 equals 0.0."""
    return (True, 0.0) if math.isnan(value) else (False, value + 0.0)


def _words(total: int | None) -> tuple[int | None, int | None]:
    if total is None or abs(total) >= 10**38:
        return None, None
    return total >> 64, (total + 2**63) % 2**64 - 2**63


def emitted(rows: list[Row]) -> list[int | None]:
    """Return COUNT(*), then COUNT, SUM, AVG, MIN, MAX, COUNT(DISTINCT) of the integers, then COUNT, SUM, AVG, MIN, MAX, COUNT(DISTINCT)
    of the floats, the latter as bits; then the sum of the integers as two words, that of the integers times 2**64 + 1, and a thousandth
    of the mean of these."""
    numbers = [row.number for row in rows if row.number is not None]
    floats = [float_of(row.bits) for row in rows if row.bits is not None]
    total = sum(numbers)
    fits = bool(numbers) and -(2**63) <= total < 2**63
    wider = total * (2**64 + 1) if numbers else None
    summed, mean = float_sum(floats), float_sum(floats, max(1, len(floats)))
    least, greatest = (pick(map(position, floats), default=None) for pick in (min, max))
    return [
        len(rows), len(numbers), total if fits else None, bits_of(total / len(numbers)) if numbers else None,
        min(numbers, default=None), max(numbers, default=None), len(set(numbers)), len(floats),
        *(None if value is None else bits_of(value) for value in (summed, mean)),
        *(None if value is None else bits_of(math.nan if value[0] else value[1]) for value in (least, greatest)),
        len(set(map(position, floats))),
        *_words(total if numbers else None), *_words(wider), None if wider is None else bits_of(wider / (1000 * len(numbers))),
    ]  # fmt: skip

"""`date_trunc`: the beginning of a period of time, from microseconds to millennia, in UTC; weeks begin on Monday (ISO 8601), a decade in a
year that ends in 0, centuries and millennia in one that ends in 01.

A period that begins before the first time of the type is truncated to that time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from livejoin.wire.grammar import DAY, INT64_MIN

Ints = npt.NDArray[np.int64]

_MICROS = {"microseconds": 1, "milliseconds": 1000, "second": 1_000_000, "minute": DAY // 1440, "hour": DAY // 24}
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12_000}
_FIRST_DAY = -(2**31)
_TO_MONDAY = 3  # days from the Monday before to 1970-01-01, a Thursday


def trunc_timestamps(unit: str, micros: Ints) -> Ints:
    """Microseconds since 1970."""
    if (size := _MICROS.get(unit)) is not None:
        return _begin(micros // size, size)
    return _begin(_days(unit, micros // DAY), DAY)


def trunc_dates(unit: str, days: Ints) -> Ints:
    """Days since 1970."""
    found: Ints = np.maximum(_days(unit, days), _FIRST_DAY)
    return found


def civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """Return year, month and day of days since 1970; the year 0 is before the year 1."""
    months = _months(days)
    return months // 12 + 1970, months % 12 + 1, days - _to_days(months) + 1


def first_days(year: Ints, month: Ints) -> Ints:
    """Return the first day of each month, in days since 1970."""
    return _to_days((year - 1970) * 12 + month - 1)


def _begin(counts: Ints, size: int) -> Ints:
    """counts * size, but at least the smallest int64."""
    fits = counts >= -(-INT64_MIN // size)
    found: Ints = np.where(fits, np.where(fits, counts, 0) * size, INT64_MIN)
    return found


def _days(unit: str, days: Ints) -> Ints:
    if unit == "day":
        return days
    if unit == "week":
        return (days + _TO_MONDAY) // 7 * 7 - _TO_MONDAY
    size = _MONTHS[unit]
    since = -12 * 1970 + (12 if unit in ("century", "millennium") else 0)  # the months from 1970 to a beginning
    return _to_days((_months(days) - since) // size * size + since)


def _months(days: Ints) -> Ints:
    found: Any = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    made: Ints = found
    return made


def _to_days(months: Ints) -> Ints:
    found: Ints = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return found

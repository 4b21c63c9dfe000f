"""`date_trunc`: the beginning of the hour, day, week, month, quarter or year of a time, in UTC; weeks begin on Monday (ISO 8601).

A period that begins before the first time of the type is truncated to that time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from livejoin.wire.grammar import DAY, INT64_MIN

Ints = npt.NDArray[np.int64]

_HOUR = DAY // 24
_FIRST_DAY = -(2**31)
_TO_MONDAY = 3  # days from the Monday before to 1970-01-01, a Thursday


def trunc_timestamps(unit: str, micros: Ints) -> Ints:
    """Microseconds since 1970."""
    if unit == "hour":
        return _begin(micros // _HOUR, _HOUR)
    return _begin(_days(unit, micros // DAY), DAY)


def trunc_dates(unit: str, days: Ints) -> Ints:
    """Days since 1970."""
    found: Ints = np.maximum(_days(unit, days), _FIRST_DAY)
    return found


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
    months: Any = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    size = {"month": 1, "quarter": 3, "year": 12}[unit]
    first = months // size * size
    found: Ints = first.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return found

"""Converts times without an offset, as local times of a zone of the IANA database, to microseconds since 1970 UTC.

A time that does not exist (clocks are put forward) or exists twice (they are put back) gets the offset before the change, as with Python's
`fold=0` (PEP 495), and is *unclear*: it is counted.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ZONE = re.compile(r"[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
LONGEST_ZONE = 64  # characters

_EPOCH = datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
# The years for which Arrow has the transitions; beyond them it knows no rule, Python does.
_FIRST, _LAST = ((datetime(year, 1, 1) - _EPOCH) // _MICRO for year in (1800, 2037))


class LocalizedColumn(NamedTuple):
    """A column in UTC: null where it was null, and at `bad`. `unclear`: the number of times that were not exactly one instant."""

    micros: pa.Array
    bad: list[int]
    unclear: int


class LocalTimes:
    """The local times of one zone."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self._zone = ZoneInfo(zone)

    def utc(self, micros: int) -> int:
        """Convert a local time, as microseconds since 1970; ValueError outside the years 1 to 9999."""
        return self._utc(micros)[0]

    def is_unclear(self, micros: int) -> bool:
        """Return whether there are two such times, or none."""
        return self._utc(micros)[1]

    def _utc(self, micros: int) -> tuple[int, bool]:
        try:
            first, second = ((_EPOCH + micros * _MICRO).replace(tzinfo=self._zone, fold=fold).utcoffset() for fold in (0, 1))
        except OverflowError:
            raise ValueError("out of range for a local time") from None
        assert first is not None
        return micros - first // _MICRO, first != second

    def column(self, local: pa.Array) -> LocalizedColumn:
        """Convert a column timestamp[us] without a zone. Vectorised, except for times that are unclear, or after 2036."""
        given = local.cast(pa.int64())
        numbers: npt.NDArray[np.int64] = given.fill_null(0).to_numpy()
        within = (numbers >= _FIRST) & (numbers < _LAST)
        known = pa.array(np.where(within, numbers, 0)).view(pa.timestamp("us"))
        try:
            early, late = (
                pc.assume_timezone(known, self.zone, ambiguous=choice, nonexistent=choice).cast(pa.int64()).to_numpy()
                for choice in ("earliest", "latest")
            )
            single = within & (early != late)
        except pa.ArrowException:  # no database of zones where Arrow expects it
            early, single = numbers.copy(), within
        result, bad, unclear = np.array(early), [], 0
        present = given.is_valid().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero((single | ~within) & present).tolist():
            try:
                result[row], twice = self._utc(int(numbers[row]))
                unclear += twice
            except ValueError:
                bad.append(row)
        nulls = ~present
        nulls[bad] = True
        return LocalizedColumn(pa.array(result, mask=nulls).view(pa.timestamp("us", "UTC")), bad, unclear)


@lru_cache(64)
def local_times(zone: str) -> LocalTimes:
    """Return the local times of a zone that `is_zone`."""
    return LocalTimes(zone)


def is_zone(name: str) -> bool:
    """Return whether the IANA database on this machine has a zone of that name."""
    if len(name) > LONGEST_ZONE or not ZONE.fullmatch(name):
        return False
    try:
        return datetime.now(UTC).astimezone(ZoneInfo(name)) is not None
    except (KeyError, ValueError, OSError):
        return False

"""Local times of a zone of the IANA database, for whole columns of any times of int64.

The offsets of a zone are read from Python's database, which has rules for all years, Arrow's for those up to 2037. The calendar repeats
after 400 years, so later times have the offset of the same moment between 2100 and 2500.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from livejoin.wire.grammar import DAY
from service.tables.values.columns import INT64, Ints, Mask

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_CYCLE = 146_097 * DAY
_FIRST, _LAST = ((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // _MICRO for year in (1800, 2500))
_STEP = 7 * DAY  # no zone has ever left an offset and returned to it within a week


def to_local(micros: Ints, zone: str) -> tuple[Ints, Mask]:
    """Return what clocks in the zone show, and which of that is out of range."""
    return added(micros, offsets(micros, zone))


def from_local(local: Ints, zone: str) -> tuple[Ints, Mask]:
    """Return the instants at which clocks in the zone show these times, and which of them are out of range. As in PostgreSQL, of two
    instants it is the later one, and a time that is left out has the offset before the change."""
    day = np.clip(local, INT64.min + DAY, INT64.max - DAY)
    before, after = offsets(day - DAY, zone), offsets(day + DAY, zone)
    later, _ = added(local, -after)
    return added(local, -np.where(offsets(later, zone) == after, after, before))


def added(x: Ints, y: Ints) -> tuple[Ints, Mask]:
    with np.errstate(all="ignore"):
        found = x + y
    return found, ((x ^ found) & (y ^ found)) < 0


def offsets(micros: Ints, zone: str) -> Ints:
    """Return the offset from UTC at each instant, in microseconds."""
    starts, values = _changes(zone)
    late = micros >= _LAST
    if late.any():
        micros = np.where(late, _LAST - _CYCLE + (micros - _LAST) % _CYCLE, micros)
    found: Ints = values[np.searchsorted(starts, micros, "right")]
    return found


@lru_cache(64)
def _changes(zone: str) -> tuple[Ints, Ints]:
    """Return the instants from which another offset is used, and the offsets: one before the first of them, one after each. Cost: 50 ms."""
    info = ZoneInfo(zone)

    def offset(micros: int) -> int:
        found = (_EPOCH + micros * _MICRO).astimezone(info).utcoffset()
        assert found is not None
        return found // _MICRO

    starts, values = list[int](), [offset(_FIRST)]
    for end in range(_FIRST + _STEP, _LAST + _STEP, _STEP):
        if offset(end) == values[-1]:
            continue
        low, high = (end - _STEP) // 1_000_000, end // 1_000_000  # changes are at whole seconds
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle * 1_000_000) == values[-1] else (low, middle)
        starts.append(high * 1_000_000)
        values.append(offset(end))
    return np.array(starts, np.int64), np.array(values, np.int64)

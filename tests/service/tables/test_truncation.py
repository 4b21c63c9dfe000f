"""Where units of time begin: by the calendar of `datetime`, and at the ends of what the types hold."""

from __future__ import annotations

import datetime
import random

import numpy as np
import pytest

from service.query.groups import UNITS
from service.tables.truncation import trunc_dates, trunc_timestamps
from tests.service.grouped import truncated

MIN, MAX = -(2**63), 2**63 - 1
DAY = 86_400_000_000


@pytest.mark.parametrize("unit", UNITS)
def test_timestamps(unit: str) -> None:
    rng = random.Random(unit)
    first, last = (int(datetime.datetime(*at).timestamp()) * 10**6 for at in ((2, 1, 1), (9998, 1, 1)))
    given = [rng.randrange(first, last) for _ in range(2000)] + [0, -1, 1, -DAY, DAY, 4 * DAY, 4 * DAY - 1, 951_782_400_000_000]
    assert trunc_timestamps(unit, np.array(given)).tolist() == [truncated(unit, at) for at in given]


@pytest.mark.parametrize("unit", UNITS)
def test_the_ends_of_time(unit: str) -> None:
    """What begins before the first timestamp begins with it; nothing begins later than it is."""
    given = np.array([MIN, MIN + 1, MIN + DAY, MIN + 366 * DAY, MAX, MAX - 1])
    found = trunc_timestamps(unit, given)
    assert found[0] == MIN and (found <= given).all() and (given[2:] - found[2:] <= 366 * DAY).all()
    assert (trunc_timestamps(unit, found) == found).all()


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit != "hour"])
def test_dates(unit: str) -> None:
    days = np.array([0, -1, 3, 4, 59, 60, 10_957, -719_000, 2_900_000, -(2**31), 2**31 - 1])
    found = trunc_dates(unit, days)
    assert (found <= days).all() and found.min() >= -(2**31)
    some = days[:-2]
    assert found[:-2].tolist() == [truncated(unit, int(day) * DAY) // DAY for day in some]

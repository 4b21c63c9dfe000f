"""A day of churn in seconds: loads entries, changes as many while pins come and go, and tells what was held, fresh, at most and in the end:
bytes of the stores, and resident ones besides what the process had before."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import psutil

from tests.structures.core.churned import LINE, SUBJECTS

MOST_PINS = 12
LARGE, MANY_LARGE, MANY_SMALL = 200, 80, 200  # batches of one in so many entries, and of a tenth of that: as many go and come as there are
PINNED = 80  # the version from which on there are no pins
QUIET, FEW = 600, 10  # seconds in which only a few entries change
NO_PINS = np.empty(0, np.int64)


class Held(NamedTuple):
    store: int
    resident: int


class Churned(NamedTuple):
    """What was held when all was loaded, at most, and in the end."""

    fresh: Held
    most: Held
    last: Held


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def churn(name: str, n: int, checked: bool = False, seed: int = 13) -> Churned:
    """Of n entries, n changes (one goes or comes). `checked`: the invariants are proved in the end."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, LINE, n)
    later = values.copy()
    some = min(n, 10_000)
    first = SUBJECTS[name](some)  # what the kernels need to be loaded
    first.load(np.arange(some), values)
    for version in range(2, 12):  # many change, then few
        old, new = (values, values[::-1]) if version % 2 == 0 else (values[::-1], values)
        first.change(version, np.arange(some // 2 if version < 5 else some // 32), old, new)
        first.reclaim(version, NO_PINS)
    subject = SUBJECTS[name](n)
    before = _resident()
    subject.load(np.arange(n), values)
    fresh = most = Held(subject.held, _resident() - before)
    pins: list[int] = []
    for version, size in enumerate([n // LARGE] * MANY_LARGE + [n // LARGE // 10] * MANY_SMALL + [FEW] * QUIET, 2):
        numbers = np.unique(rng.integers(0, n, size))
        later[numbers] = rng.integers(0, LINE, len(numbers))
        subject.change(version, numbers, values, later)
        values[numbers] = later[numbers]
        if rng.random() < 0.5 and version < PINNED:
            pins.append(version)
        while pins and (version >= PINNED or len(pins) > MOST_PINS or rng.random() < 0.3):
            del pins[int(rng.integers(len(pins)))]
        subject.reclaim(version, np.array(pins, np.int64))
        most = Held(max(most.store, subject.held), max(most.resident, _resident() - before))
    last = Held(subject.held, _resident() - before)
    if checked:
        subject.check()
    return Churned(fresh, most, last)


def emit(name: str, n: int) -> None:
    print(json.dumps(churn(name, n)), flush=True)

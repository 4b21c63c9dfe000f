"""Generated intervals with a known number of partners, and changes to them. Seeds are fixed: every run gets the same data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.entries import Entries

LINE = 10**12  # length of the line on which the intervals lie
ROOMS = 50_000


class Workload(NamedTuple):
    """`entries`: the initial intervals, with the same distribution in sets 0 and 1; `fresh`: as many of the same kind to insert, with slots
    of their own."""

    name: str
    entries: Entries
    fresh: Entries


def uniform(n: int, partners: float) -> Workload:
    """n intervals in total, each meeting `partners` of the other set on average."""
    return _workload(f"k = {partners:g}", n, lambda rng: _spread(rng, n, 0, LINE, partners))


def keyed(n: int, partners: float, rooms: int) -> Workload:
    """The same, on `rooms` separate lines."""

    def make(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        left, right = _spread(rng, n, 0, LINE, partners * rooms)
        return left, right, rng.integers(0, rooms, n).astype(np.int32)

    return _workload(f"k = {partners:g}, {rooms} rooms", n, make)


def crowded(n: int, partners: float) -> Workload:
    """Half of the intervals lie in a ten-thousandth of the line and are proportionally shorter. (A long interval that covers the crowd
    meets thousands of them, so there are up to half as many rows again.)"""

    def make(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        dense = rng.random(n) < 0.5
        left, right = _spread(rng, n, 0, LINE, 2 * partners)
        at = LINE // 3
        dense_left, dense_right = _spread(rng, n, at, LINE // 10_000, 2 * partners)
        return np.where(dense, dense_left, left), np.where(dense, dense_right, right)

    return _workload("half in a ten-thousandth", n, make)


def heavy_tailed(n: int, partners: float) -> Workload:
    """Lengths with a Pareto distribution of exponent 1.1, up to the whole line, scaled to the number of partners."""

    def make(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        left, shape = rng.integers(0, LINE, n), rng.pareto(1.1, n) + 1
        low, high = 0.0, float(LINE)
        for _ in range(60):
            scale = (low + high) / 2
            if np.minimum(shape * scale, LINE).mean() * n / LINE > partners:
                high = scale
            else:
                low = scale
        return left, left + np.minimum(shape * low, LINE).astype(np.int64)

    return _workload("Pareto lengths", n, make)


def _spread(rng: np.random.Generator, n: int, start: int, line: int, partners: float) -> tuple[np.ndarray, np.ndarray]:
    """n intervals on [start, start + line); each meets one of the other half with probability (mean length) * 2 / line."""
    left = start + rng.integers(0, line, n)
    return left, left + rng.integers(0, max(int(2 * partners * line / n), 1) + 1, n)


def _workload(name: str, n: int, make) -> Workload:
    return Workload(name, _entries(n, make(np.random.default_rng(1)), 0), _entries(n, make(np.random.default_rng(2)), n))


def _entries(n: int, columns: tuple[np.ndarray, ...], first_slot: int) -> Entries:
    left, right, *key = columns
    sets = (np.arange(n) % 2).astype(np.uint8)
    keys = key[0] if key else np.zeros(n, np.int32)
    return Entries(sets, keys, left, right, np.arange(first_slot, first_slot + n, dtype=np.int32))

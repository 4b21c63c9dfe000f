"""Intervals of several sets for joins of many relations, and the topologies that join them. Seeds are fixed: every run gets the same data.

Interval number i belongs to set i % t, initially and among those to insert, so a change inserts an interval into the set from which it has
deleted one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from structures.ij_heap.heap import Entries, Topology
from tests.benchmarks.data import LINE, Workload

Make = Callable[[np.random.Generator, np.ndarray], tuple[np.ndarray, np.ndarray]]  # the sets on the left and on the right


def path(t: int) -> Topology:
    return Topology(t, [(i, i + 1) for i in range(t - 1)])


def star(t: int) -> Topology:
    return Topology(t, [(0, i) for i in range(1, t)])


def cycle(t: int) -> Topology:
    return Topology(t, [(i, (i + 1) % t) for i in range(t)])


def clique(t: int) -> Topology:
    return Topology(t, [(i, j) for j in range(t) for i in range(j)])


def even(t: int, n: int, partners: float) -> Workload:
    """n intervals in total, each meeting `partners` of every other set on average; lengths are between zero and twice their mean."""
    longest = int(t * partners * LINE / n)
    return _workload(f"k = {partners:g}", t, n, lambda rng, sets: _placed(rng, rng.integers(0, longest + 1, n)))


def heavy_tails(t: int, n: int, partners: float) -> Workload:
    """Lengths with a Pareto distribution of exponent 1.5 (no finite variance), at most a hundredth of the line, with the same mean as in
    `even`."""

    def make(rng: np.random.Generator, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = t * partners * LINE / (2 * n)
        return _placed(rng, np.minimum((rng.pareto(1.5, n) + 1) * mean / 3, LINE / 100).astype(np.int64))

    return _workload("heavy tails", t, n, make)


def nested(t: int, n: int, depth: int = 4) -> Workload:
    """Groups of t * depth intervals, each inside the one before it, so that ends descend while starts ascend."""

    def make(rng: np.random.Generator, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = t * depth
        room = LINE // (n // size + 1)
        number = np.arange(n)
        middle = number // size * room + room // 2
        reach = (room // 2 - 1) * (size - number % size) // size - rng.integers(0, room // (8 * size), n)
        return middle - reach, middle + reach

    return _workload("nested", t, n, make)


def two_level(t: int, n: int, partners: float) -> Workload:
    """One in a hundred intervals is 32 times as long as the others. An algorithm that searches by the maximum length visits 32 times as
    many."""

    def make(rng: np.random.Generator, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        longest = int(t * partners * LINE / n)
        return _placed(rng, rng.integers(0, longest + 1, n) * np.where(rng.random(n) < 0.01, 32, 1))

    return _workload("two-level", t, n, make)


def comb(t: int, n: int, partners: float) -> Workload:
    """Set 1 is long, the others are short, like the teeth of a comb. An interval of set 1 meets `partners` of each of them, a tooth as many
    of set 1."""

    def make(rng: np.random.Generator, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _placed(rng, np.where(sets == 1, int(t * partners * LINE / n), 1))

    return _workload("comb", t, n, make)


def rare(t: int, n: int, partners: float) -> Workload:
    """On every stretch of the line, one of the sets has only one interval in a thousand: every interval has partners, but hardly any is in
    a row."""

    def make(rng: np.random.Generator, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        stretches = max(n // 64, 1)
        room = LINE // stretches
        position = rng.integers(0, stretches, n)
        barred = (position % t == sets) & (rng.random(n) >= 0.001)
        position = np.where(barred, (position + 1) % stretches, position)
        longest = max(min(int(t * partners * LINE / n), room // 2), 1)
        left = position * room + rng.integers(0, room - longest, n)
        return left, left + rng.integers(0, longest, n)

    return _workload("rows are rare", t, n, make)


def nearly(t: int, n: int) -> Workload:
    """One set: on every stretch of the line, t - 1 intervals share a point; on a few in a hundred, t do."""

    def make(rng: np.random.Generator, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        stretches = n // (t - 1)
        room = LINE // stretches
        position = (np.arange(n) + (rng.random(n) < 0.01)) % stretches
        left = position * room + rng.integers(0, room // 4, n)
        return left, left + room // 2

    return _workload(f"{t - 1} meet, {t} hardly ever", 1, n, make)


def hostile(t: int, n: int, partners: float) -> Sequence[Workload]:
    return nested(t, n), two_level(t, n, partners), comb(t, n, 4 * partners), heavy_tails(t, n, partners), rare(t, n, partners)


def _placed(rng: np.random.Generator, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left = rng.integers(0, LINE, len(lengths))
    return left, left + lengths


def _workload(name: str, t: int, n: int, make: Make) -> Workload:
    return Workload(name, _entries(t, n, make, 1, 0), _entries(t, n, make, 2, n))


def _entries(t: int, n: int, make: Make, seed: int, first_slot: int) -> Entries:
    sets = (np.arange(n) % t).astype(np.uint8)
    left, right = make(np.random.default_rng(seed), sets)
    return Entries(sets, np.zeros(n, np.int32), left, right, np.arange(first_slot, first_slot + n, dtype=np.int32))

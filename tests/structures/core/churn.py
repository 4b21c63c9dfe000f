"""A day of churn in seconds: loads 10^6 entries, changes as many while pins come and go, and prints as JSON what was held, fresh, at most
and in the end: bytes of the store, and resident ones besides what the process had before."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import psutil

from structures.core.entries import Entries
from structures.ij_heap.heap import IJHeap, Topology
from structures.index.indexes import Changes, OrderedIndexes
from structures.index.indexes import Entries as Tuples
from structures.interval.tree import IntervalTree

N, MOST_PINS = 1_000_000, 12
BATCHES = [5_000] * 80 + [500] * 200  # entries that are changed: one goes, one comes; a million changes together
PINNED = 80  # the version from which on there are no pins
NO_PINS = np.empty(0, np.int64)


class Held(NamedTuple):
    store: int
    resident: int


class _Trees:
    """A tree of intervals; the slot of an entry is its number, which is given to another one when it goes."""

    def __init__(self, tree: Any) -> None:
        self.tree, self.arena = tree, tree.arena

    def _entries(self, numbers: np.ndarray, values: np.ndarray) -> Entries:
        left = values[numbers]
        return Entries((numbers & 1).astype(np.uint8), np.zeros(len(numbers), np.int32), left, left + 1000, numbers.astype(np.int32))

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        self.tree.bulk_load(1, self._entries(numbers, values))

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        self.tree.apply(version, self._entries(numbers, values), self._entries(numbers, later), None)


class _Index:
    def __init__(self) -> None:
        self.tree = OrderedIndexes()
        self.arena, self.number = self.tree.arena, self.tree.add(2)

    def _entries(self, numbers: np.ndarray, values: np.ndarray) -> Tuples:
        return Tuples(np.column_stack((values[numbers], numbers)), numbers.astype(np.int32))

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        self.tree.begin(1)
        self.tree.load(self.number, self._entries(numbers, values))

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        self.tree.begin(version)
        self.tree.apply({self.number: Changes(self._entries(numbers, values), self._entries(numbers, later))})


STRUCTURES = {
    "interval": lambda: _Trees(IntervalTree("pair")),
    "ij_heap": lambda: _Trees(IJHeap(Topology(2, ((0, 1),)))),
    "index": _Index,
}


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def churn(name: str) -> tuple[Held, Held, Held]:
    """What is held fresh, at most, and in the end."""
    rng = np.random.default_rng(13)
    values = rng.integers(0, 10**9, N)
    later = values.copy()
    first = STRUCTURES[name]()  # what the kernels need to be loaded
    first.load(np.arange(10_000), values)
    first.change(2, np.arange(10), values, values[::-1])
    subject = STRUCTURES[name]()
    before = _resident()
    subject.load(np.arange(N), values)
    fresh = most = Held(subject.arena.held_bytes, _resident() - before)
    pins: list[int] = []
    for version, size in enumerate(BATCHES, 2):
        numbers = np.unique(rng.integers(0, N, size))
        later[numbers] = rng.integers(0, 10**9, len(numbers))
        subject.change(version, numbers, values, later)
        values[numbers] = later[numbers]
        if rng.random() < 0.5 and version < PINNED:
            pins.append(version)
        while pins and (version >= PINNED or len(pins) > MOST_PINS or rng.random() < 0.3):
            del pins[int(rng.integers(len(pins)))]
        subject.tree.reclaim(version, np.array(pins, np.int64))
        most = Held(max(most.store, subject.arena.held_bytes), max(most.resident, _resident() - before))
    for _ in range(60):  # seconds in which nothing happens
        subject.tree.reclaim(version, NO_PINS)
    return fresh, most, Held(subject.arena.held_bytes, _resident() - before)


def tell(name: str) -> None:
    print(json.dumps(churn(name)), flush=True)

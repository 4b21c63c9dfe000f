"""`Tops` and `Validity` against their naive twins, and hostile data: all orders equal, one key, many rows a key."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.entries import DELETE, INSERT
from structures.core.kernel import JIT
from structures.index.indexes import Entries
from structures.ranked.entries import RankedChanges
from structures.ranked.tops import Tops
from tests.structures.machines import drive
from tests.structures.ranked.machine import TopsMachine, ValidityMachine

NO_PINS = np.empty(0, np.int64)


@pytest.mark.parametrize("machine", [TopsMachine, ValidityMachine])
def test_against_the_twin(machine: type[TopsMachine | ValidityMachine]) -> None:
    drive(machine, 60 if JIT else 13, 25)


def of(keys: list[int], orders: list[int], slots: list[int]) -> Entries:
    return Entries(np.ascontiguousarray(np.array([keys, orders], np.int64).T), np.array(slots, np.int32))


def test_all_orders_equal() -> None:
    """Each change looks at all that ties, more than are listed at once, and one row is told to go and one to come."""
    n = 500 if JIT else 40
    tops = Tops(2, 1, lambda slots: -slots.astype(np.int64), 1 << 20, 1 << 20)
    tops._listed = type(tops._listed)(*(column[:7] for column in tops._listed))
    tops.load(1, of([4] * n, [9] * n, list(range(n))))
    for version in range(2, 12):
        last = n + 1 - version
        emitted = tops.apply(version, RankedChanges(of([4], [9], [last]), np.array([DELETE], np.int8), np.ones(1, np.int64)))
        assert emitted.slots.tolist() == [~last, last - 1]
    tops.check()
    assert tops.steps >= 2 * 10 * (n - 10)


def test_what_is_not_there_cannot_go() -> None:
    for sign, slot in ((DELETE, 8), (INSERT, 7)):
        tops = Tops(2, 1, None, 1 << 20, 1 << 20)
        tops.load(1, of([0], [1], [7]))
        with pytest.raises(KeyError, match="not there"):
            tops.apply(2, RankedChanges(of([0], [1], [slot]), np.array([sign], np.int8), np.ones(1, np.int64)))


def test_room() -> None:
    tops = Tops(2, 3, None, 1 << 16, 1 << 16)
    tops.require(10)
    with pytest.raises(MemoryError, match="size"):
        tops.require(1 << 22)


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
@pytest.mark.parametrize("most", [1, 3, 200])
def test_tens_of_thousands(most: int) -> None:
    """Random batches of a thousand changes, against sorting."""
    rng, n = np.random.default_rng(7), 20_000
    tops = Tops(3, most, None, 1 << 26, 1 << 26)
    coordinates = np.stack([rng.integers(0, 300, n), rng.integers(0, 1000, n), rng.permutation(n)], axis=1)
    there = np.arange(n) < n // 2
    tops.load(1, Entries(coordinates[there], np.flatnonzero(there).astype(np.int32)))
    emitted_so_far = set(_sorted_firsts(coordinates, there, most))
    for version in range(2, 12):
        some = np.sort(rng.choice(n, 1000, replace=False)).astype(np.int32)
        signs = np.where(there[some], DELETE, INSERT).astype(np.int8)
        order = np.lexsort((signs, coordinates[some, 0]))
        some, signs = some[order], signs[order]
        ends = np.flatnonzero(np.append(np.diff(coordinates[some, 0]) != 0, True)) + 1
        tops.require(len(some))
        emitted = tops.apply(version, RankedChanges(Entries(np.ascontiguousarray(coordinates[some]), some), signs, ends))
        there[some] ^= True
        deleted, inserted = {~slot for slot in emitted.slots.tolist() if slot < 0}, {slot for slot in emitted.slots.tolist() if slot >= 0}
        assert deleted <= emitted_so_far and not inserted & emitted_so_far
        emitted_so_far = (emitted_so_far - deleted) | inserted
        assert emitted_so_far == set(_sorted_firsts(coordinates, there, most))
        tops.reclaim(version, NO_PINS, 1 << 40)
    tops.check()


def _sorted_firsts(coordinates: np.ndarray, there: np.ndarray, most: int) -> list[int]:
    slots = np.flatnonzero(there)
    order = slots[np.lexsort((coordinates[slots, 2], coordinates[slots, 1], coordinates[slots, 0]))]
    keys = coordinates[order, 0]
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    position = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    return [int(slot) for slot in order[position < most]]

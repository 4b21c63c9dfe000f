"""`IJHeap` against its naive twin, and what it promises about steps and memory, by counting."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from structures.core.kernel import JIT
from structures.ij_heap.heap import Entries, IJHeap, Topology
from tests.naive.interval_join import Interval, entries
from tests.structures.ij_heap.machine import IJMachine
from tests.structures.machines import read_all

NONE = entries([])
PATH = Topology(3, ((0, 1), (1, 2)))


def test_against_the_twin() -> None:
    examples = 60 if JIT else 13
    checks = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    run_state_machine_as_test(IJMachine, settings=checks)


def test_deleting_what_is_not_there_is_an_error() -> None:
    heap = IJHeap(PATH, 1 << 20)
    heap.bulk_load(1, entries([Interval(0, 0, 1, 2, 3)]))
    with pytest.raises(KeyError):
        heap.apply(2, entries([Interval(0, 0, 1, 2, 4)]), NONE, None)


def test_a_full_arena_refuses_before_it_begins() -> None:
    heap = IJHeap(PATH, 1 << 14)
    root = heap.bulk_load(1, entries([Interval(0, 0, 1, 2, 3)]))
    with pytest.raises(MemoryError):
        heap.apply(2, NONE, entries([Interval(0, 0, i, i, i + 10) for i in range(5000)]), None)
    assert heap.root == root
    heap.check(root)


@pytest.mark.skipif(not JIT, reason="counts at sizes that need compiled kernels")
def test_one_row_among_tens_of_thousands_of_intervals() -> None:
    """It is found, told when it comes and goes, in polylog n steps, and the memory is linear."""
    per_entry = []
    for n in (3_000, 30_000, 300_000):
        left = np.arange(n, dtype=np.int64) * 10
        right, middle = left + 3, n // 6 * 3 + 1
        right[middle] = left[middle + 2] + 1
        every = Entries((np.arange(n) % 3).astype(np.uint8), np.zeros(n, np.int32), left, right, np.arange(n, dtype=np.int32))
        heap = IJHeap(PATH)
        cursor = heap.rows(heap.bulk_load(1, every))
        assert read_all(cursor) == [(middle + 2, middle, middle + 1)]
        assert cursor.steps <= 4 * log2(n), (n, cursor.steps)
        told: list[tuple[int, int]] = []

        def sink(sign: int, slots: np.ndarray, told: list[tuple[int, int]] = told) -> bool:
            told.append((sign, slots.shape[1]))
            return True

        before, one = heap.update_steps, every.take(slice(middle, middle + 1))
        heap.apply(2, one, NONE, sink)
        heap.apply(3, NONE, one, sink)
        assert told == [(-1, 1), (1, 1)]
        assert heap.update_steps - before <= 5 * log2(n), (n, heap.update_steps - before)
        per_entry.append(heap.live_bytes / n)
    assert max(per_entry) < 1.2 * min(per_entry), per_entry

"""`PairCounts` against its naive twin, and what it does with wrong pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from structures.core.entries import NO_ENTRIES
from structures.core.kernel import JIT
from structures.outer.counts import Own, PairCounts
from tests.naive.interval_join import Interval, entries
from tests.structures.outer.machine import CountsMachine

SLOTS, NUMBERS = np.empty(0, np.int32), np.empty(0, np.int64)
NOTHING = Own(NUMBERS, SLOTS, NUMBERS, SLOTS, SLOTS, np.empty(0, np.uint8), NUMBERS, SLOTS)


def test_against_the_twin() -> None:
    examples = 60 if JIT else 13
    checks = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    run_state_machine_as_test(CountsMachine, settings=checks)


def test_what_is_not_listed_cannot_go() -> None:
    counts = PairCounts(1 << 20)
    with pytest.raises(KeyError, match="not there"):
        counts.relist(2, entries([Interval(0, 0, 1, 2, 7)]), np.zeros(1, np.bool_))


def test_room() -> None:
    with pytest.raises(MemoryError, match="size"):
        PairCounts(1 << 16).require(1 << 20)


def test_a_run_in_which_a_row_flips_often() -> None:
    """By version: it has its only partner, loses it, has another; nothing is told of a version in which it keeps one."""
    counts = PairCounts(1 << 20)
    row = entries([Interval(0, 0, 1, 9, 5)])
    counts.load(1, row, NO_ENTRIES)
    counts.begin(NOTHING)
    told = [(0, True), (1, False), (2, True), (3, True), (3, False), (4, False)]
    at, comes = (np.array(column) for column in zip(*told, strict=True))
    counts.take(at, comes, np.full(len(told), 5, np.int32))
    flips = counts.end()
    assert [*zip(flips.at.tolist(), flips.slots.tolist(), strict=True)] == [(0, ~5), (1, 5), (2, ~5), (4, 5)]
    assert counts.flips == 4
    counts.relist(2, row.take(np.zeros(4, np.int64)), flips.slots >= 0)
    counts.check(row, NO_ENTRIES)

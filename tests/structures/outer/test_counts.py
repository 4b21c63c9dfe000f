"""`PairCounts` against its naive twin, and what it does with wrong pairs."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.entries import NO_ENTRIES
from structures.core.kernel import JIT
from structures.outer.counts import OwnRows, PairCounts
from tests.naive.interval_join import Interval, entries
from tests.structures.machines import drive
from tests.structures.outer.machine import CountsMachine

SLOTS, NUMBERS = np.empty(0, np.int32), np.empty(0, np.int64)
NOTHING = OwnRows(NUMBERS, SLOTS, NUMBERS, SLOTS, SLOTS, np.empty(0, np.uint8), NUMBERS, SLOTS)


def test_against_the_twin() -> None:
    drive(CountsMachine, 60 if JIT else 13, 25)


def test_what_is_not_listed_cannot_go() -> None:
    counts = PairCounts(2, 1 << 20)
    with pytest.raises(KeyError, match="not there"):
        counts.relist(2, entries([Interval(0, 0, 1, 2, 7)]), np.zeros(1, np.bool_))


def test_room() -> None:
    with pytest.raises(MemoryError, match="size"):
        PairCounts(2, 1 << 16).require(1 << 20)


def test_a_run_in_which_a_row_flips_often() -> None:
    """By version: it has its only partner, loses it, has another; nothing is told of a version in which it keeps one."""
    counts = PairCounts(2, 1 << 20)
    row = entries([Interval(0, 0, 1, 9, 5)])
    counts.load(1, row, NO_ENTRIES)
    counts.begin(NOTHING)
    emitted = [(0, True), (1, False), (2, True), (3, True), (3, False), (4, False)]
    at, is_inserted = (np.array(column) for column in zip(*emitted, strict=True))
    counts.take(at, is_inserted, np.full(len(emitted), 5, np.int32))
    flips = counts.end()
    assert [*zip(flips.at.tolist(), flips.slots.tolist(), strict=True)] == [(0, ~5), (1, 5), (2, ~5), (4, 5)]
    assert counts.flips == 4
    counts.relist(2, row.take(np.zeros(4, np.int64)), flips.slots >= 0)
    counts.check(row, NO_ENTRIES)


def test_a_guessed_row_of_which_few_partners_are_left_is_named() -> None:
    """However it moves meanwhile; and one that goes, or gets others, is not. Nothing is told of them."""
    counts = PairCounts(4, 1 << 20)
    rows = entries([Interval(0, key, 1, 9, slot) for key, slot in ((0, 5), (0, 6), (1, 7))])
    partners = entries([Interval(0, slot // 6, 1, 9, 100 + slot) for slot in range(12)])
    counts.load(1, rows.take(np.zeros(0, np.int64)), partners)
    for version, slot in enumerate((5, 6, 7), 2):
        counts.begin(NOTHING._replace(inserted_at=np.zeros(1, np.int64), inserted=np.array([slot], np.int32)))
        counts.overrule(slot, 5, False)
        assert not len(counts.end().slots) and not len(counts.few)
        counts.relist(version, NO_ENTRIES, np.zeros(0, np.bool_))
    counts.check(rows, partners)
    five, six, eight = (np.array([slot], np.int32) for slot in (5, 6, 8))
    counts.begin(OwnRows(np.full(1, 5), six, np.full(1, 4), five, eight, np.ones(1, np.uint8), NUMBERS, SLOTS))
    emitted = [(0, False, 5), (0, False, 6), (0, False, 7), (1, False, 5), (2, False, 6), (2, False, 7), (3, True, 7), (4, True, 7)]
    ats, is_inserted, slots = (np.array(column) for column in zip(*emitted, strict=True))
    counts.take(ats, is_inserted, slots.astype(np.int32))
    assert not len(counts.end().slots)
    assert counts.few.tolist() == [8]
    assert not counts.recount(8, 4, True)
    counts.check(entries([Interval(0, 1, 1, 9, 7), Interval(0, 0, 1, 9, 8)]), partners.take(np.arange(2, 12)))

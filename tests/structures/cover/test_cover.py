"""`Cover` against its naive twin, and hostile data: gaps without rows, intervals that touch, open ends."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import JIT
from structures.cover.tree import Cover
from structures.event_tree import runs
from tests.naive.cover import Stretch, stretches
from tests.naive.interval_join import Interval, entries
from tests.structures.cover.machine import CoverMachine
from tests.structures.event_tree.machine import packed
from tests.structures.machines import drive, read_all

NO_PINS = np.empty(0, np.int64)


def test_against_the_twin() -> None:
    drive(CoverMachine, 60 if JIT else 13, 25)


def emitted(cover: Cover, version: int, kind: int, one: Interval) -> tuple[list[Stretch], list[Stretch]]:
    """What goes, and what comes, by one change."""
    rows = cover.apply(version, packed([(kind, one, -1)]), 1 << 40).rows.T.tolist()
    return sorted((~row[0], *row[1:]) for row in rows if row[0] < 0), sorted(tuple(row) for row in rows if row[0] >= 0)


@pytest.mark.parametrize("covered", [False, True])
def test_stretches_without_rows_are_passed_over(covered: bool) -> None:
    """One interval over many gaps, on and off: three of them have rows."""
    n = 3000
    cover = Cover(covered, 1 << 20)
    rows = {i: Interval(0, 0, 1000 * i + 4, 1000 * i + 4 + i, i) for i in range(3)}
    others = {i: Interval(0, 0, 4 * i, 4 * i + 1, i) for i in range(n)}
    cover.load(1, entries(rows.values()), entries(others.values()))
    before = cover.steps
    everywhere = Interval(0, 0, NEG_INF, POS_INF, n)
    came = emitted(cover, 2, runs.PARTNER_INSERT, everywhere)
    emitted_before, emitted_after = (stretches(rows, some, covered) for some in (others, {**others, n: everywhere}))
    assert came == (sorted(emitted_before - emitted_after), sorted(emitted_after - emitted_before))
    assert emitted(cover, 3, runs.PARTNER_DELETE, everywhere) == came[::-1]
    assert cover.steps - before < 200
    cover.check()


def test_intervals_that_touch_are_jumped_over() -> None:
    """Bookings back to back but for one: reading looks at two places."""
    n = 3000
    cover = Cover(False, 1 << 20)
    cover.load(1, entries([Interval(0, 0, 0, 2 * n, 0)]), entries(Interval(0, 0, 2 * i, 2 * i + 1, i) for i in range(n) if i != n // 2))
    cursor = cover.stretches(cover.root)
    assert read_all(cursor) == [(0, n, n + 1), (0, 2 * n, 2 * n)]
    assert cursor.steps < 10
    window = cover.stretches(cover.root, 0, (n + 1, n + 1))
    assert read_all(window) == [(0, n, n + 1)]


@pytest.mark.parametrize("covered", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_reading_goes_on_between_rows_in_a_window(covered: bool, limit: int) -> None:
    """A stretch that begins before the window is whole, wherever a chunk ends."""
    cover = Cover(covered, 1 << 20)
    rows = {i: Interval(0, i % 2, -i, 20 + i, i) for i in range(7)}
    others = {0: Interval(0, 0, 30, 40, 0)} if not covered else {i: Interval(0, i, -3, 9, i) for i in range(2)}
    cover.load(1, entries(rows.values()), entries(others.values()))
    met = {one for one in stretches(rows, others, covered) if one[1] <= 6 and one[2] >= 5}
    assert len(met) == 7
    for cursor in (cover.stretches(cover.root, None, (5, 6)), cover.of_rows(cover.root, entries(rows.values()), (5, 6))):
        assert sorted(read_all(cursor, limit)) == sorted(met)


def test_open_ends() -> None:
    cover = Cover(False, 1 << 20)
    cover.load(1, entries([Interval(0, 0, NEG_INF, POS_INF, 0)]), entries([Interval(0, 0, 5, 7, 0)]))
    assert read_all(cover.stretches(cover.root)) == [(0, NEG_INF, 4), (0, 8, POS_INF)]
    assert emitted(cover, 2, runs.PARTNER_INSERT, Interval(0, 0, NEG_INF, 4, 1)) == ([(0, NEG_INF, 4)], [])
    assert emitted(cover, 3, runs.PARTNER_INSERT, Interval(0, 0, 20, POS_INF, 2)) == ([(0, 8, POS_INF)], [(0, 8, 19)])
    cover.check()


def test_what_is_not_there_cannot_go() -> None:
    for kind in (runs.OUTER_DELETE, runs.PARTNER_DELETE, runs.OUTER_MOVE, runs.PARTNER_MOVE):
        cover = Cover(False, 1 << 20)
        with pytest.raises(KeyError, match="not there"):
            cover.apply(2, packed([(kind, Interval(0, 0, 1, 2, 7), 3)]), None)


@pytest.mark.parametrize("column", runs.Moves._fields)
def test_columns_that_are_too_short_are_refused_first(column: str) -> None:
    cover = Cover(False, 1 << 20)
    moves = packed([(runs.OUTER_INSERT, Interval(0, 0, 1, 2, 7), 3), (runs.PARTNER_INSERT, Interval(0, 0, 1, 2, 8), 3)])
    with pytest.raises(ValueError, match="different lengths"):
        cover.apply(2, moves._replace(**{column: getattr(moves, column)[:1]}), None)
    assert cover.entries(cover.root) == 0
    cover.check()


def test_room() -> None:
    cover = Cover(False, 1 << 16)
    cover.require(10, 10)
    for rows, partners in ((0, 1 << 20), (1 << 20, 0)):
        with pytest.raises(MemoryError, match="size"):
            cover.require(rows, partners)

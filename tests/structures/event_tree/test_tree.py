"""`Matching` and `EventTree` against their naive twin, and hostile data: one partner of all rows, on and off."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries
from structures.core.kernel import JIT
from structures.event_tree import runs
from structures.event_tree.matching import LONELY, Matching, Moves
from tests.naive.interval_join import Interval, entries
from tests.structures.event_tree.machine import MatchMachine, packed
from tests.structures.machines import drive

NO_PINS = np.empty(0, np.int64)


def test_against_the_twin() -> None:
    drive(MatchMachine, 60 if JIT else 13, 25)


def emitted(matching: Matching, version: int, moves: Moves) -> tuple[list[int], list[int]]:
    """What goes, and what comes."""
    rows = matching.apply(version, moves, 1 << 40).rows[0]
    return sorted((~rows[rows < 0]).tolist()), sorted(rows[rows >= 0].tolist())


@pytest.mark.parametrize("emits_matched", [False, True])
def test_a_partner_of_all_rows_on_and_off(emits_matched: bool) -> None:
    """None flips, some do, all do; each that does is told, and the others are not looked at."""
    rows = [Interval(0, 0, 10 * i, 10 * i + 5, i) for i in range(300)]
    own = [Interval(0, 0, 10 * i + 5, 10 * i + 7, i) for i in range(290)]
    everywhere = Interval(0, 0, NEG_INF, POS_INF, 1000)
    matching = Matching(emits_matched, False, 1 << 20)
    matching.load(1, entries(rows), entries(own))
    on, off = packed([(runs.PARTNER_INSERT, everywhere, -1)]), packed([(runs.PARTNER_DELETE, everywhere, -1)])
    ten, nothing = list(range(290, 300)), list[int]()
    assert emitted(matching, 2, on) == ((nothing, ten) if emits_matched else (ten, nothing))
    assert emitted(matching, 3, off) == ((ten, nothing) if emits_matched else (nothing, ten))
    matching.check()
    assert matching.flips == 20
    assert emitted(matching, 4, packed([(runs.PARTNER_DELETE, one, -1) for one in own]))[emits_matched is False] == list(range(290))
    assert emitted(matching, 5, on)[emits_matched] == list(range(300)) and emitted(matching, 6, off)[not emits_matched] == list(range(300))
    matching.check()


def test_gaps_without_rows_are_passed_over() -> None:
    """Partners that hide nothing come and go over one row."""
    matching = Matching(False, False, 1 << 20)
    others = [Interval(0, 0, 4 * i, 4 * i + 1, i) for i in range(400)]
    matching.load(1, entries([Interval(0, 0, 1000, 1600, 0)]), entries(others))
    for version, one in enumerate(others, 2):
        went = emitted(matching, version, packed([(runs.PARTNER_DELETE, one, -1)]))
        assert went == ([], [0] if one is others[399] else [])
    matching.check()


def test_what_is_not_there_cannot_go() -> None:
    one = Interval(0, 0, 1, 2, 7)
    for kind in (runs.OUTER_DELETE, runs.PARTNER_DELETE, runs.OUTER_MOVE, runs.PARTNER_MOVE):
        matching = Matching(False, False, 1 << 20)
        with pytest.raises(KeyError, match="not there"):
            matching.apply(2, packed([(kind, one, 3)]), None)


@pytest.mark.parametrize("column", Moves._fields)
def test_columns_that_are_too_short_or_of_another_kind_are_refused_first(column: str) -> None:
    """What lay behind them in memory was taken for changes."""
    matching = Matching(False, False, 1 << 20)
    moves = packed([(runs.OUTER_INSERT, Interval(0, 0, 1, 2, 7), 3), (runs.PARTNER_INSERT, Interval(0, 0, 1, 2, 8), 3)])
    given = getattr(moves, column)
    with pytest.raises(ValueError, match="different lengths"):
        matching.apply(2, moves._replace(**{column: given[:1]}), None)
    with pytest.raises(TypeError, match="a contiguous array"):
        matching.apply(2, moves._replace(**{column: given.astype(np.float64)}), None)
    assert matching.entries(matching.root) == 0
    matching.check()


def test_room() -> None:
    matching = Matching(True, False, 1 << 16)
    matching.require(10, 10)
    with pytest.raises(MemoryError, match="size"):
        matching.require(0, 1 << 20)
    with pytest.raises(MemoryError, match="size"):
        matching.require(1 << 20, 0)


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
def test_tens_of_thousands() -> None:
    """Random batches, against counts by sorting."""
    rng, n = np.random.default_rng(3), 20_000
    matching = Matching(False, False)
    inputs = [_random(rng, n, 0), _random(rng, n, 0)]
    matching.load(1, *inputs)
    for version in range(2, 6):
        changes = []
        for input, (delete, insert) in enumerate(((runs.OUTER_DELETE, runs.OUTER_INSERT), (runs.PARTNER_DELETE, runs.PARTNER_INSERT))):
            stay, news = rng.random(len(inputs[input].slot)) > 0.1, _random(rng, n // 10, version * n)
            changes += [(delete, inputs[input].take(~stay)), (insert, news)]
            inputs[input] = _together([inputs[input].take(stay), news])
        changes.sort(key=lambda one: one[0])
        kind = np.concatenate([np.full(len(one.slot), kind, np.int8) for kind, one in changes])
        columns, former = _together([one for _, one in changes]), np.full(len(kind), -1, np.int32)
        before, done = matching.count(matching.root), np.zeros(len(kind), np.int64)
        moves = Moves(kind, columns.key, columns.left, columns.right, columns.slot, former, done)
        signs = matching.apply(version, moves, 1 << 40).rows[0]
        assert matching.count(matching.root) - before == int((signs >= 0).sum() - (signs < 0).sum())
        matching.reclaim(version, NO_PINS, 1 << 40)
        rows, others = inputs
        met = np.searchsorted(np.sort(others.left), rows.right, "right") - np.searchsorted(np.sort(others.right), rows.left, "left")
        assert matching.holds(matching.root, rows).tolist() == (met == 0).tolist()
        assert matching.count(matching.root) == int((met == 0).sum())


def _together(parts: list[Entries]) -> Entries:
    return Entries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _random(rng: np.random.Generator, n: int, first: int) -> Entries:
    left = rng.integers(0, 200_000, n)
    return Entries(
        np.zeros(n, np.uint8), np.zeros(n, np.int32), left, left + rng.integers(0, 10, n), np.arange(first, first + n, dtype=np.int32)
    )


def test_lonely_rows_have_no_partner() -> None:
    matching = Matching(False, False, 1 << 20)
    matching.load(1, entries([Interval(0, LONELY, 1, 2, 0)]), entries([]))
    assert emitted(matching, 2, packed([(runs.PARTNER_INSERT, Interval(0, 0, 0, 9, 0), -1)])) == ([], [])
    assert emitted(matching, 3, packed([(runs.OUTER_INSERT, Interval(0, LONELY, 1, 2, 1), -1)])) == ([], [1])
    matching.check()

"""`OuterTree` against its naive twin, and hostile data: a partner of all rows, on and off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries
from structures.core.kernel import JIT
from structures.event_tree import runs
from structures.event_tree.runs import LONELY, Moves
from structures.interval.tree import IntervalTree
from structures.outer.tree import CHUNK, OuterTree
from tests.naive.interval_join import Interval, entries
from tests.structures.event_tree.machine import packed
from tests.structures.outer.machine import OuterMachine

NO_PINS = np.empty(0, np.int64)


def test_against_the_twin() -> None:
    examples = 60 if JIT else 25
    checks = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    run_state_machine_as_test(OuterMachine, settings=checks)


def made(full: bool, rows: list[Interval], others: list[Interval]) -> OuterTree:
    tree = OuterTree(IntervalTree("pair", 1 << 20), 0, full, 1 << 20)
    tree.load(1, entries(rows), entries(others))
    return tree


def told(tree: OuterTree, version: int, *changes: tuple[int, Interval, int]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """What goes, and what comes."""
    rows = tree.apply(version, packed([*changes]), 1 << 40).rows.T.tolist()
    gone, come = (sorted((row, other) for row, other, comes in rows if comes == sign) for sign in (0, 1))
    return gone, come


def test_a_partner_of_all_rows_on_and_off() -> None:
    rows = [Interval(0, 0, 10 * i, 10 * i + 5, i) for i in range(300)]
    own = [Interval(0, 0, 10 * i + 5, 10 * i + 7, i) for i in range(290)]
    everywhere = Interval(0, 0, NEG_INF, POS_INF, 1000)
    tree = made(False, rows, own)
    ten, pairs = [(i, -1) for i in range(290, 300)], [(i, 1000) for i in range(300)]
    assert told(tree, 2, (runs.PARTNER_INSERT, everywhere, -1)) == (ten, pairs)
    assert told(tree, 3, (runs.PARTNER_DELETE, everywhere, -1)) == (pairs, ten)
    tree.check()
    assert tree.flips == 20


def test_counts_follow_what_nobody_is_told_of() -> None:
    """A change whose delta is given up, in the middle of it or from the start."""
    n = CHUNK + 2000
    left = np.arange(n, dtype=np.int64)
    rows = Entries(np.zeros(n, np.uint8), np.zeros(n, np.int32), left, left, np.arange(n, dtype=np.int32))
    tree = OuterTree(IntervalTree("pair"), 0, True)
    tree.load(1, rows, entries([Interval(0, 0, 5, 5, 0)]))
    on, off = runs.PARTNER_INSERT, runs.PARTNER_DELETE
    for version, (kind, limit, alone) in enumerate(((on, 1000, 0), (off, None, n - 1), (on, None, 0), (off, 1000, n - 1)), 2):
        deltas = tree.apply(version, packed([(kind, Interval(0, 0, NEG_INF, POS_INF, 1), -1)]), limit)
        assert deltas.starts.tolist() == deltas.ends.tolist() and deltas.too_large.tolist() == [limit is not None]
        assert tree.alone[0].root.counts[0] == alone
        tree.reclaim(version, NO_PINS, 1 << 40)
    tree.check()


def test_a_row_with_many_partners_takes_no_longer_than_what_is_told() -> None:
    """One that nobody is told of, and one whose delta is given up: neither is counted, and both are alone when the last partner goes."""
    n = 4 * CHUNK
    left = np.arange(n, dtype=np.int64)
    partners = Entries(np.zeros(n, np.uint8), np.zeros(n, np.int32), left, left, np.arange(n, dtype=np.int32))
    tree = OuterTree(IntervalTree("pair"), 0, False)
    tree.load(1, entries([]), partners)
    for version, limit in ((2, None), (3, 1000)):
        before = tree.steps
        tree.apply(version, packed([(runs.OUTER_INSERT, Interval(0, 0, 0, n, version), -1)]), limit)
        assert tree.steps - before < 2 * CHUNK
        before = tree.steps
        tree.apply(version, packed([(runs.OUTER_DELETE, Interval(0, 0, 0, n, version), -1)]), limit)
        assert tree.steps - before < 2 * CHUNK
        tree.apply(version, packed([(runs.OUTER_INSERT, Interval(0, 0, 0, n, version), -1)]), limit)
    tree.check()
    gone = Moves(np.full(n, runs.PARTNER_DELETE, np.int8), *partners[1:], np.full(n, -1, np.int32), np.zeros(n, np.int64))
    _, others, comes = tree.apply(4, gone, 1 << 40).rows
    assert np.count_nonzero(comes) == np.count_nonzero(others == -1) == tree.flips == 2 and len(comes) == 2 * n + 2
    assert tree.alone[0].root.counts[0] == 2
    tree.check()


def test_both_sides_are_told_alone() -> None:
    tree = made(True, [Interval(0, 0, 1, 2, 0), Interval(0, LONELY, 1, 2, 1)], [Interval(0, 0, 5, 6, 0)])
    assert tree.alone[0].root.counts[0] == 2 and tree.alone[1].root.counts[0] == 1
    assert told(tree, 2, (runs.OUTER_INSERT, Interval(0, 0, 5, 5, 2), -1)) == ([(-1, 0)], [(2, 0)])
    assert told(tree, 3, (runs.PARTNER_MOVE, Interval(0, 0, 5, 6, 7), 0)) == ([], [])
    assert told(tree, 4, (runs.PARTNER_DELETE, Interval(0, 0, 5, 6, 7), -1)) == ([(2, 7)], [(2, -1)])
    assert told(tree, 5, (runs.PARTNER_INSERT, Interval(0, LONELY, 5, 6, 8), -1)) == ([], [(-1, 8)])
    assert told(tree, 6, (runs.OUTER_DELETE, Interval(0, LONELY, 1, 2, 1), -1)) == ([(1, -1)], [])
    tree.check()


def test_what_is_not_there_cannot_go() -> None:
    for kind in (runs.OUTER_DELETE, runs.PARTNER_DELETE, runs.OUTER_MOVE, runs.PARTNER_MOVE):
        for key in (0, LONELY):
            with pytest.raises(KeyError, match="not there"):
                made(True, [], []).apply(2, packed([(kind, Interval(0, key, 1, 2, 7), 3)]), None)


def test_room() -> None:
    tree = OuterTree(IntervalTree("pair", 1 << 16), 0, False, 1 << 16)
    tree.require(10, 10, 1 << 30)
    with pytest.raises(MemoryError, match="size"):
        tree.require(1 << 20, 10, 10)
    with pytest.raises(MemoryError, match="size"):
        tree.require(10, 1 << 20, 10)


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
def test_tens_of_thousands() -> None:
    """Random batches, against counts by sorting."""
    rng, n = np.random.default_rng(3), 20_000
    tree = OuterTree(IntervalTree("pair"), 0, False)
    sides = [_random(rng, n, 0), _random(rng, n, 0)]
    tree.load(1, *sides)
    before = _met(*sides)
    for version in range(2, 6):
        changes = []
        for side, (delete, insert) in enumerate(((runs.OUTER_DELETE, runs.OUTER_INSERT), (runs.PARTNER_DELETE, runs.PARTNER_INSERT))):
            stay, news = rng.random(len(sides[side].slot)) > 0.1, _random(rng, n // 10, version * n)
            changes += [(delete, sides[side].take(~stay)), (insert, news)]
            sides[side] = _together([sides[side].take(stay), news])
        changes.sort(key=lambda one: one[0])
        kind = np.concatenate([np.full(len(one.slot), kind, np.int8) for kind, one in changes])
        columns, former = _together([one for _, one in changes]), np.full(len(kind), -1, np.int32)
        moves = Moves(kind, columns.key, columns.left, columns.right, columns.slot, former, np.zeros(len(kind), np.int64))
        _, partners, comes = tree.apply(version, moves, 1 << 40).rows
        tree.reclaim(version, NO_PINS, 1 << 40)
        met = _met(*sides)
        for is_pair, total in ((True, met.sum() - before.sum()), (False, (met == 0).sum() - (before == 0).sum())):
            assert int((2 * comes - 1)[(partners >= 0) == is_pair].sum()) == int(total)
        alone = tree.alone[0]
        assert alone.holds(alone.root, sides[0]).tolist() == (met == 0).tolist()
        before = met
    tree.check()


def _met(rows: Entries, others: Entries) -> np.ndarray:
    met: np.ndarray = np.searchsorted(np.sort(others.left), rows.right, "right") - np.searchsorted(np.sort(others.right), rows.left, "left")
    return met


def _together(parts: list[Entries]) -> Entries:
    return Entries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _random(rng: np.random.Generator, n: int, first: int) -> Entries:
    left = rng.integers(0, 200_000, n)
    return Entries(
        np.zeros(n, np.uint8), np.zeros(n, np.int32), left, left + rng.integers(0, 10, n), np.arange(first, first + n, dtype=np.int32)
    )

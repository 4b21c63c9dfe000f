"""`IntervalTree` against its naive twin, and what it promises about steps and memory, by counting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from structures.core.arena import B
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import DELETE, INSERT, Entries, room_for
from structures.core.kernel import JIT
from structures.interval.tree import Cursor, IntervalTree
from structures.ordered.whole import read_all as read_entries
from tests.naive.interval_join import Interval, entries, pairs, sweep_count
from tests.structures.batches import apply_batch, apply_singly
from tests.structures.interval.machine import IntervalMachine
from tests.structures.machines import drive

NONE = entries([])
NO_PINS = np.empty(0, np.int64)


def test_against_the_twin() -> None:
    drive(IntervalMachine, 60 if JIT else 13, 25)


def read_all(cursor: Cursor, limit: int = 65536) -> tuple[np.ndarray, np.ndarray]:
    parts = []
    while not cursor.done:
        parts.append(cursor.fill(limit))
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def random_entries(rng: np.random.Generator, n: int, partners: float, first_slot: int = 0) -> Entries:
    """n intervals, half in each set, each meeting about `partners` of the other set."""
    left = rng.integers(0, 10**9, n)
    right = left + rng.integers(0, max(1, int(2 * partners * 10**9 / n)), n)
    return Entries(
        rng.integers(0, 2, n).astype(np.uint8), np.zeros(n, np.int32), left, right, np.arange(first_slot, first_slot + n, dtype=np.int32)
    )


@pytest.mark.parametrize("kind", ["pair", "self", "list"])
def test_a_chunk_is_what_was_asked_for_not_a_little_that_was_left_of_the_last(kind: str) -> None:
    """Seen: every second chunk of a reading had the rows that its last pair of leaves had beyond the limit."""
    n = 5 * B * B if kind == "list" else 40 * B
    tree, given = IntervalTree(kind), random_entries(np.random.default_rng(1), n, 8 * B)
    root = tree.bulk_load(1, given if kind == "pair" else given._replace(set=np.zeros_like(given.set)))
    limit = 2 * B * B
    cursor, sizes = tree.rows(root), list[int]()
    while not cursor.done:
        sizes.append(cursor.fill(limit).shape[1])
    assert len(sizes) > 2 and max(sizes) <= limit and min(sizes[:-1]) >= limit // 2
    few = min(5 * B, 2 * B * B - 1)
    assert tree.rows(root).fill(few).shape[1] == few  # all at once: a page


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
@pytest.mark.parametrize("partners", [0.1, 2, 30])
def test_tens_of_thousands(partners: float) -> None:
    rng = np.random.default_rng(7)
    tree = IntervalTree("pair")
    here = random_entries(rng, 30_000, partners)
    root = tree.bulk_load(1, here)
    count = sweep_count(here.set, here.left, here.right)
    for version in range(2, 8):
        keep = rng.random(len(here.key)) > 0.1
        news = random_entries(rng, 3_000, partners, version * 100_000)
        net = [0]

        def sink(sign: int, slots: np.ndarray, net: list[int] = net) -> bool:
            net[0] += sign * slots.shape[1]
            return True

        root = apply_batch(tree, version, here.take(~keep), news, sink)
        tree.reclaim(version, NO_PINS)
        here = Entries(*(np.concatenate([a[keep], b]) for a, b in zip(here, news, strict=True)))
        count += net[0]
        assert count == sweep_count(here.set, here.left, here.right)
        a, b = read_all(tree.rows(root))
        rows = np.sort(a.astype(np.int64) << 32 | b)  # np.unique takes ten times as long
        assert len(rows) == count and (rows[1:] != rows[:-1]).all()
        lefts, rights = np.zeros(10**7, np.int64), np.zeros(10**7, np.int64)
        lefts[here.slot], rights[here.slot] = here.left, here.right
        assert (lefts[a] <= rights[b]).all() and (lefts[b] <= rights[a]).all()
    tree.check(root)


@pytest.mark.parametrize("in_order", [False, True])
def test_many_changes_without_deltas(in_order: bool) -> None:
    """They share leaves, which split and are joined meanwhile; in the order of the tree, or (`in_order`) as they are given. The version
    before stays whole. Entries that are not there are reported, and the others are changed nevertheless."""
    rng, n = np.random.default_rng(5), 100 * B
    tree = IntervalTree("pair")
    here = random_entries(rng, n, 2)
    here = here._replace(key=rng.integers(0, 3, n).astype(np.int32), left=here.left // 10**6, right=here.right // 10**6)  # many ties
    root = tree.bulk_load(1, here)
    before = tree.rows(root).clone()
    rows = len(read_all(tree.rows(root))[0])
    for version, (share, more) in enumerate([(0.5, 60), (0.1, 1), (0.02, 300), (0.97, 2)], 2):
        keep = rng.random(len(here.key)) > share
        news = random_entries(rng, more * B, 2, version * 10**6)
        news = news._replace(key=rng.integers(0, 4, more * B).astype(np.int32))
        if in_order:
            signs = np.repeat(np.array([DELETE, INSERT], np.int8), (np.count_nonzero(~keep), more * B))
            both = Entries(*map(np.concatenate, zip(here.take(~keep), news, strict=True)))
            mixed = rng.permutation(len(signs))
            apply_singly(tree, version, signs[mixed], both.take(mixed), None)
        else:
            apply_batch(tree, version, here.take(~keep), news, None)
        here = Entries(*(np.concatenate([a[keep], b]) for a, b in zip(here, news, strict=True)))
        tree.check(tree.root, (root,))
        kept = room_for(sum(tree.root.counts))
        read_entries(tree.arena.nodes, tree.arena.C, kept)
        assert all(map(np.array_equal, kept.take(tree._order(kept)), here.take(tree._order(here))))
    missing = random_entries(rng, 50 * B, 2, 10**8)
    with pytest.raises(KeyError, match=f"{50 * B} deleted entries"):
        apply_batch(tree, 9, missing, random_entries(rng, 50 * B, 2, 10**7), None)
    assert sum(tree.root.counts) == len(here.key) + 50 * B
    assert len(read_all(before)[0]) == rows


def test_ties_and_unbounded_ends() -> None:
    """All lefts equal, and intervals without ends: order falls to the slots alone."""
    same = [Interval(i % 2, 0, 5, 5 + i % 3, i) for i in range(200)]
    endless = [Interval(i % 2, 0, NEG_INF, POS_INF, 1000 + i) for i in range(20)]
    tree = IntervalTree("pair", 1 << 22)
    root = tree.bulk_load(1, entries(same + endless))
    a, b = read_all(tree.rows(root), 100)
    assert set(zip(a.tolist(), b.tolist(), strict=True)) == pairs("pair", same + endless) and len(a) == 110 * 110
    root = apply_batch(tree, 2, entries(same), NONE, None)
    assert len(read_all(tree.rows(root))[0]) == 100
    tree.check(root)


@pytest.mark.parametrize("kind", ["pair", "self"])
def test_nothing_meets(kind: str) -> None:
    """A view without rows is known to be empty at once, and the walk does not wander."""
    apart = [Interval(0 if kind == "self" else i % 2, 0, 10 * i, 10 * i + 3, i) for i in range(5000)]
    tree = IntervalTree(kind, 1 << 22)
    root = tree.bulk_load(1, entries(apart))
    cursor = tree.rows(root)
    assert tree.is_empty(root) and len(read_all(cursor)[0]) == 0
    assert cursor.steps == 0


@pytest.mark.skipif(not JIT, reason="counts at sizes that need compiled kernels")
def test_the_delay_grows_with_the_logarithm() -> None:
    """Two rows far apart among intervals that meet nothing, one interval that meets a tenth, and dense data: the largest number of
    steps between two rows stays below a constant times log n."""
    for n in (2_000, 20_000, 200_000):
        left = np.arange(n, dtype=np.int64) * 10
        right = left + 3
        right[0], right[n - 2] = 12, left[n - 1] + 1
        right[n // 2] = left[n // 2 + n // 10]
        sets = (np.arange(n) % 2).astype(np.uint8)
        tree = IntervalTree("pair")
        root = tree.bulk_load(1, Entries(sets, np.zeros(n, np.int32), left, right, np.arange(n, dtype=np.int32)))
        cursor = tree.rows(root)
        a, _ = read_all(cursor)
        assert len(a) == sweep_count(sets, left, right)
        assert cursor.largest_gap <= 64 + 12 * math.log2(n), (n, cursor.largest_gap)


@pytest.mark.skipif(not JIT, reason="counts at sizes that need compiled kernels")
def test_one_old_pin_does_not_hold_what_came_after_it() -> None:
    rng = np.random.default_rng(5)
    tree = IntervalTree("pair")
    here = random_entries(rng, 50_000, 2)
    root = tree.bulk_load(1, here)
    old = root
    wanted = read_all(tree.rows(old))
    pins = np.array([1], np.int64)
    used = []
    for version in range(2, 202):
        keep = rng.random(len(here.key)) > 0.02
        news = random_entries(rng, int((~keep).sum()), 2, version * 100_000)
        root = apply_batch(tree, version, here.take(~keep), news, None)
        here = Entries(*(np.concatenate([a[keep], b]) for a, b in zip(here, news, strict=True)))
        tree.reclaim(version, pins)
        used.append(tree.live_bytes + tree.retired_bytes)
    assert used[-1] < 2.5 * used[0] and used[-1] < 1.2 * used[60]
    again = read_all(tree.rows(old))
    assert all((x == y).all() for x, y in zip(wanted, again, strict=True))
    tree.check(root, (old,))
    tree.reclaim(201, NO_PINS)
    assert tree.retired_bytes == 0


def test_a_sink_may_stop_the_delta() -> None:
    """The batch goes on without its delta: one interval that meets everything is not enumerated."""
    tree, n = IntervalTree("pair", 1 << 22), 3000 if JIT else 1500
    points = [Interval(0, 0, i, i, i) for i in range(n)]
    tree.bulk_load(1, entries(points))
    seen: list[int] = []

    def sink(sign: int, slots: np.ndarray) -> bool:
        seen.append(slots.shape[1])
        return False

    root = apply_batch(tree, 2, NONE, entries([Interval(1, 0, i, 5000, 10_000 + i) for i in range(100)]), sink)
    assert len(seen) == 1
    assert len(read_all(tree.rows(root))[0]) == sum(n - i for i in range(100))
    tree.check(root)


def test_deleting_what_is_not_there_is_an_error() -> None:
    tree = IntervalTree("pair", 1 << 20)
    tree.bulk_load(1, entries([Interval(0, 0, 1, 2, 3)]))
    with pytest.raises(KeyError):
        apply_batch(tree, 2, entries([Interval(0, 0, 1, 2, 4)]), NONE, None)


def test_a_full_arena_refuses_before_it_begins() -> None:
    tree = IntervalTree("pair", 1 << 14)
    root = tree.bulk_load(1, entries([Interval(0, 0, 1, 2, 3)]))
    with pytest.raises(MemoryError):
        apply_batch(tree, 2, NONE, entries([Interval(0, 0, i, i, i + 10) for i in range(5000)]), None)
    assert tree.root == root
    tree.check(root)


def test_a_window_over_many_keys_is_read_in_short_steps() -> None:
    """Two intervals that meet in each of 1,000 keys; the window hits those of the last one only."""
    keys = np.repeat(np.arange(1000, dtype=np.int32), 2)
    left = np.where(keys == 999, 50, 0).astype(np.int64)
    entries = Entries(np.tile(np.array([0, 1], np.uint8), 1000), keys, left, left + 10, np.arange(2000, dtype=np.int32))
    tree = IntervalTree("pair", 1 << 20)
    cursor = tree.rows(tree.bulk_load(1, entries), None, (40, 70))
    fills = 0
    found: list[tuple[int, int]] = []
    while not cursor.done:
        fills += 1
        found += zip(*(slots.tolist() for slots in cursor.fill(64)), strict=True)
    assert found == [(1998, 1999)]
    assert 3000 / 256 < fills < 100


@pytest.mark.skipif(not JIT, reason="hundreds of thousands need compiled kernels; the run with the JIT on has them")
def test_partners_that_are_none_do_not_hold_a_call_up() -> None:
    """A call ends after so many steps, whether it found a row or not."""
    n = 300_000
    positions = np.arange(n, dtype=np.int64)
    sets, slots = (positions & 1).astype(np.uint8), positions.astype(np.int32)
    here = Entries(sets, np.zeros(n, np.int32), 10 * positions, 10 * positions + 5, slots)
    tree = IntervalTree("pair")
    root = tree.bulk_load(1, here)
    cursor, calls, most = tree.partners(root, here.take(sets == 0)), 0, 0
    while not cursor.done:
        before = cursor.steps
        assert len(cursor.fill(100)[0]) == 0
        most, calls = max(most, cursor.steps - before), calls + 1
    assert calls > 2 and most < 2 * (1 << 18) + 1_000

"""`CliqueTree` against its naive twin, and what it promises about steps and memory, by counting."""

from __future__ import annotations

from itertools import combinations
from math import comb, log2

import numpy as np
import pytest

from structures.clique.tree import CliqueCursor, CliqueTree, Entries
from structures.core.kernel import JIT
from tests.naive.clique_join import Row
from tests.structures.batches import apply_batch
from tests.structures.clique.machine import CliqueMachine, as_rows
from tests.structures.machines import drive

NO_PINS = np.empty(0, np.int64)


def of(left: np.ndarray, right: np.ndarray, first: int = 0) -> Entries:
    n = len(left)
    slots = np.arange(first, first + n, dtype=np.int32)
    return Entries(np.zeros(n, np.uint8), np.zeros(n, np.int32), left.astype(np.int64), right.astype(np.int64), slots)


def read(cursor: CliqueCursor) -> list[Row]:
    rows: list[Row] = []
    while not cursor.done:
        rows += as_rows(cursor.fill(1000))
    return rows


def sweep_count(t: int, entries: Entries) -> int:
    """How many cliques there are: at each start the choices of t - 1 of those that cover it, by sorting."""
    order = np.lexsort((entries.slot, entries.left))
    ended = np.searchsorted(np.sort(entries.right), entries.left[order], "left")
    return sum(comb(position - int(deleted), t - 1) for position, deleted in enumerate(ended))


def test_against_the_twin() -> None:
    drive(CliqueMachine, 60 if JIT else 13, 25)


@pytest.mark.parametrize("t", [2, 9])
def test_too_few_or_many_members(t: int) -> None:
    with pytest.raises(ValueError, match="3 to 8"):
        CliqueTree(t)


def test_a_missing_interval() -> None:
    tree = CliqueTree(3, 1 << 20)
    tree.bulk_load(1, of(np.arange(5), np.arange(5) + 3))
    with pytest.raises(KeyError):
        apply_batch(tree, 2, of(np.array([7]), np.array([9])), of(NO_PINS, NO_PINS), None)


@pytest.mark.parametrize(("t", "n"), [(3, 1200 if JIT else 500), (7, 12), (8, 11)])
def test_all_in_one_point(t: int, n: int) -> None:
    """What covers one start outgrows the room of a new walk; a sink that has enough is not called again."""
    tree, every = CliqueTree(t, 1 << 22), of(np.arange(n), np.arange(n) + n)
    tree.bulk_load(1, every)
    given = every.take(np.array([n // 2]))
    cursor = tree.partners(tree.root, given)
    rows = 0
    while not cursor.done:
        found = cursor.fill(100_000)
        assert (found == n // 2).any(axis=0).all()
        rows += found.shape[1]
    assert rows == comb(n - 1, t - 1)
    emitted = []
    apply_batch(tree, 2, given, given.take(slice(0, 0)), lambda sign, slots: emitted.append(slots.shape[1]) is not None or len(emitted) < 2)
    assert len(emitted) == min(2, -(-rows // (1 << 16)))
    if n < 20:
        left = [slot for slot in range(n) if slot != n // 2]
        assert sorted(read(tree.rows(tree.root))) == list(combinations(left, t))


@pytest.mark.parametrize("t", [3, 4, 5])
def test_tens_of_thousands(t: int) -> None:
    """After many batches the view is what a sweep counts; a walk meets no dead end, and a change few steps beside its rows."""
    rng, n = np.random.default_rng(t), 20_000 if JIT else 500
    print("seed", t)

    def some(count: int, first: int) -> Entries:
        left = rng.integers(0, 10 * n, count)
        return of(left, left + rng.integers(0, 40, count), first)

    tree, now = CliqueTree(t), some(n, 0)
    tree.bulk_load(1, now)
    gained = 0

    def sink(sign: int, slots: np.ndarray) -> bool:
        nonlocal gained
        gained += sign * slots.shape[1]
        return True

    rows = sweep_count(t, now)
    for version in range(2, 8):
        order = rng.permutation(n)
        deleted, kept = order[: n // 10], order[n // 10 :]
        inserted = some(n // 10, n * version)
        apply_batch(tree, version, now.take(deleted), inserted, sink)
        tree.reclaim(version, NO_PINS)
        now = Entries(*(np.concatenate((a[kept], b)) for a, b in zip(now, inserted, strict=True)))
    tree.check(tree.root)
    cursor = tree.rows(tree.root)
    assert len(read(cursor)) == sweep_count(t, now) == rows + gained
    assert cursor.dead_ends == 0 and cursor.largest_gap < 64 * 2 + 4 * log2(n) * t
    for position in range(0, n, n // 100):
        cursor = tree.partners(tree.root, now.take(slice(position, position + 1)))
        found = len(read(cursor))
        assert cursor.dead_ends <= 1 and cursor.steps < 64 * 4 + 8 * t * log2(n) + 64 * found
    assert tree.live_bytes < 56 * n


@pytest.mark.parametrize("t", [3, 5])
def test_starts_that_too_few_cover(t: int) -> None:
    """Thousands of places where t - 1 meet are no rows: none of them is looked at. Two rows far apart are found at once."""
    n = 30_000 if JIT else 600
    left = np.repeat(np.arange(n // (t - 1)) * 100, t - 1) + np.tile(np.arange(t - 1), n // (t - 1))
    tree = CliqueTree(t)
    right = left + 50
    tree.bulk_load(1, of(left, right))
    assert tree.is_empty(tree.root)
    cursor = tree.rows(tree.root)
    assert not read(cursor) and cursor.steps < 3
    more = of(np.array([3, 10 * n]) // 100 * 100 + t, np.array([3, 10 * n]) // 100 * 100 + 50, n)
    apply_batch(tree, 2, more.take(slice(0, 0)), more, None)
    cursor = tree.rows(tree.root)
    assert len(read(cursor)) == 2 and cursor.dead_ends == 0 and cursor.steps < 64 * 4 + 10 * t * log2(n)

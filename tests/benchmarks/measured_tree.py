"""The measurements of one workload for every subject of the interval structure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from structures.core.control import VERSION
from structures.core.entries import Entries
from structures.interval.tree import EntryRoot, IntervalTree
from structures.ordered.search import SEARCH_WORDS
from tests.benchmarks.data import Workload
from tests.benchmarks.figures import seconds
from tests.benchmarks.kernels import RECLAIM_EVERY, single_changes
from tests.structures.batches import apply_batch

NO_PINS = np.empty(0, np.int64)
FIRST = 512  # rows: the first chunk that the service reads
CHUNK = 65_536

Note = Callable[[str], None]


class Effort(NamedTuple):
    """How much to measure: `singles` changes in a kernel and `calls` from Python (per repeat), `batches` of `batch` changes."""

    repeats: int
    singles: int
    calls: int
    batches: int
    batch: int


FULL = Effort(5, 40_000, 2_000, 20, 10_000)
FEW = Effort(3, 40_000, 2_000, 8, 10_000)
QUICK = Effort(2, 400, 50, 2, 200)


class Measured(NamedTuple):
    """Samples are rates per second (`first` in seconds). `rows`: of the whole view initially; `gap`: the maximum number of steps between
    two of them. Bytes are those of blocks, per interval, after the load and after all changes. `partners`: of an interval, on average;
    `batch`: changes."""

    load: list[float]
    singles: list[float]
    calls: list[float]
    batches: list[float]
    whole: list[float]
    first: list[float]
    rows: int
    gap: int
    bytes_loaded: float
    bytes_changed: float
    partners: float
    batch: int


class Changes:
    """A sequence of changes: a random existing entry is deleted, a fresh one inserted. Each is used once."""

    def __init__(self, workload: Workload) -> None:
        self._there, self._fresh = workload.entries, workload.fresh
        self._order = np.random.default_rng(3).permutation(len(workload.entries.key))
        self._at = 0

    def take(self, count: int) -> tuple[Entries, Entries]:
        """Return `count` // 2 entries to delete, and as many to insert."""
        positions = self._order[self._at : self._at + count // 2]
        assert len(positions) == count // 2, "more changes than intervals"
        self._at += len(positions)
        return self._there.take(positions), self._fresh.take(positions)

    def now(self) -> Entries:
        """The current entries."""
        inserted = self._fresh.take(self._order[: self._at])
        return Entries(*(np.concatenate(pair) for pair in zip(self.untouched(), inserted, strict=True)))

    def untouched(self) -> Entries:
        """The initial entries that have not been deleted."""
        return self._there.take(self._order[self._at :])


def measure(workload: Workload, effort: Effort, note: Note, *, loads: int | None = None) -> Measured:
    """Load, read and change one workload. Raises AssertionError if the view does not match the deltas."""
    entries = workload.entries
    n = len(entries.key)
    load = []
    for _ in range(loads or effort.repeats):
        tree = IntervalTree("pair")
        load.append(n / seconds(lambda: tree.bulk_load(1, entries)))  # noqa: B023
    root = tree.root
    loaded = tree.live_bytes / n
    note(f"{workload.name}: loaded, {loaded:.1f} bytes an interval")
    whole, rows, gap = whole_view(tree, root, effort.repeats)
    first = first_rows(tree, root, 20 * effort.repeats)
    note(f"{workload.name}: {rows:,} rows, {max(whole) / 1e6:.1f} M rows/s, first {min(first) * 1e6:.0f} us, largest gap {gap} steps")
    changes = Changes(workload)
    delta = 0
    batches = []
    for _ in range(effort.batches):
        rate, more = one_batch(tree, changes, effort.batch)
        batches.append(rate)
        delta += more
    singles = []
    for _ in range(effort.repeats):
        rate, more = many_singles(tree, changes, effort.singles)
        singles.append(rate)
        delta += more
    calls = []
    for _ in range(effort.repeats):
        rate, more = many_calls(tree, changes, effort.calls)
        calls.append(rate)
        delta += more
    _, now, _ = whole_view(tree, tree.root, 1)
    assert now == rows + delta, f"the view has {now} rows, the deltas say {rows + delta}"
    in_turn = ", ".join(f"{max(samples) / 1e3:.0f} k/s" for samples in (batches, singles, calls))
    note(f"{workload.name}: in batches, single, by calls {in_turn}")
    return Measured(load, singles, calls, batches, whole, first, rows, gap, loaded, tree.live_bytes / n, 2 * rows / n, effort.batch)


def whole_view(tree: IntervalTree, root: EntryRoot, repeats: int) -> tuple[list[float], int, int]:
    """Rows a second, in chunks; the number of rows; the largest gap in steps."""
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        cursor = tree.rows(root)
        rows = 0
        while count := len(cursor.fill(CHUNK)[0]):
            rows += count
        samples.append(rows / (time.perf_counter() - start))
    return samples, rows, cursor.largest_gap


def first_rows(tree: IntervalTree, root: EntryRoot, repeats: int) -> list[float]:
    """Seconds until a new cursor has returned its first rows."""
    return [seconds(lambda: tree.rows(root).fill(FIRST)) for _ in range(repeats)]


def one_batch(tree: IntervalTree, changes: Changes, size: int, pins: np.ndarray = NO_PINS) -> tuple[float, int]:
    """Apply one version of `size` changes, with deltas, and reclaim. Return changes a second and rows gained."""
    deletes, inserts = changes.take(size)
    version = int(tree.arena.C[VERSION]) + 1
    gained = 0

    def sink(sign: int, slots: np.ndarray) -> bool:
        nonlocal gained
        gained += sign * slots.shape[1]
        return True

    start = time.perf_counter()
    apply_batch(tree, version, deletes, inserts, sink)
    tree.reclaim(version, pins)
    return 2 * len(deletes.key) / (time.perf_counter() - start), gained


def many_singles(tree: IntervalTree, changes: Changes, count: int) -> tuple[float, int]:
    """Apply as many versions as changes, inside one kernel. Return changes a second and rows gained."""
    deletes, inserts = changes.take(count)
    half = len(deletes.key)
    # Delete, insert, delete, insert …
    mixed = [np.stack((a, b), 1).reshape(-1) for a, b in zip(deletes, inserts, strict=True)]
    signs = np.tile(np.array([-1, 1], np.int64), half)
    arena = tree.arena
    arena.require(2 * half)
    state = np.zeros(SEARCH_WORDS, np.int64)
    out0, out1 = np.empty(CHUNK, np.int32), np.empty(CHUNK, np.int32)
    before = int(arena.C[VERSION])
    start = time.perf_counter()
    gained = single_changes(arena.nodes, arena.writing, signs, Entries(*mixed), state, out0, out1, NO_PINS)
    elapsed = time.perf_counter() - start
    assert int(arena.C[VERSION]) - before == 2 * half, "not every change made a version"
    return 2 * half / elapsed, gained


def many_calls(tree: IntervalTree, changes: Changes, count: int) -> tuple[float, int]:
    """The same with one Python call per change."""
    deletes, inserts = changes.take(count)
    none = deletes.take(slice(0, 0))
    singles = []
    for i in range(len(deletes.key)):
        singles += [(deletes.take(slice(i, i + 1)), none), (none, inserts.take(slice(i, i + 1)))]
    version = int(tree.arena.C[VERSION])
    gained = 0

    def sink(sign: int, slots: np.ndarray) -> bool:
        nonlocal gained
        gained += sign * slots.shape[1]
        return True

    start = time.perf_counter()
    for i, (deleted, inserted) in enumerate(singles):
        version += 1
        apply_batch(tree, version, deleted, inserted, sink)
        if i % RECLAIM_EVERY == 0:
            tree.reclaim(version, NO_PINS)
    return len(singles) / (time.perf_counter() - start), gained

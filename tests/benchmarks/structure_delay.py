"""Intervals with 20 partners, and one that meets 100,000: delay, memory, slow readers, old pins."""

from __future__ import annotations

import math

import numpy as np

from structures.core.control import VERSION
from structures.core.entries import Entries
from structures.interval.tree import EntryRoot, IntervalTree
from tests.benchmarks.data import LINE, Workload, uniform
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import CHUNK, NO_PINS, Changes, Note, one_batch, whole_view
from tests.benchmarks.rivals import DuckDb
from tests.benchmarks.rivals_of_trees import BY_HAND
from tests.structures.batches import apply_batch

TITLE = "The structure: intervals with 20 partners, and one interval with 100,000"
HUB_MEETS = 100_000
BATCH = 10_000
STEPS_A_LEVEL = 12  # the c of c * log2 n
DAWDLE = 512  # rows that a slow reader takes between two batches


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = (2_000, 20_000) if scale.quick else (10_000, 100_000, 1_000_000)
    figures = [gap_at(n, note) for n in sizes]
    workload = with_hub(uniform(sizes[-1], 20), scale.size(HUB_MEETS, 1_000))
    figures += hub_changes(workload, scale, note)
    figures += dawdling(workload, scale, note)
    figures += old_pin(uniform(sizes[-1], 20), scale, note)
    return figures


def with_hub(workload: Workload, meets: int) -> Workload:
    """Make the first entry, of set 0, meet `meets` entries of set 1."""
    entries = workload.entries
    lefts = np.sort(entries.left[entries.set == 1])
    right = entries.right.copy()
    position = int(np.searchsorted(lefts, entries.left[0]))
    left = entries.left.copy()
    if position + meets >= len(lefts):  # it begins too late on the line
        left[0], position = 0, 0
    right[0] = lefts[min(position + meets, len(lefts)) - 1]
    return workload._replace(entries=entries._replace(left=left, right=right))


def gap_at(n: int, note: Note) -> Figure:
    """Return the maximum number of steps between two rows of the whole view, which includes the hub; check that reading writes nothing."""
    workload = with_hub(uniform(n, 20), min(HUB_MEETS, n // 4))
    tree = IntervalTree("pair")
    root = tree.bulk_load(1, workload.entries)
    used = (tree.live_bytes, tree.retired_bytes)
    _, rows, gap = whole_view(tree, root, 1)
    assert (tree.live_bytes, tree.retired_bytes) == used, "a reading has allocated blocks"
    note(f"{n:,}: {rows:,} rows, largest gap {gap} steps")
    levels = math.log2(n)
    return Figure(
        f"{n:,} intervals: largest gap between two rows", gap, "steps", STEPS_A_LEVEL * levels, True, parameters={"rows": rows},
        note=f"{gap / levels:.1f} log2 n; reading allocates no blocks",
    )  # fmt: skip


def hub_changes(workload: Workload, scale: Scale, note: Note) -> list[Figure]:
    """Delete and insert the hub with its delta; read its partners, the first of which are found immediately."""
    tree = IntervalTree("pair")
    tree.bulk_load(1, workload.entries)
    hub = workload.entries.take(slice(0, 1))
    none = hub.take(slice(0, 0))
    rows = len(tree.partners(tree.root, hub).fill(10**7)[0])
    version, samples = 1, []
    for _ in range(scale.size(20, 2)):
        for deletes, inserts in ((hub, none), (none, hub)):
            version += 1
            samples.append(1e3 * _change(tree, version, deletes, inserts, rows))
            tree.reclaim(version, NO_PINS)
    first = [1e6 * seconds(lambda: tree.partners(tree.root, hub).fill(512)) for _ in range(scale.size(200, 5))]
    note(f"the hub meets {rows:,}: {middle(samples):.2f} ms a change, first 512 partners {middle(first):.0f} us")
    rival = DuckDb(workload.entries, False)
    theirs = middle([1e3 * rival.change(hub, none)[0], 1e3 * rival.change(none, hub)[0]])
    rival.close()
    return [
        sampled(
            "the interval that meets 100,000: a change with its delta", samples, "ms", less=True, rivals=[Rival("DuckDB", theirs, BY_HAND)],
            parameters={"rows": rows},
        ),
        sampled("its first 512 partners", first, "µs", aim=100.0, less=True),
    ]  # fmt: skip


def _change(tree: IntervalTree, version: int, deletes: Entries, inserts: Entries, expected: int) -> float:
    """Seconds of one version, whose delta has this many rows."""
    seen = 0

    def sink(sign: int, slots: np.ndarray) -> bool:
        nonlocal seen
        seen += slots.shape[1]
        return True

    elapsed = seconds(lambda: apply_batch(tree, version, deletes, inserts, sink))
    assert seen == expected, f"a delta of {seen} rows, not {expected}"
    return elapsed


def dawdling(workload: Workload, scale: Scale, note: Note) -> list[Figure]:
    """Batches are as fast while a reader of an old version takes 512 rows between two of them; and it still reads its version
    completely."""
    batch = scale.size(BATCH, 100)
    rounds = scale.size(20, 3)
    tree = IntervalTree("pair")
    tree.bulk_load(1, workload.entries)
    changes = Changes(workload)
    alone = [one_batch(tree, changes, batch)[0] for _ in range(rounds)]
    pinned, version = tree.root, int(tree.arena.C[VERSION])
    expected = whole_view(tree, pinned, 1)[1]
    pins = np.array([version], np.int64)
    cursor = tree.rows(pinned)
    taken, beside = 0, []
    for _ in range(rounds):
        beside.append(one_batch(tree, changes, batch, pins)[0])
        taken += len(cursor.fill(DAWDLE)[0])
    while count := len(cursor.fill(CHUNK)[0]):
        taken += count
    assert taken == expected, f"the slow reader got {taken} rows of {expected}"
    note(f"batches beside a slow reader {middle(beside) / 1e3:.0f} k/s, without {middle(alone) / 1e3:.0f} k/s")
    return [
        sampled("batches of 10,000 while a reader dawdles", beside, "changes/s", rivals=[Rival("without a reader", middle(alone))],
                note="the reader gets all rows of its version"),
    ]  # fmt: skip


def old_pin(workload: Workload, scale: Scale, note: Note) -> list[Figure]:
    """Memory of all versions under one old pin, as batches of a hundredth of the intervals are applied: at most two complete trees."""
    tree = IntervalTree("pair")
    old: EntryRoot = tree.bulk_load(1, workload.entries)
    pins = np.array([1], np.int64)
    n = len(workload.entries.key)
    churn = _Churn(workload)
    figures, at = [], 0
    for batches in (2, 4, 8) if scale.quick else (10, 20, 40, 80, 160, 320):
        while at < batches:
            at += 1
            deletes, inserts = churn.take(n // 100)
            apply_batch(tree, 1 + at, deletes, inserts, None)
            tree.reclaim(1 + at, pins)
        used = (tree.live_bytes + tree.retired_bytes) / n
        name = f"one old pin, after {batches} batches of {n // 100:,} changes: bytes an interval, all versions"
        figures.append(Figure(name, used, "B", less=True, parameters={"intervals": n, "batches": batches}))
    note(f"under one old pin: {', '.join(f'{figure.value:.0f}' for figure in figures)} bytes an interval")
    rows = whole_view(tree, old, 1)[1]
    tree.reclaim(1 + at, NO_PINS)
    left = float(tree.retired_bytes)
    figures.append(Figure("after the pin has gone: bytes that only old versions need", left, "B", 0.0, True, parameters={"rows": rows}))
    return figures


class _Churn:
    """Random intervals move to random positions, repeatedly."""

    def __init__(self, workload: Workload) -> None:
        self._now = Entries(*(column.copy() for column in workload.entries))
        self._rng = np.random.default_rng(5)

    def take(self, changes: int) -> tuple[Entries, Entries]:
        positions = self._rng.choice(len(self._now.key), changes // 2, replace=False)
        deletes = self._now.take(positions)
        moved = self._rng.integers(0, LINE, len(positions))
        inserts = deletes._replace(left=moved, right=moved + deletes.right - deletes.left)
        self._now.left[positions], self._now.right[positions] = inserts.left, inserts.right
        return deletes, inserts

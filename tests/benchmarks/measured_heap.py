"""The measurements of one workload for every subject of the IJ-heap and of boxes, and their figures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from structures.box.tree import BoxTree
from structures.box.tree import EntryRoot as BoxRoot
from structures.clique.tree import CliqueTree
from structures.core.control import VERSION
from structures.core.entries import RowBuffer
from structures.core.runs import MISSING
from structures.core.runs import RunChanges as EachChange
from structures.ij_heap.goals import STEPS, HeapWalk, new_walk
from structures.ij_heap.heap import Entries, EntryRoot, IJHeap, Topology
from structures.multiway.extreme import ASKED
from tests.benchmarks.data import Workload
from tests.benchmarks.figures import Figure, Rival, sampled, seconds
from tests.benchmarks.heap_kernels import heap_singles
from tests.benchmarks.kernels import RECLAIM_EVERY
from tests.benchmarks.measured_tree import CHUNK, NO_PINS, Changes, Effort, Note
from tests.structures.batches import apply_batch

FULL = Effort(3, 30_000, 2_000, 8, 10_000)
SMALL = Effort(3, 6_000, 1_000, 3, 10_000)
QUICK = Effort(2, 200, 50, 2, 100)

_LEVELS = 48  # more than any tree has

Joined = IJHeap | BoxTree | CliqueTree


class Reading(NamedTuple):
    """One reading of the whole view: its speed, and the counters of its cursor (boxes have no dead ends to count)."""

    rate: float
    rows: int
    steps: int
    gap: int
    dead_ends: int | None


class Singles(NamedTuple):
    """Changes a second, each its own version; rows gained; per change, the steps of its delta, and the nodes read for summaries and
    delta."""

    rate: float
    gained: int
    steps: float
    asked: float


class Measured(NamedTuple):
    """Samples are rates per second (`first` in seconds). `updates`: batches without deltas. `written`: rows of deltas a second, in batches.
    Bytes are those of blocks, per interval, after the load and after all changes. `delta`: rows of a single change on average."""

    n: int
    load: list[float]
    singles: list[float]
    calls: list[float]
    batches: list[float]
    updates: list[float]
    written: list[float]
    whole: list[float]
    first: list[float]
    reading: Reading
    bytes_loaded: float
    bytes_changed: float
    steps: float
    delta: float
    batch: int


class Aims(NamedTuple):
    load: float | None = None
    singles: float | None = None
    batches: float | None = None
    whole: float | None = None
    first: float | None = 100.0  # µs
    bytes: float | None = 100.0


class Rivals(NamedTuple):
    """By kind of work, as in `Measured`."""

    singles: list[Rival]
    batches: list[Rival]
    whole: list[Rival]
    first: list[Rival]  # µs


NO_AIMS = Aims()
NO_RIVALS = Rivals([], [], [], [])


def measure(topology: Topology, workload: Workload, effort: Effort, note: Note) -> Measured:
    """Measure an IJ-heap as `measure_joined` does."""
    return measure_joined(lambda: IJHeap(topology), topology.t, many_singles, workload, effort, note)


def measure_joined(
    make: Callable[[], Joined], members: int, many: Callable[[Joined, Changes, int], Singles], workload: Workload, effort: Effort,
    note: Note,
) -> Measured:  # fmt: skip
    """Load, read and change one workload. `members`: per row; `many`: single changes in a kernel. Raises AssertionError if the view does
    not match the deltas."""
    entries = workload.entries
    n = len(entries.key)
    load = []
    for _ in range(effort.repeats):
        heap = make()
        load.append(n / seconds(lambda: heap.bulk_load(1, entries)))  # noqa: B023
    root, loaded = heap.root, heap.live_bytes / n
    readings = [whole_view(heap, root) for _ in range(effort.repeats)]
    rows = readings[0].rows
    first = [seconds(lambda: heap.rows(root).fill(1)) for _ in range(20 * effort.repeats)]
    note(f"{workload.name}: {loaded:.0f} bytes an entry, {rows:,} rows, {max(r.rate for r in readings) / 1e6:.1f} M rows/s")
    changes = Changes(workload)
    batches = [one_batch(heap, changes, effort.batch, True) for _ in range(effort.batches)]
    singles = [many(heap, changes, effort.singles) for _ in range(effort.repeats)]
    calls = [many_calls(heap, changes, effort.calls) for _ in range(effort.repeats)]
    gained = sum(one.gained for one in (*batches, *singles, *calls))
    now = whole_view(heap, heap.root).rows
    assert now == rows + gained, f"the view has {now} rows, the deltas say {rows + gained}"
    updates = [one_batch(heap, changes, effort.batch, False).rate for _ in range(effort.batches)]
    in_turn = ", ".join(f"{max(one.rate for one in some) / 1e3:.0f} k/s" for some in (batches, singles, calls))
    note(f"{workload.name}: in batches, single, by calls {in_turn}; batches without deltas {max(updates) / 1e3:.0f} k/s")
    return Measured(
        n, load, [one.rate for one in singles], [one.rate for one in calls], [one.rate for one in batches], updates,
        [one.written for one in batches], [one.rate for one in readings], first, readings[0], loaded, heap.live_bytes / n,
        singles[0].steps, rows * members / n, effort.batch,
    )  # fmt: skip


def whole_view(heap: Joined, root: EntryRoot | BoxRoot) -> Reading:
    """Read all rows of a version, in chunks."""
    start = time.perf_counter()
    cursor = heap.rows(root)
    rows = 0
    while not cursor.done:
        rows += cursor.fill(CHUNK).shape[1]
    return Reading(rows / (time.perf_counter() - start), rows, cursor.steps, cursor.largest_gap, getattr(cursor, "dead_ends", None))


class Batch(NamedTuple):
    """Changes a second, rows of deltas written a second, and rows gained."""

    rate: float
    written: float
    gained: int


class Sink:
    """Counts the rows of deltas."""

    def __init__(self) -> None:
        self.gained = self.written = 0

    def __call__(self, sign: int, slots: np.ndarray) -> bool:
        self.gained += sign * slots.shape[1]
        self.written += slots.shape[1]
        return True


def one_batch(heap: Joined, changes: Changes, size: int, deltas: bool) -> Batch:
    """Apply one version of `size` changes, and reclaim."""
    deletes, inserts = changes.take(size)
    version = int(heap.arena.C[VERSION]) + 1
    sink = Sink()
    start = time.perf_counter()
    apply_batch(heap, version, deletes, inserts, sink if deltas else None)
    heap.reclaim(version, NO_PINS)
    elapsed = time.perf_counter() - start
    return Batch(2 * len(deletes.key) / elapsed, sink.written / elapsed, sink.gained)


def many_singles(heap: IJHeap, changes: Changes, count: int, deltas: bool = True) -> Singles:
    """Apply as many versions as changes, inside one kernel: delete, insert, delete, insert …"""
    deletes, inserts = changes.take(count)
    total = 2 * len(deletes.key)
    mixed = [np.stack((a, b), 1).reshape(-1) for a, b in zip(deletes, inserts, strict=True)]
    signs = np.tile(np.array([-1, 1], np.int8), total // 2)
    arena, t = heap.arena, heap.topology.t
    arena.require(total)
    scratch, walk, state = heap._arrays[-1], new_walk(arena.table, _LEVELS), np.zeros(3, np.int64)
    emitted, asked = RowBuffer(np.empty(t * CHUNK, np.int32), CHUNK), int(scratch[ASKED])
    each = EachChange(signs, Entries(*mixed), np.zeros(1, np.int64), np.empty(0, np.int64))
    start = time.perf_counter()
    walking = HeapWalk(walk, walk.view(np.int32), scratch)
    gained = heap_singles(arena.nodes, arena.writing, walking, state, each, emitted, NO_PINS, deltas)
    elapsed = time.perf_counter() - start
    assert state[MISSING] == 0, "an interval to delete was not there"
    return Singles(total / elapsed, int(gained), walk[STEPS] / total, (int(scratch[ASKED]) - asked) / total)


def many_calls(heap: Joined, changes: Changes, count: int) -> Batch:
    """The same with one Python call per change."""
    deletes, inserts = changes.take(count)
    none = deletes.take(slice(0, 0))
    singles: list[tuple[Entries, Entries]] = []
    for i in range(len(deletes.key)):
        singles += [(deletes.take(slice(i, i + 1)), none), (none, inserts.take(slice(i, i + 1)))]
    version, sink = int(heap.arena.C[VERSION]), Sink()
    start = time.perf_counter()
    for i, (deleted, inserted) in enumerate(singles):
        version += 1
        apply_batch(heap, version, deleted, inserted, sink)
        if i % RECLAIM_EVERY == 0:
            heap.reclaim(version, NO_PINS)
    elapsed = time.perf_counter() - start
    return Batch(len(singles) / elapsed, sink.written / elapsed, sink.gained)


def figures_of(name: str, measured: Measured, aims: Aims = NO_AIMS, rivals: Rivals = NO_RIVALS, *, of: str = "intervals") -> list[Figure]:
    """Return the figures of one workload; `name`: its name; `of`: its parameters."""
    n, reading = measured.n, measured.reading
    rows = max(reading.rows, 1)
    about = {"entries": n, "rows": reading.rows, "rows of a change": measured.delta}

    def rate(what: str, samples: list[float], unit: str, aim: float | None = None, rivals: list[Rival] | None = None) -> Figure:
        return sampled(f"{name}: {what}", samples, unit, aim=aim, rivals=rivals or [], parameters=about)

    def count(what: str, value: float, unit: str, aim: float | None = None, note: str = "") -> Figure:
        return Figure(f"{name}: {what}", value, unit, aim, True, parameters=about, note=note)

    first = [1e6 * value for value in measured.first]
    dead_ends = [] if reading.dead_ends is None else [count("dead ends a row", reading.dead_ends / rows, "nodes", 1.0)]
    return [
        rate("load", measured.load, f"{of}/s", aims.load),
        rate("single changes, each its own version, with deltas, in a kernel", measured.singles, "changes/s", aims.singles, rivals.singles),
        rate("single changes, one Python call each", measured.calls, "changes/s", None, rivals.singles),
        rate(f"batches of {measured.batch:,} with deltas", measured.batches, "changes/s", aims.batches, rivals.batches),
        rate(f"batches of {measured.batch:,} without deltas", measured.updates, "changes/s"),
        rate("whole view", measured.whole, "rows/s", aims.whole, rivals.whole),
        sampled(f"{name}: first row", first, "µs", aim=aims.first, less=True, rivals=rivals.first, parameters=about),
        count("bytes of an entry, loaded", measured.bytes_loaded, "B", aims.bytes),
        count("bytes of an entry, after the changes", measured.bytes_changed, "B", aims.bytes),
        count("steps of a delta", measured.steps, "steps", note=f"{measured.delta:.1f} rows each"),
        count("steps per row", reading.steps / rows, "steps"),
        count("largest gap between two rows", reading.gap, "steps", note=f"{reading.gap / math.log2(n):.1f} log2 n"),
        *dead_ends,
    ]

"""The rivals for one workload, as the subjects of the interval structure report them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.benchmarks.data import Workload
from tests.benchmarks.figures import Rival, middle, seconds
from tests.benchmarks.measured_tree import Changes, Effort, Note
from tests.benchmarks.rivals import (
    DuckDb,
    PythonTrees,
    Whole,
    changes_a_second,
    ncls_whole,
    python_changes_a_second,
    sort_and_sweep,
    sort_for_sweep,
    sweep_sorted,
)

RERUN = "recomputes the whole view"
BY_HAND = "hand-written delta query"


@dataclass
class Rivals:
    """By kind of work, as in `Measured`."""

    load: list[Rival] = field(default_factory=list)
    singles: list[Rival] = field(default_factory=list)
    batches: list[Rival] = field(default_factory=list)
    whole: list[Rival] = field(default_factory=list)
    first: list[Rival] = field(default_factory=list)  # seconds
    bytes: list[Rival] = field(default_factory=list)


def measure_rivals(workload: Workload, effort: Effort, note: Note, *, rows: int, keyed: bool = False, python: bool = True) -> Rivals:
    """Measure each rival with the same intervals, and fewer changes for the slow ones. `rows`: of the whole view. `python`: intervaltree is
    measured too."""
    found = Rivals()
    _duckdb(workload, effort, found, rows, keyed)
    note(f"{workload.name}: DuckDB {found.whole[0].value / 1e6:.1f} M rows/s, {found.batches[0].value / 1e3:.1f} k/s in batches")
    _sweep(workload, effort, found, rows)
    if not keyed:
        samples = [ncls_whole(workload.entries) for _ in range(min(effort.repeats, 3))]
        _add_whole(found, "ncls", samples, rows, "build and query")
    note(f"{workload.name}: sweep, ncls {[round(rival.value / 1e6, 1) for rival in found.whole[1:]]} M rows/s")
    if python:
        _python(workload, effort, found)
        note(f"{workload.name}: intervaltree {found.singles[-1].value / 1e3:.1f} k/s")
    return found


def _add_whole(found: Rivals, name: str, samples: list[Whole], rows: int, note: str = "") -> None:
    assert all(sample.rows == rows for sample in samples), f"{name} found {samples[0].rows} rows, we {rows}"
    found.whole.append(Rival(name, rows / middle([sample.all for sample in samples]), note))
    found.first.append(Rival(name, middle([sample.first for sample in samples])))


def _duckdb(workload: Workload, effort: Effort, found: Rivals, rows: int, keyed: bool) -> None:
    rival = DuckDb(workload.entries, keyed)
    _add_whole(found, "DuckDB", [rival.read() for _ in range(min(effort.repeats, 3))], rows, RERUN)
    changes = Changes(workload)
    batches = changes_a_second(rival, [changes.take(effort.batch) for _ in range(3)])
    singles = changes_a_second(rival, [changes.take(2) for _ in range(10)])
    found.batches.append(Rival("DuckDB", middle(batches), BY_HAND))
    found.singles.append(Rival("DuckDB", middle(singles), BY_HAND + ", two changes at a time"))
    rival.close()


def _sweep(workload: Workload, effort: Effort, found: Rivals, rows: int) -> None:
    samples = [sort_and_sweep(workload.entries) for _ in range(min(effort.repeats, 3))]
    _add_whole(found, "sort and sweep", samples, rows, "Numba")
    inputs = sort_for_sweep(workload.entries)
    sorted_already = middle([seconds(lambda: sweep_sorted(inputs)) for _ in range(effort.repeats)])
    found.whole.append(Rival("sweep", rows / sorted_already, "already sorted"))
    found.batches.append(Rival("sort and sweep", effort.batch / middle([sample.all for sample in samples]), RERUN))
    found.load.append(Rival("sort", len(workload.entries.key) / middle([sample.first for sample in samples]), "NumPy, builds no structure"))


def _python(workload: Workload, effort: Effort, found: Rivals) -> None:
    """Loading takes half a minute for a million intervals, so only once, and 2,000 changes."""
    import psutil

    process = psutil.Process()
    before = process.memory_info().rss
    trees: list[PythonTrees] = []
    elapsed = seconds(lambda: trees.append(PythonTrees(workload.entries)))
    count = len(workload.entries.key)
    found.load.append(Rival("intervaltree", count / elapsed))
    found.bytes.append(Rival("intervaltree", (process.memory_info().rss - before) / count, "memory growth of the process"))
    deletes, inserts = Changes(workload).take(effort.calls)
    found.singles.append(Rival("intervaltree", python_changes_a_second(trees[0], deletes, inserts)))

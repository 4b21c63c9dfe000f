"""The measurements of natural joins, whichever structure maintains them: load, changes, the whole view and memory, compared with DuckDB's
query, hash joins, and maintained results in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from structures.core.entries import DELETE, INSERT
from structures.index.indexes import NO_ENTRIES, Entries
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.natural_rivals import Batch, DuckDbNatural, PythonStar, SqliteMaintained, Variables, arrow_whole

CHUNK = 1 << 16
MOST_KEPT = 10_000_000  # rows of a result that rivals are asked to maintain
ANEW, PLAN = "runs the query again", "hash joins one after another, each result materialized"


class Data(NamedTuple):
    name: str
    variables: Variables
    entries: list[Entries]

    @property
    def n(self) -> int:
        return sum(len(one.slot) for one in self.entries)


class Cursor(Protocol):
    @property
    def done(self) -> bool: ...

    @property
    def largest_gap(self) -> int: ...

    def fill(self, limit: int) -> np.ndarray: ...


class Live(Protocol):
    """A loaded live view."""

    @property
    def bytes(self) -> int: ...

    def change(self, batch: Batch) -> int:
        """Apply deletes, then inserts, with the delta; return the rows gained."""
        ...

    def singles(self, positions: np.ndarray, signs: np.ndarray, entries: Entries) -> int:
        """Apply changes of these atoms one by one, with their deltas; return the rows of these deltas."""
        ...

    def rows(self) -> Cursor: ...


def count(cursor: Cursor) -> int:
    rows = 0
    while not cursor.done:
        rows += cursor.fill(CHUNK).shape[1]
    return rows


def measure(data: Data, make: Callable[[Data], Live], scale: Scale, note: Note) -> list[Figure]:
    """Raises AssertionError if a rival finds other rows, or the view does not match the deltas."""
    n, live, duck = data.n, make(data), DuckDbNatural(data.variables, data.entries)
    times = 1 if scale.quick else 3
    load = [n / seconds(lambda: make(data)) for _ in range(times)]
    per_tuple = live.bytes / n
    whole = [seconds(lambda: count(live.rows())) for _ in range(times)]
    first = [1e6 * seconds(lambda: live.rows().fill(1)) for _ in range(20 * times)]
    cursor = live.rows()
    rows = count(cursor)
    theirs, arrow = duck.read(), arrow_whole(data.variables, data.entries)
    assert theirs.rows == arrow.rows == rows, f"DuckDB found {theirs.rows} rows, Arrow {arrow.rows}, we {rows}"
    note(f"{data.name}: {rows:,} rows, {rows / middle(whole) / 1e6:.1f} M rows/s, {per_tuple:.1f} bytes a tuple")
    batches, duck_batches, size = _batches(data, live, duck, scale)
    duck.close()
    singles, each, of_each = _singles(data, live, scale)
    maintained, sizes = _maintained(data, of_each) if rows <= MOST_KEPT else ([], [])
    assert count(live.rows()) == rows
    kept = rows <= MOST_KEPT  # a change has few rows
    note(f"{middle(singles) / 1e3:.0f} k/s one by one, {middle(batches) / 1e3:.0f} k/s in batches")
    return [
        sampled(f"{data.name}: whole view", [rows / one for one in whole], "rows/s", aim=10e6, note=f"{rows:,} rows",
                rivals=[Rival("DuckDB", rows / theirs.all, ANEW), Rival("Arrow", rows / arrow.all, PLAN)]),
        sampled(f"{data.name}: first row", first, "µs", less=True,
                rivals=[Rival("DuckDB", 1e6 * theirs.first, ANEW), Rival("Arrow", 1e6 * arrow.first, PLAN)]),
        Figure(f"{data.name}: largest gap between rows", cursor.largest_gap, "steps", less=True),
        sampled(f"{data.name}: load", load, "tuples/s"),
        sampled(f"{data.name}: batches with delta, {size:,} changes", batches, "changes/s", aim=500e3 if kept else None,
                rivals=[Rival("DuckDB", middle(duck_batches), "hand-written delta queries"), *maintained]),
        sampled(f"{data.name}: single changes with delta", singles, "changes/s", aim=65e3 if kept else None,
                note=f"{each:.3g} rows a change", rivals=maintained),
        Figure(f"{data.name}: bytes a tuple", per_tuple, "B", aim=200.0, less=True,
               rivals=sizes),
    ]  # fmt: skip


def _batches(data: Data, live: Live, duck: DuckDbNatural, scale: Scale) -> tuple[list[float], list[float], int]:
    """Changes a second of each batch, ours and of some also DuckDB's; and changes per batch. Each batch deletes some entries and reinserts
    those that the one before deleted, so that the final state is the initial one."""
    rng = np.random.default_rng(3)
    part = scale.size(10_000, 120) // 6
    orders = [rng.permutation(len(entries.slot)) for entries in data.entries]
    before = [NO_ENTRIES] * len(orders)
    ours, theirs = [], []
    for i in range(4 if scale.quick else 13):
        deleted = [entries.take(order[i * part : (i + 1) * part]) for entries, order in zip(data.entries, orders, strict=True)]
        batch = list(zip(deleted, before, strict=True))
        start = time.perf_counter()
        gained = live.change(batch)
        if i:  # the first one inserts nothing
            ours.append(6 * part / (time.perf_counter() - start))
        if i < 4:
            spent, rows = duck.change(batch)
            assert rows == gained, f"DuckDB gained {rows} rows, we {gained}"
            theirs.append(6 * part / spent)
        before = deleted
    live.change([(NO_ENTRIES, one) for one in before])
    return ours, theirs[1:], 6 * part


def _singles(data: Data, live: Live, scale: Scale) -> tuple[list[float], float, list[Entries]]:
    """Changes a second of each pass; rows per change; and for each atom, the entries deleted and reinserted in the last pass."""
    rng = np.random.default_rng(4)
    part = scale.size(20_000, 30)
    rates, of_each, rows = [], data.entries, 0
    for _ in range(2 if scale.quick else 5):
        of_each = [entries.take(rng.permutation(len(entries.slot))[:part]) for entries in data.entries]
        rate, rows = single_changes(live, of_each, rng)
        rates.append(rate)
    return rates, rows / (6 * part), of_each


def single_changes(live: Live, of_each: list[Entries], rng: np.random.Generator) -> tuple[float, int]:
    """Delete these entries in any order, then reinsert them: changes a second, and rows."""
    width = max(one.coordinates.shape[1] for one in of_each)
    wide = np.concatenate([np.pad(one.coordinates, ((0, 0), (0, width - one.coordinates.shape[1]))) for one in of_each])
    slots = np.concatenate([one.slot for one in of_each])
    positions = np.repeat(np.arange(len(of_each)), [len(one.slot) for one in of_each])
    order = np.concatenate([rng.permutation(len(slots)), rng.permutation(len(slots))])
    signs = np.repeat(np.array([DELETE, INSERT], np.int8), len(slots))
    entries = Entries(wide[order], slots[order])
    start = time.perf_counter()
    rows = live.singles(positions[order], signs, entries)
    return len(signs) / (time.perf_counter() - start), rows


def _maintained(data: Data, of_each: list[Entries]) -> tuple[list[Rival], list[Rival]]:
    """Changes a second of the rivals that maintain the result, and their bytes per tuple."""
    some = [one.take(np.arange(min(len(one.slot), 3_000))) for one in of_each]
    changes = 2 * sum(len(one.slot) for one in some)
    rates, sizes = [], []
    for name, about, keep in _keepers(data):
        keeper = keep()
        sizes.append(Rival(name, keeper.bytes / data.n, about))
        start = time.perf_counter()
        counts = [sum(keeper.change(sign, position, one) for position, one in enumerate(some)) for sign in (DELETE, INSERT)]
        rates.append(Rival(name, changes / (time.perf_counter() - start), about))
        assert counts[0] == counts[1], f"{name} took {counts[0]} rows out, and put {counts[1]} in"
        keeper.close()
    return rates, sizes


def _keepers(data: Data) -> Iterator[tuple[str, str, Callable[[], SqliteMaintained | PythonStar]]]:
    yield "SQLite", "maintains the result as a table", lambda: SqliteMaintained(data.variables, data.entries)
    if all(len(own) == 1 for own in data.variables):
        yield "Python", "dicts, maintains the result as a set", lambda: PythonStar(data.entries)

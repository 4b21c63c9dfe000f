"""Hierarchical natural joins by view trees: load, changes, the whole view, memory, beside DuckDB anew, hash joins, and maintained results.

Stars R(x), S(x), T(x), and a tree of two levels R(x), S(x, y), T(x, y), in which a tuple has about two partners in each other atom, some
none; and a star with thirty, whose result nobody wants to keep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from structures.interval_changes import DELETE, INSERT
from structures.ordered_index import NO_ENTRIES, Changes, Entries, OrderedIndexes
from structures.view_tree import Atom, Cursor, ViewTree
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.natural_rivals import Batch, DuckDbNatural, PythonStar, SqliteMaintained, Variables, arrow_whole

TITLE = "View trees: hierarchical natural joins, 100,000 to 1,000,000 tuples"
CHUNK = 1 << 16
NO_PINS = np.empty(0, np.int64)
MOST_KEPT = 10_000_000  # rows of a result that somebody else is asked to keep
RUN = 1_000  # single changes that are applied together, each a version of its own
ANEW, PLAN = "the query anew", "two hash joins, each result whole"


class Data(NamedTuple):
    name: str
    variables: Variables
    entries: list[Entries]

    @property
    def n(self) -> int:
        return sum(len(one.slot) for one in self.entries)


def star(n: int, partners: int) -> Data:
    rng = np.random.default_rng(1)
    m = n // 3
    entries = [Entries(rng.integers(0, m // partners, (m, 1)), np.arange(m, dtype=np.int32)) for _ in range(3)]
    return Data(f"star, {3 * m:,} tuples, {partners} partners", ((0,), (0,), (0,)), entries)


def two_levels(n: int) -> Data:
    rng = np.random.default_rng(2)
    m = n // 3
    pairs = [rng.integers(0, m // 2, m) for _ in range(2)]
    columns = [rng.integers(0, m // 4, (m, 1)), *(np.column_stack((pair // 2, pair)) for pair in pairs)]
    return Data(f"two levels, {3 * m:,} tuples", ((0,), (0, 1), (0, 1)), [Entries(one, np.arange(m, dtype=np.int32)) for one in columns])


class Live:
    """The live view, each atom an index."""

    def __init__(self, data: Data) -> None:
        self.indexes, self.version = OrderedIndexes(), 1
        self.indexes.begin(1)
        self.atoms = [Atom(self.indexes.add(len(own)), own) for own in data.variables]
        for atom, entries in zip(self.atoms, data.entries, strict=True):
            self.indexes.load(atom.index, entries)
        self.view = ViewTree(self.indexes, self.atoms)
        self.view.load()

    def change(self, batch: Batch) -> int:
        """Deletes, then inserts, with the delta; rows gained."""
        gained: list[int] = []

        def sink(sign: int, slots: np.ndarray) -> bool:
            gained.append(sign * slots.shape[1])
            return True

        self._begin()
        self.view.follow(self.indexes.apply({atom.index: Changes(*one) for atom, one in zip(self.atoms, batch, strict=True)}), sink)
        self.indexes.reclaim(self.version, NO_PINS)
        return sum(gained)

    def singles(self, index: np.ndarray, signs: np.ndarray, entries: Entries) -> int:
        """Changes one by one, with their deltas; the rows of these."""
        rows = 0
        for first in range(0, len(signs), RUN):
            self._begin()
            some = slice(first, first + RUN)
            run = self.indexes.apply_in_order(index[some], signs[some], Entries(entries.coordinates[some], entries.slot[some]))
            rows += self.view.follow_in_order(run, 1 << 20).slots.shape[1]
            self.indexes.reclaim(self.version, NO_PINS)
        return rows

    def _begin(self) -> None:
        self.version += 1
        self.indexes.begin(self.version)

    def rows(self) -> Cursor:
        return self.view.rows(self.view.root)


def count(cursor: Cursor) -> int:
    rows = 0
    while not cursor.done:
        rows += cursor.fill(CHUNK).shape[1]
    return rows


def run(scale: Scale, note: Note) -> list[Figure]:
    small, large = scale.size(100_000, 1_200), scale.size(1_000_000, 3_000)
    shapes = star(small, 2), star(large, 2), star(small, 30), two_levels(large)
    return [figure for data in shapes for figure in measure(data, scale, note)]


def measure(data: Data, scale: Scale, note: Note) -> list[Figure]:
    """Raises AssertionError when a rival finds other rows, or the view is not what the deltas say."""
    n, live, duck = data.n, Live(data), DuckDbNatural(data.variables, data.entries)
    times = 1 if scale.quick else 3
    load = [n / seconds(lambda: Live(data)) for _ in range(times)]
    per_tuple = live.indexes.live_bytes / n
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
    kept = rows <= MOST_KEPT  # a change brings few rows
    note(f"{middle(singles) / 1e3:.0f} k/s one by one, {middle(batches) / 1e3:.0f} k/s in batches")
    return [
        sampled(f"{data.name}: whole view", [rows / one for one in whole], "rows/s", aim=10e6, note=f"{rows:,} rows",
                rivals=[Rival("DuckDB", rows / theirs.all, ANEW), Rival("Arrow", rows / arrow.all, PLAN)]),
        sampled(f"{data.name}: first row", first, "µs", less=True,
                rivals=[Rival("DuckDB", 1e6 * theirs.first, ANEW), Rival("Arrow", 1e6 * arrow.first, PLAN)]),
        Figure(f"{data.name}: largest gap between rows", cursor.largest_gap, "steps", less=True),
        sampled(f"{data.name}: load", load, "tuples/s"),
        sampled(f"{data.name}: batches with delta, {size:,} changes", batches, "changes/s", aim=500e3 if kept else None,
                rivals=[Rival("DuckDB", middle(duck_batches), "deltas by hand"), *maintained]),
        sampled(f"{data.name}: single changes with delta", singles, "changes/s", aim=65e3 if kept else None,
                note=f"{each:.3g} rows a change", rivals=maintained),
        Figure(f"{data.name}: bytes a tuple", per_tuple, "B", aim=200.0, less=True,
               rivals=sizes),
    ]  # fmt: skip


def _batches(data: Data, live: Live, duck: DuckDbNatural, scale: Scale) -> tuple[list[float], list[float], int]:
    """Changes a second, of each batch: ours, and of some DuckDB's; changes in a batch. Each takes some out, and puts in what the one before
    took: at last all is as it was."""
    rng = np.random.default_rng(3)
    part = scale.size(10_000, 120) // 6
    orders = [rng.permutation(len(entries.slot)) for entries in data.entries]
    before = [NO_ENTRIES] * len(orders)
    ours, theirs = [], []
    for i in range(4 if scale.quick else 13):
        gone = [entries.take(order[i * part : (i + 1) * part]) for entries, order in zip(data.entries, orders, strict=True)]
        batch = list(zip(gone, before, strict=True))
        start = time.perf_counter()
        gained = live.change(batch)
        if i:  # the first has no inserts
            ours.append(6 * part / (time.perf_counter() - start))
        if i < 4:
            spent, rows = duck.change(batch)
            assert rows == gained, f"DuckDB gained {rows} rows, we {gained}"
            theirs.append(6 * part / spent)
        before = gone
    live.change([(NO_ENTRIES, one) for one in before])
    return ours, theirs[1:], 6 * part


def _singles(data: Data, live: Live, scale: Scale) -> tuple[list[float], float, list[Entries]]:
    """Changes a second, of each pass; rows a change; of each atom what was taken out and put in again in the last."""
    rng = np.random.default_rng(4)
    part = scale.size(20_000, 30)
    rates, of_each, rows = [], data.entries, 0
    for _ in range(2 if scale.quick else 5):
        of_each = [entries.take(rng.permutation(len(entries.slot))[:part]) for entries in data.entries]
        rate, rows = single_changes(live, of_each, rng)
        rates.append(rate)
    return rates, rows / (6 * part), of_each


def single_changes(live: Live, of_each: list[Entries], rng: np.random.Generator) -> tuple[float, int]:
    """Take these entries out, in any order, then put them in again: changes a second, and rows."""
    width = max(one.coordinates.shape[1] for one in of_each)
    wide = np.concatenate([np.pad(one.coordinates, ((0, 0), (0, width - one.coordinates.shape[1]))) for one in of_each])
    slots = np.concatenate([one.slot for one in of_each])
    index = np.repeat([atom.index for atom in live.atoms], [len(one.slot) for one in of_each])
    order = np.concatenate([rng.permutation(len(slots)), rng.permutation(len(slots))])
    signs = np.repeat(np.array([DELETE, INSERT], np.int8), len(slots))
    entries = Entries(wide[order], slots[order])
    start = time.perf_counter()
    rows = live.singles(index[order], signs, entries)
    return len(signs) / (time.perf_counter() - start), rows


def _maintained(data: Data, of_each: list[Entries]) -> tuple[list[Rival], list[Rival]]:
    """Changes a second of those who keep the result, and their bytes a tuple."""
    some = [one.take(np.arange(min(len(one.slot), 3_000))) for one in of_each]
    changes = 2 * sum(len(one.slot) for one in some)
    rates, sizes = [], []
    for name, about, keep in _keepers(data):
        keeper = keep()
        sizes.append(Rival(name, keeper.bytes / data.n, about))
        start = time.perf_counter()
        counts = [sum(keeper.change(sign, place, one) for place, one in enumerate(some)) for sign in (DELETE, INSERT)]
        rates.append(Rival(name, changes / (time.perf_counter() - start), about))
        assert counts[0] == counts[1], f"{name} took {counts[0]} rows out, and put {counts[1]} in"
        keeper.close()
    return rates, sizes


def _keepers(data: Data) -> Iterator[tuple[str, str, Callable[[], SqliteMaintained | PythonStar]]]:
    yield "SQLite", "the result kept as a table", lambda: SqliteMaintained(data.variables, data.entries)
    if all(len(own) == 1 for own in data.variables):
        yield "Python", "dicts, the result kept as a set", lambda: PythonStar(data.entries)

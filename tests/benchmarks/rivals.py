"""What users have today, on the same data: DuckDB, sort and sweep, Python's intervaltree, ncls."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from structures.core.entries import Entries
from tests.benchmarks.figures import seconds
from tests.benchmarks.kernels import sweep

CHUNK = 65_536
_MEETS = "a.k = b.k AND a.s <= b.e AND b.s <= a.e"


class Whole(NamedTuple):
    """One reading of the whole view: seconds until the first chunk and until the last, and the number of rows."""

    first: float
    all: float
    rows: int


class DuckDb:
    """Two tables, with the join rerun; deltas by a hand-written query. In process, on all cores; in memory unless `path`."""

    def __init__(self, entries: Entries | None, keyed: bool, path: str = ":memory:") -> None:
        """`entries`: the contents of the tables; None: they are in the file at `path`."""
        import duckdb

        self._db = duckdb.connect(path)
        self._meets = _MEETS if keyed else _MEETS.removeprefix("a.k = b.k AND ")
        for position, name in enumerate("ab" if entries is not None else ""):
            self._register("given", entries.take(entries.set == position))
            self._db.execute(f"CREATE TABLE {name} AS SELECT * FROM given")

    def _register(self, name: str, entries: Entries) -> None:
        self._db.register(name, pa.table({"id": entries.slot, "k": entries.key, "s": entries.left, "e": entries.right}))

    def read(self) -> Whole:
        """The whole view as Arrow."""
        start = time.perf_counter()
        rows, first = 0, 0.0
        for batch in self._db.sql(f"SELECT a.id AS x, b.id AS y FROM a JOIN b ON {self._meets}").to_arrow_reader(CHUNK):
            first = first or time.perf_counter() - start
            rows += batch.num_rows
        return Whole(first, time.perf_counter() - start, rows)

    def change(self, deletes: Entries, inserts: Entries) -> tuple[float, int]:
        """Apply a batch in a transaction and read its delta as Arrow. Return seconds and rows gained."""
        for sign, entries in (("gone", deletes), ("come", inserts)):
            for position, name in enumerate("ab"):
                self._register(f"{sign}_{name}", entries.take(entries.set == position))
        start = time.perf_counter()
        self._db.execute("BEGIN")
        gained = -self._delta("gone_a a", "b") - self._delta("(FROM a ANTI JOIN gone_a USING (id)) a", "gone_b b")
        for name in "ab":
            self._db.execute(f"DELETE FROM {name} WHERE id IN (SELECT id FROM gone_{name})")
        gained += self._delta("come_a a", "b") + self._delta("(FROM a UNION ALL FROM come_a) a", "come_b b")
        for name in "ab":
            self._db.execute(f"INSERT INTO {name} FROM come_{name}")
        self._db.execute("COMMIT")
        return time.perf_counter() - start, gained

    def _delta(self, left: str, right: str) -> int:
        return self._db.sql(f"SELECT a.id AS x, b.id AS y FROM {left} JOIN {right} ON {self._meets}").to_arrow_table().num_rows

    def close(self) -> None:
        self._db.close()


class Sorted(NamedTuple):
    """One set in the order of (key, left), with the key encoded into the endpoints."""

    left: np.ndarray
    right: np.ndarray
    slot: np.ndarray


def sort_for_sweep(entries: Entries) -> tuple[Sorted, Sorted]:
    width = int(entries.right.max()) + 1
    inputs = []
    for position in (0, 1):
        input = entries.take(entries.set == position)
        left = input.key.astype(np.int64) * width + input.left
        order = np.argsort(left)
        inputs.append(Sorted(left[order], (input.key.astype(np.int64) * width + input.right)[order], input.slot[order]))
    return inputs[0], inputs[1]


def sweep_sorted(inputs: tuple[Sorted, Sorted]) -> int:
    """Return the number of rows of the whole view, by a forward sweep in chunks."""
    out0, out1 = np.empty(CHUNK, np.int32), np.empty(CHUNK, np.int32)
    state = np.zeros(3, np.int64)
    rows = 0
    while True:
        count = sweep(*inputs[0], *inputs[1], out0, out1, state)
        rows += count
        if count < CHUNK:
            return rows


def sort_and_sweep(entries: Entries) -> Whole:
    start = time.perf_counter()
    inputs = sort_for_sweep(entries)
    first = time.perf_counter() - start
    rows = sweep_sorted(inputs)
    return Whole(first, time.perf_counter() - start, rows)


def ncls_whole(entries: Entries) -> Whole:
    """Build the structure, and query all overlaps at once."""
    from ncls import NCLS

    a, b = entries.take(entries.set == 0), entries.take(entries.set == 1)
    start = time.perf_counter()
    index = NCLS(a.left, a.right + 1, a.slot.astype(np.int64))
    found = index.all_overlaps_both(b.left, b.right + 1, b.slot.astype(np.int64))
    elapsed = time.perf_counter() - start
    return Whole(elapsed, elapsed, len(found[0]))


class PythonTrees:
    """An `intervaltree` for each set and key; a change searches the other set's tree and updates its own."""

    def __init__(self, entries: Entries) -> None:
        from intervaltree import Interval, IntervalTree

        self._interval, self._tree = Interval, IntervalTree
        groups: tuple[dict, dict] = ({}, {})
        for s, k, left, right, slot in zip(*(column.tolist() for column in entries), strict=True):
            groups[s].setdefault(k, []).append(Interval(left, right + 1, slot))
        self._trees = tuple({k: IntervalTree(found) for k, found in group.items()} for group in groups)

    def change(self, sign: int, entries: Entries) -> int:
        """Apply changes one by one; return the rows of their deltas."""
        rows = 0
        for s, k, left, right, slot in zip(*(column.tolist() for column in entries), strict=True):
            other = self._trees[1 - s].get(k)
            if other is not None:
                rows += len([(slot, hit.data) for hit in other.overlap(left, right + 1)])
            if sign > 0:
                self._trees[s].setdefault(k, self._tree()).add(self._interval(left, right + 1, slot))
            else:
                self._trees[s][k].remove(self._interval(left, right + 1, slot))
        return rows


def changes_a_second(rival: DuckDb, changes: list[tuple[Entries, Entries]]) -> list[float]:
    return [(len(deleted.key) + len(inserted.key)) / rival.change(deleted, inserted)[0] for deleted, inserted in changes]


def python_changes_a_second(trees: PythonTrees, deletes: Entries, inserts: Entries) -> float:
    count = len(deletes.key) + len(inserts.key)
    return count / seconds(lambda: (trees.change(-1, deletes), trees.change(1, inserts)))

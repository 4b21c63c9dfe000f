"""What users have for joins of many relations: DuckDB, with the query rerun or hand-written deltas; and look-ups pair by pair in Python's
intervaltree."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from structures.ij_heap.heap import Entries, Topology
from tests.benchmarks.rivals import CHUNK, Whole

PATIENCE = 30.0  # seconds until a query in DuckDB is interrupted: some of its plans for cliques take minutes


def binding_order(topology: Topology, first: int) -> list[int]:
    """Return all sets, beginning with `first`, each adjacent to one before it."""
    order = [first]
    while len(order) < topology.t:
        bound = sum(1 << i for i in order)
        order.append(next(j for j in range(topology.t) if not bound >> j & 1 and topology.near[j] & bound))
    return order


class DuckDbOfMany:
    """A table for each set of intervals or boxes, with the join rerun; deltas by hand-written queries. In process, on all cores; in memory
    unless `path`. `one_set`: all aliases are of one table, and neighbours are in the order of their ids."""

    def __init__(self, topology: Topology, entries: Entries, path: str = ":memory:", *, one_set: bool = False) -> None:
        import duckdb

        self._interrupted = duckdb.InterruptException
        self._topology, self._dimensions = topology, 1 if entries.left.ndim == 1 else entries.left.shape[1]
        self._db = duckdb.connect(path)
        self._one_set = one_set
        self._tables = range(1 if one_set else topology.t)
        self._of = [0] * topology.t if one_set else list(range(topology.t))  # the table of each alias
        for i in self._tables:
            self._register("given", entries.take(entries.set == i))
            self._db.execute(f"CREATE TABLE r{i} AS SELECT * FROM given")

    def _register(self, name: str, entries: Entries) -> None:
        columns = {"id": entries.slot}
        for end, values in (("s", entries.left), ("e", entries.right)):
            columns |= {f"{end}{d}": np.ascontiguousarray(column) for d, column in enumerate(np.atleast_2d(values.T))}
        self._db.register(name, pa.table(columns))

    def read(self) -> Whole | None:
        """The whole view as Arrow; None if that took longer than PATIENCE."""
        with self._patiently():
            start = time.perf_counter()
            rows, first = 0, 0.0
            for batch in self._db.sql(self._query(0, [f"r{i}" for i in self._of])).to_arrow_reader(CHUNK):
                first = first or time.perf_counter() - start
                rows += batch.num_rows
            return Whole(first, time.perf_counter() - start, rows)
        return None

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        """Interrupt the body if it takes longer than PATIENCE."""
        timer = threading.Timer(PATIENCE, self._db.interrupt)
        timer.start()
        try:
            yield
        except self._interrupted:
            pass
        except OSError as error:  # DuckDB raises the same through Arrow's reader
            if "INTERRUPT" not in str(error):
                raise
        finally:
            timer.cancel()

    def change(self, deletes: Entries, inserts: Entries) -> tuple[float, int] | None:
        """Apply a batch in a transaction and read its delta as Arrow. Return seconds and rows gained. Return None, without applying the
        batch, if that took longer than PATIENCE."""
        with self._patiently():
            return self._change(deletes, inserts)
        self._db.execute("ROLLBACK")
        return None

    def _change(self, deletes: Entries, inserts: Entries) -> tuple[float, int]:
        aliases = range(self._topology.t)
        for sign, entries in (("gone", deletes), ("come", inserts)):
            for i in self._tables:
                self._register(f"{sign}{i}", entries.take(entries.set == i))
        start = time.perf_counter()
        self._db.execute("BEGIN")
        gained = -sum(self._delta(i, "gone", "(FROM r{0} ANTI JOIN gone{0} USING (id))") for i in aliases)
        for i in self._tables:
            self._db.execute(f"DELETE FROM r{i} WHERE id IN (SELECT id FROM gone{i})")
        gained += sum(self._delta(i, "come", "(FROM r{0} UNION ALL FROM come{0})") for i in aliases)
        for i in self._tables:
            self._db.execute(f"INSERT INTO r{i} FROM come{i}")
        self._db.execute("COMMIT")
        return time.perf_counter() - start, gained

    def _delta(self, i: int, changed: str, after: str) -> int:
        """Rows of the changed intervals of alias i, with the aliases before it in their new state and those after it in their old one."""
        tables = [after.format(k) if j < i else f"{changed}{k}" if j == i else f"r{k}" for j, k in enumerate(self._of)]
        return self._db.sql(self._query(i, tables)).to_arrow_table().num_rows

    def _query(self, first: int, tables: list[str]) -> str:
        order = binding_order(self._topology, first)
        text = f"SELECT {', '.join(f't{i}.id AS x{i}' for i in range(len(tables)))} FROM {tables[first]} t{first}"
        for at, j in enumerate(order[1:], 1):
            near = [i for i in order[:at] if self._topology.near[j] >> i & 1]
            meets = [f"t{j}.s{d} <= t{i}.e{d} AND t{i}.s{d} <= t{j}.e{d}" for i in near for d in range(self._dimensions)]
            meets += [f"t{min(i, j)}.id < t{max(i, j)}.id" for i in near if self._one_set]
            text += f" JOIN {tables[j]} t{j} ON {' AND '.join(meets)}"
        return text

    def close(self) -> None:
        self._db.close()


class LookUps:
    """The naive delta: an `intervaltree` per set; a change looks up partners in an adjacent set, then their partners in the next set, and
    so on."""

    def __init__(self, t: int, entries: Entries) -> None:
        from intervaltree import Interval, IntervalTree

        self._interval = Interval
        sets: list[list[object]] = [[] for _ in range(t)]
        for s, left, right, slot in _items(entries):
            sets[s].append(Interval(left, right + 1, slot))
        self._trees = [IntervalTree(found) for found in sets]

    def change(self, topology: Topology, sign: int, entries: Entries) -> int:
        """Apply changes one by one; return the rows of their deltas."""
        orders = [binding_order(topology, s) for s in range(topology.t)]
        rows = 0
        for s, left, right, slot in _items(entries):
            one = self._interval(left, right + 1, slot)
            if sign < 0:
                self._trees[s].remove(one)
            rows += sum(1 for _ in self._rows(topology, orders[s], {s: one}))
            if sign > 0:
                self._trees[s].add(one)
        return rows

    def _rows(self, topology: Topology, order: list[int], bound: dict) -> Iterator[list[int]]:
        if len(bound) == topology.t:
            yield [bound[i].data for i in range(topology.t)]
            return
        j = order[len(bound)]
        near, *others = [bound[i] for i in order[: len(bound)] if topology.near[j] >> i & 1]
        for found in self._trees[j].overlap(near.begin, near.end):
            if all(found.begin < other.end and other.begin < found.end for other in others):
                yield from self._rows(topology, order, bound | {j: found})


def _items(entries: Entries) -> Iterator[tuple[int, int, int, int]]:
    columns = entries.set, entries.left, entries.right, entries.slot
    return zip(*(column.tolist() for column in columns), strict=True)

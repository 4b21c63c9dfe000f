"""What users have today for natural joins of any number of atoms: DuckDB's query, Arrow's hash joins one after another, and maintained
results in SQLite with all indexes and in Python's dicts."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from structures.index.indexes import Entries
from tests.benchmarks.rivals import CHUNK, Whole

Variables = Sequence[tuple[int, ...]]
Batch = Sequence[tuple[Entries, Entries]]
"""Of each atom what goes and what comes."""


def table_of(entries: Entries, own: tuple[int, ...]) -> pa.Table:
    columns = {f"v{v}": np.ascontiguousarray(entries.coordinates[:, j]) for j, v in enumerate(own)}
    return pa.table({**columns, "s": entries.slot})


def select(variables: Variables, tables: Sequence[str]) -> str:
    """The join's SQL; atom i is r<i>, its rows' slots s<i>."""
    parts = [f"{tables[0]} r0"]
    for i, own in enumerate(variables[1:], 1):
        known = [(v, next(j for j in range(i) if v in variables[j])) for v in own if any(v in variables[j] for j in range(i))]
        parts.append(f"{tables[i]} r{i} ON " + " AND ".join(f"r{i}.v{v} = r{j}.v{v}" for v, j in known))
    return f"SELECT {', '.join(f'r{i}.s AS s{i}' for i in range(len(variables)))} FROM " + " JOIN ".join(parts)


class DuckDbNatural:
    """In process, in memory, on all cores: the query is rerun, deltas are hand-written queries."""

    def __init__(self, variables: Variables, data: Sequence[Entries]) -> None:
        import duckdb

        self._db, self._variables, self._interrupted = duckdb.connect(), variables, duckdb.InterruptException
        for i, (own, entries) in enumerate(zip(variables, data, strict=True)):
            self._db.register("given", table_of(entries, own))
            self._db.execute(f"CREATE TABLE t{i} AS SELECT * FROM given")

    def _read(self, tables: Sequence[str]) -> Whole:
        start = time.perf_counter()
        rows, first = 0, 0.0
        for batch in self._db.sql(select(self._variables, tables)).to_arrow_reader(CHUNK):
            first = first or time.perf_counter() - start
            rows += batch.num_rows
        return Whole(first, time.perf_counter() - start, rows)

    def read(self) -> Whole:
        """The whole view as Arrow."""
        return self._read([f"t{i}" for i in range(len(self._variables))])

    def read_within(self, seconds: float) -> Whole | None:
        """As `read`; None if it takes longer."""
        timer = threading.Timer(seconds, self._db.interrupt)
        timer.start()
        try:
            return self.read()
        except (self._interrupted, OSError) as error:  # the second is raised through Arrow's reader
            if "INTERRUPT" not in str(error).upper():
                raise
            return None
        finally:
            timer.cancel()

    def joined(self) -> int:
        """Return the number of rows that all joins of its plan produce together, as counted by its profiler."""
        query = select(self._variables, [f"t{i}" for i in range(len(self._variables))])
        (_, text), *_ = self._db.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}").fetchall()

        def rows(operator: dict[str, Any]) -> int:
            own = int(operator["intermediate_rows"]) if "JOIN" in operator["type"] else 0
            return own + sum(map(rows, operator.get("children", ())))

        return sum(map(rows, json.loads(text)["operator"]))

    def change(self, batch: Batch) -> tuple[float, int]:
        """Apply a batch in a transaction and read its delta as Arrow. Return seconds and rows gained."""
        t = range(len(self._variables))
        for i in t:
            for name, entries in zip(("gone", "come"), batch[i], strict=True):
                self._db.register(f"{name}{i}", table_of(entries, self._variables[i]))
        start = time.perf_counter()
        self._db.execute("BEGIN")
        kept = [f"(FROM t{i} ANTI JOIN gone{i} USING (s))" for i in t]
        gained = -sum(self._read([kept[j] if j < i else f"gone{j}" if j == i else f"t{j}" for j in t]).rows for i in t)
        for i in t:
            self._db.execute(f"DELETE FROM t{i} WHERE s IN (SELECT s FROM gone{i})")
        new = [f"(FROM t{i} UNION ALL FROM come{i})" for i in t]
        gained += sum(self._read([new[j] if j < i else f"come{j}" if j == i else f"t{j}" for j in t]).rows for i in t)
        for i in t:
            self._db.execute(f"INSERT INTO t{i} FROM come{i}")
        self._db.execute("COMMIT")
        return time.perf_counter() - start, gained

    def close(self) -> None:
        self._db.close()


def arrow_whole(variables: Variables, data: Sequence[Entries]) -> Whole:
    """A pairwise plan of hash joins on all cores; each result is materialized."""
    tables = [table_of(entries, own).rename_columns([*(f"v{v}" for v in own), f"s{i}"])
              for i, (own, entries) in enumerate(zip(variables, data, strict=True))]  # fmt: skip
    start = time.perf_counter()
    joined = tables[0]
    for table in tables[1:]:
        joined = joined.join(table, [name for name in table.column_names if name in joined.column_names], join_type="inner")
    elapsed = time.perf_counter() - start
    return Whole(elapsed, elapsed, joined.num_rows)


class SqliteMaintained:
    """The result as a table with an index per column, beside indexed tables. A change looks up its rows and writes them. In memory."""

    def __init__(self, variables: Variables, data: Sequence[Entries]) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        t = range(len(variables))
        self._db.execute("BEGIN")
        for i, (own, entries) in enumerate(zip(variables, data, strict=True)):
            names = ", ".join(f"v{v}" for v in own)
            self._db.execute(f"CREATE TABLE t{i} (s INTEGER PRIMARY KEY, {names})")
            rows = np.column_stack((entries.slot, entries.coordinates[:, : len(own)])).tolist()
            self._db.executemany(f"INSERT INTO t{i} VALUES (?{', ?' * len(own)})", rows)
            self._db.execute(f"CREATE INDEX i{i} ON t{i} ({names})")
        self._db.execute("CREATE TABLE result AS " + select(variables, [f"t{i}" for i in t]))
        for i in t:
            self._db.execute(f"CREATE INDEX s{i} ON result (s{i})")
        self._db.execute("COMMIT")
        self._put = [f"INSERT INTO t{i} VALUES (?{', ?' * len(own)})" for i, own in enumerate(variables)]
        tables = [f"t{i}" for i in t]
        self._inserted = [f"INSERT INTO result {select(variables, tables)} WHERE r{i}.s = ?" for i in t]

    def change(self, sign: int, position: int, entries: Entries) -> int:
        """Apply changes one by one, in one transaction; return the rows of their deltas."""
        rows, run = 0, self._db.execute
        run("BEGIN")
        for values, slot in zip(entries.coordinates.tolist(), entries.slot.tolist(), strict=True):
            if sign > 0:
                run(self._put[position], (slot, *values))
                rows += run(self._inserted[position], (slot,)).rowcount
            else:
                rows += run(f"DELETE FROM result WHERE s{position} = ?", (slot,)).rowcount
                run(f"DELETE FROM t{position} WHERE s = ?", (slot,))
        run("COMMIT")
        return rows

    @property
    def bytes(self) -> int:
        return int(self._db.execute("PRAGMA page_count").fetchone()[0]) * int(self._db.execute("PRAGMA page_size").fetchone()[0])

    def close(self) -> None:
        self._db.close()


class PythonStar:
    """The groups of a star in dicts, and its result as a set of rows, in plain Python."""

    def __init__(self, data: Sequence[Entries]) -> None:
        self._groups: list[dict[int, dict[int, None]]] = [{} for _ in data]
        for group, entries in zip(self._groups, data, strict=True):
            for value, slot in zip(entries.coordinates[:, 0].tolist(), entries.slot.tolist(), strict=True):
                group.setdefault(value, {})[slot] = None
        self.result = {row for value in self._groups[0] for row in self._rows(value, -1, 0)}

    def _rows(self, value: int, position: int, slot: int) -> Iterator[tuple[int, ...]]:
        return product(*((slot,) if i == position else group.get(value, ()) for i, group in enumerate(self._groups)))

    def change(self, sign: int, position: int, entries: Entries) -> int:
        """Apply changes one by one; return the rows of their deltas."""
        count, group = 0, self._groups[position]
        for value, slot in zip(entries.coordinates[:, 0].tolist(), entries.slot.tolist(), strict=True):
            rows = list(self._rows(value, position, slot))
            count += len(rows)
            if sign > 0:
                group.setdefault(value, {})[slot] = None
                self.result.update(rows)
            else:
                del group[value][slot]
                self.result.difference_update(rows)
        return count

    @property
    def bytes(self) -> int:
        """Without the numbers themselves."""
        parts = [self.result, *self.result, *self._groups, *(one for group in self._groups for one in group.values())]
        return sum(map(sys.getsizeof, parts))

    def close(self) -> None:
        self.result.clear()

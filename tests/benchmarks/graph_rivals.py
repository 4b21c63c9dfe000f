"""The triangle query in DuckDB: one table of edges, with the query rerun or hand-written deltas. DuckDB joins relation by relation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tests.benchmarks.rivals import CHUNK, Whole

PATIENCE = 30.0  # seconds until a query is interrupted: a hub has n^2 / 4 pairs


class DuckDbTriangle:
    """In process, in memory, on all cores."""

    def __init__(self, edges: np.ndarray) -> None:
        """Edges as int32[n, 3]: source, target, slot."""
        import duckdb

        self._interrupted = duckdb.InterruptException
        self._db = duckdb.connect()
        self._register("given", edges)
        self._db.execute("CREATE TABLE e AS SELECT * FROM given")

    def _register(self, name: str, edges: np.ndarray) -> None:
        self._db.register(name, pa.table({column: np.ascontiguousarray(edges[:, i]) for i, column in enumerate("abs")}))

    def read(self) -> Whole | None:
        """The whole view as Arrow; None if that took longer than PATIENCE."""
        return self._patiently(lambda start: self._read(start))

    def use_one_thread(self) -> None:
        """Use a single thread from now on. By default, all cores scan a table of more than one row group (122,880 rows)."""
        self._db.execute("SET threads = 1")

    def _read(self, start: float) -> Whole:
        rows, first = 0, 0.0
        for batch in self._db.sql(_query("e", "e", "e")).to_arrow_reader(CHUNK):
            first = first or time.perf_counter() - start
            rows += batch.num_rows
        return Whole(first, time.perf_counter() - start, rows)

    def change(self, deleted: np.ndarray, inserted: np.ndarray) -> tuple[float, int] | None:
        """Apply a batch in a transaction and read its delta as Arrow. Return seconds and rows gained; None if it took longer than
        PATIENCE."""
        self._register("gone", deleted)
        self._register("come", inserted)
        return self._patiently(self._change)

    def _change(self, start: float) -> tuple[float, int]:
        self._db.execute("BEGIN")
        kept, new = "(FROM e ANTI JOIN gone USING (s))", "(FROM e UNION ALL FROM come)"
        gained = -sum(self._count(one) for one in (("gone", "e", "e"), (kept, "gone", "e"), (kept, kept, "gone")))
        self._db.execute("DELETE FROM e WHERE s IN (SELECT s FROM gone)")
        gained += sum(self._count(one) for one in (("come", "e", "e"), (new, "come", "e"), (new, new, "come")))
        self._db.execute("INSERT INTO e FROM come")
        self._db.execute("COMMIT")
        return time.perf_counter() - start, gained

    def _count(self, tables: tuple[str, str, str]) -> int:
        return sum(batch.num_rows for batch in self._db.sql(_query(*tables)).to_arrow_reader(CHUNK))

    def _patiently(self, work: Callable[[float], Any]) -> Any:
        timer = threading.Timer(PATIENCE, self._db.interrupt)
        timer.start()
        try:
            return work(time.perf_counter())
        except self._interrupted:
            return self._give_up()
        except OSError as error:  # DuckDB raises the same through Arrow's reader
            if "INTERRUPT" not in str(error):
                raise
            return self._give_up()
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        try:
            self._db.execute("ROLLBACK")
        except Exception as error:
            if "no transaction" not in str(error):
                raise

    def close(self) -> None:
        self._db.close()


def _query(x: str, y: str, z: str) -> str:
    return f"SELECT x.s AS x, y.s AS y, z.s AS z FROM {x} x JOIN {y} y ON x.b = y.a JOIN {z} z ON y.b = z.b AND x.a = z.a"

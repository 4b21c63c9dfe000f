"""The latest rows of 10^5 keys, and as-of joins: how much of the writer's time a change takes when the view is followed. The rival is
DuckDB, which runs the query again and finds the same rows."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.instance import Instance
from service.reading.cursors import open_rows
from service.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from service.wire.schema import parse_relation
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.service.running import opened

TITLE = "The latest rows of each key, and as-of joins: changes to a view"
REPEATS, BATCH, AIM = 20, 10_000, 300_000.0
DEFINITION = parse_relation(
    {"columns": [{"name": name, "type": "int64"} for name in ("k", "t", "v")], "key": ["k", "t"], "intervals": {"at": {"at": "t"}}}
)
VIEWS = {
    "latest": "SELECT DISTINCT ON (b.k) b.k AS k, b.t AS t, b.v AS v FROM b ORDER BY b.k, b.t DESC",
    "top 3": "SELECT b.k AS k, b.t AS t, b.v AS v FROM b QUALIFY ROW_NUMBER() OVER (PARTITION BY b.k ORDER BY b.t DESC) <= 3",
    "as-of": "SELECT a.k AS k, a.t AS s, b.t AS t, b.v AS v FROM a ASOF JOIN b ON a.k = b.k AND b.t <= a.t",
    "as-of, left": "SELECT a.k AS k, a.t AS s, b.t AS t, b.v AS v FROM a ASOF LEFT JOIN b ON a.k = b.k AND b.t <= a.t",
}


def run(scale: Scale, note: Note) -> list[Figure]:
    n, keys, size = scale.size(1_000_000, 20_000), scale.size(100_000, 2_000), scale.size(BATCH, 500)
    rng = np.random.default_rng(11)
    sides = {name: _drawn(rng, n, keys) for name in "ab"}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        engine = opened(Path(folder))
        for name, rows in sides.items():
            engine.put_relation(name, DEFINITION)
            engine.apply(_batch(name, UPSERT, rows))
        for name, sql in VIEWS.items():
            engine.put_view("v", {"sql": sql}, wait=600)
            rival, wanted = _anew(sql, sides)
            assert _told(engine) == wanted, name
            rates = _rates(engine, rng, keys, size, scale.size(REPEATS, 2))
            note(f"{name}: {middle(rates) / 1e3:.0f} k changes/s; DuckDB runs the query anew in {rival:.3f} s")
            rivals = [Rival("DuckDB anew", 1 / rival, "recomputes the whole result for each change")]
            parameters = {"rows of each relation": n, "keys": keys, "changes of a batch": size}
            found.append(sampled(f"{name}: rows of b that come and go, in batches", rates, "changes/s", aim=AIM, rivals=rivals,
                                 parameters=parameters))  # fmt: skip
            engine.drop_view("v")
        engine.close()
    return found


def _drawn(rng: np.random.Generator, n: int, keys: int) -> pa.RecordBatch:
    """Rows with distinct (k, t), where t is even."""
    pairs = rng.choice(keys * 1000, n, replace=False) if n < keys * 100 else rng.permutation(keys * 1000)[:n]
    columns = [pairs // 1000, 2 * (pairs % 1000), rng.integers(0, 1000, n)]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], ["k", "t", "v"])


def _batch(name: str, op: int, rows: pa.RecordBatch) -> Batch:
    n = rows.num_rows
    return Batch([Changes(name, DEFINITION, np.full(n, op, np.uint8), RowBlock(rows), np.arange(n))], n, 0, [], 0)


def _rates(engine: Instance, rng: np.random.Generator, keys: int, size: int, repeats: int) -> list[float]:
    """Changes a second that the view takes, in batches that insert rows with odd t, half of them after all others, and in batches that
    delete them, so that the relations end with the same rows."""
    join, rates = engine.views["v"].join, list[float]()
    follow, took = join.apply, list[float]()

    def timed(*arguments: Any) -> None:
        started = time.perf_counter()
        follow(*arguments)
        took.append(time.perf_counter() - started)

    join.apply = timed  # type: ignore[method-assign]
    for _ in range(repeats):
        rows = _drawn(rng, size, keys)
        rows = rows.set_column(1, "t", pa.array(np.asarray(rows.column("t")) + 1 + 2000 * rng.integers(0, 2, size)))
        for op, some in ((UPSERT, rows), (DELETE, rows.select(["k", "t"]))):
            took.clear()
            engine.apply(_batch("b", op, some))
            rates.append(size / sum(took))
    return rates


def _told(engine: Instance) -> tuple[int, int]:
    """The number of rows of the view, and the sum of their values."""
    with closing(open_rows(engine.readers, "v")) as reader:
        parts = list(iter(partial(reader.read, 100_000), None))
    return sum(part.num_rows for part in parts), sum(pc.sum(column).as_py() or 0 for part in parts for column in part.columns)


def _anew(sql: str, sides: dict[str, pa.RecordBatch]) -> tuple[float, tuple[int, int]]:
    """Seconds in which DuckDB runs the query; and the result as in `_told`."""
    import duckdb

    with duckdb.connect() as other:
        for name, rows in sides.items():
            other.register("given", pa.Table.from_batches([rows]))
            other.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            other.unregister("given")
        took = min(seconds(lambda: other.execute(f"SELECT count(*), sum(v) FROM ({sql})").fetchall()) for _ in range(3))
        names = [name for (name, *_) in other.execute(f"DESCRIBE {sql}").fetchall()]
        added = " + ".join(f"coalesce(sum({name}), 0)" for name in names)
        rows, amount = other.execute(f"SELECT count(*), {added} FROM ({sql})").fetchall()[0]
        return took, (rows, int(amount))

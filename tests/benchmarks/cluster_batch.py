"""Overlap joins of frames in a local Spark, in cells and in buckets, beside Spark's own plan, DuckDB and the structures in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from service.engine.headless import Cell
from service.views.parse import parse_view
from service.wire.kinds import kept
from service.wire.schema import parse_relation
from streaming.cluster.batch import Planned, overlap_join
from streaming.spark import prepare_own
from tests.benchmarks.figures import Figure, Rival, Scale, seconds
from tests.benchmarks.measured_tree import Note

TITLE = "A cluster: overlap joins of frames in batch, in a Spark with two threads"
LINE = 10**9
OWN = 10  # Spark's own plan gets one row in so many: it compares all pairs


def uniform(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    return {"starts": rng.integers(0, LINE, rows), "lengths": rng.integers(1, 2 * LINE // rows, rows), "keys": np.zeros(rows, np.int64)}


def burst(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """Half of the starts in a millionth of the line, of length 1 or 2."""
    own = uniform(rng, rows)
    together = rng.random(rows) < 0.5
    starts = np.where(together, rng.integers(0, max(1000, LINE // 10**6), rows), own["starts"])
    return own | {"starts": starts, "lengths": np.where(together, 1, own["lengths"])}


def long(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    own = uniform(rng, rows)
    return own | {"lengths": np.where(rng.random(rows) < 2e-4, LINE // 4, own["lengths"])}


def hot(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    return uniform(rng, rows) | {"keys": np.where(rng.random(rows) < 0.8, 0, rng.integers(1, 1000, rows))}


SETS: Mapping[str, Callable[[np.random.Generator, int], dict[str, np.ndarray]]] = {
    "uniform": uniform, "burst": burst, "0.02 % long": long, "80 % of one key": hot,
}  # fmt: skip
DEFINITION = {
    "columns": [{"name": name, "type": "int64"} for name in ("id", "k", "s", "e")],
    "key": ["id"],
    "intervals": {"i": {"start": "s", "end": "e"}},
}
VIEW = "SELECT a.id AS x, b.id AS y FROM a JOIN b ON a.k = b.k AND overlaps(a.i, b.i)"


def table(made: dict[str, np.ndarray]) -> pa.Table:
    rows = len(made["starts"])
    return pa.table({"id": np.arange(rows), "k": made["keys"], "s": made["starts"], "e": made["starts"] + made["lengths"]})


def run(scale: Scale, note: Note) -> list[Figure]:
    rows = scale.size(500_000, 2_000)
    builder = SparkSession.builder.appName("cluster_batch")
    for key, value in (prepare_own() | {"spark.driver.memory": "3g"}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        return [figure for name in SETS for figure in measured(spark, name, rows, note)]
    finally:
        spark.stop()


def measured(spark: SparkSession, name: str, rows: int, note: Note) -> list[Figure]:
    rng = np.random.default_rng(5)
    a, b = (table(SETS[name](rng, rows)) for _ in range(2))
    x, y = (spark.createDataFrame(one).cache() for one in (a, b))
    x.count(), y.count()
    other = y.withColumnsRenamed({"id": "id2", "s": "s2", "e": "e2"})

    def joined() -> DataFrame:
        return overlap_join(x, other, ("s", "e"), ("s2", "e2"), on=["k"])

    timed, found = {}, {}
    for plan, in_buckets in (("cells", False), ("buckets", True)):
        with patch.object(Planned, "in_buckets", in_buckets):
            joined().count()  # warm: kernels, workers
            timed[plan] = seconds(lambda plan=plan: found.update({plan: joined().count()}))
    chosen = seconds(lambda: found.update(chosen=joined().count()))
    timed["DuckDB"] = seconds(lambda: found.update(duckdb=of_duckdb(a, b)))
    timed["one process"] = seconds(lambda: found.update(process=of_one_process(a, b)))
    assert len(set(found.values())) == 1, found
    few = [one.limit(rows // OWN).cache() for one in (x, other)]
    meets = (F.col("s") < F.col("e2")) & (F.col("s2") < F.col("e")) & (few[0]["k"] == few[1]["k"])
    own = seconds(lambda: few[0].join(few[1], meets).count())
    told = ", ".join(f"{plan} {took:.1f}" for plan, took in timed.items())
    note(f"{name}: {found['cells']:,} rows; {told}, chosen {chosen:.1f}, Spark {own:.1f}")
    rivals = [
        *(Rival(plan, took) for plan, took in timed.items()),
        Rival("Spark's own plan", own, f"of {rows // OWN:,} rows a side"),
    ]
    about = {"rows a side": rows, "rows out": found["cells"]}
    return [Figure(f"{name}, by the plan that the sample tells", chosen, "s", less=True, rivals=rivals, parameters=about)]


def of_duckdb(a: pa.Table, b: pa.Table) -> int:
    con = duckdb.connect(config={"threads": 2})
    con.register("a", a), con.register("b", b)
    return int(con.sql("SELECT count(*) FROM a JOIN b ON a.k = b.k AND a.s < b.e AND b.s < a.e").fetchall()[0][0])


def of_one_process(a: pa.Table, b: pa.Table) -> int:
    definition = parse_relation(DEFINITION)
    relations = {"a": definition, "b": definition}
    cell = Cell(relations, [parse_view("v", {"sql": VIEW}, relations)])
    for name, rows in (("a", a), ("b", b)):
        (batch,) = rows.combine_chunks().to_batches()
        cell.load(name, pa.RecordBatch.from_arrays([kept(column) for column in batch.columns], schema=definition.arrow_schema()))
    return sum(part.num_rows for part in cell.rows("v"))

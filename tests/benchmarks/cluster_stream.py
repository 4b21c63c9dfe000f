"""A stream join on a local Spark: the cost of a change in each stage and of an epoch in total, compared with one service, the structures in
one process, Spark's own stream join, and DuckDB; the size of the states, and how long they take to recover; and an estimate for a cluster.

Half of the changes of an epoch delete existing rows, half insert new ones. Seconds are wall-clock time; processor time is that of the JVM
and all workers.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import livejoin
from livejoin.wire.batch import DELETE, UPSERT, Changes, RowBlock
from livejoin.wire.kinds import kept
from livejoin.wire.schema import OP_COLUMN, parse_relation
from service.engine.headless import Cell
from service.views.parse import parse_view
from streaming.cluster.changes import SEQ_COLUMN, Kind, hashes
from streaming.cluster.frames import TIE, Table
from streaming.cluster.streams import live_join
from tests.benchmarks.cluster_batch import MODEL_CORES, MODEL_ROWS, Took, between, of_others, processor, shown
from tests.benchmarks.figures import Figure, Rival, Scale, middle, seconds
from tests.benchmarks.measured_tree import Note
from tests.server_process import ServerProcess
from tests.streaming.cluster.local import Local
from tests.streaming.cluster.stream_query import session

TITLE = "A cluster: a stream join, Spark with two executors of one core each"
PAGE = "docs/scale-out.md"
BEGIN, END = "<!-- table of streams:begin (from `make bench`) -->", "<!-- table of streams:end -->"
SQL = "SELECT a.id AS x, b.id AS y, a.room FROM a JOIN b ON a.room = b.room AND overlaps(a.i, b.i)"
MEETS = "a.room = b.room AND a.s < b.e AND b.s < a.e"
LINE, OF_A_ROOM, PARTNERS = 10**9, 50, 2.7
CELLS = 16
REPEATS = 3
COLUMNS = ("id", "room", "s", "e")
DEFINITION = parse_relation({
    "columns": [{"name": name, "type": "int64"} for name in COLUMNS], "key": ["id"], "intervals": {"i": {"start": "s", "end": "e"}},
})  # fmt: skip
KINDS: Mapping[str, Kind] = {"before-images": "images", "resolver": "ordered"}
MODEL_BUSY, MODEL_STATE = 0.5, 2**30  # the share of processor time, and the bytes of structures per core: assumed

Epoch = Mapping[str, pa.Table]
"""Changes by relation: COLUMNS, OP_COLUMN, SEQ_COLUMN."""


class Workload:
    """Rows of two relations that are inserted and deleted. `live`: by relation, in COLUMNS."""

    def __init__(self, rows: int) -> None:
        self._rng, self._rooms, self._next, self._seq = np.random.default_rng(7), max(1, rows // OF_A_ROOM), 0, 0
        self.live = {name: self._new(rows) for name in "ab"}
        self.first = {name: self._changes([(rows, "insert")]) for name, rows in self.live.items()}

    def epoch(self, changes: int) -> Epoch:
        found = {}
        for name, rows in self.live.items():
            going = np.zeros(len(rows), np.bool_)
            going[self._rng.choice(len(rows), changes // 4, replace=False)] = True
            new = self._new(changes // 4)
            found[name] = self._changes([(rows.filter(pa.array(going)), "delete"), (new, "insert")])
            self.live[name] = pa.concat_tables([rows.filter(pa.array(~going)), new]).combine_chunks()
        return found

    def _new(self, rows: int) -> pa.Table:
        rng, first = self._rng, self._next
        self._next += rows
        starts = rng.integers(0, LINE, rows)
        ends = starts + rng.integers(1, int(PARTNERS * LINE / OF_A_ROOM), rows)
        return pa.table([np.arange(first, self._next), rng.integers(0, self._rooms, rows), starts, ends], COLUMNS)

    def _changes(self, parts: Sequence[tuple[pa.Table, str]]) -> pa.Table:
        table = pa.concat_tables([rows.append_column(OP_COLUMN, pa.array([op] * len(rows))) for rows, op in parts])
        self._seq += len(table)
        return table.append_column(SEQ_COLUMN, pa.array(np.arange(self._seq - len(table), self._seq))).combine_chunks()


class Streamed(NamedTuple):
    """By epoch: what it took, and by how many rows the view grew."""

    took: list[Took]
    grown: list[int]


class Stages(NamedTuple):
    """All stages of a join in one process. `took`: by epoch, seconds of the processor of each stage. `states`: by stage, the bytes in
    memory of a row, and those of its log. `replayed`: seconds of the processor for all rows. `rows`: in cells, and in buckets of keys."""

    layout: str
    took: list[dict[str, float]]
    states: dict[str, tuple[float, float]]
    replayed: float
    rows: int

    def of_a_change(self, number: int, epoch: Epoch) -> dict[str, float]:
        """µs of each stage in an epoch."""
        return {stage: took / changes_in(epoch) * 1e6 for stage, took in self.took[number].items()}


def run(scale: Scale, note: Note) -> list[Figure]:
    workload, sizes = Workload(scale.size(200_000, 2_000)), [scale.size(*pair) for pair in ((5_000, 40), (50_000, 400), (400_000, 2_000))]
    epochs = [workload.first, *(workload.epoch(size) for size in sizes for _ in range(REPEATS))]
    anew, live = of_duckdb(workload)
    last = workload.epoch(sizes[0])
    stages = {name: in_stages(kind, epochs, live) for name, kind in KINDS.items()}
    for name, one in stages.items():
        for number, epoch in enumerate(epochs):
            note(f"{name}, µs of {changes_in(epoch):,} changes: {_named(one.of_a_change(number, epoch))}")
    rivals = {"one service": of_one_service(epochs, live), "one process": of_one_process(epochs, live)}
    layout, streamed = stages["resolver"].layout, dict[str, Streamed]()
    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as name:
        folder = Path(name)
        with spark_of(2) as spark:
            for one, kind in KINDS.items():
                streamed[one] = stream(spark, folder / one, kind, layout, epochs)
                assert sum(streamed[one].grown) == live, (one, streamed[one].grown, live)
                note(f"{one}: {', '.join(map(str, streamed[one].took))}")
            own = of_spark(spark, folder / "own", folder / "resolver", streamed["resolver"].grown[0])
        with spark_of(2) as spark:
            again = stream(spark, folder / "resolver", "ordered", layout, [last], len(epochs)).took[0]
            note(f"after a start: {again}")
        with spark_of(1) as spark:
            alone = stream(spark, folder / "alone", "images", layout, [epochs[0], *epochs[1 : 1 + REPEATS], *epochs[-REPEATS:]])
            note(f"one executor: {', '.join(map(str, alone.took))}")
    seen = {name: [one.clock for one in found.took] for name, found in streamed.items()} | rivals
    figures = [of_size(size, 1 + number * REPEATS, streamed, rivals, anew) for number, size in enumerate(sizes)]
    others = [Rival(name, took[0]) for name, took in seen.items() if name != "resolver"]
    others.append(Rival("Spark's own join of streams", own, "which takes inserts only"))
    about, usually = {"rows": changes_in(epochs[0])}, middle(seen["resolver"][1 : 1 + REPEATS])
    replayed = Rival("logs replayed in one process", stages["resolver"].replayed, "of the processor")
    start = [Rival("in a query that continues", usually), replayed]
    one, two = (of_processor(found, sizes) for found in (alone, streamed["before-images"]))
    stands = f"a micro-batch: {one.fixed:.2f} s with one, {two.fixed:.2f} s with two"
    figures += [
        Figure("a micro-batch of inserts, the first", seen["resolver"][0], "s", less=True, rivals=others, parameters=about),
        Figure(f"a micro-batch of {sizes[0]:,} after a start", again.clock, "s", less=True, rivals=start, parameters=about),
        Figure("processor time a change, two executors against one", two.each / one.each, "×", 1.1, True, note=stands),
    ]
    figures += of_one_executor(alone, sizes, rivals["one service"])
    return [*figures, *of_stages(stages, epochs), *model(stages["resolver"], streamed["resolver"], sizes, note)]


class Cost(NamedTuple):
    """Seconds of processor time: of a change, and of a micro-batch without changes, which grows with the number of partitions of the
    states."""

    each: float
    fixed: float


def of_processor(streamed: Streamed, sizes: Sequence[int]) -> Cost:
    """Compute them from the smallest micro-batches, which follow the first, and the largest, which are the last."""
    small, large = (middle([one.processor for one in streamed.took[those]]) for those in (slice(1, 1 + REPEATS), slice(-REPEATS, None)))
    each = (large - small) / (sizes[-1] - sizes[0])
    return Cost(each, max(0.0, small - each * sizes[0]))


def changes_in(epoch: Epoch) -> int:
    return sum(map(len, epoch.values()))


def _named(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items())


def of_size(size: int, first: int, streamed: Mapping[str, Streamed], rivals: Mapping[str, Sequence[float]], anew: float) -> Figure:
    """The figure for the epochs of one size, which begin with `first`; `anew`: seconds of the complete join."""
    those = slice(first, first + REPEATS)
    rates = {name: (middle([one.clock for one in found.took[those]]), _each(found, those, size)) for name, found in streamed.items()}
    others = [Rival("before-images", rates["before-images"][0], rates["before-images"][1])]
    others += [Rival(name, middle(took[those])) for name, took in rivals.items()]
    others.append(Rival("DuckDB, 2 threads", anew, "the join of all rows"))
    clock, note = rates["resolver"]
    name = f"a micro-batch of {size:,} changes, with a resolver"
    return Figure(name, clock, "s", less=True, rivals=others, parameters={"changes": size}, note=note)


def _each(found: Streamed, those: slice, size: int) -> str:
    return f"{shown(middle([one.processor for one in found.took[those]]) / size * 1e6)} µs of the processor a change"


def of_one_executor(alone: Streamed, sizes: Sequence[int], service: Sequence[float]) -> list[Figure]:
    """The figure from the smallest and largest micro-batches, of rows with before-images."""
    found = []
    for size, those in ((sizes[0], slice(1, 1 + REPEATS)), (sizes[-1], slice(-REPEATS, None))):
        rate = size / middle([one.clock for one in alone.took[those]])
        beside = [Rival("one service", size / middle(list(service[those])))]
        found.append(Figure(f"changes a second with one executor, in micro-batches of {size:,}", rate, "changes/s", rivals=beside))
    return found


def of_stages(stages: Mapping[str, Stages], epochs: Sequence[Epoch]) -> list[Figure]:
    """µs of processor time per change in the largest epochs, and bytes per row."""
    found, size = list[Figure](), changes_in(epochs[-1])
    for name, one in stages.items():
        each = [one.of_a_change(number, epochs[number]) for number in range(len(epochs) - REPEATS, len(epochs))]
        of = {stage: middle([some[stage] for some in each]) for stage in each[0]}
        about = {"changes": size}
        title = f"processor time a change, Spark aside: {name}"
        found.append(Figure(title, sum(of.values()), "µs", less=True, parameters=about, note=_named(of)))
    for stage, (memory, log) in stages["resolver"].states.items():
        words = {"cells": "a row in a cell", "keys": "a row in the resolver"}[stage]
        found.append(Figure(f"bytes of {words}", memory, "B", less=True, note=f"{log:.0f} in the log of the state"))
    return found


def model(stages: Stages, streamed: Streamed, sizes: Sequence[int], note: Note) -> list[Figure]:
    """An estimate for a cluster, extrapolated from these measurements; the utilisation of its cores and the memory per core are assumed."""
    each, fixed = of_processor(streamed, sizes)
    rate = MODEL_CORES * MODEL_BUSY / each
    held = sum(memory for memory, _ in stages.states.values())
    rows = MODEL_STATE / held
    again = stages.replayed / stages.rows * rows
    words = f"{each * 1e6:.1f} µs of the processor a change beyond {fixed:.2f} s a micro-batch, the cores busy half of the time"
    lost = f"{rows:,.0f} rows of {held:.0f} bytes, {stages.replayed / stages.rows * 1e6:.1f} µs each"
    note(f"model, {MODEL_CORES} cores: {rate:,.0f} changes/s ({words}); 1 GiB of structures is there again in {again:.0f} s ({lost})")
    logged = sum(log for _, log in stages.states.values())
    gib = MODEL_ROWS * held / MODEL_CORES / 2**30
    stored = f"{MODEL_ROWS * logged / 1e9:.0f} GB in the logs of the states, {logged:.0f} bytes a row"
    return [
        Figure(f"model: {MODEL_ROWS:,} rows, structures on each of {MODEL_CORES} cores", gib, "GiB", less=True, note=stored),
        Figure(f"model: changes on {MODEL_CORES} cores", rate, "changes/s", note=words),
        Figure("model: a core's 1 GiB of structures rebuilt", again, "s", less=True, note=lost),
    ]


def page(figures: list[Figure], text: str) -> str:
    """Return the page `PAGE` with its table of streams replaced by these figures."""
    return between(text, BEGIN, END, tables(figures))


def tables(figures: list[Figure]) -> str:
    names = ["before-images", "one service", "one process", "DuckDB, 2 threads"]
    lines = [f"| changes a micro-batch | with a resolver | {' | '.join(names)} |", "|---|" + "---|" * (len(names) + 1)]
    for figure in figures:
        if figure.name.endswith("with a resolver"):
            by_name = {rival.name: rival for rival in figure.rivals}
            first = f"{shown(figure.value)}{_bracket(figure.note)}"
            others = [f"{shown(by_name[name].value)}{_bracket(by_name[name].note)}" for name in names]
            lines.append(f"| {figure.parameters['changes']:,} | {' | '.join([first, *others])} |")
    return "\n".join(lines) + "\n\n" + of_others([one for one in figures if not one.name.endswith("with a resolver")])


def _bracket(note: str) -> str:
    return f" ({note.partition(' of the processor')[0]})" if "µs" in note else ""


@contextmanager
def spark_of(executors: int) -> Iterator[SparkSession]:
    """Executors with one core each, in separate processes. With several workers, Spark may choose any of them, and a cell that another one
    holds is rebuilt from its log."""
    master = f"local-cluster[{executors},1,1024]"
    spark = session({"spark.master": master, "spark.driver.memory": "3g", "spark.sql.shuffle.partitions": str(executors)})
    try:
        yield spark
    finally:
        spark.stop()


def stream(spark: SparkSession, folder: Path, kind: Kind, layout: str, epochs: Sequence[Epoch], first: int = 0) -> Streamed:
    """Run a query over these epochs, after the earlier ones; `first`: the number of those."""
    tables = {}
    for name in "ab":
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, epoch in enumerate(epochs, first):
            path = folder / name / f"{number}.parquet"
            pq.write_table(epoch[name], path)
            os.utime(path, (1 + number, 1 + number))  # Spark reads them in the order of their times
        frame = spark.readStream.schema(_schema(kind)).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        tables[name] = Table(frame, ["id"], {"i": ("s", "e")})
    changes = live_join(SQL, tables, layout=layout, before_images=kind == "images")
    found, before = Streamed([], []), (time.perf_counter(), processor())

    def count(frame: DataFrame, epoch: int) -> None:
        nonlocal before
        (grown,) = frame.agg(F.sum(F.when(F.col(OP_COLUMN) == "insert", 1).otherwise(-1))).first() or (0,)
        now = time.perf_counter(), processor()
        found.took.append(Took(now[0] - before[0], now[1] - before[1]))
        found.grown.append(grown or 0)
        before = now

    query = changes.writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(count).start()
    query.processAllAvailable()
    query.stop()
    return found


def _schema(kind: Kind) -> str:
    names = [*COLUMNS, *([SEQ_COLUMN] if kind == "ordered" else [])]
    return ", ".join(f"{name} long" for name in names) + f", {OP_COLUMN} string"


def in_stages(kind: Kind, epochs: Sequence[Epoch], live: int) -> Stages:
    """Run each stage after the other, without Spark."""
    local, found, grown = Local(SQL, {"a": DEFINITION, "b": DEFINITION}, {"a": kind, "b": kind}, CELLS), list[dict[str, float]](), 0
    members = {source.relation: source.members for source in local.sources}
    for epoch in epochs:
        given = {}
        for name, table in epoch.items():
            for column in hashes(members[name]):
                table = table.append_column(column, pa.array(_mixed(table.column("room"))))
            (given[name],) = table.append_column(TIE, pa.array(_mixed(table.column("id")))).combine_chunks().to_batches()
        took, at = dict[str, float](), time.process_time()

        def done(stage: str, took: dict[str, float] = took) -> None:
            nonlocal at
            took[stage], at = time.process_time() - at, time.process_time()

        sent = local.sent(given)
        done("send")
        resolved = local.resolved(sent.to_keys)
        if local.resolver is not None:
            done("resolver")
        emitted = local.emitted([*sent.to_cells, *resolved])
        done("cells")
        netted = local.netted(emitted)
        done("net")
        grown += sum(len(batch) * (1 if batch.column(OP_COLUMN)[0].as_py() == "insert" else -1) for batch in netted)
        found.append(took)
    assert grown == live, (kind, grown, live)
    states, rows = dict[str, tuple[float, float]](), 0
    for stage in ("keys", "cells"):
        own = [(logged.cell, blobs) for (name, _), (_, logged, blobs) in local.kept.items() if name == stage]
        if own:
            rows = sum(cell.live for cell, _ in own)
            states[stage] = sum(cell.held for cell, _ in own) / rows, sum(len(one) for _, blobs in own for one in blobs.values()) / rows
    at = time.process_time()
    local.replay()
    for _, logged, _ in local.kept.values():
        logged.cell.step([])
    return Stages(local.layout, found, states, time.process_time() - at, rows)


def _mixed(column: pa.ChunkedArray) -> np.ndarray:
    """A hash, as splitmix64."""
    words = (column.to_numpy().astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return (words ^ (words >> np.uint64(29))).view(np.int64)


def of_one_process(epochs: Sequence[Epoch], live: int) -> list[float]:
    """Seconds by epoch for one cell that has all rows."""
    relations = {"a": DEFINITION, "b": DEFINITION}
    cell, took, grown = Cell(relations, [parse_view("v", {"sql": SQL}, relations)]), list[float](), 0
    for epoch in epochs:
        changes = []
        for name, table in epoch.items():
            (batch,) = table.to_batches()
            rows = pa.RecordBatch.from_arrays([kept(batch.column(one)) for one in COLUMNS], schema=DEFINITION.arrow_schema())
            ops = np.where(pc.equal(batch.column(OP_COLUMN), "delete").to_numpy(zero_copy_only=False), DELETE, UPSERT).astype(np.uint8)
            changes.append(Changes(name, DEFINITION, ops, RowBlock(rows), np.arange(len(ops))))
        at = time.perf_counter()
        (delta,) = cell.step(changes).deltas.values()
        took.append(time.perf_counter() - at)
        grown += sum(len(keys) for keys, _ in delta.inserts) - sum(len(keys) for keys, _ in delta.deletes)
    assert grown == live, (grown, live)
    return took


def of_one_service(epochs: Sequence[Epoch], live: int) -> list[float]:
    """Seconds by epoch, each relation's changes in requests of up to 65,536."""
    took = []
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "data") as server, livejoin.connect(server.url) as lj:
        for name in "ab":
            lj.relation(name).create(dict.fromkeys(COLUMNS, "int64"), "id", {"i": ("s", "e")})
        view = lj.view("v", SQL)
        for epoch in epochs:
            given = {name: rows.drop_columns(SEQ_COLUMN) for name, rows in epoch.items()}
            took.append(seconds(lambda given=given: [lj.relation(name).load(rows) for name, rows in given.items()]))
        assert view.count() == live, (view.count(), live)
    return took


def of_duckdb(workload: Workload) -> tuple[float, int]:
    """Seconds for the join of all rows, and the number of its rows."""
    con, found = duckdb.connect(config={"threads": 2}), list[int]()
    for name, rows in workload.live.items():
        con.register(name, rows)
    took = seconds(lambda: found.append(con.sql(f"SELECT count(*) FROM a JOIN b ON {MEETS}").fetchall()[0][0]))
    return took, found[0]


def of_spark(spark: SparkSession, folder: Path, files: Path, rows: int) -> float:
    """Seconds of Spark's own stream join for the first epoch, which only inserts. It keeps state for these rows, too."""
    streams = spark.readStream.schema(_schema("images")).option("pathGlobFilter", "0.parquet")
    a, b = (streams.parquet(str(files / name)).alias(name) for name in "ab")
    found, took = list[int](), list[float]()

    def count(frame: DataFrame, epoch: int) -> None:
        found.append(frame.count())
        took.append(time.perf_counter())

    start = time.perf_counter()
    joined = a.join(b, F.expr(MEETS)).select("a.id", "b.id", "a.room").toDF("x", "y", "room")
    query = joined.writeStream.option("checkpointLocation", str(folder)).foreachBatch(count).start()
    query.processAllAvailable()
    query.stop()
    assert sum(found) == rows, (found, rows)
    return took[0] - start

"""Overlap joins of DataFrames in a local Spark, compared with buckets of time, Spark's own plan, DuckDB, one service, and the
structures in one process; how the cost per row changes with more rows, cells and cores; and an estimate for a cluster.

Seconds are wall-clock time; processor time is that of the JVM and all workers (`processor`). Each join has run once before it is timed,
except buckets of a burst and Spark's own plan, which compare so many pairs that they get one row in twenty. The JVM has Spark's default
settings. Buckets by hand are what users write: without a check of the ends, and as wide as most intervals are long.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import duckdb
import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import livejoin
from livejoin.wire.kinds import kept
from livejoin.wire.schema import parse_relation
from service.engine.headless import Cell
from service.views.parse import parse_view
from streaming.cluster import batch
from streaming.cluster.batch import overlap_join
from streaming.cluster.layout import RoutedRows
from streaming.cluster.packing import packed
from streaming.spark import prepare_own
from tests.benchmarks.figures import Figure, Rival, Scale, seconds
from tests.benchmarks.measured_tree import Note
from tests.server_process import ServerProcess

TITLE = "A cluster: batch overlap joins of DataFrames, Spark with two threads"
LINE = 10**12
OWN = 20  # Spark's own plan, buckets of a burst, and DuckDB with a hot key get one row in this number: they compare most pairs
CELLS = (4, 16, 64)
BY_HAND = "buckets by hand"
_TURNS = 3  # processor times are compared by their median: single runs differed by a sixth
PAGE = "docs/scale-out.md"
BEGIN, END = "<!-- table:begin (from `make bench`) -->", "<!-- table:end -->"
MODEL_ROWS, MODEL_CORES, MODEL_TASKS = 10**9, 100, 800
MODEL_NETWORK, MODEL_TAILS = 9e9, 1.5  # assumed: bytes a second that all hosts together shuffle; the ratio of the slowest tasks to the mean


def uniform(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    return {"starts": rng.integers(0, LINE, rows), "lengths": rng.integers(1, 2 * LINE // rows, rows)}


def burst(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """Half of the starts lie in a millionth of the line; lengths are 1 or 2."""
    own = uniform(rng, rows)
    together = rng.random(rows) < 0.5
    starts = np.where(together, rng.integers(0, LINE // 10**6, rows), own["starts"])
    return own | {"starts": starts, "lengths": np.where(together, 1, own["lengths"])}


def long(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    own = uniform(rng, rows)
    return own | {"lengths": np.where(rng.random(rows) < 2e-4, LINE // 4, own["lengths"])}


def hot(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    return uniform(rng, rows) | {"keys": np.where(rng.random(rows) < 0.8, 0, rng.integers(1, 1000, rows))}


SETS: Mapping[str, Callable[[np.random.Generator, int], dict[str, np.ndarray]]] = {
    "uniform": uniform, "burst": burst, "0.02 % long": long, "80 % of one key": hot,
}  # fmt: skip
BESIDE_EQUALITY: Mapping[str, float] = {"uniform": 2.0, "80 % of one key": 6.0}  # times Spark's join of equal starts, at most
VIEW = "SELECT a.id AS x, b.id AS y FROM a JOIN b ON {} overlaps(a.i, b.i)"
PAIRS = "SELECT count(*) FROM a JOIN b ON {} a.s < b.e AND b.s < a.e"


def table(made: dict[str, np.ndarray]) -> pa.Table:
    rows = len(made["starts"])
    keys = {"k": made["keys"]} if "keys" in made else {}
    return pa.table({"id": np.arange(rows), **keys, "s": made["starts"], "e": made["starts"] + made["lengths"]})


def of_keys(text: str, rows: pa.Table) -> str:
    """Return the equality on the key for the join condition, if there is a key."""
    return text.format("a.k = b.k AND" if "k" in rows.column_names else "")


class Took(NamedTuple):
    """Seconds of wall-clock time, and of processor time."""

    clock: float
    processor: float

    def __str__(self) -> str:
        return f"{self.clock:.1f} ({self.processor:.1f})"

    def as_rival(self, name: str) -> Rival:
        return Rival(name, self.clock, f"{self.processor:.1f} s of the processor")


class Pair(NamedTuple):
    """Both sides of a join, cached in Spark, under names that the join can use."""

    x: DataFrame
    y: DataFrame

    @property
    def on(self) -> list[str]:
        return [name for name in self.x.columns if name == "k"]

    def joined(self) -> DataFrame:
        return overlap_join(self.x, self.y, ("s", "e"), ("s2", "e2"), on=self.on)

    def by_hand(self, shift: int) -> DataFrame:
        """Join in buckets, as users write it."""
        inputs = [
            frame.withColumn("bucket", F.explode(F.sequence(F.shiftright(start, shift), F.shiftright(F.col(end) - 1, shift))))
            for frame, start, end in ((self.x, "s", "e"), (self.y, "s2", "e2"))
        ]
        joined = inputs[0].join(inputs[1], [*self.on, "bucket"])
        return joined.where("s < e2 AND s2 < e").where(F.shiftright(F.greatest("s", "s2"), shift) == F.col("bucket")).drop("bucket")

    def few(self, rows: int) -> Pair:
        """Return some of the rows, in as many partitions, cached in memory."""
        found = Pair(*(one.limit(rows).repartition(2).cache() for one in self))
        for one in found:
            one.count()
        return found


def run(scale: Scale, note: Note) -> list[Figure]:
    rows = scale.size(500_000, 2_000)
    largest = 4 * rows
    turns = 1 if scale.quick else _TURNS
    with session("local[2]") as spark:
        figures = [figure for name in SETS for figure in measured(spark, name, rows, note)]
        figures += [beside_equality(spark, name, largest // 2, turns, note) for name in BESIDE_EQUALITY]
        sizes = {size: middle(cells_of(pair_of(spark, uniform, size)) for _ in range(turns)) for size in (rows // 2, rows)}
        pair = pair_of(spark, uniform, largest)
        in_turns = [{cells: cells_of(pair, cells) for cells in (None, *CELLS)} for _ in range(turns)]
        divided = {cells: middle(one[cells] for one in in_turns) for cells in CELLS}
        sizes[largest] = middle(one[None] for one in in_turns)
    shuffled = bytes_of_a_row(rows)
    with session("local[1]") as spark:
        alone = {size: middle(cells_of(pair_of(spark, uniform, size)) for _ in range(turns)) for size in (rows, largest)}
    with session("local-cluster[2,1,1024]") as spark:
        apart = cells_of(pair_of(spark, uniform, rows))
    note("rows a side: " + ", ".join(f"{size:,} {took}" for size, took in sizes.items()))
    note("cells: " + ", ".join(f"{cells} {took}" for cells, took in divided.items()))
    note("local[1]: " + ", ".join(f"{size:,} {took}" for size, took in alone.items()) + f"; local-cluster[2,1,1024]: {apart}")
    many = tables_of(uniform, largest)
    rivals = [Rival("DuckDB, 2 threads", seconds(lambda: of_duckdb(*many))), Rival("cells in local[1]", alone[largest].clock)]
    figures.append(Figure("uniform, cells", sizes[largest].clock, "s", less=True, rivals=rivals, parameters={"rows a side": largest}))
    beside = [Rival("cells in local[1]", alone[rows].clock), Rival("cells in local-cluster[2,1,1024]", apart.clock)]
    figures.append(Figure("uniform, cells", sizes[rows].clock, "s", less=True, rivals=beside, parameters={"rows a side": rows}))
    return [*figures, *linear(sizes, alone, divided), model(sizes, divided, shuffled, note)]


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    builder = SparkSession.builder.appName("cluster_batch")
    for key, value in (prepare_own() | {"spark.driver.memory": "6g", "spark.driver.extraJavaOptions": ""}).items():
        builder = builder.config(key, value)
    spark = builder.master(master).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def processor() -> float:
    """Return the seconds of processor time of the JVMs and all Python workers so far, including workers that have ended."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


def timed(work: Callable[[], object]) -> Took:
    before = processor()
    clock = seconds(work)
    return Took(clock, processor() - before)


def middle(several: Iterable[Took]) -> Took:
    """The median by processor time."""
    found = sorted(several, key=lambda took: took.processor)
    return found[len(found) // 2]


def tables_of(make: Callable[[np.random.Generator, int], dict[str, np.ndarray]], rows: int) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(5)
    return table(make(rng, rows)), table(make(rng, rows))


def pair_of(spark: SparkSession, make: Callable[[np.random.Generator, int], dict[str, np.ndarray]], rows: int) -> Pair:
    spark.catalog.clearCache()
    x, y = (spark.createDataFrame(one).cache() for one in tables_of(make, rows))
    x.count(), y.count()
    return Pair(x, y.withColumnsRenamed({"id": "id2", "s": "s2", "e": "e2"}))


def cells_of(pair: Pair, cells: int | None = None) -> Took:
    """Join in cells, as many as planned, or this number."""
    counted = batch._cells if cells is None else lambda spark, rows: cells
    with patch.object(batch, "_cells", counted):
        pair.joined().count()
        joined = pair.joined()
        return timed(joined.count)


def measured(spark: SparkSession, name: str, rows: int, note: Note) -> list[Figure]:
    """Measure the join of a data set, with and without counting and sampling the frames, and all rivals."""
    pair, (a, b) = pair_of(spark, SETS[name], rows), tables_of(SETS[name], rows)
    shift = (LINE // rows).bit_length()
    found = dict[str, int]()
    few = pair.few(rows // OWN)
    said = f"of {rows // OWN:,} rows a side"
    alone = [twice("cells", pair.joined, found).as_rival("cells")]
    if name == "burst":
        alone.append(Rival(BY_HAND, seconds(few.by_hand(shift).count), said))
    else:
        alone.append(twice(BY_HAND, lambda: pair.by_hand(shift), found).as_rival(BY_HAND))
    sampled = seconds(lambda: found.update(sampled=pair.joined().count()))
    is_hot = name == "80 % of one key"
    if is_hot:
        alone.append(Rival("DuckDB, 2 threads", seconds(lambda: of_duckdb(a[: rows // OWN], b[: rows // OWN])), said))
    else:
        alone.append(Rival("DuckDB, 2 threads", seconds(lambda: found.update(duckdb=of_duckdb(a, b)))))
    alone.append(Rival("one process", seconds(lambda: found.update(process=of_one_process(a, b)))))
    load, count = of_one_service(a, b, found)
    alone.append(Rival("one service", load + count, f"{load:.1f} s to load and build, {count:.1f} to count"))
    assert len(set(found.values())) == 1, found
    meets = (few.x["s"] < few.y["e2"]) & (few.y["s2"] < few.x["e"])
    meets = meets & (few.x["k"] == few.y["k"]) if is_hot else meets
    alone.append(Rival("Spark's own plan", seconds(few.x.join(few.y, meets).count), said))
    said = ", ".join(f"{one.name} {one.value:.1f} ({one.note})" for one in alone)
    note(f"{name}: {found['cells']:,} rows; with the sample, {sampled:.1f}; {said}")
    about = {"rows a side": rows, "rows out": found["cells"]}
    return [Figure(f"{name}, with the sample", sampled, "s", less=True, rivals=alone, parameters=about)]


def beside_equality(spark: SparkSession, name: str, rows: int, turns: int, note: Note) -> Figure:
    """Measure `overlap_join`, with its sample, and Spark's join of equal starts, in turns."""
    pair = pair_of(spark, SETS[name], rows)
    equal = pair.x.join(pair.y, pair.x["s"] == pair.y["s2"])
    took = [(seconds(equal.count), seconds(lambda: pair.joined().count())) for _ in range(1 + turns)][1:]
    first, second = (float(np.median(one)) for one in zip(*took, strict=True))
    note(f"{name}, {rows:,} rows a side: overlap_join {second:.2f} s, equality {first:.2f} s")
    beside = [Rival("Spark's join of equal starts", 1.0, f"{first:.2f} s")]
    return Figure(f"{name}, overlap_join", second / first, "×", BESIDE_EQUALITY[name], True, beside, {"rows a side": rows})


def twice(name: str, made: Callable[[], DataFrame], found: dict[str, int]) -> Took:
    """Measure the second time that the join is made and counted."""
    made().count()
    joined = made()
    return timed(lambda: found.update({name: joined.count()}))


def linear(sizes: Mapping[int, Took], alone: Mapping[int, Took], divided: Mapping[int, Took]) -> list[Figure]:
    """How much more processor time a row takes with more cores, cells or rows."""
    largest = max(alone)
    each = {size: took.processor / size for size, took in sizes.items()}
    both, few, many = sizes[largest].processor, divided[CELLS[0]].processor, divided[CELLS[-1]].processor
    about = {"rows a side": largest}
    return [
        Figure("processor time a row, two cores against one", both / alone[largest].processor, "×", 1.1, True, [], about),
        Figure(f"processor time a row, {CELLS[-1]} cells beside {CELLS[0]}", many / few, "×", 1.2, True, [], about),
        Figure(f"processor time a row, of {largest:,} a side beside {min(sizes):,}", each[largest] / each[min(sizes)], "×", 1.2, True),
    ]


def model(sizes: Mapping[int, Took], divided: Mapping[int, Took], shuffled: float, note: Note) -> Figure:
    """Estimated seconds for a large join on a cluster, extrapolated from these measurements. Network and stragglers are assumed: only one
    host was measured."""
    largest = max(sizes)
    a_task = max(0.0, divided[CELLS[-1]].processor - divided[CELLS[0]].processor) / (CELLS[-1] - CELLS[0])
    a_row = (divided[CELLS[0]].processor - CELLS[0] * a_task) / (2 * largest)
    parts = {
        "rows": a_row * MODEL_ROWS / MODEL_CORES,
        "tasks": a_task * MODEL_TASKS / MODEL_CORES,
        "shuffle": shuffled * MODEL_ROWS / MODEL_NETWORK,
    }
    whole = MODEL_TAILS * sum(parts.values())
    said = ", ".join(f"{name} {took:.1f}" for name, took in parts.items())
    words = f"{a_row * 1e6:.2f} µs a row, {a_task * 1e3:.0f} ms a task, {shuffled:.0f} bytes a row: {said} s, times {MODEL_TAILS} for tails"
    note(f"model, {MODEL_ROWS:,} intervals and {MODEL_CORES} cores: {whole:.0f} s ({words})")
    return Figure(f"model: {MODEL_ROWS:,} intervals on {MODEL_CORES} cores", whole, "s", less=True, note=words)


def bytes_of_a_row(rows: int) -> float:
    """Bytes of a shuffled row, in blobs with as many rows as are packed together."""
    (one,) = table(uniform(np.random.default_rng(5), rows)).combine_chunks().to_batches()
    some = one.slice(0, 1 << 17)
    cells = np.random.default_rng(5).integers(0, MODEL_TASKS, some.num_rows)
    blobs = packed(0, some, RoutedRows(cells, np.arange(some.num_rows), []))
    return blobs.nbytes / some.num_rows


def of_duckdb(a: pa.Table, b: pa.Table) -> int:
    con = duckdb.connect(config={"threads": 2})
    con.register("a", a), con.register("b", b)
    return int(con.sql(of_keys(PAIRS, a)).fetchall()[0][0])


def of_one_process(a: pa.Table, b: pa.Table) -> int:
    columns = [{"name": name, "type": "int64"} for name in a.column_names]
    definition = parse_relation({"columns": columns, "key": ["id"], "intervals": {"i": {"start": "s", "end": "e"}}})
    relations = {"a": definition, "b": definition}
    cell = Cell(relations, [parse_view("v", {"sql": of_keys(VIEW, a)}, relations)])
    for name, rows in (("a", a), ("b", b)):
        (batch,) = rows.combine_chunks().to_batches()
        cell.load(name, pa.RecordBatch.from_arrays([kept(column) for column in batch.columns], schema=definition.arrow_schema()))
    return sum(part.num_rows for part in cell.rows("v"))


def of_one_service(a: pa.Table, b: pa.Table, found: dict[str, int]) -> tuple[float, float]:
    """Seconds to load the relations and build the view, and to count its rows."""
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "data") as server, livejoin.connect(server.url) as lj:

        def load() -> None:
            for name, rows in (("a", a), ("b", b)):
                relation = lj.relation(name)
                relation.create(dict.fromkeys(rows.column_names, "int64"), "id", {"i": ("s", "e")})
                relation.upsert(rows)
            lj.view("v", of_keys(VIEW, a))

        loaded = seconds(load)
        return loaded, seconds(lambda: found.update(service=lj.view("v").count()))


def page(figures: list[Figure], text: str) -> str:
    """Return the page `PAGE` with its tables replaced by these figures."""
    return between(text, BEGIN, END, tables(figures))


def between(text: str, begin: str, end: str, written: str) -> str:
    """Return the page with this text between its markers."""
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    assert found and ended, f"{PAGE} has lost the marks of its table"
    return f"{before}{begin}\n{written}{end}{after}"


def tables(figures: list[Figure]) -> str:
    names = ["cells", BY_HAND, "one service", "one process", "DuckDB, 2 threads", "Spark's own plan"]
    lines = [f"| | rows a side | rows out | with the sample | {' | '.join(names)} |", "|---|" + "---|" * (len(names) + 3)]
    for figure in figures:
        if "rows out" in figure.parameters:
            by_name = {rival.name: rival for rival in figure.rivals}
            cells = [f"{shown(by_name[name].value)}{_bracket(by_name[name].note)}" for name in names]
            sizes = [f"{figure.parameters[size]:,}" for size in ("rows a side", "rows out")]
            lines.append(f"| {' | '.join([figure.name.partition(', with')[0], *sizes, shown(figure.value), *cells])} |")
    return "\n".join(lines) + "\n\n" + of_others([one for one in figures if "rows out" not in one.parameters])


def of_others(figures: list[Figure]) -> str:
    """The remaining figures, one line each."""
    lines = ["| | rows a side | here | beside |", "|---|---|---|---|"]
    for figure in figures:
        beside = ", ".join(f"{rival.name} {shown(rival.value)}" for rival in figure.rivals) or figure.note
        size = figure.parameters.get("rows a side")
        lines.append(f"| {figure.name} | {f'{size:,}' if size else ''} | {shown(figure.value)} {figure.unit} | {beside} |")
    return "\n".join(lines) + "\n"


def shown(value: float) -> str:
    """Two or three digits, or all digits of a larger integer."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{3 if abs(value) >= 1 else 2}g}"


def _bracket(note: str) -> str:
    return f" ({note.removesuffix(' s of the processor')})" if note else ""

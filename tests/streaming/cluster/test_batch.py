"""Joins of frames in a Spark with two threads, against DuckDB; some dozen rows a cell, so that there are several cells."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession

from streaming.cluster import batch, packing
from streaming.cluster.batch import explain, live_join, overlap_join
from streaming.cluster.candidates import NotDistributable
from streaming.cluster.cells_batch import CellValidator, join_in_cells
from streaming.cluster.frames import Table
from streaming.spark import prepare_own
from tests.docs.pages import Reader
from tests.server_process import ROOT, ServerProcess


@pytest.fixture(scope="module")
def spark(quick_java: None) -> Iterator[SparkSession]:
    builder = SparkSession.builder.appName("cells")
    for key, value in prepare_own().items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_ROWS_OF_A_CELL", 80)
    monkeypatch.setattr(batch, "_COMPARED", 0)


def some(rng: random.Random, number: int, first: str, names: tuple[str, str, str, str], rooms: list[str | None]) -> pa.Table:
    """Rows with rooms and floors that collide, and starts and ends that are sometimes open."""
    starts = [None if rng.random() < 0.05 else rng.randrange(200) for _ in range(number)]
    ends = [None if rng.random() < 0.05 else (start or 0) + rng.randrange(12) for start in starts]
    low = [rng.randrange(10) for _ in range(number)]
    columns: dict[str, Any] = {
        first: pa.array(rng.sample(range(10 * number), number), pa.int64()),
        "room": pa.array([rng.choice(rooms) for _ in range(number)]),
        "floor": pa.array([rng.choice([1, 2, 3, None]) for _ in range(number)], pa.int32()),
        names[0]: pa.array(starts, pa.int64()),
        names[1]: pa.array(ends, pa.int64()),
        names[2]: pa.array(low, pa.int64()),
        names[3]: pa.array([one + rng.randrange(3) for one in low], pa.int64()),
    }
    return pa.table(columns)


RNG = random.Random(4)
ROOMS = ["A", "A", "A", "A", "A", "B", "C", "D", None]  # one is hot
TABLES = {
    "a": some(RNG, 170, "id", ("starts", "ends", "low", "high"), ROOMS),
    "b": some(RNG, 150, "nr", ("s", "e", "least", "most"), ROOMS),
    "e": pa.table({"p": pa.array([RNG.randrange(9) for _ in range(60)]), "q": pa.array([RNG.randrange(9) for _ in range(60)])}),
}
KEYS = {"a": ["id"], "b": ["nr"], "e": []}
SPANS: dict[str, dict[str, tuple[str, str, str]]] = {
    "a": {"stay": ("starts", "ends", "[]"), "levels": ("low", "high", "[]")},
    "b": {"slot": ("s", "e", "[]"), "levels": ("least", "most", "[]")},
    "e": {},
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, Table]:
    return {name: Table(spark.createDataFrame(rows), KEYS[name], SPANS[name]) for name, rows in TABLES.items()}


def in_runs(points: str, by: str) -> str:
    """SQL of the longest runs of points of each value of `by`. The points are between _FIRST and _LAST, which stand for unbounded."""
    numbered = f"SELECT {by}, p, p - row_number() OVER (PARTITION BY {by} ORDER BY p) AS island FROM ({points})"
    return f"SELECT {by}, nullif(min(p), {_FIRST}), nullif(max(p), {_LAST}) FROM ({numbered}) GROUP BY {by}, island"


_FIRST, _LAST = -9, 300
_POINTS = f"SELECT x.*, unnest(range(coalesce(starts, {_FIRST}), coalesce(ends, {_LAST}) + 1)) AS p FROM a x"
_UNDER = f"EXISTS (SELECT 1 FROM b y WHERE x.room = y.room AND coalesce(s, {_FIRST}) <= p AND p <= coalesce(e, {_LAST}))"
STRETCHES = {
    "SELECT x.id, gaps(x.stay, y.slot) AS free FROM a x LEFT JOIN b y ON x.room = y.room AND overlaps(x.stay, y.slot)":
        in_runs(f"SELECT id, p FROM ({_POINTS}) x WHERE NOT {_UNDER}", "id"),
    "SELECT x.id, coverage(x.stay, y.slot) AS busy FROM a x JOIN b y ON x.room = y.room AND overlaps(x.stay, y.slot)":
        in_runs(f"SELECT id, p FROM ({_POINTS}) x WHERE {_UNDER}", "id"),
    "SELECT x.room, coverage(x.stay) AS busy FROM a x GROUP BY x.room": in_runs(f"SELECT DISTINCT room, p FROM ({_POINTS})", "room"),
}  # fmt: skip
"""In the SQL of a service, and point by point in that of DuckDB."""


def in_duckdb(sql: str, **others: pa.Table) -> Counter[tuple[Any, ...]]:
    """`overlaps` written out; open ends are unbounded."""
    of = {alias: name for name, alias in re.findall(r"\b([abe]) ([xyz])\b", sql)}

    def ends(ref: str) -> tuple[str, str]:
        alias, interval = ref.split(".")
        start, end, _ = SPANS[of[alias]][interval]
        return f"coalesce({alias}.{start}, -1000000)", f"coalesce({alias}.{end}, 1000000)"

    def written(match: re.Match[str]) -> str:
        (p, q), (r, s) = ends(match[1]), ends(match[2])
        return f"({p} <= {s} AND {r} <= {q})"

    con = duckdb.connect()
    for name, rows in (TABLES | others).items():
        con.register(name, rows)
    text = STRETCHES.get(sql) or re.sub(r"overlaps\((\w\.\w+), (\w\.\w+)\)", written, sql)
    return Counter(con.sql(text).fetchall())


def rows_of(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in frame.toArrow().to_pylist())


VIEWS = {
    "pair": "SELECT x.id, y.nr FROM a x JOIN b y ON overlaps(x.stay, y.slot)",
    "keyed pair with a hot key": "SELECT x.id, y.nr FROM a x JOIN b y ON x.room = y.room AND overlaps(x.stay, y.slot)",
    "self-join": "SELECT x.id AS i, y.id AS j FROM a x JOIN a y ON overlaps(x.stay, y.stay) WHERE x.id < y.id",
    "clique": "SELECT x.id AS i, y.nr, z.id AS j FROM a x, b y, a z "
    "WHERE overlaps(x.stay, y.slot) AND overlaps(y.slot, z.stay) AND overlaps(x.stay, z.stay) AND x.floor = 1",
    "path": "SELECT x.id AS i, y.nr, z.id AS j FROM a x, b y, a z "
    "WHERE overlaps(x.stay, y.slot) AND overlaps(y.slot, z.stay) AND x.floor = 1",
    "boxes": "SELECT x.id, y.nr FROM a x JOIN b y ON overlaps(x.stay, y.slot) AND overlaps(x.levels, y.levels)",
    "triangle": "SELECT x.p, y.p AS q, z.p AS r FROM e x, e y, e z WHERE x.q = y.p AND y.q = z.p AND z.q = x.p",
    "path of equalities": "SELECT x.id, y.nr, z.id AS j FROM a x, b y, a z WHERE x.low = y.least AND y.most = z.high AND x.floor = 1",
    "star": "SELECT x.id, y.nr FROM a x, b y, a z WHERE x.low = y.least AND x.low = z.low AND z.floor = 2",
    "equality and overlap": "SELECT x.id, y.nr, z.id AS j FROM a x, b y, a z "
    "WHERE x.low = y.least AND overlaps(y.slot, z.stay) AND z.floor = 1",
    "comparison": "SELECT x.id, y.nr FROM a x JOIN b y ON x.low < y.least WHERE x.room = 'C'",
    "product": "SELECT x.id, y.nr FROM a x CROSS JOIN b y WHERE x.room = 'B' AND y.floor = 3",
    "list": "SELECT x.id, x.room FROM a x WHERE x.floor <> 2",
    "groups": "SELECT x.room, count(*) AS n, sum(y.nr) AS s FROM a x JOIN b y "
    "ON x.room = y.room AND overlaps(x.stay, y.slot) GROUP BY x.room",
    "groups of one": "SELECT x.room, x.floor, count(*) AS n, max(x.low) AS m FROM a x GROUP BY x.room, x.floor",
    "distinct": "SELECT DISTINCT x.room FROM a x JOIN b y ON x.room = y.room AND overlaps(x.stay, y.slot)",
    "left join": "SELECT x.id, y.nr FROM a x LEFT JOIN b y ON x.room = y.room AND overlaps(x.stay, y.slot)",
    "full join": "SELECT x.id, y.nr FROM a x FULL JOIN b y ON x.low = y.least AND x.high = y.most",
    "groups of a left join": "SELECT x.room, count(*) AS n FROM a x LEFT JOIN b y ON x.room = y.room AND x.low = y.least GROUP BY x.room",
    "exists": "SELECT x.id FROM a x WHERE EXISTS (SELECT 1 FROM b y WHERE x.room = y.room AND overlaps(x.stay, y.slot))",
    "not exists": "SELECT x.id FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y WHERE y.room = x.room AND y.least = x.low)",
    "latest": "SELECT DISTINCT ON (x.room) x.room, x.id FROM a x ORDER BY x.room, x.id DESC",
    "union": "SELECT x.low, x.room FROM a x JOIN b y ON x.low = y.least UNION SELECT y.least, y.room FROM b y WHERE y.floor = 2",
    "union of texts and nulls": "SELECT x.room, x.floor FROM a x UNION SELECT y.room, y.floor FROM b y",
    "except": "SELECT x.low, x.room FROM a x EXCEPT SELECT y.least, y.room FROM b y JOIN a z ON y.least = z.low WHERE y.floor = 1",
    "as of": "SELECT x.id, y.nr FROM a x ASOF JOIN b y ON x.room = y.room AND x.id >= y.nr",
    **dict(zip(("gaps", "coverage", "coverage of groups"), STRETCHES, strict=True)),
}


# Of these the layout and the plan of a cell are those of others.
LIKE_OTHERS = (
    "self-join", "path of equalities", "star", "product", "groups of one", "distinct", "full join", "groups of a left join", "exists",
    "union of texts and nulls", "coverage",
)  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.soak) if name in LIKE_OTHERS else name for name in VIEWS])
def test_each_class_of_views_has_the_rows_that_duckdb_finds(name: str, tables: dict[str, Table]) -> None:
    sql = VIEWS[name]
    named = {one: tables[one] for one in dict.fromkeys(re.findall(r"(?:FROM|JOIN|,) ([abe])\b", sql))}
    planned = batch._plan_view(sql, named)
    assert planned.chosen.layout.cells > 1, "one cell proves nothing"
    found = rows_of(join_in_cells(planned.tables, planned.definitions, planned.view, planned.chosen.layout, strict=True))
    expected = in_duckdb(sql)
    assert expected and found == expected


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            "SELECT x.low, x.high FROM a x JOIN b y ON x.low = y.least UNION SELECT y.least, y.most FROM b y JOIN a z ON y.most = z.high",
            "no column of the view joins all aliases of each SELECT",
        ),
        ("SELECT count(*) AS n FROM a x", "no column of its key joins all aliases; add a column of x to the key$"),
        ("SELECT x.floor, count(*) AS n FROM a x JOIN b y ON x.room = y.room GROUP BY x.floor", "; add x.room or y.room to the key$"),
        ("SELECT x.id, y.nr FROM a x LEFT JOIN b y ON overlaps(x.stay, y.slot)", "no equality joins all aliases; add an .* joins x, y$"),
        ("SELECT x.floor, count(*) AS n FROM a x JOIN b y ON overlaps(x.stay, y.slot) GROUP BY x.floor", "one of its columns to the key$"),
        ("SELECT y.room, count(*) AS n FROM a x LEFT JOIN b y ON x.room = y.room GROUP BY y.room", "add x.room to the key$"),
        ("SELECT x.room, count(*) AS n FROM a x FULL JOIN b y ON x.room = y.room GROUP BY x.room", "in a FULL JOIN each of them may be"),
        (
            "SELECT x.id, w.nr FROM a x JOIN b w ON x.low = w.least WHERE NOT EXISTS "
            "(SELECT 1 FROM b y WHERE y.least = x.high AND y.least = w.most)",
            "no equality joins all aliases",
        ),
        ("SELECT x.id, y.nr FROM a x ASOF JOIN b y ON x.low >= y.nr", "the as-of join has no equality"),
        ("SELECT x.id, y.nr FROM a x JOIN b y ON abs(x.low) = y.least", "a condition between aliases compares expressions"),
        ("SELECT x.id FROM a x UNION ALL SELECT y.nr FROM b y", "join each SELECT alone"),
        ("SELECT x.id, y.nr FROM a x JOIN b y ON x.low < y.least", "each row would go to 2.* set max_copies=3"),
    ],
)
def test_what_needs_rows_of_several_cells_is_refused(sql: str, reason: str, tables: dict[str, Table]) -> None:
    with pytest.raises(NotDistributable, match=f"^not-distributable: .*{reason}"):
        live_join(sql, tables, max_copies=1.5)


def test_samples_of_wide_rows(tables: dict[str, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    """They come in several portions, and without the columns that decide nothing."""
    monkeypatch.setattr(packing, "MOST_BYTES", 500)
    seen: set[str] = set()
    validated = CellValidator.validated

    def noted(self: CellValidator, batches: Any, partition: int) -> Iterator[Any]:
        seen.update(*(batch.schema.names for batch in batches))
        return validated(self, [part for batch in batches for part in (batch.slice(0, 20), batch.slice(20))], partition)

    monkeypatch.setattr(CellValidator, "validated", noted)
    sql = VIEWS["keyed pair with a hot key"]
    planned = batch._plan_view(sql, {name: tables[name] for name in "ab"})
    assert {name: len(one.ties) for name, one in planned.samples.items()} == {"x": 170, "y": 150}
    assert {name for name in seen if not name.startswith("_")} == {"id", "nr", "starts", "ends", "s", "e"}
    assert rows_of(live_join(sql, {name: tables[name] for name in "ab"})) == in_duckdb(sql)


KEYED = [pytest.param([], id="no key"), pytest.param(["room"], id="key")]


def renamed(name: str) -> pa.Table:
    rows = TABLES[name]
    return rows.rename_columns([one if one == "room" else f"{name}_{one}" for one in rows.column_names])


FAR = 2**62


def half(*parameters: Any) -> list[Any]:
    """All combinations; of two that differ in one value, one is for the soak."""
    found = []
    for values in product(*parameters):
        odd = sum(own.index(value) for own, value in zip(parameters, values, strict=True)) % 2
        name = "-".join(str(getattr(value, "id", value)) for value in values)
        plain = [value.values[0] if hasattr(value, "values") else value for value in values]
        found.append(pytest.param(*plain, id=name, marks=pytest.mark.soak if odd else ()))
    return found


@pytest.mark.parametrize("bounds", ["[]", "()"])
def test_ends_near_the_limits_of_int64(bounds: str, spark: SparkSession) -> None:
    """They are as far as an end may be; beyond, cells left the row out."""
    a = spark.createDataFrame([(FAR + 5, 2 * FAR - 2), (3 - 2 * FAR, 5), (4 - 2 * FAR, -FAR - 9), (9, 1)], "s long, e long")
    b = spark.createDataFrame([(FAR + 7, None), (None, -FAR - 11), (2, 2), (None, 2 - 2 * FAR)], "s2 long, e2 long")
    expected = {(FAR + 5, FAR + 7), (3 - 2 * FAR, None), (4 - 2 * FAR, None)} | ({(3 - 2 * FAR, 2)} if bounds == "[]" else set())
    found = [(row["s"], row["s2"]) for row in overlap_join(a, b, ("s", "e"), ("s2", "e2"), bounds=bounds).collect()]
    assert len(found) == len(expected) and set(found) == expected
    with pytest.raises(PySparkException, match=r"b\.last: -?\d+ cannot be an endpoint \(write null"):
        beyond = spark.createDataFrame([(1, 2 * FAR - 1 if bounds == "[]" else 2 - 2 * FAR - 1)], "first long, last long")
        overlap_join(a, beyond, ("s", "e"), ("first", "last"), bounds=bounds).count()


@pytest.mark.parametrize("bounds", ["[]", "()"])
def test_floats_and_decimals_have_the_ends_that_cells_keep(bounds: str, spark: SparkSession) -> None:
    a = spark.sql("SELECT CAST(s AS DOUBLE) AS s, CAST(e AS DOUBLE) AS e FROM VALUES (1, 1), (1, 2), (3, 2), (NULL, 0.5) AS v(s, e)")
    other = a.toDF("s2", "e2")
    for kind in ("double", "decimal(9,1)"):
        x, y = (frame.select(*(frame[name].cast(kind).alias(name) for name in frame.columns)) for frame in (a, other))
        rows = overlap_join(x, y, ("s", "e"), ("s2", "e2"), bounds=bounds).count()
        assert rows == (5 if bounds == "[]" else 2)
    for value, text in (("NaN", "NaN"), ("Infinity", "Infinity")):
        bad = spark.sql(f"SELECT DOUBLE(1) AS s2, DOUBLE('{value}') AS e2")
        with pytest.raises(PySparkException, match=f"b.e2: {text} cannot be an endpoint"):
            overlap_join(a, bad, ("s", "e"), ("s2", "e2"), bounds=bounds).count()


@pytest.mark.parametrize(("bounds", "on"), half(["[)", "()"], KEYED))
def test_an_overlap_join_has_the_pairs_of_duckdb(bounds: str, on: list[str], spark: SparkSession) -> None:
    """Empty intervals, nulls in keys and open ends are among the rows; columns keep their types."""
    a, b = renamed("a"), renamed("b")
    if not on:
        b = b.rename_columns([f"b_{one}" if one == "room" else one for one in b.column_names])
    x, y = spark.createDataFrame(a), spark.createDataFrame(b)
    joined = overlap_join(x, y, ("a_starts", "a_ends"), ("b_s", "b_e"), on, bounds)
    names = [*a.column_names, *(name for name in b.column_names if name not in on)]
    assert joined.columns == names and joined.schema["a_floor"].dataType == x.schema["a_floor"].dataType
    more, less = (1 if bounds[0] == "(" else 0), 1
    sql = f"""
        WITH p AS (SELECT *, coalesce(a_starts + {more}, -1000000) AS ps, coalesce(a_ends - {less}, 1000000) AS pe FROM a),
             q AS (SELECT *, coalesce(b_s + {more}, -1000000) AS qs, coalesce(b_e - {less}, 1000000) AS qe FROM b)
        SELECT {", ".join(f"p.{name}" if name in a.column_names else f"q.{name}" for name in names)} FROM p, q
        WHERE ps <= pe AND qs <= qe AND ps <= qe AND qs <= pe {"AND p.room = q.room" if on else ""}
    """
    expected = in_duckdb(sql, a=a, b=b)
    assert expected and rows_of(joined) == expected


def test_times_dates_decimals_and_floats_keep_their_types(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT id, CAST(id AS FLOAT) AS f, CAST(id / 10 AS DECIMAL(9,1)) AS d, date_add(DATE'2024-01-01', id) AS day, "
        "timestamp_seconds(id) AS t, timestamp_seconds(id + 3) AS u, CAST(id AS SMALLINT) AS small "
        "FROM (SELECT CAST(id AS INT) AS id FROM range(100))"
    )
    other = frame.toDF(*(f"o_{name}" for name in frame.columns))
    joined = overlap_join(frame, other, ("t", "u"), ("o_t", "o_u"))
    assert [one.dataType for one in joined.schema.fields] == [one.dataType for one in [*frame.schema.fields, *other.schema.fields]]
    found = joined.toArrow().to_pylist()
    assert len(found) == sum(abs(i - j) < 3 for i in range(100) for j in range(100))
    rows = {row["id"]: row for row in frame.toArrow().to_pylist()}
    assert all({name: row[name] for name in frame.columns} == rows[row["id"]] for row in found)
    floats = overlap_join(frame, other, ("f", "f"), ("o_f", "o_f"), bounds="[]")
    assert floats.count() == 100


def test_explain_shows_the_plan_and_skew(spark: SparkSession) -> None:
    """A hot key is divided into slabs where that can be."""
    rng = np.random.default_rng(1)
    evenly, together = rng.integers(0, 10**7, 3000), rng.integers(0, 30, 3000)
    even, burst = (
        spark.createDataFrame(pa.table({"k": np.where(rng.random(3000) < 0.8, 1, starts % 1000), "s": starts, "e": starts + 5}))
        for starts in (evenly, np.where(rng.random(3000) < 0.5, together, evenly))
    )
    again = even.toDF("k2", "s2", "e2")
    emitted = explain(even, again, ("s", "e"), ("s2", "e2"))
    assert re.search(r"slabs of a\.i, b\.i.*\nrows out    about \d+[\d,]*$", emitted, re.DOTALL), emitted
    assert emitted == explain(a=even, b=again, a_interval=("s", "e"), b_interval=("s2", "e2"))
    tables = {"p": Table(even, intervals={"i": ("s", "e")}), "q": Table(burst, intervals={"i": ("s", "e")})}
    emitted = explain("SELECT p.s, q.s AS t FROM p JOIN q ON p.k = q.k AND overlaps(p.i, q.i)", tables)
    assert "slabs of p.i, q.i" in emitted and "hash of" not in emitted and "hot key" not in emitted
    emitted = explain("SELECT p.s, q.s AS t FROM p LEFT JOIN q ON p.k = q.k AND overlaps(p.i, q.i)", tables)
    assert "hash of p.k, q.k" in emitted
    largest = int(emitted.split("copies a row; ")[1].split(" of ")[0].replace(",", ""))
    assert largest > 0.7 * 6000 and re.search("hot key     (7|8).% of the rows have one p.k, all in one cell", emitted), emitted


def test_bad_rows_and_frames_are_refused(spark: SparkSession) -> None:
    sql = "SELECT p.id FROM p"
    twice = spark.createDataFrame(pa.table({"id": [1, 1], "s": [1, 2], "e": [2, 3]}))
    with pytest.raises(PythonException, match=r"two rows of p have the same key \(id\)"):
        live_join(sql, {"p": Table(twice, ["id"])}).count()
    with pytest.raises(PythonException, match="1 rows of p are invalid; the first, in s"):
        live_join(sql, {"p": Table(twice, ["s"], {"i": ("e", "s")})}).count()
    with pytest.raises(TypeError, match="the column l is array<int>, which cells do not support"):
        live_join(sql, {"p": Table(spark.sql("SELECT 1 AS id, array(1) AS l"), ["id"])})
    text = spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS t, 1 AS s, 2 AS e")
    with pytest.raises(TypeError, match="the column t is string collate UTF8_LCASE, which cells do not support: .* cast it"):
        overlap_join(text, text.toDF("t", "f", "g"), ("s", "e"), ("f", "g"), on=["t"])
    for name in ("_tie", "_hash0", "_here11"):
        with pytest.raises(ValueError, match=f"the column name {name} is reserved for cells: rename"):
            live_join(sql, {"p": Table(twice.withColumnRenamed("s", name), ["id"])})
    with pytest.raises(ValueError, match="a has no column t"):
        overlap_join(twice, twice.toDF("i", "f", "g"), ("t", "e"), ("f", "g"))
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ValueError, match="b is a stream, but overlap_join joins only batch frames: join streams with live_join"):
        overlap_join(twice, stream, ("s", "e"), ("timestamp", "timestamp"))
    with pytest.raises(ValueError, match="p is a stream, .* use stream_layout"):
        explain(sql, {"p": Table(stream, ["value"])})


def test_columns_may_have_names_that_are_no_words(spark: SparkSession) -> None:
    """But for two, of which Spark told no more than that it cannot parse them."""
    frame = spark.range(100).selectExpr("id AS `select`", "id % 7 AS `a b`", "id AS `x as y`")
    sql = 'SELECT x."select" AS i, y."x as y" AS j FROM p x JOIN p y ON x."a b" = y."a b"'
    assert live_join(sql, {"p": Table(frame, ["select"])}).count() == sum(i % 7 == j % 7 for i in range(100) for j in range(100))
    for name in ("i`d", "*"):
        odd = frame.toDF("select", "a b", name)
        with pytest.raises(ValueError, match=rf"cannot pass a column named {re.escape(name)} to Python: rename it"):
            live_join(sql, {"p": Table(odd, ["select"])})
        assert overlap_join(odd, odd.toDF("b", "c", "d"), ("select", "select"), ("b", "b")).columns[2] == name


def test_points_that_are_null_are_in_no_cell(spark: SparkSession) -> None:
    """They were taken for unbounded intervals, of which each cell has a copy, though they meet nothing."""
    frame = spark.range(400).selectExpr("id", "id AS s", "id + 1 AS e")
    points = spark.range(400).selectExpr("id AS nr", "nullif(id, 2 * (id DIV 2)) AS t")
    emitted = explain(frame, points, ("s", "e"), ("t", "t"))
    assert "of 600 rows in one" in emitted and emitted.endswith("rows out    about 200")
    assert overlap_join(frame, points, ("s", "e"), ("t", "t")).count() == 200


def test_frames_without_rows_join_to_none(spark: SparkSession, tables: dict[str, Table]) -> None:
    empty = {"a": tables["a"], "b": Table(tables["b"].frame.limit(0), KEYS["b"], SPANS["b"])}
    assert live_join(VIEWS["pair"], empty).count() == 0
    assert live_join(VIEWS["left join"], empty).count() == TABLES["a"].num_rows


def test_a_limit_of_address_space_is_refused(spark: SparkSession, tables: dict[str, Table]) -> None:
    spark.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    spark.conf.set("spark.executor.pyspark.memory", "1g")
    try:
        with pytest.raises(ValueError, match="spark.executor.pyspark.memory is 1g, .* spark.executor.memoryOverhead"):
            live_join(VIEWS["pair"], tables)
    finally:
        spark.conf.unset("spark.executor.pyspark.memory")


def test_the_tutorial(spark: SparkSession, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tutorials/genome-spark.md is true, in this Spark."""
    monkeypatch.setattr(batch, "_ROWS_OF_A_CELL", 1_000_000)
    monkeypatch.chdir(tmp_path)
    assert Reader(server, tmp_path).read(ROOT / "docs" / "tutorials" / "genome-spark.md") == 6

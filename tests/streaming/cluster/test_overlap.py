"""`overlap_join`: random joins against DuckDB, with Spark's comparison of all pairs and in cells; columns that travel along; names."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from service.errors import Problem
from streaming.cluster import batch
from streaming.cluster.batch import explain, overlap_join
from streaming.spark import prepare_own


@pytest.fixture(scope="module")
def spark(quick_java: None) -> Iterator[SparkSession]:
    session = SparkSession.builder.appName("bins").config(map=prepare_own()).getOrCreate()
    yield session
    session.stop()


KINDS = {
    "int64": "{}",
    "double": "double({}) / 4",
    "decimal": "CAST({} / 10 AS DECIMAL(9,1))",
    "date": "date_add(DATE'2024-01-01', {})",
    "timestamp": "timestamp_micros({})",
}


def drawn(rng: random.Random) -> pa.Table:
    """A burst of short intervals among some that are long, open, empty or points, most under one key."""
    number = rng.randrange(40, 120)
    starts = [None if rng.random() < 0.05 else rng.choice([rng.randrange(-9, 12), rng.randrange(200)]) for _ in range(number)]
    lengths = [rng.choice([-1, 0, 1, 1, 2, 3, 4, rng.choice([1, 30, 180])]) for _ in starts]
    ends = [None if rng.random() < 0.05 else (start or 0) + length for start, length in zip(starts, lengths, strict=True)]
    rooms = [rng.choice(["A", "A", "A", "b", "B", None]) for _ in starts]
    return pa.table({"id": range(number), "room": rooms, "s": pa.array(starts, pa.int32()), "e": pa.array(ends, pa.int32())})


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.soak] if seed >= 10 else []) for seed in range(200)])
def test_random_overlap_joins_have_the_rows_of_duckdb(seed: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    kind, bounds, how = [*KINDS][seed % 5], rng.choice(["[)", "[]", "(]", "()"]), ["inner", "left", "semi", "anti"][seed % 4]
    on, is_self, is_point = rng.choice(["room", ()]), rng.random() < 0.2, rng.random() < 0.2
    monkeypatch.setattr(batch, "_ROWS_OF_A_CELL", 20)
    monkeypatch.setattr(batch, "_COMPARED", rng.choice([0, 0, 0, 10**6]))
    a = drawn(rng)
    b = a if is_self else drawn(rng)
    has_list = rng.random() < 0.5
    ends = [f"{KINDS[kind].format(name)} AS {name}" for name in "se"]
    x, y = (spark.createDataFrame(rows).selectExpr("id", "room", *ends, *(["array(id) AS list"] if has_list else [])) for rows in (a, b))
    joined = overlap_join(x, x if is_self else y, ("s", "e"), ("s", "s" if is_point else "e"), on, bounds, how)
    more, less = (by / 2 if kind == "double" else by for by in (int(bounds[0] == "("), int(bounds[1] == ")")))
    point = "q.s IS NOT NULL AND coalesce(p.s + {0} <= q.s, true) AND coalesce(q.s <= p.e - {1}, true)"
    both = "coalesce(q.s + {0} <= q.e - {1}, true) AND coalesce(p.s + {0} <= q.e - {1}, true) AND coalesce(q.s + {0} <= p.e - {1}, true)"
    meets = f"coalesce(p.s + {{0}} <= p.e - {{1}}, true) AND {point if is_point else both}".format(more, less)
    meets += " AND p.room = q.room" if on else ""
    names = ["id"] if how in ("semi", "anti") else ["id_x", "id_y"]
    sql = f"SELECT p.id{', q.id' if len(names) > 1 else ''} FROM p {how.upper() if how != 'inner' else ''} JOIN q ON {meets}"
    con = duckdb.connect()
    con.register("p", a), con.register("q", b)
    assert joined.columns[0] == names[0] and Counter(map(tuple, joined.select(*names).collect())) == Counter(con.sql(sql).fetchall())


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_columns_of_any_type_travel_along(how: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_COMPARED", 0)
    monkeypatch.setattr(batch, "_ROWS_OF_A_CELL", 3)
    frame = spark.sql(
        "SELECT id, id AS starts, id + 1 AS ends, 'R' AS room, array(id) AS list, map('k', id) AS map, struct(id AS i) AS struct, "
        "CAST(id AS DECIMAL(38,2)) AS wide, TIMESTAMP_NTZ'2024-01-01' AS local, parse_json(string(id)) AS variant, "
        "CAST(if(id = 3, 'Ä', 'ä') AS STRING COLLATE UNICODE_CI) AS text, INTERVAL '1' DAY AS day FROM range(9)"
    )
    joined = overlap_join(frame, frame.where("id > 3"), on="room", how=how)
    kinds, is_wide = [one.dataType for one in frame.schema.fields], how in ("inner", "left")
    others = [one.dataType for one in frame.schema.fields if one.name != "room"]
    assert [one.dataType for one in joined.schema.fields] == kinds + others * is_wide
    rows = joined.selectExpr(*(["wide_x", "list_y[0]"] if is_wide else ["wide", "list[0]"])).collect()
    expected = {
        "inner": [(i, i) for i in range(4, 9)], "left": [(i, i if i > 3 else None) for i in range(9)],
        "semi": [(i, i) for i in range(4, 9)], "anti": [(i, i) for i in range(4)],
    }  # fmt: skip
    assert sorted((int(x), y) for x, y in rows) == expected[how]


def test_names_of_the_joined_columns(spark: SparkSession) -> None:
    """Those of pandas' `merge`."""
    frame = spark.sql("SELECT 1 AS id, 'R' AS room, 2 AS starts, 3 AS ends")
    assert overlap_join(frame, frame, on="room").columns == ["id_x", "room", "starts_x", "ends_x", "id_y", "starts_y", "ends_y"]
    other = frame.toDF("ID", "room", "from", "until")
    joined = overlap_join(frame, other, b_interval=("from", "until"), suffixes=(None, "_b"))
    assert joined.columns == ["id", "room", "starts", "ends", "ID_b", "room_b", "from", "until"]
    assert overlap_join(frame, frame, how="anti").columns == frame.columns
    with pytest.raises(ValueError, match="would have two columns id: write other suffixes, or rename one of them"):
        overlap_join(frame, frame, suffixes=("", ""))
    with pytest.raises(ValueError, match="two columns id_x: write other suffixes"):
        overlap_join(frame.withColumn("id_x", frame["id"]), frame)


def test_what_cannot_be_joined_is_refused_before_any_job(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, 2 AS starts, 3 AS ends, 'R' AS room, 'a' COLLATE UTF8_LCASE AS text, array(1) AS list")
    with pytest.raises(ValueError, match="^how is 'right': write one of inner, left, semi, anti$"):
        overlap_join(frame, frame, how="right")
    with pytest.raises(ValueError, match="^a_interval is 'starts': write the names of two columns"):
        overlap_join(frame, frame, a_interval="starts")
    with pytest.raises(ValueError, match=r"^b has two columns of one name \(id, starts, ends, id\): rename one of them"):
        overlap_join(frame, frame.select("id", "starts", "ends", "id"))
    with pytest.raises(ValueError, match="^a has no column rooms: its columns are id, starts"):
        overlap_join(frame, frame, on="rooms")
    for name in ("text", "list"):
        with pytest.raises(TypeError, match=f"^the column {name} is .*, which cells do not support: leave it out, or cast it"):
            overlap_join(frame, frame, on=name)
    for text in ("1", "1D", "1.5BD", "DATE'2024-01-01'"):  # Spark would compare some of them
        with pytest.raises(TypeError, match="^room is string in a and .* in b: cast one of them$"):
            overlap_join(frame, frame.selectExpr("starts", "ends", f"{text} AS room"), on="room")
    with pytest.raises(TypeError, match="^id is int64 in a and float64 in b: cast one of them$"):
        overlap_join(frame, frame.withColumn("id", frame["id"].cast("double")), on="id")
    days = spark.sql("SELECT DATE'2024-01-01' AS starts, DATE'2024-01-02' AS ends")
    with pytest.raises(Problem, match="int64.*date|date.*int64"):
        overlap_join(frame, days)
    dear = spark.sql("SELECT 1.25BD AS starts, 2.50BD AS ends")
    with pytest.raises(Problem, match="decimal"):
        overlap_join(dear, dear.selectExpr("CAST(starts AS DECIMAL(9,1)) AS starts", "CAST(ends AS DECIMAL(9,1)) AS ends"))


def test_few_rows_are_compared_by_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.range(50).selectExpr("id AS starts", "id + 1 AS ends")
    assert explain(frame, frame, how="left").startswith("compares ") and "MapInArrow" not in plan_of(overlap_join(frame, frame))
    monkeypatch.setattr(batch, "_BROADCAST", 49)
    assert "rows out    about 50" in explain(frame, frame) and "MapInArrow" in plan_of(overlap_join(frame, frame))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())

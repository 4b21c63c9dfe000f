"""The options `where`, `columns` and `overlaps` of `format("livejoin")`, relations that are read, and the progress of a query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col

import livejoin
from tests.server_process import ServerProcess
from tests.streaming.datasource.spark_hotel import Hotel, Made, failed
from tests.waiting import until


def relation(h: Hotel, **options: object) -> DataFrame:
    reader = h.spark.read.format("livejoin").options(url=h.service.url, relation=h.bookings.name)
    return reader.options(**options).load()


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, frame.collect()))


@pytest.fixture
def booked(hotel: Made) -> Hotel:
    h = hotel()
    h.bookings.upsert([{"id": n, "room": "AB"[n % 2], "s": 10 * n, "e": 10 * n + 15} for n in range(200)])
    h.jobs.upsert([{"id": n, "room": "AB"[n % 2], "s": 10 * n, "e": None} for n in range(0, 200, 20)])
    return h


def test_rows_and_columns_are_chosen_by_the_service(booked: Hotel) -> None:
    h = booked
    whole = rows(h.batch())
    assert rows(h.batch(where="booking = 100 AND job < 60")) == [row for row in whole if row[0] == 100 and row[1] < 60]
    assert rows(h.batch(where="booking >= 190 OR job = 180", columns="job")) == sorted((j,) for b, j in whole if b >= 190 or j == 180)
    assert rows(h.batch(**{"overlaps.b.stay": "1990,"}, columns="job, booking")) == sorted((j, b) for b, j in whole if b >= 198)
    both = h.batch(**{"overlaps": ",1985", "overlaps.b.stay": "1990,"})  # seen: the second was ignored
    assert rows(both) == [row for row in whole if row[0] == 198] != []
    assert rows(relation(h, where="room = 'B'", overlaps="0,40", columns="id")) == [(1,), (3,)]
    key = relation(h, where="id = 7")
    assert key.collect() == [Row(id=7, room="B", s=70, e=85)] and key.rdd.getNumPartitions() == 1
    assert rows(h.spark.read.format("livejoin").option("url", h.service.url).load(h.view.name)) == whole
    joined = h.batch(where="job = 100").alias("v").join(relation(h).alias("b"), col("v.booking") == col("b.id"))
    assert sorted(row["booking"] for row in joined.collect()) == sorted(b for b, j in whole if j == 100)


def test_tables_choose(booked: Hotel) -> None:
    """Seen: a table with a window for an interval had all rows, since only the names of options without one were kept."""
    h, sql = booked, booked.spark.sql
    options = f"url '{h.service.url}', view '{h.view.name}', columns 'job, booking', where 'booking < 199', `overlaps.b.stay` '1990,'"
    try:
        sql(f"CREATE TABLE chosen_t USING livejoin OPTIONS ({options})")
        assert rows(sql("SELECT * FROM chosen_t")) == sorted((j, b) for b, j in rows(h.batch()) if b == 198) != []
    finally:
        sql("DROP TABLE IF EXISTS chosen_t")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": "bookin = 1"}, "has no column bookin; did you mean booking?"),
        ({"where": "booking ="}, "where"),
        ({"columns": "booking, nothing"}, "nothing"),
        ({"overlaps.b.stay": "5"}, "the option 'overlaps.b.stay' must be 'low,high'"),
        ({"overlaps.x.stay": "5,6"}, "overlaps.x.stay"),
    ],
)
def test_choices_that_are_wrong(booked: Hotel, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException) as error:
        booked.batch(**options)
    assert said in failed(error)


@pytest.mark.parametrize("pushes", [False, True])
def test_filters_of_spark_never_cost_rows(booked: Hotel, pushes: bool) -> None:
    """Seen with `pushFilters`: the partitions of the first plan were those of all plans over one `load()`."""
    h = booked
    h.spark.conf.set("spark.sql.python.filterPushdown.enabled", pushes)
    try:
        frame = relation(h)
        assert frame.where("id = 3").count() == 1 and frame.count() == 200
        assert rows(frame.where("id = 3").union(frame.where("id = 4")).select("id")) == [(3,), (4,)]
        assert frame.where("id = 3").alias("x").crossJoin(frame.alias("y")).count() == 200
    finally:
        h.spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_what_was_read_is_written_back_unchanged(spark: SparkSession, service: ServerProcess) -> None:
    """All types, nulls and extremes, to the relation itself and to an equal one."""
    kinds = ["int64", "float64", "timestamp", "date", "time", "string", "bool", "bytes", "uuid", "json"]
    columns: dict[str, object] = {kind: {"type": kind, "nullable": True} for kind in kinds}
    columns |= {"decimal": {"type": "decimal", "precision": 18, "scale": 4, "nullable": True}, "id": "int64"}
    low = {
        "int64": -(2**63), "float64": -1.7976931348623157e308, "timestamp": "0001-01-01T00:00:00Z", "date": "0001-01-01", "string": "",
        "bool": False, "bytes": "", "uuid": "00000000-0000-0000-0000-000000000000", "json": "null", "decimal": "-99999999999999.9999",
        "time": "00:00:00",
    }  # fmt: skip
    high = {
        "int64": 2**63 - 1, "float64": 5e-324, "timestamp": "9999-12-31T23:59:59.999999Z", "date": "9999-12-31", "string": "é\n\"'😀",
        "bool": True, "bytes": "AP8=", "uuid": "ffffffff-ffff-ffff-ffff-ffffffffffff", "json": '{"a":[1,2.50]}',
        "decimal": "99999999999999.9999", "time": "23:59:59.999999",
    }  # fmt: skip
    with livejoin.connect(service.url) as lj:
        one, other = (lj.relation(name).create(columns, "id") for name in ("all_types", "all_types_too"))
        one.upsert([{"id": 1, **low}, {"id": 2, **high}, {"id": 3}])
        view = lj.view("all_types_v", "SELECT * FROM all_types")
        token = view.begin_reading()["token"]
        frame = spark.read.format("livejoin").options(url=service.url, relation="all_types").load()
        for target in ("all_types", "all_types_too", "all_types_too"):
            for mode in ("append", "overwrite"):
                frame.write.format("livejoin").options(url=service.url, relation=target).mode(mode).save()
        end = view.changes_end(token)
        assert end["rows"] == 0, "the service reports no changed row"
        assert list(other.rows()) == list(one.rows())


@pytest.fixture
def named(booked: Hotel, tmp_path: Path) -> Iterator[Hotel]:
    yield booked
    for query in booked.spark.streams.active:
        query.stop()


def test_a_stream_of_some_rows_and_its_progress(named: Hotel) -> None:
    h = named
    stream = h.spark.readStream.format("livejoin").options(url=h.service.url, view=h.view.name, changes=True, snapshot=True)
    chosen = stream.options(where="booking < 20", columns="job, booking").load()
    assert chosen.columns[-2:] == ["job", "booking"] and "b.id" in chosen.columns
    found: set[tuple[int, int]] = set()

    def take(batch: DataFrame, epoch: int) -> None:
        for row in batch.collect():
            (found.add if row["_op"] == "insert" else found.remove)((row["booking"], row["job"]))

    name = "clashes, too"
    query = chosen.writeStream.foreachBatch(take).queryName(name).option("checkpointLocation", str(h.folder / "some")).start()

    def expected() -> set[tuple[int, int]]:
        return {(row["booking"], row["job"]) for row in h.view.rows() if row["booking"] < 20}

    until(lambda: found == expected() and bool(found))
    h.bookings.upsert([{"id": n, "room": "A", "s": 0, "e": 5} for n in (1, 2, 150)])
    h.bookings.delete([{"id": 4}])
    until(lambda: found == expected())

    def is_current() -> bool:
        progress = query.lastProgress
        place = json.loads((progress and progress["sources"][0]["latestOffset"]) or "null")
        return place is not None and (place["behind_versions"], place["behind_seconds"], place["version"]) == (0, 0, h.version)

    until(is_current)
    (reader,) = [one for one in h.lj.status()["readers"] if one["name"] == name]
    assert reader["view"] == h.view.name and reader["behind"] == 0

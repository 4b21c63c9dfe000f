"""`format("livejoin")` with a real Spark and a real service: views read, relations written and tables."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

import livejoin
from tests.server_process import ServerProcess
from tests.streaming.datasource.spark_hotel import COLUMNS, COLUMNS_DDL, SQL, STAY, Made, failed
from tests.waiting import until


def test_rows_are_read_in_parts_at_one_version(hotel: Made) -> None:
    h = hotel()
    h.book(*range(40))
    h.work(1, 2)
    frame = h.batch(parts=5)
    assert frame.dtypes == [("booking", "bigint"), ("job", "bigint")]
    assert frame.rdd.getNumPartitions() == 5
    before = h.clashes
    assert sum(before.values()) == 80 and Counter(map(tuple, frame.collect())) == before
    reading = h.view.begin_reading(1)
    h.bookings.truncate()
    pinned = h.batch(version=reading["version"])
    assert Counter(map(tuple, pinned.collect())) == before and pinned.count() == 80
    assert h.batch().count() == frame.count() == 0
    h.view.end_reading(reading["id"])
    with pytest.raises(PySparkException) as error:
        h.batch(version=1).collect()
    assert "the option 'version' needs a version that a cursor or a reading of the service holds" in failed(error)


def _pins(service: ServerProcess) -> float:
    text = httpx.get(f"{service.url}/metrics").text
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith("livejoin_pins ")))


def test_each_action_reads_the_newest_version(hotel: Made) -> None:
    """Seen: a frame stayed at the version of its first action, and every use of it failed when that was no longer held."""
    h = hotel()
    h.book(*range(100))
    h.work(1)
    frame, before = h.batch(hold=6), _pins(h.service)  # others may be of readings by other tests
    frame.createOrReplaceTempView("clashes")
    assert frame.count() == len(frame.collect()) == 100
    for left in (90, 80):
        h.bookings.delete([{"id": number} for number in range(left, left + 10)])
        until(lambda: _pins(h.service) <= before)  # its readings have ended
        a, b = frame.alias("a"), h.batch(parts=3, hold=6).alias("b")
        found = [
            frame.count(), len(frame.collect()), frame.where("booking >= 0").count(), a.join(frame.alias("c"), "booking").count(),
            a.join(b, "booking").count(), h.spark.sql("SELECT booking FROM clashes").count(), frame.rdd.count(), len(frame.toPandas()),
        ]  # fmt: skip
        assert found == [left] * 8 and frame.union(b).count() == 2 * left
    assert h.service.stop() == 0
    h.service.start()
    assert frame.count() == len(frame.collect()) == 80


def test_all_tasks_of_an_action_read_one_version(hotel: Made) -> None:
    """Of all uses of a view in a plan, of several loads and views, and of tasks whose Python is killed when it has read its part, while all
    rows change in each version."""
    h = hotel()
    h.view = h.lj.view(f"{h.view.name}_s", f"SELECT id AS booking, s AS n FROM {h.bookings.name}")
    other = h.lj.view(f"{h.view.name}_e", f"SELECT id AS booking, s AS n, room FROM {h.bookings.name}")
    ended = threading.Event()

    def put(n: int) -> None:
        h.bookings.upsert([{"id": number, "room": "A", "s": n, "e": n + 1} for number in range(50)])

    def change() -> None:
        n = 1
        while not ended.wait(0.01):
            put(n := n + 1)

    def once(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(rows)
        mark = Path(folder, str(TaskContext.get().partitionId()))  # type: ignore[union-attr]
        if not mark.exists():
            mark.touch()
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        yield from found

    put(1)
    frame, again, folder = h.batch(parts=4), h.batch(parts=3), str(h.folder)
    second = h.spark.read.format("livejoin").options(url=h.service.url, view=other.name).load()
    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(3):
            joined = frame.alias("a").join(again.alias("b"), "booking").join(second.alias("c"), "booking").selectExpr("a.n", "b.n", "c.n")
            self_join = frame.alias("a").join(broadcast(frame.alias("b")), "booking").selectExpr("a.n", "b.n")
            for rows in (joined.collect(), self_join.collect()):
                assert len(rows) == 50 and len({n for row in rows for n in row}) == 1
            for one in (again, second.select("booking", "n"), frame.groupBy("n").count().selectExpr("0", "n"), frame.orderBy("n")):
                assert len({row["n"] for row in frame.union(one).collect()}) == 1
        killed = frame.mapInArrow(once, frame.schema).collect()
        assert len(killed) == 50 and len({row["n"] for row in killed}) == 1 and len(list(h.folder.iterdir())) == 4
    finally:
        ended.set()
        changing.join()


def test_a_view_that_is_another_one_now(hotel: Made) -> None:
    h = hotel()
    frame = h.batch(parts=1)
    assert frame.count() == 0
    for sql in (SQL.replace("AS job", "AS job, b.s"), SQL.replace("m.id AS job", "m.room AS job"), SQL.replace("AS job", "AS work"), SQL):
        h.view.drop()
        with pytest.raises(PySparkException) as error:
            frame.count()
        assert f"the view {h.view.name}: there is no view" in failed(error)
        h.lj.view(h.view.name, sql.format(h.bookings.name, h.jobs.name))
        if sql != SQL:
            with pytest.raises(PySparkException) as error:
                frame.count()
            assert f"the view {h.view.name}: its columns are not those it was loaded with: load it again without" in failed(error)
    h.book(1)
    h.work(1)
    assert frame.count() == 1


def test_a_reading_is_one_cursor_and_those_that_are_done_with_make_room(spark: SparkSession, tmp_path: Path) -> None:
    """Spark tells nobody when it is done with them. Seen: 1,000 parts took all cursors, and the next load failed after a minute."""
    with ServerProcess(tmp_path / "data", arguments=["--max-client-cursors", "2"]) as process, livejoin.connect(process.url) as lj:
        lj.relation("w").create({"id": "int64"}, "id").upsert([{"id": number} for number in range(1000)])
        view = lj.view("w_v", "SELECT id FROM w")
        reader = spark.read.format("livejoin").options(url=process.url, view="w_v")
        assert reader.option("parts", 100).load().count() == 1000
        frames = [reader.option("parts", 2).load() for _ in range(3)]
        assert [frame.count() for frame in frames] == [1000] * 3
        for _ in range(2):
            view.begin_reading()
        begun = time.monotonic()
        with pytest.raises(PySparkException) as error:
            frames[0].count()
        assert "this client has 2 cursors and readings (--max-client-cursors), and has finished none" in failed(error)
        assert time.monotonic() - begun < 20


def test_all_types(spark: SparkSession, service: ServerProcess) -> None:
    """Out and in again: what is written by Spark is what it has read. Times of day are text under Spark's defaults."""
    kinds = ["int64", "float64", "timestamp", "date", "time", "string", "bool", "bytes", "uuid", "json"]
    columns: dict[str, Any] = {kind: {"type": kind, "nullable": True} for kind in kinds}
    columns["decimal"] = {"type": "decimal", "precision": 12, "scale": 2, "nullable": True}
    columns["id"] = "int64"
    with livejoin.connect(service.url) as lj:
        one, other = lj.relation("types").create(columns, "id"), lj.relation("types_again").create(columns, "id")
        row = {
            "id": 1, "int64": -(2**63), "float64": 0.1, "timestamp": "2026-03-29T01:30:00.123456Z", "date": "1969-12-31", "string": "é",
            "bool": True, "bytes": "AP8=", "uuid": "0f8fad5b-d9cb-469f-a165-70867728950e", "json": '{"a": 1}', "decimal": "-1234567890.12",
            "time": "23:59:59.999999",
        }  # fmt: skip
        one.upsert([row, {"id": 2, "time": "08:30:00"}, {"id": 3}])
        lj.view("types_v", "SELECT * FROM types")
        reader = spark.read.format("livejoin").options(url=service.url, view="types_v")
        assert reader.load().count() == 3
        for times, type_ in ((False, "string"), (True, "time(6)")):
            other.truncate()
            spark.conf.set("spark.sql.timeType.enabled", times)
            frame = reader.option("timeType", times).load()
            renamed = frame.select(*[frame[f"`{name}`"].alias(name.rpartition(".")[2]) for name in frame.columns])
            types = dict(renamed.dtypes)
            assert (types["decimal"], types["timestamp"], types["time"]) == ("decimal(12,2)", "timestamp", type_)
            renamed.write.format("livejoin").options(url=service.url, relation="types_again").mode("append").save()
            written, read = (sorted(relation.rows(), key=lambda row: row["id"]) for relation in (other, one))
            assert written == read and len(written) == 3
        spark.conf.unset("spark.sql.timeType.enabled")


def test_tables_of_the_catalog(hotel: Made) -> None:
    """Seen: `unknown option 'provider'`. Spark passes the options on only when the columns are asked for."""
    h = hotel()
    h.work(1)
    sql, url = h.spark.sql, h.service.url
    try:
        sql(f"CREATE TABLE clashes_t USING livejoin OPTIONS (url '{url}', view '{h.view.name}', Parts '2')")
        sql(f"CREATE TABLE bookings_t USING livejoin OPTIONS (url '{url}', relation '{h.bookings.name}', path '{h.folder}')")
        into = f"bookings_t WITH (url '{url}', relation '{h.bookings.name}')"
        sql("INSERT INTO bookings_t VALUES (1, 'A', 0, 10), (2, 'B', 0, NULL)")
        sql("INSERT INTO bookings_t (room, e, s, id) SELECT 'A', 10, 0, 3")
        assert h.booked == [1, 2, 3]
        h.lj.view(f"{h.view.name}_r", f"SELECT id, room FROM {h.bookings.name}")
        more = "COMMENT 'of all' TBLPROPERTIES ('ours' = '1')"
        sql(f"CREATE TABLE rooms_t USING livejoin OPTIONS (url '{url}', view '{h.view.name}_r') {more}")
        assert sorted(map(tuple, sql("SELECT room, id FROM rooms_t").collect())) == [("A", 1), ("A", 3), ("B", 2)]
        assert [tuple(row) for row in sql("SELECT booking, job FROM clashes_t ORDER BY booking").collect()] == [(1, 1), (3, 1)]
        assert h.spark.read.option("parts", 3).table("clashes_t").where("booking = 3").count() == 1
        with pytest.raises(PySparkException) as error:
            sql("INSERT INTO clashes_t VALUES (1, 1)")
        assert "the option 'relation' is required for writing" in failed(error)
        with pytest.raises(PySparkException) as error:
            sql("INSERT INTO bookings_t SELECT * FROM bookings_t")
        assert "the option 'relation' is required for writing; for a table, repeat its options" in failed(error)
        sql("INSERT OVERWRITE bookings_t SELECT 3, 'A', 0, 10")
        assert h.booked == [3]
        sql(f"INSERT OVERWRITE {into} SELECT 4, 'A', 0, 10")
        assert h.booked == [4]
        secret = f"view '{h.view.name}', token 'lj_x'"
        for options, said in (("vue 'x'", "unknown option 'vue'"), (secret, "give the token in LIVEJOIN_TOKEN")):
            with pytest.raises(PySparkException) as error:
                sql(f"CREATE TABLE refused USING livejoin OPTIONS (url '{url}', {options})")
            assert said in failed(error)
        sql(f"CREATE TABLE listed (booking BIGINT, job BIGINT) USING livejoin OPTIONS (url '{url}', view '{h.view.name}')")
        with pytest.raises(PySparkException) as error:
            sql("SELECT * FROM listed").collect()
        assert "only if it was created without a list of columns" in failed(error)
    finally:
        for name in ("clashes_t", "bookings_t", "rooms_t", "listed"):
            sql(f"DROP TABLE IF EXISTS {name}")


def test_a_table_is_not_written_when_another_is(hotel: Made) -> None:
    """Seen: rows of one table, inserted into another with the same columns, were written to the first, which INSERT OVERWRITE cut down to
    them: where no column has to be converted, Spark passes on the metadata of what is read, not of what is written."""
    h = hotel()
    h.work(1)
    h.book(1, 2, 3)
    archive = h.lj.relation(f"{h.bookings.name}_archive").create(COLUMNS, "id", STAY)
    try:
        for name, relation in (("from_t", h.bookings), ("into_t", archive)):
            h.spark.sql(f"CREATE TABLE {name} USING livejoin OPTIONS (url '{h.service.url}', relation '{relation.name}')")
        query = "SELECT * FROM from_t WHERE id > 1"
        with pytest.raises(PySparkException, match="repeat its options"):
            h.spark.sql(f"INSERT OVERWRITE into_t {query}")
        with pytest.raises(PySparkException, match="repeat its options"):
            h.spark.sql(query).writeTo("into_t").append()
        assert h.booked == [1, 2, 3]
        h.spark.sql("INSERT INTO into_t SELECT id, 'C', s, e FROM from_t WHERE id = 3")  # 'C' gets another name
        assert h.booked == [1, 2, 3] and [row["room"] for row in archive.rows()] == ["C"]
        h.spark.sql(f"INSERT OVERWRITE into_t WITH (url '{h.service.url}', relation '{archive.name}') {query}")
        h.spark.sql(query.replace("> 1", "= 1")).writeTo("into_t").options(url=h.service.url, relation=archive.name).append()
        assert h.booked == [1, 2, 3] == sorted(row["id"] for row in archive.rows())
    finally:
        for name in ("from_t", "into_t"):
            h.spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_rows_are_written_in_batch(hotel: Made) -> None:
    h = hotel()
    rows = h.spark.range(5000).selectExpr("id", "'A' AS room", "id AS s", "id + 1 AS e").repartition(3)
    writer = rows.write.format("livejoin").options(url=h.service.url, relation=h.bookings.name)
    for _ in range(2):
        writer.mode("append").save()
    assert h.booked == list(range(5000))
    deleted = h.spark.range(4990).selectExpr("id", "'delete' AS _op")
    deleted.write.format("livejoin").options(url=h.service.url, relation=h.bookings.name).mode("append").save()
    assert h.booked == list(range(4990, 5000))
    bad = h.spark.range(3).selectExpr("id", "CAST(NULL AS STRING) AS room", "id AS s", "id AS e")
    for on_error in ("reject", "skip"):
        sink = bad.write.format("livejoin").options(url=h.service.url, relation=h.bookings.name, on_error=on_error).mode("append")
        if on_error == "skip":
            sink.save()
        else:
            with pytest.raises(PySparkException) as error:
                sink.save()
            assert "room of row 0" in failed(error)
    assert h.booked == list(range(4990, 5000))


def test_a_batch_is_written_in_one_version(hotel: Made) -> None:
    """Or not at all; a task that is run again writes its rows once."""
    h = hotel()
    version = h.version
    failing = h.folder / "failing"

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number and batch.column(0)[0].as_py() > 4000 and not failing.exists():
                failing.touch()
                raise ValueError("the task has failed")
            yield batch

    h.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
    try:
        rows = h.spark.range(0, 5000, 1, 3).selectExpr("id", "'A' AS room", "id AS s", "id + 1 AS e").mapInArrow(fail_once, COLUMNS_DDL)
        h.save(rows)
    finally:
        h.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert failing.exists() and h.booked == list(range(5000)) and h.version == version + 1
    half_bad = h.spark.range(6000, 6010, 1, 2).selectExpr("id", "IF(id < 6009, 'B', NULL) AS room", "id AS s", "id + 1 AS e")
    with pytest.raises(PySparkException):
        h.save(half_bad)
    assert h.booked == list(range(5000))
    h.save(half_bad, on_error="skip")
    assert h.booked[5000:] == list(range(6000, 6009)) and h.version == version + 2
    h.save(h.spark.range(4).selectExpr("id", "'C' AS room", "CAST(id AS SMALLINT) AS s", "NULL AS e"), "overwrite")
    assert h.booked == [0, 1, 2, 3] and h.version == version + 3
    h.save(h.spark.range(0).selectExpr("id", "'C' AS room", "id AS s"), "overwrite")
    assert h.booked == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id, 'A' AS room, id AS s, id AS ende", "has no column ende: its columns are id, room, s, e"),
        ("id, 'A' AS room", "the rows lack the column s of the relation"),
        ("room, 'delete' AS _op", "the rows lack the column id of the relation"),
        ("id, 'A' AS room, 'x' AS s, id AS e", "the column 's' is string; it must be convertible to int64"),
        ("id, 'A' AS room, array(id) AS s", "the column 's' is list<"),
    ],
)
def test_columns_that_do_not_fit(hotel: Made, columns: str, said: str) -> None:
    """Refused before any task runs, in one sentence."""
    h = hotel()
    version = h.version
    with pytest.raises(PySparkException) as error:
        h.save(h.spark.sql("SELECT 1L AS id, 'B' AS room").selectExpr(*columns.split(", ")))
    assert said in failed(error) and "Task" not in failed(error)
    assert h.version == version


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vue": "x"}, "unknown option 'vue'"),
        ({}, "the option 'view' is required"),
        ({"relation": "x_of", "changes": "true"}, "the option 'view' is required for reading; given: "),
        ({"relation": "x_of", "path": "x"}, "the name in load(…) is that of a view: leave it out"),
        ({"view": "x", "where": "id > now()"}, "read it with a window or a constant"),
        ({"view": "x", "parts": "0"}, "'parts' must be an integer from 1 to 1,000, not '0'"),
        ({"view": "x", "changes": "perhaps"}, "'changes' must be false or true"),
        ({"view": "nothing"}, "nothing"),
        ({"view": "nothing", "url": "http://127.0.0.1:1"}, "no service answers"),
    ],
)
def test_options_that_are_wrong(spark: SparkSession, service: ServerProcess, options: dict[str, str], said: str) -> None:
    with livejoin.connect(service.url) as lj:
        lj.relation("x_of").create({"id": "int64"}, "id")
        lj.view("x", "SELECT id FROM x_of")
    with pytest.raises(PySparkException) as error:
        spark.read.format("livejoin").options(**{"url": service.url} | options).load().collect()
    assert said in failed(error)

"""`format("livejoin")` with a real Spark and a real service."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import livejoin
from livejoin.datasource import readers
from livejoin.datasource.options import Options
from livejoin.datasource.readers import ChangesPartition, StreamReader, schema_of
from streaming.spark import prepare_own
from tests.server_process import ROOT, ServerProcess
from tests.streaming.datasource.relay import Relay

COLUMNS = {"id": "int64", "room": "string", "s": "int64", "e": {"type": "int64", "nullable": True}}
STAY = {"stay": ("s", "e")}
SQL = "SELECT b.id AS booking, m.id AS job FROM {0} b JOIN {1} m ON b.room = m.room AND overlaps(b.stay, m.stay)"
Pair = tuple[int, int]


@pytest.fixture(scope="module")
def spark(quick_java: None) -> Iterator[SparkSession]:
    """Classic. Its Python finds the data source where an installed livejoin has it: on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(ROOT / "client"))))
        builder = SparkSession.builder.appName("datasource")
        for name, value in prepare_own().items():
            builder = builder.config(name, value)
        session = builder.config("spark.sql.streaming.stopTimeout", "30s").getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """May be restarted, but not left stopped."""
    with ServerProcess(tmp_path_factory.mktemp("service") / "data") as process:
        yield process


class Hotel:
    """Two relations and the view of their clashes, of one test, and what Spark reads and writes of them."""

    def __init__(self, spark: SparkSession, service: ServerProcess, lj: livejoin.Client, name: str, folder: Path, **options: Any) -> None:
        self.spark, self.service, self.lj, self.folder = spark, service, lj, folder
        self.bookings = lj.relation(f"{name}_b").create(COLUMNS, "id", STAY)
        self.jobs = lj.relation(f"{name}_m").create(COLUMNS, "id", STAY)
        self.view = lj.view(f"{name}_v", SQL.format(self.bookings.name, self.jobs.name), **options)
        self.found: Counter[Pair] = Counter()  # by the query, batch by batch
        self.batches: list[int] = []  # how many rows of changes each had
        self.failing = False

    def book(self, *numbers: int) -> None:
        self.bookings.upsert([{"id": number, "room": "A", "s": 0, "e": 10} for number in numbers])

    def work(self, *numbers: int) -> None:
        self.jobs.upsert([{"id": number, "room": "A", "s": 5, "e": None} for number in numbers])

    @property
    def clashes(self) -> Counter[Pair]:
        return Counter((row["booking"], row["job"]) for row in self.view.rows())

    def batch(self, **options: Any) -> DataFrame:
        reader = self.spark.read.format("livejoin").option("url", self.service.url).option("view", self.view.name)
        return reader.options(**options).load()

    def follow(self, **options: Any) -> None:
        """Read the changes that there are by a query on the checkpoint of this test, which takes them into account."""
        stream = self.spark.readStream.format("livejoin").option("url", self.service.url).option("view", self.view.name)
        changes = stream.option("changes", True).options(**options).load()

        def take(batch: DataFrame, epoch: int) -> None:
            rows = batch.collect()
            if self.failing:
                raise ValueError("the sink has failed")
            self.batches.append(len(rows))
            for row in rows:
                assert (row["b.id"], row["m.id"]) == (row["booking"], row["job"]) and row["_version"] > 0
                self.found[row["booking"], row["job"]] += 1 if row["_op"] == "insert" else -1

        writer = changes.writeStream.foreachBatch(take).option("checkpointLocation", str(self.folder / "read"))
        writer.trigger(availableNow=True).start().awaitTermination(120)

    def write(self, url: str | None = None, **options: Any) -> None:
        """Write the files of the folder `in`, one a batch, into the bookings."""
        files = self.spark.readStream.schema("_op STRING, id LONG, room STRING, s LONG, e LONG").option("maxFilesPerTrigger", 1)
        writer = files.json(str(self.folder / "in")).writeStream.format("livejoin").option("url", url or self.service.url)
        writer = writer.option("relation", self.bookings.name).option("checkpointLocation", str(self.folder / "write"))
        writer.options(**{"source": self.bookings.name} | options).trigger(availableNow=True).start().awaitTermination(120)

    def put(self, name: str, *numbers: int, op: str = "insert", room: str = '"A"') -> None:
        """A file of bookings; an insert of one that is there would be refused."""
        (self.folder / "in").mkdir(exist_ok=True)
        lines = [f'{{"_op": "{op}", "id": {number}, "room": {room}, "s": 0, "e": 10}}\n' for number in numbers]
        (self.folder / "in" / f"{name}.json").write_text("".join(lines))

    @property
    def booked(self) -> list[int]:
        return sorted(row["id"] for row in self.bookings.rows())


Made = Callable[..., Hotel]


@pytest.fixture
def hotel(spark: SparkSession, service: ServerProcess, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    """`hotel(**options of the view)`."""
    with livejoin.connect(service.url, patience=60) as lj:
        name = request.node.name.removeprefix("test_")[:50].split("[")[0]
        yield lambda **options: Hotel(spark, service, lj, name, tmp_path, **options)


def failed(error: pytest.ExceptionInfo[Any]) -> str:
    return str(error.value)


# batch


def test_rows_are_read_in_parts_at_one_version(hotel: Made) -> None:
    """By a frame that is read twice while the view changes, and by one that names the version."""
    h = hotel()
    h.book(*range(40))
    h.work(1, 2)
    frame = h.batch(parts=5)
    assert frame.dtypes == [("booking", "bigint"), ("job", "bigint")]
    assert frame.rdd.getNumPartitions() == 5
    before = h.clashes
    assert sum(before.values()) == 80 and Counter(map(tuple, frame.collect())) == before
    h.bookings.delete([{"id": 3}])
    h.work(9)
    again = Counter(map(tuple, frame.collect()))
    assert again in (before, h.clashes), "one version or another, never a mixture"
    reading = h.view.begin_reading(1)
    h.bookings.truncate()
    assert sum(Counter(map(tuple, h.batch(version=reading["version"]).collect())).values()) == 117
    assert h.batch().count() == 0
    h.view.end_reading(reading["id"])
    with pytest.raises(PySparkException) as error:
        h.batch(version=1).collect()
    assert "load the DataFrame again" in failed(error)


def test_reads_that_are_done_with_make_room_for_others(spark: SparkSession, tmp_path: Path) -> None:
    """Each takes a cursor for a part, and Spark tells nobody when it is done with them."""
    with ServerProcess(tmp_path / "data", arguments=["--max-client-cursors", "10"]) as process, livejoin.connect(process.url) as lj:
        lj.relation("w").create({"id": "int64"}, "id").upsert([{"id": number} for number in range(100)])
        lj.view("w_v", "SELECT id FROM w")
        frames = [spark.read.format("livejoin").options(url=process.url, view="w_v").load() for _ in range(3)]
        assert [frame.count() for frame in frames] == [100] * 3


def test_all_types(spark: SparkSession, service: ServerProcess) -> None:
    """Out and in again: what is written by Spark is what it has read."""
    kinds = ["int64", "float64", "timestamp", "date", "string", "bool", "bytes", "uuid", "json"]
    columns: dict[str, Any] = {kind: {"type": kind, "nullable": True} for kind in kinds}
    columns["decimal"] = {"type": "decimal", "precision": 12, "scale": 2, "nullable": True}
    columns["id"] = "int64"
    with livejoin.connect(service.url) as lj:
        one, other = lj.relation("types").create(columns, "id"), lj.relation("types_again").create(columns, "id")
        row = {
            "id": 1, "int64": -(2**63), "float64": 0.1, "timestamp": "2026-03-29T01:30:00.123456Z", "date": "1969-12-31", "string": "é",
            "bool": True, "bytes": "AP8=", "uuid": "0f8fad5b-d9cb-469f-a165-70867728950e", "json": '{"a": 1}', "decimal": "-1234567890.12",
        }  # fmt: skip
        one.upsert([row, {"id": 2}])
        lj.view("types_v", "SELECT * FROM types")
        frame = spark.read.format("livejoin").options(url=service.url, view="types_v").load()
        renamed = frame.select(*[frame[f"`{name}`"].alias(name.rpartition(".")[2]) for name in frame.columns])
        assert dict(renamed.dtypes)["decimal"] == "decimal(12,2)" and dict(renamed.dtypes)["timestamp"] == "timestamp"
        renamed.write.format("livejoin").options(url=service.url, relation="types_again").mode("append").save()
        written, read = (sorted(relation.rows(), key=lambda row: row["id"]) for relation in (other, one))
        assert written == read and len(written) == 2


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
    with pytest.raises(PySparkException) as error:
        writer.mode("overwrite").save()
    assert "livejoin load --replace" in failed(error)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vue": "x"}, "unknown option 'vue'"),
        ({}, "the option 'view' is required"),
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


# streams that are read


def test_changes_are_read_over_restarts_of_both(hotel: Made) -> None:
    """The first rows, then every change once: the query and the service are started again between batches."""
    h = hotel()
    h.book(1, 2, 3)
    h.work(1)
    h.follow(snapshot=True)
    assert h.found == h.clashes and sum(h.found.values()) == 3
    h.work(2)
    h.bookings.delete([{"id": 1}])
    h.follow(snapshot=True)
    assert +h.found == h.clashes
    h.work(3)
    assert h.service.stop() == 0
    h.service.start()
    h.book(4)
    h.follow(snapshot=True, maxRows=1)
    assert +h.found == h.clashes and sum(h.found.values()) == 9
    assert h.batches == [3, 5, 2, 3], "a version is never divided"
    h.follow(snapshot=True)
    assert h.batches == [3, 5, 2, 3], "nothing new, no batch"


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_first_batch_that_failed_is_read_again_as_it_was(hotel: Made, snapshot: bool) -> None:
    """Though by then Spark asks for a new beginning, and the view is another one."""
    h = hotel()
    h.book(1)
    h.jobs.truncate()
    if snapshot:
        h.work(1, 2)
    before = h.clashes
    h.failing = True
    with pytest.raises(StreamingQueryException):
        h.follow(snapshot=snapshot)
    h.failing = False
    h.work(3)
    h.follow(snapshot=snapshot)
    assert h.batches == [sum(before.values()), 1] and +h.found == h.clashes


def test_a_first_batch_whose_version_is_gone_needs_a_new_checkpoint(hotel: Made) -> None:
    """More kept changes would not help: it is rows that are gone."""
    h = hotel()
    h.book(1)
    h.work(1)
    h.failing = True
    with pytest.raises(StreamingQueryException):
        h.follow(snapshot=True)
    h.failing = False
    h.work(2)
    assert h.service.stop() == 0
    h.service.start()
    with pytest.raises(StreamingQueryException) as error:
        h.follow(snapshot=True)
    assert "the version of the first batch" in failed(error) and "retain_rows" not in failed(error)


def test_changes_that_are_no_longer_kept_end_the_query(hotel: Made) -> None:
    h = hotel(changes={"retain_rows": 5})
    h.book(1)
    h.work(1)
    h.follow(snapshot=True)
    for number in range(2, 9):
        h.work(number)
        h.bookings.truncate()
        h.book(1)
    with pytest.raises(StreamingQueryException) as error:
        h.follow(snapshot=True)
    assert "no longer kept" in failed(error) and "start it with a new checkpoint" in failed(error) and "retain_rows" in failed(error)


def test_a_stream_says_that_it_has_changes(spark: SparkSession, service: ServerProcess, tmp_path: Path) -> None:
    with livejoin.connect(service.url) as lj:
        lj.relation("y_of").create({"id": "int64"}, "id")
        lj.view("y", "SELECT id FROM y_of")
    stream = spark.readStream.format("livejoin").options(url=service.url, view="y").load()
    with pytest.raises(PySparkException) as error:
        query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination(60)
    assert "the option 'changes'" in failed(error)


def test_a_batch_of_changes_is_asked_for_in_pieces(hotel: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whole versions, up to its end and not beyond, however few rows a piece may have."""
    h = hotel()
    h.work(1)
    known = ("view", "changes", "maxRows", "snapshot")
    options = Options({"url": h.service.url, "view": h.view.name, "changes": "true"}, "for reading", known)
    reader = StreamReader(options, schema_of(options))
    start = reader.initialOffset()
    for number in range(6):
        h.book(*range(3 * number, 3 * number + 3))
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    h.bookings.truncate()
    (stretch,) = reader.partitions(start, end)
    found = []
    for most in (1, 7, 100_000):
        monkeypatch.setattr(readers, "_AT_ONCE", most)
        batches = list(reader.read(cast(ChangesPartition, stretch)))
        found.append([row for batch in batches for row in batch.select(["_op", "_version", "b.id"]).to_pylist()])
        assert len(batches) >= {1: 6, 7: 3, 100_000: 1}[most]
    assert found[0] == found[1] == found[2] and sorted(row["b.id"] for row in found[0]) == list(range(18))
    assert {row["_op"] for row in found[0]} == {"insert"}


# streams that are written


def test_each_batch_is_written_once(hotel: Made) -> None:
    """Batches that are run again: Spark has lost what it knew of their end."""
    h = hotel()
    h.put("1", 1, 2, 3)
    h.write()
    h.put("2", 4)
    h.put("3", 1, op="delete")
    h.write()
    assert h.booked == [2, 3, 4]
    (source,) = [one for one in h.lj.sources() if one["name"] == h.bookings.name]
    last = h.folder / "write" / "commits" / "2"
    assert (source["epoch"], last.exists()) == (2, True)
    for path in (last, last.with_name(".2.crc")):
        path.unlink(missing_ok=True)
    h.put("4", 5)
    h.write()
    assert h.booked == [2, 3, 4, 5]


@pytest.mark.parametrize("end", ["the answer is lost", "the commit is killed"])
def test_nobody_knows_whether_a_batch_was_applied(hotel: Made, end: str) -> None:
    h = hotel()
    h.bookings.truncate()
    for one in h.lj.sources():
        h.lj.forget_source(one["name"])
    h.put("1", 1, 2)
    with Relay(h.service.port, kill=end == "the commit is killed") as relay:
        if relay.kill:
            with contextlib.suppress(StreamingQueryException):  # unless Spark had another worker in time
                h.write(relay.url)
        h.write(relay.url)
        assert relay.lost == 1 and relay.passed > 1
    assert h.booked == [1, 2]
    (source,) = [one for one in h.lj.sources() if one["name"] == h.bookings.name]
    assert source["epoch"] == 0 and source["run"]


def test_a_new_checkpoint_needs_another_run(hotel: Made) -> None:
    """Its batches have numbers that the service knows: they were passed over as duplicates, without a word."""
    h = hotel()
    for number in (1, 2):
        h.put(str(number), number, op="upsert")
        h.write(run="nightly", reset=True)
    shutil.rmtree(h.folder / "write")
    h.put("3", 3, op="upsert")
    with pytest.raises(StreamingQueryException) as error:
        h.write(run="nightly")
    assert "another value of the option 'run'" in failed(error) and h.booked == [1, 2]
    h.write(run="weekly", reset=True)
    assert h.booked == [1, 2, 3]


def test_a_new_checkpoint_whose_first_batch_is_the_last_that_is_known(hotel: Made) -> None:
    """It has other rows: they were passed over as a repetition, without a word."""
    h = hotel()
    h.put("1", 1, 2)
    h.write(run="nightly", reset=True)
    shutil.rmtree(h.folder / "write")
    shutil.rmtree(h.folder / "in")
    h.put("2", 3)
    with pytest.raises(StreamingQueryException) as error:
        h.write(run="nightly")
    assert "this batch with 2 rows; now it has 1" in failed(error) and "another value of the option 'run'" in failed(error)
    h.write(run="weekly", reset=True)
    assert h.booked == [1, 2, 3]


def test_a_service_that_was_restored_lacks_batches_and_versions(hotel: Made) -> None:
    """Its queries fail, in place of going on without what is missing."""
    h = hotel()
    h.work(1)
    h.follow(snapshot=True)
    h.put("1", 1)
    h.write()
    copy = h.folder / "copy"
    assert h.service.stop() == 0
    shutil.copytree(h.service.data, copy)
    h.service.start()
    for number in (2, 3):
        h.put(str(number), number)
        h.write()
    h.follow(snapshot=True)
    assert h.service.stop() == 0
    shutil.rmtree(h.service.data)
    copy.rename(h.service.data)
    h.service.start()
    h.put("4", 4)
    with pytest.raises(StreamingQueryException) as error:
        h.write()
    assert "batch 3: the service has batch 0 as the last of this run" in failed(error) and "older backup" in failed(error)
    with pytest.raises(StreamingQueryException) as error:
        h.follow(snapshot=True)
    assert "start it with a new checkpoint" in failed(error)
    h.lj.forget_source(h.bookings.name)
    with pytest.raises(StreamingQueryException) as error:
        h.write()
    assert "the service has no batch of this source" in failed(error)
    h.write(reset=True)
    assert h.booked == [1, 4]


def test_empty_batches_are_known_to_the_service(hotel: Made) -> None:
    h = hotel()
    h.put("1", 1)
    h.put("2")
    h.put("3", 3)
    h.write()
    (source,) = [one for one in h.lj.sources() if one["name"] == h.bookings.name]
    assert h.booked == [1, 3] and source["epoch"] == 2


def test_empty_batches_before_all_others_are_known_to_the_service(hotel: Made) -> None:
    """Of a new source, it does not record an empty batch that names no relation: the next one seemed to lack one before it."""
    h = hotel()
    h.put("1")
    h.put("2")
    h.put("3", 3)
    h.write()
    (source,) = [one for one in h.lj.sources() if one["name"] == h.bookings.name]
    assert h.booked == [3] and source["epoch"] == 2 and source["relations"] == [h.bookings.name]


def test_complete_mode_is_refused_with_a_mode_that_spark_takes(hotel: Made, spark: SparkSession) -> None:
    """Seen: it named the update mode, which Spark refuses."""
    h = hotel()
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    for mode, said in (("complete", 'use outputMode("append")'), ("update", "Update")):
        with pytest.raises((PySparkException, StreamingQueryException)) as error:
            writer = counts.writeStream.format("livejoin").options(url=h.service.url, relation=h.bookings.name, source="counts")
            writer.option("checkpointLocation", str(h.folder / mode)).outputMode(mode).start().awaitTermination(60)
        assert said in failed(error)


def test_another_query_has_to_say_that_it_takes_over(hotel: Made) -> None:
    h = hotel()
    h.put("1", 1)
    h.write()
    shutil.rmtree(h.folder / "write")
    shutil.rmtree(h.folder / "in")
    h.put("2", 2)
    with pytest.raises(StreamingQueryException) as error:
        h.write()
    assert "the option 'reset'" in failed(error)
    h.write(reset=True)
    assert h.booked == [1, 2]
    h.put("3", 3, room="null")
    with pytest.raises(StreamingQueryException) as error:
        h.write()
    assert "room of row 0" in failed(error)
    h.write(on_error="skip")
    assert h.booked == [1, 2]

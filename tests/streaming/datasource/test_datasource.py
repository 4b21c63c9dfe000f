"""`format("livejoin")` with a real Spark and a real service: streams."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import cast

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import livejoin
from livejoin.datasource import readers
from livejoin.datasource.options import Options
from livejoin.datasource.readers import ChangesPartition, StreamReader, schema_of
from tests.server_process import ServerProcess
from tests.streaming.datasource.relay import Relay
from tests.streaming.datasource.spark_hotel import Made, failed

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

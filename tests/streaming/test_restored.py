"""A service that was restored from an older backup: the job stops before its first post, and says how to lose nothing."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.failures import AFRESH
from streaming.kafka_broker import Broker
from streaming.spark import start_spark
from tests.end_to_end import talk
from tests.forked import finished
from tests.server_process import ServerProcess
from tests.streaming.stream_job import LIMIT, Topics
from tests.streaming.test_job_failures import Stage


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_spark("tests")
    yield session
    session.stop()


def livejoin(*arguments: str | Path) -> None:
    status, emitted = finished([str(argument) for argument in arguments])
    assert status == 0, emitted


def delete_above(folder: Path, last: int) -> None:
    for path in folder.iterdir():
        if path.name.strip(".").split(".")[0].isdigit() and int(path.name.strip(".").split(".")[0]) > last:
            path.unlink()


def test_a_service_restored_from_an_older_backup(tmp_path: Path, broker: Broker, spark: SparkSession) -> None:
    """Batches of one record each, the first two without a change: their epochs count too."""
    with ServerProcess(tmp_path / "data") as server:
        stage = Stage(tmp_path, server, broker, spark)
        topic = stage.topic()
        Topics(broker).put(topic, [(b"{}", None)])
        stage.run(topic)
        for number in (1, 2):
            stage.put(topic, number)
            stage.run(topic)
        livejoin("backup", tmp_path / "backup", "--url", server.url)
        stage.put(topic, 3)
        stage.run(topic)
        Topics(broker).put(topic, [(b"{}", None)])
        stage.run(topic)
        assert stage.ids() == [1, 2, 3]
        (source,) = talk.ok(stage.client.get("/v1/sources"))["sources"]
        assert source["epoch"] == 4
        assert server.stop() == 0
    livejoin("restore", tmp_path / "backup", tmp_path / "restored")
    with ServerProcess(tmp_path / "restored") as server:
        stage.server = server
        stage.put(topic, 4)
        said = stage.fails(topic)
        assert "is at batch 4, but the service has applied only batch 2" in said and "restored from an older backup" in said
        assert stage.ids() == [1, 2], "nothing was posted"
        above = re.search(r"numbers above (\d+) in (\S+)/offsets and (\S+)/commits", said)
        assert above is not None
        for folder in ("offsets", "commits"):
            delete_above(Path(above[2]) / folder, int(above[1]))
        stage.run(topic)
        assert stage.ids() == [1, 2, 3, 4], "what was told to do loses nothing"


def test_restored_under_a_running_job(tmp_path: Path, broker: Broker, spark: SparkSession) -> None:
    """From a backup that is older than the stream, by a service on the same port."""
    with ServerProcess(tmp_path / "data") as server:
        stage = Stage(tmp_path, server, broker, spark)
        livejoin("backup", tmp_path / "backup", "--url", server.url)
        topic = stage.topic(1)
        said: list[str] = []
        stop = threading.Event()
        job = threading.Thread(target=lambda: said.append(stage.fails(topic, stop=stop, trigger="0 seconds")))
        job.start()
        try:
            while stage.done() < 1 and job.is_alive():
                job.join(0.05)
            assert server.stop() == 0
            livejoin("restore", tmp_path / "backup", tmp_path / "restored")
            with ServerProcess(tmp_path / "restored", port=server.port) as restored:
                stage.put(topic, 2)
                job.join(LIMIT)
                assert len(said) == 1 and "does not know this source" in said[0] and AFRESH in said[0]
                stage.server = restored
                assert stage.ids() == []
        finally:
            stop.set()
            job.join()

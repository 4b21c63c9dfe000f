"""The same file by spark-submit, with executors in processes of their own, where there is no Python."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

import streaming.cli
from streaming import spark
from streaming.jars import main as jars_command
from streaming.kafka_broker import Broker
from tests.end_to_end import talk
from tests.server_process import ROOT, ServerProcess
from tests.streaming.stream_job import StreamJob, Topics
from tests.streaming.test_job import STAYS, create, ids

LOGGING = Path(spark.__file__).with_name("log4j2.properties")
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # as `streaming.spark` starts its own


class SubmittedJob(StreamJob):
    """A StreamJob by spark-submit. `process` is the launcher, a JVM; the job is its child."""

    def __init__(self, folder: Path, server: ServerProcess, broker: Broker, topic: str, submit: Sequence[str], **stream: Any) -> None:
        super().__init__(folder, server.url, broker.address, [(topic, "stays")], **stream)
        self._submit = submit

    def start(self) -> SubmittedJob:
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-submit"), "--conf", f"spark.pyspark.driver.python={sys.executable}"]
        command += ["--driver-java-options", f"-Dlog4j2.configurationFile={LOGGING.as_uri()} {QUICK}"]
        command += ["--conf", f"spark.executor.extraJavaOptions={QUICK}", *self._submit]
        command += [str(streaming.cli.__file__), "--config", str(self.path)]
        self._ended = False
        environment = {**os.environ, "SPARK_HOME": str(home), "PYTHONPATH": str(ROOT)}
        output = subprocess.DEVNULL  # of Java alone: what Python says comes out of the launcher's standard output
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=output, text=True)
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        return self

    def _listen(self, process: subprocess.Popen[str]) -> None:
        process.stderr = process.stdout
        super()._listen(process)

    def driver(self) -> psutil.Process:
        """The job itself, in Python."""
        children: list[psutil.Process] = psutil.Process(self.process.pid).children()
        (driver,) = [child for child in children if child.name().startswith("python")]  # beside it the launcher's script, which has ended
        return driver


@pytest.fixture
def stays(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    talk.define(shared_server.client(), "stays", STAYS)
    yield shared_server
    talk.drop(shared_server.client(), relations=["stays"])


@pytest.mark.parametrize("twice", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_on_another_cluster(stays: ServerProcess, broker: Broker, topics: Topics, tmp_path: Path, capsys: Any, twice: bool) -> None:
    """The launcher ended under it; `twice`: then another job asked to end. Each record once."""
    assert jars_command(["--spark"]) == 0
    connector = ["--jars", capsys.readouterr().out.strip()]
    topics.make("submitted")
    topics.put("submitted", [create(number) for number in range(5)])
    cluster = ["--master", "local-cluster[1,1,512]", "--conf", "spark.executor.memory=512m", "--conf", "spark.pyspark.python=/nowhere"]
    with SubmittedJob(tmp_path, stays, broker, "submitted", [*cluster, *connector]) as job:
        job.wait_for_records(5)
        job.process.terminate()
        assert job.end() == 143
    assert ids(stays) == list(range(5))
    if not twice:
        return
    topics.put("submitted", [create(number) for number in range(5, 8)])
    with SubmittedJob(tmp_path, stays, broker, "submitted", ["--master", "local[1]", *connector]) as job:
        job.wait_for("batch")
        job.driver().terminate()
        assert job.end() == 0
        assert "finishing the current batch" in job.said
    assert ids(stays) == list(range(8))


@pytest.mark.soak
def test_without_what_it_needs(stays: ServerProcess, broker: Broker, topics: Topics, tmp_path: Path) -> None:
    """No connector; a master that Spark does not take."""
    topics.make("unconnected")
    with SubmittedJob(tmp_path, stays, broker, "unconnected", ["--master", "local[1]"]) as job:
        assert job.end() == 1
    assert "python -m streaming.jars --spark" in job.said
    with SubmittedJob(tmp_path, stays, broker, "unconnected", ["--master", "local-cluster[1,1,1]"]) as job:
        assert job.end() == 1
    assert "Spark did not start" in job.said and "Traceback" not in job.said

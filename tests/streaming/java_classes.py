"""Java's classes, read and verified once for all tests, which is half of the processor time of each start of Spark and of the broker.

Java maps such an archive (CDS) in place of loading ten thousand classes. It ignores an archive of another Java or of other files, so the
archive affects only the time. The archives are kept in the virtual environment, 200 MB.

    python -m tests.streaming.java_classes FOLDER     makes them
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext

from streaming import kafka_broker
from streaming.jars import jars
from streaming.java import find_java
from streaming.kafka_broker import Broker
from streaming.spark import start_spark
from tests.server_process import ROOT
from tests.streaming.stream_job import Topics

_SILENT = "-Xlog:cds*=off"


def use(patch: pytest.MonkeyPatch) -> None:
    """Make Spark and the broker map the archives from now on; the archives are created if they do not exist, which takes 50 s of processor
    time, once. Other processes of the same run wait meanwhile, because each start without the archives takes twice as long."""
    folder = _folder()
    if not folder.exists():
        _make_once(folder)
    if folder.exists():
        _set(patch, "-XX:SharedArchiveFile", folder)


def _folder() -> Path:
    """Its name depends on everything that the archives are made from."""
    files = [find_java().resolve(), *Path(pyspark.__file__).parent.glob("jars/*"), *jars("spark"), *jars("broker")]
    emitted = "\n".join(f"{path} {path.stat().st_mtime_ns}" for path in sorted(files))
    return Path(sys.prefix) / ".cache" / "livejoin" / f"java-{hashlib.sha256(emitted.encode()).hexdigest()[:16]}"


def _make_once(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return
        with tempfile.TemporaryDirectory(prefix="java-", dir=folder.parent) as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            command = [sys.executable, "-m", "tests.streaming.java_classes", str(made)]
            if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode == 0:
                made.rename(folder)


def _set(patch: pytest.MonkeyPatch, option: str, folder: Path) -> None:
    # Not by Java's own variables, whose use it tells on standard error.
    spark = [os.environ.get("SPARK_SUBMIT_OPTS", ""), f"{option}={folder / 'spark.jsa'}", _SILENT]
    patch.setenv("SPARK_SUBMIT_OPTS", " ".join(spark))
    patch.setattr(kafka_broker, "_JVM", [*kafka_broker._JVM, f"{option}={folder / 'broker.jsa'}", _SILENT])


def _make(folder: Path) -> None:
    """Run Spark and a broker through the operations that tests need, and let them dump their classes at exit."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        with Broker(work / "kafka") as broker:
            pass  # the folder is formatted by a Java of its own, which would write down its own classes
        _set(patch, "-XX:ArchiveClassesAtExit", folder)
        patch.setattr(kafka_broker, "_STOP_SECONDS", 300)
        with broker:
            topics = Topics(broker)
            topics.make("classes")
            topics.put("classes", [(None, {"number": number}) for number in range(10)])
            assert len(topics.read("classes", 10)) == 10
            _stream(broker, work / "checkpoint")
    assert {path.name for path in folder.iterdir()} == {"spark.jsa", "broker.jsa"}


def _stream(broker: Broker, checkpoint: Path) -> None:
    spark = start_spark("classes")
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address).option("startingOffsets", "earliest")
    frame = source.option("subscribe", "classes").load()
    writer = frame.writeStream.foreachBatch(lambda batch, number: batch.toArrow()).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    gateway = SparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()  # Spark's process ends by this
    gateway.proc.wait(300)


if __name__ == "__main__":
    _make(Path(sys.argv[1]))

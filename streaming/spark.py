"""A Spark session: our own, small enough to run next to the service on one machine, or that of spark-submit.

Executors run none of our code: Kafka's connector reads there, and `toArrow` collects a micro-batch on the driver. So they need
the connector's archives, which `--jars` distributes, but neither Python nor livejoin.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.errors import StreamError
from streaming.jars import jars
from streaming.java import find_java

_LOGGING = Path(__file__).with_name("log4j2.properties")
_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_JVM = (
    f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:+UseSerialGC "
    # Only the quick compiler: half the CPU of a start and of the first million records, and after them no more than with both.
    "-XX:TieredStopAtLevel=1"
)
_LIGHT = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    # A batch is in the heap twice while it goes to Python: above this limit Spark fails the batch cleanly, before the heap overflows.
    "spark.driver.maxResultSize": "400m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": _JVM,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # A local checkpoint by plain calls: Spark's own way runs chmod for each of the four files that it writes a batch, 80 ms in all.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop sets the modes of folders itself
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def prepare_own() -> dict[str, str]:
    """What a Spark of our own wants: the environment, set, and its settings. Raises StreamError: no Java, no connector."""
    os.environ["JAVA_HOME"] = str(find_java().resolve().parent.parent)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Not as spark.jars, which copies them to a temporary folder that a kill leaves behind.
    return {**_LIGHT, "spark.driver.extraClassPath": os.pathsep.join(map(str, jars("spark")))}


def start_spark(name: str) -> SparkSession:
    """Starts Spark, in 3 to 10 s. Raises StreamError: no Java, no connector, no start."""
    settings = {"spark.app.name": f"livejoin {name}", "spark.sql.streaming.stopTimeout": "2s"}
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        settings |= prepare_own()
    conf = SparkConf()
    for key, value in settings.items():
        conf.setIfMissing(key, value)
    try:
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise StreamError(f"Spark did not start: {getattr(error, 'java_exception', error)}") from error
    if submitted and not spark._jvm.org.apache.spark.util.Utils.classIsLoadable(_CONNECTOR):
        spark.stop()
        raise StreamError('the Kafka connector for Spark is missing: add --jars "$(python -m streaming.jars --spark)" to spark-submit')
    return spark

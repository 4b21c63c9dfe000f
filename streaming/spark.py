"""A Spark session that is light enough to live beside the service on one machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.errors import StreamError
from streaming.jars import jars
from streaming.java import find_java

_LOGGING = Path(__file__).with_name("log4j2.properties")


def start_spark(name: str) -> SparkSession:
    """Starts Spark, in 3 to 10 s. What spark-submit has set stays as it is. Raises StreamError: no Java, no jars, no start."""
    java, connector = find_java(), jars("spark")
    os.environ["JAVA_HOME"] = str(java.resolve().parent.parent)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf()
    light = {
        "spark.app.name": f"livejoin {name}",
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:+UseSerialGC",
        "spark.jars": ",".join(map(str, connector)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.stopTimeout": "2s",
    }
    for key, value in light.items():
        conf.setIfMissing(key, value)
    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, OSError) as error:
        raise StreamError(f"Spark did not start: {error}") from error

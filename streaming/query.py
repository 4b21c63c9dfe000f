"""The road in, run: Spark with the one query, started again as often as Kafka goes away, until the job is asked to end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streaming.config import Config, Stream
from streaming.errors import StreamError
from streaming.failures import explain, is_away, whole_text
from streaming.kafka_client import KafkaAway, wait_for_topics
from streaming.log import say
from streaming.metrics import Metrics
from streaming.patience import Stopped
from streaming.pipeline import Pipeline, start_query
from streaming.sink import ServiceClient
from streaming.spark import start_spark

_LOOK_SECONDS = 0.2
_COMMIT_SECONDS = 5.0


def run_stream(config: Config, stream: Stream, stop: threading.Event, metrics: Metrics, on_spark: Callable[[], None]) -> None:
    """Returns when the job was asked to end or, with trigger "available-now", is done; raises StreamError, Stopped.

    `on_spark` is called when Spark has started, which takes signals into its own hands.
    """
    topics = [topic.name for topic in config.topics] + ([stream.dead_letters] if stream.dead_letters else [])
    service = ServiceClient(config.service.url, stop, metrics)
    wait_for_topics(config.kafka, topics, stop, metrics)
    definitions = {topic.relation: service.definition(topic.relation) for topic in config.topics}
    spark = start_spark(stream.name)
    on_spark()
    try:
        while not stop.is_set():
            pipeline = Pipeline(config, stream, definitions, service, stop, metrics)
            if _run_query(start_query(spark, config, stream, pipeline), pipeline, stop):
                return
            wait_for_topics(config.kafka, topics, stop, metrics)
    except (Py4JError, OSError) as error:
        if stop.is_set():  # whoever ends us may end all our processes
            return
        stop.set()  # a batch that waits for the service must not keep us
        raise StreamError(f"Spark ended by itself ({error}); start again: what was not applied is read again") from error
    finally:
        service.close()
        _stop_spark(spark)


def _run_query(query: StreamingQuery, pipeline: Pipeline, stop: threading.Event) -> bool:
    """Runs a query to its end: True when the job is done, False when Kafka was away and the query is to be started again."""
    while query.isActive:
        if stop.wait(_LOOK_SECONDS):
            _end_query(query, pipeline)
            break
    failure = pipeline.failure or query.exception()
    if failure is None:
        return True
    if isinstance(failure, StreamError | Stopped):
        raise failure
    if isinstance(failure, KafkaAway) or is_away(whole_text(failure)):
        say("Kafka went away; the query starts again when it is back")
        return False
    raise StreamError(explain(whole_text(failure)))


def _end_query(query: StreamingQuery, pipeline: Pipeline) -> None:
    """Lets the batch at hand finish and be committed, and ends the query. A next batch ends it too: the pipeline refuses it."""
    patience = _COMMIT_SECONDS
    while query.isActive and (pipeline.busy or query.status["isTriggerActive"]) and patience > 0:
        time.sleep(_LOOK_SECONDS)
        # Outside of a batch Spark commits, which is quick, or waits for Kafka, which may be away for ever.
        patience = _COMMIT_SECONDS if pipeline.busy else patience - _LOOK_SECONDS
    with contextlib.suppress(PySparkException):  # still at Kafka after the session's stopTimeout: it has no batch, so it may be cut off
        query.stop()


def _stop_spark(spark: SparkSession) -> None:
    """What is done is committed: trouble while Spark ends changes nothing."""
    with contextlib.suppress(Py4JError, PySparkException, OSError):
        spark.stop()

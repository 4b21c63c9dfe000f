"""Inbound: runs Spark with one query, restarted whenever Kafka has been unavailable, until the job is told to stop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streaming.config import Config, Stream
from streaming.connection import Service
from streaming.errors import StreamError
from streaming.failures import explain, is_away, whole_text
from streaming.kafka_client import FoundTopic, KafkaUnavailable, admin_of, wait_for_topics
from streaming.metrics import Metrics
from streaming.patience import Patience, Stopped
from streaming.pipeline.checkpoint_files import CheckpointFiles, SparkFiles, files_of
from streaming.pipeline.identity import Claim, Identity, claim, held
from streaming.pipeline.pipeline import Job, Pipeline, is_known, start_query
from streaming.pipeline.topic_watch import TopicWatch

Ask = Callable[[Service], object]  # raises StreamError

_LOOK_SECONDS = 0.2
_COMMIT_SECONDS = 5.0


def run_stream(
    config: Config,
    stream: Stream,
    spark: AbstractContextManager[SparkSession],
    stop: threading.Event,
    metrics: Metrics,
    accepted: Callable[[Ask], None] = lambda ask: None,
) -> None:
    """Returns when the job was told to stop or, with trigger "available-now", is done; raises StreamError, Stopped.

    `spark` is entered after everything it needs has been found. `accepted` is called once the service has the source from this checkpoint,
    and perhaps again, with what asks whether that is still so.
    """
    local = files_of(stream.checkpoint)
    with contextlib.closing(Service(config.service.url, stop, metrics, config.service.ca)) as service, held(local):
        found = _wait_for_topics(config, stream, stop, metrics)
        topics = {topic.name: found[topic.name] for topic in config.topics}
        definitions = service.definitions({topic.relation for topic in config.topics})
        ids = {name: topic.id for name, topic in topics.items()}
        identity = Identity(stream.name, ids, {name: definition.to_json() for name, definition in definitions.items()})

        def accept(claimed: Claim) -> None:
            accepted(lambda service: is_known(service, stream, claimed))

        def claimed_in(files: CheckpointFiles) -> Claim:
            claimed = claim(files, identity)
            if is_known(service, stream, claimed):
                accept(claimed)
            return claimed

        claimed = claimed_in(local) if local else None  # before Spark is started, if it can be
        try:
            with spark as session:
                claimed = claimed or claimed_in(SparkFiles(session, stream.checkpoint))
                watch = TopicWatch(admin_of(config.kafka), topics, claimed.reached, metrics)
                _run_queries(Job(config, stream, definitions, service, claimed, watch, stop, metrics, accept), session)
        except (Py4JError, ConnectionError) as error:
            if stop.is_set():  # what stops us may stop all our processes
                return
            stop.set()  # a batch that waits for the service must not keep us
            said = str(error).partition("\n")[0]  # a whole stack trace may follow
            raise StreamError(
                f"Spark stopped unexpectedly ({said}); start the job again. If this happens at the same batch each "
                "time, the batch is too large: use spark-submit with more memory, and lower max_offsets in [stream] for later batches"
            ) from error


def _wait_for_topics(config: Config, stream: Stream, stop: threading.Event, metrics: Metrics) -> dict[str, FoundTopic]:
    dead_letters = [stream.dead_letters] if stream.dead_letters else []
    return wait_for_topics(config.kafka, [topic.name for topic in config.topics] + dead_letters, stop, metrics)


def _run_queries(job: Job, spark: SparkSession) -> None:
    """One query after another on the same checkpoint, whenever Kafka has been unavailable."""
    patience = Patience(job.stop, job.metrics, "kafka")
    pipeline = Pipeline(job)
    while not job.stop.is_set():
        query = start_query(spark, job, pipeline)
        with job.watch:
            is_done = _run_query(query, pipeline, job)
        if is_done:
            return
        if pipeline.done:
            patience = Patience(job.stop, job.metrics, "kafka")
        patience.wait("Kafka is unavailable; the query is restarted when it is back")
        _wait_for_topics(job.config, job.stream, job.stop, job.metrics)


def _run_query(query: StreamingQuery, pipeline: Pipeline, job: Job) -> bool:
    """Runs a query to its end: True when the job is done, False when Kafka was unavailable and the query must be restarted."""
    while query.isActive:
        if job.watch.failure:
            job.stop.set()  # a batch that waits for the service must not keep us
        if job.stop.wait(_LOOK_SECONDS):
            _end_query(query, pipeline)
            break
        job.watch.note(query.lastProgress)
    job.watch.last_look()
    failure = pipeline.failure or query.exception()
    if isinstance(failure, StreamError | Stopped):
        raise failure
    if failure is None:
        return True
    if isinstance(failure, KafkaUnavailable) or is_away(whole_text(failure)):
        return False
    raise StreamError(explain(whole_text(failure), job.stream.checkpoint))


def _end_query(query: StreamingQuery, pipeline: Pipeline) -> None:
    """Lets the current batch finish and be committed, and ends the query. A further batch ends it too: the pipeline refuses it."""
    patience = _COMMIT_SECONDS
    while query.isActive and (pipeline.busy or query.status["isTriggerActive"]) and patience > 0:
        time.sleep(_LOOK_SECONDS)
        # Outside of a batch Spark commits, which is quick, or waits for Kafka, which may be away for ever.
        patience = _COMMIT_SECONDS if pipeline.busy else patience - _LOOK_SECONDS
    with contextlib.suppress(PySparkException):  # still at Kafka after the session's stopTimeout: it has no batch, so it may be cut off
        query.stop()

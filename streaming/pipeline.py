"""The road in: Kafka topics → Spark Structured Streaming → the service. One query over all topics.

    Kafka ──► micro-batch ──► Arrow ──► decode, judge ──► dead letters ──► POST /v1/changes ──► Spark commits the batch

Exactly once in effect: `source` is the stream's name, `run` the query's id (it lives in the checkpoint), `epoch` the batch's
id. A batch that was killed runs again with the same offsets and the same id, and the service passes it over when it
has it already. One batch is one body, so one version: a version never splits a batch.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from service.wire.batch import Batch, batch_to_arrow
from service.wire.schema import RelationDefinition
from streaming.config import Config, Stream
from streaming.dead_letters import DeadLetters
from streaming.decode import BadRecord, KeyPlaces, decode_topic, decoder_for
from streaming.errors import StreamError
from streaming.failures import AFRESH
from streaming.kafka_client import KafkaAway
from streaming.log import say
from streaming.metrics import BatchReport, Metrics
from streaming.patience import Stopped
from streaming.sink import ServiceClient
from streaming.topic_watch import TopicWatch


class Job(NamedTuple):
    """What the batches of a job share, over all its queries. definitions: by relation."""

    config: Config
    stream: Stream
    definitions: Mapping[str, RelationDefinition]
    service: ServiceClient
    watch: TopicWatch
    stop: threading.Event
    metrics: Metrics


class Pipeline:
    """What is done with each micro-batch of one query. Nothing is kept from one batch to the next.

    `failure` is what it raised (Spark hands on only its text), `busy` whether it is at a batch, `done` how many it did.
    """

    def __init__(self, job: Job) -> None:
        self.failure: BaseException | None = None
        self.busy = False
        self.done = 0
        self._job = job
        self._decoders = {topic.name: decoder_for(topic, job.definitions[topic.relation]) for topic in job.config.topics}
        dead_letters = job.stream.dead_letters
        self._dead_letters = DeadLetters(job.config.kafka, dead_letters, job.stop) if dead_letters else None
        self._places = {topic.name: KeyPlaces() for topic in job.config.topics}
        self._warned: set[str] = set()
        self._reset = job.stream.reset  # with the first batch only: another job that takes the name over later is not robbed of it

    def process(self, frame: DataFrame, epoch: int) -> None:
        """foreachBatch's function."""
        self.busy = True
        try:
            if self._job.stop.is_set():
                raise Stopped
            run = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            report = self._process(frame, epoch, run or self._job.stream.checkpoint)
            self._job.metrics.batch_done(report)
            self.done += 1
            behind = sum(self._job.watch.behind().values())
            say(f"batch {epoch}: {report}" + (f", {behind} behind" if behind else ""))
        except BaseException as failure:
            self.failure = failure
            raise
        finally:
            self.busy = False

    def _process(self, frame: DataFrame, epoch: int, run: str) -> BatchReport:
        report = BatchReport()
        with report.part("fetch"):
            records: pa.Table = frame.select("topic", "partition", "offset", "key", "value").toArrow()
            self._check_topics()
        by_topic = {topic: records.filter(pc.equal(records["topic"], topic)) for topic in self._decoders}
        batch = Batch(changes=[], sent=0, ignored=0, errors=[], error_count=0)
        bad: list[BadRecord] = []
        with report.part("decode"):
            for topic, part in by_topic.items():
                if part.num_rows == 0:
                    continue
                self._warn_of_disorder(topic, part)
                decoded = decode_topic(self._decoders[topic], topic, part, self._job.stream.max_dead_letters)
                batch.changes += decoded.changes
                bad += decoded.bad
                report.records[topic] = part.num_rows
                report.changes[topic] = sum(len(changes.ops) for changes in decoded.changes)
                report.dead_letters[topic] = len(decoded.bad)
                report.passed_over[topic] = decoded.passed_over
        if bad:
            with report.part("dead_letters"):
                self._set_aside(bad)
        if report.changes.total():
            with report.part("post"):
                receipt = self._post(batch, epoch, run)
            report.version, report.ignored, report.duplicate = receipt["version"], receipt["ignored"], receipt["duplicate"]
        for topic, part in by_topic.items():
            self._job.watch.reached(topic, part)
        return report

    def _check_topics(self) -> None:
        """One request a batch, 3 ms: what was just read must not be another topic's of the same name."""
        try:
            self._job.watch.compare()
        except KafkaException as error:
            raise KafkaAway(error.args[0].str()) from error

    def _post(self, batch: Batch, epoch: int, run: str) -> dict[str, Any]:
        """The service's receipt. A relation that is no longer the one that its records were judged by ends the job."""
        try:
            receipt = self._job.service.post(batch_to_arrow(batch), self._job.stream.name, epoch, run, self._reset)
        except StreamError:
            self._compare_relations()
            raise
        self._reset = False
        self._compare_relations()
        return receipt

    def _compare_relations(self) -> None:
        """One request a batch, 2 ms: one that has gained a column takes what is posted, without the column."""
        for relation, now in self._job.service.definitions(self._job.definitions).items():
            if now.to_json() != self._job.definitions[relation].to_json():
                raise StreamError(f"the relation {relation} was registered anew with another definition while the job ran: {AFRESH}")

    def _warn_of_disorder(self, topic: str, records: pa.Table) -> None:
        if topic not in self._warned and self._places[topic].is_disordered(records):
            self._warned.add(topic)
            say(f"warning: a key of topic {topic} is in more than one partition, so Kafka gives its changes no order")

    def _set_aside(self, bad: list[BadRecord]) -> None:
        """Writes the dead letters, or stops the job before anything is posted."""
        first = bad[0]
        if self._dead_letters is None:
            raise StreamError(
                f"a bad record in topic {first.topic}, partition {first.partition}, offset {first.offset}: {first.error} "
                "(set dead_letters in [stream] to set such records aside and go on)"
            )
        if len(bad) > self._job.stream.max_dead_letters:
            reason, count = Counter(record.error for record in bad).most_common(1)[0]
            raise StreamError(
                f"more than {self._job.stream.max_dead_letters} bad records in one batch, as when the source's schema has changed; "
                f"the commonest reason, {count} times: {reason} "
                f"(first: topic {first.topic}, partition {first.partition}, offset {first.offset}); nothing of the batch was applied"
            )
        self._dead_letters.write(bad)


def start_query(spark: SparkSession, job: Job, pipeline: Pipeline) -> StreamingQuery:
    """Starts the one query over all topics on the stream's checkpoint."""
    config, stream = job.config, job.stream
    options = {
        "fetch.max.wait.ms": "10",  # else offset look-ups queue behind the consumer's long poll: half a second each
        **config.kafka.java,
        "bootstrap.servers": config.kafka.brokers,
        "isolation.level": "read_committed",
    }
    reader = spark.readStream.format("kafka").options(**{f"kafka.{key}": value for key, value in options.items()})
    frame = reader.options(
        subscribe=",".join(topic.name for topic in config.topics),
        startingOffsets=stream.start,
        maxOffsetsPerTrigger=str(stream.max_offsets),
        # Never false: a batch that ran again would come back smaller under the same id.
        failOnDataLoss="true",
    ).load()
    writer = frame.writeStream.foreachBatch(pipeline.process).option("checkpointLocation", stream.checkpoint)
    if stream.trigger == "available-now":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=stream.trigger).start()

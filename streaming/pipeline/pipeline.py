"""Inbound: Kafka topics → Spark Structured Streaming → the service. One query over all topics.

    Kafka ──► micro-batch ──► Arrow ──► decode, judge ──► dead letters ──► POST /v1/changes ──► Spark commits the batch

Exactly once in effect: `source` is the stream's name, `run` the query's id (it lives in the checkpoint), `epoch` the batch's
id. An interrupted batch runs again with the same offsets and the same id, and the service recognizes it as a duplicate if it
has it already. One batch is one body, hence one version: a version never splits a batch.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import livejoin
from livejoin.wire.batch import Batch, batch_to_arrow
from livejoin.wire.schema import RelationDefinition
from streaming.config import Config, Stream
from streaming.connection import AppliedBatch, Service, SourceTaken, TooLarge
from streaming.errors import StreamError
from streaming.failures import registered_anew, service_behind, too_large
from streaming.metrics import BatchReport, Metrics, Partition
from streaming.patience import Stopped
from streaming.pipeline.checkpoint import spark_address
from streaming.pipeline.columns import Columns
from streaming.pipeline.dead_letters import DeadLetters
from streaming.pipeline.decode import BadRecord, DecodedTopic, KeyPlaces, decode_topic, decoder_for, in_order
from streaming.pipeline.identity import Claim
from streaming.pipeline.topic_watch import TopicWatch

_WORST = 3  # partitions that the line of a batch names

log = logging.getLogger("livejoin.pipeline")


class Job(NamedTuple):
    """Shared by all batches and queries of a job. definitions: by relation; accepted: called whenever the service has taken a batch."""

    config: Config
    stream: Stream
    definitions: Mapping[str, RelationDefinition]
    service: Service
    checkpoint: Claim
    watch: TopicWatch
    stop: threading.Event
    metrics: Metrics
    accepted: Callable[[Claim], None]


class Pipeline:
    """Processes each micro-batch, over all queries of a job. The state it keeps between batches only saves work and messages.

    Of the query at hand: `failure` is what it raised (Spark hands on only its text), `busy` whether it is at a batch, `done` how many
    it did.
    """

    def __init__(self, job: Job) -> None:
        self.failure: BaseException | None = None
        self.busy = False
        self.done = 0
        self._job = job
        self._definitions = dict(job.definitions)
        self._decoders = {topic.name: decoder_for(topic, job.definitions[topic.relation]) for topic in job.config.topics}
        dead_letters = job.stream.dead_letters
        self._dead_letters = DeadLetters(job.config.kafka, dead_letters, job.stop) if dead_letters else None
        self._positions = {topic.name: KeyPlaces() for topic in job.config.topics}
        feeds = Counter(topic.relation for topic in job.config.topics)
        self._shared = {topic.name for topic in job.config.topics if feeds[topic.relation] > 1}
        self._columns = job.checkpoint.columns
        self._strict = {topic.name: topic.strict_columns for topic in job.config.topics}
        self._warned: set[tuple[str, str]] = set()

    def process(self, frame: DataFrame, epoch: int) -> None:
        """foreachBatch's function."""
        self.busy = True
        try:
            if self._job.stop.is_set():
                raise Stopped
            run: str = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            report = self._process(frame, epoch, run)
            self._job.metrics.batch_done(report)
            self.done += 1
            log.info("batch %d: %s%s", epoch, report, lag(self._job.watch.behind()))
        except BaseException as failure:
            self.failure = failure
            raise
        finally:
            self.busy = False

    def _process(self, frame: DataFrame, epoch: int, run: str) -> BatchReport:
        report = BatchReport()
        known = require_own(self._job.service, self._job.stream, self._job.checkpoint, run, epoch)
        with report.part("fetch"):
            records: pa.Table = frame.select("topic", "partition", "offset", "key", "value").toArrow()
            self._job.watch.compare()  # what was just read must not be another topic's of the same name
        with report.part("sort"):
            by_topic = self._by_topic(records)
        batch = Batch(changes=[], sent=0, ignored=0, errors=[], error_count=0)
        bad: list[BadRecord] = []
        columns = {**self._columns}
        with report.part("decode"):
            for topic, part in by_topic.items():
                if part.num_rows == 0:
                    continue
                most, before = self._job.stream.max_dead_letters, columns.get(topic, {})
                decoded = decode_topic(self._decoders[topic], topic, part, most, before, self._strict[topic])
                columns[topic] = decoded.columns
                self._warn_of_disorder(topic, part, decoded)
                self._warn_of_columns(topic, decoded.gone)
                batch.changes += decoded.changes
                bad += decoded.bad
                report.records[topic] = part.num_rows
                report.changes[topic] = sum(len(changes.ops) for changes in decoded.changes)
                report.dead_letters[topic] = len(decoded.bad)
                report.skipped[topic] = decoded.skipped
                report.unclear[topic] = decoded.unclear
        if bad:
            with report.part("dead_letters"):
                self._set_aside(bad)
        with report.part("post"):  # without changes too: the service's last epoch tells whether it has what the checkpoint has
            receipt = self._post(batch, epoch, run, known, columns)
        self._columns = columns
        report.version, report.ignored, report.duplicate = receipt.version, receipt.ignored, receipt.duplicate
        for topic, part in by_topic.items():
            self._job.watch.reached(topic, part)
        return report

    def _by_topic(self, records: pa.Table) -> dict[str, pa.Table]:
        """A topic's own records, in order; with one topic alone no byte is copied but to sort."""
        if len(self._decoders) == 1:
            return dict.fromkeys(self._decoders, in_order(records))
        return {topic: in_order(records.filter(pc.equal(records["topic"], topic))) for topic in self._decoders}

    def _post(
        self, batch: Batch, epoch: int, run: str, known: AppliedBatch | None, columns: Mapping[str, Columns]
    ) -> livejoin.Receipt:
        """The service's receipt. columns: those of each topic after the batch. A change of the definition that the records were validated
        by ends the job."""
        job = self._job
        try:
            if batch.changes or known is not None:
                receipt = job.service.post(batch_to_arrow(batch), job.stream.name, epoch, run, _resets(job.stream, job.checkpoint))
            else:
                relation, definition = next(iter(self._definitions.items()))
                receipt = job.service.post_first(relation, definition.key[0], job.stream.name, epoch, run)
        except TooLarge as error:
            whose = f"the service ({error})"
            remedy = "start the service with a higher limit (--max-body, --max-decoded or --max-batch-rows)"
            raise StreamError(too_large(job.stream.checkpoint, whose, remedy)) from error
        except SourceTaken as error:
            raise _taken(job.stream, job.checkpoint) from error
        except StreamError:
            self._compare_relations()
            raise
        job.checkpoint.note_posted(run, columns)
        job.accepted(job.checkpoint)
        self._compare_relations()
        return receipt

    def _compare_relations(self) -> None:
        """One request per batch, 2 ms: a relation that has gained a column would accept the rows without the column. If a definition was
        extended, the next records are validated by it."""
        for relation, now in self._job.service.definitions(self._definitions).items():
            known = self._definitions[relation]
            if now.to_json() == known.to_json():
                continue
            if not now.extends(known):
                raise StreamError(registered_anew(relation))
            log.info("the definition of the relation %s was extended; records are validated by it from now on", relation)
            self._definitions[relation] = now
            of_relation = [topic for topic in self._job.config.topics if topic.relation == relation]
            self._decoders.update({topic.name: decoder_for(topic, now) for topic in of_relation})

    def _warn_of_disorder(self, topic: str, records: pa.Table, decoded: DecodedTopic) -> None:
        """Warns once per topic if the order of changes is undefined."""
        if self._positions[topic].is_disordered(records):
            self._warn(topic, "keys", f"a key of topic {topic} is in more than one partition, so its changes have no defined order")
        several = self._job.watch.partitions[topic] > 1
        if decoded.keyless and several:
            emitted = f"topic {topic} has records without a key in several partitions, so the changes of a row have no defined order"
            self._warn(topic, "keyless", emitted)
        if decoded.truncates and (several or topic in self._shared):
            which = "partitions" if several else "topics"
            emitted = f"topic {topic} has a truncate, but the changes of its relation come from several {which}"
            self._warn(topic, "truncate", f"{emitted}: its order relative to them is undefined")

    def _warn_of_columns(self, topic: str, gone: Collection[str]) -> None:
        """Warns, and counts, once per column."""
        for name in sorted(gone):
            now = "such records are bad" if self._strict[topic] else f"{name} is null for such records"
            said = f"the records of topic {topic} no longer have the column {name}, which was renamed or dropped at the source: {now}"
            if self._warn(topic, f"column {name}", said):
                self._job.metrics.column_gone(topic)

    def _warn(self, topic: str, kind: str, emitted: str) -> bool:
        """Whether it is the first time."""
        if is_new := (topic, kind) not in self._warned:
            self._warned.add((topic, kind))
            log.warning("%s", emitted)
        return is_new

    def _set_aside(self, bad: list[BadRecord]) -> None:
        """Writes the dead letters, or stops the job before anything is posted."""
        first = bad[0]
        if self._dead_letters is None:
            raise StreamError(
                f"a bad record in topic {first.topic}, partition {first.partition}, offset {first.offset}: {first.error} "
                "(set dead_letters in [stream] to write such records to a topic and continue)"
            )
        if len(bad) > self._job.stream.max_dead_letters:
            reason, count = Counter(record.error for record in bad).most_common(1)[0]
            raise StreamError(
                f"more than {self._job.stream.max_dead_letters} bad records in one batch, perhaps because the source's schema has changed; "
                f"most common error, {count} times: {reason} "
                f"(first: topic {first.topic}, partition {first.partition}, offset {first.offset}); nothing was applied: "
                "fix the source or the relation, or raise max_dead_letters"
            )
        self._dead_letters.write(bad)


def is_known(service: Service, stream: Stream, checkpoint: Claim) -> bool:
    """Asks the service whether the checkpoint may continue the source. Returns whether it has batches of it; otherwise, the first batch
    decides. Raises StreamError: it may not; Stopped. Up to two requests that change nothing."""
    try:
        known = service.knows(stream.name, checkpoint.run)
    except SourceTaken as error:
        if _resets(stream, checkpoint):
            return False
        raise _taken(stream, checkpoint) from error
    if checkpoint.run is not None:
        require_own(service, stream, checkpoint, checkpoint.run, 0 if checkpoint.done is None else checkpoint.done + 1)
        if known:  # also a batch after which the job was killed
            checkpoint.note_posted(checkpoint.run)
    return known


def require_own(service: Service, stream: Stream, checkpoint: Claim, run: str, epoch: int) -> AppliedBatch | None:
    """Returns the last batch of the source that the service has. Raises StreamError if it is another checkpoint's, or if the service lacks
    one before `epoch`, as after its restoration from an older backup. One request, 2 ms."""
    applied = service.applied(stream.name)
    if applied is not None and applied.run != run and not _resets(stream, checkpoint):
        raise _taken(stream, checkpoint)
    if checkpoint.lacks(run, epoch, applied):
        raise StreamError(service_behind(stream.name, stream.checkpoint, epoch - 1, applied.epoch if applied else None))
    return applied


def lag(behind: Mapping[Partition, int]) -> str:
    """The lag of the job, and the partitions with the largest lag; empty if there is none."""
    worst = sorted(((count, at) for at, count in behind.items() if count), reverse=True)
    emitted = ", ".join(f"{topic}/{number} {count}" for count, (topic, number) in worst[:_WORST])
    return f", {sum(behind.values())} behind ({emitted}{', …' if len(worst) > _WORST else ''})" if worst else ""


def _resets(stream: Stream, checkpoint: Claim) -> bool:
    """Only until it has taken effect: a job that takes the name over later keeps it."""
    return stream.reset and not checkpoint.posted


def _taken(stream: Stream, checkpoint: Claim) -> StreamError:
    """The failure for a name that the service knows from another checkpoint; this one may have used it before."""
    if checkpoint.posted:
        return StreamError(
            f'another checkpoint has taken over the source "{stream.name}" in the service: stop one of the two jobs; '
            "this one can continue under another name, or with a new checkpoint and reset = true in [stream]"
        )
    return StreamError(
        f'the service knows the source "{stream.name}" from another checkpoint, and a new checkpoint would repeat its batches: '
        "set reset = true in [stream] if this checkpoint is to take over, or use another name"
    )


def start_query(spark: SparkSession, job: Job, pipeline: Pipeline) -> StreamingQuery:
    """Starts the one query over all topics on the stream's checkpoint."""
    config, stream = job.config, job.stream
    pipeline.failure, pipeline.done = None, 0
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
    writer = frame.writeStream.foreachBatch(pipeline.process).option("checkpointLocation", spark_address(stream.checkpoint))
    if stream.trigger == "available-now":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=stream.trigger).start()

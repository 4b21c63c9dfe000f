"""1,000,000 Debezium records from a real broker through real Spark into the service, with one keyed overlap view."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from tests.benchmarks.figures import Figure, Rival, Scale
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.pipeline_records import Hotel, view_rows
from tests.benchmarks.pipeline_rivals import BATCH, Reached, plain_consumer, spark_alone
from tests.benchmarks.pipeline_stage import Processors, Stage, stage, view_count
from tests.benchmarks.served import gauge
from tests.streaming.stream_job import StreamJob

TITLE = "The pipeline: Kafka, Spark and the service, Debezium records without schemas into a keyed view"
PARTS = {
    "fetch": "fetch (Kafka, Spark, Arrow)",
    "sort": "sort, by topic, partition and offset",
    "decode": "decode",
    "post": "post (encode as Arrow, send, apply)",
}
PLAIN = f"plain Python consumer, posts JSON, {BATCH:,} a time"
ALONE = "Spark alone"
SHORT_OF = {
    PLAIN: "at least once, no dead letters",
    ALONE: "a stream join of the creates only: it supports neither updates nor deletes",
}
UNIT = 100_000  # costs are stated for this number of records


def run(scale: Scale, note: Note) -> list[Figure]:
    records, offsets = scale.size(1_000_000, 10_000), scale.size(UNIT, 2_500)
    hotel = Hotel()
    with stage() as on:
        on.produce(hotel.records(records))
        note(f"{records:,} records are in the topics")
        started = time.perf_counter()
        with on.job(max_offsets=offsets) as job:
            passage = watch(on, job, started, records)
            job.stop()
        whole = time.perf_counter() - started
        rows = view_count(on.server)
        assert rows == view_rows(hotel.rows), "the view does not match the records"
        note(f"{passage.rate / 1e3:.1f} k records/s, the first batch after {passage.first:.1f} s, all after {whole:.1f} s, {rows:,} rows")
        plain = plain_consumer(on.broker.address, records)
        assert plain.rows == rows
        note(f"a plain consumer: {plain.rate / 1e3:.1f} k records/s")
        alone = spark_alone(on.broker.address, offsets)
        assert alone.rows == view_rows(hotel.created)
        note(f"Spark alone: {alone.rate / 1e3:.1f} k records/s")
    return figures_of(passage, whole, records, {PLAIN: plain, ALONE: alone})


class Passage(NamedTuple):
    """Records that pass through a job. All fields except `first` are for the batches after the first."""

    first: float  # seconds from the start of the job to the end of its first batch
    seconds: float
    records: int
    parts: dict[str, float]  # seconds by part of a batch
    apply: float  # seconds in which the service updated the view
    processors: Processors
    of_job: float  # processor time of driver and JVM since their start

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def watch(on: Stage, job: StreamJob, started: float, records: int) -> Passage:
    """Wait until a job that was started at `started` has processed this number of records. There must be at least two batches."""
    job.wait_for_batches(1)
    first, cold, applied = time.perf_counter(), on.processors(job), gauge(on.server, "livejoin_update_seconds_sum")
    done = job.batches[0]
    job.wait_for_records(records)
    seconds = time.perf_counter() - first
    end = on.processors(job)
    return Passage(
        first - started,
        seconds,
        records - done,
        parts_of(job),
        gauge(on.server, "livejoin_update_seconds_sum") - applied,
        end.since(cold),
        end.driver + end.jvm,
    )


def parts_of(job: StreamJob) -> dict[str, float]:
    """Seconds by part, as the job reports them for each batch except the first."""
    parts = dict.fromkeys(PARTS, 0.0)
    emitted = re.findall(r" livejoin\.pipeline: batch (\d+): .* s \((.*?)\)", job.said)
    assert len(emitted) == len(job.batches), job.said
    for batch, seconds_of in emitted:
        if int(batch):
            for part in seconds_of.split(", "):
                name, seconds = part.split(" ")
                parts[name] += float(seconds)
    return parts


def figures_of(passage: Passage, whole: float, records: int, rivals: dict[str, Reached]) -> list[Figure]:
    per_unit = UNIT / passage.records
    spent = {name: per_unit * seconds for name, seconds in passage.processors._asdict().items()}
    job = spent["driver"] + spent["jvm"]
    between = passage.seconds - sum(passage.parts.values())
    parts = {PARTS[name]: seconds for name, seconds in passage.parts.items()} | {"Spark between the batches": between}
    each = [(f"of a batch: {name}", seconds) for name, seconds in parts.items()] + [("of the post: apply to the view", passage.apply)]
    cpu = ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent.items())
    unit = f"core-seconds/{UNIT:,} records"
    theirs = [Rival(name, reached.rate, SHORT_OF[name]) for name, reached in rivals.items()]
    their_costs = [Rival(name, UNIT * reached.cost) for name, reached in rivals.items()]
    return [
        Figure("first batch to last", passage.rate, "records/s", 60e3, rivals=theirs),
        Figure("driver, JVM and decoding, first batch to last", job, unit, 2.0, True, their_costs, parameters=spent, note=cpu),
        Figure("the same with the cold start", passage.of_job * UNIT / records, unit, less=True),
        Figure("cold start to the end of the first batch, warm jars", passage.first, "s", 20.0, True),
        Figure(f"{records:,} records, start and end of the job included", whole, "s", less=True),
        *(
            Figure(name, 1000 * per_unit * seconds, f"ms/{UNIT:,} records", less=True, note=f"{seconds / passage.seconds:.0%} of the time")
            for name, seconds in each
        ),
    ]

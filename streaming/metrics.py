"""Counters of the job: for the log line of each batch, and for Prometheus.

livejoin stream --config stream.toml --metrics-port 9400     →  http://127.0.0.1:9400/metrics
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, start_http_server

from streaming.errors import StreamError

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
Partition = tuple[str, int]  # topic, number


@dataclass(slots=True)
class BatchReport:
    """The result of one batch. The tallies are by topic; `ignored` counts deletes of rows that the service did not have."""

    records: Tally[str] = field(default_factory=Tally)
    changes: Tally[str] = field(default_factory=Tally)
    skipped: Tally[str] = field(default_factory=Tally)
    dead_letters: Tally[str] = field(default_factory=Tally)
    unclear: Tally[str] = field(default_factory=Tally)
    version: int | None = None
    ignored: int = 0
    duplicate: bool = False
    seconds: dict[str, float] = field(default_factory=dict)  # by part: fetch (Spark, Kafka), sort, decode, dead_letters, post (and apply)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Times a part of the batch."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - began

    def __str__(self) -> str:
        emitted = f"{self.records.total()} records, {self.changes.total()} changes"
        for count, what in (
            (self.skipped.total(), "skipped"),
            (self.dead_letters.total(), "dead letters"),
            (self.unclear.total(), "local times that do not exist or exist twice"),
            (self.ignored, "deletes of unknown rows"),
        ):
            emitted += f", {count} {what}" if count else ""
        if self.version is not None:
            emitted += f", version {self.version}" + (", a duplicate" if self.duplicate else "")
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.seconds.items())
        return f"{emitted}, {sum(self.seconds.values()):.2f} s ({parts})"


class Metrics:
    """All counters of one job, in a registry of their own; safe from any thread."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"livejoin_stream_{name}", help, labels, registry=self.registry)

        def gauge(name: str, help: str, *labels: str) -> Gauge:
            return Gauge(f"livejoin_stream_{name}", help, labels, registry=self.registry)

        self._records = counter("records", "Records read", "topic")
        self._changes = counter("changes", "Changes that records resulted in", "topic")
        self._skipped = counter("skipped_records", "Records with no change: messages, markers, tombstones after their delete", "topic")
        self._dead_letters = counter("dead_letters", "Bad records written to the dead-letter topic", "topic")
        self._unclear = counter(
            "unclear_times", "Local times that do not exist or exist twice, taken with the offset before the change", "topic"
        )
        gone = "Columns that rows had and no longer have, each counted once: renamed or dropped at the source"
        self._gone = counter("gone_columns", gone, "topic")
        self._ignored = counter("ignored_deletes", "Deletes of rows that the service did not have")
        self._batches = counter("batches", "Batches completed")
        self._duplicates = counter("duplicate_batches", "Batches that the service recognized as duplicates")
        self._version = gauge("version", "The service's version after the last batch")
        lag = "Offsets not applied yet, of partitions that have been read; transaction markers count"
        self._lag = gauge("lag_offsets", lag, "topic", "partition")
        self._waits = counter("waits", "Attempts that found the service or Kafka unavailable or busy", "at")
        self._published = counter("published_records", "Records published", "topic")
        self._transactions = counter("published_transactions", "Transactions published, each with one or more versions", "topic")
        self._at = gauge("published_version", "The last published version", "topic")
        help = "Time by part of a batch: fetch (Spark, Kafka), sort, decode, dead_letters, post (applied by the service)"
        self._seconds = Histogram("livejoin_stream_batch_seconds", help, ("part",), buckets=_SECONDS, registry=self.registry)

    def batch_done(self, report: BatchReport) -> None:
        for counter, tally in (
            (self._records, report.records),
            (self._changes, report.changes),
            (self._skipped, report.skipped),
            (self._dead_letters, report.dead_letters),
            (self._unclear, report.unclear),
        ):
            for topic, count in tally.items():
                counter.labels(topic).inc(count)
        for part, seconds in report.seconds.items():
            self._seconds.labels(part).observe(seconds)
        self._batches.inc()
        self._duplicates.inc(report.duplicate)
        self._ignored.inc(report.ignored)
        if report.version is not None:
            self._version.set(report.version)

    def column_gone(self, topic: str) -> None:
        """The rows of a topic no longer have a column."""
        self._gone.labels(topic).inc()

    def behind(self, lag: Mapping[Partition, int]) -> None:
        """How many offsets of each partition are not applied yet."""
        for (topic, partition), offsets in lag.items():
            self._lag.labels(topic, str(partition)).set(offsets)

    def waited(self, at: str) -> None:
        """An attempt found `at` ("service" or "kafka") unavailable or busy."""
        self._waits.labels(at).inc()

    def published(self, topic: str, records: int, version: int) -> None:
        """A transaction with so many records, which brings an out's topic to `version`, is committed."""
        self._published.labels(topic).inc(records)
        self._transactions.labels(topic).inc()
        self._at.labels(topic).set(version)

    def serve(self, port: int, host: str) -> None:
        """Serves Prometheus at an address of this machine until the process ends; raises StreamError when it cannot listen there."""
        try:
            start_http_server(port, host, self.registry)
        except OSError as error:
            raise StreamError(f"cannot listen on port {port} of {host} ({error.strerror}): choose another --metrics-port") from error

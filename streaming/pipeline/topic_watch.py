"""Watches the topics while the job runs: whether they are still the same, and how far the job lags behind."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql.streaming.listener import StreamingQueryProgress

from streaming.errors import StreamError
from streaming.failures import made_anew
from streaming.kafka_client import Admin, FoundTopic, KafkaUnavailable, find_topics, offsets_of
from streaming.metrics import Metrics, Partition
from streaming.patience import Patience, Stopped
from streaming.pipeline.identity import differs

_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 5.0

log = logging.getLogger("livejoin.pipeline")


class TopicWatch:
    """Polls the broker once a second, in a separate thread, with two small requests. Logs when the broker is unavailable, which Spark
    would not do for minutes.

    Use it in a `with` as long as a query runs, as often as one does.
    known: the topics when the job began; reached: by partition, the offset that comes next.
    `failure` ends the job: Spark silently continues in a topic that was recreated and has more records than the old one. A batch
    checks too, before it is applied (`compare`): a second is long enough to read some of them.
    """

    def __init__(self, admin: Admin, known: Mapping[str, FoundTopic], reached: Mapping[Partition, int], metrics: Metrics) -> None:
        self.failure: Exception | None = None
        self._admin = admin
        self._ids = {topic: found.id for topic, found in known.items()}
        before = Counter(topic for topic, _ in reached)
        self.partitions = {topic: before[topic] or found.partitions for topic, found in known.items()}  # of each topic, by the last answer
        self._metrics = metrics
        self._reached = dict(reached)
        self._ends: dict[Partition, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread()

    def __enter__(self) -> TopicWatch:
        self._over.clear()
        self._thread = threading.Thread(target=self._run, name="topics", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def reached(self, topic: str, records: pa.Table) -> None:
        """These records are applied."""
        last = records.group_by("partition").aggregate([("offset", "max")])
        for partition, offset in zip(last["partition"].to_pylist(), last["offset_max"].to_pylist(), strict=True):
            self._reach((topic, partition), offset + 1)

    def note(self, progress: StreamingQueryProgress | None) -> None:
        """What Spark has committed, including transaction markers, which are in no batch."""
        for source in progress.sources if progress else ():
            for topic, offsets in json.loads(source.endOffset or "{}").items():
                for partition, offset in offsets.items():
                    self._reach((topic, int(partition)), offset)

    def _reach(self, at: Partition, offset: int) -> None:
        self._reached[at] = max(offset, self._reached.get(at, 0))

    def behind(self) -> dict[Partition, int]:
        """The offsets of each partition not applied yet, by the broker's last answer; without partitions that have not been read yet."""
        return {at: max(0, end - self._reached[at]) for at, end in self._ends.copy().items() if at in self._reached}

    def last_look(self) -> None:
        """Raises a failure found now or before."""
        if self.failure is None:
            with contextlib.suppress(KafkaUnavailable, StreamError):
                self.look()
        if self.failure is not None:
            raise self.failure

    def compare(self) -> list[Partition]:
        """The existing partitions. Raises the failure of a recreated topic, KafkaUnavailable when the broker does not answer."""
        partitions: list[Partition] = []
        for topic, found in find_topics(self._admin, self._ids, _ANSWER_SECONDS).items():
            if differs(self._ids[topic], found.id):
                self.failure = StreamError(made_anew(topic))
                raise self.failure
            if found.partitions > self.partitions[topic]:
                self.partitions[topic] = found.partitions
                moved = "the changes of a key that moves to another partition have no defined order"
                log.warning("topic %s now has %d partitions: %s", topic, found.partitions, moved)
            partitions += [(topic, index) for index in range(found.partitions)]
        return partitions

    def look(self) -> None:
        """Polls once. Raises as `compare`."""
        partitions = self.compare()
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        self._ends.update(offsets_of(self._admin, partitions, newest, _ANSWER_SECONDS))
        self._metrics.behind(self.behind())

    def _run(self) -> None:
        patience: Patience | None = None
        with contextlib.suppress(Stopped):
            while self.failure is None and not self._over.wait(_LOOK_SECONDS):
                try:
                    self.look()
                    patience = None
                except KafkaUnavailable as away:
                    patience = patience or Patience(self._over, self._metrics, "kafka")
                    patience.wait(f"Kafka does not answer ({away})")
                except Exception as failure:
                    self.failure = failure

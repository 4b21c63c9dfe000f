"""A real `livejoin stream` with one `[[out]]` in a separate process, and a reader that maintains rows from its topic."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, Message, TopicPartition

from streaming.kafka_client import quiet
from tests.streaming.stream_job import LIMIT, StreamJob

_STUCK = 15.0  # seconds without a message, though there are some


class OutJob(StreamJob):
    """`with OutJob(…) as job:` publishes a view to a topic. librdkafka: keys of [kafka.librdkafka]; other keywords go into [[out]]."""

    def __init__(
        self, folder: Path, url: str, brokers: str, view: str, topic: str, librdkafka: dict[str, Any] | None = None, **out: Any
    ) -> None:
        super().__init__(folder, url, brokers, [])
        lines = ["[service]", f"url = {json.dumps(url)}", "[kafka]", f"brokers = {json.dumps(brokers)}", "[kafka.librdkafka]"]
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in (librdkafka or {}).items()] + ["[[out]]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in {"view": view, "topic": topic, **out}.items()]
        self.path.write_text("\n".join(lines))


class Believer:
    """Reads an out topic from its beginning, `read_committed`, and adds `r` and `c` to its rows and takes `d` away.

    Nothing may be added that is there, nor taken away that is not: that would be a repeat or a loss.
    """

    def __init__(self, brokers: str, topic: str) -> None:
        self._settings = {
            "bootstrap.servers": brokers, "group.id": f"believer-{topic}", "auto.offset.reset": "earliest", "log_level": 0,
            "isolation.level": "read_committed",
        }  # fmt: skip
        self._consumer = Consumer(self._settings, logger=quiet)
        self._consumer.subscribe([topic])
        self._heard = time.monotonic()
        self._next: dict[tuple[str, int], int] = {}  # the offset after the last message, by topic and partition
        self.rows: dict[bytes, Any] = {}
        self.counts = {"r": 0, "c": 0, "d": 0, "null": 0}
        self.messages: list[tuple[bytes, Any]] = []
        self.partitions: set[int] = set()

    def believe_until(self, truth: list[Any]) -> None:
        """Read until its rows are these."""
        wanted, end = _sorted(truth), time.monotonic() + LIMIT
        while len(self.rows) != len(wanted) or _sorted(self.rows.values()) != wanted:
            assert time.monotonic() < end, (
                f"{len(self.rows)} rows in the topic {self.counts}, {len(wanted)} in the view; read up to, end: {self._positions()}"
            )
            self._read()

    def read_to_end(self) -> None:
        """Read everything that is committed by now."""
        limit = time.monotonic() + LIMIT
        while any(offset < end for offset, end in self._positions()):
            assert time.monotonic() < limit, f"read up to, end: {self._positions()}"
            self._read()

    def _read(self) -> None:
        for message in self._consumer.consume(1000, 0.05):
            self._heard = time.monotonic()
            self._believe(message)
        if time.monotonic() - self._heard > _STUCK and any(offset < end for offset, end in self._positions()):
            self._read_on_anew()

    def _read_on_anew(self) -> None:
        """Continue with another consumer: after the broker was killed, librdkafka's sometimes never reads on."""
        positions = self._consumer.assignment()
        self._consumer.close()
        self._consumer = Consumer(self._settings, logger=quiet)
        begin = [TopicPartition(one.topic, one.partition, self._next.get((one.topic, one.partition), 0)) for one in positions]
        self._consumer.assign(begin)
        self._heard = time.monotonic()

    def _positions(self) -> list[tuple[int, int]]:
        """How far it has read each partition that the group has assigned to it, 0 where nothing was read (Kafka's position is negative
        then), and where that ends for readers of committed records."""
        positions = self._consumer.position(self._consumer.assignment())
        return [(max(0, position.offset), self._consumer.get_watermark_offsets(position, 10, cached=False)[1]) for position in positions]

    def _believe(self, message: Message) -> None:
        if message.error() is not None:
            return
        self._next[message.topic(), message.partition()] = message.offset() + 1
        key, value = message.key(), message.value()
        record = None if value is None else json.loads(value)
        self.messages.append((key, record))
        self.partitions.add(message.partition())
        self.counts["null" if record is None else record["op"]] += 1
        if record is None:
            assert key not in self.rows, f"a tombstone for a row that is there: {key!r}"
        elif record["op"] == "d":
            assert key in self.rows, f"taken away while absent: {record}"
            assert self.rows.pop(key) == record["before"] and record["after"] is None, record
        else:
            assert key not in self.rows, f"added twice: {record}"
            assert record["before"] is None
            self.rows[key] = record["after"]

    def close(self) -> None:
        self._consumer.close()


def _sorted(rows: Any) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def rows_of(client: httpx.Client, view: str) -> list[Any]:
    """Return the current rows of the view."""
    return [json.loads(line) for line in client.get(f"/v1/views/{view}/rows").raise_for_status().text.split("\n") if line]

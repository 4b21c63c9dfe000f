"""Latency from producing a record to receiving its change as a follower, at 1,000 records a second."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from itertools import chain

import numpy as np
import orjson
from confluent_kafka import Producer

from streaming.kafka_client import quiet
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.pipeline_records import DAY, NEW_YEAR, VIEW, Record, record_of, row_of
from tests.benchmarks.pipeline_stage import TOPICS, Stage, stage
from tests.server_process import ServerProcess
from tests.streaming.stream_job import StreamJob

TITLE = 'The pipeline: from producer to follower, with trigger = "0 seconds"'
RATE = 1_000  # records a second
ROOMS = 100
FIRST = 10_000_000  # ids from here on
_LIMIT = 120.0  # seconds that a change may take

Change = tuple[str, int]  # what became of the view's row, and of which booking


def run(scale: Scale, note: Note) -> list[Figure]:
    with stage() as on, on.job() as job:
        latencies = measure(on, job, scale.size(15_000, 300), scale.size(30_000, 500))
        job.stop()
    p50, p99, most = (float(np.percentile(latencies, percent)) for percent in (50, 99, 100))
    note(f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, at most {most:.0f} ms")
    about = {"records": len(latencies)}
    return [
        Figure(f"{RATE:,} records/s, p50", p50, "ms", 300, True, parameters=about),
        Figure(f"{RATE:,} records/s, p99", p99, "ms", 1000, True, parameters=about),
        Figure(f"{RATE:,} records/s, the longest", most, "ms", less=True, parameters=about),
    ]


def measure(on: Stage, job: StreamJob, warming: int, count: int) -> np.ndarray:
    """Milliseconds from the call of produce to the end of the version, as a follower reads it; of `count` records after `warming`.

    Each record adds a row to the view or removes one: every second record deletes a booking that existed before.
    """
    total = warming + count
    there = range(FIRST, FIRST + (total + 1) // 2)
    already = sum(job.batches.values())
    works = [record("maintenance", "c", FIRST + room) for room in range(ROOMS)]
    on.produce(chain(works, (record("bookings", "c", number) for number in there)))
    job.wait_for_records(already + len(works) + len(there))
    with Follower(on.server) as follower:
        produced = produce_paced(on.broker.address, alternating(there, total))
        follower.wait_for(total)
        measured = list(produced)[warming:]
        return 1000 * np.array([follower.seen[change] - produced[change] for change in measured])


def record(relation: str, op: str, number: int) -> Record:
    """Return a booking of one night in the year, or maintenance for the whole year."""
    start, end = (0, 365) if relation == "maintenance" else (1, 2)
    row = row_of(relation, number, f"quiet {number % ROOMS}", NEW_YEAR + start * DAY, NEW_YEAR + end * DAY)
    return record_of(relation, op, row, number)


def alternating(there: range, total: int) -> Iterator[tuple[Change, Record]]:
    """The end of each existing booking and a new one, alternately, with the change of the view that each is expected to make."""
    for at in range(total):
        op, number = ("insert", there.stop + at) if at % 2 else ("delete", there[at // 2])
        yield (op, number), record("bookings", "c" if op == "insert" else "d", number)


def produce_paced(brokers: str, records: Iterator[tuple[Change, Record]]) -> dict[Change, float]:
    """Produce RATE records a second by the clock, with the client's default settings (it waits 5 ms for more). Return when each was passed
    to it."""
    producer = Producer({"bootstrap.servers": brokers}, logger=quiet)
    produced = {}
    start = time.perf_counter()
    for at, (change, given) in enumerate(records):
        if (early := start + at / RATE - time.perf_counter()) > 0:
            time.sleep(early)
        produced[change] = time.perf_counter()
        producer.produce(TOPICS[given.relation], given.value, given.key)
        producer.poll(0)
    assert producer.flush(_LIMIT) == 0
    return produced


class Follower(threading.Thread):
    """Follows the view from now on. `seen`: when the version with this change of a booking's row was complete."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.seen: dict[Change, float] = {}
        self._news = threading.Condition()
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port)
        self._connection.request("GET", f"/v1/views/{VIEW}/changes")
        self._answer = self._connection.getresponse()

    def run(self) -> None:
        version: list[Change] = []
        for line in self._answer:
            emitted = orjson.loads(line)
            if emitted["op"] != "progress":
                version.append((emitted["op"], emitted["key"]["b"]["id"]))
                continue
            now = time.perf_counter()
            with self._news:
                self.seen.update(dict.fromkeys(version, now))
                self._news.notify_all()
            version = []

    def wait_for(self, changes: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.seen) >= changes, _LIMIT), f"received {len(self.seen)} of {changes} changes"

    def __enter__(self) -> Follower:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        assert self._connection.sock is not None
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self.join()
        self._connection.close()

"""The service's side of a query by itself: what it gives a child that asks as the test says."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.adhoc import frames
from service.adhoc.failures import Limits
from service.adhoc.process import Child
from service.adhoc.session import Session
from service.adhoc.statement import RELATION, QueriedTable
from service.errors import Problem
from tests.service.running import opened

ROWS = 300_000
DEFINITION = parse_relation({"columns": [{"name": "id", "type": "int64"}, {"name": "v", "type": "int64"}], "key": ["id"]})
SCHEMA = DEFINITION.sent_schema()


class Asking:
    """In a child's position: `theirs` is its end of the socket."""

    def __init__(self, status: int | None = 0) -> None:
        self.socket, self.theirs = socket.socketpair()
        self._status = status

    def open(self, scan: int) -> None:
        frames.send(self.theirs, frames.OPEN, json.dumps({"scan": scan, "table": 0, "columns": ["id", "v"]}).encode())

    def end(self) -> int | None:
        self.socket.close()
        self.theirs.close()
        return self._status


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[tuple[Asking, Session]]:
    engine, asking = opened(tmp_path), Asking()
    engine.put_relation("n", DEFINITION)
    rows = pa.RecordBatch.from_pydict({"id": np.arange(ROWS), "v": np.arange(ROWS) % 7})
    changes = Changes("n", DEFINITION, np.full(ROWS, UPSERT, np.uint8), RowBlock(rows), np.arange(ROWS))
    engine.apply(Batch([changes], ROWS, 0, [], 0))
    table = QueriedTable(RELATION, "n", ())
    session = Session(engine.readers, cast(Child, asking), "SELECT …", [table], None, Limits(1 << 30, 1, 30.0))
    assert [frames.receive(asking.theirs)[0] for _ in range(2)] == [frames.QUERY, frames.SCHEMA]
    yield asking, session
    session.close()
    engine.close()


@pytest.mark.parametrize(("status", "type"), [(None, "internal"), (-signal.SIGKILL, "query-too-large")])
def test_a_child_that_ends_before_it_is_asked(tmp_path: Path, status: int | None, type: str) -> None:
    engine, asking = opened(tmp_path), Asking(status)
    asking.theirs.close()
    with pytest.raises(Problem) as found:
        Session(engine.readers, cast(Child, asking), "SELECT 1", [], None, Limits(1 << 30, 1, 30.0))
    assert found.value.type == type and "by something else than the service" in found.value.detail
    engine.close()


def test_chunks_are_bounded_by_bytes(asking: tuple[Asking, Session]) -> None:
    """The first is small, so that LIMIT reads little; the others are as large as the socket takes at once."""
    child, session = asking
    child.open(0)
    sizes, found = list[int](), list[pa.RecordBatch]()
    while not sizes or sizes[-1]:
        frames.send(child.theirs, frames.NEXT, frames.NUMBER.pack(0))
        content = _answer(child, session)
        rows = pa.BufferReader(content)
        while rows.tell() < len(content):
            found.append(pa.ipc.read_record_batch(pa.ipc.read_message(rows), SCHEMA))
        sizes.append(len(content))
    assert sizes[0] < 100_000 and max(sizes) < 3 << 20 and min(sizes[3:-2]) >= 1 << 20
    assert sorted(pa.Table.from_batches(found).column("id").to_pylist()) == list(range(ROWS))


def _answer(child: Asking, session: Session) -> bytes:
    """The content of the ROWS for which the child has asked: read in a thread, as no socket need hold it whole."""
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(frames.receive, child.theirs)
        while not received.done():
            if not session.waits or frames.is_readable(child.socket, 0.01):
                assert session.advance(time.perf_counter() + 60) is None
        kind, content = received.result()
    assert kind == frames.ROWS
    return bytes(content)


def test_a_frame_of_many_parts() -> None:
    """More than the system sends in one call, and more than a socket holds."""
    parts = [bytes([number % 251]) * (number + 1) for number in range(1500)]
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        received = pool.submit(frames.receive, theirs)
        frames.send(ours, frames.ROWS, *parts)
        assert received.result() == (frames.ROWS, b"".join(parts))


def test_too_many_scans_are_told_as_such(asking: tuple[Asking, Session]) -> None:
    child, session = asking
    for scan in range(256):
        child.open(scan)
        assert session.advance(time.perf_counter()) is None
    child.open(256)
    with pytest.raises(Problem, match="more than 256 times at once is not supported: read each once, in WITH") as caught:
        session.advance(time.perf_counter())
    assert caught.value.type == "unsupported-query"

"""Bodies: what is refused before it is read, what they may take together, and what they become. One real server with small limits."""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from livejoin.wire.errors import TooLarge
from service.api.http.admission import DEFINITION, FREE, Bodies, BodyBudget
from service.api.http.bodies import definition, parse_json
from service.errors import Problem
from service.settings import Settings
from tests.end_to_end.talk import problem
from tests.server_process import ServerProcess

MIB = 1 << 20
LIMITS = ["--max-body", "1MiB", "--max-decoded", "8MiB", "--max-body-memory", "2MiB", "--max-batch-rows", "1000"]
RELATION = {"columns": [{"name": "id", "type": "int64"}, {"name": "text", "type": "string", "nullable": True}], "key": ["id"]}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("bodies") / "data", arguments=LIMITS) as server:
        with server.client() as client:
            assert client.put("/v1/relations/r", json=RELATION).status_code == 201
        yield server


def begun(server: ServerProcess, length: int, *more: bytes) -> socket.socket:
    """A connection on which a body of so many bytes is announced."""
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.settimeout(60)
    head = b"POST /v1/changes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(head + b"".join(more) + b"Content-Length: %d\r\n\r\n" % length)
    return connection


def held(server: ServerProcess) -> float:
    with server.client() as client:
        found = re.search(r"^livejoin_body_bytes (\S+)$", client.get("/metrics").text, re.M)
    assert found is not None
    return float(found[1])


def post(server: ServerProcess, body: Any, kind: str = "application/jsonl", path: str = "/v1/relations/r/changes") -> httpx.Response:
    with server.client() as client:
        return client.post(path, content=body, headers={"Content-Type": kind})


def peak(server: ServerProcess) -> int:
    """The most bytes that the process has had in memory."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def test_too_large_by_its_declared_length(small: ServerProcess) -> None:
    with begun(small, MIB + 1, b"Expect: 100-continue\r\n") as connection:
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413 ") and b"connection: close" in answer, "not even 100 Continue"
    assert problem(post(small, b" " * (MIB + 1)), 413, "body-too-large")["limit"] == MIB


def test_too_large_in_chunks(small: ServerProcess) -> None:
    problem(post(small, (b" " * 10_000 for _ in range(200))), 413, "body-too-large")


def test_bodies_that_are_not_finished_leave_room_for_others(small: ServerProcess) -> None:
    """Seen: twenty unfinished bodies of 30 MiB held 602 MiB."""
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(begun(small, MIB))
        while held(small) < 2 * MIB:
            time.sleep(0.01)
        for _ in range(20):
            connection = stack.enter_context(begun(small, MIB, b"Expect: 100-continue\r\n"))
            answer = connection.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 429 ") and b"\r\nretry-after: 1\r\n" in answer and b"/problems/too-busy" in answer
        assert held(small) == 2 * MIB
        assert post(small, b'{"id":1}').status_code == 200, "small changes are taken all the same"
        problem(post(small, (b" " * 10_000 for _ in range(10))), 429, "too-busy")
    while held(small):
        time.sleep(0.01)
    assert post(small, b" " * MIB).status_code == 200


def arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def test_a_small_body_that_becomes_large(small: ServerProcess) -> None:
    """Seen: a Parquet file of 0.14 MB took 2.1 GiB with --max-body 32MiB, an Arrow stream of 0.15 MB 2.0 GiB."""
    texts = pa.array(["x" * MIB] * 300)
    table = pa.table({"id": range(300), "text": texts})
    before = peak(small)
    for kind, body in (("application/vnd.apache.arrow.stream", arrow(table)), ("application/vnd.apache.parquet", parquet(table))):
        assert len(body) < MIB
        assert problem(post(small, body, kind), 413, "body-too-large")["limit"] == 8 * MIB
    assert peak(small) - before < 100 * MIB
    assert held(small) == 0


def test_rows_of_a_batch(small: ServerProcess) -> None:
    lines = "".join(json.dumps({"id": i}) + "\n" for i in range(1001))
    assert problem(post(small, lines), 413, "body-too-large")["limit"] == 1000
    changes = {"changes": [{"relation": "r", "row": {"id": i}} for i in range(1001)]}
    assert problem(post(small, json.dumps(changes), "application/json", "/v1/changes"), 413, "body-too-large")["limit"] == 1000
    assert post(small, lines[: lines.rindex("\n", 0, -1) + 1]).json()["applied"] == 1000


def test_definitions_are_smaller(shared_server: ServerProcess) -> None:
    with shared_server.client() as client:
        for path in ("/v1/relations/large", "/v1/views/large"):
            response = client.put(path, content=b" " * (DEFINITION + 1), headers={"Content-Type": "application/json"})
            assert problem(response, 413, "body-too-large")["limit"] == DEFINITION


def test_definitions_that_become_large(small: ServerProcess) -> None:
    """Seen: one of 4 MiB took 200 MiB, which nobody counted, as long as others were before it, and held up the event loop for 1.3 s."""
    body = b'{"sql":[' + b"{}," * 300_000 + b"{}]}"
    with small.client() as client:
        response = client.post("/v1/explain", content=body, headers={"Content-Type": "application/json"})
    assert problem(response, 413, "body-too-large")["limit"] == 8 * MIB
    assert held(small) == 0


def test_a_definition_is_counted_until_it_was_used() -> None:
    bodies = Bodies(Settings())
    body = b'{"a":[' + b"{}," * 50_000 + b"{}]}"
    threads: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def work(function: Any, *arguments: Any) -> Any:
        threads.append(function)
        return function(*arguments)

    async def read() -> None:
        async with definition({"fields": {b"content-type": b"application/json"}}, receive, bodies, work) as data:
            assert len(data["a"]) == 50_001 and bodies.held > 50_000 * 192
        assert bodies.held == 0

    asyncio.run(read())
    assert threads == [parse_json], "not in the event loop"


def test_what_bodies_hold() -> None:
    bodies = Bodies(Settings(max_body=4 * MIB, max_body_memory=2 * MIB, max_decoded=3 * MIB))
    one, other, third = (BodyBudget(bodies, 4 * MIB) for _ in range(3))
    third.expect(FREE)
    assert bodies.held == 0
    one.expect(4 * MIB)  # alone, a body may take what a body may take
    one.take(3 * MIB)
    assert bodies.held == 7 * MIB
    with pytest.raises(TooLarge):
        one.take(1)
    with pytest.raises(Problem) as caught:
        other.expect(FREE + 1)
    assert caught.value.type == "too-busy" and caught.value.headers["Connection"] == "close" and bodies.held == 7 * MIB
    one.free()
    one.free()
    assert bodies.held == 0
    other.expect(MIB)
    third.take(MIB - FREE)
    with pytest.raises(Problem):
        third.take(1)
    assert bodies.held == 2 * MIB
    third.free()
    other.free()
    assert bodies.held == 0

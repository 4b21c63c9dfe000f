"""The limits of a connection: real connections to one server with small limits."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from service.protocol import MAX_FIELDS, MAX_PIPELINED, SPARE, allow_files
from tests.server_process import ServerProcess
from tests.waiting import until

CONNECTIONS = 20
SETTINGS = {"max-head": "4KiB", "max-body": "32MiB", "head-time": "1", "body-idle": "1", "pin-idle": "3", "max-connections": CONNECTIONS}
LIMITS = [text for name, value in SETTINGS.items() for text in (f"--{name}", str(value))]
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
RELATION = {"columns": [{"name": "id", "type": "int64"}, {"name": "text", "type": "string"}], "key": ["id"]}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("door") / "data", arguments=LIMITS) as server:
        with server.client() as client:
            assert client.put("/v1/relations/texts", json=RELATION).status_code == 201
            rows = "".join(json.dumps({"id": i, "text": "x" * 4000}) + "\n" for i in range(5000))
            headers = {"Content-Type": "application/jsonl"}
            assert client.post("/v1/relations/texts/changes", content=rows, headers=headers).status_code == 200
        yield server


def connected(server: ServerProcess) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port))
    made.settimeout(60)
    return made


def everything(connection: socket.socket) -> bytes:
    """Return everything that arrives until the server ends the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 20):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def said(server: ServerProcess, *pieces: bytes) -> bytes:
    with connected(server) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return everything(connection)


def is_problem(answer: bytes, status: int, kind: str) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status) and b"content-type: application/problem+json" in head, answer[:1000]
    assert f"content-length: {len(body)}".encode() in head.lower()
    problem: dict[str, Any] = json.loads(body)
    assert problem["type"] == f"/problems/{kind}" and problem["status"] == status
    return problem


def memory(server: ServerProcess) -> int:
    """Return the bytes of resident memory of the process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


GET = b"GET /livez HTTP/1.1\r\n" + HOST


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nLarge: " + b"x" * 5000 + b"\r\n\r\n",
        b"GET /livez?" + b"x" * 5000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        GET + b"a:b\r\n" * (MAX_FIELDS + 1) + b"\r\n",
        GET + b"Endless: " + b"x" * 5000,
    ],
    ids=["one field", "address", "many fields", "no end"],
)
def test_a_head_that_is_too_large(small: ServerProcess, head: bytes) -> None:
    is_problem(said(small, head), 431, "headers-too-large")


def test_a_head_of_the_maximum_size_passes_however_it_comes(small: ServerProcess) -> None:
    head = GET + b"Connection: close\r\nLarge: " + b"x" * 3900 + b"\r\n\r\n"
    for pieces in ([head], [head[:3000], head[3000:]], [head + b"GET /livez HTTP/1.1\r\n" + b"x" * 300]):
        assert said(small, *pieces).startswith(b"HTTP/1.1 200 ")


def test_heads_without_end_hold_no_memory(small: ServerProcess) -> None:
    """Seen: 30 MB of headers were accepted."""
    before = memory(small)
    with connected(small) as connection:
        try:
            for _ in range(40):
                connection.sendall(b"a: " + b"x" * (1 << 20) if _ else GET + b"a: ")
        except (BrokenPipeError, ConnectionResetError):
            pass
        grown = memory(small) - before
    assert grown < 20 << 20


def test_trailers_and_extensions_of_chunks_are_bounded_too(small: ServerProcess) -> None:
    begun = b"POST /v1/changes HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
    is_problem(said(small, begun, b"0\r\nTrailer: " + b"x" * 600_000), 431, "headers-too-large")
    is_problem(said(small, begun, b"2;" + b"x" * 600_000), 431, "headers-too-large")
    forged = begun + b"0\r\nOrigin: http://elsewhere.example\r\n\r\n"
    assert is_problem(said(small, forged.replace(b"chunked\r\n", b"chunked\r\nConnection: close\r\n")), 400, "malformed-body")


def test_a_head_that_does_not_end_in_time(small: ServerProcess) -> None:
    """Seen: half requests stayed open."""
    assert "head" in is_problem(said(small, GET), 408, "request-timeout")["detail"]
    assert said(small) == b"" and said(small, b"\r\n" * 10) == b""
    with connected(small) as connection:
        connection.sendall(GET + b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /li")
        is_problem(everything(connection), 408, "request-timeout")


@pytest.mark.parametrize("length", [b"Content-Length: 300000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n20\r\n"])
def test_a_body_that_does_not_go_on(small: ServerProcess, length: bytes) -> None:
    answer = said(small, b"POST /v1/changes HTTP/1.1\r\n" + HOST + JSON + length + b'{"changes')
    assert "body" in is_problem(answer, 408, "request-timeout")["detail"]


def test_a_body_that_nobody_reads_does_not_stay_either(small: ServerProcess) -> None:
    answer = said(small, GET + b"Content-Length: 1000000\r\n\r\n", b"x" * 1000)
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_body_that_nobody_reads_is_not_discarded_for_ever(small: ServerProcess) -> None:
    with connected(small) as connection:
        connection.sendall(GET + b"Content-Length: 1000000000000\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                connection.sendall(b"x" * (1 << 20))


def test_a_slow_request_is_served(small: ServerProcess) -> None:
    """The limit for a body applies to the time between two bytes: this one takes longer than the limit in total."""
    body = b'{"changes":[]}'
    with connected(small) as connection:
        connection.sendall(b"POST /v1/changes HTTP/1.1\r\n" + HOST + JSON + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        begun = time.monotonic()
        for byte in body:
            connection.sendall(bytes([byte]))
            time.sleep(0.15)
        assert time.monotonic() - begun > 2
        assert everything(connection).startswith(b"HTTP/1.1 200 ")


def test_a_reader_that_takes_nothing(small: ServerProcess) -> None:
    with connected(small) as reader:
        reader.sendall(b"GET /v1/relations/texts/rows HTTP/1.1\r\n" + HOST + b"\r\n")
        with small.client() as client:
            while (line := client.get("/metrics").text).count("livejoin_pins 0.0") or "livejoin_pins" not in line:
                time.sleep(0.01)
            while "read nothing" not in small.output():
                time.sleep(0.01)
            while client.get("/v1/status").json()["figures"]["pins"]:
                time.sleep(0.01)
        assert not everything(reader).endswith(b"0\r\n\r\n")


def test_connections(small: ServerProcess) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(connected(small)) for _ in range(CONNECTIONS)]
        for connection in held:
            connection.sendall(GET + b"\r\n")
            answer = connection.recv(1000)
            while not answer.endswith(b"}"):  # the head may come alone
                answer += connection.recv(1000)
            assert answer.startswith(b"HTTP/1.1 200 ")
        answer = said(small, b"GET /v1/status HTTP/1.1\r\n" + HOST + b"\r\n")
        is_problem(answer, 429, "too-busy")
        assert b"retry-after: 1\r\n" in answer
        assert said(small, GET + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 "), "probes are answered"
        held[0].sendall(b"GET /v1/status HTTP/1.1\r\n" + HOST + b"\r\n")
        assert held[0].recv(1000).startswith(b"HTTP/1.1 200 "), "those within the limit go on"
        for _ in range(SPARE):
            stack.enter_context(connected(small))
        is_problem(said(small), 429, "too-busy")
    with small.client() as client:
        while client.get("/v1/status").status_code != 200:
            time.sleep(0.01)


def test_what_follows_an_upgrade_that_is_not_made(small: ServerProcess) -> None:
    """Seen: data that arrived with it was discarded, so that the rest of a request could be taken for a request."""
    upgrade = GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    last = b"GET /problems/too-busy HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    for pieces in ([upgrade + last], [upgrade + last[:20], last[20:]], [upgrade + upgrade + last], [upgrade + GET + b"\r\n" + last]):
        emitted = said(small, *pieces)
        assert emitted.count(b"HTTP/1.1 200 ") == b"".join(pieces).count(HOST) and b"too-busy (429)" in emitted
    assert said(small, upgrade * (MAX_PIPELINED + 10)).count(b"HTTP/1.1 200 ") == MAX_PIPELINED + 1  # and the one that is answered


def test_pipelined_requests(small: ServerProcess) -> None:
    few = (GET + b"\r\n") * (MAX_PIPELINED - 1) + GET + b"Connection: close\r\n\r\n"
    assert said(small, few).count(b"HTTP/1.1 200 ") == MAX_PIPELINED
    assert said(small, (GET + b"\r\n") * 5000).count(b"HTTP/1.1 ") < 100


@pytest.mark.parametrize("method", ["PROPFIND", "TRACE"])
def test_a_method_that_no_path_has(small: ServerProcess, method: str) -> None:
    request = f"{method} /v1/views HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    for pieces in ([request], [request[:2], request[2:]], [request[:-20], request[-20:]]):
        answer = said(small, *pieces)
        assert method in is_problem(answer, 405, "method-not-allowed")["detail"]
        assert b"allow: GET, HEAD\r\n" in answer.lower().replace(b"get, head", b"GET, HEAD")
    is_problem(said(small, f"{method} /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()), 404, "not-found")
    foreign = f"{method} /v1/views HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n".encode()
    is_problem(said(small, foreign), 403, "forbidden")


NO_HTTP = [
    b"good morning\r\n\r\n",
    b"GET /livez\r\n\r\n",
    *(b"GET /livez HTTP/%s\r\n" % version + HOST + b"\r\n" for version in (b"0.9", b"1.2", b"2.0", b"3.0")),
    b"POST /v1/changes HTTP/2.0\r\n" + HOST + JSON + b"Content-Length: 14\r\n\r\n" + b'{"changes":[]}',
    b"\x16\x03\x01\x02\x00\x01",
    b"B(EW / HTTP/1.1\r\n\r\n",
    b"BREW /livez HTTP/1.1\r\n" + HOST + b"\r\n",
]


@pytest.mark.parametrize("what", NO_HTTP)
def test_what_is_no_http(small: ServerProcess, what: bytes) -> None:
    is_problem(said(small, what), 400, "malformed-body")


def test_http_1_0_knows_no_chunks(small: ServerProcess) -> None:
    with small.client() as client:
        rows = client.get("/v1/relations/texts/rows").content
    head, _, body = said(small, b"GET /v1/relations/texts/rows HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and b"transfer-encoding" not in head and b"connection: close" in head
    assert body == rows and len(rows) > 15 << 20
    for request in (b"HEAD /v1/relations/texts/rows", b"GET /v1/relations/texts/rows?limit=0"):
        head, _, body = said(small, request + b" HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ") and body == b""
    head, _, body = said(small, b"GET /livez HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head and json.loads(body)
    is_problem(said(small, b"GET /nothing HTTP/1.0\r\n\r\n"), 404, "not-found")


def test_columns_of_arrow_are_sent_as_they_are_with_and_without_chunks(small: ServerProcess) -> None:
    path, accept = "/v1/relations/texts/rows", "application/vnd.apache.arrow.stream"
    bodies = []
    for version in ("1.0", "1.1"):
        head = f"GET {path} HTTP/{version}\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n".encode()
        with connected(small) as connection:
            connection.sendall(head)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.chunked == (version == "1.1")
            bodies.append(answer.read())
    for body in bodies:
        with pa.ipc.open_stream(body) as reader:
            rows = reader.read_all()
        assert rows.column("id").to_pylist() == list(range(5000)) and set(rows.column("text").to_pylist()) == {"x" * 4000}
    assert len(bodies[0]) > 20_000_000


def test_an_answer_in_http_1_0_that_is_broken_off_does_not_look_whole(small: ServerProcess) -> None:
    with connected(small) as reader:
        reader.sendall(b"GET /v1/relations/texts/rows HTTP/1.0\r\n\r\n")
        ended = select.poll()
        ended.register(reader, 0)  # a reset alone: nothing is read before
        assert ended.poll(60_000)
        with pytest.raises(ConnectionResetError):
            while reader.recv(1 << 20):
                pass


def test_files_for_connections(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import resource

    limits, given = (1024, 4096), list[tuple[int, int]]()
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda what, both: given.append(both))
    allow_files(100_000)
    assert given == [(4096, 4096)] and "100000" in caplog.text
    limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    allow_files(100_000)
    limits = (1024, resource.RLIM_INFINITY)
    allow_files(2000)
    assert given[1:] == [(2000 + SPARE + 1024, resource.RLIM_INFINITY)]


VIEW = {"sql": "SELECT t.id AS id FROM texts t"}


def changes(number: int, extra: bytes = b"") -> bytes:
    body = json.dumps({"changes": [{"op": "upsert", "relation": "texts", "row": {"id": number, "text": "new"}}]}).encode()
    return b"POST /v1/changes HTTP/1.1\r\n" + HOST + JSON + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


def there(small: ServerProcess, number: int) -> bool:
    with small.client() as client:
        assert client.put("/v1/views/followed", json=VIEW).is_success
        return bool(client.get(f"/v1/views/followed/rows?where.t.id={number}", headers={"Accept": "application/json"}).json()["rows"])


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


@pytest.mark.parametrize("cut", [0, 1, 14, 15, 60])
def test_a_body_behind_an_upgrade_that_is_not_made(small: ServerProcess, cut: int) -> None:
    """Seen: the body was parsed as the next request. curl --http2 and Java's HttpClient send such requests."""
    number = 100_000 + cut
    request = changes(number, UPGRADE)
    last = changes(number + 1000, UPGRADE) + GET + b"Connection: close\r\n\r\n"
    at = len(request) - cut
    emitted = said(small, request[:at], request[at:] + last[:300], last[300:])
    assert emitted.count(b"HTTP/1.1 200 ") == emitted.count(b"HTTP/1.1 ") == 3 and emitted.count(b'"applied":1') == 2
    assert there(small, number) and there(small, number + 1000)


def test_a_chunked_body_behind_an_upgrade(small: ServerProcess) -> None:
    body = b'{"id":100500,"text":"x"}\n'
    head = b"POST /v1/relations/texts/changes HTTP/1.1\r\n" + HOST + b"Content-Type: application/jsonl\r\n" + UPGRADE
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert said(small, chunked + GET + b"Connection: close\r\n\r\n").count(b"HTTP/1.1 200 ") == 2
    assert there(small, 100_500)
    smuggled = b"DELETE /v1/relations/texts HTTP/1.1\r\n" + HOST + b"\r\n"
    emitted = said(small, head + b"Content-Length: %d\r\n\r\n" % len(smuggled) + smuggled + GET + b"Connection: close\r\n\r\n")
    assert b" 204 " not in emitted and emitted.count(b"HTTP/1.1 ") == 2 and b"malformed-body" in emitted
    assert there(small, 100_500)


def nobody_reads(client: httpx.Client) -> bool:
    text = client.get("/metrics").text
    return "\nlivejoin_pins 0.0" in text and "\nlivejoin_subscribers 0.0" in text


def test_a_stream_whose_client_has_gone_with_a_request_behind_it(small: ServerProcess) -> None:
    """Seen: only the newest request of the connection was notified."""
    with small.client() as client:
        for path in (b"/v1/relations/texts/rows", b"/v1/views/followed/changes"):
            if b"followed" in path:
                assert client.put("/v1/views/followed", json=VIEW).is_success
            with connected(small) as connection:
                connection.sendall(b"GET %b HTTP/1.1\r\n" % path + HOST + b"\r\n" + GET + b"\r\n")
                assert connection.recv(20) == b"HTTP/1.1 200 OK\r\ndat"
            until(partial(nobody_reads, client), lambda: client.get("/metrics").text)


CHUNKS = b"POST /v1/changes HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"


@pytest.mark.parametrize("behind", [b"\x01garbage\r\n\r\n", CHUNKS])
def test_a_refusal_waits_for_the_answers_to_earlier_requests(small: ServerProcess, behind: bytes) -> None:
    """Seen: a batch was applied, but its answer was never sent, or the refusal was sent in its place."""
    emitted = said(small, changes(200_001) + changes(200_002) + behind + changes(200_003))
    first, second, refusal = re.split(rb"(?=HTTP/1\.1 )", emitted)[1:]
    assert b'"applied":1' in first and b'"applied":1' in second
    is_problem(refusal, 400, "malformed-body")
    assert there(small, 200_001) and there(small, 200_002) and not there(small, 200_003)


def test_more_requests_at_once_than_may_wait(small: ServerProcess) -> None:
    emitted = said(small, b"".join(changes(300_000 + number) for number in range(MAX_PIPELINED + 8)))
    *answers, refusal = re.split(rb"(?=HTTP/1\.1 )", emitted)[1:]
    assert len(answers) >= MAX_PIPELINED and all(b'"applied":1' in answer for answer in answers)
    is_problem(refusal, 429, "too-busy")
    assert [there(small, 300_000 + number) for number in range(MAX_PIPELINED + 8)].count(True) == len(answers)


def test_a_client_that_sends_no_more_gets_its_answer(small: ServerProcess) -> None:
    for requests in (1, 3):
        with connected(small) as connection:
            connection.sendall(b"".join(changes(400_000 + number) for number in range(requests)))
            connection.shutdown(socket.SHUT_WR)
            emitted = everything(connection)
        assert emitted.count(b'"applied":1') == requests and emitted.count(b"connection: close") <= 1  # it may answer before it notices

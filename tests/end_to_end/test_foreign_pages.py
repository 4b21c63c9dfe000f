"""docs/reference/rest.md, *Errors* and *Operations*: a web page in a browser on this machine gets nothing, whether by DNS rebinding or
from its own origin."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from tests.end_to_end import talk
from tests.end_to_end.bookings import Case
from tests.server_process import ServerProcess

EVIL = "attacker.example"


class Answer(NamedTuple):
    status: int
    head: bytes
    body: bytes


class Link:
    """One connection, on which requests are sent exactly as they are written."""

    def __init__(self, server: ServerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self._answers = self.socket.makefile("rb")

    def send(self, method: str, path: str, *headers: str, body: bytes = b"", version: str = "1.1") -> None:
        lines = [f"{method} {path} HTTP/{version}", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def answer(self, method: str = "GET") -> Answer:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self._answers.readline()
            assert line, f"the connection has ended after {head!r}"
            head += line
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        body = b"" if method == "HEAD" else self._answers.read(int(fields[b"content-length"]))
        return Answer(int(head[9:12]), head, body)

    def ask(self, method: str, path: str, *headers: str, body: bytes = b"", version: str = "1.1") -> Answer:
        self.send(method, path, *headers, body=body, version=version)
        return self.answer(method)

    def rest(self) -> bytes:
        return self._answers.read()

    def close(self) -> None:
        self._answers.close()
        self.socket.close()


@pytest.fixture
def link(server: ServerProcess) -> Iterator[Link]:
    made = Link(server)
    yield made
    made.close()


def rows_of(case: Case) -> int:
    return int(talk.ok(case.client.get(f"/v1/relations/{case.b}"))["rows"])


def is_forbidden(answer: Answer, method: str = "GET") -> None:
    assert answer.status == 403, answer
    assert b"content-type: application/problem+json\r\n" in answer.head
    assert EVIL.encode() not in (answer.head + answer.body).lower(), "it does not repeat whom it refuses"
    assert b"access-control" not in answer.head.lower() and b"location" not in answer.head.lower()
    if method != "HEAD":
        emitted = json.loads(answer.body)
        assert (emitted["type"], emitted["status"]) == ("/problems/forbidden", 403) and emitted["title"] and emitted["detail"]


def foreign(server: ServerProcess) -> list[list[str]]:
    own = f"Host: 127.0.0.1:{server.port}"
    return [
        [f"Host: {EVIL}"],
        [f"Host: {EVIL}:{server.port}"],
        [f"Host: 127.0.0.1.{EVIL}"],
        [own, f"Origin: https://{EVIL}"],
        [own, "Origin: null"],
        [own, f"Origin: http://127.0.0.1:{server.port + 1}"],
        [own, f"Origin: http://127.0.0.1:{server.port}", f"Origin: https://{EVIL}"],
        [f"Host: {EVIL}:{server.port}", f"Origin: http://{EVIL}:{server.port}"],
    ]


def truncate(case: Case) -> bytes:
    return json.dumps({"changes": [{"relation": case.b, "op": "truncate"}]}).encode()


def test_nothing_is_applied(server: ServerProcess, live: Case, link: Link) -> None:
    """On one connection, which stays usable after each refusal: the unread body is not taken for a request."""
    before, there = live.version(), rows_of(live)
    changes, rows = truncate(live), b'{"_op":"truncate"}\n'
    for headers in foreign(server):
        is_forbidden(link.ask("POST", "/v1/changes", *headers, "Content-Type: application/json", body=changes))
        is_forbidden(link.ask("POST", f"/v1/relations/{live.b}/changes", *headers, "Content-Type: application/jsonl", body=rows))
        is_forbidden(link.ask("DELETE", f"/v1/views/{live.v}", *headers))
        is_forbidden(link.ask("PUT", "/v1/relations/stranger", *headers, "Content-Type: application/json", body=b"{}"))
    assert live.version() == before and rows_of(live) == there > 1
    assert live.client.get(f"/v1/views/{live.v}").status_code == 200
    own = f"Host: localhost:{server.port}"
    assert json.loads(link.ask("POST", "/v1/changes", own, "Content-Type: application/json", body=changes).body)["applied"] == 1
    assert rows_of(live) == 0


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH"])
def test_nothing_is_told(server: ServerProcess, live: Case, link: Link, method: str) -> None:
    paths = ["/", "/livez", "/readyz", "/metrics", "/docs", "/openapi.json", "/v1/status", "/v1/relations", "/v1/changes", "/v1/explain"]
    paths += ["/problems/forbidden", "/nothing", f"//{EVIL}/v1/status", f"http://{EVIL}/v1/status", "/v1/views/"]
    paths += [f"/v1/views/{live.v}{rest}" for rest in ("", "/rows?limit=1", "/count", "/changes?snapshot=true")]
    for headers in foreign(server):
        for path in paths:
            is_forbidden(link.ask(method, path, *headers, "Accept: application/json"), method)


def test_a_question_before_the_request_gets_no_leave(server: ServerProcess, link: Link) -> None:
    """CORS: the preflight request that a browser sends before it sends JSON from another page is refused."""
    asked = ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type"]
    is_forbidden(link.ask("OPTIONS", "/v1/changes", f"Host: localhost:{server.port}", f"Origin: https://{EVIL}", *asked))


def test_it_need_not_wait_for_the_body(server: ServerProcess, live: Case, link: Link) -> None:
    """The refusal is sent after the head, without `100 Continue`; what arrives later belongs to the refused request."""
    kind, length = "Content-Type: application/json", len(truncate(live))
    smuggled = f"POST /v1/changes HTTP/1.1\r\nHost: localhost\r\n{kind}\r\nContent-Length: {length}\r\n\r\n".encode() + truncate(live)
    before = live.version()
    for expect in ([], ["Expect: 100-continue"]):
        link.send("POST", "/v1/changes", f"Host: {EVIL}", kind, f"Content-Length: {len(smuggled)}", *expect)
        is_forbidden(link.answer())
        link.socket.sendall(smuggled)
    link.send("POST", "/v1/changes", f"Host: {EVIL}", kind, "Transfer-Encoding: chunked")
    is_forbidden(link.answer())
    link.socket.sendall(b"%x\r\n" % len(smuggled) + smuggled + b"\r\n0\r\n\r\n")
    assert link.ask("GET", "/livez", "Host: localhost").status == 200
    assert live.version() == before


def test_a_large_body_that_nobody_reads(server: ServerProcess, live: Case, link: Link) -> None:
    is_forbidden(link.ask("POST", "/v1/changes", f"Host: {EVIL}", "Content-Type: application/json", body=b" " * (8 << 20)))
    assert link.ask("GET", "/livez", "Host: localhost").status == 200


def test_requests_behind_one_another(server: ServerProcess, live: Case, link: Link) -> None:
    kind = "Content-Type: application/json"
    before = live.version()
    link.send("GET", "/livez", "Host: localhost")
    link.send("POST", "/v1/changes", f"Host: {EVIL}", kind, body=truncate(live))
    link.send("POST", "/v1/changes", "Host: localhost", f"Origin: https://{EVIL}", kind, body=truncate(live))
    link.send("GET", "/livez", "Host: localhost")
    assert link.answer().status == 200
    is_forbidden(link.answer())
    is_forbidden(link.answer())
    assert link.answer().status == 200
    assert live.version() == before


def test_websockets(server: ServerProcess, live: Case) -> None:
    """No path supports them; a page's attempt is refused like any other request, and what it sends afterwards is not read."""
    asked = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"]
    for headers in foreign(server):
        for path in ("/", "/v1/changes", f"/v1/views/{live.v}/changes"):
            link = Link(server)
            is_forbidden(link.ask("GET", path, *headers, *asked))
            link.close()
    link = Link(server)
    assert link.ask("GET", "/v1/changes", "Host: localhost", *asked).status == 405
    link.close()


def test_two_hosts(server: ServerProcess, live: Case) -> None:
    """They make the request invalid (RFC 9112, section 3.2), whatever they say, and its connection ends."""
    before, own = live.version(), f"Host: 127.0.0.1:{server.port}"
    for headers in ([own, f"Host: {EVIL}"], [f"Host: {EVIL}", own]):
        link = Link(server)
        answer = link.ask("POST", "/v1/changes", *headers, "Content-Type: application/json", body=truncate(live))
        assert answer.status == 400 and b"/problems/malformed-body" in answer.body
        assert EVIL.encode() not in (answer.head + answer.body).lower() and link.rest() == b""
        link.close()
    assert live.version() == before


def test_http_1_0(server: ServerProcess) -> None:
    for headers, status in (([], 200), ([f"Host: {EVIL}"], 403), (["Host: localhost"], 200)):
        link = Link(server)
        assert link.ask("GET", "/livez", *headers, version="1.0").status == status
        link.close()


@pytest.mark.parametrize("line", [
    "GET /\x01{evil} HTTP/1.1", "CONNECT {evil}:443 HTTP/1.1", "{evil}", "GET http://[{evil}/ HTTP/1.1", "GET / HTTP/1.1\r\n{evil}",
    "GET / HTTP/1.1\r\nHost: {evil}\r\nContent-Length: {evil}", "GET / HTTP/1.1\r\nHost : {evil}", "GET / HTTP/1.1\r\nHost: {evil}\x00",
])  # fmt: skip
def test_what_is_not_http_is_not_repeated(server: ServerProcess, line: str) -> None:
    link = Link(server)
    link.socket.sendall(line.format(evil=EVIL).encode() + b"\r\n\r\n")
    link.socket.shutdown(socket.SHUT_WR)
    said = link.rest()
    link.close()
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 ")), said
    assert b"application/problem+json" in said and EVIL.encode() not in said.lower()


def test_its_own_names_and_pages(server: ServerProcess, live: Case, link: Link) -> None:
    for name in ("localhost", "LOCALHOST.", "livejoin.localhost", "127.0.0.1", "127.1.2.3", "[::1]"):
        for host in (name, f"{name}:{server.port}"):
            for page in ([], [f"Origin: http://{host}"]):
                assert link.ask("GET", "/livez", f"Host: {host}", *page).status == 200, (host, page)
    for path in ("/docs", "/openapi.json", "/v1/status"):
        assert live.client.get(path, headers={"Origin": server.url, "Referer": f"{server.url}/docs"}).status_code == 200
    answer = live.client.post("/v1/changes", content=truncate(live), headers={"Origin": server.url, "Content-Type": talk.JSON})
    assert talk.ok(answer)["applied"] == 1


def test_links_name_the_host_that_was_asked(server: ServerProcess, live: Case) -> None:
    forwarded = {"Host": f"localhost:{server.port}", "X-Forwarded-Host": EVIL, "Forwarded": f"host={EVIL}"}
    answer = live.client.get(f"/v1/relations/{live.b}/rows", params={"limit": 1}, headers=forwarded)
    assert answer.headers["link"].startswith(f"<http://localhost:{server.port}/") and EVIL not in str(answer.headers) + answer.text


def test_the_page_of_the_problem(client: httpx.Client) -> None:
    for word in ("Host", "Origin", "localhost", "127.0.0.1", "403"):
        assert word in client.get("/problems/forbidden").text

"""Heads that are well formed and yet no valid requests: over a real connection to a real server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from service.api.http.heads import fault
from service.api.http.media import fields_of
from tests.server_process import ServerProcess

HOST = b"Host: localhost\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("heads") / "data") as server:
        yield server


def said(server: ServerProcess, sent: bytes) -> bytes:
    """Return everything that arrives until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(60)
        connection.sendall(sent)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\n",
        b"GET /livez HTTP/1.1\r\n" + UPGRADE,
        b"POST /v1/changes HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 0\r\n",
        b"GET /livez HTTP/1.1\r\n" + HOST + HOST,
        b"GET /livez HTTP/1.0\r\n" + HOST + b"hOST: 127.0.0.1\r\n",
        b"GET /livez HTTP/1.1\r\nHost: local host\r\n",
        b"GET /livez HTTP/1.0\r\nHost: localhost/v1\r\n",
    ],
)
def test_a_request_has_one_host(server: ServerProcess, head: bytes) -> None:
    """RFC 9112, section 3.2. Seen: a request without Host was served. The connection ends: nothing that follows is read."""
    first, _, body = said(server, head + b"\r\nGET /livez HTTP/1.1\r\n" + HOST + b"\r\n").partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert first.startswith(b"HTTP/1.1 400 ") and problem["type"] == "/problems/malformed-body" and "Host" in problem["detail"]


@pytest.mark.parametrize("head", [b"GET /livez HTTP/1.0\r\n", b"GET /livez HTTP/1.1\r\nConnection: close\r\nHost:localhost\r\n"])
def test_what_is_served(server: ServerProcess, head: bytes) -> None:
    assert said(server, head + b"\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_name_that_contains_host_is_another_field() -> None:
    for headers, right in ([(b"host", b"x"), (b"x-host", b"y")], True), ([(b"x-host", b"y")], False):
        assert (fault("1.1", headers, fields_of(headers)) is None) is right


def test_fields_that_appear_twice() -> None:
    others = [(b"host", b"x"), (b"accept", b"y"), (b"accept", b"z")]
    assert fault("1.1", others, fields_of(others)) is None
    for version in ("1.0", "1.1"):
        hosts = [*others, (b"host", b"x")]
        assert fault(version, hosts, fields_of(hosts)) is not None


@pytest.mark.parametrize(
    ("host", "right"),
    [
        *((host, True) for host in (b"", b"localhost", b"LOCALHOST.:80", b"a_b-c.example:", b"[::1]:8080", b"[fe80::1%25eth0]", b"%C3%A9")),
        *((host, False) for host in (b"a b", b"a\tb", b"a\x01", b"http://a", b"a/b", b"u@a", b"a:b", b"a:80:80", b"::1", b"[::1", b"[]")),
        *((host, False) for host in (b"a%zz", b"\xc3\xa9")),
    ],
)  # fmt: skip
def test_the_host_is_a_name_or_an_address(host: bytes, right: bool) -> None:
    """RFC 9112, section 3.2. Seen: others were answered with 403, and with access tokens they were served."""
    headers = [(b"host", host)]
    for version in ("1.0", "1.1"):
        assert (fault(version, headers, fields_of(headers)) is None) is right

"""Which hosts and origins are our own, and that the gate lets no other through. In this process, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.api.app import ROUTES, Gate, create_app
from service.api.context import Context
from service.api.http import origin
from service.api.http.media import fields_of
from service.errors import Problem
from service.settings import Settings
from tests.service.api.asking import ask, is_problem

OWN = """
localhost
localhost:8080
LocalHost:8080
localhost.
localhost.:8080
livejoin.localhost
a.b-c.d_e.LOCALHOST.:1
127.0.0.1
127.0.0.1:1
127.0.0.1:65535
127.0.1.1:8080
127.255.255.254
[::1]
[::1]:8080
[0:0:0:0:0:0:0:1]:8080
[0000::0001]
""".split()

FOREIGN = [
    *"""
evil.com
evil.com:8080
localhost.evil.com
127.0.0.1.evil.com
127.0.0.1.nip.io
evillocalhost
localhosts
local.host
localhost..
.localhost
a..localhost
-
.
user@localhost
localhost@evil.com
evil.com@localhost
user:pass@127.0.0.1:8080
localhost/
http://localhost
//localhost
localhost,evil.com
localhost;evil.com
localhost#evil.com
localhost?evil.com
localhost\\evil.com
localhost%00.evil.com
%6cocalhost
2130706433
0x7f000001
0x7f.0.0.1
0177.0.0.1
0177.1
127.1
127.0.1
127.0.0.01
127.0.0.1.
127.0.0.256
127.0.0.1.1
128.0.0.1
126.255.255.255
0.0.0.0
192.168.0.1:8080
169.254.169.254
::1
::1:8080
[::1
::1]
[::1]8080
[[::1]]
[]
[::]
[::2]
[::ffff:127.0.0.1]
[::ffff:7f00:1]
[::127.0.0.1]
[fe80::1]
[::1%25lo]
[::1%lo]
[127.0.0.1]
[localhost]
localhost:
localhost:0
localhost:-1
localhost:+80
localhost:65536
localhost:99999
localhost:080
localhost:8080:8080
localhost:http
localhost:8_0
127.0.0.1:
[::1]:
:8080
""".split(),
    "",
    " ",
    "localhost evil.com",
    " localhost",
    "localhost ",
    "localhost\t",
    "localhost\n",
    "localhost:8080\n",
    "localhost\x00",
    "localhost, localhost",
    "l\u00f6calhost",
    "127.0.0.\u00b9",
    "a" * 100_000 + ".localhost",
    "1" * 100_000,
]


def refused(*headers: tuple[str, str]) -> str | None:
    """The problem's detail; None when they pass."""
    try:
        given = [(b"accept", b"*/*"), *((name.encode(), value.encode("latin-1")) for name, value in headers), (b"x", b"evil.com")]
        origin.check(fields_of(given))
    except Problem as problem:
        assert problem.type == "forbidden"
        return problem.detail
    return None


@pytest.mark.parametrize("host", OWN)
def test_hosts_of_this_machine(host: str) -> None:
    assert refused(("host", host)) is None
    assert refused(("host", host)) is None, "from the cache"


@pytest.mark.parametrize("host", FOREIGN, ids=lambda host: repr(host[:40]))
def test_hosts_of_others(host: str) -> None:
    for _ in range(2):
        assert refused(("host", host)) == origin.FOREIGN_HOST
    assert refused(("host", "localhost"), ("host", host)) == origin.FOREIGN_HOST
    assert refused(("host", host), ("host", "localhost")) == origin.FOREIGN_HOST


def test_no_host_and_several() -> None:
    assert refused() is None, "comes from no browser"
    assert refused(("origin", "http://localhost")) == origin.FOREIGN_ORIGIN
    assert refused(("host", "localhost"), ("host", "localhost")) == origin.FOREIGN_HOST


@pytest.mark.parametrize(
    ("host", "page"),
    [
        ("localhost:8080", "http://localhost:8080"),
        ("LOCALHOST.:8080", "HTTP://localhost:8080"),
        ("app.localhost:8080", "http://app.localhost:8080"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("[0:0:0:0:0:0:0:1]:8080", "http://[::1]:8080"),
        ("localhost", "http://localhost"),
        ("localhost:80", "http://localhost"),
        ("localhost", "http://localhost:80"),
        ("localhost", "https://localhost"),
        ("localhost:443", "https://localhost"),
        ("localhost", "https://localhost:443"),
        ("localhost:8443", "https://localhost:8443"),
    ],
)
def test_own_pages(host: str, page: str) -> None:
    assert refused(("host", host), ("origin", page)) is None
    assert refused(("origin", page), ("host", host), ("origin", page)) == origin.FOREIGN_ORIGIN


@pytest.mark.parametrize(
    ("host", "page"),
    [
        ("localhost:8080", page)
        for page in """
null
NULL
*
localhost:8080
//localhost:8080
http:localhost:8080
http:/localhost:8080
http://localhost
http://localhost:80
http://localhost:8081
http://localhost:3000
http://127.0.0.1:8080
http://[::1]:8080
http://app.localhost:8080
http://localhost:8080/
http://localhost:8080/docs
http://localhost:8080?x
http://user@localhost:8080
http://localhost:8080@evil.com
http://localhost:8080.evil.com
http://localhost.evil.com:8080
https://evil.com
http://evil.com:8080
ftp://localhost:8080
file://
file://localhost:8080
ws://localhost:8080
httpss://localhost:8080
chrome-extension://localhost:8080
""".split()
    ]
    + [
        ("localhost:8080", ""),
        ("localhost:8080", " "),
        ("localhost:8080", "http://localhost:8080 http://evil.com"),
        ("localhost:8080", "http://localhost:8080, http://localhost:8080"),
        ("localhost:8080", "http://localhost:8080\n"),
        ("localhost", "http://localhost:443"),
        ("localhost", "https://localhost:80"),
        ("localhost:80", "https://localhost"),
        ("localhost:443", "http://localhost"),
        ("127.0.0.1:8080", "http://localhost:8080"),
        ("127.0.0.2:8080", "http://127.0.0.1:8080"),
    ],
)
def test_pages_of_others(host: str, page: str) -> None:
    assert refused(("host", host), ("origin", page)) == origin.FOREIGN_ORIGIN
    own = f"http://{host}"
    assert refused(("host", host), ("origin", own), ("origin", page)) == origin.FOREIGN_ORIGIN
    assert refused(("host", host), ("origin", page), ("origin", own)) == origin.FOREIGN_ORIGIN


def test_what_is_kept_is_bounded_and_never_foreign() -> None:
    origin._asked.cache_clear()
    for host in FOREIGN:
        refused(("host", host))
    assert origin._asked.cache_info().currsize == 0
    for number in range(1000):
        assert refused(("host", f"a{number}.localhost")) is None
    assert origin._asked.cache_info().currsize <= 64


FOREIGN_HEADERS = [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}]
PATHS = sorted({route.path_format for route in ROUTES} | {"/docs", "/openapi.json", "/nothing", "/v1/", "//evil.example", "*", ""})


@pytest.fixture(scope="module")
def app() -> Gate:
    return create_app(Context(Settings()))


@pytest.mark.parametrize("headers", FOREIGN_HEADERS, ids=str)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_the_gate_refuses_before_it_reads(app: Gate, method: str, headers: dict[str, str]) -> None:
    named = [(name.encode(), value.encode()) for name, value in ({"host": "127.0.0.1:8080"} | headers).items()]

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was asked for")

    async def run(path: str) -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": named}
        await app({**scope, "scheme": "http", "http_version": "1.1", "root_path": ""}, receive, send)
        return sent

    for path in PATHS:
        head, *parts = asyncio.run(run(path))
        assert head["status"] == 403, path
        assert (b"content-type", b"application/problem+json") in head["headers"]
        body = b"".join(part["body"] for part in parts)
        assert b'"/problems/forbidden"' in body and b"evil.example" not in body + repr(head).encode()


def test_it_is_counted() -> None:
    def counted() -> int:
        lines = ask("GET", "/metrics").text.splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith('livejoin_requests_total{method="GET",status="403"}'))

    before = counted()
    is_problem(ask("GET", "/livez", headers={"Host": "evil.example"}), "forbidden")
    assert counted() == before + 1


def test_every_operation_declares_it() -> None:
    for path, methods in ask("GET", "/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            assert "forbidden" in operation["responses"]["403"]["description"], (method, path)

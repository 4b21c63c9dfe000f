"""Which proxies are believed, and what they say: in this process."""

from __future__ import annotations

from typing import Any

import pytest

from service.api.http.forwarded import Proxies, outer_url
from service.api.http.media import fields_of


def emitted(allowed: str, peer: str | None, *headers: tuple[str, str]) -> tuple[str | None, str]:
    """The client's address and the URL of /v1, as a request from `peer` with these headers gives them."""
    scope: dict[str, Any] = {"scheme": "http", "client": peer and (peer, 4711)}
    given = [(b"host", b"localhost:8080"), *((name.encode(), value.encode("latin-1")) for name, value in headers)]
    scope["fields"] = fields_of(given)
    Proxies(allowed).apply(scope)
    return scope["client"] and scope["client"][0], outer_url(scope, "/v1")


FOR, PROTO, HOST, PREFIX = (f"x-forwarded-{name}" for name in ("for", "proto", "host", "prefix"))
ALL = (FOR, "192.0.2.1"), (PROTO, "https"), (HOST, "data.example.org:8443"), (PREFIX, "/join")


@pytest.mark.parametrize(
    ("allowed", "peer"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("::1, 10.0.0.0/8", "10.1.2.3"),
        ("fd00::/8", "fd00::1"),
        ("0.0.0.0/0", "198.51.100.7"),
    ],
)
def test_believed(allowed: str, peer: str) -> None:
    assert emitted(allowed, peer, *ALL) == ("192.0.2.1", "https://data.example.org:8443/join/v1")


@pytest.mark.parametrize(
    ("allowed", "peer"),
    [
        ("none", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.1"),
        ("10.0.0.0/8", "11.0.0.1"),
        ("::1", "127.0.0.1"),
        ("0.0.0.0/0", "::1"),
        ("::1", None),
    ],
)
def test_not_believed(allowed: str, peer: str | None) -> None:
    assert emitted(allowed, peer, *ALL) == (peer, "http://localhost:8080/v1")


@pytest.mark.parametrize(
    ("entries", "client"),
    [
        (["192.0.2.1, 10.0.0.9"], "192.0.2.1"),
        (["192.0.2.66, 192.0.2.1, 10.0.0.9, 10.0.0.8"], "192.0.2.1"),  # the first was made up by the client
        (["192.0.2.66", "192.0.2.1"], "192.0.2.1"),
        (["10.0.0.7, 10.0.0.9"], "10.0.0.7"),
        (["192.0.2.1:5000"], "192.0.2.1"),
        (["[2001:db8::1]:5000"], "2001:db8::1"),
        (["2001:db8::1"], "2001:db8::1"),
        (["::ffff:192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1, unknown, 10.0.0.9"], "10.0.0.9"),
        (["unknown"], "10.0.0.1"),
        ([""], "10.0.0.1"),
        (["192.0.2.1\n"], "192.0.2.1"),
        (["_hidden, 1.2.3"], "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_that_is_no_proxy(entries: list[str], client: str) -> None:
    assert emitted("10.0.0.0/8", "10.0.0.1", *((FOR, entry) for entry in entries))[0] == client


@pytest.mark.parametrize(
    ("headers", "url"),
    [
        ([(PROTO, "https")], "https://localhost:8080/v1"),
        ([(PROTO, "HTTPS, http")], "https://localhost:8080/v1"),
        ([(HOST, "data.example.org, inner:80")], "http://data.example.org/v1"),
        ([(HOST, "[2001:db8::1]:80")], "http://[2001:db8::1]:80/v1"),
        ([(PREFIX, "/a/b-c/")], "http://localhost:8080/a/b-c/v1"),
        ([("forwarded", "proto=https;host=evil.example")], "http://localhost:8080/v1"),
        *(([(PROTO, bad)], "http://localhost:8080/v1") for bad in ("ftp", "javascript", "", "https://x")),
        *(([(HOST, bad)], "http://localhost:8080/v1") for bad in ("a b", "user@x", "x/y", "x>; rel=next", "x\r\ny: z", "", "x:123456")),
        *(([(PREFIX, bad)], "http://localhost:8080/v1") for bad in ("join", "//evil.example", "/a b", "/a?b", "/a>;", "/\r\nx", "/", "/ä")),
    ],
)
def test_what_a_proxy_says_is_checked(headers: list[tuple[str, str]], url: str) -> None:
    assert emitted("10.0.0.1", "10.0.0.1", *headers) == ("10.0.0.1", url)


def test_the_scope_of_an_address_is_left_out() -> None:
    """It may be any text, which would get into the logs."""
    assert emitted("::1", "::1", (FOR, "fe80::7%\x9b31m one two")) == ("fe80::7", "http://localhost:8080/v1")
    assert emitted("fe80::/10", "fe80::1%eth0", (FOR, "192.0.2.1"))[0] == "192.0.2.1"

"""Access control by `Origin` and `Host`. As long as there are no access tokens, any client that can reach the service may do everything,
and any web page in a browser on this machine can reach it: through DNS rebinding under a name of its own (`Host`), or from its own origin
(`Origin`). Both are rejected.

Cost: one cache look-up for a known Host. Rejected names are never cached, so they cannot displace valid ones.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

from service.api.http.media import Fields
from service.errors import Problem

_AUTHORITY = r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,254})(?::([1-9][0-9]{0,4}))?"
_HOST = re.compile(_AUTHORITY)
_ORIGIN = re.compile(f"(https?)://{_AUTHORITY}")
_DEFAULT_PORTS = {"http": 80, "https": 443}

FOREIGN_HOST = (
    "the Host header is not a loopback name: use localhost, 127.0.0.1 or [::1] with the port of the service; "
    "a proxy in front of the service must set Host to such a name"
)
FOREIGN_ORIGIN = (
    "the Origin header is not the origin of this service: other web pages may not access it; "
    "use the service's own pages, or a client other than a browser"
)


class Authority(NamedTuple):
    """A loopback host in its normal form, and the port if there is one."""

    host: str
    port: int | None


def check(fields: Fields) -> None:
    """Raise Problem `forbidden` unless the Host is a loopback name, and the Origin that of the Host. A field that appears twice is
    rejected.

    A request without a Host (only HTTP/1.0 allows it) does not come from a browser, so it is accepted, but not with an Origin.
    """
    host, origin = fields.get(b"host"), fields.get(b"origin")
    asked = None if host is None else _asked(host)
    if origin is not None and (asked is None or not _is_of(origin, asked)):
        raise Problem("forbidden", FOREIGN_ORIGIN)


@lru_cache(64)
def _asked(host: bytes) -> Authority:
    """Return the authority that a Host names. Problem `forbidden` for any other than loopback."""
    parts = _HOST.fullmatch(host.decode("latin-1").lower())
    own = None if parts is None else _authority(parts[1], parts[2])
    if own is None:
        raise Problem("forbidden", FOREIGN_HOST)
    return own


def _is_of(origin: bytes, asked: Authority) -> bool:
    """Return whether this is the origin of the pages served under this Host."""
    parts = _ORIGIN.fullmatch(origin.decode("latin-1").lower())
    own = None if parts is None else _authority(parts[2], parts[3])
    if parts is None or own is None:
        return False
    default = _DEFAULT_PORTS[parts[1]]  # of the Host too: a proxy that ends TLS passes on `localhost` for https://localhost
    return own.host == asked.host and (own.port or default) == (asked.port or default)


def _authority(host: str, port: str | None) -> Authority | None:
    """Expects lower case; returns None unless it is certainly loopback and the port is valid."""
    name = _loopback(host)
    number = None if port is None else int(port)
    return None if name is None or (number or 0) > 65535 else Authority(name, number)


def _loopback(host: str) -> str | None:
    if host.startswith("["):
        return "[::1]" if _is_one(host[1:-1]) else None
    name = host.removesuffix(".")
    labels = name.split(".")
    if labels[-1] == "localhost":
        return name if all(labels) else None
    try:  # rejects octal, decimal and short forms, which resolvers interpret differently
        return host if ipaddress.IPv4Address(host).is_loopback else None
    except ValueError:
        return None


def _is_one(address: str) -> bool:
    try:
        return ipaddress.IPv6Address(address) == ipaddress.IPv6Address(1)
    except ValueError:
        return False

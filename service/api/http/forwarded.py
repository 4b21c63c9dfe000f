"""What a proxy in front of the service says about a request that it passes on: the client's address, and the outer scheme, host and prefix.

    X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-Prefix

They are believed only from the addresses of `--forwarded-allow-ips`, because any client can send them. `Forwarded` of RFC 7239 is not
read: a proxy that sets one of the two forms passes on the other as it came. None of them decides who may call the service, because a page
in a browser on the proxy's machine can send them too: `origin.check` looks at `Host` itself.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from service.api.http.bodies import Scope
from service.settings import networks

_AUTHORITY = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9a-fA-F:.]+\](:\d{1,5})?")
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_HOST, _PREFIX_KEY = "livejoin.host", "livejoin.prefix"  # in a request's scope
_PORT = re.compile(r"(\[[^\]]*\]|[^:]*):\d{1,5}")


class Proxies:
    """The proxies that are believed. `allowed`: addresses and networks, separated by commas, or "none"."""

    def __init__(self, allowed: str) -> None:
        self._networks = networks(allowed)
        self._is_proxy = lru_cache(1024)(self._find)

    def apply(self, scope: Scope) -> None:
        """Replace `client` and `scheme` of a request that came through a proxy, and note how the client has addressed it."""
        client = scope.get("client")
        if not self._networks or client is None or not self._is_proxy(client[0]):
            return
        told = {name: value.decode("latin-1") for name, value in scope["fields"].items() if name.startswith(b"x-forwarded-")}
        if (address := self._client(told.get(b"x-forwarded-for", ""))) is not None:
            scope["client"] = (address, 0)
        # Of several values, each proxy adding its own, the first is of the outermost.
        scheme, host, prefix = (told.get(b"x-forwarded-" + name, "").split(",")[0].strip() for name in (b"proto", b"host", b"prefix"))
        if scheme.lower() in ("http", "https"):
            scope["scheme"] = scheme.lower()
        if _AUTHORITY.fullmatch(host):
            scope[_HOST] = host
        if _PREFIX.fullmatch(prefix.rstrip("/")):
            scope[_PREFIX_KEY] = prefix.rstrip("/")

    def _client(self, told: str) -> str | None:
        """The last address that is not a proxy's own: those before it could be made up by the client. None if there is none."""
        found = None
        for entry in reversed(told.split(",")):
            address = _address(entry.strip())
            if address is None:
                break
            found = str(address)
            if not self._is_proxy(found):
                break
        return found

    def _find(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address, with or without a port; IPv4 in the form of IPv6 (`::ffff:192.0.2.1`) is IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        parts = _PORT.fullmatch(text)
        try:
            address = ip_address((parts[1] if parts else text).strip("[]"))
        except ValueError:
            return None
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))  # without a scope, which may be any text
    return address


def outer_url(scope: Scope, path: str) -> str:
    """The URL by which the client reaches `path` (with a query): absolute if its headers, or its proxy's, tell the host."""
    path = scope.get(_PREFIX_KEY, "") + path
    host = scope.get(_HOST) or scope["fields"].get(b"host", b"").decode("latin-1")
    return f"{scope['scheme']}://{host}{path}" if _AUTHORITY.fullmatch(host) else path

"""What a proxy in front of the service reports about a request: the client's address, and the outer scheme, host and prefix.

    X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-Prefix

They are trusted only from the addresses of `--forwarded-allow-ips`, because any client can send them. `Forwarded` of RFC 7239 is not read:
a proxy that sets one of the two forms passes on the other unchanged. None of them decides who may call the service, because a page in a
browser on the proxy's machine can send them too: `origin.check` checks `Host` itself.
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
    """The trusted proxies. `allowed`: addresses and networks, separated by commas, or "none"."""

    def __init__(self, allowed: str) -> None:
        self._networks = networks(allowed)
        self._is_proxy = lru_cache(1024)(self._find)

    def apply(self, scope: Scope) -> None:
        """Replace `client` and `scheme` of a request that came through a proxy, and record how the client has addressed it."""
        client = scope.get("client")
        if not self._networks or client is None or not self._is_proxy(client[0]):
            return
        emitted = {name: value.decode("latin-1") for name, value in scope["fields"].items() if name.startswith(b"x-forwarded-")}
        if (address := self._client(emitted.get(b"x-forwarded-for", ""))) is not None:
            scope["client"] = (address, 0)
        # Each proxy appends its own value; the first one is that of the outermost proxy.
        scheme, host, prefix = (emitted.get(b"x-forwarded-" + name, "").split(",")[0].strip() for name in (b"proto", b"host", b"prefix"))
        if scheme.lower() in ("http", "https"):
            scope["scheme"] = scheme.lower()
        if _AUTHORITY.fullmatch(host):
            scope[_HOST] = host
        if _PREFIX.fullmatch(prefix.rstrip("/")):
            scope[_PREFIX_KEY] = prefix.rstrip("/")

    def _client(self, emitted: str) -> str | None:
        """Return the last address that is not one of the proxies: the client may have invented those before it. None if there is none."""
        found = None
        for entry in reversed(emitted.split(",")):
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
    """Return an address, given with or without a port; IPv4 in the form of IPv6 (`::ffff:192.0.2.1`) is IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        parts = _PORT.fullmatch(text)
        try:
            address = ip_address((parts[1] if parts else text).strip("[]"))
        except ValueError:
            return None
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))  # without the scope, which may be any text
    return address


def outer_url(scope: Scope, path: str) -> str:
    """Return the URL by which the client reaches `path` (with a query): absolute if its headers, or its proxy's, contain the host."""
    path = scope.get(_PREFIX_KEY, "") + path
    host = scope.get(_HOST) or scope["fields"].get(b"host", b"").decode("latin-1")
    return f"{scope['scheme']}://{host}{path}" if _AUTHORITY.fullmatch(host) else path

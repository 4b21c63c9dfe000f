"""The head of a request: what must be wrong in no head, whatever its path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from service.api.http.media import Fields
from service.errors import Problem

_WHOLE = "this is not a valid request in HTTP/1.1: its first line, a header field or a chunk is malformed"
_NO_HOST = "a request in HTTP/1.1 needs the header field Host: send the host and port of the service's address in it"
_BAD_HOST = "the header field Host must be a name or an address, with or without a port, as in localhost:8080"
# RFC 3986, section 3.2, with any characters in an address; it may be empty.
_HOST = re.compile(rb"(\[[\w.%~!$&'()*+,;=:-]+\]|([\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:[0-9]*)?")
_HOSTS = "the header field Host may appear only once"


def malformed(detail: str = _WHOLE) -> Problem:
    return Problem("malformed-body", detail)


def fault(version: str, headers: Sequence[tuple[bytes, bytes]], fields: Fields) -> Problem | None:
    """Return what makes a head invalid that could be parsed; `headers` by lower-case name, `fields`: those of `fields_of`."""
    if version not in ("1.0", "1.1"):  # the parser accepts others
        return malformed()
    if b"host" not in fields:  # RFC 9112, section 3.2
        return None if version == "1.0" else malformed(_NO_HOST)
    if len(fields) < len(headers) and [name for name, _ in headers].count(b"host") > 1:
        return malformed(_HOSTS)
    return None if _is_host(fields[b"host"]) else malformed(_BAD_HOST)


@lru_cache(64)  # a client sends the same with each request: this is one look-up
def _is_host(given: bytes) -> bool:
    return _HOST.fullmatch(given) is not None

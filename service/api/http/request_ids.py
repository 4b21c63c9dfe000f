"""The id of a request: in the `X-Request-Id` of its answer, in the lines of the log about it, and in a problem of status 500."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from itertools import count

from service.wire.log_lines import REQUEST_ID

HEADER = b"x-request-id"
_SANE = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class RequestIds:
    """Gives ids: the one that a client or a proxy has given its request, if it is sane, else one of our own.

    An id of another is not necessarily unique. Cost: under 1 µs.
    """

    def __init__(self) -> None:
        self._run = secrets.token_hex(4)
        self._numbers = count(1)

    def begin(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The id of the request that the current task answers, from now on `REQUEST_ID` too."""
        given = [value for name, value in headers if name == HEADER]
        request = given[0] if len(given) == 1 and _SANE.fullmatch(given[0]) else b"%s-%x" % (self._run.encode(), next(self._numbers))
        REQUEST_ID.set(request.decode())
        return request

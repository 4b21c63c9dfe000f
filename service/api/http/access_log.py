"""One log line per request, with `--access-log on`. Without the query string, which may contain rows, cursors and tokens."""

from __future__ import annotations

import logging

from service.api.http.bodies import Scope

log = logging.getLogger("livejoin.access")

_LONGEST = 1000  # characters of a path


def log_request(scope: Scope, status: int, seconds: float) -> None:
    """`status` 0: the client disconnected before the response. `seconds`: from the head of the request to the end of the response. A
    request with an incomplete head has the method `-`."""
    client = (scope.get("client") or ("",))[0]
    path = scope.get("raw_path", b"").decode("latin-1")[:_LONGEST]
    fields = {"client": client, "method": scope["method"], "path": path, "status": status, "seconds": round(seconds, 6)}
    log.info("%s %s %s %d %.4f s", client, scope["method"], path, status, seconds, extra={"fields": fields})

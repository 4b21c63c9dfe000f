"""Reading the body of a request, up to the maximum size."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from service.api.http import media
from service.errors import Problem
from service.wire.errors import check_utf8
from service.wire.table import first_twice

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ClientGone(Exception):
    """The client closed the connection before its request was complete; no response can be sent."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, at most `limit` bytes of it.

    Problem `body-too-large`: by its Content-Length before a byte is read, else as soon as the limit is passed.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > limit:
            raise _too_large(limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        if len(body) > limit:
            raise _too_large(limit)
        return body
    parts = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()


def _too_large(limit: int) -> Problem:
    return Problem("body-too-large", f"the body is larger than {limit} bytes", limit=limit)


async def read_json(scope: Scope, receive: Receive, limit: int) -> dict[str, Any]:
    """A JSON object. Problems: `unsupported-media-type`, `body-too-large`, `malformed-body`, `bad-definition` (no object)."""
    media.content_type(scope["headers"], (media.JSON,))
    return parse_json(await read_body(scope, receive, limit))


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object. Problems: `malformed-body`, `bad-definition` (no object, or a field twice)."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        check_utf8(body)
        raise Problem("malformed-body", f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})", line=error.lineno) from None
    if not isinstance(value, dict):
        raise Problem("bad-definition", "a definition must be a JSON object")
    with contextlib.suppress(RecursionError):  # deeply nested JSON is refused later for that
        json.loads(body, object_pairs_hook=_refuse_twice, parse_int=len, parse_float=len)
    return value


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    """Problem `bad-definition` for a duplicate field of an object, of which the parser would use the last."""
    if (twice := first_twice(name for name, _ in pairs)) is not None:
        raise Problem("bad-definition", f"{orjson.dumps(twice).decode()} appears twice in one object")

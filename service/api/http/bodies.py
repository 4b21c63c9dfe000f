"""Reading the body of a request, up to what it may take."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, cast

import orjson

from service.api.http import media
from service.api.http.admission import FREE, Bodies, Place
from service.api.http.credentials import require_still
from service.errors import Problem
from service.wire.errors import check_utf8
from service.wire.room import JSON_WEIGHTS, take_text
from service.wire.table import first_twice

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ClientGone(Exception):
    """The client closed the connection before its request was complete; no response can be sent."""


async def read_body(scope: Scope, receive: Receive, place: Place) -> bytes:
    """The whole body, in its place. A large one is a bytearray, which all decoders take as well: it grows without a second copy.

    Problems `body-too-large`, `too-busy`: by its Content-Length before a byte is read, else as soon as a limit is passed; `unauthorized`:
    the token of its sender is no longer in force.
    """
    declared = scope["fields"].get(b"content-length")
    if declared is not None:
        place.expect(int(declared))
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        if declared is None:
            place.expect(len(body))
        require_still(scope)
        return body
    whole = bytearray()
    while True:
        if message["type"] != "http.request":
            raise ClientGone
        whole += message.get("body", b"")
        place.expect(len(whole))
        if not message.get("more_body", False):
            require_still(scope)
            return cast(bytes, whole)
        message = await receive()


@contextlib.asynccontextmanager
async def definition(scope: Scope, receive: Receive, bodies: Bodies, work: Callable[..., Awaitable[Any]]) -> AsyncIterator[dict[str, Any]]:
    """A definition: a JSON object, which counts among the bodies until the context ends. `work` runs a function in a thread, for what would
    hold up the event loop.

    Problems: `unsupported-media-type`, `body-too-large`, `too-busy`, `malformed-body`, `bad-definition` (no object); TooLarge.
    """
    media.content_type(scope["fields"], (media.JSON,))
    place = bodies.definition_place()
    try:
        body = await read_body(scope, receive, place)
        take_text(body, JSON_WEIGHTS, place)
        yield parse_json(body) if len(body) <= FREE else await work(parse_json, body)
    finally:
        place.free()


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object. Problems: `malformed-body`, `bad-definition` (no object, or a field twice)."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        check_utf8(body)
        raise Problem("malformed-body", f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})", line=error.lineno) from None
    if not isinstance(value, dict):
        raise Problem("bad-definition", "the body must be a JSON object")
    with contextlib.suppress(RecursionError):  # deeply nested JSON is refused later for that
        json.loads(body, object_pairs_hook=_refuse_twice, parse_int=len, parse_float=len)
    return value


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    """Problem `bad-definition` for a duplicate field of an object, of which the parser would use the last."""
    if (twice := first_twice(name for name, _ in pairs)) is not None:
        raise Problem("bad-definition", f"{orjson.dumps(twice).decode()} appears twice in one object")

"""Reading the body of a request, within its limits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, cast

import orjson

from livejoin.wire.budget import JSON_WEIGHTS, take_text
from livejoin.wire.errors import check_utf8
from livejoin.wire.table import first_twice
from service.api.http import media
from service.api.http.admission import FREE, Bodies, BodyBudget
from service.api.http.credentials import require_still
from service.errors import Problem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
COMPLETE = "livejoin.complete"  # key of a scope: whether its request has been received completely


class ClientGone(Exception):
    """The client closed the connection before its request was complete; no response can be sent."""


async def read_body(scope: Scope, receive: Receive, budget: BodyBudget) -> bytes:
    """Return the whole body, counted in its place. A large one is a bytearray, which all decoders accept as well: it grows without a second
    copy.

    Problems `body-too-large`, `too-busy`: by its Content-Length before a byte is read, otherwise as soon as a limit is exceeded;
    `unauthorized`: the sender's token is no longer valid.
    """
    declared = scope["fields"].get(b"content-length")
    if declared is not None:
        budget.expect(int(declared))
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        if declared is None:
            budget.expect(len(body))
        require_still(scope)
        return body
    whole = bytearray()
    while True:
        if message["type"] != "http.request":
            raise ClientGone
        whole += message.get("body", b"")
        budget.expect(len(whole))
        if not message.get("more_body", False):
            require_still(scope)
            return cast(bytes, whole)
        message = await receive()


@contextlib.asynccontextmanager
async def definition(
    scope: Scope, receive: Receive, bodies: Bodies, work: Callable[..., Awaitable[Any]], refusal: str = "bad-definition"
) -> AsyncIterator[dict[str, Any]]:
    """Read a definition: a JSON object, which counts among the bodies until the context ends. `work` runs a function in a thread, if it
    would block the event loop. `refusal`: the problem if the JSON is not an object, or has a field twice.

    Problems: `unsupported-media-type`, `body-too-large`, `too-busy`, `malformed-body`, `refusal`; TooLarge.
    """
    media.content_type(scope["fields"], (media.JSON,))
    budget = bodies.definition_budget()
    try:
        body = await read_body(scope, receive, budget)
        take_text(body, JSON_WEIGHTS, budget)
        yield parse_json(body, refusal) if len(body) <= FREE else await work(parse_json, body, refusal)
    finally:
        budget.free()


form = partial(definition, refusal="malformed-body")
"""Reads a JSON object that defines nothing, in the same way."""


def parse_json(body: bytes, refusal: str = "bad-definition") -> dict[str, Any]:
    """Return a JSON object. Problems: `malformed-body`, `refusal` (not an object, or a duplicate field)."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        check_utf8(body)
        raise Problem("malformed-body", f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})", line=error.lineno) from None
    if not isinstance(value, dict):
        raise Problem(refusal, "the body must be a JSON object")
    with contextlib.suppress(RecursionError):  # deeply nested JSON is rejected later for its nesting
        json.loads(body, object_pairs_hook=partial(_refuse_twice, refusal), parse_int=len, parse_float=len)
    return value


def _refuse_twice(refusal: str, pairs: list[tuple[str, Any]]) -> None:
    """Raise this problem for a duplicate field of an object: the parser would use the last one."""
    if (twice := first_twice(name for name, _ in pairs)) is not None:
        raise Problem(refusal, f"{orjson.dumps(twice).decode()} appears twice in one object")

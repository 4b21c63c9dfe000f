"""Helpers for handlers: responses, and names in paths."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from starlette.responses import Response

from livejoin.wire.errors import cut
from livejoin.wire.wording import instead
from service.access.access_token import AccessToken
from service.api.http import media
from service.errors import Problem
from service.instance import Instance

# The type of an ASGI message of our own, which replaces the two of a response in one part: "status", "head" (the header fields as they are
# sent, names in lower case, each with its line end, including Content-Length), "body". It takes the server a third of the time.
WHOLE = "livejoin.whole"
# Another one: "pieces" of a body, bytes or buffers, with more to follow. They are sent without joining them first, and other connections
# get their turns in between.
PIECES = "livejoin.pieces"
# A field of the first message and of the last one: a function that is called from time to time, in the event loop, while the client is
# receiving the response and does not have all of it yet.
TAKEN = "livejoin.taken"


def json_answer(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type=media.JSON)


def missing(engine: Instance, token: AccessToken, kind: Literal["relation", "view"], name: str) -> Problem:
    """Return Problem `not-found`, suggesting the most similar name, among those that the token covers."""
    relations, views = filter(token.covers_relation, engine.relations), filter(token.covers_view, engine.views)
    same, others, other = (views, relations, "relation") if kind == "view" else (relations, views, "view")
    there = f", but a {other}" if name in others else instead(name, same)
    return Problem("not-found", f"there is no {kind} {cut(name)!r}{there}")

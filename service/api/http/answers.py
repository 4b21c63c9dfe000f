"""Helpers for handlers: answers, names in paths."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from starlette.requests import Request
from starlette.responses import Response

from service.access.access_token import AccessToken
from service.api.http import media, parameters
from service.errors import Problem
from service.instance import Instance
from service.wire.errors import cut
from service.wire.wording import instead

# The type of an ASGI message of our own, in place of the two of an answer that has no further parts: "status", "head" (its fields as
# they go over the wire, names in lower case, each with its line end, Content-Length among them), "body". It takes the server a third of
# the time.
WHOLE = "livejoin.whole"
# Another one: "pieces" of a body, bytes or buffers of them, of which more will follow. They are sent as they are, not joined before, and
# other connections have their turns between them.
PIECES = "livejoin.pieces"
# A field of the first message and of the last one: what is called now and then, in the event loop, while the client takes some of what was
# sent and does not have all of it yet.
TAKEN = "livejoin.taken"


def json_answer(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type=media.JSON)


def existing(engine: Instance, request: Request, kind: Literal["relation", "view"]) -> str:
    """The name in the path if it exists, else Problem `not-found`."""
    name: str = request.path_params["name"]
    if name not in (engine.views if kind == "view" else engine.relations):
        raise missing(engine, request.scope["token"], kind, name)
    return name


def missing(engine: Instance, token: AccessToken, kind: Literal["relation", "view"], name: str) -> Problem:
    """`not-found`, with the name that was probably meant: of those that the token is for."""
    relations, views = filter(token.covers_relation, engine.relations), filter(token.covers_view, engine.views)
    same, others, other = (views, relations, "relation") if kind == "view" else (relations, views, "view")
    there = f", but a {other}" if name in others else instead(name, same)
    return Problem("not-found", f"there is no {kind} {cut(name)!r}{there}")


def no_parameters(request: Request) -> None:
    """Problem `bad-parameter` for any query parameter."""
    parameters.read(request.scope["query_string"], ())

"""Helpers for handlers: answers, names in paths."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from service.api.http import media, parameters
from service.errors import Problem

# The type of an ASGI message of our own, in place of the two of an answer that has no further parts: "status", "head" (its fields as
# they go over the wire, names in lower case, each with its line end, Content-Length among them), "body". It takes the server a third of
# the time.
WHOLE = "livejoin.whole"


def json_answer(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type=media.JSON)


def existing(names: Container[str], request: Request, what: str) -> str:
    """The name in the path if it exists, else Problem `not-found`."""
    name: str = request.path_params["name"]
    if name not in names:
        raise Problem("not-found", f"there is no {what} {name!r}")
    return name


def no_parameters(request: Request) -> None:
    """Problem `bad-parameter` for any query parameter."""
    parameters.read(request.scope["query_string"], ())

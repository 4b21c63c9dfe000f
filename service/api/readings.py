"""`POST /v1/views/{name}/readings`: a view at one version in parts, for parallel readers."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service.access.access_token import AccessToken, moment
from service.access.rights import forbidden
from service.api.context import Context
from service.api.http.admission import client_of
from service.api.http.answers import existing, json_answer, no_parameters
from service.api.http.bodies import form
from service.api.openapi import Endpoint, answer, failures, json_content, operation, path_parameter
from service.errors import bad_parameter
from service.following.feeds import Feed
from service.reading.held import begin_reading, find_reading

PARTS, MOST_PARTS = 8, 1000
HOLD, LONGEST_HOLD = 600, 3600  # seconds
_BOUNDS = {"parts": (1, MOST_PARTS), "hold": (1, LONGEST_HOLD), "version": (0, 2**63 - 1)}


async def begin(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    engine = context.engine
    view = engine.views[existing(engine, request, "view")]
    async with form(request.scope, request.receive, context.bodies, context.work) as data:
        asked = _asked(data)
    hold, version = asked.get("hold", HOLD), asked.get("version")
    arguments = engine.readers, view.name, asked.get("parts", PARTS), hold, version, client_of(request.scope)
    expires = moment(time.time() + hold)
    held = await context.loop.run_in_executor(context.readers, begin_reading, *arguments)
    token = view.feed.token(held.version) if isinstance(view.feed, Feed) else None
    told = {"id": held.id, "version": held.version, "token": token, "cursors": held.cursors, "expires": expires}
    return json_answer(told, 201)


def _asked(data: dict[str, Any]) -> dict[str, int]:
    """Return the given fields. Problem `bad-parameter`."""
    for name, value in data.items():
        if name not in _BOUNDS:
            raise bad_parameter(name[:40], f"is not a field of a reading: it has {', '.join(_BOUNDS)}")
        low, high = _BOUNDS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise bad_parameter(name, f"must be an integer from {low} to {high}")
    return data


async def end(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    readers = context.engine.readers
    held = find_reading(readers, request.path_params["id"])
    token: AccessToken = request.scope["token"]
    if not token.covers_view(held.view):
        raise forbidden(token, "read", "is not for the view of this reading")
    readers.holdings.release(held)
    return Response(status_code=204)


_READING = {
    "id": "b3BhcXVlLWlk",
    "version": 42,
    "token": "eyJ2IjogNDJ9",
    "cursors": ["eyJ2IjogNDJ9", "eyJ2IjogNDN9"],
    "expires": "2026-01-01T12:10:00Z",
}
_REFUSALS = (
    "bad-parameter", "malformed-body", "body-too-large", "unsupported-media-type", "not-found", "snapshot-expired",
    "too-busy", "view-building", "view-failed",
)  # fmt: skip

ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/views/{name}/readings",
        begin,
        operation(
            "beginReading",
            "Hold a version of a view, to be read in parts",
            tag="rows",
            description="All cursors together return every row of the view at one version exactly once. Each cursor can be read with "
            "`GET /v1/views/{name}/rows?cursor=` any number of times until `expires`; if the client has reached its limit of cursors, "
            "those that have been read completely make room. There may be fewer parts than requested: a view with UNION or EXCEPT, "
            "or with the coverage of groups, has one part. `token` follows from this version (null: the view keeps no changes).",
            parameters=[path_parameter("name", "the view", "clashes")],
            body=json_content("ReadingForm", {"parts": PARTS, "hold": HOLD}),
            responses={**answer(201, "the version is held", json_content("Reading", _READING)), **failures(*_REFUSALS)},
        ),
    ),
    Endpoint(
        "DELETE",
        "/v1/readings/{id}",
        end,
        operation(
            "endReading",
            "Release the version of a reading",
            tag="rows",
            description="Reads in progress continue; the cursors cannot be used for new ones.",
            parameters=[path_parameter("id", "the reading", "b3BhcXVlLWlk")],
            responses={**answer(204, "the version is released"), **failures("bad-parameter", "not-found")},
        ),
    ),
]

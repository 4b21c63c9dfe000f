"""`POST /v1/views/{name}/readings`, `/v1/relations/{name}/readings`: the rows at one version in parts, for parallel readers."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from service.access.access_token import moment
from service.access.rights import forbidden
from service.api.http.admission import client_of
from service.api.http.answers import json_answer
from service.api.http.bodies import form
from service.api.http.parameters import checked
from service.api.models import answers
from service.api.models.requests import ReadingForm
from service.api.openapi import answer, body, failures, json_content
from service.api.routing import RelationName, ServiceRequest, ViewName, router
from service.api.rows import window
from service.following.feeds import Feed
from service.reading.choosing import Asked
from service.reading.cursors import live_view
from service.reading.held import begin_reading, find_reading
from service.tables.relations import Relation
from service.views.live_view import LiveView

routes = router("rows")

_READING = {
    "id": "b3BhcXVlLWlk",
    "version": 42,
    "token": "eyJ2IjogNDJ9",
    "cursors": ["eyJ2IjogNDJ9", "eyJ2IjogNDN9"],
    "expires": "2026-01-01T12:10:00Z",
}
_REFUSALS = (
    "bad-parameter", "malformed-body", "body-too-large", "unsupported-media-type", "not-found", "snapshot-expired",
    "too-busy", "disk-full", "view-building", "view-failed",
)  # fmt: skip


@routes.post(
    "/v1/views/{name}/readings",
    operation_id="beginReading",
    summary="Hold a version of a view, to be read in parts",
    description="All cursors together return every row of the view at one version exactly once. Each cursor can be read with "
    "`GET /v1/views/{name}/rows?cursor=` any number of times until `expires`; if the client has reached its limit of cursors, those that "
    "have been read completely make room. There may be fewer parts than requested: a view with UNION or EXCEPT, or with the coverage of "
    "groups, has one part, and so have rows that are found by a key or a window. `token` follows from this version (null: the view keeps "
    "no changes).",
    openapi_extra=body(json_content(ReadingForm, {"parts": 8, "hold": 600})),
    responses={**answer(201, "the version is held", json_content(answers.Reading, _READING)), **failures(*_REFUSALS)},
)
async def begin(request: ServiceRequest, name: ViewName) -> Response:
    request.require_view(name)
    return await _begun(request, live_view(request.context.engine.readers, name))


@routes.post(
    "/v1/relations/{name}/readings",
    operation_id="beginRelationReading",
    summary="Hold a version of a relation, to be read in parts",
    description="As for views: each cursor is read with `GET /v1/relations/{name}/rows?cursor=`. A named reading may be of views and "
    "relations, at one version. `token` is null.",
    openapi_extra=body(json_content(ReadingForm, {"parts": 8, "hold": 600})),
    responses={
        **answer(201, "the version is held", json_content(answers.Reading, _READING | {"token": None})),
        **failures(*_REFUSALS[:-2]),
    },
)
async def begin_of_relation(request: ServiceRequest, name: RelationName) -> Response:
    request.require_relation(name)
    return await _begun(request, request.context.engine.relations[name])


async def _begun(request: ServiceRequest, of: LiveView | Relation) -> Response:
    context = request.context
    async with form(request.scope, request.receive, context.bodies, context.work) as data:
        given = checked(ReadingForm, data)
    named = given.overlaps if isinstance(given.overlaps, dict) else {"": given.overlaps} if given.overlaps else {}
    asked = Asked({name: window(text) for name, text in named.items()} or None, None, None, given.where, given.columns)
    of_all = context.engine.readers, of, given.parts, given.hold, given.version, client_of(request.scope), given.name
    held, cursors = await context.loop.run_in_executor(context.readers, begin_reading, *of_all, asked)
    token = of.feed.token(held.version) if isinstance(of, LiveView) and isinstance(of.feed, Feed) else None
    begun = {"id": held.id, "version": held.version, "token": token, "cursors": cursors, "expires": moment(time.time() + held.idle)}
    return json_answer(begun, 201)


@routes.delete(
    "/v1/readings/{id}",
    summary="Release the version of a reading",
    description="Reads in progress continue; the cursors cannot be used for new ones.",
    responses={**answer(204, "the version is released"), **failures("bad-parameter", "not-found")},
)
async def end_reading(
    request: ServiceRequest, id_: Annotated[str, Path(alias="id", description="the reading", examples=["b3BhcXVlLWlk"])]
) -> Response:
    readers, token = request.context.engine.readers, request.token
    held = find_reading(readers, id_)
    if not all(token.covers_view(name) if kind == "view" else token.covers_relation(name) for kind, name in held.read):
        raise forbidden(token, "read", "is not for the views and relations of this reading")
    readers.holdings.release(held)
    return Response(status_code=204)

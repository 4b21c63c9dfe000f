"""Views: registering, explaining, listing, dropping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from livejoin.wire.schema import RelationDefinition
from service.access.access_token import AccessToken
from service.access.rights import require_relation
from service.api.context import Context
from service.api.dashboard.shape import shape_json
from service.api.http import media
from service.api.http.admission import client_of
from service.api.http.answers import existing, json_answer, no_parameters
from service.api.http.bodies import definition
from service.api.openapi import Endpoint, answer, failures, json_content, links, operation, path_parameter
from service.api.relations import checked_name
from service.api.schemas.examples import OTHER_PLAN, PLAN, VIEW, VIEW_JSON, VIEW_SQL
from service.api.steps import Steps, finish
from service.engine.versions import Version
from service.errors import Problem
from service.instance import Instance
from service.planning.natural import natural_json
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.tables.estimates import estimates_of
from service.views.live_view import LiveView
from service.views.parse import parse_view

BUILD_WAIT = 1.0  # seconds; a view that takes longer is answered with 202
EMPTY_WAIT = 1.0  # seconds; emptiness that takes longer to determine is not reported


def view_json(view: LiveView, version: Version) -> dict[str, Any]:
    """Return a view as the interface shows it at a pinned version. `empty` is null if this requires reading rows."""
    shown: dict[str, Any] = {
        "name": view.name,
        "state": view.state,
        "version": version.number,
        "empty": None,
        "definition": view.view.definition,
        "plan": view.view.plan.to_json(),
        "shape": shape_json(view),
        "statistics": view.statistics(),
    }
    if view.state == "building":
        shown["progress"] = view.progress
    elif view.state == "failed":
        problem = view.problem or Problem("view-failed", "the structures of this view failed")
        shown["problem"] = problem.to_json()
    elif view.id in version.roots:
        join, root, _ = version.roots[view.id]
        shown["empty"] = join.is_empty(root)
    return shown


def _one_json(engine: Instance, view: LiveView) -> Steps[dict[str, Any]]:
    """Return the same at the newest version; reads rows if `empty` requires it."""
    (shown,) = _all_json(engine, [view])
    if shown["state"] == "live" and shown["empty"] is None:
        shown["version"], shown["empty"] = yield from _emptiness(engine, view.name)
    return shown


def _all_json(engine: Instance, views: list[LiveView]) -> list[dict[str, Any]]:
    pin = engine.versions.pin()
    try:
        with engine.versions.reading(pin) as version:
            return [view_json(view, version) for view in views]
    finally:
        engine.versions.release(pin)


def _all_encoded(engine: Instance, views: list[LiveView]) -> bytes:
    return orjson.dumps({"views": _all_json(engine, views)})


def _emptiness(engine: Instance, name: str) -> Steps[tuple[int, bool | None]]:
    """Return version and emptiness; None if a comparison drops many candidates and no row has been found yet."""
    until = time.monotonic() + EMPTY_WAIT
    reader = open_rows(engine.readers, name)
    try:
        while (empty := reader.empty()) is None and time.monotonic() < until:
            yield
        return reader.version, empty
    finally:
        reader.close()


async def put_view(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    no_parameters(request)
    name = checked_name(request, "view")
    token: AccessToken = request.scope["token"]
    async with definition(request.scope, request.receive, context.bodies, context.work) as data:
        if token.relations is not None:  # a view gives its definer the rows of its relations
            await context.work(parse_view, name, data, Readable(engine, token), None, False, engine.limits)
        view, built = await context.register(engine.register, name, data, client_of(request.scope))
    if built is not None:
        await asyncio.wait([asyncio.wrap_future(built)], timeout=BUILD_WAIT)  # without holding a thread
    status = 200 if built is None else 202 if view.state == "building" else 201
    return json_answer(await finish(context, context.readers, request.receive, _one_json(engine, view)), status)


async def get_view(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    no_parameters(request)
    view = engine.views[existing(engine, request, "view")]
    return json_answer(await finish(context, context.readers, request.receive, _one_json(engine, view)))


async def list_views(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    no_parameters(request)
    views = [view for name, view in sorted(engine.views.items()) if request.scope["token"].covers_view(name)]
    return Response(await context.look(_all_encoded, engine, views), media_type=media.JSON)


async def delete_view(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    no_parameters(request)
    name = existing(engine, request, "view")
    await context.wait(engine.drop_view, name)
    return Response(status_code=204)


async def explain(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    no_parameters(request)
    async with definition(request.scope, request.receive, context.bodies, context.work) as data:
        return json_answer(await context.work(_explain, engine, request.scope["token"], data))


class Readable(Mapping[str, RelationDefinition]):
    """The definitions of the relations that a token may read. Looking up any other, whether it exists or not, is Problem `forbidden`."""

    def __init__(self, engine: Instance, token: AccessToken) -> None:
        self._relations, self._token = engine.relations, token

    def __getitem__(self, name: str) -> RelationDefinition:
        require_relation(self._token, name, "read")
        return self._relations[name].definition

    def __iter__(self) -> Iterator[str]:
        return filter(self._token.covers_relation, self._relations)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _explain(engine: Instance, token: AccessToken, data: dict[str, Any]) -> dict[str, Any]:
    """Return the plans; `natural` for a natural join; and `measured`, by name: the statistics of live views with exactly this
    definition."""
    tables = engine.relations
    relations = Readable(engine, token)
    pin = engine.versions.pin()
    try:
        with engine.versions.reading(pin) as version:
            counted = partial(estimates_of, relations=tables, version=version.number)
            view = parse_view("explained", data, relations, counted, limits=engine.limits)
            others = alternatives(view.query, relations, counted)
            natural = natural_json(view.query, relations, counted(view.query))
    finally:
        engine.versions.release(pin)
    explained: dict[str, Any] = {"plan": view.plan.to_json(), "alternatives": [plan.to_json() for plan in others]}
    if natural is not None:
        explained["natural"] = natural
    seen = [one for name, one in sorted(engine.views.items()) if token.covers_view(name)]
    live = [one for one in seen if one.state == "live" and one.view.stated == view.stated]
    if live:  # only then: a definition's guarantees need no view
        explained["measured"] = {one.name: one.statistics() for one in live}
    return explained


_NAME = path_parameter("name", "the view", "clashes")
_REFUSALS = (
    "bad-parameter",
    "malformed-body",
    "body-too-large",
    "unsupported-media-type",
    "bad-definition",
    "unknown-relation",
    "unknown-column",
    "unsupported-query",
    "bad-query",
    "infeasible-view",
)
_BODY = json_content("ViewDefinition", VIEW_SQL, VIEW_JSON)
_VIEW = json_content("View", VIEW)
_BUILDING = json_content("View", VIEW | {"state": "building", "empty": None, "progress": 0.4})
_NEXT = links("getView", "putView", "viewRows", "viewVersion", "viewCount", "viewChanges", "deleteView")

ENDPOINTS = [
    Endpoint(
        "GET",
        "/v1/views",
        list_views,
        operation(
            "listViews",
            "List the views",
            tag="views",
            responses={**answer(200, "the views", json_content("Views", {"views": [VIEW]})), **failures("bad-parameter")},
        ),
    ),
    Endpoint(
        "GET",
        "/v1/views/{name}",
        get_view,
        operation(
            "getView",
            "Get a view: its state, plan and statistics",
            tag="views",
            parameters=[_NAME],
            responses={**answer(200, "the view", _VIEW), **failures("bad-parameter", "not-found")},
        ),
    ),
    Endpoint(
        "PUT",
        "/v1/views/{name}",
        put_view,
        operation(
            "putView",
            "Register a view, as SQL or as JSON",
            tag="views",
            parameters=[_NAME],
            body=_BODY,
            responses={
                **answer(201, "created", _VIEW, following=_NEXT),
                **answer(200, "already registered with this definition", _VIEW, following=_NEXT),
                **answer(202, "being built", _BUILDING, following=_NEXT),
                **failures(*_REFUSALS, "definition-differs", "too-many", "disk-full", "no-room"),
            },
        ),
    ),
    Endpoint(
        "DELETE",
        "/v1/views/{name}",
        delete_view,
        operation(
            "deleteView",
            "Drop a view",
            tag="views",
            parameters=[_NAME],
            responses={**answer(204, "dropped"), **failures("bad-parameter", "not-found", "disk-full")},
        ),
    ),
    Endpoint(
        "POST",
        "/v1/explain",
        explain,
        operation(
            "explain",
            "Show the plan of a definition, the alternatives, properties of a natural join, and measurements of live views",
            tag="views",
            body=_BODY,
            responses={
                **answer(200, "the plans", json_content("Explanation", {"plan": PLAN, "alternatives": [OTHER_PLAN]})),
                **failures(*_REFUSALS),
            },
        ),
    ),
]

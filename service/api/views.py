"""Views: registering, explaining, listing, dropping."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from livejoin.wire.errors import cut
from livejoin.wire.schema import RelationDefinition
from service.access.access_token import AccessToken
from service.access.rights import require_relation
from service.api.dashboard.shape import shape_json
from service.api.http import media
from service.api.http.answers import json_answer
from service.api.http.bodies import definition
from service.api.http.parameters import Flag, Parameters
from service.api.models import answers
from service.api.models.examples import EXPLANATION, VIEW, VIEW_JSON, VIEW_SQL
from service.api.models.requests import ViewDefinition
from service.api.openapi import answer, body, failures, json_content, links
from service.api.routing import ServiceRequest, ViewName, checked_name, hiding_views, router
from service.api.steps import Steps, finish
from service.engine.catalog.registrations import is_over
from service.engine.versions import Version
from service.errors import Problem
from service.instance import Instance
from service.planning.natural import natural_json
from service.planning.planner import Counted, alternatives
from service.reading.cursors import open_rows
from service.tables.estimates import estimates_of, rows_of
from service.views.live_view import LiveView
from service.views.parse import View, parse_view

routes = router("views")

BUILD_WAIT = 1.0  # seconds; a view that takes longer is answered with 202
_ROW_BYTES = 40  # of a stored row besides its columns
_CREATE = re.compile(r'\s*CREATE\s+(?P<replaces>OR\s+REPLACE\s+)?VIEW\s+(?:"(?P<quoted>[^"]*)"|(?P<plain>\w+))\s+AS\b\s*', re.IGNORECASE)
EMPTY_WAIT = 1.0  # seconds; emptiness that takes longer to determine is not reported


def view_json(engine: Instance, view: LiveView, version: Version, token: AccessToken) -> dict[str, Any]:
    """Return a view as the interface shows it at a pinned version. `empty` is null if this requires reading rows."""
    stored = engine.stored_for([view])
    readers = [name for name, other in sorted(engine.views.items()) if view.name in other.view.reads and token.covers_view(name)]
    shown: dict[str, Any] = {
        "name": view.name,
        "state": view.state,
        "version": version.number,
        "empty": None,
        "definition": view.view.definition,
        "reads": [*view.view.reads],
        "read_by": readers,
        "inputs": view.costs,
        "stored": [_stored_json(one.view, one.costs, one.relation.table.rows, one.held) for one in stored],
        "plan": view.view.plan.to_json(),
        "shape": shape_json(view),
        "statistics": view.statistics(),
    }
    if (replacement := engine.replacements.of(view.name)) is not None:
        problem = replacement.problem
        shown["replacement"] = {"progress": replacement.progress} if problem is None else {"problem": problem.to_json()}
    if view.state == "building":
        shown["progress"] = view.progress
    elif view.state == "failed":
        shown["problem"] = (view.problem or Problem("view-failed", "the structures of this view failed")).to_json()
    elif view.id in version.roots:
        join, root, *_ = version.roots[view.id]
        shown["empty"] = join.is_empty(root)
    return shown


def _stored_json(view: View, costs: Mapping[str, float | None], rows: float | None, size: float | None) -> dict[str, Any]:
    plan = view.plan
    inputs = costs or dict.fromkeys(name for _, name in view.query.whole.aliases if name not in view.constants)
    shown = {"name": view.name, "query": view.definition["sql"], "inputs": inputs, "class": plan.cls, "algorithm": plan.algorithm}
    return shown | {"guarantee": plan.guarantee, "rows": rows and round(rows), "bytes": size and round(size)}


def _one_json(engine: Instance, view: LiveView, token: AccessToken) -> Steps[dict[str, Any]]:
    """Return the same at the newest version; reads rows if `empty` requires it."""
    (shown,) = _all_json(engine, [view], token)
    if shown["state"] == "live" and shown["empty"] is None:
        shown["version"], shown["empty"] = yield from _emptiness(engine, view.name)
    return shown


def _all_json(engine: Instance, views: list[LiveView], token: AccessToken) -> list[dict[str, Any]]:
    pin = engine.versions.pin()
    try:
        with engine.versions.reading(pin) as version:
            return [view_json(engine, view, version, token) for view in views]
    finally:
        engine.versions.release(pin)


def _all_encoded(engine: Instance, views: list[LiveView], token: AccessToken) -> bytes:
    return orjson.dumps({"views": _all_json(engine, views, token)})


def _emptiness(engine: Instance, name: str) -> Steps[tuple[int, bool | None]]:
    """Return version and emptiness; None if a comparison drops many candidates and no row has been found yet."""
    until = time.monotonic() + EMPTY_WAIT
    with closing(open_rows(engine.readers, name)) as reader:
        reader.leave_uncounted()
        while (empty := reader.empty()) is None and time.monotonic() < until:
            yield
        return reader.version, empty


class PutViewParameters(Parameters):
    replace: Flag = Field(
        False,
        description="give a view of this name the new definition, in a version of its own; until then it stays as it is. Views that read "
        "it are built again with it. Its followers get the difference, or, if the columns change, `token-expired`",
        examples=[False],
    )


_NEXT = links("getView", "putView", "viewRows", "viewVersion", "viewCount", "viewChanges", "deleteView")
_VIEW = json_content(answers.View, VIEW)
_BODY = body(json_content(ViewDefinition, VIEW_SQL, VIEW_JSON))
_REFUSALS = (
    "bad-parameter", "malformed-body", "body-too-large", "unsupported-media-type", "bad-definition", "unknown-relation", "unknown-column",
    "unsupported-query", "bad-query", "infeasible-view",
)  # fmt: skip


@routes.put(
    "/v1/views/{name}",
    summary="Register a view, as SQL or as JSON",
    openapi_extra=_BODY,
    responses={
        **answer(201, "created", _VIEW, following=_NEXT),
        **answer(200, "already registered with this definition, or replaced", _VIEW, following=_NEXT),
        **answer(
            202,
            "being built, or the definition that replaces it is",
            json_content(answers.View, VIEW | {"state": "building", "empty": None, "progress": 0.4}),
            following=_NEXT,
        ),
        **failures(*_REFUSALS, "definition-differs", "too-many", "disk-full", "no-room", "too-busy", "view-failed"),
    },
)
async def put_view(request: ServiceRequest, name: ViewName, query: Annotated[PutViewParameters, Query()]) -> Response:
    context = request.context
    engine = context.engine
    checked_name(name, "view")
    token = request.token
    async with definition(request.scope, request.receive, context.bodies, context.work) as data:
        data, replaces = _statement(name, data)
        replaces = replaces or query.replace
        if token.relations is not None or token.views is not None:  # a view gives its definer the rows of what it reads
            await context.work(_parse, engine, token, name, data)
        is_new = name not in engine.views
        with hiding_views(token):
            view, built = await context.register(engine.register, name, data, replaces)
    if built is not None:
        await asyncio.wait([asyncio.wrap_future(built)], timeout=BUILD_WAIT)  # without holding a thread
    status = 200 if built is None else 202 if not is_over(built) else 201 if is_new else 200
    view = engine.views.get(name, view)
    return json_answer(await finish(context, context.readers, request.receive, _one_json(engine, view, token)), status)


@routes.get(
    "/v1/views/{name}",
    summary="Get a view: its state, plan and statistics",
    responses={**answer(200, "the view", _VIEW), **failures("bad-parameter", "not-found")},
)
async def get_view(request: ServiceRequest, name: ViewName) -> Response:
    context = request.context
    engine, view = context.engine, request.view(name)
    return json_answer(await finish(context, context.readers, request.receive, _one_json(engine, view, request.token)))


@routes.get(
    "/v1/views",
    summary="List the views",
    responses={**answer(200, "the views", json_content(answers.Views, {"views": [VIEW]})), **failures("bad-parameter")},
)
async def list_views(request: ServiceRequest) -> Response:
    context = request.context
    engine = context.engine
    views = [view for name, view in sorted(engine.views.items()) if request.token.covers_view(name)]
    return Response(await context.look(_all_encoded, engine, views, request.token), media_type=media.JSON)


@routes.delete(
    "/v1/views/{name}",
    summary="Drop a view; refused if another view reads it",
    responses={**answer(204, "dropped"), **failures("bad-parameter", "not-found", "relation-in-use", "disk-full")},
)
async def delete_view(request: ServiceRequest, name: ViewName) -> Response:
    context = request.context
    request.require_view(name)
    with hiding_views(request.token):
        await context.wait(context.engine.drop_view, name)
    return Response(status_code=204)


@routes.post(
    "/v1/explain",
    summary="Show the plan of a definition, the alternatives, properties of a natural join, and measurements of live views",
    openapi_extra=_BODY,
    responses={
        **answer(200, "the plans", json_content(answers.Explanation, EXPLANATION)),
        **failures(*_REFUSALS),
    },
)
async def explain(request: ServiceRequest) -> Response:
    context = request.context
    async with definition(request.scope, request.receive, context.bodies, context.work) as data:
        return json_answer(await context.work(_explain, context.engine, request.token, data))


class ReadableRelations(Mapping[str, RelationDefinition]):
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


def _statement(name: str, data: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a definition that may be the statement CREATE VIEW, without that, and whether it says OR REPLACE. Problem `bad-definition`."""
    text = data.get("sql")
    if not isinstance(text, str) or (found := _CREATE.match(text)) is None:
        return data, False
    quoted, plain = found["quoted"], found["plain"]
    if (named := quoted if plain is None else plain.lower()) != name:
        raise Problem("bad-definition", f"the statement creates the view {cut(named)}, and the path of the request names {name}")
    return data | {"sql": text[found.end() :]}, found["replaces"] is not None


def _parse(engine: Instance, token: AccessToken, name: str, data: dict[str, Any], counted: Counted | None = None) -> View:
    """As `parse_view`, of what the token may read. Problem `forbidden`."""
    definitions = {one.name: one.definition for one in engine.relations.values()}
    views = {one: source for one, source in engine.view_sources.items() if token.covers_view(one)}
    return parse_view(name, data, definitions, counted, False, engine.limits, views, ReadableRelations(engine, token))


def _explain(engine: Instance, token: AccessToken, data: dict[str, Any]) -> dict[str, Any]:
    """Return the plans; `natural` for a natural join; and `measured`, by name: the statistics of live views with exactly this
    definition."""
    tables = engine.relations
    pin = engine.versions.pin()
    try:
        with engine.versions.reading(pin) as version:
            counted = partial(estimates_of, relations=tables, version=version.number)
            view = _parse(engine, token, "explained", data, counted)
            others = alternatives(view.query, view.definitions, counted)
            shown = [(one.view, len(one.shown.columns)) for one in view.stored.values()]
            estimated = [(one, rows_of(one.query, one.relations, counted(one.query)), width) for one, width in shown]
            natural = natural_json(view.query, view.definitions, counted(view.query))
    finally:
        engine.versions.release(pin)
    explained: dict[str, Any] = {
        "plan": view.plan.to_json(), "alternatives": [plan.to_json() for plan in others], "reads": [*view.reads],
        "stored": [_stored_json(one, {}, rows, rows and rows * (8 * width + _ROW_BYTES)) for one, rows, width in estimated],
    }  # fmt: skip
    if natural is not None:
        explained["natural"] = natural
    seen = [one for name, one in sorted(engine.views.items()) if token.covers_view(name)]
    live = [one for one in seen if one.state == "live" and _is_same(engine, one, view)]
    if live:  # only then: a definition's guarantees need no view
        explained["measured"] = {one.name: one.statistics() for one in live}
    return explained


def _is_same(engine: Instance, live: LiveView, view: View) -> bool:
    """Return whether a definition is that of a live view, whose names mean what they meant when it was registered."""
    before, now = live.view.relations, view.relations
    if before.keys() == now.keys() and before != now:  # a relation has been extended
        return engine.registrations.is_as_registered(live, view.definition)
    return live.view.stated == view.stated

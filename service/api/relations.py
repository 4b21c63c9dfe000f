"""Relations: registering, listing, dropping."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from livejoin.wire.schema import NAME, RelationDefinition, parse_patch, parse_relation
from service.access.access_token import AccessToken
from service.api.context import Context
from service.api.http import media, parameters
from service.api.http.answers import existing, json_answer, no_parameters
from service.api.http.bodies import definition
from service.api.http.parameters import Parameter
from service.api.openapi import Endpoint, answer, failures, json_content, links, operation, path_parameter, query_parameters
from service.api.schemas.examples import PATCH, RELATION, RELATION_DEFINITION
from service.engine.refusals import InUse
from service.errors import Problem
from service.instance import Instance


def relation_json(engine: Instance, name: str) -> dict[str, Any]:
    """Return a relation as the interface shows it; `rows` at the published version."""
    return _shown(engine, name, engine.relations[name].definition)


def _shown(engine: Instance, name: str, definition: RelationDefinition) -> dict[str, Any]:
    return {"name": name} | definition.to_json() | {"rows": engine.rows_of(name)}


def _all_encoded(engine: Instance, token: AccessToken) -> bytes:
    known = [(name, relation.definition) for name, relation in engine.relations.items() if token.covers_relation(name)]
    known.sort(key=itemgetter(0))
    return orjson.dumps({"relations": [_shown(engine, name, definition) for name, definition in known]})


def checked_name(request: Request, what: str) -> str:
    """Return the name in the path if a relation or view may have it; otherwise Problem `bad-definition`."""
    name: str = request.path_params["name"]
    if not NAME.fullmatch(name):
        raise Problem("bad-definition", f"invalid {what} name {name!r}: names must match {NAME.pattern}")
    return name


async def put_relation(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    no_parameters(request)
    name = checked_name(request, "relation")
    async with definition(request.scope, request.receive, context.bodies, context.work) as data:
        parsed = _parsed(data, context.settings.max_columns)
    outcome = await context.wait(engine.put_relation, name, parsed)
    known = engine.relations.get(name)  # it may have been dropped again
    return json_answer(_shown(engine, name, parsed if known is None else known.definition), 201 if outcome == "created" else 200)


def _parsed(data: dict[str, Any], most: int) -> RelationDefinition:
    """Check the size of a definition, and return it parsed. Problem `bad-definition`, BadDefinition."""
    for part in ("columns", "intervals", "key"):
        _require_few(data, part, most)
    return parse_relation(data)


def _require_few(data: dict[str, Any], part: str, most: int) -> None:
    if isinstance(data.get(part), list | dict) and len(data[part]) > most:
        raise Problem("bad-definition", f"{part}: a relation may have at most {most} of them (--max-columns), not {len(data[part])}")


async def patch_relation(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    dry_run = parameters.read(request.scope["query_string"], (_DRY_RUN,)).get("dry_run", False)
    name = existing(engine, request, "relation")
    async with definition(request.scope, request.receive, context.bodies, context.work) as data:
        for part in ("add_columns", "add_intervals", "nullable"):
            _require_few(data, part, context.settings.max_columns)
        patch = parse_patch(data)
    with _hiding_views(request.scope["token"]):
        altered = await context.rewrite(engine.patch_relation, name, patch, dry_run)
    expired = {} if altered.expired is None else {"expired_rows": altered.expired}
    return json_answer(_shown(engine, existing(engine, request, "relation"), altered.definition) | expired)


async def get_relation(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    no_parameters(request)
    return json_answer(relation_json(engine, existing(engine, request, "relation")))


async def list_relations(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    return Response(await context.look(_all_encoded, context.engine, request.scope["token"]), media_type=media.JSON)


async def delete_relation(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    no_parameters(request)
    name = existing(engine, request, "relation")
    with _hiding_views(request.scope["token"]):
        await context.wait(engine.drop_relation, name)
    return Response(status_code=204)


@contextmanager
def _hiding_views(token: AccessToken) -> Iterator[None]:
    """Take the names of views that the token does not cover out of the problem of a relation in use."""
    try:
        yield
    except InUse as problem:
        views = problem.extensions["views"]
        shown = [view for view in views if token.covers_view(view)]
        if len(shown) < len(views):
            told = ", ".join([*shown, "views that the access token is not for"])
            problem.detail, problem.extensions["views"] = f"{problem.before}{told}{problem.after}", shown
        raise


_NAME = path_parameter("name", "the relation", "bookings")
_DRY_RUN = Parameter(
    "dry_run", parameters.boolean, {"type": "boolean", "default": False}, "change nothing: the answer is what the relation would be", False
)
_NEXT = links("getRelation", "putRelation", "postRelationChanges", "relationRows", "deleteRelation")

ENDPOINTS = [
    Endpoint(
        "GET",
        "/v1/relations",
        list_relations,
        operation(
            "listRelations",
            "List the relations",
            tag="relations",
            responses={**answer(200, "the relations", json_content("Relations", {"relations": [RELATION]})), **failures("bad-parameter")},
        ),
    ),
    Endpoint(
        "GET",
        "/v1/relations/{name}",
        get_relation,
        operation(
            "getRelation",
            "Get a relation",
            tag="relations",
            parameters=[_NAME],
            responses={**answer(200, "the relation", json_content("Relation", RELATION)), **failures("bad-parameter", "not-found")},
        ),
    ),
    Endpoint(
        "PUT",
        "/v1/relations/{name}",
        put_relation,
        operation(
            "putRelation",
            "Register a relation",
            tag="relations",
            parameters=[_NAME],
            body=json_content("RelationDefinition", RELATION_DEFINITION),
            responses={
                **answer(201, "created", json_content("Relation", RELATION), following=_NEXT),
                **answer(200, "already registered with this definition", json_content("Relation", RELATION), following=_NEXT),
                **failures(
                    "bad-parameter",
                    "malformed-body",
                    "definition-differs",
                    "too-many",
                    "body-too-large",
                    "unsupported-media-type",
                    "bad-definition",
                    "disk-full",
                    "no-room",
                ),
            },
        ),
    ),
    Endpoint(
        "PATCH",
        "/v1/relations/{name}",
        patch_relation,
        operation(
            "patchRelation",
            "Extend a relation: add columns and intervals, allow nulls, set the retention",
            tag="relations",
            description="Live views and their followers are not disturbed: `SELECT *` means the columns at the registration of a view. "
            "New columns are null in existing rows, so they must be nullable; new intervals must be valid for existing rows. `retain` "
            "deletes rows whose column is older than the duration, at once and then once a minute; null ends this. `expired_rows` is how "
            "many there are: ask with `dry_run` first. Parts that exist are not changed.",
            parameters=[_NAME, *query_parameters((_DRY_RUN,))],
            body=json_content("RelationPatch", PATCH, {"retain": None}),
            responses={
                **answer(200, "extended", json_content("PatchedRelation", RELATION | {"expired_rows": 0}), following=_NEXT),
                **failures(
                    "bad-parameter",
                    "malformed-body",
                    "not-found",
                    "definition-differs",
                    "relation-in-use",
                    "unknown-column",
                    "body-too-large",
                    "unsupported-media-type",
                    "bad-definition",
                    "disk-full",
                    "no-room",
                ),
            },
        ),
    ),
    Endpoint(
        "DELETE",
        "/v1/relations/{name}",
        delete_relation,
        operation(
            "deleteRelation",
            "Drop a relation and its rows; refused if a view uses it",
            tag="relations",
            parameters=[_NAME],
            responses={**answer(204, "dropped"), **failures("bad-parameter", "not-found", "relation-in-use", "disk-full")},
        ),
    ),
]

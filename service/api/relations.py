"""Relations: registering, listing, dropping."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any

import orjson
from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from livejoin.wire.schema import RelationDefinition, RelationPatch, parse_patch, parse_relation
from service.access.access_token import AccessToken
from service.api.http import media
from service.api.http.answers import json_answer, missing
from service.api.http.bodies import definition
from service.api.http.parameters import Flag, Parameters
from service.api.models import answers
from service.api.models.examples import PATCH, RELATION, RELATION_DEFINITION
from service.api.openapi import answer, body, failures, json_content, links
from service.api.routing import RelationName, ServiceRequest, checked_name, hiding_views, router
from service.errors import Problem
from service.instance import Instance

routes = router("relations")


def relation_json(engine: Instance, name: str) -> dict[str, Any]:
    """Return a relation as the interface shows it; `rows` at the published version."""
    return _shown(engine, name, engine.relations[name].definition)


def _shown(engine: Instance, name: str, definition: RelationDefinition) -> dict[str, Any]:
    return {"name": name} | definition.to_json() | {"rows": engine.rows_of(name)}


def _all_encoded(engine: Instance, token: AccessToken) -> bytes:
    known = [(name, relation.definition) for name, relation in engine.relations.items() if token.covers_relation(name)]
    known.sort(key=itemgetter(0))
    return orjson.dumps({"relations": [_shown(engine, name, definition) for name, definition in known]})


_NEXT = links("getRelation", "putRelation", "postRelationChanges", "relationRows", "deleteRelation")
_RELATION = json_content(answers.Relation, RELATION)
_BODY_FAILURES = (
    "malformed-body", "definition-differs", "body-too-large", "unsupported-media-type", "bad-definition", "disk-full", "no-room"
)  # fmt: skip


@routes.put(
    "/v1/relations/{name}",
    summary="Register a relation",
    openapi_extra=body(json_content(RelationDefinition, RELATION_DEFINITION)),
    responses={
        **answer(201, "created", _RELATION, following=_NEXT),
        **answer(200, "already registered with this definition", _RELATION, following=_NEXT),
        **failures("bad-parameter", *_BODY_FAILURES, "too-many"),
    },
)
async def put_relation(request: ServiceRequest, name: RelationName) -> Response:
    context = request.context
    engine = context.engine
    checked_name(name, "relation")
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


class PatchParameters(Parameters):
    dry_run: Flag = Field(False, description="change nothing: the answer is what the relation would be", examples=[False])


@routes.patch(
    "/v1/relations/{name}",
    summary="Extend a relation: add columns and intervals, allow nulls, set the retention",
    description="Live views and their followers are not disturbed: `SELECT *` means the columns at the registration of a view. New columns "
    "are null in existing rows, so they must be nullable; new intervals must be valid for existing rows. `retain` deletes rows whose "
    "column is older than the duration, at once and then once a minute; null ends this. `expired_rows` is how many there are: ask with "
    "`dry_run` first. Parts that exist are not changed.",
    openapi_extra=body(json_content(RelationPatch, PATCH, {"retain": None})),
    responses={
        **answer(200, "extended", json_content(answers.PatchedRelation, RELATION | {"expired_rows": 0}), following=_NEXT),
        **failures("bad-parameter", *_BODY_FAILURES, "not-found", "relation-in-use", "unknown-column"),
    },
)
async def patch_relation(request: ServiceRequest, name: RelationName, query: Annotated[PatchParameters, Query()]) -> Response:
    context = request.context
    request.require_relation(name)
    engine = context.engine
    async with definition(request.scope, request.receive, context.bodies, context.work) as data:
        for part in ("add_columns", "add_intervals", "nullable"):
            _require_few(data, part, context.settings.max_columns)
        patch = parse_patch(data)
    with hiding_views(request.token):
        altered = await context.rewrite(engine.patch_relation, name, patch, query.dry_run)
    expired = {} if altered.expired is None else {"expired_rows": altered.expired}
    if name not in engine.relations:  # it was dropped meanwhile
        raise missing(engine, request.token, "relation", name)
    return json_answer(_shown(engine, name, altered.definition) | expired)


@routes.get(
    "/v1/relations/{name}",
    summary="Get a relation",
    responses={**answer(200, "the relation", _RELATION), **failures("bad-parameter", "not-found")},
)
async def get_relation(request: ServiceRequest, name: RelationName) -> Response:
    request.require_relation(name)
    return json_answer(relation_json(request.context.engine, name))


@routes.get(
    "/v1/relations",
    summary="List the relations",
    responses={**answer(200, "the relations", json_content(answers.Relations, {"relations": [RELATION]})), **failures("bad-parameter")},
)
async def list_relations(request: ServiceRequest) -> Response:
    context = request.context
    return Response(await context.look(_all_encoded, context.engine, request.token), media_type=media.JSON)


@routes.delete(
    "/v1/relations/{name}",
    summary="Drop a relation and its rows; refused if a view uses it",
    responses={**answer(204, "dropped"), **failures("bad-parameter", "not-found", "relation-in-use", "disk-full")},
)
async def delete_relation(request: ServiceRequest, name: RelationName) -> Response:
    context = request.context
    request.require_relation(name)
    with hiding_views(request.token):
        await context.wait(context.engine.drop_relation, name)
    return Response(status_code=204)

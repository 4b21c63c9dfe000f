"""Access tokens, for admins: creating, listing, revoking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import orjson
from fastapi import Path
from starlette.responses import Response

from service.access.access_token import TokenForm, make, new_text
from service.access.store import add_token, remove_token
from service.api.context import Context
from service.api.http import media
from service.api.http.answers import json_answer
from service.api.http.bodies import definition
from service.api.models import answers
from service.api.models.examples import NEW_TOKEN, TOKEN, TOKEN_FORM
from service.api.openapi import answer, body, failures, json_content
from service.api.routing import ServiceRequest, router
from service.durability.folder import SyncFailed

T = TypeVar("T")


routes = router("operations")


@routes.get(
    "/v1/tokens",
    summary="List the access tokens",
    description="Expired tokens are listed until they are revoked. The text of a token is shown only once, when it is created.",
    responses={**answer(200, "the tokens", json_content(answers.Tokens, {"tokens": [TOKEN]})), **failures("bad-parameter")},
)
async def list_tokens(request: ServiceRequest) -> Response:
    return json_answer({"tokens": [token.to_json() for token in request.context.guard.all()]})


@routes.post(
    "/v1/tokens",
    summary="Create an access token",
    description="A token that names relations or views covers only these, and nothing of the other kind unless that is named, too (`*` "
    "names all); one that names neither covers all. The first token of a data folder is created by `livejoin token create`.",
    openapi_extra=body(json_content(TokenForm, TOKEN_FORM)),
    responses={
        **answer(201, "created; `token` is shown only here", json_content(answers.NewToken, NEW_TOKEN)),
        **failures("bad-parameter", "malformed-body", "definition-differs", "body-too-large", "unsupported-media-type", "bad-definition"),
    },
)
async def post_token(request: ServiceRequest) -> Response:
    context = request.context
    text = new_text()
    async with definition(request.scope, request.receive, context.bodies, context.work) as data:
        token = make(data, text, context.guard.now())
    await _written(context, lambda: add_token(context.guard.folder, token, begin=False))
    context.guard.look_again()
    context.audit.event(request.token, request.client, "create token", **token.grant())
    return Response(orjson.dumps(token.to_json() | {"token": text}), 201, {"Cache-Control": "no-store"}, media.JSON)


@routes.delete(
    "/v1/tokens/{name}",
    summary="Revoke an access token; the last admin token can be revoked only by `livejoin token revoke`",
    responses={**answer(204, "revoked, from the next request on"), **failures("bad-parameter", "not-found")},
)
async def delete_token(request: ServiceRequest, name: Annotated[str, Path(description="the token", examples=["etl"])]) -> Response:
    context = request.context
    removed = await _written(context, lambda: remove_token(context.guard.folder, name, keep_admin_at=context.guard.now()))
    context.guard.look_again()
    context.audit.event(request.token, request.client, "revoke token", **removed.grant())
    return Response(status_code=204)


async def _written(context: Context, change: Callable[[], T]) -> T:
    """Return the result of a change to the token file. A failed fsync ends the service, as it does everywhere."""
    try:
        return await context.work(change)
    except SyncFailed as error:
        context.engine.fail_soon(error)
        raise

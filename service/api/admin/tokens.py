"""Access tokens, for admins: creating, listing, revoking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response

from service.access.access_token import make, new_text
from service.access.store import add_token, remove_token
from service.api.context import Context
from service.api.http import media
from service.api.http.answers import json_answer, no_parameters
from service.api.http.bodies import definition
from service.api.openapi import Endpoint, answer, failures, json_content, operation, path_parameter
from service.api.schemas.examples import NEW_TOKEN, TOKEN, TOKEN_FORM
from service.durability.folder import SyncFailed

T = TypeVar("T")


async def list_tokens(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    return json_answer({"tokens": [token.to_json() for token in context.guard.all()]})


async def post_token(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    text = new_text()
    async with definition(request.scope, request.receive, context.bodies, context.work) as data:
        token = make(data, text, context.guard.now())
    await _written(context, lambda: add_token(context.guard.folder, token, begin=False))
    context.guard.look_again()
    context.audit.event(request.scope["token"], request.client, "create token", **token.grant())
    body = orjson.dumps(token.to_json() | {"token": text})
    return Response(body, 201, {"Cache-Control": "no-store"}, media.JSON)


async def delete_token(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    name = request.path_params["name"]
    removed = await _written(context, lambda: remove_token(context.guard.folder, name, keep_admin_at=context.guard.now()))
    context.guard.look_again()
    context.audit.event(request.scope["token"], request.client, "revoke token", **removed.grant())
    return Response(status_code=204)


async def _written(context: Context, change: Callable[[], T]) -> T:
    """Return the result of a change to the token file. A failed fsync ends the service, as it does everywhere."""
    try:
        return await context.work(change)
    except SyncFailed as error:
        context.engine.fail_soon(error)
        raise


ENDPOINTS = [
    Endpoint(
        "GET",
        "/v1/tokens",
        list_tokens,
        operation(
            "listTokens",
            "List the access tokens",
            tag="operations",
            description="Expired tokens are listed until they are revoked. The text of a token is shown only once, when it is created.",
            responses={**answer(200, "the tokens", json_content("Tokens", {"tokens": [TOKEN]})), **failures("bad-parameter")},
        ),
    ),
    Endpoint(
        "POST",
        "/v1/tokens",
        post_token,
        operation(
            "postToken",
            "Create an access token",
            tag="operations",
            description="A token that names relations or views covers only these, and nothing of the other kind unless that is named, too "
            "(`*` names all); one that names neither covers all. The first token of a data folder is created by `livejoin token create`.",
            body=json_content("TokenForm", TOKEN_FORM),
            responses={
                **answer(201, "created; `token` is shown only here", json_content("NewToken", NEW_TOKEN)),
                **failures(
                    "bad-parameter", "malformed-body", "definition-differs", "body-too-large", "unsupported-media-type", "bad-definition"
                ),
            },
        ),
    ),
    Endpoint(
        "DELETE",
        "/v1/tokens/{name}",
        delete_token,
        operation(
            "deleteToken",
            "Revoke an access token; the last admin token can be revoked only by `livejoin token revoke`",
            tag="operations",
            parameters=[path_parameter("name", "the token", "etl")],
            responses={**answer(204, "revoked, from the next request on"), **failures("bad-parameter", "not-found")},
        ),
    ),
]

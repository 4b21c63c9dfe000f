"""The whole interface as one ASGI application: a gate, and the framework's router behind it."""

from __future__ import annotations

import asyncio
import time
from copy import copy
from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from service.access import rights
from service.access.access_token import EVERYONE, AccessToken
from service.api import between, changes, followers, operations, pages, problems, readings, relations, rewriting, rows, views
from service.api.adhoc import query
from service.api.admin import backup, tokens
from service.api.context import Context
from service.api.dashboard import files, state, window
from service.api.files import endpoints
from service.api.http import credentials, origin
from service.api.http.access_log import log_request
from service.api.http.bodies import COMPLETE, ClientGone, Receive, Scope, Send
from service.api.http.forwarded import Proxies
from service.api.http.media import Fields, fields_of
from service.api.http.request_ids import HEADER, RequestIds
from service.api.metrics import count_request, observe_answer
from service.api.openapi import document
from service.api.routing import Route
from service.errors import Problem, ending

# The routes that are asked for most come first: the framework tries them in turn.
ROUTERS = [
    rows.routes, followers.routes, views.routes, relations.routes, changes.routes, rewriting.routes, readings.routes, between.routes,
    query.routes, endpoints.routes, window.routes, state.routes, operations.routes, operations.open_routes, tokens.routes, backup.routes,
    files.routes, files.open_routes,
]  # fmt: skip
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]


def create_app(context: Context) -> Gate:
    """Create the application of one service."""
    handlers: Any = {HTTPException: problems.handle}  # raised by the router: no such path, no such method
    api = FastAPI(routes=list(map(_with_head, ROUTES)), docs_url=None, redoc_url=None, openapi_url=None, exception_handlers=handlers)
    api.router.redirect_slashes = False
    api.state.context = context

    async def openapi(request: Request) -> Response:
        return await context.work(_encoded)

    async def docs(request: Request) -> Response:
        return await context.work(_described)

    api.add_route("/openapi.json", openapi)
    api.add_route("/docs", docs)
    return Gate(context, api)


def _with_head(route: Route) -> Route:
    """Return the route for HEAD too, if it is one for GET; the document has only those that differ."""
    served = copy(route)
    if route.methods == {"GET"}:
        served.methods = {"GET", "HEAD"}
    return served


@cache
def _document() -> dict[str, Any]:
    """Return the OpenAPI document, made at the first request."""
    return document(ROUTES)


@cache
def _encoded() -> Response:
    return JSONResponse(_document())


@cache
def _described() -> Response:
    return HTMLResponse(pages.describe(_document()))


class Gate:
    """Assigns an id to each request, rejects requests of foreign web pages and those without a valid token, answers the hot path itself,
    converts uncaught exceptions to problems, and counts and logs requests."""

    def __init__(self, context: Context, api: FastAPI) -> None:
        self.context = context
        self.api = api
        self._ids = RequestIds()
        self._proxies = Proxies(context.settings.forwarded_allow_ips)
        self._logs = context.settings.access_log == "on"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method: str = scope["method"]
        status = 0
        begun = time.perf_counter()
        if (fields := scope.get("fields")) is None:  # not from our protocol, but from another ASGI server, as in tests
            fields = scope["fields"] = fields_of(scope["headers"])
        request_id = self._ids.begin(fields.get(HEADER))
        self._proxies.apply(scope)
        token: AccessToken | None = None
        guard = self.context.guard

        async def counted(message: Any) -> None:
            nonlocal status
            if "status" in message:  # the first message
                status = message["status"]
                if "head" in message:
                    message["head"] += b"x-request-id: %b\r\n" % request_id
                else:
                    message["headers"] = [*message.get("headers", ()), (HEADER, request_id)]
                observe_answer(method, time.perf_counter() - begun)
                if status >= 400:
                    self.context.problems.note(method, scope["path"], status, request_id.decode("ascii"))
                if guard.token_mode:
                    self._note(token, scope, status)
            elif token is not None and message.get("more_body") and not guard.is_in_force(token):
                raise Problem("unauthorized", "the access token was revoked or has expired, or token mode has begun")
            await send(message)

        try:
            path = scope["path"]
            if not scope.get(COMPLETE):
                scope["guard"] = guard  # the body may take long
            token = scope["token"] = self._admit(path, fields)
            if method == "POST" and path == "/v1/changes":
                rights.require(token, rights.CHANGES, None)
                await changes.post_changes(self.context, None, scope, receive, counted)
            elif method == "POST" and (relation := changes.relation_of(path)) is not None:
                rights.require(token, rights.RELATION_CHANGES, relation)
                await changes.post_changes(self.context, relation, scope, receive, counted)
            else:
                await self.api(scope, receive, counted)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if not self.context.closing:
                raise
            if not status:
                await problems.render(ending())(scope, receive, counted)
        except Exception as error:
            if status:
                raise
            await problems.render(problems.of_exception(error))(scope, receive, counted)
        finally:
            count_request(method, status)
            if self._logs:
                log_request(scope, status or scope.get("refused", 0), time.perf_counter() - begun)
            if not status and guard.token_mode:  # the client has disconnected; its batch may have been applied
                self._note(token, scope, status)

    def _admit(self, path: str, fields: Fields) -> AccessToken | None:
        """Return the token of the request, None outside token mode. Problems: `unauthorized`; outside token mode `forbidden`, for a foreign
        page.

        In token mode, any `Host` and `Origin` are allowed: a browser never adds a bearer token to a request by itself.
        """
        if not self.context.guard.refresh():
            origin.check(fields)
            return EVERYONE
        return None if rights.is_open(path) else credentials.token_of(self.context.guard, fields)

    def _note(self, token: AccessToken | None, scope: Scope, status: int) -> None:
        """In token mode, write the request to the audit log, unless it needs no token."""
        if token is not None or status == 401:
            self.context.audit.request(token, scope["method"], scope["path"], status, scope.get("client"))

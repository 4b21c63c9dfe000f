"""The whole interface as one ASGI application: a gate, and the framework's router behind it."""

from __future__ import annotations

import asyncio
import time
from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from livejoin.wire.wording import software_version
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
from service.api.openapi import Endpoint, Handler, document
from service.errors import Problem, ending

ENDPOINTS = [
    *relations.ENDPOINTS,
    *changes.ENDPOINTS,
    *rewriting.ENDPOINTS,
    *views.ENDPOINTS,
    *rows.ENDPOINTS,
    *readings.ENDPOINTS,
    *endpoints.ENDPOINTS,
    *query.ENDPOINTS,
    *followers.ENDPOINTS,
    *between.ENDPOINTS,
    *tokens.ENDPOINTS,
    *backup.ENDPOINTS,
    *operations.ENDPOINTS,
    *state.ENDPOINTS,
    *window.ENDPOINTS,
    *problems.ENDPOINTS,
    *files.ENDPOINTS,
]


def create_app(context: Context) -> Gate:
    """Create the application of one service. Handlers are plain functions of a request; they validate their parameters themselves."""
    api = FastAPI(title="livejoin", version=software_version(), docs_url=None, redoc_url=None, openapi_url=None)
    api.router.redirect_slashes = False
    api.state.context = context
    for endpoint in ENDPOINTS:
        if endpoint.method != "HEAD":  # added with GET
            api.add_route(_pattern(endpoint.path), _guarded(endpoint), methods=[endpoint.method])
    api.add_exception_handler(HTTPException, problems.handle)  # raised by the router: no such path, no such method

    async def openapi(request: Request) -> Response:
        return _encoded()

    async def docs(request: Request) -> Response:
        return _described()

    api.add_route("/openapi.json", openapi)
    api.add_route("/docs", docs)
    return Gate(context, api)


class _Text(PathConvertor):
    """Any text, slashes and line breaks included."""

    regex = "(?s:.*)"


register_url_convertor("text", _Text())


def _pattern(path: str) -> str:
    """Return the path as a pattern of the router: the name of a source is any text."""
    return path.replace("{name}", "{name:text}") if path.startswith("/v1/sources/") else path


@cache
def _document() -> dict[str, Any]:
    """Return the OpenAPI document. Built at the first request, in 30 ms, not at the start."""
    return document(ENDPOINTS, software_version())


@cache
def _encoded() -> Response:
    return JSONResponse(_document())


@cache
def _described() -> Response:
    return HTMLResponse(pages.describe(_document()))


def _guarded(endpoint: Endpoint) -> Handler:
    """Return the handler of an endpoint, with the check of its right; every exception becomes a problem before the framework sees it."""
    handler, right = endpoint.handler or _in_front, rights.RIGHTS[endpoint.method, endpoint.path]

    async def guarded(request: Request) -> Response:
        try:
            if right is not None:
                rights.require(request.scope["token"], right, request.path_params.get("name"))
            return await handler(request)
        except Exception as error:
            return await problems.handle(request, error)

    return guarded


async def _in_front(request: Request) -> Response:
    raise AssertionError(f"{request.url.path} is answered by the gate")  # this route exists for status 405 only


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

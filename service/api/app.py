"""The whole interface as one ASGI application: a gate in front, the framework's router behind it."""

from __future__ import annotations

import asyncio
import time
from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from service.api import changes, followers, operations, pages, problems, relations, rows, views
from service.api.context import Context
from service.api.http import origin
from service.api.http.access_log import log_request
from service.api.http.bodies import ClientGone, Receive, Scope, Send
from service.api.http.forwarded import Proxies
from service.api.http.request_ids import HEADER, RequestIds
from service.api.metrics import count_request, observe_answer, software_version
from service.api.openapi import Handler, document
from service.errors import Problem

ENDPOINTS = [
    *relations.ENDPOINTS,
    *changes.ENDPOINTS,
    *views.ENDPOINTS,
    *rows.ENDPOINTS,
    *followers.ENDPOINTS,
    *operations.ENDPOINTS,
    *problems.ENDPOINTS,
]


def create_app(context: Context) -> Gate:
    """The application of one service. Handlers are plain functions of a request; our own code validates their parameters."""
    api = FastAPI(title="livejoin", version=software_version(), docs_url=None, redoc_url=None, openapi_url="/openapi.json")
    api.router.redirect_slashes = False
    api.state.context = context
    for endpoint in ENDPOINTS:
        if endpoint.method != "HEAD":  # comes with GET
            api.add_route(endpoint.path, _guarded(endpoint.handler or _in_front), methods=[endpoint.method])
    api.add_exception_handler(HTTPException, problems.handle)  # of the router: no such path, no such method
    api.openapi = _document  # type: ignore[method-assign]

    async def docs(request: Request) -> Response:
        return _described()

    api.add_route("/docs", docs)
    return Gate(context, api)


@cache
def _document() -> dict[str, Any]:
    """Made for the first who asks, in 30 ms: a start does without."""
    return document(ENDPOINTS, software_version())


@cache
def _described() -> Response:
    return HTMLResponse(pages.describe(_document()))


def _guarded(handler: Handler) -> Handler:
    """Converts every exception of a handler to a problem before the framework sees it."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return await problems.handle(request, error)

    return guarded


async def _in_front(request: Request) -> Response:
    raise AssertionError(f"{request.url.path} is answered by the gate")  # its route is there for 405


class Gate:
    """Gives each request an id, refuses those of foreign web pages, answers the hot path itself, converts uncaught exceptions to problems,
    counts and logs requests."""

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
        request_id = self._ids.begin(scope["headers"])
        self._proxies.apply(scope)

        async def counted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER, request_id)]
                observe_answer(method, time.perf_counter() - begun)
            await send(message)

        try:
            origin.check(scope["headers"])
            path = scope["path"]
            if method == "POST" and path == "/v1/changes":
                await changes.post_changes(self.context, None, scope, receive, counted)
            elif method == "POST" and (relation := changes.relation_of(path)) is not None:
                await changes.post_changes(self.context, relation, scope, receive, counted)
            else:
                await self.api(scope, receive, counted)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if not self.context.closing:
                raise
            if not status:
                await problems.render(Problem("recovering", "the service is shutting down"))(scope, receive, counted)
        except Exception as error:
            if status:
                raise
            await problems.render(problems.of_exception(error))(scope, receive, counted)
        finally:
            count_request(method, status)
            if self._logs:
                log_request(scope, status, time.perf_counter() - begun)

"""Converts every error to `application/problem+json`; every type of problem has a page."""

from __future__ import annotations

import logging
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from livejoin.wire.errors import BadDefinition, BadParameter, MalformedBody, TooLarge, UnknownRelation, UnsupportedMediaType, WireError
from livejoin.wire.log_lines import REQUEST_ID
from service.api import pages
from service.api.dashboard.happenings import PROBLEM
from service.api.http import media
from service.api.http.bodies import ClientGone
from service.api.openapi import Endpoint, answer, failures, operation, path_parameter
from service.errors import CATALOGUE, Problem

log = logging.getLogger("livejoin.api")


def problem_of(error: WireError) -> Problem:
    """Return the problem for an error of the wire format."""
    match error:
        case BadDefinition():
            return Problem("bad-definition", error.detail)
        case MalformedBody():
            line = {} if error.line is None else {"line": error.line}
            return Problem("malformed-body", error.detail, **line)
        case TooLarge():
            return Problem("body-too-large", error.detail, limit=error.limit)
        case UnknownRelation():
            return Problem("unknown-relation", error.detail, relation=error.name)
        case UnsupportedMediaType():
            return Problem("unsupported-media-type", error.detail)
        case BadParameter():
            return Problem("bad-parameter", error.detail, parameter=error.parameter)
        case _:
            raise error


def of_exception(error: Exception) -> Problem:
    """Return the problem for any exception of a handler; an unexpected one is logged with the id of the request, which the problem
    contains."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, WireError):
        return problem_of(error)
    if isinstance(error, HTTPException):
        return _of_framework(error)
    request_id = REQUEST_ID.get()
    log.error("request %s failed", request_id, exc_info=error)
    return Problem("internal", f"request {request_id}", request_id=request_id)


def _of_framework(error: HTTPException) -> Problem:
    if error.status_code == 405:
        problem = Problem("method-not-allowed", "the path does not support this method")
        problem.headers.update(error.headers or {})
        return problem
    return Problem("not-found", "the path does not exist; all paths are in /docs")


def render(problem: Problem) -> Response:
    if problem.type == "internal" and "request_id" not in problem.extensions:  # logged where it happened: not every thread has the id
        problem.extensions["request_id"] = REQUEST_ID.get()
        log.error("request %s failed: %s", REQUEST_ID.get(), problem.detail)
    PROBLEM.set(problem)
    return Response(orjson.dumps(problem.to_json()), problem.status, problem.headers, media.PROBLEM)


async def handle(request: Request, error: Exception) -> Response:
    """Return the response to an exception of a handler or of the router; ClientGone is left to the gate."""
    if isinstance(error, ClientGone):
        raise error
    problem = of_exception(error)
    if problem.type == "method-not-allowed":
        allowed = _methods(request)
        problem.headers["Allow"] = ", ".join(allowed)
        problem.detail = f"{request.url.path} does not support {request.method}; allowed: {', '.join(allowed)}"
    elif problem.type == "not-found" and isinstance(error, HTTPException):
        problem.detail = f"{request.url.path} does not exist; all paths are in /docs"
    return render(problem)


def _methods(request: Request) -> list[str]:
    """Return all methods of all routes of this path (the framework offers those of the first only)."""
    methods: set[str] = set()
    for route in request.app.routes:
        if route.path_regex.match(request.url.path):
            methods |= route.methods
    return sorted(methods)


async def get_problem(request: Request) -> Response:
    name = request.path_params["type"]
    kind = CATALOGUE.get(name)
    if kind is None:
        raise Problem("not-found", f"there is no problem type {name!r}", available=sorted(CATALOGUE))
    chosen = media.negotiate(request.headers.get("accept"), (media.TEXT, media.HTML))
    if chosen == media.TEXT:
        text = f"{kind.type} ({kind.status}): {kind.title}\n\nWhat it means\n{kind.meaning}\n\nWhat to do\n{kind.remedy}\n"
        return PlainTextResponse(text, headers={"Vary": "Accept"})
    title, meaning, remedy = map(pages.inline, (kind.title, kind.meaning, kind.remedy))
    body = (
        f"<h1>{title}</h1><p><code>{kind.type}</code>, status {kind.status}</p>"
        f"<h2>What it means</h2><p>{meaning}</p><h2>What to do</h2><p>{remedy}</p>"
    )
    return HTMLResponse(pages.page(kind.type, body), headers={"Vary": "Accept"})


_PAGE: dict[str, Any] = {
    media.TEXT: {"schema": {"type": "string"}, "example": "too-busy (429): The service is busy\n\nWhat it means\n…"},
    media.HTML: {"schema": {"type": "string"}, "example": '<!doctype html><html lang="en">…</html>'},
}

ENDPOINTS = [
    Endpoint(
        "GET",
        "/problems/{type}",
        get_problem,
        operation(
            "problem",
            "What a problem type means, and what to do",
            tag="operations",
            parameters=[path_parameter("type", "the last part of a problem's `type`", "too-busy")],
            responses={**answer(200, "the page", content=_PAGE), **failures("bad-parameter", "not-found", "not-acceptable")},
        ),
    )
]

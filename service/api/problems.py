"""Converts every error to `application/problem+json`; every type of problem has a page."""

from __future__ import annotations

import logging

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from livejoin.wire.errors import BadDefinition, BadParameter, MalformedBody, TooLarge, UnknownRelation, UnsupportedMediaType, WireError
from livejoin.wire.log_lines import REQUEST_ID
from service.api.dashboard.happenings import PROBLEM
from service.api.http import media
from service.api.http.bodies import ClientGone
from service.api.http.parameters import refusal
from service.errors import Problem

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
    if isinstance(error, RequestValidationError):
        fault = error.errors()[0]
        return refusal(fault, fault["loc"][1:])  # the first part says where the framework found it: query, path
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

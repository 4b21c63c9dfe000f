"""Health, metrics and state, for operators."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from service.access.access_token import AccessToken
from service.api.context import Context
from service.api.http import media
from service.api.http.answers import json_answer, no_parameters
from service.api.metrics import exposition, software_version
from service.api.openapi import Endpoint, answer, failures, json_content, operation, path_parameter, text_content
from service.api.schemas import SOURCES
from service.errors import Problem
from service.wire.grammar import timestamp_texts


async def livez(request: Request) -> Response:
    """That it is answered shows that the event loop runs. Problem `internal` once the writer will apply nothing any more."""
    _require_writer(request.app.state.context)
    return json_answer({"status": "alive"})


async def readyz(request: Request) -> Response:
    """Problem `recovering` (with progress) until kernels are compiled and views built, and from the beginning of the end."""
    context: Context = request.app.state.context
    _require_writer(context)
    if context.closing:
        raise Problem("recovering", "the service is shutting down")
    state = context.engine.state
    if state == "recovering" and context.settings.ready == "views":
        raise Problem("recovering", f"the service is starting: {context.stage}", stage=context.stage, progress=round(context.progress, 4))
    if state not in ("recovering", "ready"):
        raise Problem("recovering", f"the engine is {state}", stage=state, progress=0.0)
    return json_answer({"status": "ready", "stage": "ready", "progress": 1.0})


def _require_writer(context: Context) -> None:
    """Waits for nothing, however busy the writer is."""
    if context.ready and context.engine.is_stuck:
        raise Problem("internal", "the writer makes no progress; restart the service")


async def metrics(request: Request) -> Response:
    context: Context = request.app.state.context
    return Response(await context.look(exposition, context, request.scope["token"]), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def status(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    return json_answer(await context.look(_status, context, request.scope["token"]))


def _status(context: Context, token: AccessToken) -> dict[str, Any]:
    engine = context.engine
    published = engine.published
    views = [(name, view) for name, view in sorted(engine.views.items()) if token.covers_view(name)]
    figures = {name: value for name, value in engine.metrics().items() if isinstance(value, int)}
    return {
        "state": engine.state,
        "version": published.number,
        "timeline": engine.timeline,
        "software": {"name": "livejoin", "version": software_version()},
        "uptime_seconds": round(time.monotonic() - context.started, 3),
        "ready_after_seconds": context.ready_after,
        "synchronous": context.settings.synchronous,
        "max_body": context.settings.max_body,
        "relations": {name: {"rows": published.counts.get(name, 0)} for name in sorted(filter(token.covers_relation, engine.relations))},
        "views": {name: {"state": view.state, "progress": view.progress} for name, view in views},
        "figures": figures,
    }


async def list_sources(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    known = await context.wait(context.engine.sources)
    return json_answer(
        {
            "sources": [
                {"name": name, "run": one.run, "epoch": one.epoch, "version": one.version, "time": _time(one.time)}
                for name, one in sorted(known.items())
            ]
        }
    )


def _time(micros: int | None) -> str | None:
    return None if micros is None else str(timestamp_texts(pa.array([micros], pa.timestamp("us", "UTC")))[0])


async def delete_source(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    await context.wait(context.engine.forget_source, request.path_params["name"])
    return Response(status_code=204)


async def dashboard(request: Request) -> Response:
    raise Problem("not-yet", "the dashboard is not implemented yet; see /docs and /v1/status")


_STATUS = {
    "state": "ready",
    "version": 42,
    "timeline": 1,
    "software": {"name": "livejoin", "version": "0.1.0"},
    "uptime_seconds": 12.5,
    "ready_after_seconds": 1.7,
    "synchronous": "full",
    "max_body": 268435456,
    "relations": {"bookings": {"rows": 3}},
    "views": {"clashes": {"state": "live", "progress": 1.0}},
    "figures": {"pins": 0, "waiting_batches": 0, "subscribers": 0, "retired_bytes": 0},
}
_METRICS = "# HELP livejoin_version The newest published version.\n# TYPE livejoin_version gauge\nlivejoin_version 42.0\n"

ENDPOINTS = [
    Endpoint(
        "GET",
        "/livez",
        livez,
        operation(
            "livez",
            "Is the process alive?",
            tag="operations",
            responses={**answer(200, "the process is alive", json_content("Health", {"status": "alive"})), **failures()},
        ),
    ),
    Endpoint(
        "GET",
        "/readyz",
        readyz,
        operation(
            "readyz",
            "Is the service ready for requests?",
            tag="operations",
            responses={
                **answer(200, "the service is ready", json_content("Health", {"status": "ready", "stage": "ready", "progress": 1.0})),
                **failures(),
            },
        ),
    ),
    Endpoint(
        "GET",
        "/metrics",
        metrics,
        operation(
            "metrics",
            "Metrics for Prometheus",
            tag="operations",
            responses={**answer(200, "the metrics", text_content(media.TEXT, _METRICS)), **failures()},
        ),
    ),
    Endpoint(
        "GET",
        "/v1/status",
        status,
        operation(
            "status",
            "State of the service: version, relations, views, figures",
            tag="operations",
            responses={**answer(200, "the state", json_content("Status", _STATUS)), **failures("bad-parameter")},
        ),
    ),
    Endpoint(
        "GET",
        "/v1/sources",
        list_sources,
        operation(
            "listSources",
            "List the sources of batches, each with its last batch",
            tag="operations",
            responses={**answer(200, "the sources", json_content("Sources", SOURCES)), **failures("bad-parameter")},
        ),
    ),
    Endpoint(
        "DELETE",
        "/v1/sources/{name}",
        delete_source,
        operation(
            "deleteSource",
            "Forget a source: whatever run and epoch it sends next are its first",
            tag="operations",
            parameters=[path_parameter("name", "the source", "pms")],
            responses={**answer(204, "forgotten"), **failures("bad-parameter", "not-found", "disk-full")},
        ),
    ),
    Endpoint(
        "GET",
        "/",
        dashboard,
        operation("dashboard", "The dashboard (not implemented yet)", tag="operations", responses=failures("not-yet")),
    ),
]

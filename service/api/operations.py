"""Health, metrics and sources, for operators."""

from __future__ import annotations

from typing import Any

import orjson
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from livejoin.wire.grammar import timestamp_text
from service.access.access_token import AccessToken
from service.api.context import Context
from service.api.http import media
from service.api.http.answers import json_answer, no_parameters
from service.api.metrics import exposition
from service.api.openapi import Endpoint, answer, failures, json_content, operation, path_parameter, text_content
from service.api.schemas.examples import SOURCES
from service.durability.database import SourceRecord
from service.errors import Problem, ending
from service.instance import Instance


async def livez(request: Request) -> Response:
    """Respond if the event loop runs. Problem `internal` once the writer cannot apply anything any more."""
    _require_writer(request.app.state.context)
    return json_answer({"status": "alive"})


async def readyz(request: Request) -> Response:
    """Respond if the service is ready. Problem `recovering` (with progress) until kernels are compiled and views are built, and once the
    service is shutting down."""
    context: Context = request.app.state.context
    _require_writer(context)
    if context.closing:
        raise ending()
    state = context.engine.state
    if state == "recovering" and context.settings.ready == "views":
        raise Problem("recovering", f"the service is starting: {context.stage}", stage=context.stage, progress=round(context.progress, 4))
    if state not in ("recovering", "ready"):
        raise Problem("recovering", f"the engine is {state}", stage=state, progress=0.0)
    return json_answer({"status": "ready", "stage": "ready", "progress": 1.0})


def _require_writer(context: Context) -> None:
    """Raise Problem `internal` if the writer is stuck. Never waits, however busy it is."""
    if context.ready and context.engine.is_stuck:
        raise Problem("internal", "the writer makes no progress; restart the service")


async def metrics(request: Request) -> Response:
    context: Context = request.app.state.context
    return Response(await context.look(exposition, context, request.scope["token"]), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def list_sources(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    return Response(await context.wait(_sources_encoded, context.engine, request.scope["token"]), media_type=media.JSON)


def _sources_encoded(engine: Instance, token: AccessToken) -> bytes:
    shown = [_shown(name, source) for name, source in sorted(engine.sources().items()) if token.may_use(source.written)]
    return orjson.dumps({"sources": shown})


def _shown(name: str, source: SourceRecord) -> dict[str, Any]:
    time = None if source.time is None else timestamp_text(source.time)
    written = sorted(source.written)
    return {"name": name, "run": source.run, "epoch": source.epoch, "version": source.version, "time": time, "relations": written}


async def delete_source(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    await context.wait(context.engine.forget_source, request.path_params["name"])
    return Response(status_code=204)


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
        "/v1/sources",
        list_sources,
        operation(
            "listSources",
            "List the sources of batches that the token may use, each with its last batch",
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
            "Forget a source, so that its next batch may have any run and epoch",
            tag="operations",
            parameters=[path_parameter("name", "the source", "pms")],
            responses={**answer(204, "forgotten"), **failures("bad-parameter", "not-found", "disk-full")},
        ),
    ),
]

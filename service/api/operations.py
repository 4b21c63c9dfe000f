"""Health, metrics, sources and the pages of problems, for operators."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Path
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from livejoin.wire.grammar import timestamp_text
from service.access.access_token import AccessToken
from service.api import pages
from service.api.context import Context
from service.api.http import media
from service.api.http.answers import json_answer
from service.api.metrics import exposition
from service.api.models import answers
from service.api.models.examples import SOURCES
from service.api.openapi import answer, failures, json_content, text_content
from service.api.routing import ServiceRequest, router
from service.durability.database import SourceRecord
from service.errors import CATALOGUE, Problem, ending
from service.instance import Instance

routes = router("operations")
open_routes = router("operations", strict=False)
"""Of whoever may add a query string, such as a monitor or a browser."""


@open_routes.get(
    "/livez",
    summary="Is the process alive?",
    responses={**answer(200, "the process is alive", json_content(answers.Health, {"status": "alive"})), **failures()},
)
async def livez(request: ServiceRequest) -> Response:
    """The event loop runs. Problem `internal` once the writer cannot apply anything any more."""
    _require_writer(request.context)
    return json_answer({"status": "alive"})


_READY = {"status": "ready", "stage": "ready", "progress": 1.0}


@open_routes.get(
    "/readyz",
    summary="Is the service ready for requests?",
    responses={**answer(200, "the service is ready", json_content(answers.Health, _READY)), **failures()},
)
async def readyz(request: ServiceRequest) -> Response:
    """Problem `recovering` (with progress) until kernels are compiled and views are built, and once the service is shutting down."""
    context = request.context
    _require_writer(context)
    if context.closing:
        raise ending()
    state = context.engine.state
    if state == "recovering" and context.settings.ready == "views":
        raise Problem("recovering", f"the service is starting: {context.stage}", stage=context.stage, progress=round(context.progress, 4))
    if state not in ("recovering", "ready"):
        raise Problem("recovering", f"the engine is {state}", stage=state, progress=0.0)
    return json_answer(_READY)


def _require_writer(context: Context) -> None:
    """Raise Problem `internal` if the writer is stuck. Never waits, however busy it is."""
    if context.ready and context.engine.is_stuck:
        raise Problem("internal", "the writer makes no progress; restart the service")


_METRICS = "# HELP livejoin_version The newest published version.\n# TYPE livejoin_version gauge\nlivejoin_version 42.0\n"


@open_routes.get(
    "/metrics",
    summary="Metrics for Prometheus",
    responses={**answer(200, "the metrics", text_content(media.TEXT, _METRICS)), **failures()},
)
async def metrics(request: ServiceRequest) -> Response:
    context = request.context
    return Response(await context.look(exposition, context, request.token), headers={"Content-Type": CONTENT_TYPE_LATEST})


@routes.get(
    "/v1/sources",
    summary="List the sources of batches that the token may use, each with its last batch",
    responses={**answer(200, "the sources", json_content(answers.Sources, SOURCES)), **failures("bad-parameter")},
)
async def list_sources(request: ServiceRequest) -> Response:
    context = request.context
    return Response(await context.wait(_sources_encoded, context.engine, request.token), media_type=media.JSON)


def _sources_encoded(engine: Instance, token: AccessToken) -> bytes:
    shown = [_shown(name, source) for name, source in sorted(engine.sources().items()) if token.may_use(source.written)]
    return orjson.dumps({"sources": shown})


def _shown(name: str, source: SourceRecord) -> dict[str, Any]:
    time = None if source.time is None else timestamp_text(source.time)
    written = sorted(source.written)
    return {"name": name, "run": source.run, "epoch": source.epoch, "version": source.version, "time": time, "relations": written}


@routes.delete(
    "/v1/sources/{name:text}",
    summary="Forget a source, so that its next batch may have any run and epoch",
    responses={**answer(204, "forgotten"), **failures("bad-parameter", "not-found", "disk-full")},
)
async def delete_source(request: ServiceRequest, name: Annotated[str, Path(description="the source", examples=["pms"])]) -> Response:
    context = request.context
    await context.wait(context.engine.forget_source, name)
    return Response(status_code=204)


_PAGE = {
    **text_content(media.TEXT, "too-busy (429): The service is busy\n\nWhat it means\n…"),
    **text_content(media.HTML, '<!doctype html><html lang="en">…</html>'),
}


@open_routes.get(
    "/problems/{type}",
    summary="What a problem type means, and what to do",
    responses={**answer(200, "the page", _PAGE), **failures("not-found", "not-acceptable")},
)
async def problem(
    request: Request, type_: Annotated[str, Path(alias="type", description="the last part of a problem's `type`", examples=["too-busy"])]
) -> Response:
    kind = CATALOGUE.get(type_)
    if kind is None:
        raise Problem("not-found", f"there is no problem type {type_!r}", available=sorted(CATALOGUE))
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

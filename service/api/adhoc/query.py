"""`POST /v1/query`: one SELECT over relations and views at one version."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service.adhoc.session import Session
from service.adhoc.statement import Known, read, refused
from service.api.adhoc.running import Answer, Running
from service.api.context import Context
from service.api.http import formats, media
from service.api.http.answers import no_parameters
from service.api.http.bodies import ClientGone, form
from service.api.openapi import Endpoint, answer, binary_content, failures, json_content, operation, text_content
from service.api.schemas.examples import QUERY, QUERY_PAGE
from service.api.stream import client_gone
from service.errors import bad_parameter


async def post_query(request: Request) -> Response:
    context: Context = request.app.state.context
    begun = time.monotonic()
    no_parameters(request)
    kind = media.negotiate(request.headers.get("accept"), formats.OFFERED)
    async with form(request.scope, request.receive, context.bodies, context.work) as data:
        sql, version = _asked(data)
        context.queries.begin()
        try:
            session = await context.work(_session, context, request, sql, version)
        except BaseException:
            context.queries.end("refused")
            raise
    running = Running(context, session, kind, begun)
    context.track()
    first = asyncio.ensure_future(running.first())
    gone = asyncio.ensure_future(client_gone(request.receive))
    try:
        await asyncio.wait((first, gone), return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            raise ClientGone
        made = first.result()
        headers = {
            "Livejoin-Version": str(running.version),
            "Livejoin-Empty": "true" if running.empty else "false",
            "Vary": "Accept",
            "Cache-Control": "no-store",
        }
        return Answer(context, running, made, formats.content_type_of(kind), headers)
    except BaseException:
        await running.leave(first)
        raise
    finally:
        gone.cancel()


def _asked(data: dict[str, Any]) -> tuple[str, int | None]:
    """Return the SQL text and the version of a request. Problem `bad-parameter`."""
    for name in data:
        if name not in ("sql", "version"):
            raise bad_parameter(name[:40], "is not a field of a query: it has sql and version")
    sql, version = data.get("sql"), data.get("version")
    if not isinstance(sql, str):
        raise bad_parameter("sql", "must be a text: one SELECT")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or not 0 <= version < 2**63):
        raise bad_parameter("version", "must be a version that a cursor pins, or be left out")
    return sql, version


def _session(context: Context, request: Request, sql: str, version: int | None) -> Session:
    """Validate the query and pass it to a child process. Call this in a thread."""
    engine, queries = context.engine, context.queries
    known = Known(engine.relations, engine.views, request.scope["token"])
    tables = read(sql, known, context.settings.max_sql)
    child = queries.children.take()
    try:
        return Session(engine.readers, child, sql, tables, version, queries.limits)
    except BaseException:
        child.stop()
        child.end()
        raise


_LINE = '{"room":"A","nights":"12.50"}\n'
_CONTENT = {
    **text_content(media.JSONL, _LINE),
    **json_content("Page", QUERY_PAGE),
    **text_content(media.CSV, "room,nights\nA,12.50\n"),
    **binary_content(media.ARROW, "an Arrow IPC stream"),
    **text_content(media.SSE, f'event: row\ndata: {_LINE}\nevent: end\ndata: {{"version":42,"next":null}}\n\n'),
}
_REFUSALS = (
    "bad-parameter", "malformed-body", "body-too-large", "unsupported-media-type", "not-acceptable", "bad-query",
    "unknown-relation", "unknown-column", "unsupported-query", "snapshot-expired", "query-too-large", "query-timeout", "too-busy",
    "view-building", "view-failed",
)  # fmt: skip

ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/query",
        post_query,
        operation(
            "query",
            "Run one SELECT over relations and views, all at one version",
            tag="rows",
            description="DuckDB runs it in a process of its own, without files and network, with limited memory and time. Functions in "
            "FROM are refused. A response that cannot be completed is aborted, never ended as if complete.",
            body=json_content("Query", *QUERY),
            responses={
                **answer(200, "the rows", _CONTENT, {"Livejoin-Version": "42", "Livejoin-Empty": "false"}),
                **failures(*_REFUSALS, told=refused),
            },
        ),
    )
]

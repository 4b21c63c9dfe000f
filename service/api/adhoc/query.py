"""`POST /v1/query`: one SELECT over relations and views at one version."""

from __future__ import annotations

import asyncio
import time

from starlette.responses import Response

from service.access.access_token import AccessToken
from service.adhoc.session import Session
from service.adhoc.statement import VisibleNames, read, refused
from service.api.adhoc.running import Answer, RunningQuery
from service.api.context import Context
from service.api.http import formats, media
from service.api.http.bodies import ClientGone, form
from service.api.http.parameters import checked
from service.api.models import answers
from service.api.models.examples import QUERY, QUERY_PAGE
from service.api.models.requests import Query
from service.api.openapi import answer, binary_content, body, failures, json_content, text_content
from service.api.routing import ServiceRequest, router
from service.api.stream import client_gone

routes = router("rows")

_LINE = '{"room":"A","nights":"12.50"}\n'
_CONTENT = {
    **text_content(media.JSONL, _LINE),
    **json_content(answers.Page, QUERY_PAGE),
    **text_content(media.CSV, "room,nights\nA,12.50\n"),
    **binary_content(media.ARROW, "an Arrow IPC stream"),
    **text_content(media.SSE, f'event: row\ndata: {_LINE}\nevent: end\ndata: {{"version":42,"next":null}}\n\n'),
}
_REFUSALS = (
    "bad-parameter", "malformed-body", "body-too-large", "unsupported-media-type", "not-acceptable", "bad-query",
    "unknown-relation", "unknown-column", "unsupported-query", "snapshot-expired", "query-too-large", "query-timeout", "too-busy",
    "view-building", "view-failed",
)  # fmt: skip


@routes.post(
    "/v1/query",
    summary="Run one SELECT over relations and views, all at one version",
    description="DuckDB runs it in a process of its own, without files and network, with limited memory and time. Functions in FROM are "
    "refused. A response that cannot be completed is aborted, never ended as if complete.",
    openapi_extra=body(json_content(Query, *QUERY)),
    responses={
        **answer(200, "the rows", _CONTENT, {"Livejoin-Version": "42", "Livejoin-Empty": "false"}),
        **failures(*_REFUSALS, shown=refused),
    },
)
async def query(request: ServiceRequest) -> Response:
    context = request.context
    begun = time.monotonic()
    kind = media.negotiate(request.headers.get("accept"), formats.OFFERED)
    async with form(request.scope, request.receive, context.bodies, context.work) as data:
        given = checked(Query, data)
        context.queries.begin()
        try:
            session = await context.work(_session, context, request.token, given)
        except BaseException:
            context.queries.end("refused")
            raise
    running = RunningQuery(context, session, kind, begun)
    context.track()
    first = asyncio.ensure_future(running.first())
    deleted = asyncio.ensure_future(client_gone(request.receive))
    try:
        await asyncio.wait((first, deleted), return_when=asyncio.FIRST_COMPLETED)
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
        deleted.cancel()


def _session(context: Context, token: AccessToken, given: Query) -> Session:
    """Validate the query and pass it to a child process. Call this in a thread."""
    engine, queries = context.engine, context.queries
    known = VisibleNames(engine.relations, engine.views, token)
    statement = read(given.sql, known, context.settings.max_sql)
    child = queries.children.take()
    try:
        return Session(engine.readers, child, *statement, given.version, queries.limits)
    except BaseException:
        child.stop()
        child.end()
        raise

"""Bounded changes of a view: where a range of about a given number of rows ends, the range as Arrow, and the rows of a part as inserts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Annotated, TypeVar, cast

import pyarrow as pa
from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from livejoin.wire.rows import ArrowRows, Pieces, joined
from service.api.context import Context
from service.api.http import media
from service.api.http.answers import json_answer
from service.api.http.parameters import MostPositive, Parameters
from service.api.metrics import RECORDS_SENT
from service.api.models import answers
from service.api.models.body import Absent
from service.api.openapi import answer, failures, json_content
from service.api.routing import ServiceRequest, ViewName, router
from service.api.stream import Chunk, Closable, Source, Stream
from service.errors import Problem
from service.following.chunks import CHUNK_ROWS
from service.following.feeds import Feed
from service.following.subscriptions import Subscription
from service.reading.choosing import Asked
from service.reading.cursors import RowReader, open_rows
from service.tables.resolution import NO_SLOTS
from service.views.live_view import LiveView

H = TypeVar("H", bound=Closable)
_OWN = [pa.field("_op", pa.string(), False), pa.field("_version", pa.int64(), False)]
routes = router("followers")
_HEADERS = {"Cache-Control": "no-cache", "Vary": "Accept"}


def feed_of(view: LiveView) -> Feed:
    """Return the feed of a live view that keeps changes. Problems: `view-building`, `view-failed`, `not-followed`."""
    name = view.name
    if view.state == "building":
        raise Problem("view-building", f"the view {name} is being built", progress=view.progress)
    if view.state == "failed":
        raise Problem("view-failed", f"the view {name} has failed; GET /v1/views/{name} shows the problem")
    if view.feed is None:
        raise Problem("not-followed", f'the view {name} was defined with "changes": false')
    return cast(Feed, view.feed)  # `Instance` makes no other sink


class _ArrowEncoder:
    """Encodes changes as Arrow."""

    def __init__(self, view: LiveView, columns: Sequence[str] | None) -> None:
        """`columns`: those of the rows; None: all. Raises Problem `not-acceptable` if one has a reserved name."""
        keys, rows = (batch.schema for batch in view.shown.with_keys((NO_SLOTS,) * view.width))
        rows = rows if columns is None else pa.schema([rows.field(name) for name in columns])
        for field in _OWN:
            if field.name in rows.names:
                said = f"the view {view.name} has a column {field.name}, which Arrow changes use themselves: request JSON lines"
                raise Problem("not-acceptable", said)
        self._keys = [name for name in keys.names if "." in name]  # a name without a dot: no key columns
        shown = (field.with_nullable(True) for field in rows)  # changes may be of a former definition
        fields = [*_OWN, *(keys.field(name).remove_metadata() for name in self._keys), *shown]
        self._schema = pa.schema(fields)
        self._stream = ArrowRows(self._schema)

    def rows(self, op: str, version: int, keys: pa.RecordBatch, rows: pa.RecordBatch) -> Pieces:
        RECORDS_SENT.inc(rows.num_rows)
        own = [pa.repeat(pa.scalar(value, field.type), rows.num_rows) for value, field in zip((op, version), _OWN, strict=True)]
        columns = [*own, *(keys.column(name) for name in self._keys), *rows.columns]
        return self._stream.chunk(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def end(self) -> bytes:
        return self._stream.end()


class _ChangesSource:
    """A source of a `Stream`: the changes of a bounded subscription."""

    def __init__(self, view: LiveView, columns: Sequence[str] | None, subscription: Subscription) -> None:
        self._subscription, self._made = subscription, _ArrowEncoder(view, columns)

    def step(self) -> Chunk:
        parts: Pieces = []
        for chunk in self._subscription.next():
            if chunk.problem is not None:
                raise chunk.problem
            if chunk.keys is not None and chunk.rows is not None:
                parts += self._made.rows(chunk.op, chunk.version, chunk.keys, chunk.rows)
        if self._subscription.ended:
            parts.append(self._made.end())
        return joined(parts), not self._subscription.ended

    def touch(self) -> None: ...

    def close(self) -> None:
        self._subscription.close()


class _Part:
    """A source of a `Stream`: the rest of a view's rows after a cursor, as inserts."""

    def __init__(self, reader: RowReader) -> None:
        self._reader, self._made = reader, _ArrowEncoder(reader.view, reader.schema.names)

    def step(self) -> Chunk:
        found = self._reader.read_with_keys(CHUNK_ROWS)
        if found is None:
            return [self._made.end()], False
        return self._made.rows("insert", self._reader.version, *found) if found[1].num_rows else [], True

    def touch(self) -> None:
        self._reader.touch()

    def close(self) -> None:
        self._reader.close()


async def in_arrow(
    context: Context, fields: media.Fields, view: LiveView, feed: Feed, since: str, until: str, asked: Asked | None
) -> Response:
    """Respond with the changes from `since` to `until` to a request with these header fields. Problems of `Feed.subscribe`;
    `not-acceptable`."""

    def opened() -> Subscription:
        subscription = feed.subscribe(since, until=until, asked=asked)
        context.named_readers.note(fields, view.name, subscription.final or 0)
        return subscription

    begun = await _begun(context, context.followers, opened, partial(_ChangesSource, view, asked and asked.columns))
    return Stream(context, context.followers, *begun, media.ARROW, _HEADERS)


async def part_in_arrow(context: Context, name: str, cursor: str) -> Response:
    """Respond with the rest of a view's rows after `cursor`, as inserts. Problems of `open_rows`; `not-acceptable`."""
    begun = await _begun(context, context.readers, partial(open_rows, context.engine.readers, name, cursor=cursor), _Part)
    return Stream(context, context.readers, *begun, media.ARROW, _HEADERS)


_Begun = tuple[Source, Chunk]


async def _begun(context: Context, pool: Executor, opened: Callable[[], H], source_of: Callable[[H], Source]) -> _Begun:
    """Call `opened` in a thread and return a source that reads from, and closes, its result, with the first bytes. If that fails, close the
    result."""

    def begin() -> _Begun:
        held = opened()
        try:
            source = source_of(held)
            return source, source.step()
        except BaseException:
            held.close()
            raise

    return await context.loop.run_in_executor(pool, begin)


class EndParameters(Parameters):
    since: str = Field(description="the token after which the changes begin")
    rows: MostPositive | Absent = Field(None, description="about how many rows of changes; by default, all", examples=[100_000])


@routes.get(
    "/v1/views/{name}/changes/end",
    summary="Get the token of the last version within a number of rows of changes",
    description="It is at least one version, however many rows that has; `rows` is the number of rows up to it. No rows are read: read the "
    "changes up to the token with `until`.",
    responses={
        **answer(200, "the version and its token", json_content(answers.ChangesEnd, {"version": 43, "token": "eyJ2IjogNDN9", "rows": 2})),
        **failures("bad-parameter", "bad-token", "not-found", "not-followed", "token-expired", "view-building", "view-failed"),
    },
)
async def view_changes_end(request: ServiceRequest, name: ViewName, query: Annotated[EndParameters, Query()]) -> Response:
    context = request.context
    feed = feed_of(request.view(name))
    version, rows = await context.loop.run_in_executor(context.followers, feed.end, query.since, query.rows)
    return json_answer({"version": version, "token": feed.token(version), "rows": rows})

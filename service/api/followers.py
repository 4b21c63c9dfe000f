"""`GET /v1/views/{name}/changes`: the changes of a view, version by version, to whoever follows it.

A follower holds no thread while it waits: the feed's listener wakes it, and a thread then takes and encodes what there is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple, cast

import orjson
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from service.api.context import Context
from service.api.http import formats, media, parameters
from service.api.http.answers import existing
from service.api.http.bodies import Receive, Scope, Send
from service.api.http.parameters import Parameter
from service.api.metrics import RECORDS_SENT
from service.api.openapi import Endpoint, answer, failures, header_parameter, operation, path_parameter, query_parameters, text_content
from service.api.stream import client_gone
from service.errors import Problem
from service.following.chunks import Chunk
from service.following.feeds import Feed
from service.following.subscriptions import Subscription
from service.views.live_view import LiveView
from service.wire.rows import encode_rows

log = logging.getLogger("livejoin")

PROGRESS_INTERVAL = 15.0  # seconds between two records at most
OFFERED = (media.JSONL, media.SSE)

PARAMETERS = (
    Parameter("since", parameters.plain, {"type": "string"}, "the token of the last `progress` that was applied; without it from now on"),
    Parameter("snapshot", parameters.boolean, {"type": "boolean", "default": False}, "first every row, as an insert at one version", True),
    Parameter("limit", parameters.integer(1), {"type": "integer", "minimum": 1}, "end after so many `progress` records", 1),
    Parameter("wait", parameters.seconds, {"type": "number", "minimum": 0}, "end when nothing new has come for so many seconds", 0),
)


class Taken(NamedTuple):
    """What one look at the feed gave."""

    body: bytes
    news: bool
    ended: bool


class Follower:
    """Takes chunks of a subscription and makes records of them. One thread at a time."""

    def __init__(self, subscription: Subscription, kind: str, limit: int | None) -> None:
        self._subscription = subscription
        self._sse = kind == media.SSE
        self._left = limit  # progress records
        self._closed_version = False  # the last record was a progress

    def take(self) -> Taken:
        """All that there is now."""
        chunks = self._subscription.next(0.0)
        records: list[bytes] = []
        for chunk in chunks:
            records += self._records(chunk)
            if chunk.kind == "error" or self._left == 0:
                return self._taken(records, True)
        return self._taken(records, False)._replace(news=bool(chunks))

    def idle(self) -> Taken:
        """A progress because nothing has come for long."""
        records = list(self._records(self._subscription.idle_progress()))
        return self._taken(records, self._left == 0)

    def last(self) -> bytes:
        """What still has to be said at the end: a progress, unless it was the last word."""
        return b"" if self._closed_version else self.idle().body

    def close(self) -> None:
        self._subscription.close()

    def _taken(self, records: list[bytes], ended: bool) -> Taken:
        RECORDS_SENT.inc(len(records))
        return Taken(b"".join(records), bool(records), ended)

    def _records(self, chunk: Chunk) -> Iterator[bytes]:
        self._closed_version = chunk.kind == "progress"
        if chunk.kind == "rows":
            assert chunk.keys is not None and chunk.rows is not None
            head = b'{"version":%d,"op":"%b","key":' % (chunk.version, chunk.op.encode())
            for key, row in zip(key_lines(chunk.keys), _lines(chunk.rows), strict=True):
                yield self._record(chunk.op, b'%b%b,"row":%b}' % (head, key, row))
        elif chunk.kind == "progress":
            if self._left is not None:
                self._left -= 1
            data = orjson.dumps({"version": chunk.version, "op": "progress", "token": chunk.token})
            yield self._record("progress", data, chunk.token)
        else:
            problem = None if chunk.problem is None else chunk.problem.to_json()
            token = {} if chunk.token is None else {"token": chunk.token}  # there is none within a snapshot
            yield self._record("error", orjson.dumps({"op": "error", "problem": problem, **token}))

    def _record(self, op: str, data: bytes, token: str | None = None) -> bytes:
        if not self._sse:
            return data + b"\n"
        identity = b"" if token is None else b"id: %b\n" % token.encode()
        return b"event: %b\n%bdata: %b\n\n" % (op.encode(), identity, data)


def _lines(rows: pa.RecordBatch) -> list[bytes]:
    """Each row as one JSON object."""
    return encode_rows(media.JSONL, rows).split(b"\n")[:-1]


def key_lines(keys: pa.RecordBatch) -> Iterator[bytes]:
    """Each identity as JSON, nested by alias; columns are named `alias.column`."""
    columns: dict[str, list[int]] = {}
    for i, name in enumerate(keys.schema.names):
        columns.setdefault(name.partition(".")[0], []).append(i)
    parts = []
    for at in columns.values():
        names = [keys.schema.names[i].partition(".")[2] for i in at]
        parts.append(_lines(pa.RecordBatch.from_arrays([keys.column(i) for i in at], names)))
    template = b"{" + b",".join(b'"%b":%%b' % alias.encode() for alias in columns) + b"}"
    return (template % row for row in zip(*parts, strict=True))


class Following(Response):
    """The answer: records as they come, until the limit, the wait, an error, or the end of either side."""

    def __init__(self, context: Context, feed: Feed, follower: Follower, kind: str, wait: float | None) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-cache", "Vary": "Accept"}, formats.content_type_of(kind))
        del self.headers["content-length"]
        self._context, self._feed, self._follower, self._wait = context, feed, follower, wait

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = self._context
        gone = asyncio.ensure_future(client_gone(receive))
        bell = Bell(context.loop)
        listener = self._feed.add_listener(bell.ring)
        context.track()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._follow(send, bell, gone)
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not context.closing:
                raise
        except Exception:
            log.exception("%s broken off", scope["path"])
        finally:
            gone.cancel()
            self._feed.remove_listener(listener)
            context.followers.submit(self._follower.close)

    async def _follow(self, send: Send, bell: Bell, gone: asyncio.Future[None]) -> None:
        """Send records until the stream ends by itself or the client is gone."""
        context, follower, wait = self._context, self._follower, self._wait
        news = sent = context.loop.time()
        while not gone.done():
            bell.clear()
            taken = await context.loop.run_in_executor(context.followers, follower.take)
            now = context.loop.time()
            if taken.news:
                news = now
            elif wait is not None and now - news >= wait:
                await _send(send, await context.loop.run_in_executor(context.followers, follower.last))
                return
            elif now - sent >= PROGRESS_INTERVAL:
                taken = await context.loop.run_in_executor(context.followers, follower.idle)
            if taken.body:
                await _send(send, taken.body)
                sent = context.loop.time()
            if taken.ended:
                return
            if not taken.news:
                until = sent + PROGRESS_INTERVAL if wait is None else min(sent + PROGRESS_INTERVAL, news + wait)
                await bell.wait(until - now, gone)


async def _send(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


class Bell:
    """Rung by the writer, heard in the loop; many rings before it is heard are one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()
        self._rung = False

    def ring(self) -> None:
        """From any thread; never waits."""
        if not self._rung:
            self._rung = True
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Before looking at the feed: a ring afterwards will be heard."""
        self._event.clear()
        self._rung = False

    async def wait(self, seconds: float, gone: asyncio.Future[None]) -> None:
        """Until it rings, the time is up, or the client is gone."""
        heard = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait((heard, gone), timeout=max(seconds, 0.0), return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard.cancel()


async def changes(request: Request) -> Response:
    context: Context = request.app.state.context
    engine = context.engine
    values = parameters.read(request.scope["query_string"], PARAMETERS)
    kind = media.negotiate(request.headers.get("accept"), OFFERED)
    since, snapshot = values.get("since"), values.get("snapshot", False)
    resumed = request.headers.get("last-event-id")
    if resumed:
        since, snapshot = resumed, False
    elif since is not None and snapshot:
        raise Problem("bad-parameter", "since and snapshot=true: either go on from a token, or begin with every row")
    views = engine.views
    feed = _feed(views[existing(views, request, "view")])
    subscription = await context.loop.run_in_executor(context.followers, feed.subscribe, since, snapshot)
    return Following(context, feed, Follower(subscription, kind, values.get("limit")), kind, values.get("wait"))


def _feed(view: LiveView) -> Feed:
    """The feed of a live view that keeps changes. Problems: `view-building`, `view-failed`, `not-followed`."""
    name = view.name
    if view.state == "building":
        raise Problem("view-building", f"the view {name} is being built", progress=view.progress)
    if view.state == "failed":
        raise Problem("view-failed", f"the view {name} has failed; GET /v1/views/{name} tells why")
    if view.feed is None:
        raise Problem("not-followed", f'the view {name} was defined with "changes": false')
    return cast(Feed, view.feed)  # `Instance` makes no other sink


_INSERT = '{"version":43,"op":"insert","key":{"b":{"id":1},"m":{"id":7}},"row":{"booking":1,"job":7}}'
_PROGRESS = '{"version":43,"op":"progress","token":"eyJ2IjogNDN9"}'
_CONTENT = {
    **text_content(media.JSONL, f"{_INSERT}\n{_PROGRESS}\n"),
    **text_content(media.SSE, f"event: insert\ndata: {_INSERT}\n\nevent: progress\nid: eyJ2IjogNDN9\ndata: {_PROGRESS}\n\n"),
}

ENDPOINTS = [
    Endpoint(
        "GET",
        "/v1/views/{name}/changes",
        changes,
        operation(
            "viewChanges",
            "Follow the changes of a view",
            tag="followers",
            description="Within a version deletes come before inserts; `progress` closes each version that changed the view and carries "
            "the token to go on from. `Last-Event-ID` wins over `since` and `snapshot`.",
            parameters=[
                path_parameter("name", "the view", "clashes"),
                *query_parameters(PARAMETERS),
                header_parameter("Last-Event-ID", "the token to go on from, as browsers send it", "eyJ2IjogNDN9"),
            ],
            responses={
                **answer(200, "the records", _CONTENT),
                **failures(
                    "bad-parameter",
                    "bad-token",
                    "not-found",
                    "not-acceptable",
                    "not-followed",
                    "token-expired",
                    "delta-too-large",
                    "view-building",
                    "view-failed",
                ),
            },
        ),
    )
]

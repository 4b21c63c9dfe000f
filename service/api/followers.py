"""`GET /v1/views/{name}/changes`: the changes of a view, version by version, for its followers.

A waiting follower holds no thread: the feed's listener wakes it, and a thread then fetches and encodes the new changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from service.api.between import feed_of, in_arrow, part_in_arrow
from service.api.broadcast import Broadcast, Waiter
from service.api.context import Context
from service.api.http import formats, media
from service.api.http.answers import TAKEN
from service.api.http.bodies import Receive, Scope, Send
from service.api.http.parameters import Flag, MostPositive, Seconds, family
from service.api.metrics import RECORDS_SENT
from service.api.models.body import Absent
from service.api.openapi import answer, binary_content, failures, header_parameter, text_content
from service.api.records import OFFERED, records
from service.api.routing import ServiceRequest, ViewName, router
from service.api.rows import ColumnParameters, Window, condition_parameter, windows_of
from service.api.stream import client_gone
from service.errors import Problem, bad_parameter
from service.following.chunks import CHUNK_ROWS, Chunk
from service.following.feeds import Feed
from service.following.subscriptions import Subscription
from service.reading.choosing import Asked

log = logging.getLogger("livejoin.api")

_PIECE = 256 << 10  # bytes
PROGRESS_INTERVAL = 15.0  # seconds between two records at most

routes = router("followers")


class FollowParameters(ColumnParameters):
    condition: str | Absent = condition_parameter()
    windows: dict[str, Window] = family(
        "overlaps.",
        "`overlaps.<alias>.<interval>=lo,hi`: only rows whose interval overlaps this window; the view selects both of its ends",
        {"overlaps.b.stay": "2026-01-01T00:00:00Z,"},
    )
    since: str | Absent = Field(None, description="the token of the last applied `progress`; by default, only new changes")
    snapshot: Flag = Field(False, description="begin with all rows, as inserts", examples=[True])
    until: str | Absent = Field(None, description="with `since`: end at this token, from `/changes/end` or a later `progress`")
    cursor: str | Absent = Field(None, description="with `snapshot=true`: only the rows after a cursor, such as a part's, as Arrow")
    limit: MostPositive | Absent = Field(None, description="end after this number of `progress` records", examples=[1])
    wait: Seconds | Absent = Field(None, description="end after this many seconds without changes", examples=[0])


class FeedRead(NamedTuple):
    """The result of one read of the feed; `more`: there may be more."""

    body: bytes
    news: bool
    ended: bool
    more: bool = False


class Follower:
    """Encodes the chunks of a subscription as records, or passes on the records of a broadcast. One thread at a time."""

    def __init__(self, subscription: Subscription, kind: str, limit: int | None) -> None:
        self._subscription = subscription
        self._kind = kind
        self._left = limit  # remaining progress records
        self._closed_version = False  # whether the last record was a progress

    def take(self) -> FeedRead:
        """Return everything that is available now."""
        chunks = self._subscription.next()
        found: list[bytes] = []
        for chunk in chunks:
            found += self._records(chunk)
            if chunk.kind == "error" or self._left == 0:
                return self._taken(found, True)
        rows = sum([chunk.rows.num_rows for chunk in chunks if chunk.rows is not None])
        more = rows >= CHUNK_ROWS or self._subscription.is_in_snapshot
        return self._taken(found, self._subscription.ended)._replace(news=bool(chunks), more=more)

    def hear(self, broadcast: Broadcast, seat: Waiter) -> FeedRead | None:
        """Return the broadcast's records that this follower does not have yet; None: it must read by itself."""
        position = self._subscription.position
        said = None if position is None else broadcast.after(position, self._left, seat)
        if said is None or not said.versions:
            return said and FeedRead(b"", False, False)
        self._subscription.go_on_from(said.version)
        self._closed_version = True
        if self._left is not None:
            self._left -= said.versions
        RECORDS_SENT.inc(said.records)
        return FeedRead(said.body, True, self._left == 0)

    def idle(self) -> FeedRead:
        """Return a progress record, after a long time without changes."""
        found = list(self._records(self._subscription.idle_progress()))
        return self._taken(found, self._left == 0)

    def last(self) -> bytes:
        """Return the last record: a progress, unless the previous record was one."""
        return b"" if self._closed_version else self.idle().body

    def touch(self) -> None:
        """Note that the client has received something. Any thread."""
        self._subscription.touch()

    def close(self) -> None:
        self._subscription.close()

    def _taken(self, found: list[bytes], ended: bool) -> FeedRead:
        RECORDS_SENT.inc(len(found))
        return FeedRead(b"".join(found), bool(found), ended)

    def _records(self, chunk: Chunk) -> Iterator[bytes]:
        self._closed_version = chunk.kind == "progress"
        if self._closed_version and self._left is not None:
            self._left -= 1
        return records(chunk, self._kind)


class FollowResponse(Response):
    """The response: records as they arrive, until the limit or the wait is reached, an error occurs, or either side disconnects."""

    def __init__(self, context: Context, feed: Feed, follower: Follower, kind: str, wait: float | None) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-cache", "Vary": "Accept"}, formats.content_type_of(kind))
        del self.headers["content-length"]
        self._context, self._feed, self._kind, self._follower, self._wait = context, feed, kind, follower, wait

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = self._context
        gone = asyncio.ensure_future(client_gone(receive))
        broadcast, seat = context.broadcasts.join(self._feed, self._kind, context.loop)
        gone.add_done_callback(seat.wake)
        context.track()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers, TAKEN: self._follower.touch})
            if scope["method"] != "HEAD":
                await self._follow(send, broadcast, seat, gone)
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False, TAKEN: None})
        except asyncio.CancelledError:
            if not context.closing:
                raise
        except Problem as problem:
            log.info("%s aborted: %s", scope["path"], problem)
        except Exception:
            log.exception("%s aborted", scope["path"])
        finally:
            gone.cancel()
            context.broadcasts.leave(broadcast, seat)
            context.followers.submit(self._follower.close)

    async def _follow(self, send: Send, broadcast: Broadcast, seat: Waiter, gone: asyncio.Future[None]) -> None:
        """Send records until the stream ends or the client disconnects."""
        context, follower, wait = self._context, self._follower, self._wait
        news = sent = context.loop.time()
        up_to_date = False  # whether it had read everything itself a moment ago
        while not gone.done():
            due = sent + PROGRESS_INTERVAL if wait is None else min(sent + PROGRESS_INTERVAL, news + wait)
            taken = follower.hear(broadcast, seat) if up_to_date else None
            heard = taken is not None and (taken.news or context.loop.time() < due)
            if taken is None or not heard:  # only the feed knows that there is nothing new: the broadcast may be behind it
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
            if up_to_date and not taken.body:
                await seat.wait(due)
            up_to_date = heard or not taken.more


async def _send(send: Send, body: bytes) -> None:
    """Send in pieces: each waits until the client has received most of the previous ones, so the rest is not copied into the socket's
    buffer."""
    for start in range(0, len(body), _PIECE):
        await send({"type": "http.response.body", "body": body[start : start + _PIECE], "more_body": True})


_INSERT = '{"version":43,"op":"insert","key":{"b":{"id":1},"m":{"id":7}},"row":{"booking":1,"job":7}}'
_PROGRESS = '{"version":43,"op":"progress","token":"eyJ2IjogNDN9"}'
_CONTENT = {
    **text_content(media.JSONL, f"{_INSERT}\n{_PROGRESS}\n"),
    **text_content(media.SSE, f"event: insert\ndata: {_INSERT}\n\nevent: progress\nid: eyJ2IjogNDN9\ndata: {_PROGRESS}\n\n"),
    **binary_content(media.ARROW, "with `until`: an Arrow IPC stream with `_op`, `_version`, and the columns of the key and the row"),
}


@routes.get(
    "/v1/views/{name}/changes",
    summary="Follow the changes of a view",
    description="Within a version, deletes precede inserts. A `progress` record ends each version that changed the view, with the token to "
    "resume from. `Last-Event-ID` takes precedence over `since` and `snapshot`. With `until`, the changes end at that token; only then can "
    "they also be sent as Arrow, without `progress` records.",
    openapi_extra={"parameters": [header_parameter("Last-Event-ID", "the token to resume from, as sent by browsers", "eyJ2IjogNDN9")]},
    responses={
        **answer(200, "the records", _CONTENT),
        **failures(
            "bad-parameter", "bad-token", "not-found", "not-acceptable", "not-followed", "token-expired", "delta-too-large", "too-busy",
            "view-building", "view-failed",
        ),
    },
)  # fmt: skip
async def view_changes(request: ServiceRequest, name: ViewName, query: Annotated[FollowParameters, Query()]) -> Response:
    context = request.context
    request.require_view(name)
    since, snapshot, until, cursor = query.since, query.snapshot, query.until, query.cursor
    offered = (media.ARROW,) if cursor is not None else OFFERED if until is None else (*OFFERED, media.ARROW)
    kind = media.negotiate(request.headers.get("accept"), offered)
    resumed = request.headers.get("last-event-id")
    if resumed:
        since, snapshot = resumed, False
    elif since is not None and snapshot:
        raise bad_parameter("since", "cannot be combined with snapshot=true: resume from a token, or start with every row")
    if until is not None and since is None:
        raise bad_parameter("until", "needs since, the token after which the changes begin")
    view = context.engine.views[name]
    feed = feed_of(view)
    asked: Asked | None = Asked(windows_of(query.windows), None, None, query.condition, query.column_names)
    asked = None if asked == Asked() else asked
    if cursor is not None:
        if not snapshot:
            raise bad_parameter("cursor", "needs snapshot=true: the rows of a part are sent as inserts")
        _require_unset(query, "since", "until", "limit", "wait")
        if asked is not None:
            raise bad_parameter("cursor", "is of a part with the rows and columns that were requested when its reading began")
        return await part_in_arrow(context, name, cursor)
    if kind == media.ARROW:
        assert since is not None and until is not None
        _require_unset(query, "limit", "wait")
        return await in_arrow(context, request.scope["fields"], view, feed, since, until, asked)
    subscription = await context.loop.run_in_executor(context.followers, feed.subscribe, since, snapshot, until, asked)
    return FollowResponse(context, feed, Follower(subscription, kind, query.limit), kind, query.wait)


def _require_unset(query: FollowParameters, *names: str) -> None:
    for name in names:
        if name in query.model_fields_set:
            raise bad_parameter(name, "cannot be combined with this form of the changes, which ends by itself")

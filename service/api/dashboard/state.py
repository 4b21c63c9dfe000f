"""`GET /v1/status`: the state of the service, once or every second.

Its size is bounded by the numbers of relations and views, and by constants for pins, sources of warnings and problems. What names other
users' relations, views or requests is only for unrestricted tokens, problems only for admins.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.responses import Response

from livejoin.wire.grammar import timestamp_text
from livejoin.wire.version import VERSION
from service.access.access_token import AccessToken
from service.api.context import Context
from service.api.http import formats, media
from service.api.http.bodies import Receive, Scope, Send
from service.api.models.dashboard import Status
from service.api.openapi import answer, failures, json_content, text_content
from service.api.routing import ServiceRequest, router
from service.api.stream import client_gone
from service.durability.usage import Usage
from service.engine.versions import HeldVersion
from service.errors import Problem
from service.instance import Instance
from service.views.live_view import LiveView

log = logging.getLogger("livejoin.api")

INTERVAL = 1.0  # seconds between two events
MOST_PINS = 50
_LARGE = 64 << 20  # bytes of old versions
_FULL = 0.1  # of the disk
_SLOW = 1000  # versions behind
_EXPIRES = "What it has not read is kept within the bounds of the view's `changes`; beyond them it has to begin again with a snapshot."
_LET_GO = "Have the reader go on or end; --pin-idle and --pin-bytes say when it is let go."


routes = router("operations")

_STATUS = {
    "state": "ready",
    "time": "2026-01-01T12:00:00.250000Z",
    "version": 42,
    "timeline": 1,
    "software": {"name": "livejoin", "version": "0.1.0"},
    "uptime_seconds": 12.5,
    "ready_after_seconds": 1.7,
    "synchronous": "full",
    "max_body": 268435456,
    "token": {"needed": False, "name": "", "scope": "admin", "covers_all": True},
    "relations": {"bookings": {"rows": 3, "bytes": 4096}},
    "views": {
        "clashes": {
            "state": "live",
            "progress": 1.0,
            "class": "interval join, 1-D, 2 relations, keyed",
            "algorithm": "interval-tree",
            "guarantee": "strict",
            "bytes": 14400000,
            "update_p99_seconds": 0.0001,
            "feed": {"changes": 7, "subscribers": 1, "lag": 0, "rows": 7, "bytes": 512},
        }
    },
    "figures": {"pins": 0, "waiting_batches": 0, "subscribers": 0, "retired_bytes": 0},
    "memory": {"resident": 314572800, "relations": 4096, "views": 14400000, "changes": 512, "old_versions": 0, "bodies": 0},
    "disk": {
        "log": 36864,
        "snapshots": 0,
        "other": 512,
        "size": 10737418240,
        "free": 5368709120,
        "snapshot": {"version": 40, "time": "2026-01-01T11:00:00Z", "bytes": 8192},
    },
    "warnings": [{"text": "A follower of the view clashes is 1,200 versions behind: it reads too slowly. " + _EXPIRES, "view": "clashes"}],
    "pins": [{"version": 41, "behind": 1, "readers": 1, "reading": "view clashes", "idle_seconds": 2.5, "age_seconds": 4.0}],
    "readers": [{"name": "clashes-to-delta", "view": "clashes", "version": 41, "behind": 1, "idle_seconds": 0.5}],
    "problems": [],
}


@routes.get(
    "/v1/status",
    summary="State of the service: version, relations, views, figures, memory, disk, warnings",
    description="As `text/event-stream`, it is sent every second. `pins` require an unrestricted token, `problems` an unrestricted one of "
    "the scope admin.",
    responses={
        **answer(
            200,
            "the state",
            {**json_content(Status, _STATUS), **text_content(media.SSE, 'event: status\ndata: {"state":"ready",…}\n\n')},
        ),
        **failures("bad-parameter", "not-acceptable"),
    },
)
async def status(request: ServiceRequest) -> Response:
    context = request.context
    token = request.token
    kind = media.negotiate(request.headers.get("accept"), (media.JSON, media.SSE))
    found = await context.look(_encoded, context, token)
    return Response(found, media_type=media.JSON) if kind == media.JSON else _Events(context, token, found)


class _Events(Response):
    """The status as an event every second, until either side closes the connection."""

    def __init__(self, context: Context, token: AccessToken, first: bytes) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-cache", "Vary": "Accept"}, formats.content_type_of(media.SSE))
        del self.headers["content-length"]
        self._context, self._token, self._first = context, token, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(client_gone(receive))
        self._context.track()
        found = self._first
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while scope["method"] != "HEAD" and not gone.done():
                await send({"type": "http.response.body", "body": formats.event("status", found), "more_body": True})
                await asyncio.wait((gone,), timeout=INTERVAL)
                found = await self._context.look(_encoded, self._context, self._token)
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not self._context.closing:
                raise
        except Problem as problem:  # the access token was revoked, or has expired
            log.info("%s aborted: %s", scope["path"], problem)
        finally:
            gone.cancel()


def _encoded(context: Context, token: AccessToken) -> bytes:
    return orjson.dumps(status_json(context, token))


def status_json(context: Context, token: AccessToken) -> dict[str, Any]:
    """Return what the token may see. Cost: milliseconds, and every few seconds the status of each file of the data folder."""
    engine = context.engine
    published = engine.published
    views = [(name, view) for name, view in sorted(engine.views.items()) if token.covers_view(name)]
    metrics = engine.metrics()
    figures = {name: value for name, value in metrics.items() if isinstance(value, int)}
    folder = context.usage.get()
    held = engine.versions.held() if token.covers_all else None
    sizes = {name: sum(relation.table.held.values()) for name, relation in sorted(engine.relations.items())}
    shown: dict[str, Any] = {
        "state": engine.state,
        "time": _time(time.time()),
        "version": published.number,
        "timeline": engine.timeline,
        "software": {"name": "livejoin", "version": VERSION},
        "uptime_seconds": round(time.monotonic() - context.started, 3),
        "ready_after_seconds": context.ready_after,
        "synchronous": context.settings.synchronous,
        "max_body": context.settings.max_body,
        "token": {"needed": context.guard.token_mode, "name": token.name, "scope": token.scope, "covers_all": token.covers_all},
        "relations": {name: {"rows": engine.rows_of(name), "bytes": size} for name, size in sizes.items() if token.covers_relation(name)},
        "views": {name: _view(view) for name, view in views},
        "figures": figures,
        "memory": _memory(context, engine, sum(sizes.values()), metrics["retired_bytes"]),
        "disk": _disk(folder),
        "warnings": warnings(published.number, folder, figures, dict(views), held),
    }
    recent = [one for one in context.named_readers.recent() if token.covers_view(one.view)]
    shown["readers"] = [one.to_json(engine.views.get(one.view), published.number) for one in recent[::-1][:MOST_PINS]]
    if held is not None:
        shown["pins"] = [_pin(one, published.number) for one in held[:MOST_PINS]]
    if token.covers_all and token.has("admin"):
        shown["problems"] = [one._asdict() | {"time": _time(one.time)} for one in context.problems.newest()]
    return shown


def _view(view: LiveView) -> dict[str, Any]:
    plan, feed = view.view.plan, view.feed
    return {
        "state": view.state,
        "progress": view.progress,
        "class": plan.cls,
        "algorithm": plan.algorithm,
        "guarantee": plan.guarantee,
        "bytes": view.bytes,
        "update_p99_seconds": view.update_seconds.quantile(0.99),
        "feed": None
        if feed is None
        else {"changes": feed.emitted, "subscribers": feed.subscribers, "lag": feed.lag, "rows": feed.kept_rows, "bytes": feed.bytes},
    }


def _memory(context: Context, engine: Instance, relations: int, retired: int) -> dict[str, Any]:
    return {
        "resident": _resident(),
        "relations": relations,
        "views": sum(view.bytes for view in engine.views.values()),
        "changes": sum(view.feed.bytes for view in engine.views.values() if view.feed is not None),
        "old_versions": retired,
        "bodies": context.bodies.held,
    }


def _resident() -> int:
    """Return the resident bytes of the process; if the system does not provide them, their maximum so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _disk(found: Usage) -> dict[str, Any]:
    last = found.snapshot
    return {
        "log": found.log,
        "snapshots": found.snapshots,
        "other": found.other,
        "size": found.disk,
        "free": found.free,
        "snapshot": None if last is None else {"version": last[0], "time": _time(last[1]), "bytes": last[2]},
    }


def _pin(one: HeldVersion, newest: int) -> dict[str, Any]:
    return {
        "version": one.version,
        "behind": newest - one.version,
        "readers": one.readers,
        "reading": one.reading,
        "idle_seconds": round(one.idle, 1),
        "age_seconds": round(one.age, 1),
    }


def warnings(
    newest: int, folder: Usage, figures: Mapping[str, int], views: Mapping[str, LiveView], held: Sequence[HeldVersion] | None
) -> list[dict[str, str]]:
    """Return what an operator should look at, each in a sentence, with what to do. `held`: None for tokens that may not see other
    readings."""
    failed = ((name, view.problem) for name, view in views.items() if view.problem is not None)
    found = [_warning(f"The view {name} has failed: {problem.detail}.", "view", name) for name, problem in failed]
    for name, view in views.items():
        if view.feed is not None and view.feed.lag > _SLOW:
            text = f"A follower of the view {name} is {view.feed.lag:,} versions behind: it reads too slowly. " + _EXPIRES
            found.append(_warning(text, "view", name))
    if folder.free < _FULL * folder.disk:
        share = 100 * folder.free / max(1, folder.disk)
        text = f"The disk of the data folder has {share:.0f} % of free space left: make room, as changes are refused once it is full."
        found.append(_warning(text))
    if figures.get("snapshot_failures"):
        found.append(_warning("A snapshot could not be written, so the next start reads more of the log: see the service's log."))
    retired = figures.get("retired_bytes", 0)
    if held is not None and retired > _LARGE:
        old = [one for one in held if one.version < newest]
        who = "Old versions" if not old else f"{old[0].reading or 'A reader'} at version {old[0].version:,}, idle for {old[0].idle:.0f} s,"
        found.append(_warning(f"{who} and what is being reclaimed hold {retired / 1e6:,.0f} MB of memory. {_LET_GO}"))
    return found


def _warning(text: str, kind: str = "", name: str = "") -> dict[str, str]:
    return {"text": text, **({kind: name} if kind else {})}


def _time(seconds: float) -> str:
    return timestamp_text(round(seconds * 1e6))

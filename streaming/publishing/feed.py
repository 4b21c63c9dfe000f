"""The changes of a view as the service streams them: GET /v1/views/{view}/changes.

A version arrives as its changes, deletes first, and is ended by `progress`, the only record with a token to resume from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

import livejoin
from streaming.connection import Service, describe
from streaming.errors import StreamError

# Problems after which the changes have a gap; bad-token: the service has another data folder, or the view was registered again.
_LOST = ("token-expired", "bad-token", "delta-too-large", "reader-too-slow")
_AGAIN = ("snapshot-expired", "view-building", "view-failed")
IDLE_SECONDS = 1  # the service ends a quiet stream after this, so a job that is to stop waits no longer


class Change(NamedTuple):
    """A row added to the view or (`deleted`) removed from it; key and row as compact JSON."""

    version: int
    deleted: bool
    key: bytes
    row: bytes


class Progress(NamedTuple):
    """The version is complete; the token resumes after it."""

    version: int
    token: str


class ChangesLost(Exception):
    """The changes after the token are no longer available: start again with every row. The text says why."""


class FeedInterrupted(Exception):
    """No changes, or an incomplete version: the connection ended, or the view is not ready. Resume from the last token."""


class Feed:
    """One connection to the changes of a view, to be closed by the caller.

    since: the token to resume from, until there were no new changes for `wait` seconds; None: every row first, as changes of one version.
    Waits for a service that is away (Stopped).
    Raises Lost; StreamError when there is no such view to follow.
    """

    def __init__(self, service: Service, view: str, since: str | None, wait: int = IDLE_SECONDS) -> None:
        self._view = view
        how: dict[str, Any] = {"snapshot": True} if since is None else {"since": since, "wait": wait}
        self._changes = _open(service, view, **how)

    def close(self) -> None:
        self._changes.close()

    def __iter__(self) -> Iterator[list[Change | Progress]]:
        """The records in pieces, as they arrive: a piece ends with a Progress or is within one version.

        Ends with a Progress when nothing new has come for long enough. Raises Lost, FeedInterrupted; StreamError when the view is dropped.
        """
        whole = False
        try:
            for lines in self._changes.lines():
                records = [record for line in lines[:-1].split(b"\n") if (record := _record(self._view, line)) is not None]
                cut = next((position for position in range(len(records), 0, -1) if isinstance(records[position - 1], Progress)), 0)
                whole = cut == len(records) and (whole or cut > 0)
                yield from (piece for piece in (records[:cut], records[cut:]) if piece)
        except livejoin.Unreachable as error:
            raise FeedInterrupted(error.reason) from error
        if not whole:
            raise FeedInterrupted("it ended in the middle of a version")

    @property
    def more(self) -> bool:
        """Whether more has arrived already. May miss what the HTTP client has buffered."""
        return self._changes.more


def _record(view: str, line: bytes) -> Change | Progress | None:
    """A line of a stream; None for a line without content. Raises as Feed."""
    try:
        data = orjson.loads(line)
        op = data["op"]
        if op == "progress":
            # Within a snapshot it has no token and only shows that the service is alive.
            return None if data["token"] is None else Progress(data["version"], data["token"])
        if op != "error":
            return Change(data["version"], op == "delete", orjson.dumps(data["key"]), orjson.dumps(data["row"]))
        problem = data["problem"]
        failure = _failure(view, problem, f"{problem['title']}: {problem['detail']}")
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        said = line[:100].decode(errors="replace")
        raise StreamError(f"unexpected record among the changes of the view {view}: {said!r}") from error
    raise failure


def token_of_now(service: Service, view: str) -> Progress:
    """The token of the newest version: what comes after it is new. Waits for a service that is away; raises as Feed."""
    while True:
        changes = _open(service, view, wait=0)
        try:
            last = _record(view, b"".join(changes.lines())[:-1].rpartition(b"\n")[2])
            if isinstance(last, Progress):
                return last
            raise FeedInterrupted("it did not end with a token")
        except livejoin.Unreachable:  # the next attempt waits until it is back
            pass
        finally:
            changes.close()


def _open(service: Service, view: str, **how: Any) -> livejoin.Changes:
    try:
        return service.changes(view, **how)
    except livejoin.Problem as problem:
        raise _failure(view, problem.document, describe(problem)) from problem


def _failure(view: str, problem: dict[str, Any], emitted: str) -> Exception:
    """The exception for a problem with a view's changes."""
    kind = str(problem.get("type", "")).rpartition("/")[2]
    detail = problem.get("detail") or emitted
    if kind in _LOST:
        return ChangesLost(detail)
    if kind == "not-found":
        return StreamError(f"the service has no view {view}: register it (PUT /v1/views/{view}), then start again")
    if kind == "not-followed":
        return StreamError(f'the view {view} does not keep changes ("changes": false): register it with changes, then start again')
    if kind in _AGAIN:
        return FeedInterrupted(detail)
    return StreamError(f"the service refuses the changes of the view {view}: {emitted}")

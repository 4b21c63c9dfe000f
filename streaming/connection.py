"""The service as the job knows it: relation definitions out, batches in, changes out. By the client, which is told to repeat nothing:
the job waits with its own patience.

Not called `service`: where `cli.py` is run as a file, as by spark-submit, this folder comes first on the path and would hide the package.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

import livejoin
from livejoin.arrow import ARROW
from livejoin.retries import TEMPORARY
from livejoin.wire.schema import RelationDefinition, parse_relation
from streaming.errors import StreamError
from streaming.metrics import Metrics
from streaming.patience import Patience

T = TypeVar("T")

_LONGEST_RETRY_AFTER = 30.0


class AppliedBatch(NamedTuple):
    """A batch that the service has applied."""

    run: str | None
    epoch: int


class TooLarge(StreamError):
    """A batch with more bytes than the service takes."""


class SourceTaken(StreamError):
    """The service knows the source from another run."""


class Service:
    """Talks to one service. A service that is away, busy or not ready yet is waited for, until `stop` is set (Stopped)."""

    def __init__(self, url: str, stop: threading.Event, metrics: Metrics, ca: str | None = None) -> None:
        """Raises StreamError: `ca`, the CA of the service, cannot be read."""
        # A batch that the service is still at after the default timeout is sent again; its epoch makes that harmless.
        try:
            self._client = livejoin.connect(url, ca=ca, patience=0)
        except livejoin.BadFile as error:
            raise StreamError(str(error)) from error
        self._url = url
        self._stop = stop
        self._metrics = metrics

    def definitions(self, relations: Collection[str]) -> dict[str, RelationDefinition]:
        """The relations' definitions, by one request, 2 ms; raises StreamError when the service lacks one, Stopped."""
        try:
            there = {data["name"]: data for data in self._patiently(self._client.relations)}
        except livejoin.Problem as problem:
            raise StreamError(f"the service refused GET /v1/relations: {describe(problem)}") from problem
        for relation in relations:
            if relation not in there:
                register = f"register it (PUT /v1/relations/{relation}), or give the job a token that covers it, then start again"
                raise StreamError(f"the service at {self._url} has no relation {relation}: {register}")
        return {name: definition_in(there[name]) for name in relations}

    def applied(self, source: str) -> AppliedBatch | None:
        """The last batch of a source that the service has; None: it knows none. By one request; raises StreamError, Stopped."""
        try:
            found = [one for one in self._patiently(self._client.sources) if one["name"] == source]
        except livejoin.Problem as problem:
            raise StreamError(f"the service refused GET /v1/sources: {describe(problem)}") from problem
        return AppliedBatch(found[0]["run"], found[0]["epoch"]) if found else None

    def knows(self, source: str, run: str | None) -> bool:
        """As `knows_source`, without changing anything. Raises SourceTaken, StreamError for any other refusal, Stopped."""
        return self._send(lambda: knows_source(self._client, source, run))

    def post(self, body: bytes, source: str, epoch: int, run: str, reset: bool) -> livejoin.Receipt:
        """Sends one batch (Arrow streams); returns the receipt when it is on the service's disk.

        Every change is validated already, so a bad row is a failure. Raises SourceTaken, TooLarge, StreamError for any other refusal,
        Stopped.
        """
        return self._send(lambda: self._client.post_changes(body, ARROW, source, epoch, run=run, reset=reset))

    def post_first(self, relation: str, column: str, source: str, epoch: int, run: str) -> livejoin.Receipt:
        """Sends an empty batch of a new source, as one that deletes no row (no `column` of the key is null): without a relation, the
        service would not record it. Raises as `post`."""
        nothing = {"column": column, "op": "is_null"}
        return self._send(lambda: self._client.relation(relation).delete_where(nothing, source=source, epoch=epoch, run=run))

    def _send(self, send: Callable[[], T]) -> T:
        try:
            return self._patiently(send)
        except livejoin.SourceReset as problem:
            raise SourceTaken(describe(problem)) from problem
        except livejoin.Problem as problem:
            if problem.status == 413:
                raise TooLarge(describe(problem)) from problem
            raise StreamError(f"the service refused a batch: {describe(problem)}") from problem

    def changes(self, view: str, **parameters: Any) -> livejoin.Changes:
        """A connection to a view's changes, open, to be closed by the caller. Parameters as of `livejoin.View.changes`.

        Raises livejoin.Problem, StreamError for another server than livejoin, Stopped.
        """
        # One that could not be opened cannot be opened again.
        return self._patiently(lambda: self._client.view(view).changes(**parameters).__enter__())

    def close(self) -> None:
        self._client.close()

    def _patiently(self, call: Callable[[], T]) -> T:
        patience = Patience(self._stop, self._metrics, "service")
        while True:
            try:
                return call()
            except livejoin.Unreachable as error:
                patience.wait(f"the service at {self._url} is not reachable ({error.reason})")
            except livejoin.NotLivejoin as error:
                raise StreamError(stranger(self._url)) from error
            except livejoin.Problem as problem:
                if problem.status not in TEMPORARY:
                    raise
                seconds = min(problem.retry_after or 0.0, _LONGEST_RETRY_AFTER)
                patience.wait(f"the service is not ready for this ({describe(problem)})", seconds)


def knows_source(client: livejoin.Client, source: str, run: str | None) -> bool:
    """Whether the service knows the source, from this run (None: one that has not begun). Raises the client's errors; SourceReset if it
    knows the source from another run.

    The batch is empty and has the lowest epoch: of a known source it is a duplicate, of a new one it is not recorded.
    """
    return client.post_changes(b"", ARROW, source, -(1 << 63), run=run or "not begun").duplicate


def stranger(url: str) -> str:
    """The message for a server that is not livejoin, as on a wrong port."""
    return f"the server at {url} is not livejoin: check service.url"


def definition_in(relation: dict[str, Any]) -> RelationDefinition:
    """The definition in what the service says of a relation."""
    return parse_relation({key: relation[key] for key in ("columns", "key", "intervals") if key in relation})


def describe(problem: livejoin.Problem) -> str:
    """Status, title, detail, and the first bad row."""
    text = f"{problem.status} {problem.title}"
    if problem.detail:
        text += f": {problem.detail}"
    for error in problem.errors[:1]:
        text += f" (first: {error.get('column')}: {error.get('reason')})"
    return text

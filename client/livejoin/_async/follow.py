"""A view followed: whole versions, each once, over broken connections.

The service sends the changes of a version and closes it with a `progress` record, which carries a token; after a broken connection an
unfinished version is sent again from its beginning. So records are held back until their `progress`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Self

import orjson

from livejoin._async.changes import AsyncChanges
from livejoin._async.http import AsyncHttp
from livejoin.problems import ReaderTooSlow, SnapshotExpired, TokenExpired, Unreachable, ViewBuilding, problem_from
from livejoin.retries import pauses
from livejoin.versions import TokenFile, Version

log = logging.getLogger("livejoin.client")
_MARK = re.compile(b'"(?:progress|error)"')  # of records that are no changes, and of some rows


class AsyncFollow:
    """The versions of a view as they come: see `View.follow`. `token` is that of the last version whose body was finished."""

    def __init__(
        self,
        http: AsyncHttp,
        path: str,
        snapshot: bool,
        since: str | None,
        store: str | Path | None,
        restart: str | None,
        wait: float | None,
        idle: bool,
        chosen: Mapping[str, str],
    ) -> None:
        if restart not in (None, "snapshot"):
            raise ValueError(f'restart must be "snapshot" or None, not {restart!r}')
        self._store = TokenFile(store) if store is not None else None
        self.token = (self._store.read() if self._store else None) or since
        self._idle = idle
        self._source = AsyncVersions(http, path, self.token, restart is not None, wait, chosen)
        self._from_now = self.token is None and not snapshot
        self._body: Version | None = None  # the one that the body has
        self._versions: AsyncGenerator[Version] | None = None

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let the connection go."""
        if self._versions is not None:
            await self._versions.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Version:
        versions = await self._begin()
        while True:
            self._finish_body()
            try:
                version = self._body = await versions.__anext__()
            except StopAsyncIteration:
                raise
            except BaseException:
                self._versions = None  # it has ended; the next call connects again, after the last whole version
                raise
            if version.size or version.snapshot or self._idle:
                return version

    async def _begin(self) -> AsyncGenerator[Version]:
        if self._versions is None:
            if self._from_now:
                self._keep(await self._source.begin_now())
                self._from_now = False
            self._versions = self._source.all()
        return self._versions

    def _finish_body(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            self._keep(body.token)

    def _keep(self, token: str) -> None:
        self.token = token
        if self._store:
            self._store.write(token)


class AsyncVersions:
    """The versions of a view, connection after connection, also those in which nothing changed.

    It knows nothing of the `AsyncFollow` that reads it: so this one, dropped, is gone at once, and its connection with it. A cycle would
    leave that to the garbage collector, which may run while the pool of connections is locked, and would wait for that lock.
    """

    def __init__(
        self, http: AsyncHttp, path: str, since: str | None, restart: bool, wait: float | None, chosen: Mapping[str, str]
    ) -> None:
        self._http, self._path, self._since, self._restart, self._wait, self._chosen = http, path, since, restart, wait, chosen
        self._now: Version | None = None  # the one that it began at
        self._is_lost = False  # the connection broke, and no record has come since

    async def begin_now(self) -> str:
        """Take the newest version as the one to go on from; its token."""
        async with AsyncChanges(self._http, self._path, wait=0, chosen=self._chosen) as changes:
            async for lines in changes.lines():
                line = lines[:-1].rpartition(b"\n")[2] + b"\n"
                record = orjson.loads(line)
                if record["op"] == "error":
                    raise problem_from(record["problem"], self._http.url)
                self._now = Version()
                self._now.close(record, line)
        if self._now is None:
            raise Unreachable(f"the service at {self._http.url} ended the stream without a token", "the stream ended", sent=True)
        self._since = self._now.token
        return self._now.token

    async def all(self) -> AsyncGenerator[Version]:
        """Raises as `View.follow`."""
        waits, until = pauses(), 0.0  # until when a broken connection is tried again, where that is not without end
        if self._now is not None:
            now, self._now = self._now, None
            yield now
        while True:
            try:
                async with aclosing(self._connection()) as versions:
                    async for version in versions:
                        waits = pauses()
                        yield version
                if self._wait is not None:
                    return
            except TokenExpired as error:
                if not self._restart:
                    raise
                log.warning("%s; starting again with every row", error)
                self._since = None
            except (Unreachable, ReaderTooSlow, SnapshotExpired, ViewBuilding) as error:
                first, self._is_lost = not self._is_lost, True
                until = monotonic() + self._http.patience if first else until
                if not self._http.was_there or (not self._is_endless and monotonic() >= until):
                    raise
                if first:
                    log.warning("%s; %s", error, "resuming from the last token" if self._since else "starting again")
            await asyncio.sleep(next(waits))

    @property
    def _is_endless(self) -> bool:
        return self._since is not None and self._wait is None

    async def _connection(self) -> AsyncGenerator[Version]:
        """The whole versions of one connection. Raises Unreachable when it breaks, the problem that the service ends it with."""
        snapshot = self._since is None
        patience = inf if self._is_endless else None
        version = Version()
        opened = AsyncChanges(self._http, self._path, self._since, snapshot, self._wait, patience=patience, chosen=self._chosen)
        async with opened as changes:
            async for lines in changes.lines():
                if self._is_lost:
                    self._is_lost = False
                    log.info("reconnected")
                at = 0
                for mark in _MARK.finditer(lines):
                    if mark.start() < at:  # a second one in a line
                        continue
                    begin, end = lines.rfind(b"\n", at, mark.start()) + 1 or at, lines.index(b"\n", mark.end()) + 1
                    record: dict[str, Any] = orjson.loads(lines[begin:end])
                    if record["op"] == "error":
                        if not snapshot:
                            self._since = record.get("token") or self._since
                        raise problem_from(record["problem"], self._http.url)
                    if record["op"] != "progress":  # a row has this text
                        continue
                    version.add(lines[at:begin])
                    at = end
                    if record["token"] is not None:  # within a snapshot it only says that the service is still there
                        version.close(record, lines[begin:end])
                        version.snapshot, snapshot = snapshot, False
                        self._since = version.token
                        yield version
                        version = Version()
                if at < len(lines):
                    version.add(lines[at:])
        if version.size:
            raise Unreachable(f"the service at {self._http.url} ended the stream within a version", "the stream ended", sent=True)

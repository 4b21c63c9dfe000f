"""One connection to the changes of a view."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

import httpx

from livejoin._async.http import AsyncHttp
from livejoin.lines import JSONL, Lines

QUIET = 45.0  # seconds without a byte after which a stream is broken: progress comes every 15 s


class AsyncChanges:
    """The records of a view's changes as JSON lines, for use in a `with`. Ends, or raises Unreachable, with the connection."""

    def __init__(
        self,
        http: AsyncHttp,
        path: str,
        since: str | None = None,
        snapshot: bool = False,
        wait: float | None = None,
        limit: int | None = None,
        patience: float | None = None,
        chosen: Mapping[str, str] | None = None,
    ) -> None:
        params = {**(chosen or {}), **({"snapshot": "true"} if snapshot else {})}
        params |= {name: f"{value}" for name, value in (("since", since), ("wait", wait), ("limit", limit)) if value is not None}
        self._http = http
        self._opening: AbstractAsyncContextManager[httpx.Response] = http.stream(path, params, JSONL, quiet=QUIET, patience=patience)
        self._response: httpx.Response | None = None

    async def __aenter__(self) -> Self:
        self._response = await self._opening.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._opening.__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        """For use without a `with`."""
        if self._response is not None:
            await self.__aexit__(None, None, None)

    async def lines(self) -> AsyncIterator[bytes]:
        """Records as they come, several whole lines at a time. A line that has no end is not handed out."""
        lines = Lines()
        async for block in self._http.blocks(self._opened):
            if whole := lines.add(block):
                yield whole

    @property
    def more(self) -> bool:
        """Whether something has come already that was not handed out yet. May miss what the HTTP client holds in its own memory."""
        return bool(self._opened.extensions["network_stream"].get_extra_info("is_readable"))

    @property
    def _opened(self) -> httpx.Response:
        if self._response is None:
            raise ValueError("the connection is not open: use `with view.changes(...) as changes`")
        return self._response

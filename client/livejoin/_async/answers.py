"""Rows as they come: JSON rows and Arrow batches of one version of a view or relation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx
import orjson
import pyarrow as pa

from livejoin._async.http import AsyncHttp
from livejoin.arrow import ARROW, Decoder
from livejoin.lines import JSONL, Lines

T = TypeVar("T")

_ONCE = "an answer can be read only once: call the method that returned it again"


class AsyncAnswer(Generic[T]):
    """An answer that is read while it comes, of one version, never collected in memory.

    Iterate over it, once. In a `with` its head can be read before the first row; a loop alone opens and closes it too.
    An answer that breaks raises Unreachable: it never ends as if it were complete.
    """

    _accept: str

    def __init__(self, http: AsyncHttp, path: str, params: Mapping[str, str], question: Mapping[str, Any] | None = None) -> None:
        """`question`: the JSON that is posted, of an answer to one."""
        self._http, self._path, self._params, self._question = http, path, params, question
        self._opening: AbstractAsyncContextManager[httpx.Response]
        self._response: httpx.Response | None = None
        self._is_begun = False

    def __repr__(self) -> str:
        return f"<livejoin answer of {self._path}, streamed: iterate over it once>"

    async def __aenter__(self) -> Self:
        if self._response is not None:
            raise ValueError(_ONCE)
        self._opening = self._http.stream(self._path, self._params, self._accept, question=self._question)
        self._response = await self._opening.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_begun = True  # what was not read is gone
        await self._opening.__aexit__(kind, error, trace)

    async def __aiter__(self) -> AsyncIterator[T]:
        if self._response is not None:
            async for item in self._items():
                yield item
            return
        async with self:
            async for item in self._items():
                yield item

    def _items(self) -> AsyncIterator[T]:
        raise NotImplementedError

    def _blocks(self) -> AsyncIterator[bytes]:
        """The body as it comes, once."""
        response = self._head
        if self._is_begun:
            raise ValueError(_ONCE)
        self._is_begun = True
        return self._http.blocks(response)

    @property
    def _head(self) -> httpx.Response:
        if self._response is None:
            raise ValueError("the answer has not arrived yet: use it in a `with`, or iterate over it first")
        return self._response

    @property
    def version(self) -> int:
        """The version that the rows are of."""
        return int(self._head.headers["Livejoin-Version"])

    @property
    def empty(self) -> bool:
        """Whether there are no rows, whatever the limit."""
        return bool(self._head.headers.get("Livejoin-Empty") == "true")

    @property
    def cursor(self) -> str | None:
        """With a limit, what continues after the last row, at the same version; None at the end. Good for 60 s."""
        link = self._head.links.get("next")
        if link is None:
            return None
        return parse_qs(urlsplit(link["url"]).query)["cursor"][0]


class AsyncRows(AsyncAnswer[dict[str, Any]]):
    """Rows as dictionaries: numbers, text, true and false, None; times as text in ISO 8601."""

    _accept = JSONL

    async def _items(self) -> AsyncIterator[dict[str, Any]]:
        async for lines in self.lines():
            for line in lines[:-1].split(b"\n"):
                yield orjson.loads(line)

    async def lines(self) -> AsyncIterator[bytes]:
        """The rows as JSON lines, several whole lines at a time as they come. For use in a `with`."""
        lines = Lines()
        async for block in self._blocks():
            if whole := lines.add(block):
                yield whole
        if rest := lines.end():
            yield rest + b"\n"


class AsyncArrow(AsyncAnswer[pa.RecordBatch]):
    """Rows as Arrow record batches."""

    _accept = ARROW

    def __init__(self, http: AsyncHttp, path: str, params: Mapping[str, str], question: Mapping[str, Any] | None = None) -> None:
        super().__init__(http, path, params, question)
        self.decoder = Decoder()

    async def _items(self) -> AsyncIterator[pa.RecordBatch]:
        async for block in self._blocks():
            for batch in self.decoder.add(block):
                yield batch
        self.decoder.end()

    async def to_table(self) -> pa.Table:
        """All of them in memory."""
        batches = [batch async for batch in self]
        return pa.Table.from_batches(batches, self.decoder.schema)

"""An ad hoc query: its rows, in the forms of those of views."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from livejoin._async.answers import AsyncArrow, AsyncRows
from livejoin._async.http import AsyncHttp

_PATH = "/v1/query"


class AsyncQuery:
    """One SELECT. It is run anew by each method. These raise BadQuery, UnknownRelation, UnknownColumn, UnsupportedQuery, Forbidden,
    QueryTooLarge, QueryTimeout, SnapshotExpired, ViewBuilding, ViewFailed, TooBusy when it has begun, and Unreachable for an answer that
    breaks off later."""

    def __init__(self, http: AsyncHttp, sql: str, version: int | None) -> None:
        self.sql = sql
        self._http = http
        self._question: dict[str, Any] = {"sql": sql} if version is None else {"sql": sql, "version": version}

    def __repr__(self) -> str:
        return f"<livejoin query {self.sql!r} at {self._http.url}>"

    def rows(self) -> AsyncRows:
        """Its rows, as they come."""
        return AsyncRows(self._http, _PATH, {}, self._question)

    def arrow(self) -> AsyncArrow:
        """Its rows as Arrow batches, as they come."""
        return AsyncArrow(self._http, _PATH, {}, self._question)

    async def to_arrow(self) -> pa.Table:
        """Its rows as a table, in memory."""
        return await self.arrow().to_table()

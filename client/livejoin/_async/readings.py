"""The rows of a relation or of a view at one version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from livejoin._async.answers import AsyncArrow, AsyncRows
from livejoin._async.http import AsyncHttp
from livejoin.encoding import Overlaps, Where, row_params
from livejoin.frames import to_pandas, to_polars

if TYPE_CHECKING:
    import pandas
    import polars


class AsyncReadings:
    """What a relation and a view have in common. What `where`, `overlaps` and `version` choose, each says for itself."""

    def __init__(self, http: AsyncHttp, path: str) -> None:
        """`path`: of the relation or view."""
        self._http = http
        self._path = path

    def rows(
        self,
        *,
        where: Where | None = None,
        overlaps: Overlaps | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        version: int | None = None,
        order: str | None = None,
    ) -> AsyncRows:
        """Its rows at one version, as they come. order: with `limit`, at most 10,000, the first of all rows by these columns, as in
        `price desc, id`; the service reads every row."""
        params = row_params(where, overlaps, limit=limit, cursor=cursor, version=version, order=order)
        return AsyncRows(self._http, f"{self._path}/rows", params)

    def arrow(
        self,
        *,
        where: Where | None = None,
        overlaps: Overlaps | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        version: int | None = None,
        order: str | None = None,
    ) -> AsyncArrow:
        """Its rows at one version as Arrow batches, as they come. Arguments as of `rows`."""
        params = row_params(where, overlaps, limit=limit, cursor=cursor, version=version, order=order)
        return AsyncArrow(self._http, f"{self._path}/rows", params)

    async def to_arrow(self, **filters: Any) -> pa.Table:
        """Its rows at one version as a table, in memory. Arguments as of `arrow`."""
        return await self.arrow(**filters).to_table()

    async def to_pandas(self, **filters: Any) -> pandas.DataFrame:
        """As `to_arrow`. Integers with nulls have pandas's type Int64. Raises ImportError."""
        return to_pandas(await self.to_arrow(**filters))

    async def to_polars(self, **filters: Any) -> polars.DataFrame:
        """As `to_arrow`. Raises ImportError."""
        return to_polars(await self.to_arrow(**filters))

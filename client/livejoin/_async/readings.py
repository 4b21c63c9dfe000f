"""The rows of a relation or of a view at one version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from livejoin._async.answers import AsyncArrow, AsyncRows
from livejoin._async.http import AsyncHttp
from livejoin.encoding import Overlaps, Where, reading_form, row_params
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
        where: Where | str | None = None,
        columns: Sequence[str] | None = None,
        overlaps: Overlaps | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        version: int | None = None,
        order: str | None = None,
    ) -> AsyncRows:
        """Its rows at one version, as they come. columns: only these. order: with `limit`, at most 10,000, the first of all rows by these
        columns, as in `price desc, id`; the service reads every row."""
        params = row_params(where, overlaps, columns, limit=limit, cursor=cursor, version=version, order=order)
        return AsyncRows(self._http, f"{self._path}/rows", params)

    def arrow(
        self,
        *,
        where: Where | str | None = None,
        columns: Sequence[str] | None = None,
        overlaps: Overlaps | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        version: int | None = None,
        order: str | None = None,
    ) -> AsyncArrow:
        """Its rows at one version as Arrow batches, as they come. Arguments as of `rows`."""
        params = row_params(where, overlaps, columns, limit=limit, cursor=cursor, version=version, order=order)
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

    async def begin_reading(
        self,
        parts: int = 8,
        *,
        hold: int = 600,
        version: int | None = None,
        name: str | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        overlaps: Overlaps | None = None,
    ) -> dict[str, Any]:
        """Hold a version until `hold` seconds after the last request, to be read in at most so many parts, beside each other: `id`,
        `version`, `token` (its changes follow; None if it is a relation, or the view keeps none), `cursors` and `expires`.

            reading = view.begin_reading()
            tables = [view.to_arrow(cursor=cursor) for cursor in reading["cursors"]]  # every row once, in any process
            view.end_reading(reading["id"])

        where, columns, overlaps: of which rows, as of `rows`; what is found by a key or a window is one part.
        name: whoever gives the same one, also for another view or relation, gets the same reading, at one version. It is used once.
        Raises SnapshotExpired for a version that nobody holds, and for the name of a reading that has ended.
        """
        form = reading_form(where, columns, overlaps, parts=parts, hold=hold, version=version, name=name)
        return await self._http.json("POST", f"{self._path}/readings", form, repeatable=True)  # one too many ends by itself

    async def end_reading(self, id: str) -> None:
        """Release the version of a reading early. Raises NotFound."""
        await self._http.call("DELETE", f"/v1/readings/{quote(id, safe='')}")

"""A relation: its definition and its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self
from urllib.parse import quote

from livejoin._async.answers import AsyncArrow, AsyncRows
from livejoin._async.http import AsyncHttp
from livejoin.encoding import Interval, Op, RowData, Source, bodies, relation_definition, row_params
from livejoin.problems import LivejoinError, Problem
from livejoin.receipts import Receipt, shifted

OnError = Literal["reject", "skip"]


class AsyncRelation:
    """The relation of this name, registered or not. Methods raise NotFound if it is not."""

    def __init__(self, http: AsyncHttp, name: str) -> None:
        self.name = name
        self._http = http
        self._path = f"/v1/relations/{quote(name, safe='')}"

    def __repr__(self) -> str:
        return f"<livejoin relation {self.name} at {self._http.url}>"

    async def create(
        self,
        columns: Mapping[str, str | Mapping[str, Any]] | Iterable[Mapping[str, Any]],
        key: str | Sequence[str],
        intervals: Mapping[str, Interval] | None = None,
    ) -> Self:
        """Register it; the same definition again changes nothing. Raises DefinitionDiffers, BadDefinition.

        columns: type by name, or more than the type: `{"ends": {"type": "timestamp", "nullable": True}}`.
        intervals: by name `("starts", "ends")`, `("starts", "ends", "[]")`, a column for a point, or the JSON form.
        """
        await self._http.json("PUT", self._path, relation_definition(columns, key, intervals))
        return self

    async def get(self) -> dict[str, Any]:
        """Its definition, with `rows`, the count."""
        return await self._http.json("GET", self._path)

    async def drop(self) -> None:
        """Raises RelationInUse while views use it."""
        await self._http.call("DELETE", self._path)

    async def upsert(self, rows: Source, *, on_error: OnError = "reject") -> Receipt:
        """Write whole rows: new ones, and in place of those with the same key.

        rows: dictionaries, Arrow data (also frames of polars and pandas, results of DuckDB), or the path of a file. More than about
        8 MiB or 65,536 rows are sent in several requests, one after the other, each a version of its own. If one fails, what was sent
        before is applied: the exception's `receipt` tells. A request whose connection broke is not repeated, as the service may have
        applied it: use a `batch` with source and epoch for that.

        Raises BadRows, whose indexes count from the first row (of a file the `line` is told too); with `on_error="skip"` good rows are
        applied and the receipt lists the bad ones.
        """
        return await self._post(rows, "upsert", on_error)

    async def insert(self, rows: RowData, *, on_error: OnError = "reject") -> Receipt:
        """As `upsert`, but a row whose key exists is a bad row."""
        return await self._post(rows, "insert", on_error)

    async def delete(self, keys: RowData, *, on_error: OnError = "reject") -> Receipt:
        """Delete by key: only the key columns are needed. As `upsert`; a missing key is counted as ignored."""
        return await self._post(keys, "delete", on_error)

    async def load(self, source: Source, *, on_error: OnError = "reject") -> Receipt:
        """As `upsert`, but a column `_op` (insert, upsert, delete, truncate) may say otherwise."""
        return await self._post(source, None, on_error)

    async def truncate(self) -> Receipt:
        """Delete all rows, in one version."""
        return await self._http.post_changes("/v1/changes", {"changes": [{"relation": self.name, "op": "truncate"}]})

    async def post(self, content: bytes, media_type: str, *, on_error: OnError = "reject") -> Receipt:
        """One body of changes that is encoded already."""
        params = {"on_error": on_error}
        return await self._http.post_changes(f"{self._path}/changes", content=content, media_type=media_type, params=params)

    async def _post(self, source: Source, op: Op | None, on_error: OnError) -> Receipt:
        total, first, lines = Receipt(), 0, None
        try:
            for body in bodies(source, op):
                first, lines = total.applied + total.ignored + total.skipped_count, body.lines
                receipt = await self.post(body.content, body.media_type, on_error=on_error)
                if lines:
                    _name_lines(receipt.skipped, lines)
                total = total.and_then(receipt, first)
        except LivejoinError as error:  # of the source, too, when earlier bodies are applied
            error.receipt = total
            if isinstance(error, Problem):
                if lines:
                    _name_lines(error.errors, lines)
                error.errors = [shifted(bad, first) for bad in error.errors]
            raise
        return total

    def rows(self, *, limit: int | None = None, cursor: str | None = None) -> AsyncRows:
        """Its rows at one version, as they come."""
        return AsyncRows(self._http, f"{self._path}/rows", row_params(limit=limit, cursor=cursor))

    def arrow(self, *, limit: int | None = None, cursor: str | None = None) -> AsyncArrow:
        """Its rows at one version as Arrow batches, as they come."""
        return AsyncArrow(self._http, f"{self._path}/rows", row_params(limit=limit, cursor=cursor))


def _name_lines(errors: list[dict[str, Any]], lines: Any) -> None:
    for error, line in zip(errors, lines([error["index"] for error in errors]), strict=True):
        error["line"] = line

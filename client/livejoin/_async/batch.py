"""Changes of several relations that make one version."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from livejoin._async.http import AsyncHttp
from livejoin.encoding import EncodedChanges, RowData
from livejoin.receipts import Receipt


class AsyncBatch:
    """Changes that are sent as one request at the end of the `with`, unless an exception ends it; then `receipt` has the answer.

    Applied whole or not at all, in the order of the calls. With source and epoch it is repeated until the service has answered.
    """

    def __init__(self, http: AsyncHttp, params: Mapping[str, str]) -> None:
        self.receipt: Receipt | None = None
        self._http = http
        self._params = params
        self._changes = EncodedChanges()

    def upsert(self, relation: str, rows: RowData) -> None:
        """rows: dictionaries, or Arrow data."""
        self._changes.add(relation, "upsert", rows)

    def insert(self, relation: str, rows: RowData) -> None:
        """A row whose key exists at this place of the batch is a bad row."""
        self._changes.add(relation, "insert", rows)

    def delete(self, relation: str, keys: RowData) -> None:
        """keys: dictionaries, or Arrow data, of the key columns."""
        self._changes.add(relation, "delete", keys)

    def truncate(self, relation: str) -> None:
        """Delete all rows that the relation has at this place of the batch."""
        self._changes.add(relation, "truncate")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Raises BadRows (indexes count the changes of the batch), SourceReset, UnknownRelation."""
        if kind is None:
            media_type, content = self._changes.body()
            self.receipt = await post_batch(self._http, content, media_type, self._params)


async def post_batch(http: AsyncHttp, content: bytes, media_type: str, params: Mapping[str, str]) -> Receipt:
    """Repeated if the service can tell a repetition, by its source and epoch."""
    repeatable = "source" in params
    return await http.post_changes("/v1/changes", content=content, media_type=media_type, params=params, repeatable=repeatable)

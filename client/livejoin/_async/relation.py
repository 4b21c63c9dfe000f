"""A relation: its definition and its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Self
from urllib.parse import quote
from uuid import uuid4

from livejoin._async.http import AsyncHttp
from livejoin._async.readings import AsyncReadings
from livejoin.display import SHOWN, Progress, message_html, progress_of, relation_words, table_html
from livejoin.encoding import Body, Interval, Op, RowData, Source, batch_params, bodies, relation_definition
from livejoin.problems import LivejoinError, Problem
from livejoin.receipts import Receipt, shifted

OnError = Literal["reject", "skip"]


class AsyncRelation(AsyncReadings):
    """The relation of this name, registered or not. Methods raise NotFound if it is not.

    where: the row that has a key, by all its columns: `{"id": 7}`; or a condition in SQL, `"price > 100 AND room = 'A'"`.
    overlaps: a window `(low, high)`, a side may be None: only rows whose interval meets it; of a relation with several intervals a
    window by interval: `{"stay": (low, high)}`. It reads all rows, beside the writer.
    version: one that a cursor still keeps; else the newest.
    """

    def __init__(self, http: AsyncHttp, name: str) -> None:
        super().__init__(http, f"/v1/relations/{quote(name, safe='')}")
        self.name = name
        self._known: dict[str, Any] | None = None  # its definition, as last received

    def __repr__(self) -> str:
        known = "" if self._known is None else f" {relation_words(self._known)}"
        return f"<livejoin relation {self.name}{known} at {self._http.url}>"

    async def _html_of_notebook(self) -> str:
        """Its first rows."""
        try:
            emitted = await self.get()
            rows = [row async for row in self.rows(limit=SHOWN)]
        except LivejoinError as error:
            return message_html(f"{self.name}", error)
        return table_html(f"{self.name}: {emitted['rows']:,} rows {relation_words(emitted)}", rows, emitted["rows"] > len(rows))

    async def create(
        self,
        columns: Mapping[str, str | Mapping[str, Any]] | Iterable[Mapping[str, Any]],
        key: str | Sequence[str],
        intervals: Mapping[str, Interval] | None = None,
        retain: tuple[str, str] | None = None,
    ) -> Self:
        """Register it; the same definition again changes nothing. Raises DefinitionDiffers, BadDefinition.

        columns: type by name, or more than the type: `{"ends": {"type": "timestamp", "nullable": True}}`.
        intervals: by name `("starts", "ends")`, `("starts", "ends", "[]")`, a column for a point, or the JSON form.
        retain: as of `patch`; None accepts any that an existing relation has.
        """
        form = relation_definition(columns, key, intervals)
        if retain is not None:
            form["retain"] = _retention(retain)
        self._known = await self._http.json("PUT", self._path, form)
        return self

    async def get(self) -> dict[str, Any]:
        """Its definition, with `rows`, the count."""
        self._known = await self._http.json("GET", self._path)
        return self._known

    async def drop(self) -> None:
        """Raises RelationInUse while views use it."""
        await self._http.call("DELETE", self._path)

    async def upsert(self, rows: Source, *, on_error: OnError = "reject", progress: bool | Progress = False) -> Receipt:
        """Write whole rows: insert new ones, and replace those with the same key.

        rows: dictionaries, Arrow data (also frames of polars and pandas, results of DuckDB), or the path of a file. Of a pandas frame, an
        index without a name is left out. progress: what hears after each request of the rows sent so far, and how much of all that is
        (from 0 to 1, None if it is not known); True shows it on a terminal. More than about
        8 MiB or 65,536 rows are sent in several requests, one after the other, each a version of its own. If one fails, what was sent
        before is applied: the exception's `receipt` tells. A request whose connection broke is not repeated, as the service may have
        applied it: use a `batch` with source and epoch for that.

        Raises BadRows, whose indexes count from the first row (of a file, with the `line`); with `on_error="skip"` good rows are
        applied and the receipt lists the bad ones.
        """
        return await self._post(rows, "upsert", on_error, progress)

    async def insert(self, rows: RowData, *, on_error: OnError = "reject", progress: bool | Progress = False) -> Receipt:
        """As `upsert`, but a row whose key exists is a bad row."""
        return await self._post(rows, "insert", on_error, progress)

    async def delete(self, keys: RowData, *, on_error: OnError = "reject", progress: bool | Progress = False) -> Receipt:
        """Delete by key: only the key columns are needed. As `upsert`; a missing key is counted as ignored."""
        return await self._post(keys, "delete", on_error, progress)

    async def load(self, source: Source, *, on_error: OnError = "reject", progress: bool | Progress = False) -> Receipt:
        """As `upsert`, but a column `_op` (insert, upsert, delete, truncate) may say otherwise."""
        return await self._post(source, None, on_error, progress)

    async def replace(
        self,
        source: Source,
        *,
        on_error: OnError = "reject",
        name: str | None = None,
        epoch: int | None = None,
        run: str | None = None,
        reset: bool = False,
    ) -> Receipt:
        """Replace all rows of the relation with these, in one version; followers get only the differences. Of several rows with a key
        the last one counts. More than about 8 MiB or 65,536 rows are staged in several requests first; if one fails, nothing has changed.

        With `on_error="skip"`, a bad row whose key can be read keeps the row that is there. `name`, `epoch`, `run`, `reset`: of the batch's
        source, as of `Client.batch`: with them, the last request is repeated if its connection breaks. Raises as `upsert`.
        """
        params = batch_params(name, epoch, run, reset, on_error)
        parts = list[Body]()
        stage, number, first = f"{uuid4()}", 0, 0
        for body in bodies(source, None):
            parts.append(body)
            if len(parts) == 2:
                first += await self._staged(stage, number, first, parts.pop(0), on_error)
                number += 1
        last = parts.pop() if parts else Body("application/jsonl", b"")
        path = f"{self._path}/replace"
        if not number:
            return await self._replaced(path, last, params)
        await self._staged(stage, number, first, last, on_error)
        return await self._http.post_changes(path, params={**params, "stage": stage, "commit": "true"}, repeatable=name is not None)

    async def _replaced(self, path: str, body: Body, params: Mapping[str, str]) -> Receipt:
        with _lines_named(body, 0):
            receipt = await self._http.post_changes(
                path, content=body.content, media_type=body.media_type, params=params, repeatable="source" in params
            )
        if body.lines:
            _name_lines(receipt.skipped, body.lines)
        return receipt

    async def _staged(self, stage: str, part: int, first: int, body: Body, on_error: OnError) -> int:
        """How many rows the part has."""
        with _lines_named(body, first):
            emitted = await self.stage(stage, part, body.content, body.media_type, on_error=on_error)
        return int(emitted["part_rows"])

    async def stage(self, name: str, part: int, content: bytes, media_type: str, *, on_error: OnError = "reject") -> dict[str, Any]:
        """Send a part of a replacement, encoded already, which `commit` makes. A part that is sent again takes the place of the former one,
        so that it is repeated if the connection breaks. The service forgets a stage an hour after its last part."""
        params = {"stage": name, "part": str(part), "on_error": on_error}
        return await self._http.json(
            "POST", f"{self._path}/replace", content=content, media_type=media_type, params=params, repeatable=True
        )

    async def commit(self, stage: str, parts: Sequence[int] | None = None, *, keep: bool = False) -> Receipt:
        """Replace the relation by the rows of a stage, or of some of its parts. keep: rows with other keys stay. Raises NotFound."""
        params = {"stage": stage, "commit": "true"} | ({"keep": "true"} if keep else {})
        return await self._http.post_changes(f"{self._path}/replace", None if parts is None else {"parts": parts}, params=params)

    async def delete_where(
        self,
        *where: Mapping[str, Any] | str,
        source: str | None = None,
        epoch: int | None = None,
        run: str | None = None,
        reset: bool = False,
    ) -> Receipt:
        """Delete the rows that meet all conditions, such as `{"column": "ends", "op": "<", "value": "2025-01-01"}`, or in SQL
        `"ends < '2025-01-01' AND price * nights > 100"`, in one version; the receipt's `applied` is their number. The conditions are those
        of a view's `where`. source, epoch, run, reset: as of `Client.batch`.

        Raises BadDefinition (also without a condition: see `truncate`), UnknownColumn, UnsupportedQuery.
        """
        params = batch_params(source, epoch, run, reset, "reject")
        entries = [{"expression": one} if isinstance(one, str) else dict(one) for one in where]
        return await self._http.post_changes(f"{self._path}/delete", {"where": entries}, params=params, repeatable=source is not None)

    async def patch(
        self,
        *,
        add_columns: Mapping[str, str | Mapping[str, Any]] | Iterable[Mapping[str, Any]] = (),
        add_intervals: Mapping[str, Interval] | None = None,
        nullable: Sequence[str] = (),
        retain: tuple[str, str] | None | Literal["as it is"] = "as it is",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Extend the definition; the new one. Live views and their followers are not disturbed; what is there already changes nothing.

        add_columns, add_intervals: as of `create`; new columns are nullable. nullable: columns that may have nulls from now on. retain: a
        column and an ISO 8601 duration, such as `("ends", "P90D")`: rows whose column is older are deleted, `expired_rows` of them now;
        None ends that. dry_run: change nothing; the result is what would be.
        Raises DefinitionDiffers, BadDefinition, RelationInUse, UnknownColumn.
        """
        made = relation_definition(add_columns, (), add_intervals)
        form: dict[str, Any] = {
            "add_columns": [{"nullable": True, **column} for column in made["columns"]],
            "add_intervals": made["intervals"],
            "nullable": list(nullable),
        }
        if retain != "as it is":
            form["retain"] = None if retain is None else _retention(retain)
        return await self._http.json("PATCH", self._path, form, params={"dry_run": "true"} if dry_run else {})

    async def truncate(self) -> Receipt:
        """Delete all rows, in one version."""
        return await self._http.post_changes("/v1/changes", {"changes": [{"relation": self.name, "op": "truncate"}]})

    async def post(self, content: bytes, media_type: str, *, on_error: OnError = "reject") -> Receipt:
        """One body of changes that is encoded already."""
        params = {} if on_error == "reject" else {"on_error": on_error}
        return await self._http.post_changes(f"{self._path}/changes", content=content, media_type=media_type, params=params)

    async def _post(self, source: Source, op: Op | None, on_error: OnError, progress: bool | Progress) -> Receipt:
        total, emit = Receipt(), progress_of(progress, self.name)
        try:
            for body in bodies(source, op):
                first = total.applied + total.ignored + total.skipped_count
                with _lines_named(body, first):
                    receipt = await self.post(body.content, body.media_type, on_error=on_error)
                if body.lines:
                    _name_lines(receipt.skipped, body.lines)
                total = total.and_then(receipt, first) if total.version else receipt
                emit(total.applied + total.ignored + total.skipped_count, body.done)
        except LivejoinError as error:  # of the source, too, when earlier bodies are applied
            error.receipt = total
            raise
        return total


def _retention(retain: tuple[str, str]) -> dict[str, str]:
    return {"column": retain[0], "for": retain[1]}


@contextmanager
def _lines_named(body: Body, first: int) -> Iterator[None]:
    """Bad rows of the body, whose first row is number `first`, are named as those of the whole source."""
    try:
        yield
    except Problem as error:
        if body.lines:
            _name_lines(error.errors, body.lines)
        error.errors = [shifted(bad, first) for bad in error.errors]
        raise


def _name_lines(errors: list[dict[str, Any]], lines: Any) -> None:
    for error, line in zip(errors, lines([error["index"] for error in errors]), strict=True):
        error["line"] = line

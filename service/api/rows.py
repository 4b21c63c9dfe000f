"""`GET …/rows` and `…/count`: the rows of a view or a relation at one version, as a stream or in pages."""

from __future__ import annotations

import csv
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
from fastapi import Query
from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from livejoin.wire.rows import Pieces
from service.api.context import Context
from service.api.http import formats, media, parameters
from service.api.http.admission import client_of
from service.api.http.answers import json_answer
from service.api.http.forwarded import outer_url
from service.api.http.parameters import Flag, Most, Natural, Parameters, family
from service.api.metrics import CHUNK_SECONDS, ROWS_SENT
from service.api.models import answers
from service.api.models.body import Absent
from service.api.models.examples import ANALYSIS, PAGE
from service.api.openapi import answer, binary_content, failures, json_content, links, text_content
from service.api.routing import PlainRoute, RelationName, ServiceRequest, ViewName, router
from service.api.steps import SLICE, Steps, finish
from service.api.stream import Chunk, Stream
from service.errors import bad_parameter
from service.query.model import GROUP
from service.reading.analysis import analyzed, counted
from service.reading.cursors import RowReader, open_relation_rows, open_rows
from service.reading.first_rows import MOST_FIRST, FirstRows, parse_order
from service.tables.arrow import is_text
from service.views.deltas import Combination
from service.views.shown import ROW

JSON_PAGE = 1000  # rows of a JSON page without `limit`
FIRST_CHUNK, LARGEST_CHUNK = 64, 65_536  # rows: the first chunk is small, to be sent at once
# The size of a chunk as Arrow, in bytes: the event loop passes it to the socket at once, in half a millisecond. Each costs as much in
# Python as 30,000 rows of two columns; but a small result in large chunks would be found, gathered and sent one after the other.
_ARROW_BYTES, _ARROW_ROWS = 2 << 20, 131_072
CHUNK_TIME = 0.010  # processor seconds; a chunk is sent when it is full or after this time
HELD_BYTES = 32 << 20  # of slots: up to here, a page is enumerated before it is sent, for its Link header
_SCANNED = 16_384  # rows to sort at once
_FOUND_BYTES = 512  # of Python objects, for each set of found rows

Opened = Callable[..., RowReader]
T = TypeVar("T")

routes = router("rows", route=PlainRoute)


def window(text: str) -> tuple[str | None, str | None]:
    """Parse `lo,hi`; either side may be empty."""
    low, comma, high = text.partition(",")
    if not comma or "," in high:
        raise ValueError("must be lo,hi (either side may be empty)")
    return low or None, high or None


def _checked(parse: Callable[[str], object]) -> AfterValidator:
    return AfterValidator(lambda text: (parse(text), text)[1])


Window = Annotated[str, _checked(window)]


def names_in(text: str) -> list[str]:
    """Parse `a,b`, where a name may be in double quotes as in SQL."""
    try:
        return next(csv.reader([text], strict=True, skipinitialspace=True), [])
    except csv.Error:
        raise ValueError("must be names separated by commas, each of which may be in double quotes") from None


def _overlaps(description: str) -> Any:
    return Field(None, description=description, json_schema_extra={"pattern": "^[^,]*,[^,]*$"})


def condition_parameter() -> Any:
    return Field(
        None, alias="where", description="only rows for which this condition is true, in SQL over their columns", examples=["price > 100"]
    )


class FilterParameters(Parameters):
    """The filters of the rows of a view."""

    condition: str | Absent = condition_parameter()
    overlaps: Window | Absent = _overlaps("only rows whose joined intervals all overlap this window")
    windows: dict[str, Window] = family(
        "overlaps.",
        "`overlaps.<interval>=lo,hi`: a window for this interval and the intervals joined with it; `overlaps.<alias>.<interval>=lo,hi`: "
        "for one interval of an alias, joined or not",
        {"overlaps.stay": "2026-01-01T00:00:00Z,"},
    )
    where: dict[str, str] = family(
        "where.",
        "`where.<alias>.<column>=value`: a look-up by the key columns of one alias, or by its join columns; with UNION or EXCEPT "
        "`where.row.<column>=value`, by all columns; with groups `where.group.<column>=value`, by all columns of the group. In these two a "
        'value is written like a field of CSV: an empty one is null where the column may be null, and `""` is the empty text',
        {"where.b.id": "1"},
    )


class RelationFilterParameters(Parameters):
    """The filters of the rows of a relation."""

    condition: str | Absent = condition_parameter()
    overlaps: Window | Absent = _overlaps("only rows whose interval overlaps this window, of a relation with one interval")
    windows: dict[str, Window] = family(
        "overlaps.",
        "`overlaps.<interval>=lo,hi`: only rows whose interval overlaps this window; reads all rows",
        {"overlaps.stay": "2026-01-01T00:00:00Z,"},
    )
    where: dict[str, str] = family("where.", "`where.<column>=value`, for each column of the key: the row that has it", {"where.id": "1"})


class VersionParameters(Parameters):
    version: Natural | Absent = Field(None, description="a version that is pinned by a cursor")


class ColumnParameters(Parameters):
    columns: Annotated[str, _checked(names_in)] | Absent = Field(
        None, description="only these columns, in this order, separated by commas; a name may be in double quotes", examples=["id,price"]
    )

    @property
    def column_names(self) -> list[str] | None:
        return None if self.columns is None else names_in(self.columns)


class LimitParameters(ColumnParameters, VersionParameters):
    limit: Most | Absent = Field(None, description="maximum number of rows; 0 for version and emptiness only", examples=[1000])


class PageParameters(LimitParameters):
    cursor: str | Absent = Field(None, description="continue after the page that returned it, at its version")
    order: str | Absent = Field(
        None,
        description=f"with `limit`, at most {MOST_FIRST}: the first of all rows (or of those that the filters choose) by these "
        "columns, each with `asc` or `desc` and `nulls first` or `nulls last`, separated by commas; a name may be in double quotes. Every "
        "row is read: `Livejoin-Rows-Read` is their number",
        examples=["price desc,id"],
    )


class CountParameters(FilterParameters, VersionParameters): ...


class ViewRowsParameters(FilterParameters, PageParameters):
    analyze: Flag = Field(False, description="read all rows and return what this cost, instead of the rows", examples=[False])


class RelationRowsParameters(RelationFilterParameters, PageParameters): ...


def filters(query: FilterParameters) -> dict[str, Any]:
    """Return these parameters as arguments of `open_rows`."""
    columns: dict[str, str] = {}
    aliases: set[str] = set()
    for name, value in query.where.items():
        _, alias, *column = name.split(".")
        dotted = alias in (ROW, GROUP) and len(column) > 1  # a view's column may contain a dot
        if not alias or not all(column) or (len(column) != 1 and not dotted):
            raise bad_parameter(name, "must be where.<alias>.<column>")
        aliases.add(alias)
        columns[".".join(column)] = value
    if len(aliases) > 1:
        raise bad_parameter("where", f"a look-up uses the columns of one alias, not of {' and '.join(sorted(aliases))}")
    point = (aliases.pop(), columns) if aliases else None
    return {"window": windows_of(query.windows, query.overlaps), "point": point, "where": query.condition}


def windows_of(windows: Mapping[str, str], of_all: str | None = None) -> dict[str, tuple[str | None, str | None]] | None:
    """Return the windows by what follows `overlaps.` in the names of these parameters, and "" for `of_all`; None: there are none."""
    given = windows if of_all is None else {"overlaps": of_all, **windows}
    return {name.partition(".")[2]: window(text) for name, text in given.items()} or None


def relation_filters(query: RelationFilterParameters) -> dict[str, Any]:
    """Return these parameters as arguments of `open_relation_rows`."""
    key = {name.partition(".")[2]: value for name, value in query.where.items()}
    return {"window": windows_of(query.windows, query.overlaps), "key": key or None, "where": query.condition}


class RowsEndpoint:
    """The chunks of one response. Every method takes milliseconds: call them in threads."""

    def __init__(self, reader: RowReader, made: formats.Format, limit: int | None) -> None:
        self.reader = reader
        self._format = made
        self._left = limit
        self._found: deque[Combination] = deque()  # rows of a page that are not sent yet
        self._size = FIRST_CHUNK
        self._largest = _largest_chunk(reader.schema) if isinstance(made, formats.Arrow) else LARGEST_CHUNK
        self._begun = False
        self.empty = True
        self.following: str | None = None
        self.read: int | None = None  # how many rows were read to find these

    def look(self) -> Steps[None]:
        """Determine whether there are rows. Raises the problems of the reader."""
        while (empty := self.reader.empty()) is None:
            yield
        self.empty = empty

    def prepare(self) -> Steps[None]:
        """Determine what the header needs: whether there are rows and, for a page, what follows it. Raises the problems of the reader."""
        yield from self.look()
        if not self._left:
            return
        held = 0
        while self._left and held < HELD_BYTES:
            found = self.reader.find(min(self._left, LARGEST_CHUNK))
            if found is None:
                self._left = 0
                return
            if len(found[0]):
                found = tuple([np.array(slots) for slots in found])  # a cursor may return a small part of a large array
                self._found.append(found)
                self._left -= len(found[0])
                held += _FOUND_BYTES + sum([slots.nbytes for slots in found])
            yield
        # The Link is sent before the rows. Another reader skips the rows of the page beyond those found.
        with closing(self.reader.twin()) as scout:
            self.following = yield from _after(scout, self._left)

    def hold(self, first: FirstRows) -> None:
        """Send these rows, in place of those that the reader finds."""
        slots, self.read, self._left = first.slots(), first.added, 0
        self._found.extend(() if slots is None else self.reader.parts(slots))
        self.empty = slots is None

    def step(self) -> Chunk:
        parts: Pieces = []
        if not self._begun:
            self._begun = True
            parts.append(self._format.head())
        begun = time.thread_time()
        found = self._next()
        if found is None:
            parts.append(self._format.end(self.following))
        elif len(found[0]):
            ROWS_SENT.inc(len(found[0]))
            rows = self.reader.rows(found)
            self._adapt(time.thread_time() - begun)
            parts += self._format.chunk(rows)
        return parts, found is not None

    def _next(self) -> Combination | None:
        """Return the slots of the next rows, perhaps none yet; None at the end."""
        if self._found:
            return self._found.popleft()
        if self._left == 0:
            return None
        end = time.perf_counter() + SLICE
        while True:
            found = self.reader.find(self._size if self._left is None else min(self._size, self._left))
            if found is None or len(found[0]) or time.perf_counter() >= end:
                break
        if found is not None and self._left is not None:
            self._left -= len(found[0])
        return found

    def _adapt(self, seconds: float) -> None:
        """Adapt the size of chunks to the processor time that one took: they grow while they are fast to produce, and are expected to take
        less than CHUNK_TIME then. Smaller chunks would not make waiting for a processor shorter: under hundreds of readers they shrank to
        their least size, stayed so, and took ten times as much work in all."""
        CHUNK_SECONDS.observe(seconds)
        if seconds < CHUNK_TIME / 3:
            self._size = min(self._size * (16 if seconds < CHUNK_TIME / 16 else 3), self._largest)
        elif seconds > CHUNK_TIME:
            self._size = max(self._size // 2, FIRST_CHUNK)

    def touch(self) -> None:
        self.reader.touch()

    def close(self) -> None:
        self.reader.close()


def _largest_chunk(schema: pa.Schema) -> int:
    """Return the most rows of a chunk as Arrow, by their width; the lengths of texts are known only when they are read (`pieces`, which
    limits the rows, too)."""
    width = sum([20 if is_text(type_) else type_.bit_width / 8 for type_ in schema.types])
    return min(_ARROW_ROWS, max(FIRST_CHUNK, int(_ARROW_BYTES / max(width, 1))))


def _after(reader: RowReader, rows: int) -> Steps[str | None]:
    """Skip this many rows; return the cursor to continue from there, None (and no pin) at the end."""
    while rows:
        passed = reader.skip(min(rows, LARGEST_CHUNK))
        if passed is None:
            return None
        rows -= passed
        yield
    while (ended := reader.ended()) is None:
        yield
    return None if ended else reader.token()


def _begin(opened: Opened, kind: str, limit: int | None, order: str | None, client: str) -> Steps[tuple[RowsEndpoint, Chunk]]:
    """Return the prepared rows and their first chunk."""
    reader = opened()
    reader.client = client
    try:
        first = None if order is None else FirstRows(parse_order(order, reader.every), limit or 0)
        rows = RowsEndpoint(reader, formats.make(kind, reader.version, reader.schema), limit)
        if first is None or not limit:
            yield from rows.prepare()
        else:
            for _ in _read_all(opened(version=reader.version, columns=first.columns), first, limit):
                reader.touch()
                yield
            rows.hold(first)
        return rows, rows.step()
    except BaseException:
        reader.close()
        raise


def _read_all(reader: RowReader, first: FirstRows, count: int) -> Steps[None]:
    """Add all rows that the reader finds."""
    try:
        while (found := reader.find(max(count, _SCANNED))) is not None:
            if len(found[0]):
                first.add(found, reader.rows(found))
            yield
    finally:
        reader.close()


class RowsRequest(NamedTuple):
    """What a request for rows specifies: the relation or view, the most rows, the function that opens the reader, and the threads to call
    it in."""

    name: str
    limit: int | None
    opened: Opened
    pool: Executor


def of_view(
    context: Context, name: str, query: FilterParameters, version: int | None, limit: int | None = None, cursor: str | None = None,
    columns: Sequence[str] | None = None,
) -> RowsRequest:  # fmt: skip
    given = filters(query) | {"version": version, "cursor": cursor, "columns": columns}
    return RowsRequest(name, limit, partial(open_rows, context.engine.readers, name, **given), _pool(context, given))


def of_relation(
    context: Context, name: str, query: RelationFilterParameters, version: int | None, limit: int | None, cursor: str | None = None,
    columns: Sequence[str] | None = None,
) -> RowsRequest:  # fmt: skip
    given = relation_filters(query) | {"version": version, "cursor": cursor, "columns": columns}
    return RowsRequest(name, limit, partial(open_relation_rows, context.engine.readers, name, **given), _pool(context, given))


def _pool(context: Context, asked: dict[str, Any]) -> Executor:
    """Return the threads to open a reader in. A look-up of a row that has just changed may wait long for the writer, so it must not use a
    reader's thread."""
    waits = (asked.get("point") or asked.get("key") or asked["where"]) is not None and asked["version"] is None and asked["cursor"] is None
    return context.waiters if waits else context.readers


async def _answer(request: Request, context: Context, asked: RowsRequest, query: PageParameters) -> Response:
    """Return the response to `…/rows`: negotiate, open in threads, and stream; HEAD and limit=0 only open."""
    if query.order is not None:
        _require_first(query)
    kind = media.negotiate(request.headers.get("accept"), formats.OFFERED)
    limit = asked.limit
    if limit is None and kind == media.JSON:
        limit = JSON_PAGE
    if request.method == "HEAD":
        limit = 0
    begun = _begin(asked.opened, kind, limit, query.order, client_of(request.scope))
    rows, first = await finish(context, asked.pool, request.receive, begun)
    headers = {
        "Livejoin-Version": str(rows.reader.version),
        "Livejoin-Empty": "true" if rows.empty else "false",
        "Vary": "Accept",
        "Cache-Control": "no-cache",
    }
    if rows.read is not None:
        headers["Livejoin-Rows-Read"] = str(rows.read)
    if rows.following is not None:
        headers["Link"] = f'<{_following(request, rows.following)}>; rel="next"'
    stream = Stream(context, context.readers, rows, first, formats.content_type_of(kind), headers)
    if rows.following is not None:
        stream.rest = partial(context.engine.readers.touch, rows.following)
    return stream


def _require_first(query: PageParameters) -> None:
    """Raise Problem `bad-parameter` for parameters that cannot be beside `order`."""
    if query.limit is None:
        raise bad_parameter("limit", f"order returns the first rows: add limit=n, at most {MOST_FIRST}")
    if query.limit > MOST_FIRST:
        raise bad_parameter("limit", f"with order at most {MOST_FIRST}, not {query.limit}: read all rows without order, and sort them")
    if query.cursor is not None:
        raise bad_parameter("cursor", "order has no pages: its rows are in one response")


def _following(request: Request, token: str) -> str:
    """Return the URL of the next page, this one with another cursor; absolute if the client's headers contain the host."""
    pairs = [pair for pair in parameters.pairs_of(request.scope["query_string"]) if pair[0] not in ("cursor", "version")]
    path = f"{request.url.path}?{urlencode([*pairs, ('cursor', token)])}"
    return outer_url(request.scope, path)


_LINE = '{"booking":1,"job":7,"clash_start":"2026-01-01T12:00:00Z","clash_end":"2026-01-01T14:00:00Z"}\n'
_CONTENT = {
    **text_content(media.JSONL, _LINE),
    **json_content(answers.Page, PAGE),
    **text_content(media.CSV, "booking,job,clash_start,clash_end\n1,7,2026-01-01T12:00:00Z,2026-01-01T14:00:00Z\n"),
    **binary_content(media.ARROW, "an Arrow IPC stream"),
    **text_content(media.SSE, f'event: row\ndata: {_LINE}\nevent: end\ndata: {{"version":42,"next":null}}\n\n'),
}
_READ = _CONTENT | json_content(answers.Page, PAGE, ANALYSIS, other=answers.Analysis)
_HEADERS = {
    "Livejoin-Version": "42",
    "Livejoin-Empty": "false",
    "Livejoin-Rows-Read": "1000000",
    "Link": '</v1/views/clashes/rows?limit=1000&cursor=eyJ2IjogNDJ9>; rel="next"',
}
_HEAD_HEADERS = {name: value for name, value in _HEADERS.items() if name in ("Livejoin-Version", "Livejoin-Empty")}
_NEXT = "$response.body#/next"
_FAILURES = ("bad-parameter", "bad-cursor", "not-found", "not-acceptable", "snapshot-expired", "too-busy")
_VIEW_FAILURES = failures(*_FAILURES, "view-building", "view-failed")


@routes.get(
    "/v1/views/{name}/rows",
    summary="Read the rows of a view at one version",
    description="Rows are sent as they are found. A response that cannot be completed is aborted, never ended as if complete.",
    responses={**answer(200, "the rows, or what reading them cost", _READ, _HEADERS, links("viewRows", cursor=_NEXT)), **_VIEW_FAILURES},
)
@routes.head(
    "/v1/views/{name}/rows",
    operation_id="viewVersion",
    summary="Get the version of a view and whether it has rows",
    responses={**answer(200, "the view exists", None, _HEAD_HEADERS), **_VIEW_FAILURES},
)
async def view_rows(request: ServiceRequest, name: ViewName, query: Annotated[ViewRowsParameters, Query()]) -> Response:
    context = request.context
    request.require_view(name)
    asked = of_view(context, name, query, query.version, query.limit, query.cursor, query.column_names)
    if query.analyze and request.method == "GET":
        if query.limit is not None or query.order is not None:
            raise bad_parameter("analyze", "reads all rows: leave out limit and order")
        return json_answer(await finish(context, asked.pool, request.receive, _of_all(asked.opened, analyzed)))
    found = await _answer(request, context, asked, query)
    context.named_readers.note(request.scope["fields"], name, int(found.headers["Livejoin-Version"]))
    return found


@routes.get(
    "/v1/relations/{name}/rows",
    summary="Read the rows of a relation at one version",
    description="With `where.<column>` for each column of the key, the row that has it. A window reads all rows of the relation, beside "
    "the writer, and sends those that meet it as they are found.",
    responses={**answer(200, "the rows", _CONTENT, _HEADERS, links("relationRows", cursor=_NEXT)), **failures(*_FAILURES)},
)
async def relation_rows(request: ServiceRequest, name: RelationName, query: Annotated[RelationRowsParameters, Query()]) -> Response:
    context = request.context
    request.require_relation(name)
    asked = of_relation(context, name, query, query.version, query.limit, query.cursor, query.column_names)
    return await _answer(request, context, asked, query)


@routes.get(
    "/v1/views/{name}/count",
    summary="Count the rows of a view",
    responses={
        **answer(200, "the count", json_content(answers.RowCount, {"version": 42, "count": 1200})),
        **failures("bad-parameter", "not-found", "snapshot-expired", "view-building", "view-failed"),
    },
)
async def view_count(request: ServiceRequest, name: ViewName, query: Annotated[CountParameters, Query()]) -> Response:
    context = request.context
    request.require_view(name)
    asked = of_view(context, name, query, query.version)
    return json_answer(await finish(context, asked.pool, request.receive, _of_all(asked.opened, counted)))


def _of_all(opened: Opened, read: Callable[[RowReader], Steps[T]]) -> Steps[T]:
    with closing(opened()) as reader:
        return (yield from read(reader))

"""Rows as the bytes of a response, by media type: the parts before, between and after them."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pyarrow as pa

from livejoin.wire.rows import ArrowRows, Pieces, csv_header, encode_rows
from service.api.http import media


class Format:
    """The bytes of one response, in order: head, any number of chunks, end. This one has lines that need nothing around them."""

    def __init__(self, kind: str, head: bytes = b"") -> None:
        self._kind, self._head = kind, head

    def head(self) -> bytes:
        return self._head

    def chunk(self, rows: pa.RecordBatch) -> Pieces:
        return [encode_rows(self._kind, rows)]

    def end(self, following: str | None) -> bytes:
        return b""


class Page(Format):
    """One JSON object: `{"version": …, "rows": […], "next": cursor or null}`."""

    def __init__(self, version: int) -> None:
        super().__init__(media.JSONL, b'{"version":%d,"rows":[' % version)
        self._begun = False

    def chunk(self, rows: pa.RecordBatch) -> Pieces:
        if not rows.num_rows:
            return []
        # Raw line feeds occur only at the ends of rows: JSON texts contain none.
        joined = encode_rows(media.JSONL, rows).rstrip(b"\n").replace(b"\n", b",")
        if self._begun:
            return [b",", joined]
        self._begun = True
        return [joined]

    def end(self, following: str | None) -> bytes:
        return b'],"next":%b}' % orjson.dumps(following)


class Arrow(Format):
    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(media.ARROW)
        self._rows = ArrowRows(schema)

    def chunk(self, rows: pa.RecordBatch) -> Pieces:
        return self._rows.chunk(rows)

    def end(self, following: str | None) -> bytes:
        return self._rows.end()


def event(name: str, data: bytes, identity: str | None = None) -> bytes:
    """A server-sent event."""
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), b"" if identity is None else b"id: %b\n" % identity.encode(), data)


class Events(Format):
    """Server-sent events: one `event: row` per row, then `event: end`."""

    def __init__(self, version: int) -> None:
        super().__init__(media.SSE)
        self._version = version

    def end(self, following: str | None) -> bytes:
        return event("end", orjson.dumps({"version": self._version, "next": following}))


_MADE: dict[str, Callable[[int, pa.Schema], Format]] = {
    media.JSONL: lambda version, schema: Format(media.JSONL),
    media.JSON: lambda version, schema: Page(version),
    media.CSV: lambda version, schema: Format(media.CSV, csv_header(schema)),
    media.ARROW: lambda version, schema: Arrow(schema),
    media.SSE: lambda version, schema: Events(version),
}
OFFERED = tuple(_MADE)  # the first is the default


def make(kind: str, version: int, schema: pa.Schema) -> Format:
    return _MADE[kind](version, schema)


def content_type_of(kind: str) -> str:
    """Return the Content-Type header of an offered media type."""
    return {media.CSV: "text/csv; charset=utf-8; header=present", media.SSE: "text/event-stream; charset=utf-8"}.get(kind, kind)

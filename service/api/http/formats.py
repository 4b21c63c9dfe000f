"""Rows as the bytes of a response, by media type: the parts before, between and after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import orjson
import pyarrow as pa

from livejoin.wire.rows import ArrowRows, Pieces, csv_header, encode_rows
from service.api.http import media


class Format(Protocol):
    """The bytes of one response, in order: head, any number of chunks, end."""

    def head(self) -> bytes: ...
    def chunk(self, rows: pa.RecordBatch) -> Pieces: ...
    def end(self, following: str | None) -> bytes: ...


class Lines:
    """JSON lines."""

    def head(self) -> bytes:
        return b""

    def chunk(self, rows: pa.RecordBatch) -> Pieces:
        return [encode_rows(media.JSONL, rows)]

    def end(self, following: str | None) -> bytes:
        return b""


class Page:
    """One JSON object: `{"version": …, "rows": […], "next": cursor or null}`."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._begun = False

    def head(self) -> bytes:
        return b'{"version":%d,"rows":[' % self._version

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


class Csv:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def head(self) -> bytes:
        return csv_header(self._schema)

    def chunk(self, rows: pa.RecordBatch) -> Pieces:
        return [encode_rows(media.CSV, rows)]

    def end(self, following: str | None) -> bytes:
        return b""


class Arrow:
    def __init__(self, schema: pa.Schema) -> None:
        self._rows = ArrowRows(schema)

    def head(self) -> bytes:
        return b""

    def chunk(self, rows: pa.RecordBatch) -> Pieces:
        return self._rows.chunk(rows)

    def end(self, following: str | None) -> bytes:
        return self._rows.end()


def event(name: str, data: bytes, identity: str | None = None) -> bytes:
    """A server-sent event."""
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), b"" if identity is None else b"id: %b\n" % identity.encode(), data)


class Events:
    """Server-sent events: one `event: row` per row, then `event: end`."""

    def __init__(self, version: int) -> None:
        self._version = version

    def head(self) -> bytes:
        return b""

    def chunk(self, rows: pa.RecordBatch) -> Pieces:
        return [encode_rows(media.SSE, rows)]

    def end(self, following: str | None) -> bytes:
        return event("end", orjson.dumps({"version": self._version, "next": following}))


_MADE: dict[str, Callable[[int, pa.Schema], Format]] = {
    media.JSONL: lambda version, schema: Lines(),
    media.JSON: lambda version, schema: Page(version),
    media.CSV: lambda version, schema: Csv(schema),
    media.ARROW: lambda version, schema: Arrow(schema),
    media.SSE: lambda version, schema: Events(version),
}
OFFERED = tuple(_MADE)  # the first is the default


def make(kind: str, version: int, schema: pa.Schema) -> Format:
    return _MADE[kind](version, schema)


def content_type_of(kind: str) -> str:
    """Return the Content-Type header of an offered media type."""
    return {media.CSV: "text/csv; charset=utf-8; header=present", media.SSE: "text/event-stream; charset=utf-8"}.get(kind, kind)

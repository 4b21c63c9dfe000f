"""Rows of every kind as bodies for POST, and the arguments of requests as the service writes them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson
import pyarrow as pa

from livejoin.arrow import ARROW, stream_of
from livejoin.display import length_of
from livejoin.files import BODY, ROWS, open_file, pieces
from livejoin.frames import ArrowReader, ArrowStream, record_batches
from livejoin.lines import JSONL

Op = Literal["upsert", "insert", "delete"]
OP_COLUMN = "_op"
_RELATION = b"livejoin.relation"


RowData = Iterable[Mapping[str, Any]] | ArrowStream | ArrowReader
Source = RowData | str | Path
Interval = tuple[str, str] | tuple[str, str, str] | str | Mapping[str, str]
Window = tuple[Any, Any]
Where = Mapping[str, Any]
Overlaps = Window | Mapping[str, Window]


class Body(NamedTuple):
    """A body of one relation's changes. `lines`, of a file, are the lines (or row numbers) of the rows at some indexes. `done`: how much
    of the source is behind it, from 0 to 1, where that is known."""

    media_type: str
    content: bytes
    lines: Any = None
    done: float | None = None


def bodies(source: Source, op: Op | None) -> Iterator[Body]:
    """The rows in bodies of bounded size. `op` None: as their column _op says, else upserts.

    Raises BadFile, OSError for a path; TypeError for what is neither rows nor a path.
    """
    if isinstance(source, str | Path):
        if op not in (None, "upsert"):
            raise TypeError(f"{op} takes rows, not a file: give the file a column {OP_COLUMN} and use load")
        file = open_file(Path(source))
        for body in file.bodies():
            yield Body(body.media_type, body.content, body.lines, body.done / max(1, file.size))
    elif (batches := record_batches(source)) is not None:
        yield from _arrow(batches, op, length_of(source))
    else:
        yield from _jsonl(source, op)


def _arrow(batches: Iterator[pa.RecordBatch], op: Op | None, length: int | None) -> Iterator[Body]:
    sent = 0
    for batch in batches:
        for piece in pieces(batch, BODY):
            sent += piece.num_rows
            yield Body(ARROW, stream_of([_with_op(piece, op)]), done=sent / length if length else None)


def _with_op(batch: pa.RecordBatch, op: Op | None) -> pa.RecordBatch:
    if op is None:
        return batch
    if OP_COLUMN in batch.schema.names:
        raise ValueError(_FOLLOWED)
    if op == "upsert":
        return batch
    return batch.append_column(OP_COLUMN, pa.repeat(op, batch.num_rows))


def _jsonl(rows: Any, op: Op | None) -> Iterator[Body]:
    lines: list[bytes] = []
    size = sent = 0
    for row in mappings(rows):
        if op is not None and OP_COLUMN in row:
            raise ValueError(_FOLLOWED)
        line = encoded(plain(row) if op in (None, "upsert") else {**plain(row), OP_COLUMN: op})
        lines.append(line)
        size += len(line)
        if size >= BODY or len(lines) >= ROWS:
            sent += len(lines)
            length = length_of(rows)
            yield Body(JSONL, b"\n".join(lines), done=sent / length if length else None)
            lines, size = [], 0
    if lines:
        yield Body(JSONL, b"\n".join(lines), done=1.0)


_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
_FOLLOWED = f"the rows have a column {OP_COLUMN}: use load, which applies it"


def encoded(row: Mapping[str, Any]) -> bytes:
    """A row as JSON. Raises TypeError for a value that JSON cannot have."""
    return orjson.dumps(row, _as_text, _OPTIONS)


def _as_text(value: object) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"a value cannot be a {type(value).__name__}")


def mappings(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Rows one by one. Raises TypeError for what is not rows."""
    if not isinstance(rows, list) and (isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable)):
        raise TypeError(f"rows must be an iterable of dictionaries, Arrow data or a path, not {type(rows).__name__}")
    for row in rows:
        if not isinstance(row, dict) and not isinstance(row, Mapping):  # the latter is slow
            raise TypeError(f"a row must be a dictionary, not {type(row).__name__}")
        yield row


_NO_FLOATS = (int, str, bool, type(None))


def plain(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row for JSON, which has no NaN and infinities: the service reads them as text."""
    odd = {
        name: _spelt(float(value))
        for name, value in row.items()
        if type(value) not in _NO_FLOATS and isinstance(value, Real) and not isfinite(value)  # isinstance is slow
    }
    return {**row, **odd} if odd else row


def _spelt(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


class EncodedChanges:
    """Changes of several relations as one body: Arrow if all of them are, else JSON lines."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, str, list[pa.RecordBatch] | list[bytes]]] = []  # relation, op, batches or rows as JSON
        self._arrow = True

    def add(self, relation: str, op: Op | Literal["truncate"], rows: RowData | None = None) -> None:
        """The rows are taken as they are now. Raises TypeError."""
        if rows is None:
            self._parts.append((relation, op, [pa.record_batch({OP_COLUMN: [op]})]))
        elif (batches := record_batches(rows)) is not None:
            self._parts.append((relation, op, [batch for batch in batches if batch.num_rows]))
        else:
            self._parts.append((relation, op, [encoded(plain(row)) for row in mappings(rows)]))
            self._arrow = False

    def body(self) -> tuple[str, bytes]:
        """Media type and content."""
        if self._arrow and self._parts:
            streams = [stream_of(_for_one(batches, op), {_RELATION: relation.encode()}) for relation, op, batches in self._parts if batches]
            return ARROW, b"".join(streams)
        return JSONL, b"".join(line for relation, op, rows in self._parts for line in _change_lines(relation, op, rows))


def _for_one(batches: list[Any], op: str) -> list[pa.RecordBatch]:
    return batches if op == "truncate" else [_with_op(batch, op) for batch in batches]  # type: ignore[arg-type]


def _change_lines(relation: str, op: str, rows: Sequence[pa.RecordBatch | bytes]) -> Iterator[bytes]:
    head = b'{"relation":%b,"op":%b' % (orjson.dumps(relation), orjson.dumps(op))
    if op == "truncate":
        yield head + b"}\n"
        return
    name = b',"key":' if op == "delete" else b',"row":'
    for part in rows:
        if isinstance(part, bytes):
            yield head + name + part + b"}\n"
        else:
            for row in part.to_pylist():
                yield head + name + encoded(plain(row)) + b"}\n"


def relation_definition(
    columns: Mapping[str, Any] | Iterable[Mapping[str, Any]], key: str | Sequence[str], intervals: Mapping[str, Interval] | None
) -> dict[str, Any]:
    """The body of PUT /v1/relations/{name}: see `Relation.create`."""
    if isinstance(columns, Mapping):
        listed = [{"name": name, **({"type": kind} if isinstance(kind, str) else kind)} for name, kind in columns.items()]
    else:
        listed = [dict(column) for column in columns]
    named = {name: _interval(interval) for name, interval in (intervals or {}).items()}
    return {"columns": listed, "key": [key] if isinstance(key, str) else list(key), "intervals": named}


def _interval(interval: Interval) -> dict[str, str]:
    if isinstance(interval, str):
        return {"at": interval}
    if isinstance(interval, Mapping):
        return dict(interval)
    return dict(zip(("start", "end", "bounds"), interval, strict=False))


def view_definition(sql: str | None, definition: Mapping[str, Any] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The body of PUT /v1/views/{name}: a SELECT or a JSON form, and options beside it."""
    if (sql is None) == (definition is None):
        raise TypeError("give the view's definition either as sql or as definition")
    return {**({"sql": sql} if sql is not None else definition or {}), **options}


def row_params(
    where: Where | str | None = None, overlaps: Overlaps | None = None, columns: Sequence[str] | None = None, **given: int | str | None
) -> dict[str, str]:
    """The query parameters of GET …/rows. `where`: a condition in SQL, or a look-up. `given`: as they are called there."""
    if isinstance(where, str):
        params = {"where": where}
    else:
        params = {f"where.{column}": _sought(column, value) for column, value in (where or {}).items()}
    if columns is not None:
        params["columns"] = ",".join('"' + column.replace('"', '""') + '"' for column in columns)
    if isinstance(overlaps, Mapping):
        params |= {f"overlaps.{interval}".removesuffix("."): _window(window) for interval, window in overlaps.items()}
    elif overlaps is not None:
        params["overlaps"] = _window(overlaps)
    return params | {name: str(value) for name, value in given.items() if value is not None}


def reading_form(
    where: str | None, columns: Sequence[str] | None, overlaps: Overlaps | None, **given: int | str | None
) -> dict[str, Any]:
    """The body of POST …/readings."""
    form: dict[str, Any] = {"where": where, "columns": None if columns is None else list(columns)}
    if isinstance(overlaps, Mapping):
        form["overlaps"] = {interval: _window(window) for interval, window in overlaps.items()}
    elif overlaps is not None:
        form["overlaps"] = _window(overlaps)
    return {name: value for name, value in (form | given).items() if value is not None}


def _sought(column: str, value: Any) -> str:
    """A value that is looked up; of groups and rows as a field of CSV, where nothing is null."""
    if isinstance(value, str) and column.startswith(("group.", "row.")) and (not value or value.startswith('"')):
        return '"' + value.replace('"', '""') + '"'
    return _text(value)


def _window(window: Window) -> str:
    if isinstance(window, str) or len(window) != 2:
        raise TypeError(f"a window must be a pair (low, high), either of which may be None, not {window!r}")
    low, high = window
    return f"{_text(low)},{_text(high)}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if value != value:
        return "NaN"
    return value.isoformat() if isinstance(value, date | time) else str(value)


def batch_params(source: str | None, epoch: int | None, run: str | None, reset: bool, on_error: str) -> dict[str, str]:
    """The query parameters of a batch. Raises TypeError."""
    if (source is None) != (epoch is None):
        raise TypeError("give source and epoch, or neither")
    params = {name: str(value) for name, value in (("source", source), ("epoch", epoch), ("run", run)) if value is not None}
    if reset:
        params["reset"] = "true"
    return {**params, "on_error": on_error}

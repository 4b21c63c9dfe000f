"""Change records for followers: a feed's chunks as JSON lines or server-sent events."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pyarrow as pa

from livejoin.wire.rows import encode_rows
from service.api.http import media
from service.api.http.formats import event
from service.following.chunks import Chunk
from service.query.model import GROUP
from service.views.shown import IS_PART, ROW

OFFERED = (media.JSONL, media.SSE)


def records(chunk: Chunk, kind: str) -> Iterator[bytes]:
    """Yield the records of a chunk in one of the formats `OFFERED`: one per row, or one for a progress or an error."""
    if chunk.kind == "rows":
        assert chunk.keys is not None and chunk.rows is not None
        head = b'{"version":%d,"op":"%b","key":' % (chunk.version, chunk.op.encode())
        for key, row in zip(key_lines(chunk.keys), _lines(chunk.rows), strict=True):
            yield _record(kind, chunk.op, b'%b%b,"row":%b}' % (head, key, row))
    elif chunk.kind == "progress":
        data = orjson.dumps({"version": chunk.version, "op": "progress", "token": chunk.token})
        yield _record(kind, "progress", data, chunk.token)
    else:
        problem = None if chunk.problem is None else chunk.problem.to_json()
        token = {} if chunk.token is None else {"token": chunk.token}  # absent within a snapshot
        yield _record(kind, "error", orjson.dumps({"op": "error", "problem": problem, **token}))


def _record(kind: str, op: str, data: bytes, token: str | None = None) -> bytes:
    return data + b"\n" if kind != media.SSE else event(op, data, token)


def _lines(rows: pa.RecordBatch) -> list[bytes]:
    """Return each row as a JSON object."""
    return encode_rows(media.JSONL, rows).split(b"\n")[:-1]


def key_lines(keys: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each identity as JSON, nested by alias; columns are named `alias.column`. A name without a dot stands for an alias without
    columns."""
    if "." not in keys.schema.names[0]:
        return iter([b'{"%b":{}}' % keys.schema.names[0].encode()] * keys.num_rows)
    columns: dict[str, list[int]] = {}
    for i, name in enumerate(keys.schema.names):
        columns.setdefault(name.partition(".")[0], []).append(i)
    parts = []
    for alias, at in columns.items():
        shown = [i for i in at if not keys.schema.names[i].endswith(IS_PART)]
        names = [keys.schema.names[i].partition(".")[2] for i in shown]
        lines = _lines(pa.RecordBatch.from_arrays([keys.column(i) for i in shown], names))
        is_key = alias not in (GROUP, ROW) and not keys.schema.field(at[0]).metadata
        if is_key and (first := keys.column(at[0])).null_count:  # a key is never null: this alias has no row
            lines = [line if there else b"null" for line, there in zip(lines, first.is_valid().to_pylist(), strict=True)]
        parts.append(lines)
    template = b"{" + b",".join(b'"%b":%%b' % alias.encode() for alias in columns) + b"}"
    return (template % row for row in zip(*parts, strict=True))

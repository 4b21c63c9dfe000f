"""What a client does with the service: define, send, read and follow, in every media type. Nothing here depends on the service's
internals."""
from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tests import datasets

JSON, JSONL, CSV = "application/json", "application/jsonl", "text/csv"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
DEBEZIUM, SSE, PROBLEM = "application/vnd.debezium+jsonl", "text/event-stream", "application/problem+json"

Row = dict[str, Any]


def ok(answer: httpx.Response, *statuses: int) -> Any:
    """Return the JSON of an answer with one of these statuses (200 by default)."""
    assert answer.status_code in (statuses or (200,)), _emitted(answer)
    return answer.json() if answer.content else None


def _emitted(answer: httpx.Response) -> str:
    return f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:2000]}"


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """Return the problem of an answer, which must have this status and type, and be complete according to RFC 9457."""
    where = _emitted(answer)
    assert answer.status_code == status, where
    assert answer.headers["content-type"].split(";")[0] == PROBLEM, where
    body: dict[str, Any] = answer.json()
    assert body["type"] == f"/problems/{kind}" and body["status"] == status and body["title"] and body["detail"], where
    assert kind != "bad-parameter" or body["parameter"], where
    return body


def define(client: httpx.Client, name: str, definition: dict[str, Any]) -> None:
    ok(client.put(f"/v1/relations/{name}", json=definition), 200, 201)


def view(client: httpx.Client, name: str, definition: dict[str, Any] | str, limit: float = 60) -> dict[str, Any]:
    """Register a view (a text is SQL) and wait until it is live."""
    body = {"sql": definition} if isinstance(definition, str) else definition
    return live(client.put(f"/v1/views/{name}", json=body), client, name, limit)


def live(answer: httpx.Response, client: httpx.Client, name: str, limit: float = 60) -> dict[str, Any]:
    """Return the view of a registration's answer once it is live. On a busy machine, even a small view may take the second after which the
    answer is `202`."""
    made = ok(answer, 200, 201, 202)
    end = time.monotonic() + limit
    while made["state"] == "building" and time.monotonic() < end:
        time.sleep(0.02)
        made = ok(client.get(f"/v1/views/{name}"))
    assert made["state"] == "live", made
    return dict(made)


def drop(client: httpx.Client, views: Iterable[str] = (), relations: Iterable[str] = ()) -> None:
    for name in views:
        ok(client.delete(f"/v1/views/{name}"), 204)
    for name in relations:
        ok(client.delete(f"/v1/relations/{name}"), 204)


# sending


def arrow_bytes(table: pa.Table | pa.RecordBatch, relation: str | None = None) -> bytes:
    """Return one IPC stream; `relation` is stored in the schema's metadata, as POST /v1/changes requires."""
    table = pa.table(table) if isinstance(table, pa.RecordBatch) else table
    if relation is not None:
        table = table.replace_schema_metadata({"livejoin.relation": relation})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def encode_table(table: pa.Table, media: str) -> bytes:
    """Return a table as the body of POST /v1/relations/{name}/changes."""
    if media == ARROW:
        return arrow_bytes(table)
    sink = io.BytesIO()
    if media == PARQUET:
        pyarrow.parquet.write_table(table, sink)
    elif media == CSV:
        pyarrow.csv.write_csv(table, sink)
    else:
        assert media == JSONL
        sink.write(b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist()))
    return sink.getvalue()


def load(client: httpx.Client, relation: str, table: pa.Table, media: str, **parameters: Any) -> dict[str, Any]:
    """Send a complete table as upserts in one batch."""
    answer = client.post(
        f"/v1/relations/{relation}/changes", content=encode_table(table, media), headers={"Content-Type": media}, params=parameters
    )
    done: dict[str, Any] = ok(answer)
    assert done["applied"] + done["ignored"] + done["skipped_count"] == table.num_rows or done["duplicate"]
    return done


def change(entry: dict[str, Any], key: Sequence[str]) -> dict[str, Any]:
    """Return an entry of a change log as a change for POST /v1/changes."""
    if entry["op"] == "delete":
        return {"relation": entry["relation"], "op": "delete", "key": {column: entry["row"][column] for column in key}}
    return {"relation": entry["relation"], "op": entry["op"], "row": entry["row"]}


def send(client: httpx.Client, changes: Sequence[dict[str, Any]], media: str = JSON, **parameters: Any) -> httpx.Response:
    """POST /v1/changes in one of its media types; parameters (source, epoch …) are added to the query."""
    if media == JSON:
        body = json.dumps({"changes": changes}).encode()
    elif media == JSONL:
        body = b"".join(json.dumps(entry).encode() + b"\n" for entry in changes)
    else:
        assert media == ARROW
        body = _arrow_changes(changes)
    return client.post("/v1/changes", content=body, headers={"Content-Type": media}, params=parameters)


def _arrow_changes(changes: Sequence[dict[str, Any]]) -> bytes:
    """Return concatenated IPC streams, one for each run of changes of the same relation and form."""
    parts: list[bytes] = []
    stretch: list[dict[str, Any]] = []

    def flush() -> None:
        if stretch:
            rows = [{"_op": entry["op"], **(entry.get("row") or entry["key"])} for entry in stretch]
            parts.append(arrow_bytes(pa.Table.from_pylist(rows), stretch[0]["relation"]))
            stretch.clear()

    for entry in changes:
        if stretch and (stretch[0]["relation"], "row" in stretch[0]) != (entry["relation"], "row" in entry):
            flush()
        stretch.append(entry)
    flush()
    return b"".join(parts)


# reading


def read(client: httpx.Client, name: str, media: str, columns: Sequence[str], **parameters: Any) -> list[tuple[Any, ...]]:
    """Return all rows of a view as tuples of `columns`; JSON is read by pages of 700."""
    if media == JSON:
        return [tuple(row[column] for column in columns) for page in pages(client, name, 700, **parameters) for row in page["rows"]]
    with client.stream("GET", f"/v1/views/{name}/rows", headers={"Accept": media}, params=parameters) as answer:
        answer.read()
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].split(";")[0] == media
    return list(decode(answer.content, media, columns))


def rows(client: httpx.Client, name: str, **parameters: Any) -> list[Row]:
    """Return a page of rows."""
    return list(ok(client.get(f"/v1/views/{name}/rows", params=parameters, headers={"Accept": JSON}))["rows"])


def tuples(client: httpx.Client, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """Return all rows, in some order."""
    answer = client.get(f"/v1/views/{name}/rows", params=parameters)
    ok_status(answer)
    return sorted((tuple(json.loads(line).values()) for line in answer.text.splitlines()), key=repr)


@contextmanager
def passing_view(client: httpx.Client, definition: dict[str, Any] | str) -> Iterator[dict[str, Any]]:
    """The view `some`, which is dropped at the end."""
    made = view(client, "some", definition)
    try:
        yield made
    finally:
        drop(client, ["some"])


def decode(body: bytes, media: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a streamed answer."""
    if media == JSONL:
        for line in body.splitlines():
            row = json.loads(line)
            yield tuple(row[column] for column in columns)
    elif media == CSV:
        for row in csv.DictReader(io.StringIO(body.decode(), newline="")):
            yield tuple(row[column] for column in columns)
    elif media == ARROW:
        table = pa.ipc.open_stream(body).read_all()
        yield from zip(*(table[column].to_pylist() for column in columns), strict=True)
    else:
        assert media == SSE
        events = list(sse(body.decode()))
        assert [event for event, _, _ in events[:-1]] == ["row"] * (len(events) - 1) and events[-1][0] == "end"
        for _, data, _ in events[:-1]:
            row = json.loads(data)
            yield tuple(row[column] for column in columns)


def pages(client: httpx.Client, name: str, limit: int, **parameters: Any) -> Iterator[dict[str, Any]]:
    """Yield the JSON pages of a view, by cursor; all are of the same version."""
    cursor: str | None = None
    version: int | None = None
    while True:
        at = {"cursor": cursor} if cursor else {}
        answer = client.get(f"/v1/views/{name}/rows", headers={"Accept": JSON}, params={"limit": limit, **parameters, **at})
        page = ok(answer)
        assert set(page) == {"version", "rows", "next"} and len(page["rows"]) <= limit
        assert page["version"] == int(answer.headers["livejoin-version"]) and version in (None, page["version"])
        assert ('rel="next"' in answer.headers.get("link", "")) == (page["next"] is not None)
        version = page["version"]
        yield page
        if page["next"] is None:
            return
        cursor = page["next"]


def sse(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield (event, data, id) of each event of a stream."""
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields: dict[str, list[str]] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name:
                fields.setdefault(name, []).append(value.removeprefix(" "))
        if "data" in fields or "event" in fields:
            yield fields.get("event", ["message"])[0], "\n".join(fields.get("data", [])), fields.get("id", [None])[0]


def count(client: httpx.Client, name: str, **parameters: Any) -> int:
    answer = ok(client.get(f"/v1/views/{name}/count", params=parameters))
    assert set(answer) == {"version", "count"}
    return int(answer["count"])


_OF_A_CHANGE, _OF_A_PROGRESS = frozenset(("version", "op", "key", "row")), frozenset(("version", "op", "token"))


class Follower:
    """Follows a view by polls and maintains its rows by identity; it applies changes at `progress` only.

    Checks the guarantees of every feed: versions grow; within a version, deletes precede inserts; a delete removes an existing row, an
    insert adds a new one; and no identity has the same values before and after a version.
    """

    def __init__(self, client: httpx.Client, name: str, columns: Sequence[str] = (), snapshot: bool = False) -> None:
        """`columns`: of its rows; all if there are none."""
        self.client, self.name = client, name
        self._values = lambda row: tuple(row[column] for column in columns or row)
        self.records = self.progresses = 0  # that it has taken
        self.rows: dict[bytes, tuple[Any, ...]] = {}
        self.version = -1
        self.token: str | None = None
        self._pending: list[Row] = []
        ok_poll(self, **({"snapshot": "true"} if snapshot else {}))

    def poll(self, **parameters: Any) -> httpx.Response:
        """Read what is available now."""
        if self.token is not None:
            parameters["since"] = self.token
        answer = self.client.get(f"/v1/views/{self.name}/changes", params={"wait": 0, **parameters})
        if answer.status_code == 200:
            assert answer.headers["content-type"].split(";")[0] == JSONL
            self.take(map(orjson.loads, answer.content.splitlines()))
            assert not self._pending, "the last record of a poll is a progress"
        return answer

    def resume(self, client: httpx.Client) -> None:
        """Check that the token is still valid after a restart."""
        self.client = client
        ok_poll(self)

    def take(self, records: Iterable[Row]) -> None:
        for record in records:
            self.records += 1
            if record["op"] != "progress":
                assert record["op"] in ("insert", "delete") and record.keys() == _OF_A_CHANGE, record
                self._pending.append(record)
                continue
            assert record.keys() == _OF_A_PROGRESS, record
            self.progresses += 1
            self._apply(record["version"])
            self.token = record["token"]

    def _apply(self, version: int) -> None:
        pending, self._pending = self._pending, []
        assert version >= self.version
        assert not pending or version > self.version
        assert {record["version"] for record in pending} <= {version}
        ops = [record["op"] for record in pending]
        assert ops == sorted(ops), "deletes come before inserts"
        deleted: dict[bytes, tuple[Any, ...]] = {}
        for op, record in zip(ops, pending, strict=True):
            identity = orjson.dumps(record["key"], option=orjson.OPT_SORT_KEYS)
            values = self._values(record["row"])
            if op == "delete":
                assert self.rows.pop(identity) == values
                deleted[identity] = values
            else:
                assert identity not in self.rows and deleted.get(identity) != values
                self.rows[identity] = values
        self.version = version

    @property
    def checksum(self) -> str:
        return datasets.checksum(self.rows.values())


def ok_poll(follower: Follower, **parameters: Any) -> httpx.Response:
    """Return the answer to a poll that must succeed."""
    answer = follower.poll(**parameters)
    ok_status(answer)
    return answer


def ok_status(answer: httpx.Response, status: int = 200) -> None:
    assert answer.status_code == status, _emitted(answer)

"""Columns of every type in files of rows: what is sent is what was written, and what comes back is read again."""

from __future__ import annotations

import base64
import datetime as dt
import io
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end import talk
from tests.relations import columns
from tests.server_process import ServerProcess

U = [uuid.UUID(int=number) for number in range(3)]
COLUMNS = columns("id:uuid, at:time, note:json?, data:bytes?, price:decimal(12,2)?, since:timestamp, day:date, good:bool")
SINCE, DAY = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), dt.date(2026, 1, 2)
ROWS: list[dict[str, Any]] = [
    {"id": U[0], "at": dt.time(12, 30), "note": '{"a": [1, null]}', "data": b"\x00\xff", "price": Decimal("12.50"), "good": True},
    {"id": U[1], "at": dt.time(0, 0, 0, 1), "note": '"a,b"', "data": b"", "price": Decimal("-0.01"), "good": False},
    {"id": U[2], "at": dt.time(23, 59), "note": None, "data": None, "price": None, "good": True},
]
AS_TEXT = {"id": str, "at": dt.time.isoformat, "data": lambda data: base64.b64encode(data).decode(), "price": str}
MEDIA = {"parquet": talk.PARQUET, "arrow": talk.ARROW, "csv": talk.CSV, "jsonl": talk.JSONL}


@pytest.fixture(scope="module")
def server(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    client = shared_server.client()
    for name in ("typed", "typed_copies"):
        talk.define(client, name, {"columns": COLUMNS, "key": ["id"]})
    talk.ok(talk.send(client, [{"relation": "typed", "op": "upsert", "row": as_text(row)} for row in ROWS]))
    selected = ", ".join(f"a.{column['name']} AS {column['name']}" for column in COLUMNS)
    talk.view(client, "typed_all", f"SELECT {selected} FROM typed a JOIN typed b ON a.id = b.id")
    yield shared_server
    talk.drop(client, ["typed_all"], ["typed", "typed_copies"])


def file(server: ServerProcess, path: str, **parameters: str) -> bytes:
    answer = server.client().get(f"/v1/{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.content


def as_text(row: dict[str, Any]) -> dict[str, Any]:
    """As JSON and CSV have it."""
    emitted = {name: AS_TEXT.get(name, lambda value: value)(value) if value is not None else None for name, value in row.items()}
    return {**emitted, "since": "2026-01-01T12:00:00Z", "day": "2026-01-02"}


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["id"]))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("position", ["relations/typed", "views/typed_all"])
def test_columns(server: ServerProcess, position: str, suffix: str) -> None:
    content = file(server, f"{position}/rows.{suffix}")
    table = pq.read_table(io.BytesIO(content)) if suffix == "parquet" else pa.ipc.open_stream(content).read_all()
    assert in_order(table.to_pylist()) == [{**row, "id": str(row["id"]), "since": SINCE, "day": DAY} for row in ROWS]
    assert table.schema.field("at").type == pa.time64("us") and table.schema.field("price").type == pa.decimal128(12, 2)
    assert table.schema.field("data").type == pa.binary() and table.schema.field("since").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("position", ["relations/typed", "views/typed_all"])
def test_texts(server: ServerProcess, position: str) -> None:
    lines = in_order([orjson.loads(line) for line in file(server, f"{position}/rows.jsonl").splitlines()])
    assert lines == list(map(as_text, ROWS))
    head, *rest = file(server, f"{position}/rows.csv").decode().splitlines()
    assert head == ",".join(column["name"] for column in COLUMNS)
    assert sorted(rest) == [
        f'{U[0]},12:30:00,"{{""a"": [1, null]}}",AP8=,12.50,2026-01-01T12:00:00Z,2026-01-02,true',
        f'{U[1]},00:00:00.000001,"""a,b""","",-0.01,2026-01-01T12:00:00Z,2026-01-02,false',
        f"{U[2]},23:59:00,,,,2026-01-01T12:00:00Z,2026-01-02,true",
    ]


@pytest.mark.parametrize("suffix", MEDIA)
def test_a_file_is_read_again(server: ServerProcess, suffix: str) -> None:
    body = file(server, f"relations/typed/rows.{suffix}")
    headers = {"Content-Type": MEDIA[suffix]}
    assert talk.ok(server.client().post("/v1/relations/typed_copies/replace", content=body, headers=headers))["skipped_count"] == 0
    ours, theirs = (file(server, f"relations/{name}/rows.jsonl").splitlines() for name in ("typed", "typed_copies"))
    assert sorted(ours) == sorted(theirs) and len(theirs) == len(ROWS)


def test_rows_are_looked_up_by_a_key_of_these_types(server: ServerProcess) -> None:
    for path, name in (("relations/typed/rows.parquet", "where.id"), ("views/typed_all/rows.parquet", "where.a.id")):
        table = pq.read_table(io.BytesIO(file(server, path, **{name: str(U[1]).upper()})))
        assert table.column("data").to_pylist() == [b""]

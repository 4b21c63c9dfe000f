"""`livejoin load` of real files into new relations: each type that a file may have, what the options change, and what comes of it."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import livejoin
from livejoin.commands.inference import infer
from livejoin.files import open_file
from service.cli import main
from tests.server_process import ServerProcess

ID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
NOON = dt.datetime(2026, 2, 17, 14, tzinfo=dt.UTC)
SHOWN = "2026-02-17T14:00:00Z"
TIME = dt.time(14, 0, 1)

# Of each Arrow type a value, the column that it makes, and the value as it is told.
TYPES: list[tuple[pa.DataType, Any, Any, Any]] = [
    *((type_, 7, "int64", 7) for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64())),
    *((type_, 0.5, "float64", 0.5) for type_ in (pa.float16(), pa.float32(), pa.float64())),
    *((type_, Decimal("1.50"), f"decimal({min(18, type_.precision)},2)", "1.50") for type_ in (
        pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(12, 2), pa.decimal128(38, 2), pa.decimal256(76, 2),
    )),
    *((pa.timestamp(unit, "UTC"), NOON, "timestamp", SHOWN) for unit in ("s", "ms", "us", "ns")),
    (pa.timestamp("ms", "Asia/Tokyo"), NOON, "timestamp", SHOWN),
    *((type_, dt.date(2026, 2, 17), "date", "2026-02-17") for type_ in (pa.date32(), pa.date64())),
    *((type_, TIME, "time", "14:00:01") for type_ in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))),
    *((type_, "é", "string", "é") for type_ in (pa.utf8(), pa.large_utf8(), pa.dictionary(pa.int8(), pa.utf8()))),
    (pa.dictionary(pa.int32(), pa.int64()), 7, "int64", 7),
    *((type_, b"\x00\xff", "bytes", "AP8=") for type_ in (pa.binary(), pa.large_binary(), pa.binary(2))),
    (pa.uuid(), uuid.UUID(ID).bytes, "uuid", ID), (pa.json_(), '{"a": 1}', "json", '{"a": 1}'), (pa.bool_(), True, "bool", True),
]  # fmt: skip
VIEWS = [(pa.string_view(), "é", "string", "é"), (pa.binary_view(), b"\x00\xff", "bytes", "AP8=")]


@pytest.fixture(scope="module")
def client(shared_server: ServerProcess) -> Iterator[livejoin.Client]:
    with livejoin.connect(shared_server.url) as client:
        yield client


@pytest.fixture
def load(shared_server: ServerProcess, client: livejoin.Client) -> Iterator[Any]:
    """Runs the command for the relation `fresh`, which goes with the test."""
    yield lambda *arguments: main(["load", "fresh", *map(str, arguments), "--url", shared_server.url])
    if any(one["name"] == "fresh" for one in client.relations()):
        client.relation("fresh").drop()


def columns_of(client: livejoin.Client) -> dict[str, str]:
    found = client.relation("fresh").get()["columns"]
    return {one["name"]: kind(one) for one in found}


def kind(column: dict[str, Any]) -> str:
    digits = f"({column['precision']},{column['scale']})" if "scale" in column else ""
    return column["type"] + digits + ("?" if column.get("nullable") else "")


def table(types: list[tuple[pa.DataType, Any, Any, Any]], nullable: bool) -> pa.Table:
    """A column of each type with a value and, if `nullable`, a null."""
    rows = 2 if nullable else 1
    fields = [pa.field("id", pa.int32(), False), *(pa.field(f"c{at}", type_, nullable) for at, (type_, _, _, _) in enumerate(types))]
    arrays = [pa.array(range(rows), pa.int32()), *(pa.array([value, None][:rows], type_) for type_, value, _, _ in types)]
    return pa.table(arrays, schema=pa.schema(fields))


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.arrows", "plain.parquet"])
def test_every_type_of_arrow_and_parquet(client: livejoin.Client, load: Any, tmp_path: Path, name: str, nullable: bool) -> None:
    """`plain.parquet` says nothing of Arrow's types, as files of others; then the key alone is not nullable."""
    types = TYPES if name.endswith("parquet") else [*TYPES, *VIEWS]
    rows = table(types, nullable)
    if name.endswith("parquet"):
        pq.write_table(rows, tmp_path / name, store_schema=name == "t.parquet")
    else:
        with (pa.ipc.new_file if name == "t.arrow" else pa.ipc.new_stream)(tmp_path / name, rows.schema) as writer:
            writer.write_table(rows)
    assert load(tmp_path / name, "--key", "id") == 0
    assert columns_of(client) == {"id": "int64"} | {
        f"c{at}": wanted + ("?" if nullable else "") for at, (_, _, wanted, _) in enumerate(types)
    }
    kept = sorted(client.relation("fresh").rows(), key=lambda row: row["id"])
    assert kept[0] == {"id": 0} | {f"c{at}": shown for at, (_, _, _, shown) in enumerate(types)}
    assert not nullable or set(kept[1].values()) == {1, None}


TEXTS = {"u": ID.upper(), "t": "14:00:01.5", "ts": "2026-02-17 14:00:00+00", "d": "2026-02-17", "s": "14:00"}


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_types_that_texts_tell(client: livejoin.Client, load: Any, tmp_path: Path, name: str) -> None:
    """A time without seconds may be a duration, and is text; an open end makes its column nullable."""
    if name == "t.csv":
        texts = ",".join(TEXTS.values())
        (tmp_path / name).write_text(f"id,{','.join(TEXTS)}\n1,{texts}\n2,{texts.replace(TEXTS['ts'], 'infinity')}\n")
    else:
        lines = [orjson.dumps({"id": 1, **TEXTS}), orjson.dumps({"id": 2, **TEXTS, "ts": "infinity"})]
        (tmp_path / name).write_bytes(b"\n".join(lines))
    assert load(tmp_path / name, "--key", "id") == 0
    assert columns_of(client) == {"id": "int64", "u": "uuid", "t": "time", "ts": "timestamp?", "d": "date", "s": "string"}
    row = {"u": ID, "t": "14:00:01.500000", "ts": SHOWN, "d": "2026-02-17", "s": "14:00"}
    assert sorted(client.relation("fresh").rows(), key=lambda one: one["id"]) == [{"id": 1, **row}, {"id": 2, **row, "ts": None}]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["14:00:00", "24:00:00"], "string"), (["14:00:00", "1:00:00"], "string"), (["23:59:59.999999"], "time"),
        (["14:00:00.1234567"], "string"),
        ([ID, ID[:-1]], "string"), ([ID, ""], "uuid?"), (["14:00:00", ""], "time?"), ([ID, "14:00:00"], "string"),
        ([ID.replace("-", "")], "string"),
        (["AP8=", "\\x00ff"], "string"), (['{}'], "string"),
    ],
)  # fmt: skip
def test_texts_at_the_edge(tmp_path: Path, values: list[str], wanted: str) -> None:
    """Bytes and JSON are told from text only by --type."""
    (tmp_path / "t.csv").write_text("id,v\n" + "".join(f"{number},{value}\n" for number, value in enumerate(values)))
    assert kind(infer([open_file(tmp_path / "t.csv")], {}, [])[1]) == wanted


def test_types_that_the_user_says(client: livejoin.Client, load: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,data,more,short,price,code\n1,\\x00ff,"{""a"": 1}",14:00,1.5,007\n2,AP8=,[],09:30,2,8\n')
    types = [part for one in ("data=bytes", "more=json", "short=time", "price=decimal(9, 2)", "code=int64") for part in ("--type", one)]
    assert load(tmp_path / "t.csv", "--key", "id", *types, "--not-null", "data,more") == 0
    assert columns_of(client) == {
        "id": "int64", "data": "bytes", "more": "json", "short": "time", "price": "decimal(9,2)", "code": "int64",
    }  # fmt: skip
    assert list(client.relation("fresh").rows())[0] == {
        "id": 1, "data": "AP8=", "more": '{"a": 1}', "short": "14:00:00", "price": "1.50", "code": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        ("id,v\n1,{\n", ["--type", "v=json"], "not JSON"), ("id,v\n1,x\n", ["--type", "v=uuid"], "expected a UUID"),
        ("id,v\n1,24:00\n", ["--type", "v=time"], "no such time"), ("id,v\n1,?\n", ["--type", "v=bytes"], "expected bytes"),
        ("id,v\n1,a\n2,\n", ["--type", "v=uuid"], "expected a UUID"),
        (f"id,v\n1,{ID}\n2,\n", ["--not-null", "v"], "null, but the column is not"),
        ("id,v\n1,a\n", ["--type", "w=uuid"], "--type names 'w'"), ("id,v\n1,a\n", ["--not-null", "w"], "--not-null names 'w'"),
        ("id,v\n1,a\n", ["--key", "w"], "--key names 'w'"),
        ("id,v\n1,2026-01-05 00:00:00\n", ["--interval", "stay=v,v,[]"], "times without an offset in column 'v'"),
        ("v\n{}\n", ["--type", "v=json", "--key", "v"], "the key column 'v' is json"),
        ("id,v\n1,a\n", ["--type", "v=text"], "no such type"),
        ("id,v\n1,2026-02-17 14:00:00\n", ["--type", "v=timestamp"], "without an offset"),
    ],
)  # fmt: skip
def test_nothing_is_registered_for_a_file_that_is_refused(
    client: livejoin.Client, load: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str, arguments: list[str], words: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert load(tmp_path / "t.csv", *([] if "--key" in arguments else ["--key", "id"]), *arguments) in (1, 2)
    assert words in capfd.readouterr().err
    assert not any(one["name"] == "fresh" for one in client.relations())


def test_skipping_and_replacing(client: livejoin.Client, load: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Under --replace a bad row keeps the row that is there; by default nothing changes."""
    (tmp_path / "a.csv").write_text(f"id,v\n{ID},14:00:00\n{ID[:-1]}2,15:00:00\n")
    (tmp_path / "b.csv").write_text(f"id,v\n{ID},24:00:00\n{ID[:-1]}3,16:00:00\n")
    assert load(tmp_path / "a.csv", "--key", "id") == 0
    before = list(client.relation("fresh").rows())
    assert load(tmp_path / "b.csv", "--replace") == 1
    assert list(client.relation("fresh").rows()) == before and "nothing was loaded" in capfd.readouterr().err
    assert load(tmp_path / "b.csv", "--replace", "--on-error", "skip") == 1
    assert {row["id"][-1]: row["v"] for row in client.relation("fresh").rows()} == {"1": "14:00:00", "3": "16:00:00"}

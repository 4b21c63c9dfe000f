"""How `livejoin load` reads files: bodies of bounded size, and the way back from a row to its line."""

from __future__ import annotations

import csv
import gzip
import io
import random
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.commands import files
from service.commands.files import ARROW, CSV, open_file
from service.commands.inference import infer
from service.terminal import Failure

TYPES = pa.schema([("id", pa.int64()), ("name", pa.utf8()), ("at", pa.timestamp("us", "UTC"))])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of a few lines."""
    monkeypatch.setattr(files, "BODY", 200)


def records(body: files.Body) -> list[list[str]]:
    return [record for record in csv.reader(io.StringIO(body.content.decode(), newline="")) if record][1:]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_bodies_hold_every_record_once_and_know_its_line(tmp_path: Path, small: None, name: str, end: str) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    chance = random.Random(seed)
    text, lines, line = f"id,name{end}", [], 2
    for number in range(300):
        value = chance.choice(["plain", 'say ""hi""', f"two{end}lines", "", "a, comma"])
        lines.append(line)
        text += f'{number},"{value}"{end}'
        line += 1 + value.count("\n")
        if chance.random() < 0.1:
            text += end
            line += 1
    bodies = list(open_file(write(tmp_path / name, text.encode())).bodies(TYPES))
    assert len(bodies) > 5
    assert [row[0] for body in bodies for row in records(body)] == [str(number) for number in range(300)]
    assert [line for body in bodies for line in body.lines(list(range(len(records(body)))))] == lines
    assert {body.media_type for body in bodies} == {CSV}
    assert max(len(body.content) for body in bodies) < 1000


def test_csv_without_a_last_line_end_and_with_a_byte_order_mark(tmp_path: Path) -> None:
    (body,) = open_file(write(tmp_path / "a.csv", b"\xef\xbb\xbfid,name\n1,x\n2,y")).bodies(TYPES)
    assert body.content == b"id,name\n1,x\n2,y"
    assert body.lines([1]) == [3]


def test_csv_of_a_header_alone_has_no_body(tmp_path: Path) -> None:
    assert list(open_file(write(tmp_path / "a.csv", b"id,name")).bodies(TYPES)) == []


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.ndjson", "rows.jsonl.gz"])
def test_jsonl_bodies_know_their_lines(tmp_path: Path, small: None, name: str) -> None:
    content = b"".join(orjson.dumps({"id": number, "name": "\u2028"}) + b"\n" + b"\n" * (number % 7 == 0) for number in range(100))
    filled = [number for number, line in enumerate(content.split(b"\n"), 1) if line]
    bodies = list(open_file(write(tmp_path / name, content)).bodies(TYPES))
    rows = [[orjson.loads(line) for line in body.content.split(b"\n") if line] for body in bodies]
    assert [row["id"] for part in rows for row in part] == list(range(100))
    assert [line for body, part in zip(bodies, rows, strict=True) for line in body.lines(list(range(len(part))))] == filled
    assert bodies[-1].done == (tmp_path / name).stat().st_size


def arrow_file(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=40)
    elif path.suffix == ".arrows":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=40)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=40)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.arrows", "a.feather"])
def test_arrow_and_parquet_come_in_the_relation_s_types(tmp_path: Path, small: None, name: str) -> None:
    table = pa.table(
        {
            "id": pa.array(range(100), pa.int32()),
            "name": pa.array(["x", "y"] * 50).dictionary_encode(),
            "at": pa.array([10**9 * n for n in range(100)], pa.timestamp("ns")),
            "other": pa.array(range(100), pa.int16()),
        }
    )
    arrow_file(tmp_path / name, table)
    bodies = list(open_file(tmp_path / name).bodies(TYPES))
    read = [pa.ipc.open_stream(body.content).read_all() for body in bodies]
    assert {body.media_type for body in bodies} == {ARROW} and len(bodies) > 3
    whole = pa.concat_tables(read)
    assert whole.schema == pa.schema([*TYPES, ("other", pa.int16())])
    assert whole["id"].to_pylist() == list(range(100)) and whole["name"].to_pylist() == ["x", "y"] * 50
    lines_found = [line for body, part in zip(bodies, read, strict=True) for line in body.lines(list(range(part.num_rows)))]
    assert lines_found == list(range(1, 101))


def test_a_value_that_would_change_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1.5]}), tmp_path / "a.parquet")
    with pytest.raises(Failure, match="column 'id' is double, but the relation has int64"):
        list(open_file(tmp_path / "a.parquet").bodies(TYPES))


@pytest.mark.parametrize(
    ("name", "content"), [("a.parquet", b"PAR1 no"), ("a.arrow", b"ARROW1\0\0no"), ("a.arrows", b"\xff\xff\xff\xffno"), ("b.csv.gz", b"")]
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content or b"not gzip at all")
    with pytest.raises(Failure, match=name):
        list(open_file(tmp_path / name).bodies(TYPES))


def test_a_name_that_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="unknown file type") as caught:
        open_file(write(tmp_path / "rows.xlsx", b""))
    assert caught.value.status == 2


# -- inference


def types(path: Path, content: bytes) -> dict[str, str]:
    columns = infer([open_file(write(path, content))])
    return {column["name"]: column["type"] + ("?" if column.get("nullable") else "") for column in columns}


def test_csv_columns_are_told_from_all_values(tmp_path: Path, small: None) -> None:
    rows = ["i,f,d,t,b,s,zip,n,e,_op", *(f"{k},1.5,2026-01-01,2026-01-01T00:00:00Z,true,x,0{k},{k},," for k in range(50))]
    rows.append("-7,2e3,,2026-01-01T00:00:00.5+02:00,false,,1,late,,upsert")
    assert types(tmp_path / "a.csv", "\n".join(rows).encode()) == {
        "i": "int64",
        "f": "float64",
        "d": "date?",
        "t": "timestamp",
        "b": "bool",
        "s": "string",
        "zip": "string",
        "n": "string",
        "e": "string",
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("9223372036854775807", "int64"),
        ("9223372036854775808", "float64"),
        ("-0", "int64"),
        ("1.", "string"),
        ("NaN", "float64"),
        ("2026-02-30", "string"),
        ("2026-01-01T00:00:00", "string"),
        ("2026-01-01T25:00:00Z", "string"),
        ("True", "string"),
        ("", "string"),
    ],
)
def test_csv_values_at_the_edge(tmp_path: Path, value: str, kind: str) -> None:
    assert types(tmp_path / "a.csv", f"id,v\n1,{value}\n".encode())["v"] == kind


def test_jsonl_columns(tmp_path: Path) -> None:
    content = b"""{"id": 1, "x": 1, "d": "2026-01-01", "s": "2026-01-01", "b": true}
{"id": 2, "x": 1.5, "d": null, "s": "other", "t": "2026-01-01T00:00:00Z"}
{"_op": "delete", "id": 3}
"""
    assert types(tmp_path / "a.jsonl", content) == {
        "id": "int64", "x": "float64", "d": "date?", "s": "string", "b": "bool?", "t": "timestamp?",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "content"), [("a.csv", b"a,b\n"), ("a.csv", b"a,b\n,\n"), ("a.jsonl", b'{"a": null}\n')])
def test_types_are_not_made_up(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(Failure, match="without values"):
        types(tmp_path / name, content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1}\nno\n', "line 2"),
        (b"[1]\n", "line 1"),
        (b'{"a": {"b": 1}}\n', "lists and objects"),
        (b'{"a": 1}\n{"a": "x"}\n', "'a'"),
    ],
)
def test_jsonl_that_is_no_relation(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(Failure, match=words):
        types(tmp_path / "a.jsonl", content)


def test_arrow_columns(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1], pa.uint8()), "at": pa.array([None], pa.timestamp("ns")), "s": pa.array(["x"], pa.large_utf8())})
    pq.write_table(table, tmp_path / "a.parquet")
    columns = infer([open_file(tmp_path / "a.parquet")])
    assert columns == [
        {"name": "id", "type": "int64"},
        {"name": "at", "type": "timestamp", "nullable": True},
        {"name": "s", "type": "string"},
    ]
    pq.write_table(pa.table({"id": [[1]]}), tmp_path / "b.parquet")
    with pytest.raises(Failure, match="do not support"):
        infer([open_file(tmp_path / "b.parquet")])


def test_a_column_that_only_one_of_two_files_has_may_be_null(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.csv", b"id,x\n1,1\n"), write(tmp_path / "b.jsonl", b'{"id": 2, "y": true}\n')
    assert infer([open_file(first), open_file(second)]) == [
        {"name": "id", "type": "int64"},
        {"name": "x", "type": "int64", "nullable": True},
        {"name": "y", "type": "bool", "nullable": True},
    ]

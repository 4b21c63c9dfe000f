"""How files of rows are read: bodies of bounded size, and the way back from a row to its line."""

from __future__ import annotations

import csv
import gzip
import io
import random
from decimal import Decimal
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from livejoin import BadFile, files
from livejoin.arrow import ARROW
from livejoin.files import CSV, open_file

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
    assert whole.schema.remove(2) == pa.schema([*TYPES, ("other", pa.int16())]).remove(2)
    assert whole.schema.field("at").type == pa.timestamp("ns")  # the service knows what times without a zone are
    assert whole["id"].to_pylist() == list(range(100)) and whole["name"].to_pylist() == ["x", "y"] * 50
    lines_found = [line for body, part in zip(bodies, read, strict=True) for line in body.lines(list(range(part.num_rows)))]
    assert lines_found == list(range(1, 101))


def test_decimals_become_the_nearest_floats(tmp_path: Path) -> None:
    """Arrow's own cast is off by one unit in the last place for some of them."""
    numbers = [Decimal(n * 7919 + 1).scaleb(-9) for n in range(10_000)]
    pq.write_table(pa.table({"x": pa.array(numbers, pa.decimal128(18, 9))}), tmp_path / "a.parquet")
    read = [
        pa.ipc.open_stream(body.content).read_all() for body in open_file(tmp_path / "a.parquet").bodies(pa.schema([("x", pa.float64())]))
    ]
    assert pa.concat_tables(read)["x"].to_pylist() == list(map(float, numbers))


def test_a_value_that_would_change_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1.5]}), tmp_path / "a.parquet")
    with pytest.raises(BadFile, match="column 'id' is double, but the relation has int64"):
        list(open_file(tmp_path / "a.parquet").bodies(TYPES))


@pytest.mark.parametrize(
    ("name", "content"), [("a.parquet", b"PAR1 no"), ("a.arrow", b"ARROW1\0\0no"), ("a.arrows", b"\xff\xff\xff\xffno"), ("b.csv.gz", b"")]
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content or b"not gzip at all")
    with pytest.raises(BadFile, match=name):
        list(open_file(tmp_path / name).bodies(TYPES))


def test_a_name_that_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="unknown file type"):
        open_file(write(tmp_path / "rows.xlsx", b""))

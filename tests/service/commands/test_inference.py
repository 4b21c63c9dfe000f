"""How `livejoin load` finds the columns of a new relation in its files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from livejoin import files
from livejoin.commands.inference import infer
from livejoin.files import open_file
from livejoin.terminal import Failure
from tests.client.test_files import write


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of a few lines."""
    monkeypatch.setattr(files, "BODY", 200)


def types(path: Path, content: bytes) -> dict[str, str]:
    columns = infer([open_file(write(path, content))], {}, [])
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
        ("9223372036854775808", "string"),
        ("9223372036854775808.5", "float64"),
        ("1e30", "float64"),
        ("-0", "int64"),
        ("1.", "string"),
        ("NaN", "float64"),
        ("2026-02-30", "string"),
        ("2026-01-01T25:00:00Z", "string"),
        ("True", "string"),
        ("", "string"),
    ],
)
def test_csv_values_at_the_edge(tmp_path: Path, value: str, kind: str) -> None:
    assert types(tmp_path / "a.csv", f"id,v\n1,{value}\n".encode())["v"] == kind


def test_integers_that_a_float_does_not_have_exactly(tmp_path: Path) -> None:
    assert types(tmp_path / "a.csv", b"id,v\n1,9007199254740993\n2,1.5\n")["v"] == "string"
    assert types(tmp_path / "b.csv", b"id,v\n1,-9007199254740992\n2,1.5\n")["v"] == "float64"
    assert types(tmp_path / "c.csv", b"id,x\n18446744073709551614,a\n18446744073709551615,b\n")["id"] == "string"
    assert types(tmp_path / "a.jsonl", b'{"v": 1e30}\n{"v": 1000000000000000000000.5}\n{"v": 9007199254740992}\n') == {"v": "float64"}
    for content in (
        b'{"v": 9007199254740993}\n{"v": 1.5}\n',
        b'{"v": 9223372036854775808}\n',
        b'{"v": 18446744073709551616}\n',
        b'{"v":1.5, "w": "x"}\n{"v":-99999999999999999999, "w": "y"}\n',
    ):
        with pytest.raises(Failure, match="integers that neither int64 nor float64 represents exactly"):
            types(tmp_path / "b.jsonl", content)


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
    table = pa.table(
        {"id": pa.array([1], pa.uint8()), "at": pa.array([None], pa.timestamp("ns", "UTC")), "s": pa.array(["x"], pa.large_utf8())}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    columns = infer([open_file(tmp_path / "a.parquet")], {}, ["id"])
    assert columns == [
        {"name": "id", "type": "int64"},
        {"name": "at", "type": "timestamp", "nullable": True},
        {"name": "s", "type": "string", "nullable": True},
    ]
    fields = [
        pa.field("id", pa.uint8(), nullable=False),
        pa.field("at", pa.timestamp("ns", "Asia/Tokyo"), nullable=False),
        pa.field("s", pa.large_utf8()),
    ]
    pq.write_table(pa.table([[1], [0], ["x"]], schema=pa.schema(fields)), tmp_path / "a.parquet")
    assert infer([open_file(tmp_path / "a.parquet")], {"s": "date"}, ["s"]) == [
        {"name": "id", "type": "int64"},
        {"name": "at", "type": "timestamp"},
        {"name": "s", "type": "date"},
    ]
    pq.write_table(pa.table({"id": [[1]]}), tmp_path / "b.parquet")
    with pytest.raises(Failure, match="do not support"):
        infer([open_file(tmp_path / "b.parquet")], {}, [])


def test_times_without_a_zone(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([0], pa.timestamp("us"))}), tmp_path / "a.parquet")
    with pytest.raises(Failure, match="times without a time zone: give it, for example --zone UTC"):
        infer([open_file(tmp_path / "a.parquet")], {}, [])
    content = b"at,by\n2026-02-17 14:00:00,2026-02-17 14:00:00+00\n2026-02-17T14:00,infinity\n"
    jsonl = b'{"at": "2026-02-17 14:00:00", "by": "2026-02-17 14:00:00+00"}\n{"at": "2026-02-17T14:00", "by": "infinity"}\n'
    for path in (write(tmp_path / "a.csv", content), write(tmp_path / "a.jsonl", jsonl)):
        with pytest.raises(Failure) as caught:
            infer([open_file(path)], {}, [])
        assert str(caught.value) == (
            "times without an offset in column 'at': give their time zone, for example --zone UTC, or load them as text with "
            "--type at=string"
        )
        by = {"name": "by", "type": "timestamp", "nullable": True}
        assert infer([open_file(path)], {"at": "string"}, []) == [{"name": "at", "type": "string"}, by]
        zone = {"zone": "Europe/Berlin"}
        assert infer([open_file(path)], {}, [], "Europe/Berlin") == [
            {"name": "at", "type": "timestamp"} | zone, {"name": "by", "type": "timestamp", "nullable": True} | zone,
        ]  # fmt: skip
    assert infer([open_file(tmp_path / "a.parquet")], {}, ["at"], "UTC") == [{"name": "at", "type": "timestamp", "zone": "UTC"}]


def test_all_columns_of_local_times_are_named(tmp_path: Path) -> None:
    row = b"id,st,en,x\n5,2026-01-05 00:00:00,2026-01-06 00:00:00Z,2026-01-06 00:00:00\n"
    path = write(tmp_path / "a.csv", row + b"6,2026-01-05 00:00:00,2026-01-06 00:00:00,tomorrow\n")
    with pytest.raises(Failure, match=r"columns 'st', 'en': give .* --zone UTC, .* --type st=string --type en=string$"):
        infer([open_file(path)], {}, [])
    types = [column["type"] for column in infer([open_file(path)], {"en": "string"}, [], "UTC")]
    assert types == ["int64", "timestamp", "string", "string"]


def test_a_column_that_only_one_of_two_files_has_may_be_null(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.csv", b"id,x\n1,1\n"), write(tmp_path / "b.jsonl", b'{"id": 2, "y": true}\n')
    assert infer([open_file(first), open_file(second)], {}, []) == [
        {"name": "id", "type": "int64"},
        {"name": "x", "type": "int64", "nullable": True},
        {"name": "y", "type": "bool", "nullable": True},
    ]


@pytest.mark.parametrize(
    ("text", "column", "wanted"),
    [
        ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", pa.array(["x"]), "string"), ("1", pa.array([0.5]), "float64"),
        ("1", pa.array([2]), "int64"),
        ("2026-01-01", pa.array(["x"]), "string"), ("14:00:00", pa.array([0], pa.time64("us")), "time"),
    ],
)  # fmt: skip
def test_a_file_that_tells_types_beside_one_of_texts(tmp_path: Path, text: str, column: pa.Array, wanted: str) -> None:
    csv = write(tmp_path / "a.csv", f"v\n{text}\n".encode())
    pq.write_table(pa.table({"v": column}), tmp_path / "b.parquet")
    for files_of in ([csv, tmp_path / "b.parquet"], [tmp_path / "b.parquet", csv]):
        if wanted == "string" and files_of[1] is csv:
            continue  # the narrowest type that both can be is told from the first
        assert infer([open_file(path) for path in files_of], {}, [])[0]["type"] == wanted


def test_a_byte_order_mark_and_a_number_beyond_float64(tmp_path: Path) -> None:
    """The mark is no part of the first name; the line with the number is a bad row, of which the columns are not told."""
    assert types(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"id": 1}\n{"id": 1e999, "x": 1}\n{"id": 2}\n') == {"id": "int64"}

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from livejoin.wire.errors import MalformedBody
from tests.service.wire.bookings import faults, relation_changes, rows

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)




def test_empty_fields() -> None:
    batch = relation_changes("text/csv", b'id,room,starts,ends,note\n1,,2026-01-01T12:00:00Z,,\n2,"",20260101T120000Z,"",""\n')
    assert rows(batch) == [("bookings", "upsert", (1, "", NOON, None, None)), ("bookings", "upsert", (2, "", NOON, None, ""))]
    batch = relation_changes("text/csv", b"id,room,starts\n1,A,\n")
    assert faults(batch) == [(0, "starts")]


def test_quotes_line_ends_and_a_byte_order_mark() -> None:
    body = b'\xef\xbb\xbfnote,id,starts,room\r\n"a ""b"",\r\nc",1,2026-01-01 12:00:00Z,"x, y"\r\n'
    assert rows(relation_changes("text/csv", body)) == [("bookings", "upsert", (1, "x, y", NOON, None, 'a "b",\r\nc'))]


def test_ops() -> None:
    batch = relation_changes("text/csv", b"_op,id,room,starts\ndelete,1,,\ntruncate,,,\n" + b"".join(
        b"%b,A,20260101T00Z\n" % one for one in (b",2", b"insert,3", b"remove,4")
    ))
    assert [(op, row[0]) for _, op, row in rows(batch)] == [("delete", 1), ("truncate", None), ("upsert", 2), ("insert", 3)]
    assert faults(batch) == [(4, "_op")]


def test_values() -> None:
    body = b"k,day,x,ok\n1e3,2026-01-01,NaN,true\n-0.0,20260102,-inf,F\n.5,2026-01-03,,\n"
    values = [row for _, _, row in rows(relation_changes("text/csv", body, "values"))]
    assert str(values) == str(
        [
            (1000.0, dt.date(2026, 1, 1), float("nan"), True),
            (0.0, dt.date(2026, 1, 2), float("-inf"), False),
            (0.5, dt.date(2026, 1, 3), None, None),
        ]
    )


@pytest.mark.parametrize("field", ["0x10", "1.0", "\u00a01", "1_0", "9223372036854775808", "", "١", "9" * 5000])
def test_bad_numbers(field: str) -> None:
    body = f"id,room,starts\n1,A,20260101T00Z\n{field},A,20260101T00Z\n2,A,20260101T00Z\n".encode()
    batch = relation_changes("text/csv", body)
    assert faults(batch) == [(1, "id")]
    assert len(rows(batch)) == 2


def test_the_edges_of_int64() -> None:
    batch = relation_changes("text/csv", b"id,room,starts\n9223372036854775807,A,20260101T00Z\n-9223372036854775808,A,20260101T00Z\n")
    assert [row[0] for _, _, row in rows(batch)] == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize("field", ["nano", "info", "1e400", "0x1p3", "1_5", "nan(1)", "true"])
def test_bad_floats(field: str) -> None:
    assert faults(relation_changes("text/csv", f"k,day,x\n1,2026-01-01,{field}\n".encode(), "values")) == [(0, "x")]


def test_other_faults() -> None:
    assert faults(relation_changes("text/csv", b"k,day,ok\n1,2026-02-30,\n1,2026-02-01,maybe\n", "values")) == [(0, "day"), (1, "ok")]
    assert faults(relation_changes("text/csv", b"id,room,starts,colour\n1,A,20260101T00Z,red\n")) == [(0, "colour")]
    assert faults(relation_changes("text/csv", b"id,room\n1,A\n")) == [(0, "starts")]
    assert relation_changes("text/csv", b"id,room\n").sent == 0
    assert relation_changes("text/csv", b"id,room").sent == 0


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"", None),
        (b"\n\n", None),
        (b"id,room,starts\n1,A\n", 2),
        (b"id,room,starts\n1,A,20260101T00Z\n1,A,20260101T00Z,5\n", 3),
        (b"id,id,starts\n1,A,20260101T00Z\n", 1),
        (b'id,room,starts\n1,A,"20260101T00Z\n2,A,20260101T00Z\n', 2),
        (b"\xff\xfe", 1),
        ("id,room,starts\n1,A,20260101T00Z\n".encode("utf-16"), 1),
        (b"id,room,starts\n1,\xff,20260101T00Z\n", 2),
        (b"1,A,20260101T00Z\n", 1),  # no header row: a replacement by it would empty the relation
        (b"id,room,colour\n", 1),
    ],
)
def test_malformed_bodies(body: bytes, line: int | None) -> None:
    with pytest.raises(MalformedBody) as fault:
        relation_changes("text/csv", body)
    assert fault.value.line == line


def test_a_plus_sign() -> None:
    """Arrow reads none."""
    assert rows(relation_changes("text/csv", b"id,room,starts\n+7,A,20260101T00Z\n"))[0][2][0] == 7
    batch = relation_changes("text/csv", b"k,day,x\n+1.5,2026-01-01,+.5e+1\n", "values")
    assert rows(batch)[0][2] == (1.5, dt.date(2026, 1, 1), 5.0, None)


def test_a_long_number_that_is_none() -> None:
    """The pattern for numbers must not try every way to part the digits."""
    batch = relation_changes("text/csv", b"k,day,x\n1,2026-01-01,%bx\n2,2026-01-01,%b\n" % (b"1" * 60_000, b"0" * 60_000), "values")
    assert faults(batch) == [(0, "x")]


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_fields_that_no_comma_separates(mark: str) -> None:
    """As some spreadsheets export them."""
    body = mark.join(["id", "room", "starts"]) + "\n" + mark.join(["7", "A", "20260101T00Z"]) + "\n"
    with pytest.raises(MalformedBody, match="separate fields by commas, not by"):
        relation_changes("text/csv", body.encode())
    assert faults(relation_changes("text/csv", body.replace(mark, ".").encode())) == [(0, "id.room.starts")]


def test_many_columns() -> None:
    names = [b"c%d" % number for number in range(20_000)]
    batch = relation_changes("text/csv", b",".join([b"id", *names]) + b"\n" + b"1" + b"," * len(names) + b"\n")
    assert faults(batch) == [(0, "c0")]
    with pytest.raises(MalformedBody, match="'c19999' appears twice"):
        relation_changes("text/csv", b",".join([*names, names[-1]]) + b"\n")
    with pytest.raises(MalformedBody, match="header row is longer"):
        relation_changes("text/csv", b"," * 2_000_000)


def test_columns_that_the_relation_lacks_take_no_memory() -> None:
    """Arrow takes 9 KB for each that it makes. Measured as the largest memory of this process, which Linux is asked to measure anew."""
    names = b",".join([b"%d" % number for number in range(50_000)])
    relation_changes("text/csv", b"id,1\n1,1\n")
    Path("/proc/self/clear_refs").write_text("5")
    before = _largest()
    relation_changes("text/csv", b"id," + names + b"\n1," + names + b"\n")
    assert _largest() - before < 100 << 10


def _largest() -> int:
    """KiB."""
    return int(re.findall(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[0])


@pytest.mark.parametrize(
    "header, column",
    [
        (b'id,"room",starts', None),
        (b'"id",room,"starts"', None),
        (b'\xef\xbb\xbf"id",room,starts', None),
        (b"\n\r\nid,room,starts", None),
        (b'id,"room",starts,"a ""b"", c\nd"', 'a "b", c\nd'),
        (b'id,room,starts,a"b"', 'a"b"'),
        (b'id,room,starts,"a"b', "ab"),
        (b"id,room,starts,", ""),
        (b"id,room,starts, ", " "),
        (b"id,room,starts,\xc3\xa9", "\u00e9"),
        (b"id,room,starts,\xef\xbf\xbd", "\ufffd"),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_headers(header: bytes, column: str | None, end: bytes) -> None:
    batch = relation_changes("text/csv", header + end + b"7,A,20260101T00Z" + (b"" if column is None else b",x") + end)
    assert [error.column for error in batch.errors] == [] if column is None else [column]
    assert batch.sent == 1 and faults(batch) == ([] if column is None else [(0, column)])


def test_no_column_of_the_relation() -> None:
    batch = relation_changes("text/csv", b"one,two\n1,2\n3,4\n")
    assert batch.sent == 2 and faults(batch) == [(0, "one"), (1, "one")]

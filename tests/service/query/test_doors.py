"""One reader for all doors: a value is read alike as a row of each format, as a constant of SQL and JSON, as a window and a look-up, or it
is refused by all of them."""

from __future__ import annotations

import csv
import io
import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, cast

import orjson
import pyarrow as pa
import pytest

from livejoin.wire.decode import decode_changes, decode_relation_changes
from livejoin.wire.kinds import ByKind
from livejoin.wire.schema import RelationDefinition, parse_relation
from service.api.models.requests import Deletion
from service.errors import Problem
from service.instance import Instance
from service.query.conditions import Filter
from service.query.definition import read_where
from service.query.form_checks import checked
from service.reading.lookups import parsed
from service.reading.windows import window_of
from service.views.parse import View, parse_view
from structures.core.encoding import encode_floats
from tests.service.running import opened

ID, DAY, NOON = "3f2504e0-4f89-41d3-9a0c-0305e82c3301", 20_454, 1_767_268_800_000_000  # 2026-01-01, and 12:00
MANY = 20  # rows: converted as a column, if they can be
REFUSED = "refused"

# Texts, each with the physical value of the column's type.
GOOD: dict[str, list[tuple[str, Any]]] = {
    "int64": [("42", 42), ("+42", 42), ("-0", 0), ("007", 7), (" 42\t", 42), ("9223372036854775807", 2**63 - 1), ("20240101", 20_240_101)],
    "float64": [("1.5", 1.5), ("-1e3", -1000.0), (".5", 0.5), ("5.", 5.0), ("42", 42.0), (" 1.5 ", 1.5), ("Infinity", float("inf")),
                ("-inf", float("-inf")), ("20240101", 20_240_101.0)],
    "decimal(12,2)": [("12.50", 1250), ("-0.01", -1), ("1e2", 10_000), (" 12.5 ", 1250), ("+7", 700), ("20240101", 2_024_010_100)],
    "timestamp": [("2026-01-01 13:00:00 +01", NOON),
                  ("2026-01-01T12:00:00Z", NOON), ("20260101T120000Z", NOON), ("2026-01-01 13:00+01", NOON), ("20260101T12Z", NOON),
                  ("2026-01-01t12:00:00.000000000z", NOON), (" 2026-01-01T12:00:00Z ", NOON),
                  ("2026-01-01T12:00:00.5-00:30", NOON + 1_800_500_000), ("+012026-01-01T00:00:00Z", 317_336_745_600_000_000),
                  ("0000-01-01T00:00:00Z", -62_167_219_200_000_000)],
    "date": [("2026-01-01", DAY), ("20260101", DAY), (" 2026-01-01 ", DAY), ("0000-01-01", -719_528), ("-0044-03-15", -735_525)],
    "string": [("", ""), (" 42 ", " 42 "), ("٣", "٣"), ("infinity", "infinity"), ("20240101", "20240101")],
    "bool": [("true", True), ("FALSE", False), ("t", True), ("no", False), ("1", True), (" on ", True)],
    "uuid": [(ID, ID), (ID.upper(), ID), (ID.replace("-", ""), ID), (f"{{{ID}}}", ID), (f" {ID}", ID)],
    "time": [("12:30", 45_000_000_000), ("12:30:00.500000000", 45_000_500_000), (" 00:00:01 ", 1_000_000)],
    "bytes": [("\\x00ff", b"\x00\xff"), ("\\x", b"")],
}  # fmt: skip
# What a time without an offset is where it may be without one: in a constant, and in a column with a zone.
LOCAL = [("20240101", 1_704_067_200_000_000), ("2024-01-01", 1_704_067_200_000_000), ("2026-01-01T12:00", NOON), ("20260101 12", NOON)]
_OFTEN = ["x", "٣", "1_000", "0x1F", "null", "--1", "1 2", "\u00a042", "9" * 60]  # no value of any type but string
BAD: dict[str, list[str]] = {
    "int64": [*_OFTEN, " ", "1.0", "1e3", "9223372036854775808", "true", "infinity"],
    "float64": [*_OFTEN[:-1], " ", "1e400", "1.5.", "e5", "nano", "true"],
    "decimal(12,2)": [*_OFTEN, " ", "0.001", "1e10", "NaN", "Infinity", "1e99999"],
    "timestamp": [*_OFTEN, " ", "0", "1700000000000000", "-5", "2024", "202401", "2024001", "2024-01", "2024-W01-1", "+20240101",
                  "2024-0101", "202401-01", "20241301", "20240230", "20260101120000Z", "20260101Z", "2026-01-01T24:00Z",
                  "2026-01-01T12:60Z", "2026-01-01T12:00:60Z", "2026-01-01T12:00:00,5Z",
                  "2026-01-01T12:00:00.0000001Z", "2026-01-01T12:00:00+24:00",
                  "2026-01-01T12:00:00 01:00", "２026-01-01T12:00:00Z", "+999999-01-01T00:00:00Z",
                  "now", "12:00", "infinity"],
    "date": [*_OFTEN, " ", "0", "20454", "2024", "202401", "2024001", "+20240101", "20240230", "2024-1-1", "2024-01-01T00:00:00Z",
             "20240101Z", "+9999999-01-01", "today", "-infinity"],
    "string": [],
    "bool": [*_OFTEN, " ", "2", "truely", "01"],
    "uuid": [*_OFTEN, " ", ID[:-1], f"{{{ID}", "20240101"],
    "time": [*_OFTEN, " ", "0", "45000000000", "1230", "12", "24:00", "12:60", "12:30:00.0000001", "12:30Z"],
    "bytes": ["x", "٣", "1_000", "1 2", "\\x0", "\\xzz"],
}  # fmt: skip
# JSON's own values, each with the physical value or None.
JSON: list[tuple[str, Any, Any]] = [
    ("int64", 42, 42), ("int64", 1.0, None), ("int64", True, None), ("float64", 42, 42.0), ("float64", -0.5, -0.5), ("float64", True, None),
    ("timestamp", NOON, NOON), ("timestamp", -5, -5), ("timestamp", 2.0, None), ("timestamp", True, None), ("date", 0, None),
    ("date", 20_240_101, None), ("string", 1, None), ("bool", True, True), ("bool", 1, None), ("uuid", 1, None), ("time", 1, 1),
    ("time", -1, None), ("time", 1.0, None), ("bytes", 1, None), ("decimal(12,2)", 12.5, 1250), ("decimal(12,2)", 12, 1200),
    ("decimal(12,2)", 0.001, None), ("decimal(12,2)", True, None), *((kind, strange(), None) for kind in GOOD for strange in (dict, list)),
]  # fmt: skip

_BOUNDED = ("int64", "float64", "decimal(12,2)", "timestamp", "date")
_IN_TERMS = (*_BOUNDED, "string", "bool")
_PHYSICAL: ByKind[Any] = ByKind({"timestamp": pa.int64(), "date": pa.int32(), "time": pa.int64()}, lambda precision, scale: pa.int64())


def definition(kind: str, **of: Any) -> RelationDefinition:
    type_ = {"type": "decimal", "precision": 12, "scale": 2} if kind.startswith("decimal") else {"type": kind}
    columns = [{"name": "id", "type": "int64"}, {"name": "v", **type_, **of}]
    return parse_relation({"columns": columns, "key": ["id"]})


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    engine = opened(tmp_path_factory.mktemp("doors"))
    for kind in GOOD:
        engine.put_relation(_name(kind), definition(kind))
    yield engine
    engine.close()


def _name(kind: str) -> str:
    return kind.partition("(")[0] + "s"


def _same(values: list[Any]) -> Any:
    assert len(set(map(repr, values))) == 1, values
    return values[0]


def _of_column(kind: str, column: pa.Array) -> list[Any]:
    return list(column.view(_PHYSICAL[kind]).to_pylist() if kind in _PHYSICAL else column.to_pylist())


def _of_rows(kind: str, media: str, body: Callable[[int], bytes], zone: str | None = None) -> Any:
    """The value in one row, and in many; REFUSED: all are bad rows, and nothing else is."""
    declared, found = definition(kind, **({"zone": zone} if zone else {})), list[Any]()
    for rows in (1, MANY):
        batch = decode_relation_changes(media, body(rows), "r", lambda name: declared)
        assert batch.error_count in (0, rows)
        if batch.error_count:
            assert {error.column for error in batch.errors} == {"v"}
            found.append(REFUSED)
        else:
            found += _of_column(kind, batch.changes[0].rows.arrow["v"])
    return _same(found)


def csv_rows(kind: str, text: str, zone: str | None = None) -> Any:
    def body(rows: int) -> bytes:
        file = io.StringIO()
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["id", "v"], *([number, text] for number in range(rows))])
        return file.getvalue().encode()

    return _of_rows(kind, "text/csv", body, zone)


def json_rows(kind: str, value: Any, zone: str | None = None) -> Any:
    lines = _of_rows(kind, "application/jsonl", lambda rows: b"\n".join(orjson.dumps({"id": n, "v": value}) for n in range(rows)), zone)
    declared = definition(kind, **({"zone": zone} if zone else {}))
    body = orjson.dumps({"changes": [{"relation": "r", "op": "upsert", "row": {"id": 1, "v": value}}]})
    batch = decode_changes("application/json", body, lambda name: declared)
    return _same([lines, REFUSED if batch.errors else _of_column(kind, batch.changes[0].rows.arrow["v"])[0]])


def _parsed(kind: str, view: dict[str, Any]) -> View:
    return parse_view("v", view, {"r": definition(kind)})


def _constant(conditions: Any) -> Any:
    (one,) = conditions
    return cast(Filter, one).value


def sql_where(kind: str, text: str) -> Any:
    return _constant(_parsed(kind, {"sql": f"SELECT r.id AS id FROM r WHERE r.v <> {_quoted(text)}"}).query.filters)


def sql_in(kind: str, text: str) -> Any:
    return _constant(_parsed(kind, {"sql": f"SELECT r.id AS id FROM r WHERE r.v IN ({_quoted(text)})"}).query.filters)


def sql_typed(kind: str, text: str) -> Any:
    named = {"string": "text", "float64": "double precision", "int64": "bigint", "bytes": "bytea", "timestamp": "timestamptz"}
    type_ = named.get(kind, kind)
    return _constant(_parsed(kind, {"sql": f"SELECT r.id AS id FROM r WHERE r.v <> {_quoted(text)}::{type_}"}).query.filters)


def sql_term(kind: str, text: str) -> Any:
    term = _parsed(kind, {"sql": f"SELECT r.id AS id, r.v = {_quoted(text)} AS x FROM r"}).query.outputs[1].term
    assert term is not None
    return term.args[1].value


def sql_having(kind: str, text: str) -> Any:
    view = _parsed(kind, {"sql": f"SELECT r.id AS id, MIN(r.v) AS m FROM r GROUP BY r.id HAVING MIN(r.v) <> {_quoted(text)}"})
    assert view.query.groups is not None
    return _constant(view.query.groups.having)


def json_where(kind: str, value: Any) -> Any:
    where = {"column": "r.v", "op": "!=", "value": value}
    return _constant(_parsed(kind, {"from": {"r": "r"}, "where": [where], "select": ["r.id"]}).query.filters)


def json_having(kind: str, value: Any) -> Any:
    grouped = {"group": ["r.id"], "aggregate": [{"min": "r.v", "as": "m"}]}
    view = _parsed(kind, {"from": {"r": "r"}, **grouped, "having": [{"column": "m", "op": "!=", "value": value}]})
    assert view.query.groups is not None
    return _constant(view.query.groups.having)


def json_delete(kind: str, value: Any) -> Any:
    where = [{"column": "v", "op": "!=", "value": value}]
    checked(Deletion, {"where": where})
    return _constant(read_where("r", definition(kind), where, 1))


def window(kind: str, text: str) -> Any:
    return _same([window_of((text, text), kind, "overlaps")[end] for end in (0, 1)])


def look_up(engine: Instance, kind: str, text: str) -> Any:
    return _of_column(kind, parsed(engine.relations[_name(kind)], ["v"], {"v": text}, "where").column("v"))[0]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def read(limits: Callable[[str, Any], Any], kind: str, value: Any) -> Any:
    """What a door makes of a value; REFUSED: a problem of the request that says why."""
    try:
        found = limits(kind, value)
    except Problem as problem:
        assert problem.type in ("bad-query", "bad-definition", "bad-parameter") and "got " in problem.detail, problem.detail
        return REFUSED
    return found[0] if isinstance(found, tuple) else found


def doors_of_json(kind: str) -> list[Callable[[str, Any], Any]]:
    return [json_where, json_delete, *([json_having] if kind in _BOUNDED else [])]


def doors_of_texts(engine: Instance, kind: str) -> list[Callable[[str, Any], Any]]:
    """The doors for constants as text; for types whose values are texts in JSON, too, those of JSON."""
    is_typed = kind in GOOD.keys() - {"time", "uuid", "decimal(12,2)"}  # a cast to a decimal rounds
    doors: list[Callable[[str, Any], Any]] = [sql_where, sql_in, *([sql_typed] if is_typed else [])]
    doors += [sql_term] if kind in _IN_TERMS else []
    doors += [sql_having] if kind in _BOUNDED else []
    doors += doors_of_json(kind) if kind not in ("int64", "float64", "bool") else []
    return [*doors, lambda kind, text: look_up(engine, kind, text)]


def agree(engine: Instance, kind: str, text: str) -> Any:
    """Return what all doors for constants make of a text."""
    found = {index: read(limits, kind, text) for index, limits in enumerate(doors_of_texts(engine, kind))}
    assert len({repr(value) for value in found.values()}) == 1, (kind, text, found)
    value = found[0]
    if kind in _BOUNDED:
        encoded = int(encode_floats(pa.array([value]).to_numpy(), 0)[0]) if kind == "float64" and value != REFUSED else value
        assert "inf" in text.lower() or read(window, kind, text) == encoded
    return value


@pytest.mark.parametrize("kind", GOOD)
def test_texts(engine: Instance, kind: str) -> None:
    for text, value in GOOD[kind]:
        assert repr(agree(engine, kind, text)) == repr(value), text
        if text or kind == "string":
            assert repr(csv_rows(kind, text)) == repr(value), text
        if kind not in ("int64", "float64", "bool"):
            assert repr(json_rows(kind, text)) == repr(value), text
    for text in BAD[kind]:
        assert agree(engine, kind, text) == REFUSED, text
        if "infinity" not in text:  # which is null in rows
            assert csv_rows(kind, text) == json_rows(kind, text) == REFUSED, text


@pytest.mark.parametrize(("text", "micros"), LOCAL)
def test_times_without_an_offset(engine: Instance, text: str, micros: int) -> None:
    """In constants they are UTC; a row has one only in a column with a zone."""
    assert agree(engine, "timestamp", text) == micros
    for rows in (csv_rows, json_rows):
        assert rows("timestamp", text) == REFUSED
        assert rows("timestamp", text, "UTC") == micros
        assert rows("timestamp", text, "Etc/GMT-2") == micros - 7_200_000_000


def test_numbers_as_texts_in_json() -> None:
    """Numbers and truth values are no texts there, but for those that JSON lacks."""
    for kind, text in (("int64", "42"), ("float64", "1.5"), ("float64", "inf"), ("bool", "true"), ("bool", "1")):
        for limits in (json_rows, *doors_of_json(kind)):
            assert read(limits, kind, text) == REFUSED, (limits, text)
    for text in ("Infinity", "-Infinity"):
        assert {read(limits, "float64", text) for limits in (json_rows, *doors_of_json("float64"))} == {float(text)}


@pytest.mark.parametrize(("kind", "value", "physical"), JSON)
def test_values_of_json(kind: str, value: Any, physical: Any) -> None:
    for limits in (json_rows, *doors_of_json(kind)):
        assert repr(read(limits, kind, value)) == repr(REFUSED if physical is None else physical), limits


def _spellings() -> list[str]:
    """Texts near to timestamps and dates, most of which are none."""
    dates = ["2024-02-29", "20240229", "2023-02-29", "20230229", "240229", "2024-060", "2024060", "+2024-02-29", "-002024-02-29",
             "+20240229", "2024", "1709164800000000", "2024-0229", "٢٠٢٤0229", "02-29-2024", "2024/02/29"]  # fmt: skip
    between = ["", "T", " ", "t", "  ", "_", "-"]
    times = ["", "12", "1230", "12:30", "123015", "12:30:15", "12:3015", "24:00", "12:60", "1:30"]
    fractions = ["", ".5", ".000001", ".0000010", ".0000001", ",5", "."]
    offsets = ["", "Z", "z", "+01", "-0130", "+01:30", " +01", "+1", "+24:00", "UTC", "Z "]
    return list(map("".join, itertools.product(dates, between, times, fractions, offsets)))


@pytest.mark.parametrize("kind", ["timestamp", "date"])
def test_near_to_times(engine: Instance, kind: str) -> None:
    seed = int(os.environ.get("LIVEJOIN_SEED", "4"))
    rng = random.Random(seed)
    print(f"seed {seed}")
    spellings = _spellings()
    some = rng.sample(spellings, int(os.environ.get("LIVEJOIN_FUZZ", "10000")) // 200)
    good = 0
    for text in [*some, *(text for text in spellings if len(text) < 9)]:
        value = agree(engine, kind, text)
        assert csv_rows(kind, text, "UTC" if kind == "timestamp" else None) == value, text
        assert json_rows(kind, text, "UTC" if kind == "timestamp" else None) == value, text
        good += value != REFUSED
    assert good


def test_nan(engine: Instance) -> None:
    """A value, but no end of a window."""
    for text in ("NaN", "nan"):
        assert repr(csv_rows("float64", text)) == repr(look_up(engine, "float64", text)) == repr(sql_term("float64", text)) == "nan"
        with pytest.raises(Problem, match="NaN cannot be used in a comparison"):
            window("float64", text)


def test_microseconds_as_text() -> None:
    with pytest.raises(Problem, match='got the text "1700000000000000", expected a timestamp .* or in JSON an integer of microseconds'):
        sql_where("timestamp", "1700000000000000")

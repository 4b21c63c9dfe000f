from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.errors import BadDefinition
from livejoin.wire.schema import parse_relation
from tests.relations import bookings

BOOKINGS = bookings()


def test_defaults_are_part_of_the_normal_form() -> None:
    form = parse_relation(BOOKINGS).to_json()
    spelt_out = {**BOOKINGS, "intervals": {"stay": {"start": "starts", "end": "ends", "bounds": "[)"}}}
    assert form == parse_relation(spelt_out).to_json() == parse_relation(form).to_json()


def test_definitions_that_differ_have_other_normal_forms() -> None:
    forms = []
    for bounds in ("[)", "[]", "(]", "()"):
        forms.append(parse_relation({**BOOKINGS, "intervals": {"stay": {"start": "starts", "end": "ends", "bounds": bounds}}}).to_json())
    forms.append(parse_relation({**BOOKINGS, "intervals": {"stay": {"at": "starts"}}}).to_json())
    assert all(a != b for at, a in enumerate(forms) for b in forms[:at])


def test_a_point_is_a_closed_interval_from_a_column_to_itself() -> None:
    point = parse_relation({**BOOKINGS, "intervals": {"p": {"at": "starts"}}})
    interval = point.intervals["p"]
    assert (interval.start_column, interval.end_column, interval.bounds) == ("starts", "starts", "[]")
    assert (interval.start_open, interval.end_open) == (False, False)
    written_out = {**BOOKINGS, "intervals": {"p": {"start": "starts", "end": "starts", "bounds": "[]"}}}
    assert parse_relation(written_out).to_json() == point.to_json()


def test_bounds() -> None:
    interval = parse_relation({**BOOKINGS, "intervals": {"i": {"start": "starts", "end": "ends", "bounds": "(]"}}}).intervals["i"]
    assert (interval.start_open, interval.end_open) == (True, False)


def test_arrow_schema() -> None:
    schema = parse_relation(BOOKINGS).arrow_schema()
    assert schema.names == ["id", "room", "starts", "ends"]
    assert schema.types == [pa.int64(), pa.utf8(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")]


def test_names_of_real_tables() -> None:
    for name in ("startDate", "größe", "a b", "x" * 63, "1st"):
        assert parse_relation({"columns": [{"name": name, "type": "int64"}], "key": [name]}).column(name).name == name


def _with_column(**column: Any) -> dict[str, Any]:
    return {**BOOKINGS, "columns": [*BOOKINGS["columns"], column]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "JSON object"),
        ([], "JSON object"),
        ({}, "columns: is missing"),
        ({**BOOKINGS, "colums": []}, "colums: is unknown; did you mean columns?"),
        ({"colums": BOOKINGS["columns"], "key": ["id"]}, "colums: is unknown; did you mean columns?"),
        ({**BOOKINGS, "primary": ["id"]}, "primary: is unknown; there are columns, key, intervals, retain"),
        ({**BOOKINGS, "retain": {"column": "ends", "fro": "P90D"}}, "retain.fro: is unknown; did you mean for?"),
        (_with_column(name="n", type="int64", nulable=True), "columns.4.nulable: is unknown; did you mean nullable?"),
        (_with_column(name="n", type="integer"), 'not "integer"; did you mean int64?'),
        (_with_column(name="n", type="VARCHAR"), 'not "VARCHAR"; did you mean string?'),
        ({**BOOKINGS, "intervals": {"i": {"start": "starts", "ends": "ends"}}}, "intervals.i.ends: is unknown; did you mean end?"),
        ({**BOOKINGS, "intervals": {"i": {"start": "starts", "end": "endz"}}}, "'endz', which is not a column; did you mean ends?"),
        ({**BOOKINGS, "intervals": []}, "intervals: must be an object"),
        ({**BOOKINGS, "columns": [3]}, "columns.0: must be an object"),
        ({**BOOKINGS, "columns": []}, "columns: must not be empty"),
        ({**BOOKINGS, "key": []}, "key: must not be empty"),
        ({**BOOKINGS, "key": "id"}, 'key: must be a list, not "id"'),
        ({**BOOKINGS, "key": ["nope"]}, "nope"),
        ({**BOOKINGS, "key": ["id", "id"]}, "twice"),
        ({**BOOKINGS, "key": ["ends"]}, "nullable"),
        (_with_column(name="id", type="int64"), "twice"),
        (_with_column(name="_op", type="string"), "_op"),
        (_with_column(name="", type="string"), "1 to 63"),
        (_with_column(name="x" * 64, type="string"), "1 to 63"),
        (_with_column(name="a.b", type="string"), "'.'"),
        (_with_column(name='a"b', type="string"), "dots, double quotes"),
        (_with_column(name="a\nb", type="string"), "control"),
        (_with_column(name="a\x85b", type="string"), "control"),
        (_with_column(name="n", type="int32"), 'must be "int64", "float64", "decimal", "timestamp"'),
        (_with_column(name="n", type="int64", nullable="yes"), "nullable: must be true or false"),
        (_with_column(name=3, type="int64"), "name: must be a string"),
        ({**BOOKINGS, "intervals": {"Stay": {"at": "starts"}}}, "Stay"),
        ({**BOOKINGS, "intervals": {"room": {"at": "starts"}}}, "name of a column"),
        ({**BOOKINGS, "intervals": {"i": {"at": "nope"}}}, "nope"),
        ({**BOOKINGS, "intervals": {"i": {"at": "room"}}}, "endpoints"),
        ({**BOOKINGS, "intervals": {"i": {"at": "starts", "end": "ends"}}}, "cannot be combined"),
        ({**BOOKINGS, "intervals": {"i": {"at": "starts", "bounds": "[)"}}}, '"[]"'),
        ({**BOOKINGS, "intervals": {"i": {"start": "starts"}}}, "end"),
        ({**BOOKINGS, "intervals": {"i": {}}}, "start"),
        ({**BOOKINGS, "intervals": {"i": {"start": "starts", "end": "starts"}}}, "empty"),
        ({**BOOKINGS, "intervals": {"i": {"start": "id", "end": "ends"}}}, "the same type"),
        ({**BOOKINGS, "intervals": {"i": {"start": "starts", "end": "ends", "bounds": "[["}}}, "bounds"),
    ],
)
def test_bad_definitions_say_what_is_wrong(data: Any, says: str) -> None:
    with pytest.raises(BadDefinition) as fault:
        parse_relation(data)
    assert says in fault.value.detail
    assert "\n" not in fault.value.detail

from __future__ import annotations

import pyarrow as pa

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

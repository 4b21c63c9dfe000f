"""JSON definitions: the same queries as in SQL, and what is wrong with the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from livejoin.wire.schema import parse_relation
from service.api.models.requests import Deletion
from service.errors import Problem
from service.query.conditions import ColumnRef, Filter
from service.query.definition import read_where
from service.query.form_checks import checked
from service.query.model import RETAIN
from service.views.parse import View, parse_view
from tests.service.definitions import RELATIONS, refused, sql

BOTH = {"b": "bookings", "m": "maintenance"}
OVERLAP = {"overlaps": ["b.stay", "m.slot"]}


def view(**definition: Any) -> View:
    return parse_view("v", definition, RELATIONS)


def test_the_example_of_both_forms_is_one_view() -> None:
    as_json = {
        "from": BOTH,
        "join": [{"equal": ["b.room", "m.room"]}, OVERLAP],
        "where": [{"column": "b.guest", "op": "=", "value": "Ann"}],
        "select": [
            "b.id as booking",
            "m.id AS job",
            {"intersection": ["b.stay", "m.slot"], "as": "clash"},
            {"duration": ["b.stay"], "as": "d"},
        ],
    }
    text = (
        "SELECT b.id AS booking, m.id AS job, intersection(b.stay, m.slot) AS clash, duration(b.stay) AS d "
        "FROM bookings b JOIN maintenance m ON b.room = m.room AND overlaps(b.stay, m.slot) WHERE b.guest = 'Ann'"
    )
    one = parse_view("v", json.loads(json.dumps(as_json)), RELATIONS)
    assert one.query == sql(text).query and one.plan == sql(text).plan
    assert one.definition == as_json
    assert parse_view("v", one.definition, RELATIONS) == one
    assert one.query.retain == RETAIN == (1_000_000, 268_435_456)


def test_the_order_of_conditions_does_not_matter_that_of_columns_does() -> None:
    conditions = [{"equal": ["m.floor", "b.floor"]}, {"equal": ["b.room", "m.room"]}, {"overlaps": ["m.slot", "b.stay"]}]
    one = view(**{"from": BOTH, "join": conditions})
    assert one.query == view(**{"from": BOTH, "join": conditions[::-1] + [OVERLAP]}).query
    assert one.query != view(**{"from": dict(reversed(BOTH.items())), "join": conditions}).query
    assert len(one.query.outputs) == sum(len(RELATIONS[r].columns) for r in BOTH.values())
    assert one.query.outputs[0].name == "id"


def test_inequalities() -> None:
    two = view(**{"from": BOTH, "join": [{"less": ["b.checkin", "m.e"]}, {"less": ["m.s", "b.checkout"]}], "select": ["b.id", "m.id"]})
    assert two.query == sql("SELECT b.id, m.id FROM bookings b, maintenance m WHERE overlaps(b.stay, m.slot)").query
    own = {"from": {"a": "bookings", "b": "bookings"}, "join": [{"overlaps": ["a.stay", "b.stay"]}, {"less": ["b.id", "a.id"]}]}
    assert view(**own).query.less == ((ColumnRef("b", "id"), ColumnRef("a", "id")),)
    own["join"][1] = {"not_equal": ["b.id", "a.id"]}
    assert view(**own).query.not_equal == ((ColumnRef("a", "id"), ColumnRef("b", "id")),)


def test_names_with_spaces() -> None:
    query = view(
        **{"from": {"b": "bookings"}, "select": ["b.some col as x", "b.some col", "b.sold as is", "b.sold as is as sold", "b.id  As  y z"]}
    ).query
    assert [(o.name, o.column.column) for o in query.outputs] == [
        ("x", "some col"), ("some col", "some col"), ("sold as is", "sold as is"), ("sold", "sold as is"), ("y z", "id"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "op", "value", "read"),
    [
        ("checkin", "<", "1970-01-01T02:00:00+02:00", 0),
        ("checkin", ">=", 5, 5),
        ("day", "!=", "1970-01-02", 1),
        ("price", "=", 3, 3.0),
        ("price", "<=", "-Infinity", float("-inf")),
        ("vip", "=", True, True),
        ("floor", "in", [2, 1, None, 2], (1, 2)),
        ("guest", "is_null", None, None),
        ("guest", "not_null", None, None),
    ],
)
def test_where(column: str, op: str, value: Any, read: Any) -> None:
    query = view(**{"from": {"b": "bookings"}, "where": [{"column": f"b.{column}", "op": op, "value": value}]}).query
    assert query.filters == (Filter(ColumnRef("b", column), op, read),) and not query.never


@pytest.mark.parametrize(("op", "value"), [("=", None), ("!=", None), ("<", None), ("in", []), ("in", [None])])
def test_null_matches_nothing(op: str, value: Any) -> None:
    assert view(**{"from": {"b": "bookings"}, "where": [{"column": "b.floor", "op": op, "value": value}]}).query.never


ONE = {"from": {"b": "bookings"}}


def test_what_is_nested_too_deeply_is_refused() -> None:
    assert refused({**ONE, "join": json.loads("[" * 500 + "]" * 500)}).type == "bad-definition"
    deep: dict[str, Any] = {"column": "b.id", "op": "=", "value": 1}
    for _ in range(240):
        deep = {"or": [deep, {"column": "b.id", "op": "=", "value": 2}]}
    shallow = json.loads(json.dumps(deep).replace("b.id", "id"))
    assert "nested too deeply" in refused(ONE | {"where": [deep]}).detail
    checked(Deletion, {"where": [shallow]})
    with pytest.raises(Problem, match="nested too deeply"):
        read_where("bookings", RELATIONS["bookings"], [shallow], 1000)


def test_having_takes_patterns_in_both_forms() -> None:
    grouped = {"group": ["b.room as room"], "aggregate": [{"count": "*", "as": "n"}]}
    text = "SELECT b.room AS room, COUNT(*) AS n FROM bookings b GROUP BY b.room HAVING b.room NOT LIKE 'A\\_%' OR COUNT(*) > 2"
    like, many = {"column": "room", "op": "like", "value": "A\\_%"}, {"column": "n", "op": ">", "value": 2}
    assert view(**ONE, **grouped, having=[{"or": [{"not": like}, many]}]).query == sql(text).query
    assert "LIKE takes a string, but COUNT(*) is int64" in refused(text.replace("b.room NOT LIKE", "COUNT(*) LIKE")).detail


def test_an_outer_join_of_several_relations() -> None:
    both = {"from": {"m": "maintenance", "s": "shifts"}, "join": [{"equal": ["m.room", "s.room"]}, OVERLAP]}
    (part,) = view(**ONE, left=[both]).query.subqueries
    assert (part.kind, part.on, [alias for alias, _ in part.own]) == ("optional", "b", ["m", "s"])
    assert view(**ONE, left=[{"from": {"n": "maintenance"}, "join": [{"equal": ["n.room", "s.room"]}]}, both], where=[
        {"column": "s.nr", "op": ">", "value": 1}]).query.subqueries[0].on == "s"  # fmt: skip


def test_columns_with_blanks_and_as_in_their_names() -> None:
    columns = [{"name": name, "type": "int64"} for name in ("id", "s", "s ", "s  as x", "as")]
    relations = {"r": parse_relation({"columns": columns, "key": ["id"]})}
    written = {
        "a.s": ("s", "s"),
        "a.s as x": ("s", "x"),
        "a.s  as y": ("s ", "y"),
        "a.s   as y": ("s", "y"),
        "a.s  as x": ("s  as x", "s  as x"),
        "a.s  as x as  z": ("s  as x", "z"),
        "a.as as as": ("as", "as"),
    }
    for text, (column, name) in written.items():
        (output,) = parse_view("v", {"from": {"a": "r"}, "select": [text]}, relations).query.outputs
        assert output.column is not None and (output.column.column, output.name) == (column, name), text


def test_changes() -> None:
    assert view(**ONE, changes=False).query.retain is None
    assert view(**ONE, changes={"retain_rows": 7}).query.retain == (7, RETAIN[1])
    assert view(**ONE, changes={}).query == view(**ONE).query != view(**ONE, changes=False).query


def test_the_name_of_a_view() -> None:
    assert parse_view("v", ONE, RELATIONS).name == "v"
    with pytest.raises(Problem) as caught:
        parse_view("V", ONE, RELATIONS)
    assert caught.value.type == "bad-definition"

"""The document and the checks agree about definitions: both come from the models, but for what these say in JSON schema by hand."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from livejoin.wire.errors import BadDefinition
from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.query.forms import SqlView, check_form
from service.query.model import ALGORITHMS, GUARANTEES, MAX_ALIASES, RETAIN
from service.views.parse import parse_view
from tests.service.api.answered import SCHEMAS
from tests.service.definitions import RELATIONS

VIEW: dict[str, Any] = {
    "from": {"b": "bookings", "m": "maintenance"},
    "join": [
        {"equal": ["b.room", "m.room"]}, {"overlaps": ["b.stay", "m.slot"]}, {"at_most": ["b.floor", "m.floor"]},
        {"less": ["b.id", "m.id"]}, {"not_equal": ["b.id", "m.code"]}, {"cross": ["b", "m"]},
        {"within": ["b.checkin", "m.s"], "distance": "PT15M"},
    ],
    "where": [
        {"column": "b.guest", "op": "=", "value": "Ann"},
        {"or": [{"column": "b.price", "op": "is_null"}, {"not": {"column": "b.price", "op": ">", "value": 3}}]},
    ],
    "select": ["b.id as booking", {"intersection": ["b.stay", "m.slot"], "as": "clash"}, {"duration": ["b.stay"]}],
    "algorithm": "nested-loop",
    "guarantee": "best-effort",
    "changes": {"retain_rows": 7, "retain_bytes": 8},
}  # fmt: skip
SQL: dict[str, Any] = {"sql": "SELECT b.id FROM bookings b", "algorithm": "auto", "guarantee": "delay", "changes": False}
ONE: dict[str, Any] = {"from": {"b": "bookings"}, "where": [{"column": "b.vip", "op": "is_null"}], "select": ["b.id as booking"]}
UNION: dict[str, Any] = {"union": [ONE, {"except": [ONE, ONE | {"select": ["b.floor"]}]}], "algorithm": "lqdag", "changes": False}
EXCEPT: dict[str, Any] = {"except": [{"union": [ONE, ONE, ONE]}, ONE], "guarantee": "best-effort"}
GROUPS: dict[str, Any] = {"from": {"b": "bookings"}, "group": ["b.room"], "aggregate": [{"count": "*", "as": "n"}]}
WITH: dict[str, Any] = {
    "with": {"w": GROUPS, "v": {"intersect": [ONE, {"from": {"w": "w"}, "select": ["w.n"]}]}},
    "from": {"x": "w", "y": {"union_all": [GROUPS, {"with": {"u": ONE}, "from": {"u": "u"}, "select": ["u.booking"]}]}},
    "join": [{"cross": ["x", "y"]}],
}
RELATION: dict[str, Any] = {
    "columns": [{"name": "id", "type": "int64"}, {"name": "s", "type": "date", "nullable": True}, {"name": "e", "type": "date"}],
    "key": ["id"],
    "intervals": {"stay": {"start": "s", "end": "e", "bounds": "[]"}, "at": {"at": "s", "bounds": "[]"}},
}
VALUES = st.sampled_from(
    [True, False, 0, 1, -1, 1.5, 2**63, "", "x", "b.id", "b.stay", "_op", "a\nb", "x" * 64, "B", "[)", "sql", [], ["b.id"], {}, {"b": 1}]
)
FIELDS = st.sampled_from(["distance", "as", "value", "bounds", "at", "nope", "B", "sql", "where", "union", "except", "with", "intersect"])


@cache
def validator(name: str) -> Any:
    return jsonschema_rs.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}})


def fits(name: str, value: Any) -> bool:
    return bool(validator(name).is_valid(value))


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"column": "b.id", "op": "=", "value": 1}
    for _ in range(depth):
        inner = {"not": inner}
    return inner


@st.composite
def changed(draw: st.DrawFn, *originals: dict[str, Any]) -> dict[str, Any]:
    """One of the originals with up to three changes: a value replaced, a field or an entry left out, one added."""
    whole = copy.deepcopy(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 3))):
        part: Any = whole
        while True:
            keys = list(part) if isinstance(part, dict) else range(len(part))
            key = draw(st.sampled_from(keys)) if keys else None
            if key is None or not isinstance(part[key], dict | list) or draw(st.integers(0, 3)) == 0:
                break
            part = part[key]
        what = draw(st.sampled_from(["replace", "remove", "add"]))
        if what == "add" or key is None:
            if isinstance(part, dict):
                part[draw(FIELDS)] = copy.deepcopy(draw(VALUES))
            else:
                part.append(copy.deepcopy(draw(VALUES)))
        elif what == "replace":
            part[key] = copy.deepcopy(draw(VALUES))
        else:
            del part[key]
    return whole


@settings(max_examples=400)
@given(changed(VIEW, SQL, UNION, EXCEPT, WITH))
@example(VIEW | {"from": {"B": "bookings"}})
@example(VIEW | {"from": {f"a{index}": "bookings" for index in range(9)}})
@example(VIEW | {"changes": {"retain_rows": 0}})
@example(VIEW | {"changes": {"retain_bytes": 2**63}})
@example(VIEW | {"select": []})
@example(SQL | {"select": []})
@example(UNION | {"from": {"b": "bookings"}})
@example({"union": [ONE]})
@example({"except": [ONE, ONE, ONE]})
@example({"union": [SQL, ONE]})
def test_views(definition: dict[str, Any]) -> None:
    """What the schema takes has a form, and what it does not take is refused."""
    if fits("ViewDefinition", definition):
        check_form(definition)
    else:
        with pytest.raises(Problem):
            parse_view("v", definition, RELATIONS)


@settings(max_examples=400)
@given(changed(RELATION))
def test_relations(definition: dict[str, Any]) -> None:
    try:
        parse_relation(definition)
    except BadDefinition:
        return
    assert fits("RelationDefinition", definition)


@pytest.mark.parametrize(
    "change",
    [
        *({"columns": [{"name": name, "type": "int64"}]} for name in ("", "_op", "a.b", 'a"b', "a\nb", "a\x85b", "x" * 64)),
        {"columns": [{"name": "id", "type": "int32"}]},
        {"columns": []},
        {"key": []},
        *({"intervals": {"stay": interval}} for interval in ({}, {"start": "s"}, {"at": "s", "end": "e"}, {"at": "s", "bounds": "[)"})),
        {"intervals": {"Stay": {"at": "s"}}},
    ],
    ids=str,
)
def test_the_document_refuses_what_needs_no_names(change: dict[str, Any]) -> None:
    assert not fits("RelationDefinition", RELATION | change)
    with pytest.raises(BadDefinition):
        parse_relation(RELATION | change)


def test_the_examples_fit_and_are_taken() -> None:
    for definition in (VIEW, SQL, UNION, EXCEPT, WITH):
        assert fits("ViewDefinition", definition)
        check_form(definition)
    assert fits("RelationDefinition", RELATION) and parse_relation(RELATION)


def test_defaults() -> None:
    form = check_form({"sql": "SELECT"})
    assert isinstance(form, SqlView) and (form.algorithm, form.guarantee) == ("auto", "best-effort")
    assert form.changes and (form.changes.retain_rows, form.changes.retain_bytes) == RETAIN


def test_the_document_says_choices_and_bounds() -> None:
    view = SCHEMAS["JsonView"]["properties"]
    assert view["algorithm"]["enum"] == ["auto", *ALGORITHMS] and view["guarantee"]["enum"] == list(GUARANTEES)
    assert view["from"]["maxProperties"] == MAX_ALIASES
    assert SCHEMAS["Column"]["properties"]["name"]["maxLength"] == 63


def test_patterns_and_nesting_are_limited() -> None:
    long = {"column": "b.room", "op": "like", "value": "%a" * 501}
    for where, says in ((long, "has 1002 characters; at most 1000 are allowed"), (nested(300), "nested too deeply")):
        with pytest.raises(Problem) as caught:
            parse_view("v", {"from": {"b": "bookings"}, "where": [where]}, RELATIONS)
        assert caught.value.type == "bad-definition" and says in str(caught.value.detail)

"""Query parameters, and those of a batch together with the fields of its body."""

from __future__ import annotations

from typing import Any

import pytest

from livejoin.wire.batch import Batch
from service.access.access_token import EVERYONE
from service.api import changes, followers, rows
from service.api.http import parameters
from service.errors import Problem


def refused(query: bytes, known: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        parameters.read(query, known)
    assert caught.value.type == "bad-parameter"
    return caught.value


@pytest.mark.parametrize(
    ("query", "values"),
    [
        (b"", {}),
        (b"limit=0", {"limit": 0}),
        (b"limit=99999999999", {"limit": 99999999999}),
        (b"limit=99999999999999999999999", {"limit": 2**63 - 1}),  # no upper bound: all
        (b"limit=" + b"9" * 5000, {"limit": 2**63 - 1}),
        (b"overlaps=1,2", {"overlaps": "1,2"}),
        (b"overlaps.stay=,2", {"overlaps.*": {"overlaps.stay": ",2"}}),
        (b"where.b.room=A%20%26+B", {"where.*": {"where.b.room": "A & B"}}),
        (b"where.b.room=", {"where.*": {"where.b.room": ""}}),
    ],
)
def test_rows(query: bytes, values: dict[str, Any]) -> None:
    assert parameters.read(query, rows.ViewRowsParameters).model_dump(exclude_unset=True, by_alias=True) == values


@pytest.mark.parametrize(
    ("query", "name"),
    [
        (b"limt=1", "limt"),
        (b"limit=-1", "limit"),
        (b"limit=1.5", "limit"),
        (b"limit=", "limit"),
        (b"limit=%D9%A3", "limit"),
        (b"limit=-99999999999999999999999999999999999999999", "limit"),
        (b"limit=1&limit=1", "limit"),
        (b"overlaps=1", "overlaps"),
        (b"overlaps=1,2,3", "overlaps"),
        (b"version=x", "version"),
        (b"version=99999999999999999999999", "version"),
    ],
)
def test_bad_rows_parameters_are_named(query: bytes, name: str) -> None:
    problem = refused(query, rows.ViewRowsParameters)
    assert problem.extensions["parameter"] == name
    assert problem.detail.startswith(f"{name}: ")


def test_text_that_is_not_utf8() -> None:
    assert "UTF-8" in refused(b"cursor=%ff", rows.ViewRowsParameters).detail


def test_progress_records_have_no_upper_bound_either() -> None:
    assert parameters.read(b"limit=99999999999999999999999", followers.FollowParameters).limit == 2**63 - 1


@pytest.mark.parametrize("query", [b"limit=0", b"wait=-1", b"wait=nan", b"wait=inf", b"snapshot=yes", b"snapshot=True"])
def test_bad_parameters_of_followers(query: bytes) -> None:
    refused(query, followers.FollowParameters)


def asked(query: bytes) -> dict[str, Any]:
    return rows.filters(parameters.read(query, rows.ViewRowsParameters))


def test_where_needs_alias_and_column() -> None:
    for name in ("where.b", "where.b.", "where..c", "where.b.c.d"):
        with pytest.raises(Problem, match=r"where\.<alias>\.<column>"):
            asked(name.encode() + b"=1")
    assert asked(b"where.b.x=1&where.b.y=2")["point"] == ("b", {"x": "1", "y": "2"})
    with pytest.raises(Problem, match="one alias"):
        asked(b"where.b.x=1&where.m.y=2")


def test_windows() -> None:
    assert asked(b"")["window"] is None
    assert asked(b"overlaps=1,&overlaps.stay=1,2&overlaps.b.stay=,")["window"] == {
        "": ("1", None), "stay": ("1", "2"), "b.stay": (None, None)
    }  # fmt: skip


def batch(**fields: Any) -> Batch:
    return Batch(changes=[], sent=0, ignored=0, errors=[], error_count=0, **fields)


def test_query_and_body_come_together() -> None:
    made = batch(source="pms")
    given = parameters.read(b"epoch=-9223372036854775808&run=r&reset=true&on_error=skip", changes.BatchParameters).given
    changes.settle(made, given, EVERYONE)
    assert (made.source, made.epoch, made.run, made.reset, made.on_error) == ("pms", -(2**63), "r", True, "skip")
    same = batch(source="pms", epoch=3)
    changes.settle(same, {"source": "pms", "epoch": 3}, EVERYONE)
    assert (same.source, same.epoch) == ("pms", 3)


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        (b"epoch=1.0&source=a", {}),
        (b"epoch=9223372036854775808&source=a", {}),
        (b"source=a&epoch=1&reset=1", {}),
        (b"on_error=ignore", {}),
        (b"source=" + b"a" * 201 + b"&epoch=1", {}),
        (b"source=a&epoch=1", {"source": "b"}),
        (b"epoch=1", {"source": "a", "epoch": 2}),
        (b"on_error=reject", {"on_error": "skip"}),
        (b"reset=false&run=r&source=a&epoch=1", {"reset": True}),
    ],
)
def test_refused_together(query: bytes, fields: dict[str, Any]) -> None:
    with pytest.raises(Problem) as caught:
        changes.settle(batch(**fields), parameters.read(query, changes.BatchParameters).given, EVERYONE)
    assert caught.value.type == "bad-parameter"


def test_longest_texts_pass() -> None:
    made = batch()
    changes.settle(made, parameters.read(b"epoch=0&source=" + b"%C3%A4" * 200, changes.BatchParameters).given, EVERYONE)
    assert made.source == "ä" * 200


def test_relation_in_the_path() -> None:
    assert changes.relation_of("/v1/relations/bookings/changes") == "bookings"
    for path in ("/v1/relations//changes", "/v1/relations/a/b/changes", "/v1/relations/changes", "/v1/views/a/changes"):
        assert changes.relation_of(path) is None

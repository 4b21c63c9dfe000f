"""Every problem of the service has its class."""

from __future__ import annotations

import pickle
import re

import orjson
import pytest

import livejoin
from livejoin.problems import CLASSES, problem_of_answer
from service.errors import CATALOGUE, Problem
from tests.client.hotel import Hotel, row
from tests.datasets import ROOT


def test_every_problem_of_the_service_has_a_class() -> None:
    text = (ROOT / "docs" / "reference" / "rest.md").read_text()
    table = text[text.index("### Errors") : text.index("### Operations")]
    planned = {name for name in re.findall(r"`([a-z-]+)`", table) if "-" in name or name in ("internal", "unauthorized", "forbidden")}
    planned -= {"until"}
    assert len(planned) > 30 and planned | CATALOGUE.keys() <= CLASSES.keys()
    for name, kind in CLASSES.items():
        assert getattr(livejoin, kind.__name__) is kind
        assert name in (kind.__doc__ or "")


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_problem_as_the_service_renders_it(name: str) -> None:
    emitted = Problem(name, "so it is", errors=[{"index": 3, "column": "id", "reason": "null"}])
    found = problem_of_answer(emitted.status, "", orjson.dumps(emitted.to_json()), emitted.headers.get("Retry-After"), "http://h:1")
    assert type(found) is CLASSES[name] and isinstance(found, livejoin.Problem)
    assert (found.type, found.status, found.title, found.detail) == (name, emitted.status, emitted.title, "so it is")
    assert found.page == f"http://h:1/problems/{name}" and found.errors[0]["index"] == 3
    assert str(found) == f"{name}: so it is (first: row 3, column id: null)"
    assert found.retry_after == emitted.kind.retry_after
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found) and type(again) is type(found)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b""])
def test_what_is_no_problem_document(body: bytes) -> None:
    found = problem_of_answer(502, "Bad Gateway", body, None, "http://h:1")
    assert type(found) is livejoin.Problem and str(found) == "the service answered 502 Bad Gateway"


def test_problems_of_a_service(hotel: Hotel) -> None:
    lj = hotel.lj
    with pytest.raises(livejoin.NotFound) as caught:
        lj.view("nowhere").count()
    assert caught.value.page == f"{lj.url}/problems/not-found"
    with pytest.raises(livejoin.DefinitionDiffers):
        hotel.bookings.create({"id": "int64"}, "id")
    with pytest.raises(livejoin.BadDefinition):
        lj.relation("other").create({"id": "int63"}, "id")
    with pytest.raises(livejoin.RelationInUse):
        hotel.jobs.drop()
    with pytest.raises(livejoin.BadQuery):
        lj.view("other", "SELECT FROM")
    with pytest.raises(livejoin.UnknownRelation), lj.batch() as batch:
        batch.upsert("nothing", [row(1)])
    with pytest.raises(livejoin.UnsupportedQuery, match="LIMIT"):
        lj.explain(f"SELECT * FROM {hotel.bookings.name} b LIMIT 3")
    with pytest.raises(livejoin.BadParameter):
        hotel.clashes.count(where={"b.nothing": 1})
    with pytest.raises(livejoin.BadToken):
        next(hotel.clashes.follow(since="nonsense"))

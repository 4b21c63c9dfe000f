"""docs/reference/rest.md, *Relations*: line by line, as a client meets it."""
from __future__ import annotations

import copy
from typing import Any

import httpx
import pytest

from tests.end_to_end import talk
from tests.end_to_end.bookings import BOOKINGS, EVERYTHING, Case


def test_created_same_different(case: Case) -> None:
    url = f"/v1/relations/{case.b}"
    made = case.client.put(url, json=BOOKINGS)
    assert made.status_code == 201, made.text
    assert case.client.put(url, json=BOOKINGS).status_code == 200
    spelt_out = copy.deepcopy(BOOKINGS)
    spelt_out["columns"][0]["nullable"] = False
    spelt_out["intervals"]["stay"]["bounds"] = "[)"
    assert case.client.put(url, json=spelt_out).status_code == 200, "compared after parsing"
    other = copy.deepcopy(BOOKINGS)
    other["intervals"]["stay"]["bounds"] = "[]"
    talk.problem(case.client.put(url, json=other), 409, "definition-differs")
    assert talk.ok(case.client.get(url))["rows"] == 0


def test_get_list_delete(case: Case) -> None:
    case.define()
    one = talk.ok(case.client.get(f"/v1/relations/{case.b}"))
    assert one["rows"] == 0 and one["name"] == case.b
    assert [column["name"] for column in one["columns"]] == ["id", "room", "starts", "ends", "status"]
    assert one["key"] == ["id"] and one["intervals"]["stay"]["start"] == "starts"
    listed = talk.ok(case.client.get("/v1/relations"))
    assert {case.b, case.m} <= {relation["name"] for relation in listed["relations"]}
    deleted = case.client.delete(f"/v1/relations/{case.b}")
    assert deleted.status_code == 204 and deleted.content == b""
    for answer in (case.client.get(f"/v1/relations/{case.b}"), case.client.delete(f"/v1/relations/{case.b}")):
        talk.problem(answer, 404, "not-found")
    assert case.client.put(f"/v1/relations/{case.b}", json=EVERYTHING).status_code == 201, "the name is free again"


def test_a_used_relation_stays(live: Case) -> None:
    refused = talk.problem(live.client.delete(f"/v1/relations/{live.b}"), 409, "relation-in-use")
    assert live.v in str(refused)
    talk.drop(live.client, [live.v], [live.b, live.m])


def test_a_dropped_relation_comes_back_empty(live: Case) -> None:
    talk.drop(live.client, [live.v], [live.b])
    talk.define(live.client, live.b, BOOKINGS)
    assert talk.ok(live.client.get(f"/v1/relations/{live.b}"))["rows"] == 0
    talk.view(live.client, live.v, live.sql)
    assert live.rows() == []


def bad(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BOOKINGS), **changes}


INT = {"name": "id", "type": "int64"}
BAD_DEFINITIONS: list[Any] = [bad(key=[]), {"columns": [{"name": "id", "type": "money"}], "key": ["id"]}, bad(nonsense=1), []]


@pytest.mark.parametrize("definition", BAD_DEFINITIONS)
def test_bad_definitions(case: Case, definition: Any) -> None:
    talk.problem(case.client.put(f"/v1/relations/{case.b}", json=definition), 422, "bad-definition")
    talk.problem(case.client.get(f"/v1/relations/{case.b}"), 404, "not-found")


def test_names_that_are_allowed(case: Case) -> None:
    columns = [INT, {"name": "startDate", "type": "date"}, {"name": "ünï cödé ☃", "type": "string"}, {"name": "c" * 63, "type": "bool"}]
    made = case.client.put(f"/v1/relations/{case.b}", json={"columns": columns, "key": ["id"]})
    assert made.status_code == 201, made.text
    row = {"id": 1, "startDate": "2026-01-01", "ünï cödé ☃": "x", "c" * 63: True}
    talk.ok(talk.send(case.client, [{"relation": case.b, "op": "insert", "row": row}]))
    assert talk.ok(case.client.get(f"/v1/relations/{case.b}/rows", headers={"Accept": talk.JSON}))["rows"] == [row]


@pytest.mark.parametrize("name", ["Upper", "1st", "a" * 64, "with-dash", "a.b", "ü"])
@pytest.mark.parametrize("kind", ["relations", "views"])
def test_names_that_are_not(client: httpx.Client, kind: str, name: str) -> None:
    talk.problem(client.put(f"/v1/{kind}/{name}", json=BOOKINGS), 422, "bad-definition")


def test_points_and_nullable_points(case: Case) -> None:
    definition = {
        "columns": [INT, {"name": "measured_at", "type": "timestamp"}], "key": ["id"], "intervals": {"moment": {"at": "measured_at"}},
    }
    assert case.client.put(f"/v1/relations/{case.b}", json=definition).status_code == 201
    assert case.client.put(f"/v1/relations/{case.b}", json=definition).status_code == 200


def test_malformed_and_unsupported_bodies(case: Case) -> None:
    url = f"/v1/relations/{case.b}"
    json = {"Content-Type": talk.JSON}
    talk.problem(case.client.put(url, content=b"{", headers=json), 400, "malformed-body")
    assert talk.problem(case.client.put(url, content=b'{"columns":\n[}', headers=json), 400, "malformed-body")["line"] == 2
    for twice in (b'{"from": {"a": "r", "a": "s"}}', b'{"where": [{"op": "=", "op": "<"}], "from": 1}'):
        problem = talk.problem(case.client.put(f"/v1/views/{case.v}", content=twice, headers=json), 422, "bad-definition")
        assert "twice" in problem["detail"]
    talk.problem(case.client.post("/v1/explain", content=b"{}"), 415, "unsupported-media-type")
    talk.problem(case.client.get("/v1/views?x=1"), 400, "bad-parameter")
    talk.problem(case.client.put(url, content=b"a,b", headers={"Content-Type": talk.CSV}), 415, "unsupported-media-type")


def test_rows_of_a_relation(live: Case) -> None:
    url = f"/v1/relations/{live.b}/rows"
    everything = live.client.get(url)
    assert everything.headers["content-type"].split(";")[0] == talk.JSONL
    assert int(everything.headers["livejoin-version"]) == live.version() and everything.headers["livejoin-empty"] == "false"
    first = talk.ok(live.client.get(url, params={"limit": 3}, headers={"Accept": talk.JSON}))
    rest = talk.ok(live.client.get(url, params={"limit": 3, "cursor": first["next"]}, headers={"Accept": talk.JSON}))
    assert rest["next"] is None and first["version"] == rest["version"]
    assert sorted(row["id"] for row in first["rows"] + rest["rows"]) == [1, 2, 3, 4]
    talk.problem(live.client.get(f"/v1/relations/{live.m}/rows", params={"cursor": first["next"]}), 400, "bad-cursor")
    talk.problem(live.client.get("/v1/relations/nothing_here/rows"), 404, "not-found")
    for media in (talk.CSV, talk.ARROW, talk.SSE):
        answer = live.client.get(url, headers={"Accept": media})
        assert sorted(talk.decode(answer.content, media, ["id"])) in ([(1,), (2,), (3,), (4,)], [("1",), ("2",), ("3",), ("4",)])

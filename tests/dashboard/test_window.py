"""`GET /v1/views/{name}/window`, against all rows of the view."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.demo.history import history
from tests.dashboard.data import DELEGATION, PRESIDENTS
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.service.api.answered import require_answered


@pytest.fixture(scope="module")
def client(service: ServerProcess) -> httpx.Client:
    return service.client()


def window(client: httpx.Client, view: str, **query: Any) -> dict[str, Any]:
    params = {name.replace("__", "."): value for name, value in query.items()}
    found: dict[str, Any] = talk.ok(client.get(f"/v1/views/{view}/window", params=params))
    return found


def terms(relation: str) -> dict[int, dict[str, Any]]:
    """The rows of a relation after the whole history."""
    found: dict[int, dict[str, Any]] = {}
    for change in history():
        if change.relation == relation and change.after is not None:
            found[change.after["id"]] = change.after
    return found


def row_of(one: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(one["row"].values())


def test_rows_have_their_identities_and_the_ends_of_their_parts(client: httpx.Client) -> None:
    presidents, vices = terms("president_terms"), terms("vice_president_terms")
    found = window(client, PRESIDENTS, limit=1000)
    (lane,) = found["lanes"]
    assert lane["key"] is None and not lane["more"] and len(lane["rows"]) == 62
    for one in lane["rows"]:
        assert one["key"] == {"p": {"id": one["row"]["p_id"]}, "v": {"id": one["row"]["v_id"]}}
        for alias, rows in (("p", presidents), ("v", vices)):
            row = rows[one["key"][alias]["id"]]
            assert one["ends"][alias] == {"term": {"start": row["start_date"], "end": row["end_date"]}}


def test_a_window_has_the_rows_that_its_bounds_say(client: httpx.Client) -> None:
    query = {"overlaps": "1861-01-01,1869-12-31"}
    plain = talk.ok(client.get(f"/v1/views/{PRESIDENTS}/rows", params=query, headers={"Accept": talk.JSON}))
    found = window(client, PRESIDENTS, **query)
    assert found["version"] == plain["version"]
    assert sorted(map(row_of, found["lanes"][0]["rows"])) == sorted(tuple(row.values()) for row in plain["rows"])
    assert 0 < len(found["lanes"][0]["rows"]) < 10


def test_a_limit_is_kept_and_told(client: httpx.Client) -> None:
    lane = window(client, PRESIDENTS, limit=5)["lanes"][0]
    assert len(lane["rows"]) == 5 and lane["more"]
    assert not window(client, PRESIDENTS, limit=62)["lanes"][0]["more"]


def test_keys_give_lanes_page_by_page(client: httpx.Client) -> None:
    states = sorted({row["state"] for row in terms("senator_terms").values()})
    first = window(client, DELEGATION, keys=20, limit=10_000)
    assert first["keys"] == {"columns": ["state"], "from": 0, "of": len(states), "whole": True}
    rest = window(client, DELEGATION, keys=200, limit=10_000, **{"from": 20})
    lanes = first["lanes"] + rest["lanes"]
    assert [lane["key"]["state"] for lane in lanes] == states
    assert all(one["row"]["state"] == lane["key"]["state"] for lane in lanes for one in lane["rows"])
    few = [lane for lane in lanes if not lane["more"]]
    for lane in few[:5]:
        query = {"where.s.state": lane["key"]["state"]}
        plain = talk.ok(client.get(f"/v1/views/{DELEGATION}/rows", params=query, headers={"Accept": talk.JSON}))
        assert sorted(map(row_of, lane["rows"])) == sorted(tuple(row.values()) for row in plain["rows"])
    shared = window(client, DELEGATION, keys=20, limit=100)["lanes"]
    assert max(len(lane["rows"]) for lane in shared) == 5, "each lane has its share of the limit"


def test_a_key_and_a_window_together(client: httpx.Client) -> None:
    (lane,) = window(client, DELEGATION, where__s__state="WA", overlaps="2001-01-01,2002-01-01")["lanes"]
    assert {one["row"]["state"] for one in lane["rows"]} <= {"WA"}
    for one in lane["rows"]:
        for end in (one["ends"]["s"]["term"], one["ends"]["r"]["term"]):
            assert end["start"] <= "2002-01-01" and (end["end"] is None or end["end"] >= "2001-01-01")


def test_the_extent_holds_every_end_of_a_small_view(client: httpx.Client) -> None:
    (extent,) = window(client, PRESIDENTS, limit=1, extent="true")["extent"]
    rows = [*terms("president_terms").values(), *terms("vice_president_terms").values()]
    ends = [row[name] for row in rows for name in ("start_date", "end_date")]
    ends = sorted(end for end in ends if end is not None)
    assert (extent["start"], extent["end"]) == (ends[0], ends[-1])
    assert extent["start"] <= extent["most"]["start"] < extent["most"]["end"] <= extent["end"]


def test_boxes_have_both_of_their_intervals(client: httpx.Client) -> None:
    found = window(client, "flooded", extent="true", overlaps__across="0,10", overlaps__up="0,10")
    assert len(found["extent"]) == 2
    rows = found["lanes"][0]["rows"]
    assert rows and all(set(one["ends"]["f"]) == {"across", "up"} for one in rows)
    assert all(end["start"] <= 10 and end["end"] >= 0 for one in rows for ends in one["ends"].values() for end in ends.values())


SPECIAL = {
    "nobody": "SELECT a.id AS i FROM stays a JOIN stays b ON overlaps(a.stay, b.stay) WHERE a.guest = 'nobody'",
    "alone": "SELECT a.id AS a, b.id AS b FROM stays a LEFT JOIN stays b ON a.room = b.guest AND overlaps(a.stay, b.stay)",
    "free": "SELECT a.id, gaps(a.stay, b.stay) AS free FROM stays a LEFT JOIN stays b ON a.room = b.guest AND overlaps(a.stay, b.stay)",
    "pairs": "SELECT DISTINCT a.id AS a, b.id AS b FROM stays a JOIN stays b ON a.room = b.room AND overlaps(a.stay, b.stay)",
}


def test_answers_have_what_the_schema_lists(client: httpx.Client) -> None:
    """Seen: it listed nothing. An empty view, rows without a part, stretches and DISTINCT have keys and ends of their own kinds."""
    for name, text in SPECIAL.items():
        talk.view(client, name, {"sql": text})
    answers = [window(client, name, extent="true") for name in (PRESIDENTS, "flooded", *SPECIAL)]
    require_answered("Window", *answers, window(client, DELEGATION, keys=2))
    talk.drop(client, SPECIAL)


def test_an_empty_view_has_a_lane_without_rows(client: httpx.Client) -> None:
    talk.view(client, "nobody", {"sql": "SELECT a.id AS i FROM stays a JOIN stays b ON overlaps(a.stay, b.stay) WHERE a.guest = 'nobody'"})
    found = window(client, "nobody", extent="true")
    assert found["lanes"] == [{"key": None, "more": False, "rows": []}]
    talk.drop(client, ["nobody"])


@pytest.mark.parametrize(
    ("view", "query", "said"),
    [
        ("triangles", {}, "does not join on intervals, so it has no windows"),
        (PRESIDENTS, {"keys": 5}, "joins by no equality"),
        (DELEGATION, {"keys": 5, "where.s.state": "WA"}, "cannot be combined with a look-up"),
        (PRESIDENTS, {"keys": 500}, "must be at most 200"),
        (PRESIDENTS, {"limit": 0}, "must be at least 1"),
        (PRESIDENTS, {"overlaps": "1900-01-01"}, "must be lo,hi"),
        (PRESIDENTS, {"overlaps": "x,y"}, "overlaps"),
        (PRESIDENTS, {"cursor": "x"}, "unknown parameter"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(client: httpx.Client, view: str, query: dict[str, Any], said: str) -> None:
    problem = talk.problem(client.get(f"/v1/views/{view}/window", params=query), 400, "bad-parameter")
    assert said in problem["detail"]


def test_a_view_that_is_not_there(client: httpx.Client) -> None:
    talk.problem(client.get("/v1/views/nothing/window"), 404, "not-found")


def test_the_shape_of_a_view_says_what_a_picture_needs(client: httpx.Client) -> None:
    shape = talk.ok(client.get(f"/v1/views/{DELEGATION}"))["shape"]
    assert [(one["name"], one["relation"], one["key"], one["join_key"]) for one in shape["aliases"]] == [
        ("s", "senator_terms", ["id"], ["state"]),
        ("r", "rep_terms", ["id"], ["state"]),
    ]
    assert shape["dimensions"] == [[{"alias": alias, "interval": "term", "type": "date", "bounds": "[)"} for alias in ("s", "r")]]
    assert shape["key"] == {"alias": "s", "columns": ["state"]}
    columns = {column["name"]: (column["kind"], column["alias"]) for column in shape["columns"]}
    assert columns["senator"] == ("column", "s") and columns["together_start"] == ("intersection_start", None)
    assert talk.ok(client.get("/v1/views/triangles"))["shape"]["dimensions"] == []
    assert len(talk.ok(client.get("/v1/views/flooded"))["shape"]["dimensions"]) == 2

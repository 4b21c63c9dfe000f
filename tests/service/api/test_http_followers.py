"""Following a view over HTTP, against a real server."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import httpx
import pytest

from tests.end_to_end import talk
from tests.server_process import ServerProcess

NUMBERS = itertools.count(1)
DEFINITION: dict[str, Any] = {
    "columns": [{"name": "id", "type": "int64"}, {"name": "lo", "type": "int64"}, {"name": "hi", "type": "int64"}],
    "key": ["id"],
    "intervals": {"span": {"start": "lo", "end": "hi"}},
}
Records = list[dict[str, Any]]


class Followed:
    """Two relations and a view of them, of this test only."""

    def __init__(self, client: httpx.Client, **options: Any) -> None:
        number = next(NUMBERS)
        self.client, self.view = client, f"followed_{number}"
        self.left, self.right = f"left_{number}", f"right_{number}"
        for relation in (self.left, self.right):
            assert client.put(f"/v1/relations/{relation}", json=DEFINITION).status_code == 201
        definition = {
            "from": {"a": self.left, "b": self.right},
            "join": [{"overlaps": ["a.span", "b.span"]}],
            "select": ["a.id as x", "b.id as y", "a.lo as lo"],
        } | options
        talk.view(client, self.view, definition)

    @property
    def at(self) -> str:
        return f"/v1/views/{self.view}/changes"

    def change(self, *changes: tuple[str, int, int]) -> int:
        """Upsert (relation, id, lo), each ten long; lo < 0 deletes. The version."""
        body = [
            {"relation": relation, "op": "delete", "key": {"id": i}}
            if lo < 0
            else {"relation": relation, "row": {"id": i, "lo": lo, "hi": lo + 10}}
            for relation, i, lo in changes
        ]
        response = self.client.post("/v1/changes", json={"changes": body})
        assert response.status_code == 200, response.text
        version: int = response.json()["version"]
        return version

    def poll(self, **query: Any) -> Records:
        response = self.client.get(self.at, params={"wait": 0} | query)
        assert response.status_code == 200, response.text
        return [json.loads(line) for line in response.text.splitlines()]


@pytest.fixture
def followed(shared_server: ServerProcess) -> Followed:
    return Followed(shared_server.client())


def is_problem(response: httpx.Response, kind: str, status: int) -> None:
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json"), response.text
    assert response.json()["type"] == f"/problems/{kind}"


def record(version: int, op: str, x: int, y: int, lo: int) -> dict[str, Any]:
    return {"version": version, "op": op, "key": {"a": {"id": x}, "b": {"id": y}}, "row": {"x": x, "y": y, "lo": lo}}


def test_a_poll(followed: Followed) -> None:
    (start,) = followed.poll()
    assert start["op"] == "progress"
    followed.change((followed.left, 1, 0))
    first = followed.change((followed.right, 7, 5))
    second = followed.change((followed.left, 1, 3))
    found = followed.poll(since=start["token"])
    assert [r for r in found if r["op"] != "progress"] == [
        record(first, "insert", 1, 7, 0),
        record(second, "delete", 1, 7, 0),
        record(second, "insert", 1, 7, 3),
    ]
    assert [r["op"] for r in found] == ["insert", "progress", "delete", "insert", "progress"]
    assert [r["version"] for r in found if r["op"] == "progress"] == [first, second]
    assert followed.poll(since=found[-1]["token"])[-1]["op"] == "progress"


def test_one_version_at_a_time(followed: Followed) -> None:
    (start,) = followed.poll()
    followed.change((followed.left, 1, 0))
    versions = [followed.change((followed.right, i, 5)) for i in range(3)]
    token, seen = start["token"], []
    for _ in versions:
        found = followed.poll(since=token, limit=1)
        assert [r["op"] for r in found] == ["insert", "progress"]
        seen.append(found[0]["version"])
        token = found[-1]["token"]
    assert seen == versions
    assert [r["op"] for r in followed.poll(since=token, limit=1)] == ["progress"]


def test_snapshot_then_changes(followed: Followed) -> None:
    followed.change((followed.left, 1, 0), *((followed.right, i, 5) for i in range(50)))
    found = followed.poll(snapshot="true")
    assert found[-1]["op"] == "progress" and {r["op"] for r in found[:-1]} == {"insert"}
    assert sorted(r["row"]["y"] for r in found[:-1]) == list(range(50)) and len({r["version"] for r in found}) == 1
    version = followed.change((followed.right, 3, -1))
    later = followed.poll(since=found[-1]["token"])
    assert later[0] == record(version, "delete", 1, 3, 0) and [r["op"] for r in later] == ["delete", "progress"]


def test_live(followed: Followed) -> None:
    """A follower that is there gets a version when it comes, and stops after its limit."""
    followed.change((followed.left, 1, 0))
    with followed.client.stream("GET", followed.at, params={"limit": 2, "snapshot": "true"}) as response:
        lines = response.iter_lines()
        first = json.loads(next(lines))
        assert first["op"] == "progress"
        version = followed.change((followed.right, 2, 1))
        assert [json.loads(line)["op"] for line in lines] == ["insert", "progress"]
    assert version > first["version"]


def test_events_and_last_event_id(followed: Followed) -> None:
    (start,) = followed.poll()
    followed.change((followed.left, 1, 0), (followed.right, 2, 1))
    followed.change((followed.left, 1, -1))
    query = {"snapshot": "true", "since": "garbage", "wait": 0}
    headers = {"Accept": "text/event-stream", "Last-Event-ID": start["token"]}
    response = followed.client.get(followed.at, params=query, headers=headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [dict(line.split(": ", 1) for line in event.split("\n")) for event in response.text.strip().split("\n\n")]
    assert [event["event"] for event in events] == ["insert", "progress", "delete", "progress"]
    for event in events:
        data = json.loads(event["data"])
        assert data["op"] == event["event"] and event.get("id") == data.get("token")
    resumed = followed.client.get(followed.at, params={"wait": 0}, headers=headers | {"Last-Event-ID": events[1]["id"]})
    assert resumed.text.startswith("event: delete\n")


def test_wait_ends_a_quiet_stream(followed: Followed) -> None:
    records = followed.poll(wait=0.05)
    assert [r["op"] for r in records] == ["progress"]


def test_tokens_of_others(followed: Followed, shared_server: ServerProcess) -> None:
    other = Followed(followed.client)
    (theirs,) = other.poll()
    (mine,) = followed.poll()
    for token in (theirs["token"], "garbage", mine["token"][:-2] + "AA", ""):
        is_problem(followed.client.get(followed.at, params={"since": token}), "bad-token", 400)


def test_parameters(followed: Followed) -> None:
    for query in ({"limit": 0}, {"wait": -1}, {"wait": "soon"}, {"snapshot": "maybe"}, {"form": 1}, {"since": "x", "snapshot": "true"}):
        is_problem(followed.client.get(followed.at, params=query), "bad-parameter", 400)
    head = followed.client.head(followed.at)
    assert head.status_code == 200 and head.headers["content-type"] == "application/jsonl"


def test_a_view_without_changes(shared_server: ServerProcess) -> None:
    view = Followed(shared_server.client(), changes=False)
    is_problem(view.client.get(view.at), "not-followed", 409)


def test_what_is_no_longer_kept(shared_server: ServerProcess) -> None:
    view = Followed(shared_server.client(), changes={"retain_rows": 5})
    (start,) = view.poll()
    view.change((view.left, 1, 0))
    for i in range(8):
        view.change((view.right, i, 5))
    is_problem(view.client.get(view.at, params={"since": start["token"]}), "token-expired", 410)


def test_a_delta_beyond_the_bound(shared_server: ServerProcess) -> None:
    """The batch succeeds, who follows is told, and starts again."""
    view = Followed(shared_server.client(), changes={"retain_rows": 5})
    view.change((view.left, 1, 0))
    with view.client.stream("GET", view.at, params={"snapshot": "true"}) as response:
        lines = response.iter_lines()
        assert json.loads(next(lines))["op"] == "progress"
        view.change(*((view.right, i, 5) for i in range(20)))
        (last,) = [json.loads(line) for line in lines]
    assert last["op"] == "error" and last["problem"]["type"] == "/problems/delta-too-large" and "token" in last
    assert len(view.poll(snapshot="true")) == 21


def test_a_view_that_is_dropped(followed: Followed) -> None:
    with followed.client.stream("GET", followed.at, params={"snapshot": "true"}) as response:
        lines = response.iter_lines()
        next(lines)
        assert followed.client.delete(f"/v1/views/{followed.view}").status_code == 204
        last = json.loads(list(lines)[-1])
    assert last["op"] == "error" and last["problem"]["type"] == "/problems/not-found"


def test_a_follower_that_leaves_is_forgotten(server: ServerProcess) -> None:
    view = Followed(server.client())
    with view.client.stream("GET", view.at, params={"snapshot": "true"}) as response:
        lines = response.iter_lines()
        next(lines)
        assert view.client.get("/v1/status").json()["figures"]["subscribers"] == 1
    while view.client.get("/v1/status").json()["figures"]["subscribers"]:
        time.sleep(0.01)  # the test's time limit ends this if it stays

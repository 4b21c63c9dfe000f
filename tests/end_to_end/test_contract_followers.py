"""docs/reference/rest.md, *Changes of a view*: line by line, as a client meets it."""
from __future__ import annotations

import json
import threading
import time
from typing import Any

from tests.end_to_end import talk
from tests.end_to_end.bookings import CLASHES, Case, day
from tests.server_process import client_of
from tests.waiting import until


def records(case: Case, accept: str | None = None, last: str | None = None, **parameters: Any) -> list[dict[str, Any]]:
    headers = ({"Accept": accept} if accept else {}) | ({"Last-Event-ID": last} if last else {})
    answer = case.client.get(f"/v1/views/{case.v}/changes", params={"wait": 0, **parameters}, headers=headers)
    talk.ok_status(answer)
    return [json.loads(line) for line in answer.content.splitlines()]


def now(case: Case) -> str:
    """Return a token for changes from now on."""
    only = records(case)
    assert [record["op"] for record in only] == ["progress"] and set(only[0]) == {"version", "op", "token"}
    assert only[0]["version"] == case.version()
    return str(only[0]["token"])


def test_the_records_of_changes(live: Case) -> None:
    token = now(live)
    done = talk.ok(talk.send(live.client, [live.delete(1), live.booking(5, "A", 25, 27)]))
    delete, insert, progress = records(live, since=token)
    assert delete == {
        "version": done["version"], "op": "delete", "key": {"b": {"id": 1}, "m": {"id": 7}},
        "row": {"booking": 1, "job": 7, "clash_start": day(4), "clash_end": day(5)},
    }
    assert insert == {
        "version": done["version"], "op": "insert", "key": {"b": {"id": 5}, "m": {"id": 8}},
        "row": {"booking": 5, "job": 8, "clash_start": day(25), "clash_end": day(26)},
    }
    assert set(progress) == {"version", "op", "token"} and progress["version"] == done["version"]
    assert [record["op"] for record in records(live, since=progress["token"])] == ["progress"]


def test_what_is_no_change_of_the_view(live: Case) -> None:
    token = now(live)
    talk.ok(talk.send(live.client, [live.booking(1, "A", 1, 5)]))  # the same row
    talk.ok(talk.send(live.client, [live.booking(4, "B", 2, 3)]))  # of another room
    talk.ok(talk.send(live.client, [live.booking(2, "A", 4, 9), live.delete(2), live.booking(2, "A", 4, 9)]))  # away and back
    talk.ok(talk.send(live.client, [live.booking(9, "A", 1, 30), live.delete(9)]))
    talk.ok(talk.send(live.client, [live.booking(9, "A", 1, 30, status="cancelled")]))  # filtered
    talk.ok(talk.send(live.client, [live.booking(1, "A", 2, 5)]))  # the intersection stays the same
    assert [record["op"] for record in records(live, since=token)] == ["progress"]
    talk.ok(talk.send(live.client, [live.booking(1, "A", 2, 6)]))  # the intersection is longer
    found = records(live, since=token)
    assert [(record["op"], record["row"]["clash_end"]) for record in found[:-1]] == [("delete", day(5)), ("insert", day(6))]


def test_several_versions_and_polls_by_limit(live: Case) -> None:
    token = now(live)
    versions = [talk.ok(talk.send(live.client, [live.booking(number, "A", 4, 5)]))["version"] for number in range(10, 14)]
    found = records(live, since=token)
    assert [record["op"] for record in found] == ["insert", "progress"] * 4
    assert [record["version"] for record in found[::2]] == versions
    one = records(live, since=token, limit=1)
    assert one == found[:2] or (one[0] == found[0] and one[1]["version"] == versions[0])
    two = records(live, since=one[-1]["token"], limit=2)
    assert [record["version"] for record in two if record["op"] == "insert"] == versions[1:3]
    assert [record["version"] for record in records(live, since=two[-1]["token"]) if record["op"] == "insert"] == versions[3:]
    none = records(live, since=found[-1]["token"], limit=1)
    assert [record["op"] for record in none] == ["progress"]
    again = records(live, since=token)
    assert [record for record in again if record["op"] != "progress"] == found[::2], "a token may be used again"


def test_snapshot(live: Case) -> None:
    found = records(live, snapshot="true")
    assert [record["op"] for record in found] == ["insert"] * 3 + ["progress"]
    assert {record["version"] for record in found} == {live.version()}
    assert sorted((record["row"]["booking"], record["row"]["job"]) for record in found[:-1]) == CLASHES
    assert all(record["key"] == {"b": {"id": record["row"]["booking"]}, "m": {"id": record["row"]["job"]}} for record in found[:-1])
    talk.ok(talk.send(live.client, [live.delete(1)]))
    assert [record["op"] for record in records(live, since=found[-1]["token"])] == ["delete", "progress"]


def test_snapshot_while_batches_come(live: Case) -> None:
    """A snapshot and the changes after it, while rows are inserted and deleted: nothing is lost, and nothing is sent twice."""
    talk.ok(talk.send(live.client, [live.booking(number, "A", 4, 6) for number in range(100, 1100)]))
    stop = threading.Event()

    def work() -> None:
        with client_of(str(live.client.base_url)) as client:
            for number in range(100, 1100):
                if stop.is_set():
                    return
                talk.ok(talk.send(client, [live.delete(number), live.booking(number + 2000, "A", 4, 6)]))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        followers = []
        for _ in range(5):
            followers.append(talk.Follower(live.client, live.v, ["booking", "job"], snapshot=True))
            for follower in followers:
                talk.ok_poll(follower)
    finally:
        stop.set()
        worker.join(60)
    rows = live.rows()
    for follower in followers:
        talk.ok_poll(follower)
        assert sorted(follower.rows.values()) == rows


def test_events(live: Case) -> None:
    answer = live.client.get(f"/v1/views/{live.v}/changes", params={"snapshot": "true", "wait": 0}, headers={"Accept": talk.SSE})
    assert answer.headers["content-type"].split(";")[0] == talk.SSE
    events = list(talk.sse(answer.text))
    assert [event for event, _, _ in events] == ["insert"] * 3 + ["progress"]
    assert [identity for _, _, identity in events] == [None] * 3 + [json.loads(events[-1][1])["token"]]


def test_last_event_id_wins(live: Case) -> None:
    token = now(live)
    talk.ok(talk.send(live.client, [live.delete(1)]))
    late = now(live)
    for parameters in ({"since": late}, {"snapshot": "true"}, {"since": "nonsense", "snapshot": "true"}):
        assert [record["op"] for record in records(live, last=token, **parameters)] == ["delete", "progress"]


def test_wait_ends_after_silence_and_carries_what_comes(live: Case) -> None:
    token = now(live)
    start = time.monotonic()
    found: list[dict[str, Any]] = []
    reader = threading.Thread(target=lambda: found.extend(records(live, since=token, wait=1)))
    reader.start()
    talk.ok(talk.send(live.client, [live.delete(1)]))
    reader.join(30)
    assert [record["op"] for record in found if record["op"] != "progress"] == ["delete"] and found[-1]["op"] == "progress"
    assert time.monotonic() - start >= 1


def test_a_follower_is_woken_at_once(live: Case) -> None:
    """An open stream receives each version as soon as it is published."""
    with live.client.stream("GET", f"/v1/views/{live.v}/changes", params={"snapshot": "true", "wait": 30}) as answer:
        lines = answer.iter_lines()
        for _ in range(4):
            next(lines)
        for number in range(20, 25):
            done = talk.ok(talk.send(live.client, [live.booking(number, "A", 4, 5)]))
            insert, progress = json.loads(next(lines)), json.loads(next(lines))
            assert (insert["op"], insert["version"], insert["row"]["booking"]) == ("insert", done["version"], number)
            assert (progress["op"], progress["version"]) == ("progress", done["version"])


def test_without_since_from_now_on(live: Case) -> None:
    found: list[dict[str, Any]] = []
    with live.client.stream("GET", f"/v1/views/{live.v}/changes", params={"limit": 1, "wait": 30}) as answer:
        talk.ok(talk.send(live.client, [live.booking(30, "A", 4, 5)]))
        found = [json.loads(line) for line in answer.iter_lines()]
    assert [record["op"] for record in found] in (["insert", "progress"], ["progress"])


def test_bad_tokens(live: Case) -> None:
    token = now(live)
    talk.view(live.client, f"{live.v}_x", live.json)
    talk.problem(live.client.get(f"/v1/views/{live.v}_x/changes", params={"since": token, "wait": 0}), 400, "bad-token")
    for wrong in ("nonsense", token[:-2], "A" * 5000, "ü"):
        talk.problem(live.client.get(f"/v1/views/{live.v}/changes", params={"since": wrong, "wait": 0}), 400, "bad-token")
        if wrong.isascii():
            answer = live.client.get(f"/v1/views/{live.v}/changes", params={"wait": 0}, headers={"Last-Event-ID": wrong})
            talk.problem(answer, 400, "bad-token")


def test_a_view_made_again_does_not_take_old_tokens(live: Case) -> None:
    token = now(live)
    talk.drop(live.client, [live.v])
    talk.view(live.client, live.v, live.sql)
    answer = live.client.get(f"/v1/views/{live.v}/changes", params={"since": token, "wait": 0})
    assert (answer.status_code, answer.json()["type"]) in ((400, "/problems/bad-token"), (410, "/problems/token-expired")), answer.text


def test_not_followed(live: Case) -> None:
    talk.view(live.client, f"{live.v}_x", {**live.json, "changes": False})
    talk.problem(live.client.get(f"/v1/views/{live.v}_x/changes"), 409, "not-followed")
    assert talk.count(live.client, f"{live.v}_x") == 3


def test_not_acceptable(live: Case) -> None:
    for accept in (talk.CSV, talk.ARROW, "text/html"):
        talk.problem(live.client.get(f"/v1/views/{live.v}/changes", params={"wait": 0}, headers={"Accept": accept}), 406, "not-acceptable")


def test_tokens_expire_by_number_of_rows(live: Case) -> None:
    """A feed that keeps ten rows: the eleventh displaces the first, whose token expires."""
    small = f"{live.v}_x"
    talk.view(live.client, small, {**live.json, "changes": {"retain_rows": 10}})
    url = f"/v1/views/{small}/changes"
    first = json.loads(live.client.get(url, params={"wait": 0}).content)["token"]
    for number in range(40, 60):
        talk.ok(talk.send(live.client, [live.booking(number, "A", 4, 5)]))
        last = [json.loads(line) for line in live.client.get(url, params={"wait": 0}).content.splitlines()][-1]["token"]
    talk.problem(live.client.get(url, params={"since": first, "wait": 0}), 410, "token-expired")
    talk.ok_status(live.client.get(url, params={"since": last, "wait": 0}))


def test_a_delta_beyond_the_bound(live: Case) -> None:
    """The batch succeeds, the feed is truncated, an open follower receives the error with its token, and older tokens expire; a new
    snapshot works."""
    small = f"{live.v}_x"
    talk.view(live.client, small, {**live.json, "changes": {"retain_rows": 10}})
    url = f"/v1/views/{small}/changes"
    token = json.loads(live.client.get(url, params={"wait": 0}).content)["token"]
    with live.client.stream("GET", url, params={"since": token, "wait": 30}) as answer:
        many = [live.booking(number, "A", 4, 5) for number in range(100, 150)]
        assert talk.ok(talk.send(live.client, many))["applied"] == 50
        last = [json.loads(line) for line in answer.iter_lines()][-1]
    assert last["op"] == "error" and last["problem"]["type"] == "/problems/delta-too-large" and "token" in last
    talk.problem(live.client.get(url, params={"since": token, "wait": 0}), 410, "token-expired")
    follower = talk.Follower(live.client, small, ["booking", "job"], snapshot=True)
    assert len(follower.rows) == 53 == talk.count(live.client, small)
    talk.ok(talk.send(live.client, [live.delete(100)]))
    talk.ok_poll(follower)
    assert len(follower.rows) == 52


def test_dropping_under_a_follower(live: Case) -> None:
    """The stream of a follower ends with the problem when its view is dropped."""
    with live.client.stream("GET", f"/v1/views/{live.v}/changes", params={"wait": 60, "snapshot": "true"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        talk.drop(live.client, [live.v])
        last = json.loads(list(lines)[-1])
    assert last["op"] == "error" and last["problem"]["type"] == "/problems/not-found"


def test_a_follower_that_leaves_is_forgotten(live: Case) -> None:
    def followers() -> int:
        return int(talk.ok(live.client.get("/v1/status"))["figures"]["subscribers"])

    before = followers()
    with live.client.stream("GET", f"/v1/views/{live.v}/changes", params={"wait": 60, "snapshot": "true"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert followers() == before + 1  # the answer is read on as long as `lines` lives
    until(lambda: followers() == before, lambda: f"{followers()} followers")


def test_head(live: Case) -> None:
    head = live.client.head(f"/v1/views/{live.v}/changes")
    assert head.status_code == 200 and head.headers["content-type"] == talk.JSONL

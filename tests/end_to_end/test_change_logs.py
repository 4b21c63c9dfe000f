"""The change logs and Debezium streams of the data sets, compared at every checkpoint, by reading and by followers that apply the feed."""
from __future__ import annotations

import gc
import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests import datasets
from tests.end_to_end import talk
from tests.end_to_end.talk import ARROW, DEBEZIUM, JSON, JSONL

READINGS = (ARROW, JSONL, JSON)


class Replay:
    """The relations and views of one log, and followers of every view: one from the beginning, one that polls one `progress` at
    a time, and at the second checkpoint and at the last a new one by snapshot."""

    def __init__(self, client: httpx.Client, name: str, log: str) -> None:
        self.client = client
        self.expected = datasets.expected(name, log)
        self.relations = list(self.expected["checkpoints"][0]["live"])
        for relation in self.relations:
            talk.define(client, relation, datasets.definition(name, relation))
        self.views = [view for view in datasets.queries(name) if view["name"] in self.expected["views"]]
        self.followers: dict[str, list[talk.Follower]] = {}
        for view in self.views:
            talk.view(client, view["name"], view["sql"])
            self.followers[view["name"]] = [talk.Follower(client, view["name"], view["result_columns"]) for _ in range(2)]

    def check(self, checkpoint: dict[str, Any]) -> None:
        for relation, live in checkpoint["live"].items():
            assert talk.ok(self.client.get(f"/v1/relations/{relation}"))["rows"] == live
        for position, view in enumerate(self.views):
            answer = checkpoint["views"][view["name"]]
            wanted = answer["rows"], answer["checksum"]
            rows = talk.read(self.client, view["name"], READINGS[position % 3], view["result_columns"])
            assert (len(rows), datasets.checksum(rows)) == wanted
            assert talk.count(self.client, view["name"]) == answer["rows"]
            followers = self.followers[view["name"]]
            talk.ok_poll(followers[0])
            _catch_up_by_ones(followers[1])
            if checkpoint in (self.expected["checkpoints"][1], self.expected["checkpoints"][-1]):
                followers.append(talk.Follower(self.client, view["name"], view["result_columns"], snapshot=True))
            for follower in followers[2:]:
                talk.ok_poll(follower)
            assert (len(followers[0].rows), followers[0].checksum) == wanted
            assert all(follower.rows == followers[0].rows for follower in followers[1:])

    def close(self) -> None:
        talk.drop(self.client, [view["name"] for view in self.views], self.relations)


def _catch_up_by_ones(follower: talk.Follower) -> None:
    """Poll one `progress` at a time, until one brings nothing."""
    while True:
        before, records, progresses = follower.version, follower.records, follower.progresses
        talk.ok_poll(follower, limit=1)
        assert follower.progresses == progresses + 1
        if follower.records == records + 1:
            assert follower.version >= before
            return


@pytest.fixture
def replay(client: httpx.Client, request: pytest.FixtureRequest) -> Iterator[Replay]:
    gc.disable()  # it would scan a million records repeatedly
    replay = Replay(client, *request.param)
    yield replay
    replay.close()
    gc.enable()


@pytest.mark.parametrize(
    ("replay", "name", "log"),
    # The log of the flights takes as long as all others; those of Congress are tested elsewhere, through Kafka and with kills.
    [pytest.param(case, *case, marks=pytest.mark.soak if case[0] in ("openflights", "congress") else ()) for case in datasets.LOGS],
    indirect=["replay"],
)
def test_change_log(replay: Replay, client: httpx.Client, name: str, log: str) -> None:
    """Batches of `batch_size` from one source, in alternating media types; every tenth is sent twice."""
    changes = [talk.change(entry, datasets.key(name, entry["relation"])) for entry in datasets.change_log(name, log)]
    size = replay.expected["batch_size"]
    checkpoints = {checkpoint["after_batch"]: checkpoint for checkpoint in replay.expected["checkpoints"]}
    media = itertools.cycle((JSON, JSONL, ARROW))
    version = talk.ok(client.get("/v1/status"))["version"]
    for number, start in enumerate(range(0, len(changes), size), 1):
        batch = changes[start : start + size]
        kind = next(media)
        parameters = {"source": f"{name} {log}", "epoch": number, "run": "one"}
        done = talk.ok(talk.send(client, batch, kind, **parameters))
        assert done == {
            "version": version + 1, "applied": len(batch), "ignored": 0, "skipped_count": 0, "skipped": [], "duplicate": False,
        }
        version += 1
        if number % 10 == 0:
            again = talk.ok(talk.send(client, batch, kind, **parameters))
            assert again["duplicate"] and again["applied"] == 0 and again["version"] == version
        if number in checkpoints:
            replay.check(checkpoints.pop(number))
    assert not checkpoints


def _line(record: dict[str, Any], form: int) -> bytes:
    """Return a Kafka record as a line: bare, with its key, or wrapped in schema and payload."""
    value = record["value"]
    if form == 1:
        return json.dumps({"key": record["key"], "value": value}).encode()
    if form == 2 and value is not None:
        return json.dumps({"schema": {}, "payload": value}).encode()
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("replay", "log"),
    [
        pytest.param(("congress", log), log, marks=() if log == "cdc_redelivered" else pytest.mark.soak)
        for log in ("cdc", "cdc_default_identity", "cdc_redelivered")
    ],
    indirect=["replay"],
)
def test_debezium(replay: Replay, client: httpx.Client, log: str) -> None:
    """Each run of records of a relation is one body, in alternating forms; tombstones included."""
    records = datasets.debezium(log)
    checkpoints = {checkpoint["after_records"]: checkpoint for checkpoint in replay.expected["checkpoints"]}
    forms = itertools.cycle(range(3))
    done = 0
    for checkpoint_at in sorted(checkpoints):
        for start in range(done, checkpoint_at, 97):
            part = records[start : min(start + 97, checkpoint_at)]
            for relation in replay.relations:
                own = [record for record in part if record["topic"].endswith(f".{relation}")]
                if not own:
                    continue
                form = next(forms)
                body = b"\n".join(_line(record, form) for record in own)
                answer = client.post(f"/v1/relations/{relation}/changes", content=body, headers={"Content-Type": DEBEZIUM})
                receipt = talk.ok(answer)
                assert receipt["applied"] + receipt["ignored"] == len(own) and receipt["skipped_count"] == 0
                assert receipt["ignored"] >= sum(record["value"] is None for record in own)
        done = checkpoint_at
        replay.check(checkpoints[checkpoint_at])
    assert done == len(records)


def test_a_stream_of_events_is_the_same_as_polls(client: httpx.Client) -> None:
    """Server-sent events of a snapshot and the changes after it, resumed by Last-Event-ID after a disconnect."""
    view = datasets.view("congress", "same_state_senators")
    talk.define(client, "senator_terms", datasets.definition("congress", "senator_terms"))
    talk.view(client, view["name"], view["sql"])
    rows = datasets.table("congress", "senator_terms")
    talk.load(client, "senator_terms", rows.slice(0, 150), ARROW)
    follower = talk.Follower(client, view["name"], view["result_columns"])

    def events(**request: Any) -> list[tuple[str, str, str | None]]:
        answer = client.get(f"/v1/views/{view['name']}/changes", **request)
        assert answer.status_code == 200 and answer.headers["content-type"].split(";")[0] == talk.SSE
        found = list(talk.sse(answer.text))
        for event, data, identity in found:
            record = json.loads(data)
            assert event == record["op"] and identity == record.get("token")
        return found

    def take(found: list[tuple[str, str, str | None]]) -> None:
        follower.take(json.loads(data) for _, data, _ in found)

    accept = {"Accept": talk.SSE}
    follower.version = -1
    take(events(headers=accept, params={"snapshot": "true", "wait": 0}))
    assert follower.rows
    for start in (150, 190, 230):
        talk.load(client, "senator_terms", rows.slice(start, 40), ARROW)
    cut = events(headers={**accept, "Last-Event-ID": str(follower.token)}, params={"snapshot": "true", "since": "nonsense", "limit": 1})
    assert cut[-1][0] == "progress" and [event for event, _, _ in cut].count("progress") == 1
    take(cut)
    take(events(headers={**accept, "Last-Event-ID": str(follower.token)}, params={"wait": 0}))
    assert (len(follower.rows), follower.checksum) == (view["rows"], view["checksum"])
    talk.drop(client, [view["name"]], ["senator_terms"])

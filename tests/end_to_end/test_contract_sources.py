"""docs/reference/rest.md, *Changes*: what `source`, `epoch` and `run` promise, as a client meets it."""
from __future__ import annotations

import json
from typing import Any

import pytest

from tests.end_to_end import talk
from tests.end_to_end.bookings import Case
from tests.end_to_end.talk import JSONL
from tests.end_to_end.test_contract_changes import post, relation_rows


def test_duplicates(case: Case) -> None:
    case.define()
    source = f"pms {case.b}"

    def send(epoch: int, number: int, **more: Any) -> dict[str, Any]:
        done = talk.ok(talk.send(case.client, [case.booking(number, "A", 1, 5)], source=source, epoch=epoch, **more))
        return dict(done)

    first = send(-(2**63), 1)
    assert not first["duplicate"]
    second = send(5, 2)
    assert not second["duplicate"]
    other = talk.ok(talk.send(case.client, [case.booking(3, "A", 1, 5)]))
    again = send(5, 4)
    nothing = {"version": other["version"], "applied": 0, "ignored": 0, "skipped_count": 0, "skipped": [], "duplicate": True}
    assert again == {**nothing, "first": second}
    assert send(4, 4)["duplicate"] and not send(2**63 - 1, 5)["duplicate"]
    assert [row["id"] for row in relation_rows(case, case.b)] == [1, 2, 3, 5]


def test_a_duplicate_is_answered_before_its_rows_are_judged(case: Case) -> None:
    case.define()
    source = f"judge {case.b}"
    talk.ok(talk.send(case.client, [case.booking(1, "A", 1, 5)], source=source, epoch=1))
    assert talk.ok(talk.send(case.client, [case.booking(2, "A", 5, 1)], source=source, epoch=1))["duplicate"]
    talk.problem(talk.send(case.client, [case.booking(2, "A", 5, 1)], source=source, epoch=2), 422, "bad-rows")
    mended = talk.ok(talk.send(case.client, [case.booking(2, "A", 1, 5)], source=source, epoch=2))
    assert not mended["duplicate"], "a rejected epoch is not used up"


def test_a_repeated_batch_is_a_duplicate_after_its_relation_was_dropped(case: Case) -> None:
    case.define()
    change, source = case.booking(1, "A", 1, 5), f"sends {case.b}"
    row, lines = json.dumps(change["row"]).encode(), json.dumps(change).encode()
    asked = [
        lambda epoch: talk.send(case.client, [change], source=source, epoch=epoch),
        lambda epoch: post(case, JSONL, lines, source=source, epoch=epoch),
        lambda epoch: post(case, JSONL, row, case.b, source=source, epoch=epoch),
    ]
    for epoch, ask in enumerate(asked):
        assert not talk.ok(ask(epoch))["duplicate"]
    talk.drop(case.client, relations=[case.b])
    for epoch, ask in enumerate(asked):
        again = talk.ok(ask(epoch))
        assert again["duplicate"] and again["applied"] == 0 and again["version"] == case.version()
    for ask, status, kind in zip(asked, (422, 422, 404), ("unknown-relation", "unknown-relation", "not-found"), strict=True):
        talk.problem(ask(3), status, kind)
    talk.problem(post(case, JSONL, b"{", source=source, epoch=0), 400, "malformed-body")


def test_a_large_body_in_chunks(case: Case) -> None:
    case.define()
    body = b"".join(json.dumps(case.booking(number, f"room {number}", 1, 5)["row"]).encode() + b"\n" for number in range(5000))
    chunks = (body[start : start + 10_000] for start in range(0, len(body), 10_000))
    done = case.client.post(f"/v1/relations/{case.b}/changes", content=chunks, headers={"Content-Type": JSONL})
    assert talk.ok(done)["applied"] == 5000 == len(relation_rows(case, case.b))


def test_fields_of_the_body(case: Case) -> None:
    case.define()
    body = {"source": f"body {case.b}", "epoch": 17, "run": "r", "on_error": "skip", "changes": [case.booking(1, "A", 5, 1)]}
    assert talk.ok(case.client.post("/v1/changes", json=body))["skipped_count"] == 1
    assert talk.ok(case.client.post("/v1/changes", json=body))["duplicate"]


def test_runs(case: Case) -> None:
    case.define()
    source = f"spark {case.b}"

    def send(epoch: int, **more: Any) -> Any:
        return talk.send(case.client, [case.booking(epoch, "A", 1, 5)], source=source, epoch=epoch, **more)

    assert not talk.ok(send(7))["duplicate"]
    talk.problem(send(8, run="one"), 409, "source-reset")
    assert not talk.ok(send(1, run="one", reset="true"))["duplicate"], "epochs start again"
    assert talk.ok(send(1, run="one", reset="true"))["duplicate"], "with the same run reset changes nothing"
    assert not talk.ok(send(2, run="one"))["duplicate"]
    talk.problem(send(3), 409, "source-reset")
    talk.problem(send(3, run="two"), 409, "source-reset")
    assert talk.ok(send(2, run="one"))["duplicate"]


@pytest.mark.parametrize("parameters", [
    {"source": "s"}, {"epoch": 1}, {"source": "s", "epoch": "x"}, {"source": "s", "epoch": 2**63}, {"source": "s" * 201, "epoch": 1},
    {"source": "s", "epoch": 1, "run": "r" * 201}, {"source": "s", "epoch": 1, "reset": "true"}, {"on_error": "ignore"},
    {"source": "s", "epoch": 1, "run": "r", "reset": "maybe"}, {"nonsense": 1}, {"source": "s", "epoch": 1.5},
], ids=str)
def test_bad_parameters(case: Case, parameters: dict[str, Any]) -> None:
    case.define()
    before = case.version()
    talk.problem(talk.send(case.client, [case.booking(1, "A", 1, 5)], **parameters), 400, "bad-parameter")
    assert case.version() == before


def test_source_of_200_characters(case: Case) -> None:
    case.define()
    done = talk.send(case.client, [case.booking(1, "A", 1, 5)], source="ü" * 200, epoch=1, run="☃" * 200, reset="true")
    talk.ok(done)

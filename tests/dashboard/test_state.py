"""`GET /v1/status` as the dashboard reads it: once, and as events; what each token may see of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.access.access_token import TEXT
from service.api.dashboard.state import warnings
from service.durability.usage import Usage
from service.engine.versions import HeldVersion
from tests.dashboard.conftest import until
from tests.dashboard.data import CLASHES, DELEGATION, PRESIDENTS, STAYS, stay, upsert
from tests.end_to_end import talk
from tests.forked import finished
from tests.server_process import ServerProcess
from tests.service.api.answered import require_answered


@pytest.fixture(scope="module")
def client(service: ServerProcess) -> httpx.Client:
    return service.client()


def status(client: httpx.Client, **headers: str) -> dict[str, Any]:
    found: dict[str, Any] = talk.ok(client.get("/v1/status", headers=headers))
    return found


def test_views_and_relations_tell_what_they_hold(client: httpx.Client) -> None:
    found = status(client)
    one = found["views"][PRESIDENTS]
    assert (one["state"], one["algorithm"], one["guarantee"]) == ("live", "interval-tree", "strict")
    assert one["feed"]["rows"] <= one["feed"]["changes"] and one["feed"]["changes"] >= 62
    assert found["relations"]["president_terms"]["bytes"] > 0
    assert found["memory"]["resident"] > found["memory"]["relations"] > 0
    assert 0 < found["disk"]["free"] < found["disk"]["size"] and found["disk"]["log"] > 0
    assert found["token"] == {"needed": False, "name": "", "scope": "admin", "covers_all": True}


def test_the_count_of_changes_is_that_of_rows_that_went_and_came(client: httpx.Client) -> None:
    before = status(client)["views"]["clashes"]["feed"]["changes"]
    rows = talk.ok(client.get("/v1/views/clashes/count"))["count"]
    talk.ok(talk.send(client, [upsert("stays", stay(1000)), upsert("stays", stay(1006)), upsert("stays", stay(1012))]))
    more = talk.ok(client.get("/v1/views/clashes/count"))["count"] - rows
    assert more == 2
    assert status(client)["views"]["clashes"]["feed"]["changes"] == before + more
    talk.ok(talk.send(client, [{"relation": "stays", "op": "delete", "key": {"id": id_}} for id_ in (1000, 1006, 1012)]))
    assert status(client)["views"]["clashes"]["feed"]["changes"] == before + 2 * more


def test_readers_that_hold_a_version_are_listed(client: httpx.Client) -> None:
    talk.ok(client.get(f"/v1/views/{DELEGATION}/rows?limit=2", headers={"Accept": talk.JSON}))
    (pin,) = [one for one in status(client)["pins"] if one["reading"] == f"a cursor of the view {DELEGATION}"]
    assert pin["readers"] >= 1 and pin["behind"] >= 0 and pin["age_seconds"] >= pin["idle_seconds"] >= 0


def test_warnings_say_what_to_do(service: ServerProcess, client: httpx.Client) -> None:
    assert client.put("/v1/views/few", json={"sql": "SELECT guest FROM stays GROUP BY guest", "groups": 2}).is_success
    (found,) = until(lambda: status(client)["warnings"])
    detail = 'the view has more than 2 groups; register it with a larger "groups", or group more coarsely'
    assert found == {"text": f"The view few has failed: {detail}.", "view": "few"}
    talk.drop(client, ["few"])
    assert not status(client)["warnings"]
    held = [HeldVersion(7, 1, "view clashes", 12.0, 40.0), HeldVersion(9, 1, "", 0.0, 1.0)]
    disk = Usage(log=0, snapshots=0, other=0, disk=1000, free=40, snapshot=None)
    figures = {"retired_bytes": 400_000_000, "snapshot_failures": 1}
    assert [one["text"].split(".")[0] for one in warnings(9, disk, figures, {}, held)] == [
        "The disk of the data folder has 4 % of free space left: make room, as changes are refused once it is full",
        "A snapshot could not be written, so the next start reads more of the log: see the service's log",
        "view clashes at version 7, idle for 12 s, and what is being reclaimed hold 400 MB of memory",
    ]
    assert len(warnings(9, disk, figures, {}, None)) == 2, "others' readings are not told"


def test_a_problem_is_remembered_with_how_often_it_came(client: httpx.Client) -> None:
    for _ in range(3):
        answer = client.get("/v1/views/nowhere")
        talk.problem(answer, 404, "not-found")
    (one,) = [one for one in status(client)["problems"] if one["path"] == "/v1/views/nowhere"]
    assert (one["type"], one["method"], one["status"], one["times"]) == ("not-found", "GET", 404, 3)
    assert one["request_id"] == answer.headers["x-request-id"] and "nowhere" in one["detail"]


def test_the_list_of_problems_is_bounded(client: httpx.Client) -> None:
    for number in range(120):
        client.get(f"/v1/views/none_{number}")
    found = status(client)["problems"]
    assert len(found) == 50 and found[0]["path"] == "/v1/views/none_119"
    client.get("/" + "x" * 9000)
    assert all(len(one["path"]) <= 500 and len(one["detail"]) <= 500 for one in status(client)["problems"])


def test_events_tell_the_state_every_second(client: httpx.Client) -> None:
    versions = []
    with client.stream("GET", "/v1/status", headers={"Accept": talk.SSE}) as answer:
        assert answer.headers["content-type"].startswith(talk.SSE)
        for line in answer.iter_lines():
            if line.startswith("data: "):
                versions.append(json.loads(line[6:])["version"])
                talk.ok(talk.send(client, [upsert("stays", stay(0))]))
            if len(versions) == 3:
                break
    assert versions[0] < versions[1] < versions[2]


def test_another_format_is_refused(client: httpx.Client) -> None:
    talk.problem(client.get("/v1/status", headers={"Accept": "text/csv"}), 406, "not-acceptable")


def test_answers_have_what_the_schema_lists(tmp_path: Path) -> None:
    """Seen: it listed nothing. A restart, because the last snapshot is a part of it."""
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        client = server.client()
        talk.define(client, "stays", STAYS)
        talk.view(client, "clashes", {"sql": CLASHES, "changes": False})
        talk.ok(talk.send(client, [upsert("stays", stay(n)) for n in range(20)]))
        first = status(client)
        assert first["disk"]["snapshot"] is None and first["views"]["clashes"]["feed"] is None
        assert server.stop() == 0
    with ServerProcess(data) as server:
        client = server.client()
        talk.view(client, "followed", {"sql": CLASHES})
        talk.ok(client.get("/v1/views/followed/rows?limit=2", headers={"Accept": talk.JSON, "Livejoin-Reader": "a"}))
        client.get("/v1/views/nowhere")
        assert client.put("/v1/views/few", json={"sql": "SELECT guest FROM stays GROUP BY guest", "groups": 2}).is_success
        second = until(lambda: (found := status(client))["warnings"] and found)
        require_answered("Status", first, second)


def test_tokens_see_what_they_are_for(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        client = server.client()
        for name in ("one", "two"):
            talk.define(client, name, {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
        tokens = {}
        given = {"boss": ["--scope", "admin"], "reader": ["--scope", "read"], "few": ["--scope", "read", "--relations", "one"]}
        for name, options in given.items():
            done, said = finished(["token", "create", name, *options, "--data", str(data)])
            assert done == 0, said
            tokens[name] = {"Authorization": f"Bearer {re.findall(TEXT, said)[0]}"}
        until(lambda: client.get("/v1/status").status_code == 401)
        boss, reader, few = (status(client, **tokens[name]) for name in ("boss", "reader", "few"))
        assert set(boss["relations"]) == set(reader["relations"]) == {"one", "two"} and set(few["relations"]) == {"one"}
        assert "problems" in boss and "pins" in boss
        assert "pins" in reader and "problems" not in reader
        assert "pins" not in few and "problems" not in few
        assert boss["token"] == {"needed": True, "name": "boss", "scope": "admin", "covers_all": True}
        assert client.get("/").status_code == 200 and client.get("/dashboard/app.js").status_code == 200, "the files need no token"
        talk.problem(client.get("/v1/views/v/window"), 401, "unauthorized")
        talk.problem(client.get("/v1/views/v/window", headers=tokens["few"]), 403, "forbidden")


def test_the_window_of_a_view_needs_its_relations(tmp_path: Path) -> None:
    """Ends and keys are those of the relations, whether the view selects them or not."""
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        client = server.client()
        talk.define(client, "stays", STAYS)
        talk.view(client, "clashes", {"sql": CLASHES})
        headers = {}
        for name, options in (("shown", []), ("both", ["--relations", "stays"])):
            done, said = finished(["token", "create", name, "--scope", "read", "--views", "clashes", *options, "--data", str(data)])
            assert done == 0, said
            headers[name] = {"Authorization": f"Bearer {re.findall(TEXT, said)[0]}"}
        until(lambda: client.get("/v1/status").status_code == 401)
        assert client.get("/v1/views/clashes/rows", headers=headers["shown"]).status_code == 200
        problem = talk.problem(client.get("/v1/views/clashes/window", headers=headers["shown"]), 403, "forbidden")
        assert "is not for the relation 'stays'" in problem["detail"]
        assert client.get("/v1/views/clashes/window", headers=headers["both"]).status_code == 200

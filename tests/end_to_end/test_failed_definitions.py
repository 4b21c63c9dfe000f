"""A definition that fails in an unforeseen way is answered with 500, alone, and logged with its trace; the service goes on. It stops only
if something was written: with all of it, or nothing, on disk."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import pytest

from tests.end_to_end import talk
from tests.faults.patches import replace
from tests.server_process import ServerProcess

DEFINITION = {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}
VIEW = "SELECT x.id AS i, y.id AS j FROM r x LEFT JOIN r y ON x.id < y.id"


class Faulty(Exception):
    """No error that the service foresees."""


def fail(*_: Any, **__: Any) -> NoReturn:
    raise Faulty


def break_(function: str, call: int) -> None:
    """Have a call of a function fail, in the server."""
    where, _, name = function.rpartition(".")
    whole, calls = getattr(resolve_name(where), name), count()
    replace(resolve_name(where), name, lambda *given, **named: fail() if next(calls) == call else whole(*given, **named))


def broken(folder: Path, function: str, call: int) -> ServerProcess:
    return ServerProcess(folder / "data", before=partial(break_, function, call), arguments=["--log-level", "debug"])


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("service.query.sql.select.parse", 0),
        ("service.planning.planner._best", 0),
        ("service.views.live_view.shown_of", 0),
        ("service.durability.log.Log.require_room", 1),
    ],
)
def test_nothing_of_a_view_is_written(tmp_path: Path, function: str, call: int) -> None:
    """`call`: after those of the relation."""
    with broken(tmp_path, function, call) as server:
        client = server.client()
        talk.define(client, "r", DEFINITION)
        id_ = talk.problem(client.put("/v1/views/v", json={"sql": VIEW}), 500, "internal")["request_id"]
        assert f"request {id_} failed: Faulty" in server.output() and "in fail\n" in server.output()
        assert talk.ok(client.get("/v1/views")) == {"views": []}
        talk.ok(talk.send(client, [{"relation": "r", "row": {"id": number}} for number in range(3)]))
        talk.view(client, "v", VIEW)
        assert talk.count(client, "v") == 4
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("function", "method", "path", "body"),
    [
        ("service.tables.relations.Relation.__init__", "PUT", "s", DEFINITION),
        ("service.durability.log.Log.require_room", "PUT", "s", DEFINITION),
        ("service.durability.log.Log.require_room", "PATCH", "r", {"add_intervals": {"at": {"at": "id"}}}),
    ],
)
def test_nothing_of_a_relation_is_written(tmp_path: Path, function: str, method: str, path: str, body: dict[str, Any]) -> None:
    with broken(tmp_path, function, 1) as server:
        client = server.client()
        talk.define(client, "r", DEFINITION)
        before = talk.ok(client.get("/v1/relations"))
        talk.problem(client.request(method, f"/v1/relations/{path}", json=body), 500, "internal")
        assert talk.ok(client.get("/v1/relations")) == before
        talk.ok(client.request(method, f"/v1/relations/{path}", json=body), 200, 201)
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("function", "call", "states"),
    [("service.durability.log.Log._count_catalog_change", 1, []), ("service.engine.builds.Builds.start", 0, ["live"])],
)
def test_something_is_written(tmp_path: Path, function: str, call: int, states: list[str]) -> None:
    with broken(tmp_path, function, call) as server:
        talk.define(server.client(), "r", DEFINITION)
        talk.problem(server.client().put("/v1/views/v", json={"sql": VIEW}), 500, "internal")
        assert server.wait() == 1 and "the writer has failed and the service stops" in server.output()
    with ServerProcess(tmp_path / "data") as server:
        assert [view["state"] for view in talk.ok(server.client().get("/v1/views"))["views"]] == states

"""Each problem `bad-parameter` names the parameter, so that a program can point to it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

import service
from service.errors import bad_parameter
from tests.end_to_end import talk
from tests.relations import declared
from tests.service.running import PAIR

VIEWS: dict[str, Any] = {
    "v": PAIR,
    "grouped": "SELECT a.tag, count(*) AS n FROM a GROUP BY a.tag",
    "keyed": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.s = b.s",
    "either": "SELECT a.id FROM a UNION SELECT b.id FROM b",
}


@pytest.fixture(scope="module", autouse=True)
def defined(client: httpx.Client) -> None:
    for name in "ab":
        talk.define(client, name, declared("id:int64, s:int64, e:int64, tag:string?", x="s e []"))
    for name, definition in VIEWS.items():
        talk.view(client, name, definition)
    talk.ok(talk.send(client, [{"relation": "a", "row": {"id": id_, "s": 0, "e": 1}} for id_ in (1, 2)]))


ROWS = [
    ("views/v/rows?overlaps=x,1", "overlaps"),
    ("views/v/rows?overlaps=5", "overlaps"),
    ("views/v/rows?overlaps=1,2,3", "overlaps"),
    ("views/v/rows?limit=x", "limit"),
    ("views/v/rows?limit=-1", "limit"),
    ("views/v/rows?version=x", "version"),
    ("views/v/rows?where.a.nope=1", "where"),
    ("views/v/rows?where.a=1", "where.a"),
    ("views/v/changes?limit=0", "limit"),
    ("views/v/changes?limit=-1", "limit"),
    ("views/v/changes?wait=x", "wait"),
    ("views/v/changes?wait=-1", "wait"),
    ("views/v/changes?snapshot=yes", "snapshot"),
    ("views/v/rows?overlaps=2,1", "overlaps"),
    ("views/v/rows?overlaps.=,", "overlaps."),
    ("views/v/rows?overlaps=7,8&overlaps.=,", "overlaps."),
    ("relations/a/rows?overlaps.=,", "overlaps."),
    ("relations/a/rows?where.=1", "where."),
    ("views/v/rows?overlaps.x=2,1", "overlaps.x"),
    ("views/v/rows?overlaps.y=1,2", "overlaps.y"),
    ("views/v/rows?overlaps.a.x=2,1", "overlaps.a.x"),
    ("views/v/rows?overlaps.a.y=1,2", "overlaps.a.y"),
    ("views/v/rows?overlaps.c.x=1,2", "overlaps.c.x"),
    ("views/v/rows?overlaps=1,2&overlaps.x=1,2", "overlaps"),
    ("views/v/rows?where.a.id=1&where.b.id=1", "where"),
    ("views/v/rows?where.a.s=1", "where"),
    ("views/v/rows?where.c.id=1", "where"),
    ("views/v/rows?where.a.id=x", "where.a.id"),
    ("views/v/rows?where.id=1", "where.id"),
    ("views/keyed/rows?overlaps=1,2", "overlaps"),
    ("views/grouped/rows?overlaps=1,2", "overlaps"),
    ("views/grouped/rows?where.a.id=1", "where"),
    ("views/grouped/rows?where.group.n=1", "where"),
    ("views/grouped/rows?where.group.tag=%22", "where.group.tag"),
    ("views/either/rows?overlaps.a.x=1,2", "overlaps.a.x"),
    ("views/either/rows?where.a.id=1", "where"),
    ("views/v/rows?where=x", "where"),
    ("views/v/rows?columns=x", "columns"),
    ("relations/a/rows?where=x", "where"),
    ("relations/a/rows?columns=id,id", "columns"),
    ("views/v/changes?where=x", "where"),
    ("views/v/changes?columns=", "columns"),
    ("views/v/changes?overlaps.a.x=1,2", "overlaps.a.x"),
    ("views/v/changes?since=x&snapshot=true", "since"),
    ("views/v/changes?until=x", "until"),
    ("views/v/changes?cursor=x", "cursor"),
    ("views/v/changes?unknown=1", "unknown"),
    ("views/v/changes?limit=1&limit=2", "limit"),
    ("views/v/changes?limit=%FF", "limit"),
    ("views/v/changes?limit=x", "limit"),
    ("views/v/changes/end", "since"),
    ("views/v/window?from=-1", "from"),
    ("views/v/window?overlaps.a.x=1", "overlaps.a.x"),
    ("relations/a?x=1", "x"),
    ("views/v/rows?limit=1&lim%FFit=2", "lim%FFit"),
    ("views/v/rows?limit=%FF", "limit"),
    ("views/v/rows?lim%FFit=&limit=1", "lim%FFit"),
    ("views/v/rows?limit=1&limit=2", "limit"),
    ("views/v/rows?unknown=1", "unknown"),
    ("relations/a/rows?where.s=1", "where"),
    ("relations/a/rows?overlaps.y=1,2", "overlaps.y"),
    ("relations/a/rows?overlaps=1,2&overlaps.x=1,2", "overlaps"),
    ("relations/a/rows?overlaps=2,1", "overlaps"),
]


@pytest.mark.parametrize(("path", "parameter"), ROWS)
def test_of_a_query(client: httpx.Client, path: str, parameter: str) -> None:
    counted = [path.replace("/rows?", "/count?")] if path.startswith("views/") and "lim" not in path else []
    for url in (path, *counted):
        problem = talk.problem(client.get(f"/v1/{url}"), 400, "bad-parameter")
        assert problem["parameter"] == parameter and problem["detail"].startswith(f"{parameter}: ")


@pytest.mark.parametrize(
    ("field", "value"), [("source", 1), ("run", "x" * 201), ("epoch", "1"), ("epoch", 2**63), ("reset", 1), ("on_error", "ignore")]
)
def test_of_a_body(client: httpx.Client, field: str, value: Any) -> None:
    body = {"changes": [], "source": "s", "epoch": 1, field: value}
    assert talk.problem(client.post("/v1/changes", json=body), 400, "bad-parameter")["parameter"] == field


@pytest.mark.parametrize(
    ("path", "body", "parameter"),
    [
        ("query", {"sql": "SELECT 1", "limit": 1}, "limit"),
        ("query", {}, "sql"),
        ("query", {"sql": "SELECT 1", "version": True}, "version"),
        ("backup", {"to": "/x"}, "to"),
        ("backup", {}, "target"),
        ("backup", {"target": "/x", "since": 1}, "since"),
        ("views/v/readings", {"part": 1}, "part"),
        ("views/v/readings", {"parts": 0}, "parts"),
        ("views/v/readings", {"where": "x"}, "where"),
        ("views/v/readings", {"columns": []}, "columns"),
        ("views/v/readings", {"overlaps": "1"}, "overlaps"),
        ("views/v/readings", {"overlaps": {"y": "1,2"}}, "overlaps.y"),
        ("relations/a/readings", {"where": "s"}, "where"),
        ("relations/a/readings", {"part": 1}, "part"),
    ],
)
def test_of_a_request(client: httpx.Client, path: str, body: dict[str, Any], parameter: str) -> None:
    problem = talk.problem(client.post(f"/v1/{path}", json=body), 400, "bad-parameter")
    assert problem["parameter"] == parameter and problem["detail"].startswith(f"{parameter}: ")


def test_of_a_cursor_that_was_begun_otherwise(client: httpx.Client) -> None:
    page = client.get("/v1/relations/a/rows?limit=1", headers={"Accept": "application/json"}).json()
    path = f"/v1/relations/a/rows?{urlencode({'cursor': page['next']})}"
    assert talk.problem(client.get(f"{path}&version=0"), 400, "bad-parameter")["parameter"] == "version"
    assert talk.problem(client.get(f"{path}&where.id=1"), 400, "bad-parameter")["parameter"] == "cursor"


def test_every_one_is_made_with_its_parameter() -> None:
    """Each call that makes this problem, in whatever module of the service."""
    assert bad_parameter("limit", "is given twice").extensions == {"parameter": "limit"}
    found = 0
    for path in Path(service.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call).startswith("Problem('bad-parameter'"):
                found += 1
                assert {one.arg for one in call.keywords} & {"parameter", None}, f"{path}:{call.lineno}"
    assert found

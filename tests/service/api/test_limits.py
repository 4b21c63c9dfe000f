"""How many of everything there may be: each refusal, on a real server with small limits."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.end_to_end import talk
from tests.server_process import ServerProcess

LIMITS = {
    "relations": 3, "columns": 4, "views": 3, "aliases": 2, "conditions": 3, "sql": 200, "cursors": 6, "client-cursors": 4, "followers": 2,
    "batch-rows": 20,
}  # fmt: skip
COLUMNS = [{"name": "id", "type": "int64"}, {"name": "lo", "type": "int64"}, {"name": "hi", "type": "int64"}]
RELATION = {"columns": COLUMNS, "key": ["id"], "intervals": {"span": {"start": "lo", "end": "hi"}}}
PAIRS: dict[str, Any] = {"from": {"a": "r", "b": "r"}, "join": [{"overlaps": ["a.span", "b.span"]}], "select": ["a.id as x", "b.id as y"]}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    arguments = [text for name, value in LIMITS.items() for text in (f"--max-{name}", str(value))]
    with ServerProcess(tmp_path_factory.mktemp("limits") / "data", arguments=[*arguments, "--pin-idle", "5"]) as server:
        yield server


@pytest.fixture(scope="module")
def client(small: ServerProcess) -> httpx.Client:
    client = small.client()
    assert client.put("/v1/relations/r", json=RELATION).status_code == 201
    changes = [{"relation": "r", "row": {"id": i, "lo": 0, "hi": 9}} for i in range(10)]
    assert client.post("/v1/changes", json={"changes": changes}).status_code == 200
    assert client.put("/v1/views/pairs", json=PAIRS).status_code in (201, 202)
    while client.get("/v1/views/pairs").json()["state"] != "live":
        time.sleep(0.01)
    return client


def is_problem(response: httpx.Response, status: int, kind: str) -> str:
    problem = response.json()
    assert (response.status_code, problem["type"]) == (status, f"/problems/{kind}"), response.text
    assert status != 429 or response.headers["retry-after"] == "1"
    return str(problem["detail"])


def test_relations(client: httpx.Client) -> None:
    there = len(client.get("/v1/relations").json()["relations"])
    for number in range(there, LIMITS["relations"]):
        assert client.put(f"/v1/relations/more{number}", json=RELATION).status_code == 201
    assert "--max-relations" in is_problem(client.put("/v1/relations/one_more", json=RELATION), 409, "too-many")
    assert client.put("/v1/relations/r", json=RELATION).status_code == 200
    assert client.delete(f"/v1/relations/more{there}").status_code == 204
    assert client.put("/v1/relations/one_more", json=RELATION).status_code == 201


def test_columns_and_intervals(client: httpx.Client) -> None:
    columns = [{"name": f"c{i}", "type": "int64"} for i in range(5)]
    wide = {"columns": columns, "key": ["c0"]}
    assert "--max-columns" in is_problem(client.put("/v1/relations/r", json=wide), 422, "bad-definition")
    many = RELATION | {"intervals": {f"i{i}": {"start": "lo", "end": "hi"} for i in range(5)}}
    assert "intervals" in is_problem(client.put("/v1/relations/r", json=many), 422, "bad-definition")
    within = RELATION | {"intervals": {f"i{i}": {"start": "lo", "end": "hi"} for i in range(4)}}
    is_problem(client.put("/v1/relations/r", json=within), 409, "definition-differs")


def test_views(client: httpx.Client) -> None:
    there = len(client.get("/v1/views").json()["views"])
    for number in range(there, LIMITS["views"]):
        assert client.put(f"/v1/views/further{number}", json=PAIRS).status_code in (201, 202)
    assert "--max-views" in is_problem(client.put("/v1/views/one_further", json=PAIRS), 409, "too-many")
    assert client.put("/v1/views/pairs", json=PAIRS).status_code == 200
    for number in range(there, LIMITS["views"]):
        assert client.delete(f"/v1/views/further{number}").status_code == 204


BOTH = "SELECT a.id AS x, b.id AS y FROM r a JOIN r b ON overlaps(a.span, b.span) AND a.id < b.id"
TOO_LARGE: list[tuple[str, dict[str, Any]]] = [
    ("--max-aliases", PAIRS | {"from": {"a": "r", "b": "r", "c": "r"}}),
    ("--max-aliases", {"sql": "SELECT a.id FROM r a JOIN r b ON a.id = b.id JOIN r c ON b.id = c.id"}),
    ("--max-conditions", PAIRS | {"where": [{"column": "a.id", "op": ">", "value": i} for i in range(3)]}),
    ("--max-conditions", {"sql": BOTH + " WHERE a.id > 1 AND b.id > 2"}),
    ("--max-conditions", {"sql": "SELECT COUNT(*) AS n FROM r HAVING COUNT(*) < 3 AND COUNT(*) <> 1 OR COUNT(*) > 8 AND COUNT(*) <> 9"}),
    ("--max-columns", PAIRS | {"select": [f"a.id as c{i}" for i in range(5)]}),
    ("--max-sql", {"sql": BOTH + " " * 200}),
]


@pytest.mark.parametrize(("setting", "definition"), TOO_LARGE)
def test_large_views(client: httpx.Client, setting: str, definition: dict[str, Any]) -> None:
    kind = "bad-query" if setting == "--max-sql" else "unsupported-query"
    assert setting in is_problem(client.put("/v1/views/large", json=definition), 422, kind)
    assert setting in is_problem(client.post("/v1/explain", json=definition), 422, kind)


@pytest.mark.parametrize("definition", [{"sql": BOTH + " WHERE a.id > 1"}, PAIRS | {"select": [f"a.id as c{i}" for i in range(4)]}])
def test_views_of_the_largest_size(client: httpx.Client, definition: dict[str, Any]) -> None:
    assert client.post("/v1/explain", json=definition).status_code == 200


def _as(media: str, rows: list[dict[str, int]], path: str) -> bytes:
    """These rows in the body of a post to this path."""
    if media == talk.JSON:
        return json.dumps({"changes": [{"relation": "r", "row": row} for row in rows]}).encode()
    if media == talk.JSONL and path == "/v1/changes":
        return b"".join(json.dumps({"relation": "r", "row": row}).encode() + b"\n" for row in rows)
    if media == talk.DEBEZIUM:
        return b"".join(json.dumps({"op": "c", "before": None, "after": row}).encode() + b"\n" for row in rows)
    table = pa.Table.from_pylist(rows)
    return talk.arrow_bytes(table, "r") if media == talk.ARROW else talk.encode_table(table, media)


@pytest.mark.parametrize(
    ("path", "media"),
    [
        *(("/v1/changes", media) for media in (talk.JSON, talk.JSONL, talk.ARROW)),
        *(("/v1/relations/r/changes", media) for media in (talk.JSONL, talk.CSV, talk.ARROW, talk.PARQUET, talk.DEBEZIUM)),
    ],
)
def test_rows_of_a_batch(client: httpx.Client, path: str, media: str) -> None:
    """In every format; the job behind Kafka sends Arrow. The answer says how long the writer took."""
    most = LIMITS["batch-rows"]
    rows = [{"id": i, "lo": 0, "hi": 9} for i in range(most + 1)]
    before = client.get("/v1/relations/r").json()
    answer = client.post(path, content=_as(media, rows, path), headers={"content-type": media})
    assert f"more than {most} rows" in is_problem(answer, 413, "body-too-large")
    assert client.get("/v1/relations/r").json() == before
    answer = client.post(path, content=_as(media, rows[:10], path), headers={"content-type": media})
    assert answer.status_code == 200 and answer.json()["applied"] == 10
    name, _, milliseconds = answer.headers["server-timing"].partition(";dur=")
    assert name == "turn" and 0 < float(milliseconds) < 60_000


@pytest.mark.parametrize("name", ["a" * 64, "a" * 4000])
def test_lengths_of_names(client: httpx.Client, name: str) -> None:
    for path, definition in (("relations", RELATION), ("views", PAIRS)):
        is_problem(client.put(f"/v1/{path}/{name}", json=definition), 422, "bad-definition")
    named = RELATION | {"columns": [*COLUMNS, {"name": name, "type": "bool"}]}
    is_problem(client.put("/v1/relations/r", json=named), 422, "bad-definition")
    is_problem(client.put("/v1/relations/r", json=RELATION | {"intervals": {name: {"at": "lo"}}}), 422, "bad-definition")
    is_problem(client.post("/v1/explain", json=PAIRS | {"from": {name: "r", "b": "r"}}), 422, "bad-definition")
    is_problem(client.post("/v1/changes", params={"source": name * 4, "epoch": 1}, json={"changes": []}), 400, "bad-parameter")


def test_followers(small: ServerProcess, client: httpx.Client) -> None:
    with ExitStack() as stack:
        for _ in range(LIMITS["followers"]):
            follower = stack.enter_context(socket.create_connection(("127.0.0.1", small.port)))
            follower.sendall(b"GET /v1/views/pairs/changes?snapshot=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert follower.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert "--max-followers" in is_problem(client.get("/v1/views/pairs/changes?wait=0"), 429, "too-busy")
        is_problem(client.get("/v1/views/none/changes?wait=0"), 404, "not-found")
    while client.get("/v1/views/pairs/changes?wait=0").status_code != 200:
        time.sleep(0.01)
    for _ in range(2 * LIMITS["followers"]):  # those that are refused are not counted
        is_problem(client.get("/v1/views/pairs/changes?since=x"), 400, "bad-token")
    assert client.get("/v1/views/pairs/changes?wait=0").status_code == 200


def page(client: httpx.Client, **query: Any) -> httpx.Response:
    return client.get("/v1/views/pairs/rows", params={"limit": 1, **query}, headers={"Accept": "application/json"})


def change(client: httpx.Client) -> None:
    """Another version."""
    assert client.post("/v1/changes", json={"changes": []}).status_code == 200


def figures(client: httpx.Client) -> dict[str, int]:
    found: dict[str, int] = client.get("/v1/status").json()["figures"]
    return found


def test_cursors(client: httpx.Client) -> None:
    """A version is kept for each page for a while, as the interface promises: for a bounded number of pages."""
    while figures(client)["cursors"]:
        time.sleep(0.05)
    first = [page(client).json()["next"] for _ in range(20)]
    assert figures(client)["cursors"] == figures(client)["pins"] == 1, "the same page of the same version is one cursor"
    assert len(set(first)) == 1
    pages = [first[0]]
    for _ in range(LIMITS["client-cursors"] - 1):
        change(client)
        pages.append(page(client).json()["next"])
    change(client)
    assert "--max-client-cursors" in is_problem(page(client), 429, "too-busy")
    assert figures(client)["pins"] == figures(client)["cursors"] == LIMITS["client-cursors"]
    assert page(client, limit=100).json()["next"] is None, "a page that is the last needs none"
    for _ in range(2):
        assert len(page(client, cursor=pages[1], limit=100).json()["rows"]) == 99, "a cursor may be used again"
    new = page(client)
    assert new.status_code == 200, "the one from which the client has gone on makes room"
    is_problem(page(client, cursor=pages[1]), 410, "snapshot-expired")
    assert page(client, cursor=pages[0]).json()["version"] < new.json()["version"]


def test_pages_one_after_the_other_need_few_cursors(client: httpx.Client) -> None:
    while figures(client)["cursors"]:
        time.sleep(0.05)
    found, cursor = 0, None
    while True:
        answer = page(client, limit=3, **({} if cursor is None else {"cursor": cursor})).json()
        found += len(answer["rows"])
        cursor = answer["next"]
        if cursor is None:
            break
    assert found == 100 and figures(client)["cursors"] <= LIMITS["client-cursors"]


def test_cursors_of_all_clients(small: ServerProcess, client: httpx.Client) -> None:
    while figures(client)["cursors"]:
        time.sleep(0.05)
    others = [httpx.Client(base_url=small.url, transport=httpx.HTTPTransport(local_address=f"127.0.0.{i}")) for i in (2, 3)]
    try:
        for other in others:
            for _ in range(LIMITS["cursors"] // 2):
                assert page(other).status_code == 200
                change(client)
        assert "--max-cursors" in is_problem(page(client), 429, "too-busy")
        while figures(client)["cursors"]:
            time.sleep(0.05)
        assert page(client).status_code == 200, "they expire by themselves"
    finally:
        for other in others:
            other.close()

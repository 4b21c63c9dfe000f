"""`order` of `GET …/rows`: the first rows of the whole view, whatever its shape."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import httpx
import pyarrow as pa
import pytest

import livejoin
from livejoin.cli import main
from tests.end_to_end import talk
from tests.server_process import ServerProcess

VIEWS = {
    "join": "SELECT a.id, b.id AS other, b.note FROM {} a JOIN {} b ON a.room = b.room AND overlaps(a.stay, b.stay)",
    "groups": "SELECT room, COUNT(*), MAX(s) FROM {} GROUP BY room",
    "keys": "SELECT DISTINCT id, room FROM {}",
    "union": "SELECT id AS x, room FROM {} UNION SELECT s, room FROM {}",
    "union_all": "SELECT id AS x, room FROM {} UNION ALL SELECT s, 'other' FROM {}",
    "latest": "SELECT DISTINCT ON (room) id, room FROM {} ORDER BY room, s DESC",
    "left": "SELECT a.id, b.s FROM {} a LEFT JOIN {} b ON a.s = b.id",
    "coverage": "SELECT room, coverage(stay) AS busy FROM {} GROUP BY room",
    "gaps": "SELECT a.id, gaps(a.stay, b.stay) AS free FROM {} a LEFT JOIN {} b ON a.id = b.s AND overlaps(a.stay, b.stay)",
}


@pytest.fixture(scope="module")
def client(shared_server: ServerProcess) -> httpx.Client:
    client = shared_server.client()
    columns = [
        {"name": "id", "type": "int64"}, {"name": "room", "type": "string"}, {"name": "s", "type": "int64"}, {"name": "e", "type": "int64"},
        {"name": "note", "type": "string", "nullable": True},
    ]  # fmt: skip
    talk.define(client, "ordered", {"columns": columns, "key": ["id"], "intervals": {"stay": {"start": "s", "end": "e"}}})
    rows = [
        {"id": n, "room": "ABCDE"[n % 5], "s": n * 7 % 40, "e": n * 7 % 40 + 1 + n % 9, "note": None if n % 3 else f"n{n % 11}"}
        for n in range(200)
    ]
    body = "".join(json.dumps({"relation": "ordered", "op": "upsert", "row": row}) + "\n" for row in rows)
    talk.ok(client.post("/v1/changes", content=body, headers={"Content-Type": "application/jsonl"}))
    for name, sql in VIEWS.items():
        talk.view(client, f"ordered_{name}", sql.replace("{}", "ordered"))
    return client


def rows_of(client: httpx.Client, path: str, **params: Any) -> tuple[list[dict[str, Any]], httpx.Headers]:
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()], answer.headers


@pytest.mark.parametrize("name", VIEWS)
def test_of_each_shape(client: httpx.Client, name: str) -> None:
    path = f"/v1/views/ordered_{name}/rows"
    everything, _ = rows_of(client, path)
    assert len(everything) >= 5
    columns = list(everything[0])
    order = f"{columns[-1]} desc,{','.join(columns)}"

    def key(row: dict[str, Any]) -> Any:
        last = row[columns[-1]]
        negated = [-value for value in last.encode()] + [1] if isinstance(last, str) else [-(last or 0)]
        return (last is not None, negated, [(row[one] is None, row[one] if row[one] is not None else 0) for one in columns])

    for limit in (1, 3, 10_000):
        found, headers = rows_of(client, path, order=order, limit=limit)
        assert found == sorted(everything, key=key)[:limit]
        assert headers["Livejoin-Rows-Read"] == str(len(everything)) and "Link" not in headers


def test_formats_filters_and_versions(client: httpx.Client) -> None:
    path, params = "/v1/views/ordered_join/rows", {"order": "other desc, id", "limit": "4"}
    wanted, _ = rows_of(client, path, **params)
    page = talk.ok(client.get(path, params=params, headers={"Accept": talk.JSON}))
    assert page["rows"] == wanted and page["next"] is None
    content = client.get(path, params=params, headers={"Accept": talk.ARROW}).content
    assert pa.ipc.open_stream(content).read_all().to_pylist() == wanted
    text = client.get(path, params=params, headers={"Accept": "text/csv"}).text
    assert [int(row["other"]) for row in csv.DictReader(io.StringIO(text))] == [row["other"] for row in wanted]
    events = client.get(path, params=params, headers={"Accept": "text/event-stream"}).text
    assert [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")][:4] == wanted
    some, headers = rows_of(client, path, **params | {"where.a.id": "7"})
    others = [row["other"] for row in some]
    assert some and all(row["id"] == 7 for row in some) and others == sorted(others, reverse=True)
    assert int(headers["Livejoin-Rows-Read"]) < 200
    assert [row["id"] for row in rows_of(client, "/v1/relations/ordered/rows", order="note nulls first,id desc", limit=2)[0]] == [199, 197]
    held = talk.ok(client.get(path, params={"limit": 1}, headers={"Accept": talk.JSON}))
    change = {"relation": "ordered", "op": "delete", "row": {"id": wanted[0]["other"]}}
    talk.ok(client.post("/v1/changes", content=json.dumps(change), headers={"Content-Type": "application/jsonl"}))
    assert rows_of(client, path, **params, version=held["version"])[0] == wanted != rows_of(client, path, **params)[0]


@pytest.mark.parametrize(
    ("params", "parameter", "says"),
    [
        ({"order": "id"}, "limit", "order returns the first rows: add limit=n, at most 10000"),
        ({"order": "id", "limit": 10_001}, "limit", "with order at most 10000, not 10001"),
        ({"order": "id", "limit": 3, "cursor": "x"}, "cursor", "order has no pages"),
        ({"order": "ids desc", "limit": 3}, "order", "there is no column 'ids'; did you mean id?"),
        ({"order": "ids desc", "limit": 0}, "order", "there is no column 'ids'; did you mean id?"),
    ],
)
def test_what_is_refused(client: httpx.Client, params: dict[str, Any], parameter: str, says: str) -> None:
    problem = talk.problem(client.get("/v1/views/ordered_join/rows", params=params), 400, "bad-parameter")
    assert problem["parameter"] == parameter and says in problem["detail"]


def test_the_client_and_the_command(shared_server: ServerProcess, client: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    with livejoin.connect(shared_server.url) as lj:
        view = lj.view("ordered_keys")
        ids = [row["id"] for row in view.rows(order="room desc, id", limit=3)]
        assert ids == [4, 9, 14] == view.to_arrow(order="room desc, id", limit=3).column("id").to_pylist()
    assert main(["rows", "ordered_keys", "--order", "room desc, id", "--limit", "2", "--url", shared_server.url]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [4, 9]
    assert main(["rows", "ordered_keys", "--order", "id", "--url", shared_server.url]) == 2
    assert "--order needs --limit N" in capsys.readouterr().err

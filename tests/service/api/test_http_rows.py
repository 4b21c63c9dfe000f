"""Views, rows and counts over HTTP, against a real server; brute force says what is right."""

from __future__ import annotations

import csv
import io
import json
import random
import socket
import time
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.end_to_end import talk
from tests.server_process import ServerProcess

SEED = 20261120
Rows = list[dict[str, Any]]


def definition(endpoint: str = "int64") -> dict[str, Any]:
    columns = [
        {"name": "id", "type": "int64"},
        {"name": "room", "type": "string"},
        {"name": "lo", "type": endpoint},
        {"name": "hi", "type": endpoint, "nullable": True},
    ]
    return {"columns": columns, "key": ["id"], "intervals": {"span": {"start": "lo", "end": "hi"}}}


def made(random_: random.Random, count: int) -> Rows:
    rows = []
    for i in range(count):
        lo = random_.randrange(1000)
        hi = None if i % 20 == 0 else lo + 1 + random_.randrange(60)
        rows.append({"id": i, "room": random_.choice("ABC"), "lo": lo, "hi": hi})
    return rows


def meet(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (b["hi"] is None or a["lo"] < b["hi"]) and (a["hi"] is None or b["lo"] < a["hi"])


class Loaded:
    """Two relations and a view of them on a server, and the rows that it must have."""

    def __init__(self, server: ServerProcess, name: str, count: int) -> None:
        print(f"seed {SEED}")
        self.client = server.client()
        self.view = name
        random_ = random.Random(SEED)
        self.left, self.right = made(random_, count), made(random_, count)
        for relation, rows in ((f"{name}_l", self.left), (f"{name}_r", self.right)):
            assert self.client.put(f"/v1/relations/{relation}", json=definition()).status_code == 201
            body = "".join(json.dumps(row) + "\n" for row in rows)
            headers = {"Content-Type": "application/jsonl"}
            assert self.client.post(f"/v1/relations/{relation}/changes", content=body, headers=headers).status_code == 200
        self.definition = {
            "from": {"l": f"{name}_l", "r": f"{name}_r"},
            "join": [{"equal": ["l.room", "r.room"]}, {"overlaps": ["l.span", "r.span"]}],
            "select": ["l.id as x", "r.id as y"],
        }
        response = self.client.put(f"/v1/views/{name}", json=self.definition)
        assert response.status_code in (201, 202), response.text
        while self.client.get(f"/v1/views/{name}").json()["state"] == "building":
            time.sleep(0.01)
        self.pairs = {(a["id"], b["id"]) for a in self.left for b in self.right if a["room"] == b["room"] and meet(a, b)}

    def get(self, query: str = "", accept: str = "application/jsonl", **more: Any) -> httpx.Response:
        return self.client.get(f"/v1/views/{self.view}/rows{query}", headers={"Accept": accept}, **more)


@pytest.fixture(scope="module")
def loaded(shared_server: ServerProcess) -> Loaded:
    return Loaded(shared_server, "spans", 600)


def pairs(rows: Rows) -> list[tuple[int, int]]:
    return [(int(row["x"]), int(row["y"])) for row in rows]


def lines(text: str) -> Rows:
    return [json.loads(line) for line in text.splitlines()]


def is_problem(response: httpx.Response, kind: str, status: int) -> dict[str, Any]:
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json"), response.text
    body: dict[str, Any] = response.json()
    assert body["type"] == f"/problems/{kind}"
    return body


def test_the_view(loaded: Loaded) -> None:
    at = f"/v1/views/{loaded.view}"
    shown = loaded.client.get(at).json()
    assert shown["state"] == "live" and shown["empty"] is False and shown["definition"] == loaded.definition
    assert shown["plan"]["algorithm"] == "interval-tree" and shown["plan"]["guarantee"] == "strict"
    assert set(shown["plan"]) == {"class", "algorithm", "theorem", "guarantee", "bounds", "order", "notes"}
    assert shown["statistics"]["intervals"] == 1200 and shown["statistics"]["bytes"] > 0
    assert set(shown["statistics"]["update_seconds"]) == {"p50", "p99"} and "max" in shown["statistics"]["delay_steps"]
    assert loaded.client.put(at, json=loaded.definition).status_code == 200
    is_problem(loaded.client.put(at, json=loaded.definition | {"select": ["l.id as x"]}), "definition-differs", 409)
    assert loaded.view in [view["name"] for view in loaded.client.get("/v1/views").json()["views"]]


def test_explain(loaded: Loaded) -> None:
    explained = loaded.client.post("/v1/explain", json=loaded.definition).json()
    assert explained["plan"]["algorithm"] == "interval-tree"
    assert all(set(plan) == set(explained["plan"]) for plan in explained["alternatives"])
    loaded.client.get(f"/v1/views/{loaded.view}/rows")
    shown = loaded.client.get(f"/v1/views/{loaded.view}").json()["statistics"]
    assert explained["measured"][loaded.view].keys() == shown.keys() and shown["steps_per_row"] > 0
    other = loaded.client.post("/v1/explain", json=loaded.definition | {"algorithm": "nested-loop"}).json()
    assert set(other) == {"plan", "alternatives"} and sorted(other["plan"]["order"]) == sorted(explained["plan"]["order"])


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"sql": "SELECT * FROM"}, "bad-query"),
        ({"sql": "SELECT * FROM nobody a JOIN nobody b ON overlaps(a.x, b.x)"}, "unknown-relation"),
        ({"sql": "SELECT l.none FROM spans_l l JOIN spans_r r ON overlaps(l.span, r.span)"}, "unknown-column"),
        ({"sql": "SELECT l.id FROM spans_l l LEFT JOIN spans_r r ON TRUE"}, "unsupported-query"),
        ({"from": {}}, "bad-definition"),
        ({"form": {"a": "spans_l"}}, "bad-definition"),
    ],
)
def test_refused_definitions(loaded: Loaded, data: dict[str, Any], kind: str) -> None:
    is_problem(loaded.client.put("/v1/views/never", json=data), kind, 422)
    is_problem(loaded.client.post("/v1/explain", json=data), kind, 422)
    is_problem(loaded.client.get("/v1/views/never"), "not-found", 404)


def test_every_media_type_has_all_rows(loaded: Loaded) -> None:
    jsonl = loaded.get()
    assert jsonl.headers["content-type"] == "application/jsonl"
    assert loaded.client.get(f"/v1/views/{loaded.view}/rows").content == jsonl.content
    found = pairs(lines(jsonl.text))
    assert len(found) == len(set(found)) and set(found) == loaded.pairs
    assert jsonl.headers["livejoin-empty"] == "false" and int(jsonl.headers["livejoin-version"]) >= 2 and "link" not in jsonl.headers

    page = loaded.get(f"?limit={len(found)}", "application/json").json()
    assert pairs(page["rows"]) == found and page["next"] is None

    text = loaded.get(accept="text/csv")
    assert text.headers["content-type"].startswith("text/csv")
    assert pairs(list(csv.DictReader(io.StringIO(text.text)))) == found

    arrow = loaded.get(accept="application/vnd.apache.arrow.stream")
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert list(zip(table["x"].to_pylist(), table["y"].to_pylist(), strict=True)) == found

    events = loaded.get(accept="text/event-stream").text.strip().split("\n\n")
    assert events[-1].startswith("event: end\n")
    assert all(event.startswith("event: row\ndata: ") for event in events[:-1])
    assert pairs([json.loads(event.split("data: ", 1)[1]) for event in events[:-1]]) == found


def test_not_acceptable(loaded: Loaded) -> None:
    assert "text/csv" in is_problem(loaded.get(accept="image/png"), "not-acceptable", 406)["available"]
    is_problem(loaded.client.get(f"/v1/views/{loaded.view}/changes", headers={"Accept": "text/csv"}), "not-acceptable", 406)


@pytest.mark.parametrize("size", [1000, 1007])
def test_pages_follow_one_another(loaded: Loaded, size: int) -> None:
    """At one version, while the view changes."""
    whole = pairs(lines(loaded.get().text))
    found: list[tuple[int, int]] = []
    response = loaded.get(f"?limit={size}")
    while True:
        found += pairs(lines(response.text))
        if "next" not in response.links:
            break
        changes = [{"relation": f"{loaded.view}_l", "row": {"id": 9999, "room": "A", "lo": 0, "hi": None}}]
        assert loaded.client.post("/v1/changes", json={"changes": changes}).status_code == 200
        version = response.headers["livejoin-version"]
        response = loaded.client.get(response.links["next"]["url"])
        assert response.headers["livejoin-version"] == version
    assert found == whole
    changes = [{"relation": f"{loaded.view}_l", "op": "delete", "key": {"id": 9999}}]
    assert loaded.client.post("/v1/changes", json={"changes": changes}).status_code == 200


def test_a_page_of_json_by_default_and_its_cursor(loaded: Loaded) -> None:
    page = loaded.get(accept="application/json").json()
    assert len(page["rows"]) == 1000
    count = loaded.client.get(f"/v1/views/{loaded.view}/count").json()
    assert count == {"version": page["version"], "count": len(loaded.pairs)}
    pinned = loaded.client.get(f"/v1/views/{loaded.view}/count", params={"version": page["version"]})
    assert pinned.json() == count
    rest = loaded.get(f"?limit={len(loaded.pairs)}&cursor={page['next']}", "application/json").json()
    assert len(rest["rows"]) == len(loaded.pairs) - 1000 and rest["next"] is None
    exact = loaded.get(f"?limit={len(loaded.pairs) - 1000}&cursor={page['next']}")
    assert "link" not in exact.headers and len(lines(exact.text)) == len(loaded.pairs) - 1000


def test_version_and_emptiness_without_rows(loaded: Loaded) -> None:
    at = f"/v1/views/{loaded.view}/rows"
    for response in (loaded.client.head(at), loaded.get("?limit=0")):
        assert response.status_code == 200 and response.content == b""
        assert response.headers["livejoin-empty"] == "false" and response.headers["livejoin-version"].isdigit()
    assert loaded.get("?limit=0", "application/json").json()["rows"] == []
    assert loaded.get("?limit=0&where.l.id=987654").headers["livejoin-empty"] == "true"
    assert loaded.get("?where.l.id=987654").text == ""


def test_windows(loaded: Loaded) -> None:
    left, right = {row["id"]: row for row in loaded.left}, {row["id"]: row for row in loaded.right}
    for low, high in ((100, 140), (None, 30), (900, None), (None, None), (500, 500)):
        window = {"lo": -(2**40) if low is None else low, "hi": None if high is None else high + 1}  # the window is closed
        wanted = {(x, y) for x, y in loaded.pairs if meet(left[x], window) and meet(right[y], window)}
        query = f"?overlaps={'' if low is None else low},{'' if high is None else high}"
        assert set(pairs(lines(loaded.get(query).text))) == wanted
        count = loaded.client.get(f"/v1/views/{loaded.view}/count{query}").json()["count"]
        assert count == len(wanted)


def test_look_ups(loaded: Loaded) -> None:
    for row in loaded.left[::97]:
        wanted = {pair for pair in loaded.pairs if pair[0] == row["id"]}
        assert set(pairs(lines(loaded.get(f"?where.l.id={row['id']}").text))) == wanted
    rooms = {row["id"]: row["room"] for row in loaded.left}
    wanted = {pair for pair in loaded.pairs if rooms[pair[0]] == "B"}
    assert set(pairs(lines(loaded.get("?where.r.room=B").text))) == wanted


@pytest.mark.parametrize(
    ("query", "kind", "status"),
    [
        ("?limit=-1", "bad-parameter", 400),
        ("?limits=1", "bad-parameter", 400),
        ("?overlaps=1", "bad-parameter", 400),
        ("?overlaps=x,y", "bad-parameter", 400),
        ("?where.l.lo=1", "bad-parameter", 400),
        ("?where.z.id=1", "bad-parameter", 400),
        ("?where.l.id=x", "bad-parameter", 400),
        ("?where.l=1", "bad-parameter", 400),
        ("?cursor=garbage", "bad-cursor", 400),
        ("?cursor=", "bad-cursor", 400),
        ("?version=0", "snapshot-expired", 410),
        ("?version=987654321", "snapshot-expired", 410),
        ("?overlaps.nothing=1,2", "bad-parameter", 400),
    ],
)
def test_refused_parameters(loaded: Loaded, query: str, kind: str, status: int) -> None:
    is_problem(loaded.get(query), kind, status)


def test_cursors_of_others(loaded: Loaded) -> None:
    other = loaded.client.get(f"/v1/relations/{loaded.view}_l/rows", params={"limit": 1}, headers={"Accept": "application/json"}).json()
    is_problem(loaded.get(f"?cursor={other['next']}"), "bad-cursor", 400)
    mine = loaded.get("?limit=1", "application/json").json()["next"]
    is_problem(loaded.client.get(f"/v1/relations/{loaded.view}_l/rows?cursor={mine}"), "bad-cursor", 400)
    for place in (0, len(mine) // 2):
        forged = mine[:place] + ("A" if mine[place] != "A" else "B") + mine[place + 1 :]
        is_problem(loaded.get(f"?cursor={forged}"), "bad-cursor", 400)


def test_rows_of_a_relation(loaded: Loaded) -> None:
    at = f"/v1/relations/{loaded.view}_r/rows"
    found: Rows = []
    response = loaded.client.get(at, params={"limit": 250})
    found += lines(response.text)
    while "next" in response.links:
        response = loaded.client.get(response.links["next"]["url"])
        found += lines(response.text)
    assert sorted(found, key=lambda row: row["id"]) == loaded.right
    is_problem(loaded.client.get(at, params={"overlaps.nothing": "1,2"}), "bad-parameter", 400)


def test_a_page_beyond_what_is_held(shared_server: ServerProcess) -> None:
    """300 * 300 pairs: the Link of a page that is streamed is as right as that of one that was read whole."""
    client = shared_server.client()
    assert client.put("/v1/relations/dense", json=definition()).status_code == 201
    changes = [{"relation": "dense", "row": {"id": i, "room": "A", "lo": 0, "hi": None}} for i in range(300)]
    assert client.post("/v1/changes", json={"changes": changes}).status_code == 200
    view = {"from": {"a": "dense", "b": "dense"}, "join": [{"overlaps": ["a.span", "b.span"]}], "select": ["a.id as x", "b.id as y"]}
    talk.view(client, "dense_pairs", view)
    whole = client.get("/v1/views/dense_pairs/rows").content.splitlines()
    assert len(whole) == len(set(whole)) == 90_000
    first = client.get("/v1/views/dense_pairs/rows?limit=70000")
    rest = client.get(first.links["next"]["url"])
    assert first.content.splitlines() + rest.content.splitlines() == whole and "next" not in rest.links
    assert "next" not in client.get("/v1/views/dense_pairs/rows?limit=90000").links


def test_a_client_that_leaves_gives_its_pin_back(server: ServerProcess) -> None:
    client = server.client()
    assert client.put("/v1/relations/dense", json=definition()).status_code == 201
    rows = "".join(json.dumps({"id": i, "room": "A" * 20, "lo": 0, "hi": None}) + "\n" for i in range(2000))
    headers = {"Content-Type": "application/jsonl"}
    assert client.post("/v1/relations/dense/changes", content=rows, headers=headers).status_code == 200
    view = {"from": {"a": "dense", "b": "dense"}, "join": [{"overlaps": ["a.span", "b.span"]}]}
    talk.live(client.put("/v1/views/pairs", json=view), client, "pairs")
    with socket.create_connection(("127.0.0.1", server.port)) as reader:
        reader.sendall(b"GET /v1/views/pairs/rows HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reader.recv(1000).startswith(b"HTTP/1.1 200")
        assert client.get("/v1/status").json()["figures"]["pins"] == 1
    while client.get("/v1/status").json()["figures"]["pins"]:
        time.sleep(0.01)  # the test's time limit ends this if the pin stays

"""Views of many rows over HTTP, against brute force; the contract's tests are in `tests/end_to_end`."""

from __future__ import annotations

import csv
import io
import json
import random
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




def test_a_view_that_is_looked_at_is_not_read(shared_server: ServerProcess) -> None:
    """Seen: each GET of a view by `intersect` added 201 look-ups to its statistics."""
    client = shared_server.client()
    for at, relation in enumerate(("looked_l", "looked_r")):
        client.put(f"/v1/relations/{relation}", json={"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}).raise_for_status()
        body = "".join(f'{{"id": {2 * number + at}}}\n' for number in range(100))
        headers = {"Content-Type": "application/jsonl"}
        client.post(f"/v1/relations/{relation}/changes", content=body, headers=headers).raise_for_status()
    view = {"sql": "SELECT l.id FROM looked_l l JOIN looked_r r ON l.id = r.id", "algorithm": "intersect"}
    talk.view(client, "looked", view)
    assert client.get("/v1/views/looked/rows").text == ""
    first, second, explained = (
        client.get("/v1/views/looked").json(), client.get("/v1/views/looked").json(), client.post("/v1/explain", json=view).json()
    )  # fmt: skip
    assert first["empty"] is second["empty"] is True and first["statistics"]["counters"]["lookups"] > 100
    assert first["statistics"] == second["statistics"] and explained["measured"]["looked"]["counters"] == first["statistics"]["counters"]

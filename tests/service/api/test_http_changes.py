"""Relations and changes over HTTP, against a real server."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.end_to_end import talk
from tests.server_process import ServerProcess

NUMBERS = itertools.count(1)
DEFINITION: dict[str, Any] = {
    "columns": [
        {"name": "id", "type": "int64"},
        {"name": "room", "type": "string"},
        {"name": "starts", "type": "timestamp"},
        {"name": "ends", "type": "timestamp", "nullable": True},
    ],
    "key": ["id"],
    "intervals": {"stay": {"start": "starts", "end": "ends"}},
}
ROW = {"id": 1, "room": "A", "starts": "2026-01-01T12:00:00Z", "ends": None}


@pytest.fixture
def client(shared_server: ServerProcess) -> httpx.Client:
    return shared_server.client()


@pytest.fixture
def name(client: httpx.Client) -> str:
    """A fresh relation."""
    made = f"bookings_{next(NUMBERS)}"
    assert client.put(f"/v1/relations/{made}", json=DEFINITION).status_code == 201
    return made


def is_problem(response: httpx.Response, kind: str, status: int) -> dict[str, Any]:
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json"), response.text
    body: dict[str, Any] = response.json()
    assert body["type"] == f"/problems/{kind}" and body["status"] == status and body["title"] and body["detail"]
    return body


def rows_of(client: httpx.Client, name: str) -> list[dict[str, Any]]:
    text = client.get(f"/v1/relations/{name}/rows").text
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda row: row["id"])


def test_relations(client: httpx.Client, name: str) -> None:
    at = f"/v1/relations/{name}"
    assert client.put(at, json=DEFINITION | {"intervals": {"stay": {"start": "starts", "end": "ends", "bounds": "[)"}}}).status_code == 200
    is_problem(client.put(at, json=DEFINITION | {"key": ["room"]}), "definition-differs", 409)
    shown = client.get(at).json()
    assert shown["name"] == name and shown["rows"] == 0 and shown["key"] == ["id"]
    assert shown["columns"][0] == {"name": "id", "type": "int64", "nullable": False}
    assert shown in client.get("/v1/relations").json()["relations"]
    assert client.delete(at).status_code == 204
    is_problem(client.delete(at), "not-found", 404)


def test_a_relation_in_use_stays(client: httpx.Client, name: str) -> None:
    view = f"view_of_{name}"
    definition = {"from": {"a": name, "b": name}, "join": [{"overlaps": ["a.stay", "b.stay"]}]}
    talk.view(client, view, definition)
    assert is_problem(client.delete(f"/v1/relations/{name}"), "relation-in-use", 409)["views"] == [view]
    assert client.delete(f"/v1/views/{view}").status_code == 204
    assert client.delete(f"/v1/relations/{name}").status_code == 204


@pytest.mark.parametrize(
    "change",
    [
        {"key": []},
        {"key": ["nobody"]},
        {"columns": []},
        {"columns": "id"},
        {"intervals": {"stay": {"start": "room", "end": "ends"}}},
        {"intervals": {"id": {"start": "starts", "end": "ends"}}},
        {"unknown": 1},
    ],
)
def test_bad_definitions(client: httpx.Client, change: dict[str, Any]) -> None:
    is_problem(client.put("/v1/relations/never", json=DEFINITION | change), "bad-definition", 422)


def test_a_batch(client: httpx.Client, name: str) -> None:
    version = client.get("/v1/status").json()["version"]
    changes = [
        {"relation": name, "op": "insert", "row": ROW},
        {"relation": name, "row": ROW | {"room": "B"}},
        {"relation": name, "op": "delete", "key": {"id": 9}},
    ]
    receipt = client.post("/v1/changes", json={"changes": changes}).json()
    assert receipt == {"version": version + 1, "applied": 2, "ignored": 1, "skipped_count": 0, "skipped": [], "duplicate": False}
    assert rows_of(client, name) == [ROW | {"room": "B"}]
    assert client.get(f"/v1/relations/{name}").json()["rows"] == 1


def arrow(rows: list[dict[str, Any]], metadata: dict[str, str] | None = None) -> bytes:
    schema = pa.schema(
        [("id", pa.int64()), ("room", pa.utf8()), ("starts", pa.timestamp("us", "UTC")), ("ends", pa.timestamp("us", "UTC"))],
        metadata=metadata,
    )
    table = pa.Table.from_pylist([row | {"starts": 1767268800000000} for row in rows], schema)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.ipc.open_stream(arrow(rows)).read_all(), sink)
    return sink.getvalue()


CSV = b"id,room,starts,ends\n1,A,2026-01-01T12:00:00Z,\n"
ENVELOPE = {"before": None, "after": {"id": 1, "room": "A", "starts": 1767268800000000, "ends": None}, "op": "c"}
BODIES = {
    "application/jsonl": json.dumps(ROW).encode() + b"\n",
    "application/x-ndjson": json.dumps(ROW).encode(),
    "text/csv": CSV,
    "application/vnd.apache.arrow.stream": arrow([ROW]),
    "application/vnd.apache.parquet": parquet([ROW]),
    "application/vnd.debezium+jsonl": json.dumps(ENVELOPE).encode() + b"\n",
}
BROKEN = {
    "application/jsonl": b'{"id": 1,\n',
    "application/x-ndjson": b"nonsense\n",
    "text/csv": b"id,room\n1,A,3,4,5\n",
    "application/vnd.apache.arrow.stream": arrow([ROW])[:-40],
    "application/vnd.apache.parquet": parquet([ROW])[:-10],
    "application/vnd.debezium+jsonl": b'{"op": "c", \n',
}


@pytest.mark.parametrize("kind", BODIES)
def test_each_media_type_of_a_relation(client: httpx.Client, name: str, kind: str) -> None:
    at, headers = f"/v1/relations/{name}/changes", {"Content-Type": kind}
    is_problem(client.post(at, content=BROKEN[kind], headers=headers), "malformed-body", 400)
    assert rows_of(client, name) == []
    receipt = client.post(at, content=BODIES[kind], headers=headers)
    assert receipt.status_code == 200, receipt.text
    assert receipt.json()["applied"] == 1 and rows_of(client, name) == [ROW]


@pytest.mark.parametrize("kind", ["application/json", "application/jsonl", "application/x-ndjson", "application/vnd.apache.arrow.stream"])
def test_each_media_type_of_a_batch(client: httpx.Client, name: str, kind: str) -> None:
    change = {"relation": name, "row": ROW}
    if kind == "application/json":
        good, broken = json.dumps({"changes": [change]}).encode(), b'{"changes": ['
    elif kind.endswith("arrow.stream"):
        good = arrow([ROW], {"livejoin.relation": name})
        broken = good[:-40]
    else:
        good, broken = json.dumps(change).encode() + b"\n", json.dumps(change).encode()[:-3]
    headers = {"Content-Type": kind}
    is_problem(client.post("/v1/changes", content=broken, headers=headers), "malformed-body", 400)
    receipt = client.post("/v1/changes", content=good, headers=headers)
    assert receipt.json()["applied"] == 1 and rows_of(client, name) == [ROW]


def test_media_types_that_are_not_read(client: httpx.Client, name: str) -> None:
    for at, kind in (("/v1/changes", "text/csv"), (f"/v1/relations/{name}/changes", "text/plain"), ("/v1/changes", "")):
        body = is_problem(client.post(at, content=b"x", headers={"Content-Type": kind}), "unsupported-media-type", 415)
        assert "application/jsonl" in body["supported"] and "set it to application/json" in body["detail"]
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    is_problem(client.post("/v1/changes", content=b"x", headers=headers), "unsupported-media-type", 415)


def test_bad_rows(client: httpx.Client, name: str) -> None:
    changes = [{"relation": name, "row": ROW | {"id": i}} for i in range(3)]
    changes[1]["row"]["room"] = 7
    body = is_problem(client.post("/v1/changes", json={"changes": changes}), "bad-rows", 422)
    assert body["error_count"] == 1 and [(e["index"], e["column"]) for e in body["errors"]] == [(1, "room")]
    assert rows_of(client, name) == []
    receipt = client.post("/v1/changes", params={"on_error": "skip"}, json={"changes": changes}).json()
    assert (receipt["applied"], receipt["skipped_count"]) == (2, 1) and receipt["skipped"] == body["errors"]
    assert len(rows_of(client, name)) == 2
    again = [{"relation": name, "op": "insert", "row": ROW | {"id": 0}}]
    body = is_problem(client.post("/v1/changes", json={"changes": again}), "bad-rows", 422)
    assert body["errors"][0]["reason"] == "key-exists"


def test_the_first_hundred_of_many_bad_rows(client: httpx.Client, name: str) -> None:
    changes = [{"relation": name, "row": {"id": i}} for i in range(250)]
    body = is_problem(client.post("/v1/changes", json={"changes": changes}), "bad-rows", 422)
    assert len({error["index"] for error in body["errors"]}) <= len(body["errors"]) == 100
    assert body["error_count"] >= 250


def test_an_unknown_relation_refuses_the_whole_batch(client: httpx.Client, name: str) -> None:
    changes = [{"relation": name, "row": ROW}, {"relation": "nobody", "row": {}}]
    for on_error in ("reject", "skip"):
        is_problem(client.post("/v1/changes", params={"on_error": on_error}, json={"changes": changes}), "unknown-relation", 422)
    assert rows_of(client, name) == []


def test_epochs(client: httpx.Client, name: str) -> None:
    def post(epoch: int, row: dict[str, Any] = ROW, **more: Any) -> httpx.Response:
        return client.post("/v1/changes", json={"source": name, "epoch": epoch, "changes": [{"relation": name, "row": row}], **more})

    first = post(5).json()
    assert not first["duplicate"]
    for epoch in (5, 4, -(2**63)):
        again = post(epoch, {"id": "bad"}).json()
        assert again["duplicate"] and again["applied"] == 0 and again["version"] >= first["version"]
    is_problem(post(6, run="r"), "source-reset", 409)
    assert not post(1, run="r", reset=True).json()["duplicate"]
    assert post(1, run="r", reset=True).json()["duplicate"]
    is_problem(post(9), "source-reset", 409)


def test_a_repeated_batch_is_a_duplicate_after_its_relation_was_dropped(client: httpx.Client, name: str) -> None:
    change, source = {"relation": name, "row": ROW}, f"sends {name}"
    at, lines = f"/v1/relations/{name}/changes", {"Content-Type": "application/jsonl"}
    asked = [
        lambda epoch: client.post("/v1/changes", json={"source": source, "epoch": epoch, "changes": [change]}),
        lambda epoch: client.post(f"/v1/changes?source={source}&epoch={epoch}", content=json.dumps(change), headers=lines),
        lambda epoch: client.post(f"{at}?source={source}&epoch={epoch}", content=json.dumps(ROW), headers=lines),
    ]
    for epoch, ask in enumerate(asked):
        assert not ask(epoch).json()["duplicate"]
    assert client.delete(f"/v1/relations/{name}").status_code == 204
    newest = client.get("/v1/status").json()["version"]
    for epoch, ask in enumerate(asked):
        again = ask(epoch).json()
        assert again["duplicate"] and again["applied"] == 0 and again["version"] >= newest
    for ask, kind, status in zip(asked, ("unknown-relation", "unknown-relation", "not-found"), (422, 422, 404), strict=True):
        is_problem(ask(3), kind, status)
    is_problem(client.post("/v1/changes?source=s", json={"changes": [change]}), "bad-parameter", 400)
    is_problem(client.post(f"/v1/changes?source={source}&epoch=0", content=b"{", headers=lines), "malformed-body", 400)


def test_parameters_are_judged(client: httpx.Client, name: str) -> None:
    at = f"/v1/relations/{name}/changes"
    for query in ("sorce=a", "source=a", "epoch=1", "epoch=x&source=a", "reset=true&source=a&epoch=1", "on_error=maybe"):
        response = client.post(f"{at}?{query}", content=CSV, headers={"Content-Type": "text/csv"})
        is_problem(response, "bad-parameter", 400)
    body = {"source": "a", "epoch": 1, "changes": []}
    is_problem(client.post("/v1/changes?source=b&epoch=1", json=body), "bad-parameter", 400)
    assert rows_of(client, name) == []


def test_a_large_body_goes_through_a_thread(client: httpx.Client, name: str) -> None:
    rows = [ROW | {"id": i, "room": f"room {i}"} for i in range(5000)]
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert len(body) > 64 * 1024

    def chunks() -> Any:
        for start in range(0, len(body), 10_000):
            yield body[start : start + 10_000]

    receipt = client.post(f"/v1/relations/{name}/changes", content=chunks(), headers={"Content-Type": "application/jsonl"})
    assert receipt.json()["applied"] == 5000
    assert rows_of(client, name) == rows

"""What tokens share: sources, stages, cursors, files of rows, slots for queries, ids of requests, and the problems that name relations or
views. A token that is not for what another one keeps there can neither use, block nor see it."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.access.access_token import AccessToken, digest, new_text
from service.access.rights import RIGHTS
from service.access.store import add_token
from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess

Json = dict[str, Any]

TABLE = declared("id:int64, s:int64, e:int64, t:timestamp?", during="s e")
OPEN = "SELECT x.id AS x, x.s AS s FROM open_r x WHERE x.s > 0"
SECRET = "SELECT x.id AS x, y.id AS y FROM open_r x JOIN secret_r y ON overlaps(x.during, y.during) AND x.s = y.s"
# `secre_…` exist nowhere: names that are suggested instead would be those of others.
NAMED = {"relations": ["open_r", "secre_r"], "views": ["open_v", "secre_v"]}
ROW = {"id": 1, "s": 1, "e": 5, "t": None}
RUN = {"source": "pay", "epoch": 7, "run": "secret-run", "on_error": "skip"}


class Service:
    """A service in token mode with the relations open_r and secret_r, a view of the former (open_v), and one of both (secret_v). Tokens:
    ops (for all), owner (write, for all that is secret, and open_r), and read, write and admin, for what is open."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.texts = {"ops": new_text()}
        add_token(folder, AccessToken("ops", "admin", None, None, float("inf"), 1000.0, digest(self.texts["ops"])), begin=True)
        self.server = ServerProcess(folder)

    def __enter__(self) -> Service:
        self.server.__enter__()
        ops = self.client("ops")
        for name in ("open_r", "secret_r"):
            talk.define(ops, name, TABLE)
        talk.view(ops, "open_v", OPEN)
        talk.view(ops, "secret_v", SECRET)
        for scope in ("read", "write", "admin"):
            self.create(scope, scope, NAMED)
        self.create("owner", "write", {"relations": ["open_r", "secret_r"], "views": ["secret_v"]})
        return self

    def __exit__(self, *error: object) -> None:
        self.server.__exit__(*error)  # type: ignore[arg-type]

    def create(self, name: str, scope: str, names: Json) -> None:
        made = talk.ok(self.client("ops").post("/v1/tokens", json={"name": name, "scope": scope, **names}), 201)
        self.texts[name] = made["token"]

    def client(self, name: str) -> httpx.Client:
        client = self.server.client()
        client.headers["Authorization"] = f"Bearer {self.texts[name]}"
        return client


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("shared") / "data") as service:
        yield service


def connected(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.server.port))


def request(connection: socket.socket, service: Service, token: str, path: str, body: str, length: int | None = None) -> None:
    """Send a request, or the beginning of one with a body of this length."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {talk.JSON}\r\nAuthorization: Bearer {service.texts[token]}\r\n"
    connection.sendall(f"{head}Content-Length: {length or len(body)}\r\n\r\n{body}".encode())


def until(found: Callable[[], Any]) -> Any:
    """Return the first true value."""
    end = time.monotonic() + 60
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


# sources

EMPTY = {"changes": []}
LINES = {"Content-Type": talk.JSONL}


def change(relation: str, id_: int, **row: Any) -> Json:
    return {"relation": relation, "op": "upsert", "row": ROW | {"id": id_} | row}


def numbered(name: str, epoch: int, run: str | None = "R7", **more: Any) -> Json:
    return {"source": name, "epoch": epoch, **({} if run is None else {"run": run}), **more}


def ways(client: httpx.Client, fields: Json) -> Iterator[httpx.Response]:
    """Send a batch of a source in each way there is, with write on open_r alone."""
    parameters = {name: str(value).lower() if value is True else value for name, value in fields.items()}
    path, line = "/v1/relations/open_r", json.dumps(ROW)
    yield client.post("/v1/changes", json={**fields, **EMPTY})
    yield client.post("/v1/changes", json={**fields, "changes": [change("open_r", 1)]})
    yield client.post("/v1/changes", json={**fields, "changes": [change("secre_r", 1)]})
    yield client.post("/v1/changes", content=json.dumps(change("open_r", 1)), headers=LINES, params=parameters)
    for relation in ("open_r", "secre_r"):
        for content in ("", line):
            yield client.post(f"/v1/relations/{relation}/changes", content=content, headers=LINES, params=parameters)
    yield client.post(f"{path}/replace", content=line, headers=LINES, params=parameters)
    talk.ok(client.post(f"{path}/replace", content=line, headers=LINES, params={"stage": "s"}))
    yield client.post(f"{path}/replace", params={"stage": "s", "commit": "true", **parameters})
    yield client.post(f"{path}/delete", json={"where": [{"column": "id", "op": "=", "value": 1}], **fields})


def listed(client: httpx.Client) -> dict[str, Json]:
    return {one["name"]: one for one in talk.ok(client.get("/v1/sources"))["sources"]}


def test_an_empty_batch_of_a_new_source_takes_nothing_from_its_owner(service: Service) -> None:
    """Seen: the owner's batch was a duplicate, and lost."""
    attack = {"source": "new", "epoch": 4611686018427387904, "run": "R7", "changes": []}
    before = talk.ok(service.client("ops").get("/v1/status"))["version"]
    talk.ok(service.client("write").post("/v1/changes", json=attack))
    talk.ok(service.client("write").post("/v1/relations/open_r/changes?source=new&epoch=9&run=R7", content="", headers=LINES))
    assert "new" not in listed(service.client("ops")) and talk.ok(service.client("ops").get("/v1/status"))["version"] == before
    receipt = talk.ok(service.client("owner").post("/v1/changes", json={**numbered("new", 1), "changes": [change("secret_r", 1)]}))
    assert not receipt["duplicate"] and receipt["applied"] == 1
    talk.problem(service.client("write").post("/v1/changes", json=attack), 403, "forbidden")


def test_a_source_belongs_to_who_may_write_all_that_it_has_written(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        fields = numbered("pay", 5, on_error="skip")
        bad = change("secret_r", 2, s="secret-value")
        first = talk.ok(service.client("owner").post("/v1/changes", json={**fields, "changes": [change("open_r", 1), bad]}))
        assert first["skipped_count"] == 1 and "secret-value" in str(first)
        for life in range(3):
            writer = service.client("write")
            taken = [(4, "R7", {}), (5, "R7", {}), (6, "R7", {}), (2**62, None, {}), (5, "R8", {}), (1, "R8", {"reset": True})]
            for epoch, run, more in taken:
                for answer in ways(writer, numbered("pay", epoch, run, **more)):
                    assert "secret" not in talk.problem(answer, 403, "forbidden")["detail"] and "R7" not in answer.text
            for name, sees in (("read", False), ("write", False), ("admin", False), ("owner", True), ("ops", True)):
                assert ("pay" in listed(service.client(name))) == sees, name
            if life == 1:  # another token takes the place of the owner's
                service.create("owner2", "write", {"relations": ["open_r", "secret_r"], "views": ["secret_v"]})
                talk.ok(service.client("ops").delete("/v1/tokens/owner"), 204)
                service.texts["owner"] = service.texts["owner2"]
            again = talk.ok(service.client("owner").post("/v1/changes", json={**fields, "changes": []}))
            assert again["duplicate"] and again["first"] == first
            source = listed(service.client("owner"))["pay"]
            assert (source["epoch"], source["run"], source["relations"]) == (5, "R7", ["open_r", "secret_r"])
            service.server.kill() if life else service.server.stop()
            service.server.start()
        receipt = talk.ok(service.client("owner").post("/v1/changes", json={**numbered("pay", 6), "changes": [change("secret_r", 7)]}))
        assert receipt["applied"] == 1 and not receipt["duplicate"]
        talk.ok(service.client("ops").delete("/v1/sources/pay"), 204)
        talk.ok(service.client("write").post("/v1/changes", json={**numbered("pay", 1), "changes": [change("open_r", 3)]}))


@pytest.mark.parametrize("source", ["slow", "livejoin.retain"])
def test_a_body_that_does_not_end_holds_up_no_batch_of_others(service: Service, source: str) -> None:
    """Though it claims a smaller epoch of the same source and run."""
    owner = service.client("owner")
    if source == "slow":
        talk.ok(owner.post("/v1/changes", json={**numbered(source, 1), "changes": [change("secret_r", 1)]}))
    with connected(service) as slow:
        run = "&run=R7" if source == "slow" else ""
        request(slow, service, "write", f"/v1/changes?source={source}&epoch=-9{run}", "{", 99999)
        talk.ok(owner.get("/v1/status"))  # the service has seen it
        if source == "slow":
            answer = owner.post("/v1/changes?source=slow&epoch=2&run=R7", json={"changes": [change("secret_r", 2)]}, timeout=30)
            assert not talk.ok(answer)["duplicate"]
        else:
            retain = {"column": "t", "for": "P1D"}
            talk.ok(owner.post("/v1/changes", json={"changes": [change("secret_r", 50, t="2020-01-01T00:00:00Z")]}))
            talk.ok(service.client("ops").patch("/v1/relations/secret_r", json={"retain": retain}))
            until(lambda: listed(service.client("ops")).get(source))
            assert source not in listed(service.client("write"))


# what else is shared


def test_a_stage_belongs_to_its_relation(service: Service) -> None:
    owner, writer = service.client("owner"), service.client("write")
    parts = [json.dumps(ROW | {"id": id_}) for id_ in (31, 32)]
    for part in parts:
        talk.ok(owner.post("/v1/relations/secret_r/replace?stage=night", content=part, headers=LINES))
    talk.problem(writer.post("/v1/relations/open_r/replace?stage=night&commit=true"), 404, "not-found")
    talk.problem(writer.post("/v1/relations/secret_r/replace?stage=night&commit=true"), 403, "forbidden")
    for number in range(64):  # as many as there may be: the first one of a relation is taken all the same
        answer = writer.post(f"/v1/relations/open_r/replace?stage=mine{number}", content=parts[0], headers=LINES)
    assert "secret" not in talk.problem(answer, 409, "too-many")["detail"]
    assert talk.ok(owner.post("/v1/relations/secret_r/replace?stage=night&commit=true"))["applied"] == 2
    for _ in range(2):
        talk.ok(owner.post("/v1/relations/secret_r/replace?stage=next", content=parts[0], headers=LINES))
        talk.ok(owner.post("/v1/relations/secret_r/replace?stage=next&commit=true"))


def test_cursors_and_readings_of_views_that_a_token_is_not_for(service: Service) -> None:
    owner, writer = service.client("owner"), service.client("write")
    talk.ok(owner.post("/v1/changes", json={"changes": [change(name, id_) for name in ("open_r", "secret_r") for id_ in range(40, 45)]}))
    cursor = talk.ok(owner.get("/v1/views/secret_v/rows?limit=1", headers={"Accept": talk.JSON}))["next"]
    reading = talk.ok(owner.post("/v1/views/secret_v/readings", json={}), 201)
    for text in (cursor, *reading["cursors"]):
        talk.problem(writer.get("/v1/views/secret_v/rows", params={"cursor": text}), 403, "forbidden")
        assert "secret" not in talk.problem(writer.get("/v1/views/open_v/rows", params={"cursor": text}), 400, "bad-cursor")["detail"]
    problem = talk.problem(writer.delete(f"/v1/readings/{reading['id']}"), 403, "forbidden")
    assert "secret" not in problem["detail"]
    assert talk.ok(owner.get("/v1/views/secret_v/rows", params={"cursor": reading["cursors"][0]}, headers={"Accept": talk.JSON}))["rows"]
    talk.ok(owner.delete(f"/v1/readings/{reading['id']}"), 204)
    talk.problem(writer.post("/v1/relations/secret_r/readings", json={}), 403, "forbidden")
    mixed = {"name": "open-and-secret"}
    reading = talk.ok(writer.post("/v1/relations/open_r/readings", json=mixed), 201)
    secret = talk.ok(owner.post("/v1/relations/secret_r/readings", json=mixed | {"where": "id > 40"}), 201)
    assert reading["id"] == secret["id"] and reading["version"] == secret["version"]
    talk.problem(writer.get("/v1/relations/secret_r/rows", params={"cursor": secret["cursors"][0]}), 403, "forbidden")
    talk.problem(writer.get("/v1/relations/open_r/rows", params={"cursor": secret["cursors"][0]}), 400, "bad-cursor")
    assert "secret" not in talk.problem(writer.delete(f"/v1/readings/{reading['id']}"), 403, "forbidden")["detail"]
    talk.ok(owner.delete(f"/v1/readings/{reading['id']}"), 204)


def test_files_of_rows_that_a_token_is_not_for(service: Service) -> None:
    """A file that is read in parts is on disk: its ETag and its address give nobody else a part of it."""
    owner, writer = service.client("owner"), service.client("write")
    head = owner.get("/v1/relations/secret_r/rows.csv")
    for method in ("GET", "HEAD"):
        for headers in ({"Range": "bytes=0-9", "If-Range": head.headers["etag"]}, {"If-None-Match": head.headers["etag"]}):
            assert writer.request(method, "/v1/relations/secret_r/rows.csv", headers=headers).status_code == 403
            answer = writer.request(method, "/v1/relations/open_r/rows.csv", headers=headers)
            assert answer.status_code in (200, 206, 412, 416) and answer.headers.get("etag") != head.headers["etag"]


def test_slots_for_queries_tell_nothing_of_who_holds_them(service: Service) -> None:
    """All are held by queries of relations that the token is not for; once these end, there is one for it."""
    talk.ok(service.client("ops").post("/v1/changes", json={"changes": [change("secret_r", id_) for id_ in range(200, 300)]}))
    sql = "SELECT count(*) AS n FROM " + ", ".join(f"secret_r AS r{number}" for number in range(20))

    def mine() -> httpx.Response:
        return service.client("read").post("/v1/query", json={"sql": "SELECT * FROM open_r"})

    with contextlib.ExitStack() as held:
        for _ in range(2):
            request(held.enter_context(connected(service)), service, "owner", "/v1/query", json.dumps({"sql": sql}))
        refused = until(lambda: (answer := mine()).status_code == 429 and answer)
        assert "secret" not in talk.problem(refused, 429, "too-busy")["detail"]
    until(lambda: mine().status_code == 200)


def test_the_id_of_another_request_tells_nothing_of_it(service: Service) -> None:
    """A client names the id of another's request, which failed: it gets its own answer under this id, and no more."""
    id_ = {"X-Request-Id": "the-owner-s"}
    talk.problem(service.client("owner").get("/v1/views/secret_v/rows?cursor=none", headers=id_), 400, "bad-cursor")
    answer = service.client("write").get("/v1/views/open_v/rows?cursor=none", headers=id_)
    assert answer.headers["x-request-id"] == "the-owner-s" and "secret" not in answer.text
    assert "the-owner-s" not in service.client("admin").get("/v1/status").text
    assert "the-owner-s" in service.client("ops").get("/v1/status").text


# problems and answers that name relations or views

SAID: list[tuple[str, str, Any]] = [
    ("PUT", "/v1/relations/open_r", TABLE | {"key": ["s"]}),
    ("PUT", "/v1/relations/secre_r", {"columns": [{"name": "a", "type": "int"}], "key": ["a"]}),
    *(("PATCH", "/v1/relations/open_r", {"nullable": [column]}) for column in ("s", "e", "t", "id", "none")),
    ("PATCH", "/v1/relations/open_r", {"nullable": ["s", "e"]}),
    ("PATCH", "/v1/relations/open_r", {"add_columns": [{"name": "s", "type": "string", "nullable": True}]}),
    ("PATCH", "/v1/relations/open_r", {"add_intervals": {"during": {"start": "s", "end": "s"}}}),
    ("PATCH", "/v1/relations/open_r", {"retain": {"column": "s", "for": "P1D"}}),
    *(("PUT", f"/v1/views/{view}", {"sql": OPEN.replace("open_r", "secre_r")}) for view in NAMED["views"]),
    ("PUT", "/v1/views/open_v", {"sql": OPEN + " AND x.e > 3"}),
    *(("POST", "/v1/explain", {"sql": sql}) for sql in (OPEN, OPEN.replace("open_r", "secre_r"), OPEN.replace("open_r", "open_v"))),
    *(("POST", "/v1/query", {"sql": f"SELECT * FROM {name}"}) for name in ("open_r", "secre_r", "secre_v", "relation.secre_v", "no")),
    ("POST", "/v1/changes", {"changes": [{"relation": "secre_r", "op": "upsert", "row": ROW}]}),
    ("POST", "/v1/changes", {"changes": [{"relation": "open_r", "op": "upsert", "row": ROW | {"s": 9}}]}),
    ("POST", "/v1/changes", {"changes": [{"relation": "open_r", "op": "insert", "row": ROW}]}),
    *(("POST", f"/v1/relations/{name}/delete", {"where": [{"column": "id", "op": "=", "value": 77}]}) for name in NAMED["relations"]),
    ("POST", "/v1/views/open_v/readings", {"parts": 2}),
    ("POST", "/v1/views/open_v/readings", {"version": 1}),
    ("DELETE", "/v1/readings/unknown", None),
    ("GET", "/v1/views/open_v/changes?since=none", None),
    ("GET", "/v1/views/open_v/rows?cursor=none", None),
    ("GET", "/v1/views/open_v/rows?overlaps.x.none=1,2", None),
    ("GET", "/v1/views/open_v/rows?key.x.none=1", None),
    *((method, path.replace("{name}", name), None) for method, path in RIGHTS for name in [*NAMED["relations"], *NAMED["views"]]),
]


def test_nothing_names_what_a_token_is_not_for(service: Service) -> None:
    """Whatever the request is, the answer has no name, run, value or id of the others. The last test: the open view is dropped."""
    ops = service.client("ops")
    bad = {"relation": "secret_r", "op": "upsert", "row": ROW | {"s": "secret-value"}}
    talk.ok(ops.post("/v1/changes", json={**RUN, "source": "secret-source", "changes": [bad]}))
    talk.ok(ops.post("/v1/relations/secret_r/replace?stage=secret-stage", content=json.dumps(ROW), headers={"Content-Type": talk.JSONL}))
    named = {"X-Request-Id": "secret-id"}
    talk.problem(ops.post("/v1/query", json={"sql": "SELECT * FROM secret_x"}, headers=named), 422, "unknown-relation")
    refused, emitted = 0, list[str]()
    for scope in ("read", "write", "admin"):
        client = service.client(scope)
        for method, path, body in SAID:
            if path.endswith("/changes") and method == "GET":
                path += "?wait=0"
            answer = client.request(method, path, **({} if body is None else {"json": body}))
            if "secret" in f"{answer.headers} {answer.text}" or answer.status_code == 500:
                emitted.append(f"{scope} {method} {path} {body}: {answer.status_code} {answer.text}")
            refused += answer.status_code >= 400
    assert not emitted and refused > 100, "\n".join(emitted)

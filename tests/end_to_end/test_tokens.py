"""docs/reference/rest.md, *Operations*, on tokens: who may do what, over HTTP and by the command line, while services keep running."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import livejoin
from service.access import store
from service.access.access_token import AccessToken, digest, new_text
from service.access.audit import AUDIT
from service.access.rights import RIGHTS, is_open
from service.access.store import TOKENS, add_token, read_tokens
from service.api.app import ROUTES
from service.cli import main
from service.durability.folder import SyncFailed
from streaming.connection import Service
from streaming.errors import StreamError
from streaming.metrics import Metrics
from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import NotStarted, ServerProcess

TABLE = declared("id:int64, s:int64, e:int64", during="s e")
SAME = "SELECT x.id AS x, y.id AS y FROM a x JOIN b y ON overlaps(x.during, y.during)"
SELF = "SELECT x.id AS x, y.id AS y FROM a x JOIN a y ON overlaps(x.during, y.during) AND x.id < y.id"
# Names in tokens: `deleted` exists in none of the tests, so that a request that is allowed has no effect.
NAMED = {"relations": ["a", "gone"], "views": ["v", "gone"]}
OTHER = {"relations": ["b"], "views": ["w"]}
GRANTS: dict[str, dict[str, list[str]]] = {"all": {}, "named": NAMED, "other": OTHER, "relations": {"relations": ["gone"]}}
SCOPES = ("read", "write", "admin")


def row(number: int, start: int = 0, end: int = 10) -> dict[str, int]:
    return {"id": number, "s": start, "e": end}


def change(relation: str, number: int) -> dict[str, Any]:
    return {"relation": relation, "op": "upsert", "row": row(number)}


@dataclass
class House:
    """A service in token mode with relations a, b and views v (of both), w (of a); `texts`: its tokens by name; `ops` is an admin with
    access to everything."""

    server: ServerProcess
    texts: dict[str, str]

    def client(self, name: str, text: str | None = None) -> httpx.Client:
        client = self.server.client()
        client.headers["Authorization"] = f"Bearer {text or self.texts[name]}"
        return client

    def create(self, name: str, scope: str, **grant: Any) -> str:
        made = talk.ok(self.client("ops").post("/v1/tokens", json={"name": name, "scope": scope, **grant}), 201)
        self.texts[name] = made.pop("token")
        assert made["name"] == name and made["scope"] == scope and made["expires"] == grant.get("expires")
        return self.texts[name]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house") / "data"
    folder.mkdir()
    texts = {"ops": new_text(), "former": new_text()}
    made = AccessToken("ops", "admin", None, None, float("inf"), 1000.0, digest(texts["ops"]))
    for token in (made, made._replace(name="former", digest=digest(texts["former"]), expires=2000.0)):
        add_token(folder, token, begin=True)
    with ServerProcess(folder, arguments=["--host", "0.0.0.0"]) as server:
        house = House(server, texts)
        ops = house.client("ops")
        for name in ("a", "b"):
            talk.define(ops, name, TABLE)
        talk.ok(ops.post("/v1/changes", json={"changes": [change("a", 1), change("b", 1), change("a", 2)]}))
        talk.view(ops, "v", SAME)
        talk.view(ops, "w", SELF)
        for scope in SCOPES:
            for grant, names in GRANTS.items():
                house.create(f"{scope}-{grant}", scope, **names)
        yield house


def test_every_endpoint_has_a_right() -> None:
    assert set(RIGHTS) == {(method, route.path_format) for route in ROUTES for method in route.methods or ()}
    assert all(is_open(path.replace("{type}", "forbidden")) == (right is None) for (_, path), right in RIGHTS.items())


def test_views_over_views(house: House) -> None:
    """Naming a view takes the right to it, and none to its relations, which the text itself cannot name then."""
    house.create("over-w", "admin", relations=["b"], views=["w", "over"])
    client, ops = house.client("over-w"), house.client("ops")
    over = "SELECT x, y FROM w WHERE x > 0"
    assert talk.view(client, "over", over)["reads"] == ["w"]
    talk.ok(client.post("/v1/explain", json={"sql": over}))
    hidden = "WITH a AS (SELECT id FROM a) SELECT a.id FROM w, a"
    for sql in ("SELECT id FROM a", "SELECT w.x FROM w JOIN a ON a.id = w.x", "SELECT x FROM v", hidden):
        for answer in (client.put("/v1/views/over", json={"sql": sql}), client.post("/v1/explain", json={"sql": sql})):
            talk.problem(answer, 403, "forbidden")
    house.create("drop-w", "admin", relations=[], views=["w"])
    problem = talk.problem(house.client("drop-w").delete("/v1/views/w"), 409, "relation-in-use")
    assert problem["views"] == [] and "over" not in problem["detail"]
    assert talk.problem(ops.delete("/v1/views/w"), 409, "relation-in-use")["views"] == ["over"]
    talk.ok(ops.delete("/v1/views/over"), 204)


def demanded(method: str, path: str) -> str | None:
    """Return the scope that an operation requires according to the interface; None: no token."""
    if path in ("/", "/livez", "/readyz") or path.startswith(("/problems/", "/dashboard/")):
        return None
    if path.startswith(("/v1/tokens", "/v1/backup")):
        return "admin"
    if method in ("GET", "HEAD") or path in ("/v1/explain", "/v1/query") or "/readings" in path:
        return "read"
    return "write" if method == "POST" and path.endswith(("/changes", "/replace", "/delete")) else "admin"


def allowed(method: str, path: str, scope: str, grant: str) -> bool:
    wanted = demanded(method, path)
    if wanted is None:
        return True
    if SCOPES.index(scope) < SCOPES.index(wanted) or (path.startswith(("/v1/tokens", "/v1/sources/", "/v1/backup")) and grant != "all"):
        return False
    kind = path.split("/")[2] if "{name}" in path else None
    return not (grant == "other" and kind in ("relations", "views")) and not (grant == "relations" and kind == "views")


@pytest.mark.parametrize(("method", "path"), RIGHTS)
def test_every_endpoint_with_every_scope(house: House, method: str, path: str) -> None:
    address = path.replace("{name}", "gone").replace("{type}", "forbidden")
    wrong = [None, "Bearer", "Bearer lj_" + "a" * 43, f"Basic {house.texts['ops']}", f"Bearer {house.texts['former']}", house.texts["ops"]]
    for sent in wrong:
        client = house.server.client()
        answer = client.request(method, address, headers={} if sent is None else {"Authorization": sent})
        if demanded(method, path) is None:
            assert answer.status_code not in (401, 403), (method, path, sent)
        else:
            assert answer.status_code == 401, (method, path, sent)
            assert answer.headers["www-authenticate"].startswith('Bearer realm="livejoin"')
            if method != "HEAD":
                assert "lj_a" not in str(talk.problem(answer, 401, "unauthorized"))
    for scope in SCOPES:
        for grant in GRANTS:
            answer = house.client(f"{scope}-{grant}").request(method, address)
            assert (answer.status_code not in (401, 403)) == allowed(method, path, scope, grant), (method, path, scope, grant, answer.text)
            if answer.status_code == 403:
                assert f'scope="{demanded(method, path)}"' in answer.headers["www-authenticate"]
                assert method == "HEAD" or f"{scope}-{grant}" in talk.problem(answer, 403, "forbidden")["detail"]


def test_paths_that_are_not_there_want_a_token_too(house: House) -> None:
    nobody, reader = house.server.client(), house.client("read-named")
    for method, path, status in (("GET", "/nothing", 404), ("GET", "/v1/views/", 404), ("PATCH", "/v1/views/v", 405)):
        assert nobody.request(method, path).status_code == 401
        assert reader.request(method, path).status_code == status
    for path in ("/livez", "/readyz", "/docs", "/openapi.json", "/problems/unauthorized"):
        assert nobody.get(path).status_code == 200


def test_two_authorizations_are_none(house: House) -> None:
    given = [("Authorization", f"Bearer {house.texts['ops']}"), ("Authorization", f"Bearer {house.texts['ops']}")]
    talk.problem(house.server.client().get("/v1/views", headers=given), 401, "unauthorized")
    talk.ok(house.server.client().get("/v1/views", headers=[("Authorization", f"bearer  {house.texts['ops']}")]))


def test_hosts_and_origins_may_be_any(house: House) -> None:
    """A browser does not add a bearer token by itself, so a page that has none gets nothing, by whatever host name it sends requests."""
    for headers in ({"Host": "livejoin.example:8080"}, {"Origin": "https://attacker.example"}, {"Host": "x.example", "Origin": "null"}):
        talk.ok(house.client("read-all").get("/v1/views", headers=headers))
        talk.problem(house.server.client().get("/v1/views", headers=headers), 401, "unauthorized")


def test_listings_show_what_the_token_is_for(house: House) -> None:
    def names(client: httpx.Client) -> tuple[list[str], list[str]]:
        listed = [[one["name"] for one in talk.ok(client.get(f"/v1/{nouns}"))[nouns]] for nouns in ("relations", "views")]
        status = talk.ok(client.get("/v1/status"))
        assert [list(status[nouns]) for nouns in ("relations", "views")] == listed
        metrics = client.get("/metrics").text
        shown = [sorted(set(re.findall(rf'{noun}="(\w+)"', metrics))) for noun in ("relation", "view")]
        assert shown == listed and "livejoin_version" in metrics
        return listed[0], listed[1]

    assert names(house.client("read-all")) == (["a", "b"], ["v", "w"])
    assert names(house.client("admin-named")) == (["a"], ["v"])
    assert names(house.client("write-other")) == (["b"], ["w"])
    assert names(house.client("read-relations")) == ([], [])


def test_what_a_named_token_reads(house: House) -> None:
    client = house.client("read-named")
    assert talk.ok(client.get("/v1/views/v/count"))["count"] == 2
    talk.ok_status(client.get("/v1/relations/a/rows"))
    for path in (
        "/v1/views/w", "/v1/views/w/rows", "/v1/views/w/count", "/v1/views/w/changes?wait=0", "/v1/views/w/changes/end",
        "/v1/relations/b/rows",
    ):  # fmt: skip
        talk.problem(client.get(path), 403, "forbidden")
    # Tokens of followers and cursors of one view are not valid for another, nor for a view to which the access token gives no access.
    every = house.client("read-all")
    cursor = talk.ok(every.get("/v1/views/v/rows?limit=1", headers={"Accept": talk.JSON}))["next"]
    token = json.loads(every.get("/v1/views/v/changes?wait=0").text.splitlines()[-1])["token"]
    talk.problem(every.get("/v1/views/w/rows", params={"cursor": cursor}), 400, "bad-cursor")
    talk.problem(every.get("/v1/views/w/changes", params={"since": token}), 400, "bad-token")
    for path, params in (("rows", {"cursor": cursor}), ("changes", {"since": token, "wait": "0"})):
        talk.ok_status(client.get(f"/v1/views/v/{path}", params=params))
        talk.problem(house.client("read-other").get(f"/v1/views/v/{path}", params=params), 403, "forbidden")
    reading = talk.ok(client.post("/v1/views/v/readings", json={}), 201)
    talk.problem(house.client("read-other").delete(f"/v1/readings/{reading['id']}"), 403, "forbidden")
    talk.ok(client.delete(f"/v1/readings/{reading['id']}"), 204)


def test_batches_are_judged_relation_by_relation(house: House) -> None:
    client, every = house.client("write-named"), house.client("read-all")
    version = talk.ok(every.get("/v1/status"))["version"]
    assert talk.ok(client.post("/v1/changes", json={"changes": [change("a", 3)]}))["version"] == version + 1
    for second in ("b", "nowhere"):  # whether it exists is not disclosed
        batch = [change("a", 4), change(second, 4)]
        lines = "\n".join(map(json.dumps, batch))
        tables = b"".join(arrow(relation) for relation in ("a", second))
        for body in ({"json": {"changes": batch}}, {"content": lines, "headers": {"Content-Type": talk.JSONL}},
                     {"content": tables, "headers": {"Content-Type": talk.ARROW}}):  # fmt: skip
            assert repr(second) in talk.problem(client.post("/v1/changes", **body), 403, "forbidden")["detail"]
        talk.problem(client.post(f"/v1/relations/{second}/changes", json=row(4)), 403, "forbidden")
        talk.problem(client.post("/v1/changes?source=s&epoch=1", json={"changes": batch}), 403, "forbidden")
    assert talk.ok(every.get("/v1/status"))["version"] == version + 1
    assert talk.ok(every.get("/v1/relations/a"))["rows"] == 3


def arrow(relation: str) -> bytes:
    table = pa.Table.from_pylist([row(4)]).replace_schema_metadata({"livejoin.relation": relation})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_who_defines_or_explains_a_view_reads_its_relations(house: House) -> None:
    admin = house.client("admin-named")
    nowhere = {"sql": SAME.replace("b y", "nowhere y")}
    for body in ({"sql": SAME}, {"from": {"x": "a", "y": "b"}, "join": [{"equal": ["x.id", "y.id"]}]}, nowhere):
        talk.problem(admin.put("/v1/views/gone", json=body), 403, "forbidden")
        talk.problem(house.client("read-named").post("/v1/explain", json=body), 403, "forbidden")
    assert "measured" not in talk.ok(house.client("read-named").post("/v1/explain", json={"sql": SELF}))  # only w has this join
    assert "w" in talk.ok(house.client("read-all").post("/v1/explain", json={"sql": SELF}))["measured"]
    talk.view(admin, "gone", SELF)
    talk.ok(admin.delete("/v1/views/gone"), 204)


def test_tokens_over_http(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    ops = house.client("ops")
    text = house.create("late", "write", relations=["b"], views=["*"], expires="2097-01-01T00:00:00Z")
    assert re.fullmatch("lj_[A-Za-z0-9_-]{43}", text)
    late = house.client("late")
    talk.ok(late.post("/v1/changes", json={"changes": [change("b", 1)]}))
    listed = {one["name"]: one for one in talk.ok(ops.get("/v1/tokens"))["tokens"]}
    assert listed["late"].items() >= {"scope": "write", "relations": ["b"], "views": ["*"], "expires": "2097-01-01T00:00:00Z"}.items()
    assert listed["former"]["expires"] == "1970-01-01T00:33:20Z" and text not in str(listed)
    talk.problem(ops.post("/v1/tokens", json={"name": "late", "scope": "read"}), 409, "definition-differs")
    talk.problem(ops.post("/v1/tokens", json={"name": "later", "scope": "read", "expires": "2020-01-01T00:00:00Z"}), 422, "bad-definition")
    talk.problem(ops.post("/v1/tokens", content=b"{", headers={"Content-Type": talk.JSON}), 400, "malformed-body")
    talk.problem(ops.delete("/v1/tokens/nobody"), 404, "not-found")
    talk.ok(ops.delete("/v1/tokens/late"), 204)
    talk.problem(late.get("/v1/views"), 401, "unauthorized")
    # The last token that may administer tokens: neither a restricted nor an expired one counts.
    second = house.create("second", "admin")
    talk.ok(ops.delete("/v1/tokens/admin-all"), 204)
    talk.ok(ops.delete("/v1/tokens/second"), 204)
    talk.problem(house.client("", second).get("/v1/tokens"), 401, "unauthorized")
    assert "last admin" in talk.problem(ops.delete("/v1/tokens/ops"), 403, "forbidden")["detail"]
    house.create("admin-all", "admin")


def test_the_command_line_and_the_client(house: House, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEJOIN_URL", house.server.url)
    data = ["--data", str(house.server.data)]
    assert main(["rows", "v"]) == 1 and "LIVEJOIN_TOKEN" not in (emitted := capfd.readouterr()).out and "unauthorized" in emitted.err
    monkeypatch.setenv("LIVEJOIN_TOKEN", house.texts["admin-all"])
    assert main(["token", "create", "by_http", "--scope", "read", "--views", "v,w"]) == 0
    by_http = capfd.readouterr().out.strip()
    assert main(["token", "create", "by_hand", "--scope", "write", "--relations", "a", *data]) == 0
    by_hand = capfd.readouterr()
    assert by_hand.out.startswith("lj_") and by_hand.out.count("\n") == 1 and by_hand.err == ""
    for where in ([], data):
        assert main(["token", "list", *where]) == 0
        listed = capfd.readouterr().out
        assert "by_http" in listed and "by_hand" in listed and "lj_" not in listed
    for text, may in ((by_http, False), (by_hand.out.strip(), True)):
        with livejoin.connect(token=text, patience=0) as client:
            client.relations()
            if may:
                client.relation("a").upsert([row(1)])
                monkeypatch.setenv("LIVEJOIN_TOKEN", text)
                assert main(["rows", "a"]) == 0 and '"id":1' in capfd.readouterr().out
                monkeypatch.setenv("LIVEJOIN_TOKEN", house.texts["admin-all"])
            else:
                with pytest.raises(livejoin.Forbidden, match="has the scope read; this operation requires write"):
                    client.relation("a").upsert([row(1)])
    assert main(["token", "revoke", "by_hand"]) == main(["token", "revoke", "by_http", *data]) == 0
    for text in (by_http, by_hand.out.strip()):
        with livejoin.connect(token=text, patience=0) as client, pytest.raises(livejoin.Unauthorized):
            client.views()
    assert main(["token", "revoke", "by_http", *data]) == main(["token", "create", "ops", "--scope", "read", *data]) == 1
    assert main(["token", "create", "x", "--scope", "read", "--expires", "soon", *data]) == 2
    assert main(["token", "create", "x", "--scope", "all", *data]) == main(["token", "list", "--url", "x", *data]) == 2
    capfd.readouterr()
    assert main(["token", "disable", *data]) == 1 and "in use by process" in capfd.readouterr().err
    assert read_tokens(house.server.data)


def test_the_streaming_job(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEJOIN_TOKEN", house.texts["write-named"])
    service = Service(house.server.url, threading.Event(), Metrics())
    assert service.definitions(["a"]).keys() == {"a"}
    assert service.post(arrow("a"), "job", 1, "run", False).applied == 1
    with pytest.raises(StreamError, match="403 Forbidden: the access token 'write-named' is not for the relation 'b'"):
        service.post(arrow("b"), "job", 2, "run", False)
    service.close()
    monkeypatch.delenv("LIVEJOIN_TOKEN")
    service = Service(house.server.url, threading.Event(), Metrics())
    with pytest.raises(StreamError, match="401 Authentication required"):
        service.definitions(["a"])
    service.close()


def test_a_follower_ends_with_its_token(house: House) -> None:
    text = house.create("follower", "read", views=["w"])
    ops = house.client("ops")
    with house.client("", text).stream("GET", "/v1/views/w/changes?snapshot=true") as answer:
        records = answer.iter_lines()
        while json.loads(next(records))["op"] != "progress":
            pass
        talk.ok(ops.delete("/v1/tokens/follower"), 204)
        talk.ok(ops.post("/v1/changes", json={"changes": [change("a", 77)]}))
        with pytest.raises(httpx.RemoteProtocolError):
            next(records)


def test_events_of_the_status_end_with_their_token(house: House) -> None:
    """Seen: with an error in the log, of an exception in the application."""
    text = house.create("watcher", "read")
    with house.client("", text).stream("GET", "/v1/status", headers={"Accept": talk.SSE}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: status"
        talk.ok(house.client("ops").delete("/v1/tokens/watcher"), 204)
        with pytest.raises(httpx.RemoteProtocolError):
            while True:
                next(lines)
    assert "ASGI" not in house.server.output()


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/changes", {"changes": [change("a", 99)]}), ("/v1/tokens", {"name": "heir", "scope": "admin"})]
)
def test_a_body_does_not_outlive_its_token(house: House, path: str, body: dict[str, Any]) -> None:
    """Seen: a body may arrive slowly, a byte a minute, so a client with an unfinished one could continue after its token was revoked."""
    text, data = house.create("dying", "admin"), json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", house.server.port), 60) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {text}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: {len(data)}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 "), "the head was taken"
        connection.sendall(data[:1])
        talk.ok(house.client("ops").delete("/v1/tokens/dying"), 204)
        connection.sendall(data[1:])
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")
    assert b'"id":99,' not in house.client("ops").get("/v1/relations/a/rows").content
    assert "heir" not in [token["name"] for token in house.client("ops").get("/v1/tokens").json()["tokens"]]


@pytest.mark.parametrize(
    ("token", "method", "path", "body", "says"),
    [
        ("admin-all", "GET", "/v1/relations/nix/rows", None, "there is no relation 'nix'; there are a, b"),
        ("admin-all", "GET", "/v1/views/a/count", None, "there is no view 'a', but a relation"),
        ("admin-all", "GET", "/v1/relations/v", None, "there is no relation 'v', but a view"),
        ("admin-all", "POST", "/v1/changes", {"changes": [change("nix", 1)]}, "there is no relation 'nix'; there are a, b"),
        ("admin-all", "POST", "/v1/query", {"sql": "SELECT 1 FROM nix"}, "there is no relation or view 'nix'; there are a, b, v, w"),
        ("admin-named", "GET", "/v1/relations/gone", None, "there is no relation 'gone'; there is a"),
        ("admin-named", "POST", "/v1/relations/gone/changes", "", "there is no relation 'gone'; there is a"),
        ("admin-named", "POST", "/v1/changes", {"changes": [change("gone", 1)]}, "there is no relation 'gone'; there is a"),
        ("admin-named", "POST", "/v1/query", {"sql": "SELECT 1 FROM gone"}, "there is no relation or view 'gone'; there are a, v"),
        ("admin-relations", "GET", "/v1/relations/gone", None, "there is no relation 'gone'"),
    ],
)
def test_what_is_told_instead_of_a_name_is_what_the_token_is_for(
    house: House, token: str, method: str, path: str, body: Any, says: str
) -> None:
    answer = house.client(token).request(method, path, **({"content": body} if body == "" else {"json": body}))
    assert answer.status_code in (404, 422) and answer.json()["detail"] == says, answer.text


def test_a_relation_in_use_does_not_name_views_of_others(house: House) -> None:
    client = house.client("", house.create("of-a", "admin", relations=["a"], views=["w"]))
    problem = talk.problem(client.delete("/v1/relations/a"), 409, "relation-in-use")
    assert problem["views"] == ["w"] and " v" not in problem["detail"].replace("views", "")
    assert talk.problem(house.client("ops").delete("/v1/relations/a"), 409, "relation-in-use")["views"] == ["v", "w"]


def test_nothing_holds_the_text_of_a_token(house: House) -> None:
    """Runs after the other tests, which have caused all kinds of errors."""
    log = house.server.output()
    assert "ERROR" not in log
    kept = {path: path.read_bytes() for path in house.server.data.rglob("*") if path.is_file()}
    for text in [*house.texts.values(), "lj_aaaa"]:
        assert text not in log and not [path for path, data in kept.items() if text.encode() in data]
    emitted = [json.loads(line) for line in (house.server.data / AUDIT).read_text().splitlines()]
    acts = {(line["token"], line["action"], line.get("status")) for line in emitted}
    assert acts >= {
        ("ops", "POST /v1/tokens", 201), ("ops", "create token", None), ("ops", "revoke token", None), (None, "revoke token", None),
        ("write-named", "POST /v1/changes", 200), ("write-named", "POST /v1/changes", 403), (None, "- -", 401),
    }  # fmt: skip
    assert not any("/livez" in line["action"] for line in emitted)
    created = next(line for line in emitted if line["action"] == "create token" and line["name"] == "late")
    assert created.items() >= {"token": "ops", "address": "127.0.0.1", "scope": "write", "relations": ["b"], "views": ["*"]}.items()


# a service of its own


def no_sync() -> None:
    """In the service: the disk has failed."""

    def failing(file: int, path: Path) -> None:
        raise SyncFailed(5, "fsync failed: Input/output error", str(path))

    store.sync = failing  # type: ignore[attr-defined]


def test_a_failed_fsync_of_the_tokens_ends_the_service(tmp_path: Path) -> None:
    folder, text = tmp_path / "data", new_text()
    folder.mkdir()
    add_token(folder, AccessToken("ops", "admin", None, None, float("inf"), 1000.0, digest(text)), begin=True)
    with ServerProcess(folder, before=no_sync) as server:
        of_ops = {"Authorization": f"Bearer {text}"}
        answer = server.client().post("/v1/tokens", json={"name": "etl", "scope": "write"}, headers=of_ops)
        talk.problem(answer, 500, "internal")
        assert server.wait() == 1


def test_token_mode_begins_under_a_running_service_and_outlives_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ["--data", str(tmp_path / "data")]
    with pytest.raises(NotStarted, match="livejoin token create NAME --scope admin") as refused:
        ServerProcess(tmp_path / "data", arguments=["--host", "0.0.0.0"]).start()
    assert refused.value.status == 2
    with ServerProcess(tmp_path / "data") as server:
        open_house = server.client()
        talk.define(open_house, "a", TABLE)
        talk.view(open_house, "w", SELF)
        assert talk.ok(open_house.get("/v1/tokens", headers={"Authorization": "Bearer of something else"})) == {"tokens": []}
        talk.problem(open_house.post("/v1/tokens", json={"name": "x", "scope": "admin"}), 403, "forbidden")
        talk.problem(open_house.get("/v1/views", headers={"Host": "attacker.example"}), 403, "forbidden")
        with server.client().stream("GET", "/v1/views/w/changes?snapshot=true") as answer:
            records = answer.iter_lines()
            next(records)
            assert main(["token", "create", "ops", "--scope", "admin", *data]) == 0
            emitted = capfd.readouterr()
            assert "is now in token mode" in emitted.err
            talk.problem(open_house.get("/v1/views"), 401, "unauthorized")
            ops = server.client()
            ops.headers["Authorization"] = f"Bearer {emitted.out.strip()}"
            talk.ok(ops.post("/v1/changes", json={"changes": [change("a", 1), change("a", 2)]}))
            with pytest.raises(httpx.RemoteProtocolError):  # it was admitted when no token was required
                next(records)
        assert main(["token", "revoke", "ops", *data]) == 0
        talk.problem(ops.get("/v1/views"), 401, "unauthorized")
        assert server.stop() == 0
    secret = tmp_path / "secret"
    secret.write_text(new_text())
    environment = {"LIVEJOIN_ADMIN_TOKEN_FILE": str(secret), "LIVEJOIN_HOST": "0.0.0.0"}
    with ServerProcess(tmp_path / "data", environment=environment) as server:  # in token mode, although without any token so far
        talk.problem(server.client().get("/v1/views"), 401, "unauthorized")
        monkeypatch.setenv("LIVEJOIN_TOKEN", secret.read_text())
        with livejoin.connect(server.url) as client:
            assert [one["name"] for one in client.tokens()] == ["admin-token-file"] and client.view("w").count() == 1
        assert secret.read_text() not in server.output()
        assert server.stop() == 0
    capfd.readouterr()
    assert main(["check", str(tmp_path / "data")]) == 0 and "tokens     1\n" in capfd.readouterr().out
    sound = (tmp_path / "data" / TOKENS).read_bytes()
    (tmp_path / "data" / TOKENS).write_bytes(sound.replace(b"admin", b"write"))
    assert main(["check", str(tmp_path / "data")]) == 1 and f"damage     wrong checksum in {tmp_path}" in capfd.readouterr().out
    with pytest.raises(NotStarted, match="wrong checksum in .*: restore this file") as refused:
        ServerProcess(tmp_path / "data").start()
    assert refused.value.status == 1
    (tmp_path / "data" / TOKENS).write_bytes(sound)
    assert main(["token", "disable", *data]) == 0 and "1 token was revoked" in capfd.readouterr().err
    assert main(["token", "disable", *data]) == main(["token", "list", *data]) == 1

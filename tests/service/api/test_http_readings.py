"""A view in parts and its changes between two tokens, over HTTP, while others write."""

from __future__ import annotations

import io
import itertools
import json
import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pyarrow as pa
import pytest

from tests.end_to_end import talk
from tests.end_to_end.talk import problem
from tests.relations import declared
from tests.server_process import ServerProcess

NUMBERS = itertools.count(1)
TABLE: dict[str, Any] = declared("id:int64, room:string?, lo:int64, hi:int64", span="lo hi")
CLASSES = {
    "keyed": "SELECT a.id AS i, b.id AS j, intersection(a.span, b.span) AS m FROM {l} a JOIN {r} b "
    "ON a.room = b.room AND a.span OVERLAPS b.span",
    "self": "SELECT a.id AS i, b.id AS j FROM {l} a JOIN {l} b ON a.span OVERLAPS b.span AND a.id < b.id",
    "clique": "SELECT a.id AS i, b.id AS j, c.id AS k FROM {l} a, {l} b, {l} c WHERE a.span OVERLAPS b.span "
    "AND b.span OVERLAPS c.span AND a.span OVERLAPS c.span AND a.id < b.id AND b.id < c.id AND a.room = b.room AND b.room = c.room",
    "path": "SELECT a.id AS i, b.id AS j, c.id AS k FROM {l} a, {r} b, {l} c "
    "WHERE a.span OVERLAPS b.span AND b.room = c.room AND a.id < 30",
    "natural": "SELECT a.id AS i, b.id AS j, c.id AS k FROM {l} a, {r} b, {r} c WHERE a.room = b.room AND b.room = c.room AND a.lo = c.lo",
    "product": "SELECT a.id AS i, b.id AS j FROM {l} a CROSS JOIN {r} b WHERE a.id < 20",
    "filter": "SELECT a.id AS i, a.room AS r FROM {l} a WHERE a.lo > 40",
    "left": "SELECT a.id AS i, b.id AS j FROM {l} a LEFT JOIN {r} b ON a.room = b.room AND a.span OVERLAPS b.span",
    "full": "SELECT a.id AS i, b.id AS j FROM {l} a FULL JOIN {r} b ON a.span OVERLAPS b.span",
    "exists": "SELECT a.id AS i FROM {l} a WHERE NOT EXISTS (SELECT 1 FROM {r} b WHERE a.room = b.room AND a.span OVERLAPS b.span)",
    "groups": "SELECT a.room AS r, COUNT(*) AS n, MAX(b.hi) AS m FROM {l} a JOIN {r} b ON a.span OVERLAPS b.span GROUP BY a.room",
    "counted": "SELECT a.lo AS lo, SUM(a.hi) AS n FROM {l} a GROUP BY a.lo HAVING COUNT(*) > 1",
    "distinct": "SELECT DISTINCT a.id AS i FROM {l} a JOIN {r} b ON a.room = b.room",
    "values": "SELECT DISTINCT a.lo AS lo FROM {l} a JOIN {r} b ON a.room = b.room",
    "latest": "SELECT DISTINCT ON (a.room) a.room AS r, a.id AS i FROM {l} a ORDER BY a.room, a.lo DESC",
    "as of": "SELECT a.id AS i, b.id AS j FROM {l} a ASOF LEFT JOIN {r} b ON a.room = b.room AND b.lo <= a.lo",
    "gaps": "SELECT a.id AS i, gaps(a.span, b.span) AS free FROM {l} a LEFT JOIN {r} b ON a.room = b.room AND overlaps(a.span, b.span)",
    "coverage": "SELECT a.room AS r, coverage(a.span) AS busy FROM {l} a GROUP BY a.room",
    "union": "SELECT room FROM {l} UNION SELECT room FROM {r}",
    "union all": "SELECT room, id FROM {l} UNION ALL SELECT b.room, a.id FROM {r} b LEFT JOIN {l} a ON a.lo = b.lo",
}


DEFINITION: dict[str, Any] = declared("id:int64, lo:int64, hi:int64", span="lo hi")
Records = list[dict[str, Any]]


class Followed:
    """Two relations and a view of them, of this test only."""

    def __init__(self, client: httpx.Client, **options: Any) -> None:
        number = next(NUMBERS)
        self.client, self.view = client, f"followed_{number}"
        self.left, self.right = f"left_{number}", f"right_{number}"
        for relation in (self.left, self.right):
            assert client.put(f"/v1/relations/{relation}", json=DEFINITION).status_code == 201
        definition = {
            "from": {"a": self.left, "b": self.right},
            "join": [{"overlaps": ["a.span", "b.span"]}],
            "select": ["a.id as x", "b.id as y", "a.lo as lo"],
        } | options
        talk.view(client, self.view, definition)

    @property
    def at(self) -> str:
        return f"/v1/views/{self.view}/changes"

    def change(self, *changes: tuple[str, int, int]) -> int:
        """Upsert (relation, id, lo), each ten long; lo < 0 deletes. The version."""
        body = [
            {"relation": relation, "op": "delete", "key": {"id": i}}
            if lo < 0
            else {"relation": relation, "row": {"id": i, "lo": lo, "hi": lo + 10}}
            for relation, i, lo in changes
        ]
        response = self.client.post("/v1/changes", json={"changes": body})
        assert response.status_code == 200, response.text
        version: int = response.json()["version"]
        return version

    def poll(self, **query: Any) -> Records:
        response = self.client.get(self.at, params={"wait": 0} | query)
        assert response.status_code == 200, response.text
        return [json.loads(line) for line in response.text.splitlines()]


@pytest.fixture
def followed(shared_server: ServerProcess) -> Followed:
    return Followed(shared_server.client())


class Writing:
    """Two relations with a writer, who goes on until the `with` ends."""

    def __init__(self, client: httpx.Client) -> None:
        number = next(NUMBERS)
        self.client, self.names = client, {"l": f"parts_l{number}", "r": f"parts_r{number}"}
        for name in self.names.values():
            talk.define(client, name, TABLE)
        self._random = random.Random(20261124)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        for _ in range(3):
            self.post(60)

    def post(self, count: int) -> None:
        changes: list[dict[str, Any]] = []
        for _ in range(count):
            relation, id_, lo = self.names[self._random.choice("lr")], self._random.randrange(90), self._random.randrange(100)
            if self._random.random() < 0.3:
                changes.append({"relation": relation, "op": "delete", "key": {"id": id_}})
            else:
                row = {"id": id_, "room": self._random.choice(["A", "B", "C", None]), "lo": lo, "hi": lo + 1 + self._random.randrange(8)}
                changes.append({"relation": relation, "row": row})
        talk.ok(self.client.post("/v1/changes", json={"changes": changes}))

    def _write(self) -> None:
        while not self._over.is_set():
            self.post(5)

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def rows(client: httpx.Client, view: str, **params: Any) -> list[str]:
    response = client.get(f"/v1/views/{view}/rows", params=params)
    assert response.status_code == 200, response.text
    return response.text.splitlines()


def begin(client: httpx.Client, view: str, **asked: Any) -> dict[str, Any]:
    reading: dict[str, Any] = talk.ok(client.post(f"/v1/views/{view}/readings", json=asked), 201)
    assert set(reading) == {"id", "version", "token", "cursors", "expires"}
    return reading


def test_parts_are_the_view_once_while_writers_go_on(shared_server: ServerProcess) -> None:
    """Of every class; and what follows the token leads from these rows to those of a later version."""
    with Writing(shared_server.client()) as writing, shared_server.client() as client:
        views = {}
        for number, (name, sql) in enumerate(CLASSES.items()):
            views[name] = f"{writing.names['l']}_{number}"
            talk.view(client, views[name], sql.format(**writing.names))
        for name, view in views.items():
            reading = begin(client, view, parts=4)
            parts = [rows(client, view, cursor=cursor) for cursor in reading["cursors"]]
            whole = Counter(rows(client, view, version=reading["version"]))
            assert sum(map(Counter, parts), Counter()) == whole and whole, name
            assert set(whole.values()) == {1} or name in ("values", "natural", "union all"), name
            assert len(parts) == (1 if name in ("coverage", "union") else len(parts)) <= 4, name
            again = begin(client, view, parts=3, version=reading["version"])
            assert sum((Counter(rows(client, view, cursor=cursor)) for cursor in again["cursors"]), Counter()) == whole, name
            later = begin(client, view, parts=2)
            changes = client.get(f"/v1/views/{view}/changes", params={"since": reading["token"], "until": later["token"]})
            for record in map(json.loads, changes.text.splitlines()):
                assert record["op"] in ("insert", "delete", "progress"), (name, record)
                if record["op"] != "progress":
                    whole[json.dumps(record["row"], separators=(",", ":"))] += 1 if record["op"] == "insert" else -1
            assert +whole == sum((Counter(rows(client, view, cursor=cursor)) for cursor in later["cursors"]), Counter()), name
            assert client.delete(f"/v1/readings/{reading['id']}").status_code == 204


def test_the_token_follows_from_the_rows(shared_server: ServerProcess) -> None:
    view = Followed(shared_server.client())
    view.change((view.left, 1, 0), (view.right, 1, 5), (view.right, 2, 7))
    reading = begin(view.client, view.view, parts=2)
    version = view.change((view.right, 2, -1), (view.right, 3, 2))
    records = view.poll(since=reading["token"])
    assert [(r["version"], r["op"], r["row"]["y"]) for r in records[:-1]] == [(version, "delete", 2), (version, "insert", 3)]
    assert sum(len(rows(view.client, view.view, cursor=cursor)) for cursor in reading["cursors"]) == 2
    assert begin(view.client, view.view)["version"] == version


def test_a_part_as_inserts(shared_server: ServerProcess) -> None:
    view = Followed(shared_server.client())
    view.change((view.left, 1, 0), (view.left, 2, 3), (view.right, 1, 5), (view.right, 2, 7))
    reading = begin(view.client, view.view, parts=2)
    view.change((view.right, 2, -1))
    tables = [arrow(view, snapshot="true", cursor=cursor) for cursor in reading["cursors"]]
    assert tables[0].schema == arrow(view, since=reading["token"], until=reading["token"]).schema
    found = [row for table in tables for row in table.select(["_op", "_version", "a.id", "b.id"]).to_pylist()]
    wanted = [{"_op": "insert", "_version": reading["version"], "a.id": x, "b.id": y} for x in (1, 2) for y in (1, 2)]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    asked = {"snapshot": "true", "cursor": reading["cursors"][0]}
    problem(view.client.get(view.at, params=asked, headers={"Accept": talk.JSONL}), 406, "not-acceptable")
    for wrong in ({"snapshot": "false"}, {"limit": 1}, {"wait": 0}):
        problem(view.client.get(view.at, params=asked | wrong, headers={"Accept": talk.ARROW}), 400, "bad-parameter")
    problem(view.client.get(view.at, params=asked | {"cursor": "x"}, headers={"Accept": talk.ARROW}), 400, "bad-cursor")


@pytest.mark.parametrize("sql", ["SELECT id, room FROM {}", "SELECT x.id, x.room, x.lo FROM {} x", "SELECT id, room, room AS lo FROM {}"])
def test_a_part_of_a_view_that_is_another_one_now(shared_server: ServerProcess, sql: str) -> None:
    """Seen: an internal error, or an answer that was cut off, since the columns were those of the new definition."""
    client, number = shared_server.client(), next(NUMBERS)
    relation, view = f"before_r{number}", f"before_v{number}"
    talk.define(client, relation, TABLE)
    talk.ok(talk.send(client, [{"relation": relation, "row": {"id": 1, "room": "A", "lo": 3, "hi": 5}}]))
    talk.view(client, view, {"sql": f"SELECT id, room, lo FROM {relation}"})
    (cursor,) = begin(client, view)["cursors"]
    talk.ok(client.put(f"/v1/views/{view}?replace=true", json={"sql": sql.format(relation)}), 200)
    asked = {"snapshot": "true", "cursor": cursor}
    answer = client.get(f"/v1/views/{view}/changes", params=asked, headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert answer.status_code == 200, answer.text
    (row,) = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    assert row == {"_op": "insert", "_version": row["_version"], f"{relation}.id": 1, "id": 1, "room": "A", "lo": 3}


def test_a_reading_ends(shared_server: ServerProcess) -> None:
    view = Followed(shared_server.client())
    view.change((view.left, 1, 0), *((view.right, number, 5) for number in range(40)))
    reading = begin(view.client, view.view, parts=2, hold=3600)
    at, cursor = f"/v1/views/{view.view}/rows", reading["cursors"][0]
    page = view.client.get(at, params={"cursor": cursor, "limit": 7})
    assert len(page.text.splitlines()) == 7 and page.headers["Livejoin-Version"] == str(reading["version"])
    assert json.loads(view.client.get(page.links["next"]["url"]).text.splitlines()[0])["y"] == 7
    assert view.client.delete(f"/v1/readings/{reading['id']}").status_code == 204
    problem(view.client.delete(f"/v1/readings/{reading['id']}"), 404, "not-found")
    for one in reading["cursors"]:
        deleted = view.client.get(at, params={"cursor": one})
        problem(deleted, 410, "snapshot-expired")
        assert "its reading has been released" in deleted.json()["detail"]


def test_what_a_reading_may_be(shared_server: ServerProcess) -> None:
    view = Followed(shared_server.client(), changes=False)
    at = f"/v1/views/{view.view}/readings"
    assert begin(view.client, view.view)["token"] is None
    for asked in ({"parts": 0}, {"parts": 1001}, {"parts": "8"}, {"parts": True}, {"parts": 2.5}, {"hold": 0}, {"hold": 3601}, {"x": 1}):
        problem(view.client.post(at, json=asked), 400, "bad-parameter")
    problem(view.client.post(at, json={"version": 10**9}), 410, "snapshot-expired")
    problem(view.client.post(at, json={"version": -1}), 400, "bad-parameter")
    problem(view.client.post(at + "?parts=3", json={}), 400, "bad-parameter")
    problem(view.client.post(at, json=[]), 400, "malformed-body")
    problem(view.client.post(at, content=b"{", headers={"Content-Type": "application/json"}), 400, "malformed-body")
    problem(view.client.post("/v1/views/nothing/readings", json={}), 404, "not-found")


# changes between two tokens


def end(view: Followed, since: str, **params: Any) -> dict[str, Any]:
    found: dict[str, Any] = talk.ok(view.client.get(f"{view.at}/end", params={"since": since, **params}))
    assert set(found) == {"version", "token", "rows"}
    return found


def arrow(view: Followed, **params: Any) -> pa.Table:
    response = view.client.get(view.at, params=params, headers={"Accept": talk.ARROW})
    assert response.status_code == 200 and response.headers["content-type"] == talk.ARROW, response.text
    return pa.ipc.open_stream(io.BytesIO(response.content)).read_all()


def test_where_so_many_rows_end(followed: Followed) -> None:
    (start,) = followed.poll()
    assert end(followed, start["token"])["token"] == end(followed, start["token"], rows=1)["token"]
    followed.change((followed.left, 1, 0))
    batches = [[(followed.right, 10 * number + one, 5) for one in range(count)] for number, count in enumerate((3, 2, 9))]
    versions = [followed.change(*batch) for batch in batches]
    emitted = {most: end(followed, start["token"], rows=most) for most in (1, 3, 4, 5, 13, 14, 100)}
    first, second, third = versions
    wanted = {1: (first, 3), 3: (first, 3), 4: (first, 3), 5: (second, 5), 13: (second, 5), 14: (third, 14), 100: (third, 14)}
    assert {most: (found["version"], found["rows"]) for most, found in emitted.items()} == wanted
    assert end(followed, start["token"])["version"] == third
    after = end(followed, start["token"], rows=3)["token"]
    assert end(followed, after, rows=1)["version"] == second, "one version at least"
    quiet = followed.change((followed.left, 2, 1000))
    last = end(followed, end(followed, after)["token"], rows=1)
    assert (last["version"], last["rows"]) == (quiet, 0)


def test_changes_until_a_token(followed: Followed) -> None:
    (start,) = followed.poll()
    followed.change((followed.left, 1, 0))
    first = followed.change((followed.right, 1, 5), (followed.right, 2, 6))
    until = end(followed, start["token"])
    second = followed.change((followed.right, 1, -1), (followed.right, 3, 7))
    quiet = followed.change((followed.left, 2, 1000))
    last = end(followed, start["token"])
    assert (until["version"], last["version"]) == (first, quiet)
    records = followed.poll(since=start["token"], until=until["token"])
    assert [r["op"] for r in records] == ["insert", "insert", "progress"] and records[-1]["token"] == until["token"]
    response = followed.client.get(followed.at, params={"since": until["token"], "until": last["token"]})
    records = [json.loads(line) for line in response.text.splitlines()]
    assert [(r["version"], r["op"]) for r in records] == [
        (second, "delete"), (second, "insert"), (second, "progress"), (quiet, "progress")
    ]  # fmt: skip
    assert records[-1]["token"] == last["token"]
    (only,) = followed.poll(since=last["token"], until=last["token"])
    assert (only["op"], only["token"]) == ("progress", last["token"])
    assert len(followed.poll(since=start["token"], until=last["token"], limit=1)) == 3

    table = arrow(followed, since=start["token"], until=last["token"])
    assert table.schema.names == ["_op", "_version", "a.id", "b.id", "x", "y", "lo"]
    assert table.select(["_op", "_version", "a.id", "b.id", "lo"]).to_pylist() == [
        {"_op": op, "_version": version, "a.id": 1, "b.id": y, "lo": 0}
        for op, version, y in (("insert", first, 1), ("insert", first, 2), ("delete", second, 1), ("insert", second, 3))
    ]
    assert arrow(followed, since=until["token"], until=until["token"]).num_rows == 0


def test_a_long_stretch(followed: Followed) -> None:
    (start,) = followed.poll()
    followed.change(*((followed.left, number, 0) for number in range(150)))
    followed.change(*((followed.right, number, 5) for number in range(150)))
    followed.change(*((followed.right, number, -1) for number in range(150)))
    last = end(followed, start["token"])["token"]
    table = arrow(followed, since=start["token"], until=last)
    assert Counter(table["_op"].to_pylist()) == {"insert": 22_500, "delete": 22_500}
    records = followed.poll(since=start["token"], until=last)
    assert len(records) == 45_002 and records[-1]["token"] == last


def test_changes_as_arrow_are_a_follower_s(tmp_path: Path) -> None:
    """While they are sent; of a request that is refused nobody is one."""
    with ServerProcess(tmp_path / "data", arguments=["--max-followers", "1"]) as server:
        view = Followed(server.client())
        (start,) = view.poll()
        view.change(*((relation, number, 0) for relation in (view.left, view.right) for number in range(700)))
        last = end(view, start["token"])["token"]
        tokens = {"since": start["token"], "until": last}
        asked = f"GET {view.at}?{urlencode(tokens)} HTTP/1.1\r\nHost: localhost\r\nAccept: {talk.ARROW}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as reader:
            reader.sendall(asked.encode())
            assert reader.recv(100).startswith(b"HTTP/1.1 200")  # and takes no more of some 30 MB
            for accept in (talk.ARROW, talk.JSONL):
                problem(view.client.get(view.at, params=tokens, headers={"Accept": accept}), 429, "too-busy")
        nothing = {"since": last, "until": last}
        while view.client.get(view.at, params=nothing, headers={"Accept": talk.ARROW}).status_code == 429:
            pass  # the test's time limit ends this if the one that has gone is not forgotten
        for _ in range(2):
            problem(view.client.get(view.at, params=nothing | {"since": "x"}, headers={"Accept": talk.ARROW}), 400, "bad-token")
            assert arrow(view, **nothing).num_rows == 0


def test_columns_of_the_key_and_of_the_row(shared_server: ServerProcess) -> None:
    view = Followed(shared_server.client(), select=["a.id", "b.id as y"])
    (start,) = view.poll()
    view.change((view.left, 1, 0), (view.right, 2, 5))
    table = arrow(view, since=start["token"], until=end(view, start["token"])["token"])
    assert table.column_names == ["_op", "_version", "a.id", "b.id", "id", "y"]
    assert table.select(["b.id", "a.id", "id", "y"]).to_pylist() == [{"b.id": 2, "a.id": 1, "id": 1, "y": 2}]
    taken = Followed(shared_server.client(), select=["a.id as _version"])
    (token,) = taken.poll()
    params = {"since": token["token"], "until": token["token"]}
    problem(taken.client.get(taken.at, params=params, headers={"Accept": talk.ARROW}), 406, "not-acceptable")


def test_groups_and_rows_that_are_values(shared_server: ServerProcess) -> None:
    client = shared_server.client()
    number = next(NUMBERS)
    name = f"grouped_{number}"
    talk.define(client, name, TABLE)
    views = {
        "g": "SELECT room AS r, COUNT(*) AS n FROM {} GROUP BY room",
        "t": "SELECT COUNT(*) AS n FROM {}",
        "u": "SELECT room AS room FROM {} UNION SELECT room AS room FROM {}",
    }
    wanted = {"g": ["group.r", "r", "n"], "t": ["n"], "u": ["row.room", "room"]}
    for short, sql in views.items():
        talk.view(client, f"{name}_{short}", sql.replace("{}", name))
    starts = {short: json.loads(client.get(f"/v1/views/{name}_{short}/changes?wait=0").text)["token"] for short in views}
    talk.ok(client.post("/v1/changes", json={"changes": [{"relation": name, "row": {"id": 1, "room": None, "lo": 1, "hi": 2}}]}))
    for short, since in starts.items():
        at = f"/v1/views/{name}_{short}/changes"
        until = talk.ok(client.get(f"{at}/end", params={"since": since}))["token"]
        response = client.get(at, params={"since": since, "until": until}, headers={"Accept": talk.ARROW})
        table = pa.ipc.open_stream(io.BytesIO(response.content)).read_all()
        assert table.schema.names[2:] == wanted[short] and "insert" in table["_op"].to_pylist(), short


def test_what_is_refused_between_tokens(followed: Followed, shared_server: ServerProcess) -> None:
    (start,) = followed.poll()
    followed.change((followed.left, 1, 0), (followed.right, 1, 5))
    last, other = end(followed, start["token"]), Followed(followed.client)
    (theirs,) = other.poll()

    def refused(kind: str, status: int, path: str = "", accept: str = "*/*", **params: Any) -> str:
        response = followed.client.get(followed.at + path, params=params, headers={"Accept": accept})
        problem(response, status, kind)
        return str(response.json()["detail"])

    tokens = {"since": start["token"], "until": last["token"]}
    assert "until" in refused("bad-parameter", 400, since=last["token"], until=start["token"])
    refused("bad-parameter", 400, until=last["token"])
    refused("bad-parameter", 400, until=last["token"], snapshot="true")
    refused("bad-token", 400, since=start["token"], until=theirs["token"])
    refused("bad-token", 400, since=start["token"], until="x")
    refused("not-acceptable", 406, accept=talk.ARROW, since=start["token"])
    refused("bad-parameter", 400, accept=talk.ARROW, limit=1, **tokens)
    refused("bad-parameter", 400, "/end")
    refused("bad-parameter", 400, "/end", since=start["token"], rows=0)
    refused("bad-token", 400, "/end", since=theirs["token"])
    problem(followed.client.get("/v1/views/nothing/changes/end?since=x"), 404, "not-found")
    unfollowed = Followed(followed.client, changes=False)
    problem(followed.client.get(f"{unfollowed.at}/end?since=x"), 409, "not-followed")


def test_between_tokens_that_are_no_longer_kept(shared_server: ServerProcess) -> None:
    view = Followed(shared_server.client(), changes={"retain_rows": 5})
    (start,) = view.poll()
    view.change((view.left, 1, 0))
    for number in range(8):
        view.change((view.right, number, 5))
    problem(view.client.get(f"{view.at}/end", params={"since": start["token"]}), 410, "token-expired")
    (now,) = view.poll()
    params = {"since": start["token"], "until": now["token"]}
    for accept in (talk.ARROW, talk.JSONL):
        problem(view.client.get(view.at, params=params, headers={"Accept": accept}), 410, "token-expired")


def test_nulls_of_a_former_definition(followed: Followed) -> None:
    """Arrow says that the columns of changes may be null, though those of the view's rows never are."""
    sides = f"{followed.left} a {{}} JOIN {followed.right} b ON overlaps(a.span, b.span)"
    for side in ("LEFT", ""):
        definition = {"sql": f"SELECT a.id AS x, b.id AS y, a.lo AS lo FROM {sides.format(side)}"}
        assert followed.client.put(f"/v1/views/{followed.view}?replace=true", json=definition).is_success
        while "replacement" in followed.client.get(f"/v1/views/{followed.view}").json():
            time.sleep(0.01)
        if side == "LEFT":
            token = followed.poll()[-1]["token"]
            followed.change((followed.left, 1, 0))
    until = followed.poll(since=token)[-1]["token"]
    table = arrow(followed, since=token, until=until)
    assert table.column("y").to_pylist() == [None, None]
    assert table.schema.field("y").nullable

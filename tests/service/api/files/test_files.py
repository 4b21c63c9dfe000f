"""Rows as files over HTTP, whole and in parts, while they change; brute force says what is right."""

from __future__ import annotations

import io
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from tests.end_to_end import talk
from tests.end_to_end.talk import problem
from tests.server_process import ServerProcess
from tests.service.api.test_http_rows import Loaded, meet

READ: dict[str, Callable[[bytes], pa.Table]] = {
    "parquet": lambda data: pq.read_table(io.BytesIO(data)),
    "arrow": lambda data: pa.ipc.open_stream(data).read_all(),
    "csv": lambda data: pyarrow.csv.read_csv(io.BytesIO(data)),
    "jsonl": lambda data: pyarrow.json.read_json(io.BytesIO(data)),
}
TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv; charset=utf-8; header=present",
    "jsonl": "application/jsonl",
}


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["x"].to_pylist(), table["y"].to_pylist(), strict=True))


class Files(Loaded):
    def at(self, suffix: str = "parquet", query: str = "") -> str:
        return f"/v1/views/{self.view}/rows.{suffix}{query}"

    def change(self) -> None:
        """A version in which the view has other rows: a booking over everything comes, or goes."""
        self.present = not getattr(self, "present", False)
        row = {"id": 9999, "room": "A", "lo": 0, "hi": None}
        change = {"row": row} if self.present else {"op": "delete", "key": {"id": 9999}}
        talk.ok(self.client.post("/v1/changes", json={"changes": [{"relation": f"{self.view}_l", **change}]}))

    def part(self, range_: str, **headers: str) -> httpx.Response:
        return self.client.get(self.at(), headers={"Range": f"bytes={range_}", **headers})


@pytest.fixture(scope="module")
def files(shared_server: ServerProcess) -> Files:
    return Files(shared_server, "filed", 600)


@pytest.mark.parametrize("suffix", READ)
def test_whole(files: Files, suffix: str) -> None:
    answer = files.client.get(files.at(suffix))
    assert answer.headers["Content-Type"] == TYPES[suffix]
    assert answer.headers["Content-Disposition"] == f'inline; filename="{files.view}.{suffix}"'
    found = pairs(READ[suffix](answer.content))
    assert len(found) == len(set(found)) and set(found) == files.pairs
    again = files.client.get(files.at(suffix))
    assert (again.content, again.headers["ETag"]) == (answer.content, answer.headers["ETag"])
    head = files.client.head(files.at(suffix))
    assert (head.status_code, head.content, int(head.headers["Content-Length"])) == (200, b"", len(answer.content))
    for name in ("ETag", "Content-Type", "Livejoin-Version", "Livejoin-Empty", "Content-Disposition", "Accept-Ranges"):
        assert head.headers[name] == answer.headers[name]


@pytest.mark.parametrize("suffix", READ)
def test_a_relation(files: Files, suffix: str) -> None:
    answer = files.client.get(f"/v1/relations/{files.view}_r/rows.{suffix}")
    table = READ[suffix](answer.content)
    assert sorted(table["id"].to_pylist()) == [row["id"] for row in files.right]
    assert table.column_names == ["id", "room", "lo", "hi"]
    assert files.client.head(f"/v1/relations/{files.view}_r/rows.{suffix}").headers["Content-Length"] == f"{len(answer.content)}"


def test_filters(files: Files) -> None:
    left, right = {row["id"]: row for row in files.left}, {row["id"]: row for row in files.right}
    window = {"lo": 100, "hi": 141}  # the window is closed
    wanted = {(x, y) for x, y in files.pairs if meet(left[x], window) and meet(right[y], window)}
    for query in ("?overlaps=100,140", "?overlaps=100%2C140"):
        found = files.client.get(files.at(query=query))
        assert set(pairs(READ["parquet"](found.content))) == wanted
        assert files.client.head(files.at(query=query)).headers["Content-Length"] == f"{len(found.content)}"
    found = files.client.get(files.at("csv", "?where.l.id=7"))
    assert set(pairs(READ["csv"](found.content))) == {pair for pair in files.pairs if pair[0] == 7}
    limited = files.client.get(files.at("jsonl", "?limit=10"))
    assert len(limited.content.splitlines()) == 10 and "Link" not in limited.headers
    assert limited.content == files.client.get(f"/v1/views/{files.view}/rows?limit=10").content
    assert len(files.client.get(f"/v1/relations/{files.view}_l/rows.csv?limit=3").content.splitlines()) == 4
    empty = files.client.get(files.at(query="?where.l.id=123456"))
    assert empty.headers["Livejoin-Empty"] == "true" and READ["parquet"](empty.content).num_rows == 0


@pytest.mark.parametrize("suffix", READ)
def test_filters_of_a_relation(files: Files, suffix: str) -> None:
    path, window = f"/v1/relations/{files.view}_r/rows.{suffix}", {"lo": 100, "hi": 141}
    wanted = sorted(row["id"] for row in files.right if meet(row, window))
    for query in ("?overlaps=100,140", "?overlaps.span=100,140"):
        found = files.client.get(path + query)
        assert sorted(READ[suffix](found.content)["id"].to_pylist()) == wanted
        head = files.client.head(path + query)
        assert head.headers["Content-Length"] == f"{len(found.content)}" and head.headers["ETag"] == found.headers["ETag"]
    one = files.client.get(f"{path}?where.id=7")
    assert READ[suffix](one.content)["id"].to_pylist() == [7]
    part = files.client.get(f"{path}?where.id=7", headers={"Range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, one.content[:4])
    assert files.client.get(f"{path}?where.id=7&overlaps=100000,").headers["Livejoin-Empty"] == "true"
    refused = {"where.room=A": "by its whole key", "overlaps.room=1,2": "room", "where.l.id=7": "where", "cursor=x": "cursor: unknown"}
    for query, said in refused.items():
        assert said in problem(files.client.get(f"{path}?{query}"), 400, "bad-parameter")["detail"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?cursor=x", "cursor: unknown parameter"),
        ("?token=lj_x", "token: unknown parameter"),
        ("?limit=-1", "limit: must be at least 0"),
        ("?where.l.lo=3", "where"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_refused_parameters(files: Files, query: str, said: str, method: str) -> None:
    answer = files.client.request(method, files.at(query=query))
    assert answer.status_code == 400
    if method == "GET":
        assert said in problem(answer, 400, "bad-parameter")["detail"]


def test_names_that_are_not_there(files: Files) -> None:
    problem(files.client.get("/v1/views/nobody/rows.csv"), 404, "not-found")
    problem(files.client.get("/v1/relations/nobody/rows.csv"), 404, "not-found")
    problem(files.client.get(f"/v1/views/{files.view}/rows.xlsx"), 404, "not-found")
    assert files.client.head("/v1/views/nobody/rows.csv").status_code == 404
    problem(files.client.put(files.at()), 405, "method-not-allowed")


def test_parts(files: Files) -> None:
    whole = files.client.get(files.at()).content
    size = len(whole)
    for text, part in (("0-3", whole[:4]), ("-8", whole[-8:]), (f"{size - 5}-", whole[-5:]), (f"10-{size * 2}", whole[10:]), ("0-", whole)):
        answer = files.part(text)
        assert (answer.status_code, answer.content) == (206, part)
        assert answer.headers["Content-Length"] == f"{len(part)}"
        start = size - len(part) if text != "0-3" else 0
        assert answer.headers["Content-Range"] == f"bytes {start}-{start + len(part) - 1}/{size}"
    beyond = files.part(f"{size}-")
    assert problem(beyond, 416, "unsatisfiable-range")["size"] == size and beyond.headers["Content-Range"] == f"bytes */{size}"
    several = files.part("0-3,8-9")
    assert (several.status_code, several.content) == (200, whole)


def test_parts_belong_together_whatever_changes_meanwhile(files: Files) -> None:
    """Without any condition, as DuckDB and fsspec ask."""
    head = files.client.head(files.at())
    tag, size = head.headers["ETag"], int(head.headers["Content-Length"])
    whole = files.client.get(files.at()).content
    found = b""
    for start in range(0, size, size // 7):
        files.change()
        answer = files.part(f"{start}-{start + size // 7 - 1}")
        assert (answer.status_code, answer.headers["ETag"]) == (206, tag)
        found += answer.content
    assert found == whole
    after = files.client.head(files.at())
    assert after.headers["ETag"] != tag and int(after.headers["Livejoin-Version"]) > int(head.headers["Livejoin-Version"])
    assert files.part("0-3").headers["ETag"] == after.headers["ETag"], "who asks for the length begins anew"
    files.change()
    end = files.part("-8").headers["ETag"]
    assert end != after.headers["ETag"] and files.part("4-9").headers["ETag"] == end, "so does who asks for the end"


def test_two_readers_do_not_get_into_each_other_s_way(shared_server: ServerProcess, files: Files) -> None:
    """Of one address, each over a connection of its own."""
    with shared_server.client() as first, shared_server.client() as second:
        before = first.head(files.at()).headers["ETag"]
        files.change()
        after = second.head(files.at()).headers["ETag"]
        assert before != after
        for reader, tag in ((first, before), (second, after), (first, before)):
            assert reader.get(files.at(), headers={"Range": "bytes=4-9"}).headers["ETag"] == tag


def test_if_match(files: Files) -> None:
    old = files.client.head(files.at())
    tag = old.headers["ETag"]
    files.change()
    files.client.head(files.at())
    for answer in (files.part("0-3", **{"If-Match": tag}), files.client.get(files.at(), headers={"If-Match": f'"x", {tag}'})):
        assert answer.headers["ETag"] == tag, "it is kept"
    assert files.client.get(files.at(), headers={"If-Match": tag}).headers["Content-Length"] == old.headers["Content-Length"]
    assert files.client.get(files.at(), headers={"If-Match": "*"}).status_code == 200
    for headers in ({"If-Match": '"x"'}, {"If-Match": '"x"', "Range": "bytes=0-3"}, {"If-Match": f"W/{tag}"}):
        said = problem(files.client.get(files.at(), headers=headers), 412, "range-changed")
        assert said["tag"] == files.client.head(files.at()).headers["ETag"] and "no longer kept" in said["detail"]
    assert files.client.head(files.at(), headers={"If-Match": '"x"'}).status_code == 412


def test_if_none_match(files: Files) -> None:
    tag = files.client.get(files.at()).headers["ETag"]
    for method in ("GET", "HEAD"):
        for value in (tag, f'"x", W/{tag}', "*"):
            answer = files.client.request(method, files.at(), headers={"If-None-Match": value})
            assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", tag)
        assert files.client.request(method, files.at(), headers={"If-None-Match": '"x"'}).status_code == 200
    files.change()
    answer = files.client.get(files.at(), headers={"If-None-Match": tag})
    assert answer.status_code == 200 and answer.headers["ETag"] != tag


def test_if_range(files: Files) -> None:
    tag = files.client.head(files.at()).headers["ETag"]
    assert files.part("0-3", **{"If-Range": tag}).status_code == 206
    files.change()
    assert files.part("0-3", **{"If-Range": tag}).headers["ETag"] == tag, "it is kept"
    for value in ('"x"', "Tue, 24 Nov 2026 11:00:00 GMT"):
        whole = files.part("0-3", **{"If-Range": value})
        assert whole.status_code == 200 and whole.headers["ETag"] != tag and READ["parquet"](whole.content).num_rows > 0


def test_the_tag_is_of_the_definition_too(files: Files) -> None:
    def tag() -> str:
        return str(files.client.get("/v1/views/defined/rows.csv").headers["ETag"])

    talk.view(files.client, "defined", files.definition)
    first = tag()
    talk.drop(files.client, ["defined"])
    talk.view(files.client, "defined", files.definition | {"select": ["r.id as y", "l.id as x"]})
    assert first != tag() and first.split("-")[:2] == tag().split("-")[:2]
    relation = f"/v1/relations/{files.view}_l/rows.csv"
    before = files.client.head(relation).headers["ETag"]
    talk.ok(
        files.client.patch(f"/v1/relations/{files.view}_l", json={"add_columns": [{"name": "note", "type": "string", "nullable": True}]})
    )
    assert files.client.head(relation).headers["ETag"] != before
    assert files.client.get(relation).text.splitlines()[0] == "id,room,lo,hi,note"


@pytest.mark.parametrize("kind", ["relations", "views"])
def test_nothing_of_one_that_was_dropped(shared_server: ServerProcess, kind: str) -> None:
    """Another one of its name has a file, a tag, versions and cursors of its own."""
    client, path = shared_server.client(), f"/v1/{kind}/dropped{'_rows' if kind == 'views' else ''}"
    columns = [{"name": "id", "type": "int64"}]

    def make(first: int) -> None:
        talk.define(client, "dropped", {"columns": columns, "key": ["id"]})
        if kind == "views":
            talk.view(client, "dropped_rows", f"SELECT x.id AS id FROM dropped x WHERE x.id < {first + 1000}")
        talk.load(client, "dropped", pa.table({"id": range(first, first + 9)}), "application/vnd.apache.arrow.stream")

    def part(**headers: str) -> httpx.Response:
        return client.get(f"{path}/rows.csv", headers={"Range": "bytes=3-6", **headers})

    def drop() -> None:
        talk.drop(client, ["dropped_rows"] if kind == "views" else [], ["dropped"])

    make(100)
    tag = client.head(f"{path}/rows.csv").headers["ETag"]
    page = talk.ok(client.get(f"{path}/rows?limit=2", headers={"Accept": "application/json"}))
    assert part().text == "100\n" and part().headers["ETag"] == tag
    drop()
    problem(part(), 404, "not-found")
    make(200)
    assert part().text == "200\n" and part().headers["ETag"] != tag
    problem(part(**{"If-Match": tag}), 412, "range-changed")
    assert (whole := part(**{"If-Range": tag})).status_code == 200 and whole.text.splitlines()[1] == "200"
    assert client.get(f"{path}/rows.csv", headers={"If-None-Match": tag}).status_code == 200
    problem(client.get(f"{path}/rows?cursor={page['next']}"), 400, "bad-cursor")
    problem(client.get(f"{path}/rows?version={page['version']}"), 410, "snapshot-expired")
    problem(client.get(f"{path}/rows.csv?version={page['version']}"), 410, "snapshot-expired")
    drop()


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service that may spool 4 MiB for a second, with a view of a million pairs, whose Parquet is larger, and a relation that is not."""
    with ServerProcess(tmp_path_factory.mktemp("dense") / "data", arguments=["--spool-bytes", "4MiB", "--spool-idle", "1"]) as server:
        client = server.client()
        columns = [{"name": "id", "type": "int64"}, {"name": "lo", "type": "int64"}, {"name": "hi", "type": "int64"}]
        talk.define(client, "a", {"columns": columns, "key": ["id"], "intervals": {"span": {"start": "lo", "end": "hi"}}})
        talk.load(client, "a", pa.table({"id": range(1000), "lo": [0] * 1000, "hi": range(1, 1001)}), "application/vnd.apache.arrow.stream")
        talk.view(client, "v", "SELECT x.id AS x, y.id AS y FROM a x JOIN a y ON overlaps(x.span, y.span)")
        yield server


def figures(client: httpx.Client) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("livejoin_spool")}


def test_one_that_is_too_long_is_sent_whole(dense: ServerProcess) -> None:
    client = dense.client()
    head = client.head("/v1/views/v/rows.csv")
    assert head.status_code == 200 and head.headers["Accept-Ranges"] == "none" and "Content-Length" not in head.headers
    answer = client.get("/v1/views/v/rows.csv", headers={"Range": "bytes=0-3"})
    assert answer.status_code == 200 and len(answer.content.splitlines()) == 1_000_001
    assert figures(client)["livejoin_spool_bytes"] == 0


def test_spools_are_counted_and_removed(dense: ServerProcess) -> None:
    client = dense.client()
    written = figures(client)["livejoin_spools_written_total"]
    size = int(client.head("/v1/relations/a/rows.csv").headers["Content-Length"])
    spooled = list((dense.data / "spools").iterdir())
    assert [path.stat().st_size for path in spooled] == [size] and spooled[0].stat().st_mode & 0o777 == 0o600
    found = figures(client)
    assert found["livejoin_spool_bytes"] == size and found["livejoin_spools_written_total"] == written + 1
    while list((dense.data / "spools").iterdir()):
        time.sleep(0.05)  # the test's time limit ends this if it stays
    assert figures(client)["livejoin_spool_bytes"] == 0
    assert client.get("/v1/relations/a/rows.csv", headers={"Range": "bytes=0-3"}).status_code == 206


def test_parts_at_the_same_time_are_of_one_spool(dense: ServerProcess) -> None:
    written = figures(dense.client())["livejoin_spools_written_total"]
    found: list[httpx.Response] = []

    def read(number: int) -> None:
        with dense.client() as client:
            found.append(client.get("/v1/relations/a/rows.jsonl", headers={"Range": f"bytes={number}-{number}"}))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in found] == [206] * 8 and len({answer.headers["ETag"] for answer in found}) == 1
    assert figures(dense.client())["livejoin_spools_written_total"] == written + 1


def test_what_a_killed_service_has_left_is_removed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.define(client, "a", {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
        tag = client.head("/v1/relations/a/rows.csv").headers["ETag"]
        assert list((server.data / "spools").iterdir())
        server.kill()
        server.start()
        assert not (server.data / "spools").exists()
        client = server.client()
        problem(client.get("/v1/relations/a/rows.csv", headers={"If-Match": tag}), 412, "range-changed")


def test_a_client_that_leaves_leaves_nothing(dense: ServerProcess) -> None:
    """While the service reads for it, or, of a HEAD that was quick, just after."""
    client = dense.client()
    for request in (b"HEAD /v1/views/v/rows.jsonl", b"GET /v1/views/v/rows.parquet"):
        with socket.create_connection(("127.0.0.1", dense.port)) as reader:
            reader.sendall(request + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not client.get("/v1/status").json()["figures"]["pins"] and not select.select([reader], [], [], 0)[0]:
                pass
        while client.get("/v1/status").json()["figures"]["pins"] or figures(client)["livejoin_spool_bytes"]:
            time.sleep(0.01)  # the test's time limit ends this if something stays


def test_a_slow_reader_is_waited_for(dense: ServerProcess) -> None:
    """What it has not taken is not made: of 15 MiB it takes a little, and the service has sent what the sockets hold."""
    client = dense.client()
    sent = "livejoin_rows_sent_total"

    def rows_sent() -> float:
        return next(float(line.split()[1]) for line in client.get("/metrics").text.splitlines() if line.startswith(sent))

    before = rows_sent()
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", dense.port))
        reader.sendall(b"GET /v1/views/v/rows.jsonl HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reader.recv(1000).startswith(b"HTTP/1.1 200")
        made = -1.0
        while made != (made := rows_sent()):
            time.sleep(0.2)
        assert made - before < 700_000

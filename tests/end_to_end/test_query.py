"""`POST /v1/query` as described in docs/reference/rest.md: rows in every media type, versions, rights, refusals, limits, disconnects."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyarrow as pa
import pytest

import livejoin
from service.adhoc.frames import is_readable
from tests.end_to_end import talk
from tests.relations import bookings
from tests.server_process import ServerProcess
from tests.waiting import until

BOOKINGS = bookings("day:date?, price:decimal(12,2), score:float64?, vip:bool?")
CLASHES = (
    "SELECT a.id AS x, b.id AS y, intersection(a.stay, b.stay) AS clash FROM bookings a JOIN bookings b "
    "ON a.room = b.room AND overlaps(a.stay, b.stay) AND a.id < b.id"
)
ROOMS = "SELECT room AS room, count(*) AS n, sum(price) AS total FROM bookings GROUP BY room"
SLOW = "SELECT count(*) AS n FROM " + ", ".join(f"bookings t{number}" for number in range(5))


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "room": "ABC"[number % 3],
        "starts": f"2026-01-{1 + number % 28:02d}T12:00:00Z",
        "ends": f"2026-02-{1 + number % 28:02d}T12:00:00.000001Z" if number % 5 else None,
        "day": f"2026-03-{1 + number % 28:02d}" if number % 7 else None,
        "price": f"{number}.50",
        "score": [None, 1.5, "NaN", "-Infinity", -0.0][number % 5],
        "vip": [True, False, None][number % 3],
    }


ROWS = [row(number) for number in range(300)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("query") / "data"
    arguments = ["--query-time", "20", "--query-memory", "256MiB"]
    with ServerProcess(folder, environment={"LIVEJOIN_SYNCHRONOUS": "normal"}, arguments=arguments) as server:
        client = server.client()
        talk.define(client, "bookings", BOOKINGS)
        body = b"".join(json.dumps(one).encode() + b"\n" for one in ROWS)
        talk.ok(client.post("/v1/relations/bookings/changes", content=body, headers={"Content-Type": talk.JSONL}))
        talk.view(client, "clashes", CLASHES)
        talk.view(client, "rooms", ROOMS)
        yield server


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> httpx.Client:
    return server.client()


def ask(client: httpx.Client, sql: str, accept: str | None = None, **fields: Any) -> httpx.Response:
    return client.post("/v1/query", json={"sql": sql, **fields}, headers={"Accept": accept} if accept else {})


def rows(client: httpx.Client, sql: str, **fields: Any) -> list[dict[str, Any]]:
    answer = ask(client, sql, **fields)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def refused(client: httpx.Client, sql: str, status: int, kind: str) -> dict[str, Any]:
    return talk.problem(ask(client, sql), status, kind)


def test_values_come_back_as_they_were_sent(client: httpx.Client) -> None:
    """Decimals, times, nulls, NaN, -0.0: the rows of a query are those of the relation."""
    read = [json.loads(line) for line in client.get("/v1/relations/bookings/rows").text.splitlines()]
    assert rows(client, "SELECT * FROM bookings ORDER BY id") == sorted(read, key=lambda one: one["id"]) == ROWS
    read = [json.loads(line) for line in client.get("/v1/views/clashes/rows").text.splitlines()]
    assert rows(client, "SELECT * FROM clashes ORDER BY x, y") == sorted(read, key=lambda one: (one["x"], one["y"]))


def test_groups_of_a_view_and_of_the_query(client: httpx.Client) -> None:
    live = rows(client, "SELECT * FROM rooms ORDER BY room")
    assert live == rows(client, "SELECT room, count(*) AS n, sum(price) AS total FROM bookings GROUP BY room ORDER BY room")
    assert live == [{"room": r, "n": 100, "total": f"{sum(n for n in range(300) if n % 3 == k) + 50}.00"} for k, r in enumerate("ABC")]


def test_relations_and_views_joined_more_than_once(client: httpx.Client) -> None:
    """Each scan by DuckDB is a separate reading of the same version."""
    sql = (
        "WITH c AS (SELECT x, count(*) AS n FROM clashes GROUP BY x) "
        "SELECT sum(c.n) AS a, (SELECT count(*) FROM clashes) AS b FROM bookings JOIN c ON c.x = bookings.id"
    )
    (found,) = rows(client, sql)
    assert found["a"] == found["b"] == talk.ok(client.get("/v1/views/clashes/count"))["count"]
    (found,) = rows(client, "SELECT count(*) AS n FROM bookings a JOIN bookings b ON a.id + 1 = b.id WHERE a.room < b.room")
    assert found["n"] == 200


def test_every_media_type(client: httpx.Client) -> None:
    sql = "SELECT id, ends, price FROM bookings WHERE id IN (5, 6) ORDER BY id"
    wanted = [{"id": 5, "ends": None, "price": "5.50"}, {"id": 6, "ends": "2026-02-07T12:00:00.000001Z", "price": "6.50"}]
    assert rows(client, sql) == wanted
    page = talk.ok(ask(client, sql, talk.JSON))
    assert page == {"version": 1, "rows": wanted, "next": None}
    assert ask(client, sql, talk.CSV).text == "id,ends,price\n5,,5.50\n6,2026-02-07T12:00:00.000001Z,6.50\n"
    with pa.ipc.open_stream(ask(client, sql, talk.ARROW).content) as reader:
        table = reader.read_all()
    assert table.schema.types == [pa.int64(), pa.timestamp("us", "UTC"), pa.decimal128(12, 2)] and table.num_rows == 2
    events = ask(client, sql, talk.SSE).text.split("\n\n")
    assert [event.partition("\n")[0] for event in events[:3]] == ["event: row", "event: row", "event: end"]
    talk.problem(ask(client, sql, "image/png"), 406, "not-acceptable")
    for accept in (talk.JSON, talk.JSONL, talk.CSV, talk.ARROW, talk.SSE):  # no rows, but the columns
        answer = ask(client, "SELECT id FROM bookings WHERE id < 0", accept)
        assert answer.status_code == 200 and answer.headers["livejoin-empty"] == "true" and answer.headers["livejoin-version"] == "1"
    assert ask(client, sql, talk.CSV).headers["livejoin-empty"] == "false"


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("1::TINYINT", 1),
        ("sum(3)", 3),
        ("9223372036854775807", 2**63 - 1),
        ("18446744073709551615::UBIGINT", "18446744073709551615"),
        ("1.5::FLOAT", 1.5),
        ("1.50", "1.50"),
        ("1/0", "Infinity"),
        ("NULL", None),
        ("TIMESTAMP '2026-01-01 12:00:00'", "2026-01-01T12:00:00Z"),
        ("TIMESTAMPTZ '2026-01-01 12:00:00.5+01'", "2026-01-01T11:00:00.500000Z"),
        ("date_trunc('month', DATE '2026-05-17')", "2026-05-01T00:00:00Z"),
        ("TIME '12:30'", "12:30:00"),
        ("INTERVAL 90 MINUTE", "01:30:00"),
        ("[1, NULL, 3]", "[1,null,3]"),
        ("{'a': [1.5], 'b': 'x'}", '{"a":[1.5],"b":"x"}'),
        ("'ab'::BLOB", "YWI="),
        ("'e\u0301🙂\"\\'", "e\u0301🙂\"\\"),
        ("NULL::TIME", None),
        ("'infinity'::TIMESTAMPTZ", None),
        ("'-infinity'::TIMESTAMP", None),
        ("TIMESTAMPTZ '12026-01-01 00:00:00+00'", "+012026-01-01T00:00:00Z"),
        ("'infinity'::DATE", None),
        ("DATE '12026-01-01'", "+012026-01-01"),
        ("'1b4e28ba-2fa1-11d2-883f-0016d3cca427'::UUID", "1b4e28ba-2fa1-11d2-883f-0016d3cca427"),
        ("CASE WHEN 7 / 2 = 3.5 THEN 7 // 2 END", 3),
        ("strftime(DATE '2026-03-01', '%Y-%m')", "2026-03"),
    ],
)
def test_types_of_duckdb(client: httpx.Client, expression: str, shown: Any) -> None:
    assert rows(client, f"SELECT {expression} AS v") == [{"v": shown}]


def test_a_sum_beyond_int64_is_told(client: httpx.Client) -> None:
    refused(client, "SELECT sum(9223372036854775807 + id * 0) AS s FROM bookings", 400, "bad-query")
    (found,) = rows(client, "SELECT sum(9223372036854775807 + id * 0)::DECIMAL(38, 0) AS s FROM bookings")
    assert found == {"s": str(300 * (2**63 - 1))}


def test_versions(client: httpx.Client) -> None:
    """A version that a cursor pins can be queried while it is pinned; others cannot."""
    talk.define(client, "moving", {"columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "int64"}], "key": ["k"]})

    def put(value: int) -> int:
        change = {"relation": "moving", "op": "upsert", "row": {"k": 1, "v": value}}
        return int(talk.ok(client.post("/v1/changes", json={"changes": [change, {**change, "row": {"k": 2, "v": value}}]}))["version"])

    first = put(1)
    page = client.get("/v1/relations/moving/rows?limit=1")
    assert page.headers["livejoin-version"] == str(first) and "next" in page.links
    second = put(2)
    answer = ask(client, "SELECT k, v FROM moving ORDER BY k", version=first)
    assert answer.headers["livejoin-version"] == str(first) and answer.text == '{"k":1,"v":1}\n{"k":2,"v":1}\n'
    answer = ask(client, "SELECT v FROM moving WHERE k = 2", version=first)  # its row has changed since
    assert answer.text == '{"v":1}\n'
    answer = ask(client, "SELECT k, v FROM moving ORDER BY k")
    assert answer.headers["livejoin-version"] == str(second) and answer.text == '{"k":1,"v":2}\n{"k":2,"v":2}\n'
    talk.problem(ask(client, "SELECT 1", version=second + 1), 410, "snapshot-expired")
    talk.problem(ask(client, "SELECT 1", version=0), 410, "snapshot-expired")
    talk.drop(client, relations=["moving"])


def test_names_of_with_go_first(client: httpx.Client) -> None:
    assert rows(client, "WITH rooms AS (SELECT 1 AS n) SELECT n FROM rooms") == [{"n": 1}]
    assert rows(client, "WITH rooms AS (SELECT count(*) AS n FROM rooms) SELECT n FROM rooms") == [{"n": 3}]
    assert rows(client, "SELECT (WITH rooms AS (SELECT 7 AS n) SELECT n FROM rooms) AS a, count(*) AS b FROM rooms") == [{"a": 7, "b": 3}]
    recursive = "WITH RECURSIVE rooms(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM rooms WHERE n < 4) SELECT sum(n) AS s FROM rooms"
    assert rows(client, recursive) == [{"s": 10}]
    refused(client, "WITH b AS (SELECT * FROM c), c AS (SELECT 1) SELECT * FROM b", 422, "unknown-relation")


@pytest.mark.parametrize(
    ("sql", "status", "kind", "position"),
    [
        ("SELEC 1", 400, "bad-query", (1, 1)),
        ("SELECT 1 +", 400, "bad-query", (1, 10)),
        ("SELECT 'open", 400, "bad-query", (1, 8)),
        ("", 400, "bad-query", (1, 1)),
        ("SELECT 1; SELECT 2", 400, "bad-query", (1, 1)),
        ("SELECT room FROM bookings GROUP BY id", 400, "bad-query", (1, 8)),
        ("SELECT 'é',\n  frob(id) FROM bookings", 400, "bad-query", (2, 3)),
        ("SELECT room::INT FROM bookings", 400, "bad-query", None),
        ("SELECT TIME '24:00:00' AS t", 400, "bad-query", None),
        ("SELECT $1", 400, "bad-query", None),
        ("PIVOT bookings ON room USING count(*)", 400, "bad-query", (1, 1)),
        ("SELECT nope FROM bookings", 422, "unknown-column", (1, 8)),
        ("SELECT b.nope FROM bookings b", 422, "unknown-column", (1, 8)),
        ("SELECT other.id FROM bookings", 422, "unknown-relation", (1, 8)),
        ("SELECT * FROM nix", 422, "unknown-relation", None),
        ('SELECT * FROM "Bookings"', 422, "unknown-relation", None),
        ("SELECT * FROM main.bookings", 422, "unknown-relation", None),
        ("SELECT * FROM relation.bookings", 422, "unknown-relation", None),
        ("SELECT * FROM a.main.bookings", 422, "unknown-relation", None),
        ("SELECT * FROM range(3)", 422, "unsupported-query", None),
        ("SELECT * FROM unnest([1])", 422, "unsupported-query", None),
        ("SELECT * INTO x FROM bookings", 400, "bad-query", (1, 8)),
    ],
)
def test_what_is_wrong_is_told(client: httpx.Client, sql: str, status: int, kind: str, position: tuple[int, int] | None) -> None:
    emitted = refused(client, sql, status, kind)
    assert position is None or emitted["position"] == {"line": position[0], "column": position[1]}, emitted


def test_a_sum_beyond_64_bits(client: httpx.Client) -> None:
    emitted = refused(client, "SELECT sum(9223372036854775807) AS total FROM bookings", 400, "bad-query")
    assert "CAST(… AS DECIMAL(38, 0))" in emitted["detail"], emitted
    (row,) = rows(client, "SELECT CAST(sum(9223372036854775807) AS DECIMAL(38, 0)) AS total FROM bookings")
    assert int(row["total"]) > 2**64


def test_pivot_with_its_values(client: httpx.Client) -> None:
    assert rows(client, "PIVOT (SELECT room FROM bookings) ON room IN ('A', 'B') USING count(*)") == [{"A": 100, "B": 100}]


def test_bodies(client: httpx.Client) -> None:
    for body in ({}, {"sql": 1}, {"sql": "SELECT 1", "version": -1}, {"sql": "SELECT 1", "version": True}, {"sql": "SELECT 1", "limit": 1}):
        talk.problem(client.post("/v1/query", json=body), 400, "bad-parameter")
    talk.problem(client.post("/v1/query", content=b"{", headers={"Content-Type": talk.JSON}), 400, "malformed-body")
    emitted = talk.problem(client.post("/v1/query", json=["SELECT 1"]), 400, "malformed-body")
    assert emitted["detail"] == "the body must be a JSON object"
    talk.problem(client.post("/v1/query", content=b"SELECT 1", headers={"Content-Type": "text/plain"}), 415, "unsupported-media-type")
    talk.problem(client.post("/v1/query?limit=1", json={"sql": "SELECT 1"}), 400, "bad-parameter")
    talk.problem(ask(client, f"SELECT '{'x' * 70_000}'"), 400, "bad-query")
    talk.problem(client.get("/v1/query"), 405, "method-not-allowed")


def test_columns_that_duckdb_does_not_tell_apart(client: httpx.Client) -> None:
    talk.define(client, "cases", {"columns": [{"name": "id", "type": "int64"}, {"name": "Id", "type": "int64"}], "key": ["id"]})
    assert "'id'" in refused(client, "SELECT * FROM cases", 422, "unsupported-query")["detail"]
    talk.drop(client, relations=["cases"])


def outcomes(client: httpx.Client) -> dict[str, float]:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith("livejoin_queries")]
    return {line.rpartition(" ")[0].partition("=")[2].strip('"}') or "running": float(line.rpartition(" ")[2]) for line in lines}


def test_two_at_a_time_and_none_for_clients_that_go(server: ServerProcess, client: httpx.Client) -> None:
    """A third query is refused, with the time after which to retry. When the clients of the first two disconnect, their queries end."""
    before = outcomes(client)
    body = json.dumps({"sql": SLOW}).encode()
    head = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    others = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    for other in others:
        other.sendall(head + body)
    until(lambda: outcomes(client)["running"] == 2)
    answer = ask(client, "SELECT 1")
    assert "--max-queries" in talk.problem(answer, 429, "too-busy")["detail"] and answer.headers["retry-after"]
    for other in others:
        other.close()
    until(lambda: outcomes(client)["running"] == 0)
    assert outcomes(client)["gone"] == before["gone"] + 2
    assert rows(client, "SELECT 1 AS a") == [{"a": 1}]


def test_processes_that_something_else_ends(server: ServerProcess, client: httpx.Client) -> None:
    """The client is told what has happened to the query, and the next query runs."""

    def is_at_work(one: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return one.status() != psutil.STATUS_ZOMBIE and one.cpu_times().user > 0.1
        return False

    def kill(one: psutil.Process) -> None:
        with suppress(ProcessLookupError), open(os.pidfd_open(one.pid)) as pidfd:
            signal.pidfd_send_signal(pidfd.fileno(), signal.SIGKILL)
            assert is_readable(pidfd.fileno(), 60.0)  # all of its threads have ended: a zombie may still have some

    def killed(*, all_of_them: bool) -> httpx.Response:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(lambda: ask(server.client(), SLOW))
            until(lambda: answer.done() or any(map(is_at_work, nursery.children())))
            children = nursery.children()
            if all_of_them:
                kill(nursery)  # first: it would report the end of its children
            for one in children:
                kill(one)
            return answer.result()

    rows(client, "SELECT 1 AS a")
    (nursery,) = (one for one in psutil.Process(server.process.pid).children() if "service.adhoc.nursery" in one.cmdline())
    assert "killed by something else than the service" in talk.problem(killed(all_of_them=False), 413, "query-too-large")["detail"]
    assert "that which starts them too" in talk.problem(killed(all_of_them=True), 500, "internal")["detail"]
    assert rows(client, "SELECT 1 AS a") == [{"a": 1}]


def test_a_query_that_takes_too_long(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", arguments=["--query-time", "4"]) as server:
        client = server.client()
        talk.define(client, "n", {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
        body = b"".join(b'{"id":%d}\n' % number for number in range(3000))
        talk.ok(client.post("/v1/relations/n/changes", content=body, headers={"Content-Type": talk.JSONL}))
        begun = time.monotonic()
        emitted = talk.problem(ask(client, "SELECT count(*) AS c FROM n a, n b, n c, n d"), 408, "query-timeout")
        assert "--query-time" in emitted["detail"] and time.monotonic() - begun < 30
        asked = client.stream("POST", "/v1/query", json={"sql": "SELECT a.id FROM n a, n b, n c"})
        with pytest.raises(httpx.RemoteProtocolError), asked as answer:
            assert answer.status_code == 200  # the answer had begun: it is aborted, not ended as if it were complete
            for _ in answer.iter_bytes():
                pass
        until(lambda: outcomes(client)["running"] == 0)
        assert outcomes(client)["timeout"] == 2
        # Clients that do not read their answers do not keep others from running queries, either.
        body = json.dumps({"sql": "SELECT a.id AS a, repeat('x', 1000) AS t FROM n a, n b"}).encode()
        head = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        others = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        for other in others:
            other.sendall(head + body)
        until(lambda: outcomes(client)["running"] == 2)
        until(lambda: outcomes(client)["running"] == 0)
        assert outcomes(client)["timeout"] == 4 and rows(client, "SELECT 1 AS a") == [{"a": 1}]
        for other in others:
            other.close()


def test_a_stop_ends_queries(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.define(client, "n", {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
        body = b"".join(b'{"id":%d}\n' % number for number in range(3000))
        talk.ok(client.post("/v1/relations/n/changes", content=body, headers={"Content-Type": talk.JSONL}))
        question = json.dumps({"sql": "SELECT count(*) AS c FROM n a, n b, n c, n d"}).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as other:
            other.sendall(b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            other.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(question), question))
            until(lambda: outcomes(client)["running"] == 1)
            begun = time.monotonic()
            assert server.stop() == 0 and time.monotonic() - begun < 10


def test_a_reader_that_is_slow_holds_the_query_back(server: ServerProcess, client: httpx.Client) -> None:
    """Rows wait in the child process, not in the service: the answer is read to its end in pieces, and is complete."""
    sql = "SELECT a.id AS a, b.id AS b, repeat(a.room, 200) AS t FROM bookings a, bookings b"
    count = 0
    with server.client().stream("POST", "/v1/query", json={"sql": sql}) as answer:
        for number, block in enumerate(answer.iter_bytes()):
            count += block.count(b"\n")
            if number < 3:
                time.sleep(0.2)
    assert count == 300 * 300


def test_the_client_of_python(server: ServerProcess) -> None:
    with livejoin.connect(server.url) as lj:
        query = lj.query("SELECT room, count(*) AS n FROM bookings GROUP BY room ORDER BY room")
        with query.rows() as answer:
            assert answer.version == 1 or answer.version > 1
            assert list(answer) == [{"room": room, "n": 100} for room in "ABC"]
        assert query.to_arrow().to_pydict() == {"room": ["A", "B", "C"], "n": [100, 100, 100]}
        assert "count(*)" in repr(query)
        with pytest.raises(livejoin.UnknownRelation):
            lj.query("SELECT * FROM nix").to_arrow()
        with pytest.raises(livejoin.SnapshotExpired):
            lj.query("SELECT 1", version=2**40).to_arrow()
        with pytest.raises(livejoin.QueryTooLarge):
            lj.query("SELECT list(a.id) AS l FROM bookings a, bookings b, bookings c").to_arrow()


async def _async_rows(url: str) -> list[dict[str, Any]]:
    async with livejoin.connect_async(url) as lj:
        return [one async for one in lj.query("SELECT 1 AS a").rows()]


def test_the_client_of_asyncio(server: ServerProcess) -> None:
    import asyncio

    assert asyncio.run(_async_rows(server.url)) == [{"a": 1}]


def test_nothing_is_logged_of_queries(server: ServerProcess, client: httpx.Client) -> None:
    refused(client, "SELECT 'sesame-17'::INT", 400, "bad-query")
    rows(client, "SELECT 'sesame-17' AS a")
    assert "sesame" not in server.output()

"""docs/reference/rest.md, *Rows*: line by line, as a client meets it."""
from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.end_to_end import talk
from tests.end_to_end.bookings import CLASHES, Case, day
from tests.server_process import ServerProcess
from tests.waiting import until

COLUMNS = ["booking", "job", "clash_start", "clash_end"]


def get(case: Case, path: str = "rows", accept: str | None = None, **parameters: Any) -> httpx.Response:
    return case.client.get(f"/v1/views/{case.v}/{path}", headers={"Accept": accept} if accept else {}, params=parameters)


def test_default_is_jsonl(live: Case) -> None:
    for accept in (None, "*/*", "application/*", "text/html;q=0.5, application/jsonl"):
        answer = get(live, accept=accept)
        assert answer.status_code == 200 and answer.headers["content-type"].split(";")[0] == talk.JSONL
        rows = [json.loads(line) for line in answer.content.splitlines()]
        assert sorted((row["booking"], row["job"]) for row in rows) == CLASHES and list(rows[0]) == COLUMNS


def test_media_types(live: Case) -> None:
    wanted = sorted(talk.read(live.client, live.v, talk.JSONL, COLUMNS))
    assert wanted[0] == (1, 7, day(4), day(5))
    csv = get(live, accept=talk.CSV)
    assert csv.text.splitlines()[0] == ",".join(COLUMNS)
    assert sorted(talk.decode(csv.content, talk.CSV, COLUMNS)) == [tuple(map(str, row)) for row in wanted]
    table = pa.ipc.open_stream(get(live, accept=talk.ARROW).content).read_all()
    assert table.schema.names == COLUMNS and table.schema.field("clash_start").type == pa.timestamp("us", "UTC") and table.num_rows == 3
    assert sorted(talk.decode(get(live, accept=talk.SSE).content, talk.SSE, COLUMNS)) == wanted
    page = talk.ok(get(live, accept=talk.JSON))
    assert set(page) == {"version", "rows", "next"} and page["next"] is None and page["version"] == live.version()
    assert sorted(tuple(row.values()) for row in page["rows"]) == wanted


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "application/vnd.apache.parquet", "application/jsonl;q=0"])
def test_not_acceptable(live: Case, accept: str) -> None:
    talk.problem(get(live, accept=accept), 406, "not-acceptable")


def test_empty_results(case: Case) -> None:
    case.define()
    talk.view(case.client, case.v, case.sql)
    assert get(case).content == b"" and get(case).headers["livejoin-empty"] == "true"
    assert get(case, accept=talk.CSV).text.splitlines() == [",".join(COLUMNS)]
    assert pa.ipc.open_stream(get(case, accept=talk.ARROW).content).read_all().num_rows == 0
    assert talk.ok(get(case, accept=talk.JSON)) == {"version": case.version(), "rows": [], "next": None}
    assert [event for event, _, _ in talk.sse(get(case, accept=talk.SSE).text)] == ["end"]
    assert talk.ok(get(case, "count")) == {"version": case.version(), "count": 0}


def test_head_and_limit_0(live: Case) -> None:
    for answer in (live.client.head(f"/v1/views/{live.v}/rows"), get(live, limit=0)):
        assert answer.status_code == 200 and answer.content == b""
        assert answer.headers["livejoin-version"] == str(live.version()) and answer.headers["livejoin-empty"] == "false"


@pytest.mark.parametrize("media", [talk.JSON, talk.JSONL, talk.CSV, talk.ARROW])
def test_pages_by_link(live: Case, media: str) -> None:
    """The Link header leads through all pages of one version, despite changes between them."""
    everything = talk.read(live.client, live.v, talk.JSONL, ["booking", "job"])
    url: str | None = f"/v1/views/{live.v}/rows?limit=2"
    found: list[tuple[Any, ...]] = []
    versions = set()
    while url:
        answer = live.client.get(url, headers={"Accept": media})
        assert answer.status_code == 200, answer.text
        versions.add(answer.headers["livejoin-version"])
        if media == talk.JSON:
            found += [(row["booking"], row["job"]) for row in answer.json()["rows"]]
        else:
            found += [(int(booking), int(job)) for booking, job in talk.decode(answer.content, media, ["booking", "job"])]
        url = answer.links.get("next", {}).get("url")
        talk.ok(talk.send(live.client, [live.booking(50 + len(found), "A", 4, 5)]))
    assert found == everything and len(versions) == 1, "the order is the same for the same version"


def test_a_full_last_page_has_no_next(live: Case) -> None:
    answer = get(live, accept=talk.JSON, limit=3)
    assert answer.json()["next"] is None and "link" not in answer.headers
    assert talk.ok(get(live, accept=talk.JSON, limit=2))["next"] is not None


def test_json_page_is_of_1000(case: Case) -> None:
    case.define()
    talk.view(case.client, case.v, case.sql)
    talk.ok(talk.send(case.client, [case.job(1, "A", 1, 30), *(case.booking(number, "A", 1, 5) for number in range(1001))]))
    page = talk.ok(get(case, accept=talk.JSON))
    assert len(page["rows"]) == 1000
    rest = talk.ok(get(case, accept=talk.JSON, cursor=page["next"]))
    assert len(rest["rows"]) == 1 and rest["next"] is None
    assert len(get(case).content.splitlines()) == 1001, "jsonl is not paged"


def test_wrong_cursors(live: Case) -> None:
    cursor = talk.ok(get(live, accept=talk.JSON, limit=1))["next"]
    talk.view(live.client, f"{live.v}_other", live.json)
    other = live.client.get(f"/v1/views/{live.v}_other/rows", params={"cursor": cursor})
    talk.problem(other, 400, "bad-cursor")
    for wrong in ("nonsense", "", cursor[:-2], cursor[:-1] + ("A" if cursor[-1] != "A" else "B"), "ü", "A" * 5000):
        talk.problem(get(live, cursor=wrong), 400, "bad-cursor")


def test_version_of_a_cursor(live: Case) -> None:
    page = talk.ok(get(live, accept=talk.JSON, limit=1))
    talk.ok(talk.send(live.client, [live.booking(1, "B", 1, 2)]))
    assert get(live, version=page["version"]).headers["livejoin-version"] == str(page["version"])
    assert talk.ok(get(live, "count", version=page["version"])) == {"version": page["version"], "count": 3}
    assert talk.ok(get(live, "count"))["count"] == 2
    for version in (0, 10**9):
        talk.problem(get(live, version=version), 410, "snapshot-expired")


@pytest.mark.parametrize(("window", "expected"), [
    ("2026-01-05T12:00:00Z,", [(2, 7), (3, 8)]), (",2026-01-04T12:00:00Z", [(1, 7), (2, 7)]), (",", CLASHES),
    ("2026-01-05T12:00:00Z,2026-01-05T13:00:00Z", [(2, 7)]), ("2026-02-01T00:00:00Z,", []), (",2026-01-03T00:00:00Z", []),
    ("2026-01-05T00:00:00Z,2026-01-05T00:00:00Z", [(2, 7)]), ("2026-01-04T00:00:00+00:00,2026-01-04T00:00:00Z", [(1, 7), (2, 7)]),
])
def test_windows(live: Case, window: str, expected: list[tuple[int, int]]) -> None:
    """Rows all of whose intervals meet the closed window: stay 1 is [1, 5), slot 7 is [4, 6) …"""
    assert live.rows(overlaps=window) == expected
    assert talk.count(live.client, live.v, overlaps=window) == len(expected)


def test_point_look_ups(live: Case) -> None:
    for parameters, expected in (
        ({"where.b.id": 2}, [(2, 7)]), ({"where.m.id": 7}, [(1, 7), (2, 7)]), ({"where.b.id": 4}, []), ({"where.b.id": 99}, []),
        ({"where.b.room": "A"}, CLASHES), ({"where.m.room": "B"}, []), ({"where.b.room": "nowhere"}, []),
        ({"where.m.id": 7, "overlaps": "2026-01-05T12:00:00Z,"}, [(2, 7)]),
    ):
        assert live.rows(**parameters) == expected, parameters
        assert talk.count(live.client, live.v, **parameters) == len(expected), parameters


def test_filters_go_with_cursors(live: Case) -> None:
    first = talk.ok(get(live, accept=talk.JSON, limit=1, **{"where.m.id": 7}))
    rest = talk.ok(get(live, accept=talk.JSON, cursor=first["next"], **{"where.m.id": 7}))
    assert sorted((row["booking"], row["job"]) for row in first["rows"] + rest["rows"]) == [(1, 7), (2, 7)] and rest["next"] is None


def test_a_reader_who_leaves_is_forgotten(live: Case) -> None:
    """Partly read streams leave no pin behind; the service continues."""
    talk.ok(talk.send(live.client, [live.job(number, "B", 1, 30) for number in range(100, 400)]))
    talk.ok(talk.send(live.client, [live.booking(number, "B", 1, 30) for number in range(1000, 1400)]))
    before = _pins(live)
    for _ in range(5):
        with live.client.stream("GET", f"/v1/views/{live.v}/rows") as answer:
            next(answer.iter_lines())
    assert talk.count(live.client, live.v) == 3 + 300 * 401
    until(lambda: _pins(live) <= before, lambda: f"{_pins(live)} pins, before {before}")


def _pins(case: Case) -> float:
    text = case.client.get("/metrics").text
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith("livejoin_pins ")))


def test_a_stream_keeps_its_version_and_does_not_hold_up_the_writer(live: Case) -> None:
    """A slow reader sees the version with which it began to the end; batches continue meanwhile."""
    talk.ok(talk.send(live.client, [live.job(number, "C", 1, 30) for number in range(500)]))
    talk.ok(talk.send(live.client, [live.booking(number, "C", 1, 30) for number in range(10_000, 10_400)]))
    version = live.version()
    with live.client.stream("GET", f"/v1/views/{live.v}/rows", params={"where.b.room": "C"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        seen = 1
        for number in range(30):
            done = talk.ok(talk.send(live.client, [live.delete(10_000 + number)]))
            assert done["version"] == version + 1 + number
        seen += sum(1 for _ in lines)
        assert answer.headers["livejoin-version"] == str(version) and seen == 500 * 400
    assert talk.count(live.client, live.v, **{"where.b.room": "C"}) == 500 * 370


def test_cursors_from_before_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("restart") / "data"
    with ServerProcess(folder) as server:
        case = Case(server.client(), 1).live()
        page = talk.ok(get(case, accept=talk.JSON, limit=1))
        token = json.loads(get(case, "changes", wait=0).content.splitlines()[-1])["token"]
        assert server.stop() == 0
    with ServerProcess(folder) as server:
        case = Case(server.client(), 1)
        assert case.rows() == CLASHES
        talk.problem(get(case, cursor=page["next"]), 410, "snapshot-expired")
        answer = get(case, "changes", since=token, wait=0)
        if answer.status_code != 200:
            talk.problem(answer, 410, "token-expired")
    with ServerProcess(tmp_path_factory.mktemp("other") / "data") as server:
        case = Case(server.client(), 1).live()
        talk.problem(get(case, "changes", since=token, wait=0), 400, "bad-token")
        talk.problem(get(case, cursor=page["next"]), 400, "bad-cursor")


def test_the_chunked_encoding_of_a_whole_answer_is_closed(server: ServerProcess, live: Case) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as link:
        link.sendall(f"GET /v1/views/{live.v}/rows HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        data = b""
        while part := link.recv(65536):
            data += part
    assert data.startswith(b"HTTP/1.1 200") and (data.endswith(b"0\r\n\r\n") or b"content-length" in data.lower())

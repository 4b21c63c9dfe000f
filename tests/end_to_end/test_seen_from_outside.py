"""One server behind a proxy and under load, from an operator's point of view: forwarded headers, logs, metrics, health."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end import talk
from tests.server_process import ROOT, ServerProcess

PROXY = "127.0.0.2"  # another address of this machine, from which requests can be made
ARGUMENTS = ["--forwarded-allow-ips", PROXY, "--log-format", "json", "--access-log", "on", "--max-waiting", "2"]
OUTER = {f"X-Forwarded-{name}": value for name, value in (
    ("For", "192.0.2.9"), ("Proto", "https"), ("Host", "data.example.org"), ("Prefix", "/join"),
)}  # fmt: skip
RELATION = {
    "columns": [{"name": name, "type": "int64"} for name in ("id", "lo", "hi")],
    "key": ["id"],
    "intervals": {"x": {"start": "lo", "end": "hi"}},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("outside") / "data", arguments=ARGUMENTS) as process:
        client = process.client()
        talk.define(client, "a", RELATION)
        talk.ok(talk.send(client, [{"relation": "a", "op": "upsert", "row": {"id": id_, "lo": id_, "hi": id_ + 3}} for id_ in range(50)]))
        talk.view(client, "v", {"from": {"a": "a", "b": "a"}, "join": [{"overlaps": ["a.x", "b.x"]}], "select": ["a.id as i", "b.id as j"]})
        yield process


@pytest.fixture(scope="module")
def proxy(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, transport=httpx.HTTPTransport(local_address=PROXY)) as client:
        yield client


def link(answer: httpx.Response) -> str:
    talk.ok_status(answer)
    found = re.fullmatch('<(.*)&cursor=[^>]*>; rel="next"', answer.headers["link"])
    assert found is not None, answer.headers["link"]
    return found[1]


def lines(server: ServerProcess, request: str) -> list[dict[str, Any]]:
    """Return the lines of the log about a request, once there is one."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = [json.loads(line) for line in server.output().splitlines() if request in line and line.endswith("}")]
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(server.output())


def test_a_link_keeps_the_outer_address(server: ServerProcess, proxy: httpx.Client) -> None:
    path = "/v1/views/v/rows?limit=2"
    assert link(proxy.get(path, headers=OUTER)) == f"https://data.example.org/join{path}"
    assert link(proxy.get(path, headers={"X-Forwarded-Proto": "https"})) == f"https://127.0.0.1:{server.port}{path}"
    assert link(proxy.get(path)) == f"{server.url}{path}"
    following = proxy.get(path, headers=OUTER).links["next"]["url"].removeprefix("https://data.example.org/join")
    talk.ok_status(proxy.get(following))


def test_others_are_not_believed(server: ServerProcess) -> None:
    client = server.client()
    path = "/v1/relations/a/rows?limit=2"
    assert link(client.get(path, headers=OUTER)) == f"{server.url}{path}"
    client.get("/v1/views", headers={**OUTER, "X-Request-Id": "not-a-proxy"})
    (line,) = lines(server, "not-a-proxy")
    assert line["client"] == "127.0.0.1"


def test_a_forwarded_host_opens_nothing(server: ServerProcess, proxy: httpx.Client) -> None:
    """A page in a browser on the proxy's machine can send what a proxy sends, but gains no access."""
    for client in (proxy, server.client()):
        for headers in (
            {"Host": "evil.example", "X-Forwarded-Host": "localhost"},
            {"Host": f"127.0.0.1:{server.port}", "Origin": "https://data.example.org", **OUTER},
            {"Origin": "http://localhost", "X-Forwarded-Host": "localhost", "X-Forwarded-Proto": "http"},
        ):
            talk.problem(client.get("/v1/views", headers=headers), 403, "forbidden")


def test_the_log_is_json_with_a_line_for_each_request(server: ServerProcess, proxy: httpx.Client) -> None:
    secret = "where.a.id=4711"
    answer = proxy.get(f"/v1/views/v/rows?{secret}", headers=OUTER)
    own = answer.headers["x-request-id"]
    (line,) = lines(server, own)
    assert (line["component"], line["level"], line["request_id"], line["client"]) == ("livejoin.access", "INFO", own, "192.0.2.9")
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/views/v/rows", 200) and line["seconds"] >= 0
    given = proxy.get("/v1/nothing%0aat-all", headers={"X-Request-Id": "given-by-another"})
    assert given.status_code == 404 and given.headers["x-request-id"] == "given-by-another"
    (line,) = lines(server, "given-by-another")
    assert line["path"] == "/v1/nothing%0aat-all"
    whole = [json.loads(line) for line in server.output().splitlines(keepends=True) if line.endswith("\n")]
    assert {"time", "level", "component", "message"} <= set.intersection(*(set(line) for line in whole))
    assert secret not in server.output()


def families(client: httpx.Client) -> dict[str, tuple[str, frozenset[str], str]]:
    """Return type, labels and help of each metric, by name."""
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        labels = frozenset(label for sample in family.samples for label in sample.labels if label != "le")
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, labels, family.documentation)
    return found


def test_metrics_are_the_same_at_each_scrape_and_in_the_documentation(server: ServerProcess) -> None:
    client = server.client()
    talk.ok(talk.send(client, [{"relation": "a", "op": "upsert", "row": {"id": 1000, "lo": 0, "hi": 1}}]))
    talk.ok(client.get("/v1/views/v/rows", headers={"Accept": talk.JSON, "Livejoin-Reader": "a%20test"}))
    found = families(client)
    talk.ok(client.get("/v1/views/v/rows", headers={"Accept": talk.JSON}))
    talk.ok(talk.send(client, [{"relation": "a", "op": "delete", "key": {"id": 1000}}]))
    assert families(client) == found
    page = (ROOT / "docs/operations.md").read_text()
    documented = set(re.findall(r"^\| `\w+` \| (?:gauge|counter|histogram) \|.*$", page, re.M))
    assert documented == {
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in sorted(labels))} | {text} |"
        for name, (kind, labels, text) in found.items()
    }


def test_health_under_load(server: ServerProcess) -> None:
    """While more batches are sent than may wait, all three endpoints keep answering correctly."""
    numbers = itertools.count()
    enough = False
    refused = applied = 0

    def post() -> None:
        nonlocal refused, applied
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while not enough:
                number = next(numbers)
                rows = [{"id": id_, "lo": id_ + number % 7, "hi": id_ + 10} for id_ in range(100, 1100)]
                body = "".join(f"{json.dumps(row)}\n" for row in rows)
                answer = client.post("/v1/relations/a/changes", content=body, headers={"Content-Type": talk.JSONL})
                refused += answer.status_code == 429
                applied += answer.status_code == 200

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        posting = [pool.submit(post) for _ in range(8)]
        try:
            end = time.monotonic() + 120
            seen = rounds = 0
            with server.client() as client:
                while not (refused and applied > 5 and seen and rounds >= 20):
                    assert time.monotonic() < end, (refused, applied, seen, rounds)
                    assert not any(future.done() for future in posting)
                    assert client.get("/livez").json() == {"status": "alive"}
                    assert client.get("/readyz").json()["status"] == "ready"
                    text = client.get("/metrics").text
                    seen += not {"livejoin_waiting_batches 0.0", "livejoin_writer_busy_seconds 0.0"} <= set(text.splitlines())
                    rounds += 1
        finally:
            enough = True
        for future in posting:
            future.result()
    assert talk.ok(server.client().get("/v1/status"))["version"] >= applied


def test_a_request_that_no_handler_sees_is_logged_too(server: ServerProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nno field\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
    (line,) = [line for line in map(json.loads, server.output().splitlines()) if line.get("method") == "-"]
    assert (line["component"], line["status"], line["path"]) == ("livejoin.access", 400, "")

"""docs/reference/rest.md, *Errors*, *Operations* and `livejoin serve`: line by line, as a client meets it."""
from __future__ import annotations

import concurrent.futures
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.engine.engine import Engine
from service.errors import CATALOGUE, Problem
from tests.end_to_end import talk
from tests.end_to_end.bookings import Case
from tests.server_process import ROOT, NotStarted, ServerProcess, client_of

STATUSES = {
    400: "malformed-body bad-parameter bad-cursor bad-token",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    409: "definition-differs relation-in-use source-reset not-followed",
    410: "snapshot-expired token-expired",
    413: "body-too-large",
    415: "unsupported-media-type",
    422: "bad-rows bad-definition unknown-relation unknown-column unsupported-query bad-query infeasible-view",
    429: "too-busy",
    500: "internal",
    503: "view-building recovering disk-full",
}


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_problem_has_its_page(client: httpx.Client, kind: str) -> None:
    text, page = (client.get(f"/problems/{kind}", headers={"Accept": accept}) for accept in ("*/*", "text/html,*/*;q=0.1"))
    talk.ok_status(text)
    assert text.headers["content-type"].startswith("text/plain")
    assert CATALOGUE[kind].remedy in text.text and CATALOGUE[kind].meaning in text.text
    assert page.headers["content-type"].startswith("text/html") and CATALOGUE[kind].title.split("'")[0] in page.text
    assert kind in page.text and str(CATALOGUE[kind].status) in page.text


def test_statuses_are_those_of_the_interface() -> None:
    for status, kinds in STATUSES.items():
        assert {CATALOGUE[kind].status for kind in kinds.split()} == {status}
    for kind in ("too-busy", "view-building", "recovering"):
        assert "Retry-After" in Problem(kind, "").headers


@pytest.mark.parametrize(("method", "path"), [
    *(("GET", path) for path in (
        "/nothing", "/v1", "/v1/", "/v2/views", "/v1/nothing", "/v1/relations/", "/v1/views/", "/v1/views/nothing/rows/x",
        "/v1/views/nothing/rows.txt", "/v1/relations/nothing/b/changes", "/problems/nothing",
    )),
    *((method, f"/v1/{kind}/nothing") for method in ("GET", "DELETE") for kind in ("relations", "views")),
    *(("GET", f"/v1/{path}") for path in ("relations/nothing/rows", "views/nothing/rows", "views/nothing/count", "views/nothing/changes")),
    ("POST", "/v1/relations/nothing/changes"),
])
def test_what_is_not_there(client: httpx.Client, method: str, path: str) -> None:
    talk.problem(client.request(method, path), 404, "not-found")


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("GET", "/v1/changes", "POST"), ("POST", "/v1/relations/x", "DELETE, GET, HEAD, PATCH, PUT"), ("DELETE", "/v1/relations", "GET, HEAD"),
    ("POST", "/v1/views/x", "DELETE, GET, HEAD, PUT"), ("PATCH", "/v1/views/x", "DELETE, GET, HEAD, PUT"),
    ("GET", "/v1/explain", "POST"), ("OPTIONS", "/v1/explain", "POST"), ("DELETE", "/v1/relations/x/changes", "POST"),
    ("POST", "/v1/views/x/rows", "GET, HEAD"), ("PUT", "/v1/views/x/rows", "GET, HEAD"), ("PUT", "/livez", "GET, HEAD"),
    ("DELETE", "/metrics", "GET, HEAD"),
])
def test_methods(client: httpx.Client, method: str, path: str, allowed: str) -> None:
    answer = client.request(method, path)
    talk.problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == allowed


def test_the_dashboard(case: Case) -> None:
    answer = case.client.get("/")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")


def test_health_and_state(live: Case) -> None:
    talk.ok_status(live.client.get("/livez"))
    talk.ok_status(live.client.get("/readyz"))
    status = talk.ok(live.client.get("/v1/status"))
    assert status["version"] == live.version()


def test_metrics(live: Case) -> None:
    """Prometheus' text format; names of counters end in `_total`, of times in `_seconds`, of memory in `_bytes`; and all histograms and
    gauges named in docs/reference/rest.md exist."""
    live.rows()
    text = live.client.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text.text, re.M))
    own = {name: kind for name, kind in types.items() if name.startswith("livejoin_")}
    assert all(name.endswith("_total") or name.endswith("_created") for name, kind in own.items() if kind == "counter"), own
    for word, kind, ending in (
        ("update", "histogram", "_seconds"), ("delay", "histogram", "_seconds"), ("delay", "histogram", "_steps"),
        ("batch", "histogram", ""),
        ("version", "gauge", ""), ("pins", "gauge", ""), ("retired", "gauge", "_bytes"), ("waiting", "gauge", ""),
        ("subscribers", "gauge", ""),
    ):
        assert any(word in name and name.endswith(ending) and own[name] == kind for name in own), (word, kind, ending, sorted(own))
    for line in text.text.splitlines():
        assert line.startswith("#") or re.fullmatch(r"[a-z_][\w]*(\{[^}]*\})? \S+", line), line


def test_openapi(client: httpx.Client) -> None:
    """The document has every path, and an example for every operation with a request or response body."""
    document = talk.ok(client.get("/openapi.json"))
    paths = {re.sub(r"\{\w+\}", "{}", path): operations for path, operations in document["paths"].items()}
    for path, methods in {
        "/v1/relations": {"get"}, "/v1/relations/{}": {"put", "get", "delete"}, "/v1/relations/{}/rows": {"get"},
        "/v1/relations/{}/changes": {"post"}, "/v1/changes": {"post"}, "/v1/views": {"get"}, "/v1/views/{}": {"put", "get", "delete"},
        "/v1/views/{}/rows": {"get"}, "/v1/views/{}/count": {"get"}, "/v1/views/{}/changes": {"get"}, "/v1/explain": {"post"},
        "/v1/status": {"get"}, "/livez": {"get"}, "/readyz": {"get"}, "/metrics": {"get"}, "/problems/{}": {"get"},
        "/v1/tokens": {"get", "post"}, "/v1/tokens/{}": {"delete"},
    }.items():
        assert methods <= set(paths[path]), path
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                binary = "arrow" in media or "parquet" in media
                assert binary or "example" in content or "examples" in content, (method, path, media)
    talk.ok_status(client.get("/docs"))


def test_the_examples_of_the_document_work(client: httpx.Client) -> None:
    """Each PUT example of relations and views can be sent unchanged."""
    document = talk.ok(client.get("/openapi.json"))
    content = document["paths"]["/v1/relations/{name}"]["put"]["requestBody"]["content"]["application/json"]
    examples = [content["example"]] if "example" in content else [example["value"] for example in content["examples"].values()]
    for position, example in enumerate(examples):
        made = client.put(f"/v1/relations/example_{position}", json=example)
        assert made.status_code == 201, made.text


def test_too_large_a_body(tmp_path: Path) -> None:
    """Too large by its length, too large without a length, and just within the limit."""
    with ServerProcess(tmp_path / "data", arguments=["--max-body", "10000"]) as server:
        case = Case(server.client(), 1).define()
        body = json.dumps({"changes": [case.booking(1, "A", 1, 5)]}).encode()
        headers = {"Content-Type": talk.JSON}
        fits = body + b" " * (10_000 - len(body))
        talk.ok(case.client.post("/v1/changes", content=fits, headers=headers))
        talk.problem(case.client.post("/v1/changes", content=fits + b" ", headers=headers), 413, "body-too-large")

        def pieces() -> Any:
            yield body
            for _ in range(100):
                yield b" " * 1000

        talk.problem(server.client().post("/v1/changes", content=pieces(), headers=headers), 413, "body-too-large")
        talk.problem(server.client().put("/v1/relations/x", content=b" " * 20_000, headers=headers), 413, "body-too-large")
        assert case.version() == 1


def test_a_client_that_is_killed_while_it_sends(server: ServerProcess, live: Case) -> None:
    before = live.version()
    with socket.create_connection(("127.0.0.1", server.port)) as link:
        link.sendall(b"POST /v1/changes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/jsonl\r\nContent-Length: 100000\r\n\r\n")
        link.sendall((json.dumps(live.booking(77, "A", 1, 5)) + "\n").encode() * 10)
    assert live.version() == before
    assert 77 not in [row for (row,) in talk.read(live.client, live.v, talk.JSONL, ["booking"])]


def test_too_busy(tmp_path: Path) -> None:
    """More batches at once than may wait: some clients are asked to retry, none of these batches is applied in part, and all others are
    applied."""
    with ServerProcess(tmp_path / "data", environment={"LIVEJOIN_MAX_WAITING": "1"}) as server:
        case = Case(server.client(), 1).define()

        def work(number: int) -> httpx.Response:
            return talk.send(case.client, [case.booking(number * 1000 + position, "A", 1, 5) for position in range(500)], talk.JSONL)

        taken = 0
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for answer in pool.map(work, range(100)):
                if answer.status_code == 429:
                    talk.problem(answer, 429, "too-busy")
                    assert int(answer.headers["retry-after"]) >= 1
                else:
                    taken += talk.ok(answer)["applied"]
        assert talk.ok(case.client.get(f"/v1/relations/{case.b}"))["rows"] == taken


def hold_start(gate: Path) -> None:
    """In the service: it recovers once this file exists."""
    recover = Engine._recover

    def held(self: Engine, *arguments: Any) -> None:
        while not gate.exists():
            time.sleep(0.005)
        recover(self, *arguments)

    Engine._recover = held  # type: ignore[method-assign]


def test_while_it_starts(tmp_path: Path) -> None:
    """`/livez` answers at once; everything else answers `recovering`, with progress, until the service is ready."""
    gate = tmp_path / "go"
    server = ServerProcess(tmp_path / "data", before=partial(hold_start, gate)).start(wait=False)
    try:
        with client_of(server.url) as client:
            ready = _once_it_listens(server, client)
            assert 0 <= talk.problem(ready, 503, "recovering")["progress"] <= 1
            talk.ok_status(client.get("/livez"))
            other = client.get("/v1/relations")
            talk.problem(other, 503, "recovering")
            assert int(other.headers["retry-after"]) >= 1
            gate.touch()
            end = time.monotonic() + 300
            while (ready := client.get("/readyz")).status_code != 200 and time.monotonic() < end:
                talk.problem(ready, 503, "recovering")
            assert ready.status_code == 200
            talk.ok(client.get("/v1/relations"))
    finally:
        server.close()


def _once_it_listens(server: ServerProcess, client: httpx.Client) -> httpx.Response:
    """The answer of /readyz. Fails after a minute, or when the process ends."""
    end = time.monotonic() + 60
    while True:
        try:
            return client.get("/readyz")
        except httpx.TransportError:
            assert server.process.poll() is None and time.monotonic() < end, server.output()
            time.sleep(0.005)


@pytest.mark.parametrize("arguments", [["--port", "x"], ["--nonsense"], ["--synchronous", "perhaps"], ["--max-body", "-1"]], ids=str)
def test_wrong_use(tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "service.cli", "serve", "--data", str(tmp_path / "data"), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.strip()


def test_a_port_that_is_taken(server: ServerProcess, tmp_path: Path) -> None:
    with pytest.raises(NotStarted) as caught:
        ServerProcess(tmp_path / "data", arguments=["--port", str(server.port)]).start()
    assert caught.value.status == 1 and str(server.port) in caught.value.errors and "Traceback" not in caught.value.errors


def test_interrupted_while_it_starts(tmp_path: Path) -> None:
    """Ctrl-C before the service is ready ends it with status 0, and leaves a usable folder."""
    server = ServerProcess(tmp_path / "data", fresh=True).start(wait=False)
    try:
        with server.client() as client:
            _once_it_listens(server, client)
        assert server.stop(signal.SIGINT, limit=10) == 0, server.output()
    finally:
        server.close()
    with ServerProcess(tmp_path / "data") as again:
        assert Case(again.client(), 1).define().version() == 0


def test_settings_by_variable(tmp_path: Path) -> None:
    environment = {**os.environ, "LIVEJOIN_SYNCHRONOUS": "sometimes"}
    command = [sys.executable, "-m", "service.cli", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 2 and "LIVEJOIN_SYNCHRONOUS" in done.stderr

"""Starts and ends of a server: signals, open streams, readers that dawdle, addresses, limits."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from livejoin.wire.log_lines import message_of
from service import server as serving
from service.settings import Settings
from tests.forked import finished
from tests.relations import declared
from tests.server_process import ROOT, ServerProcess

DEFINITION: dict[str, Any] = declared("id:int64, text:string, lo:int64", at="lo")
ROWS = "".join(json.dumps({"id": i, "text": "x" * 50, "lo": 0}) + "\n" for i in range(1500))


def load(client: httpx.Client) -> None:
    """A view of 2,250,000 rows: no socket's buffers hold it."""
    assert client.put("/v1/relations/points", json=DEFINITION).status_code == 201
    headers = {"Content-Type": "application/jsonl"}
    assert client.post("/v1/relations/points/changes", content=ROWS, headers=headers).status_code == 200
    view = {"from": {"a": "points", "b": "points"}, "join": [{"overlaps": ["a.at", "b.at"]}]}
    assert client.put("/v1/views/pairs", json=view).status_code in (201, 202)
    while client.get("/v1/views/pairs").json()["state"] != "live":
        time.sleep(0.01)


def opened(server: ServerProcess, path: str = "/v1/views/pairs/rows") -> socket.socket:
    """A connection on which the answer has begun, and whose client takes no more for now."""
    reader = socket.create_connection(("127.0.0.1", server.port))
    reader.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    head = reader.recv(500)
    assert head.startswith(b"HTTP/1.1 200") and b"transfer-encoding: chunked" in head
    return reader


def rest(reader: socket.socket) -> bytes:
    """The last bytes that come until the connection ends."""
    last = b""
    try:
        while part := reader.recv(1 << 20):
            last = (last + part)[-100:]
    except ConnectionResetError:
        pass
    reader.close()
    return last


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0_and_breaks_streams_off(server: ServerProcess, sign: signal.Signals) -> None:
    client = server.client()
    load(client)
    stalled, follower = opened(server), opened(server, "/v1/views/pairs/changes")
    begun = time.monotonic()
    assert server.stop(sign, limit=20) == 0
    assert time.monotonic() - begun < 10  # the promise of the interface, not a measurement
    assert not rest(stalled).endswith(b"0\r\n\r\n")
    assert not rest(follower).endswith(b"0\r\n\r\n")
    assert "ERROR" not in server.output()
    server.start()
    with server.client() as again:
        assert again.get("/v1/relations/points").json()["rows"] == 1500


def test_an_answer_whose_version_is_gone_is_broken_off(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", environment={"LIVEJOIN_PIN_IDLE": "5"}) as server:
        client = server.client()
        load(client)
        cursor = client.get("/v1/views/pairs/rows?limit=1", headers={"Accept": "application/json"}).json()["next"]
        whole = opened(server)
        assert rest(whole).endswith(b"0\r\n\r\n")
        dawdler = opened(server)
        while client.get("/v1/status").json()["figures"]["pins"]:
            time.sleep(0.01)
        assert not rest(dawdler).endswith(b"0\r\n\r\n")
        deleted = client.get("/v1/views/pairs/rows", params={"cursor": cursor})
        assert (deleted.status_code, deleted.json()["type"]) == (410, "/problems/snapshot-expired")
        assert "ERROR" not in server.output()


def test_cursors_and_tokens_over_a_restart(server: ServerProcess) -> None:
    client = server.client()
    load(client)
    cursor = client.get("/v1/views/pairs/rows?limit=1", headers={"Accept": "application/json"}).json()["next"]
    token = json.loads(client.get("/v1/views/pairs/changes?wait=0").text)["token"]
    server.kill()
    server.start()
    client = server.client()
    deleted = client.get("/v1/views/pairs/rows", params={"cursor": cursor})
    assert (deleted.status_code, deleted.json()["type"]) == (410, "/problems/snapshot-expired")
    late = client.get("/v1/views/pairs/changes", params={"since": token, "wait": 0})
    assert late.status_code == 200 and [json.loads(line)["op"] for line in late.text.splitlines()] == ["progress"]


def serve(*arguments: str) -> tuple[int, str]:
    return finished(["serve", *arguments])


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_other_addresses_are_refused(tmp_path: Path, host: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert serving.serve(Settings(data=tmp_path / "data", host=host)) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert host in line and "127.0.0.1" in line
    assert not (tmp_path / "data").exists()


def test_a_data_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, emitted = serve("--data", str(tmp_path / "file"), "--port", "0")
    last = emitted.splitlines()[-1]
    assert status == 1 and str(tmp_path / "file") in last and "--data" in last and "Errno" not in emitted


def test_settings_that_cannot_be() -> None:
    status, emitted = serve("--port", "x")
    assert status == 2 and "--port (LIVEJOIN_PORT): must be an integer, not 'x'" in emitted


def test_one_owner_of_a_folder(shared_server: ServerProcess) -> None:
    status, emitted = serve("--data", str(shared_server.data), "--port", "0")
    assert status == 1 and str(shared_server.data) in emitted.splitlines()[-1], emitted
    assert "Traceback" not in emitted
    assert shared_server.client().get("/readyz").status_code == 200


def test_port_0_tells_the_port(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert message_of(line).startswith("livejoin serves on http://127.0.0.1:")
        assert httpx.get(line.split()[-1] + "/livez").status_code == 200
        assert message_of(process.stderr.readline()).startswith("livejoin is ready after ")
        assert httpx.get(line.split()[-1] + "/readyz").status_code == 200
    finally:
        process.kill()
        process.communicate()


def test_what_is_not_http(shared_server: ServerProcess) -> None:
    with socket.create_connection(("127.0.0.1", shared_server.port)) as stranger:
        stranger.sendall(b"good morning\r\n\r\n")
        answer = stranger.makefile("rb").read()
    assert b"\r\nx-request-id: " in answer
    assert answer.startswith(b"HTTP/1.1 400 ") and json.loads(answer.split(b"\r\n\r\n")[1])["type"] == "/problems/malformed-body"


def test_metrics(server: ServerProcess) -> None:
    client = server.client()

    def buckets() -> list[str]:
        return re.findall(r"^(livejoin_\w+_bucket\{.*\}) ", client.get("/metrics").text, re.M)

    load(client)
    before = buckets()
    client.get("/v1/views/pairs/rows?limit=70000")
    assert buckets() == before and len(before) > 80, "the same series at each scrape, whatever was met"
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    for family in (
        "livejoin_batches_total 1.0",
        "livejoin_changes_total 1500.0",
        "livejoin_version 1.0",
        "livejoin_ready 1.0",
        'livejoin_relation_rows{relation="points"} 1500.0',
        'livejoin_relation_bytes{holder="columns",relation="points"}',
        'livejoin_view_bytes{view="pairs"}',
        'livejoin_view_changes_bytes{view="pairs"} 0.0',
        'livejoin_view_subscribers{view="pairs"} 0.0',
        'livejoin_view_update_seconds_bucket{le="256",view="pairs"}',
        'livejoin_requests_total{method="PUT",status="201"}',
    ):
        assert family in response.text
    for name in ("pins", "retired_bytes", "waiting_batches", "subscribers"):
        assert f"# TYPE livejoin_{name} gauge" in response.text
    for name in ("update_seconds", "batch_changes", "delay_steps", "delay_seconds"):
        assert f"# TYPE livejoin_{name} histogram" in response.text
        assert f'livejoin_{name}_bucket{{le="+Inf"}}' in response.text


NEVER = {"join": [{"overlaps": ["a.at", "b.at"]}, {"less": ["a.id", "b.id"]}, {"less": ["b.twice", "a.twice"]}]}


def load_slow(client: httpx.Client) -> None:
    """`pairs` has 800 million rows, `none` looks at as many pairs and finds no row (a box tree would know); `tiny` has one."""
    columns = [{"name": name, "type": "int64"} for name in ("id", "twice", "lo")]
    for name in ("big", "small"):
        definition = DEFINITION | {"columns": columns}
        assert client.put(f"/v1/relations/{name}", json=definition).status_code == 201
    headers = {"Content-Type": "text/csv"}
    body = "id,twice,lo\n" + "".join(f"{i},{2 * i},0\n" for i in range(40_000))
    assert client.post("/v1/relations/big/changes", content=body, headers=headers).status_code == 200
    assert client.post("/v1/relations/small/changes", content="id,twice,lo\n1,2,0\n", headers=headers).status_code == 200
    overlaps = {"join": [{"overlaps": ["a.at", "b.at"]}]}
    for name, relation, join in (("pairs", "big", overlaps), ("none", "big", NEVER), ("tiny", "small", overlaps)):
        view = {"algorithm": "interval-tree", "from": {"a": relation, "b": relation}, "select": ["a.id as x", "b.id as y"], **join}
        assert client.put(f"/v1/views/{name}", json=view).status_code in (201, 202)


SLOW = ("pairs/count", "none/rows", "none/rows?limit=0", "none/count", "pairs/rows?limit=700000000", "none/changes?snapshot=true")


def test_long_answers_hold_nobody_up(server: ServerProcess) -> None:
    """More of them than there are threads; then their clients leave, and nothing is left of them; then the service ends under some."""
    client = server.client()
    load_slow(client)

    def ask_all() -> list[socket.socket]:
        asked = []
        for path in SLOW * 7:
            asked.append(socket.create_connection(("127.0.0.1", server.port)))
            asked[-1].sendall(f"GET /v1/views/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return asked

    asked = ask_all()
    while client.get("/v1/status").json()["figures"]["pins"] < 10:
        time.sleep(0.01)
    assert client.get("/v1/views/tiny/rows").json() == {"x": 1, "y": 1}
    assert client.get("/v1/views/none").json()["empty"] is None
    for one in asked:
        one.close()
    while client.get("/v1/status").json()["figures"]["pins"]:
        time.sleep(0.01)
    asked = ask_all()
    while client.get("/v1/status").json()["figures"]["pins"] < 10:
        time.sleep(0.01)
    begun = time.monotonic()
    assert server.stop(limit=20) == 0
    assert time.monotonic() - begun < 10  # the promise of the interface, not a measurement
    assert "ERROR" not in server.output()
    for one in asked:
        one.close()

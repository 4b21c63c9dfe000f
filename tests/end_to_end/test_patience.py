"""Slow readers and followers: what is kept for them, what is not, and how they are notified. One server with short timeouts."""
from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.end_to_end import talk
from tests.end_to_end.bookings import Case
from tests.server_process import ServerProcess

IDLE = 1.0  # seconds


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    environment = {"LIVEJOIN_PIN_IDLE": str(IDLE), "LIVEJOIN_SYNCHRONOUS": "normal"}
    with ServerProcess(tmp_path_factory.mktemp("server") / "data", environment=environment) as server:
        yield server


@contextmanager
def unread(server: ServerProcess, path: str) -> Iterator[socket.socket]:
    """Send a request, and read no more of its answer than the buffers of the connection hold."""
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        link.connect(("127.0.0.1", server.port))
        link.settimeout(30)
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        yield link


def drain(link: socket.socket) -> bytes:
    data = b""
    try:
        while part := link.recv(1 << 16):
            data += part
    except ConnectionResetError:
        pass
    return data


def lines(answer: bytes) -> list[dict[str, Any]]:
    """Return the complete JSON lines of a chunked answer."""
    _, _, body = answer.partition(b"\r\n\r\n")
    plain = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        if not size or not rest:
            break
        plain += rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]
    return [json.loads(line) for line in plain.split(b"\n")[:-1]]


def gauge(server: ServerProcess, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics").text
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


def forgotten(server: ServerProcess, case: Case) -> None:
    """Return when the service holds no version and no follower for any client; occasional changes make it check."""
    end = time.monotonic() + 60
    while gauge(server, "livejoin_pins") + gauge(server, "livejoin_subscribers") > 0:
        assert time.monotonic() < end
        talk.ok(talk.send(case.client, [case.booking(1, "A", 1, 5)]))
        time.sleep(0.1)


def crowd(case: Case) -> int:
    """A result of a million rows; return the number of rows."""
    talk.ok(talk.send(case.client, [case.job(number, "C", 1, 30) for number in range(1000, 2000)]))
    talk.ok(talk.send(case.client, [case.booking(number, "C", 1, 30) for number in range(10_000, 11_000)]))
    return 1_000_000


def test_a_cursor_expires(live: Case) -> None:
    page = talk.ok(live.client.get(f"/v1/views/{live.v}/rows", params={"limit": 1}, headers={"Accept": talk.JSON}))
    url = f"/v1/views/{live.v}/rows"
    talk.ok_status(live.client.get(url, params={"limit": 1, "cursor": page["next"]}))
    end = time.monotonic() + 30
    while (answer := live.client.get(url, params={"limit": 0, "version": page["version"]})).status_code == 200 and time.monotonic() < end:
        talk.ok(talk.send(live.client, [live.booking(99, "B", 1, 2)]))
        time.sleep(IDLE * 1.5)
    talk.problem(answer, 410, "snapshot-expired")
    talk.problem(live.client.get(url, params={"cursor": page["next"]}), 410, "snapshot-expired")


def test_a_reader_that_takes_nothing_is_broken_off(server: ServerProcess, live: Case) -> None:
    """Its answer is never ended as if it were complete."""
    crowd(live)
    with unread(server, f"/v1/views/{live.v}/rows") as link:
        assert link.recv(100).startswith(b"HTTP/1.1 200")
        forgotten(server, live)
        assert not drain(link).endswith(b"0\r\n\r\n")


def test_a_reader_that_takes_a_little_now_and_then_is_not(server: ServerProcess, live: Case) -> None:
    crowd(live)
    with live.client.stream("GET", f"/v1/views/{live.v}/rows", headers={"Accept": talk.ARROW}) as answer:
        version = answer.headers["livejoin-version"]
        size = 0
        began = time.monotonic()
        for number, part in enumerate(answer.iter_raw()):
            size += len(part)
            if number % 100 == 0 and time.monotonic() - began < IDLE * 3:
                talk.ok(talk.send(live.client, [live.delete(10_000 + number % 500)]))
                time.sleep(IDLE / 4)
    assert size > 1_000_000 and int(version) < live.version()


@pytest.fixture
def patient(shared_server: ServerProcess) -> Iterator[Case]:
    """A server whose timeouts for clients are longer than all changes of a test may take."""
    case = Case(shared_server.client(), 1).live()
    yield case
    talk.drop(case.client, [f"{case.v}_x", case.v], [case.b, case.m])


def test_a_follower_that_takes_nothing_is_told_where_it_was(shared_server: ServerProcess, patient: Case) -> None:
    """Its last record is an error with a token, then the connection closes; nothing was skipped before it."""
    small = f"{patient.v}_x"
    talk.view(patient.client, small, {**patient.json, "changes": {"retain_rows": 2000}})
    talk.ok(talk.send(patient.client, [patient.job(number, "D", 1, 30) for number in range(5000, 6000)]))
    token = json.loads(patient.client.get(f"/v1/views/{small}/changes", params={"wait": 0}).content)["token"]
    with unread(shared_server, f"/v1/views/{small}/changes?since={token}&wait=60") as link:
        assert link.recv(100).startswith(b"HTTP/1.1 200")
        first = patient.version() + 1
        for number in range(240):
            talk.ok(talk.send(patient.client, [patient.booking(20_000 + number, "D", 4, 5)]))
        found = lines(b"HTTP/1.1 200 OK\r\n\r\n" + drain(link).partition(b"\r\n\r\n")[2])
    assert found[-1]["op"] == "error" and found[-1]["problem"]["type"].startswith("/problems/") and found[-1]["token"]
    progress = [record["version"] for record in found if record["op"] == "progress"]
    assert progress == list(range(first, first + len(progress))) and len(progress) < 240
    for version in progress:
        assert sum(record["op"] == "insert" and record["version"] == version for record in found) == 1000
    answer = patient.client.get(f"/v1/views/{small}/changes", params={"since": found[-1]["token"], "wait": 0})
    if answer.status_code != 200:
        talk.problem(answer, 410, "token-expired")


def test_the_service_forgets_all_of_them(server: ServerProcess, live: Case) -> None:
    """After some time, no pin and no subscriber of the tests above is left."""
    forgotten(server, live)

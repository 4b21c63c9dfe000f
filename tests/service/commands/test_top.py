"""`livejoin top`: in a pipe, on a terminal, while the service goes away and comes back."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import livejoin
from livejoin.commands.top import Reading, ReadingChange
from service.access.access_token import AccessToken, digest, new_text
from service.access.store import add_token
from service.cli import main
from tests.client.hotel import Hotel, row
from tests.listener import Listener
from tests.server_process import ServerProcess


def reading(at: float, **values: float) -> Reading:
    return Reading(at, {}, {(name, ()): value for name, value in values.items()})


def test_rates_over_a_restart() -> None:
    between = ReadingChange(reading(10.0, changes=100, batches=7), reading(12.0, changes=300, batches=4))
    assert between.rate("changes") == 100 and between.rate("batches") == 2 and between.rate("other") == 0
    assert ReadingChange(between.now, between.now).rate("changes") is None


def test_quantiles() -> None:
    def histogram(at: float, *counts: float) -> Reading:
        labels = (("le", "0.001"), ("le", "0.01"), ("le", "+Inf"))
        values = {("t_bucket", (label, ("view", "v"))): count for label, count in zip(labels, counts, strict=True)}
        return Reading(at, {}, values)

    between = ReadingChange(histogram(1, 5, 5, 5), histogram(2, 15, 25, 25))
    assert between.quantile(0.25, "t", view="v") == pytest.approx(0.0005)
    assert between.quantile(0.75, "t", view="v") == pytest.approx(0.0055)
    assert ReadingChange(histogram(1, 0, 0, 0), histogram(2, 0, 0, 9)).quantile(0.5, "t", view="v") == 0.01, "beyond the last bound"
    assert ReadingChange(histogram(1, 1, 1, 1), histogram(2, 1, 1, 1)).quantile(0.5, "t", view="v") is None
    assert between.quantile(0.5, "t", view="w") is None


def test_once_in_a_pipe(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    with livejoin.connect(server.url) as lj:
        hotel = Hotel(lj)
        writing = threading.Event()

        def write() -> None:
            number = 0
            while not writing.is_set():
                number += 1
                hotel.bookings.upsert([row(number)])

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert main(["top", "--url", server.url, "--interval", "0.5"]) == 0
        finally:
            writing.set()
            thread.join()
    emitted = capsys.readouterr()
    assert emitted.err == "" and "\x1b" not in emitted.out
    lines = emitted.out.splitlines()
    assert lines[0].startswith(f"{server.url}  ") and "2 relations with" in lines[0]
    rates = re.search(r"changes/s ([\d,.]+)  batches/s ([\d,.]+)", lines[1])
    assert rates and float(rates[1].replace(",", "")) > 0
    assert "memory" in lines[2] and "MiB" in lines[2] and "latency of POST · " not in lines[2]
    (view,) = (line for line in lines if line.startswith("clashes "))
    assert view.split()[1] == "live" and float(view.split()[2].replace(",", "")) > 0


class Starting(Listener):
    """Before a service: its first request finds that the service is starting, all others are passed on."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port, self._asked = port, False

    def _take(self, client: socket.socket) -> None:
        if self._asked:
            service = socket.create_connection(("127.0.0.1", self._port))
            for ends in ((client, service), (service, client)):
                threading.Thread(target=_pass_on, args=ends, daemon=True).start()
            return
        self._asked = True
        with client:
            client.recv(1 << 16)
            problem = json.dumps({"type": "/problems/recovering", "status": 503, "detail": "the service is starting: reading the log"})
            head = "HTTP/1.1 503 Starting\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\nConnection: close\r\n"
            client.sendall(f"{head}Content-Length: {len(problem)}\r\n\r\n{problem}".encode())


def _pass_on(of: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while content := of.recv(1 << 16):
            to.sendall(content)
        to.shutdown(socket.SHUT_WR)


def test_a_service_that_is_starting(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    with Starting(server.port) as starting:
        assert main(["top", "--url", starting.url, "--interval", "0.1"]) == 0
    emitted = capsys.readouterr()
    assert "waiting: the service is starting" in emitted.err and "0 relations" in emitted.out


def test_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--interval", "0"]) == 2 and "--interval must be" in capsys.readouterr().err
    assert main(["top", "--url", "http://127.0.0.1:9"]) == 1
    assert "no service answers at http://127.0.0.1:9" in capsys.readouterr().err


def test_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows what the token is for."""
    folder = tmp_path / "data"
    folder.mkdir()
    admin, reader = new_text(), new_text()
    add_token(folder, AccessToken("ops", "admin", None, None, float("inf"), 1000.0, digest(admin)), begin=True)
    add_token(folder, AccessToken("see", "read", None, frozenset({"clashes"}), float("inf"), 1000.0, digest(reader)), begin=True)
    with ServerProcess(folder) as server:
        with livejoin.connect(server.url, token=admin) as lj:
            Hotel(lj)
            Hotel(lj, "_other")
        assert main(["top", "--url", server.url, "--interval", "0.1"]) == 1
        assert "unauthorized" in capsys.readouterr().err
        monkeypatch.setenv("LIVEJOIN_TOKEN", reader)
        assert main(["top", "--url", server.url, "--interval", "0.1"]) == 0
    emitted = capsys.readouterr().out
    assert "clashes  " in emitted and "clashes_other" not in emitted


def heed_interrupts() -> None:
    """Tests that a shell has begun in the background ignore them, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Screen:
    """What a command shows on a terminal."""

    def __init__(self, arguments: list[str]) -> None:
        self._leader, follower = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        command = [sys.executable, "-m", "service.cli", *arguments]
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, env=environment, preexec_fn=heed_interrupts
        )
        os.close(follower)
        self.text = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self.text += os.read(self._leader, 65536).decode(errors="replace")
            except OSError:  # the command has ended
                return

    def wait_for(self, pattern: str, limit: float = 60.0) -> None:
        """In what is shown from now on."""
        begin, end = len(self.text), time.monotonic() + limit
        while not re.search(pattern, self.text[begin:]):
            assert time.monotonic() < end and self.process.poll() is None, self.text[-3000:]
            time.sleep(0.02)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(30)
        self._reader.join()
        os.close(self._leader)
        return status


@contextmanager
def screen(*arguments: str) -> Iterator[Screen]:
    shown = Screen(list(arguments))
    try:
        yield shown
    finally:
        if shown.process.poll() is None:
            shown.process.kill()


def test_on_a_terminal_over_a_restart(server: ServerProcess) -> None:
    with livejoin.connect(server.url) as lj:
        hotel = Hotel(lj)
        with screen("top", "--url", server.url, "--interval", "0.1") as shown:
            shown.wait_for("clashes")
            hotel.bookings.upsert([row(number) for number in range(50)])
            shown.wait_for(r"50 rows")
            server.kill()
            shown.wait_for(r"(?s)50 rows(?:(?!relations).)*no answer for \d+ s; the figures are out of date")  # on one page
            server.start()
            shown.wait_for(r"(?s)ready for.*50 rows")
            begin = len(shown.text)
            shown.wait_for(r"50 rows")
            assert "no answer" not in shown.text[begin:]
            assert shown.end() == 130

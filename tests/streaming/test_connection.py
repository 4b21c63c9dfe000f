"""The service as the job talks to it, by a server that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from livejoin import Receipt
from streaming.connection import Service, SourceTaken, TooLarge
from streaming.errors import StreamError
from streaming.metrics import Metrics
from streaming.patience import Stopped
from streaming.publishing.feed import Feed, FeedInterrupted, Progress, token_of_now

Answer = tuple[int, dict[str, str], bytes]  # status, headers, body
JSONL = {"Content-Type": "application/jsonl"}
RECEIPT = {"version": 7, "applied": 1, "ignored": 0, "skipped_count": 0, "skipped": [], "duplicate": False}
GOOD: Answer = (200, {}, json.dumps(RECEIPT).encode())


def problem(status: int, kind: str, **headers: str) -> Answer:
    return status, headers, json.dumps({"type": f"/problems/{kind}", "title": kind, "status": status, "detail": "so it is"}).encode()


class Pauses(threading.Event):
    """A stop that notes the pauses and lets none of them pass."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0)
        return self.is_set()


class Script:
    """A server that gives these answers, one after the other."""

    def __init__(self, *answers: Answer) -> None:
        left = iter(answers)
        self.asked: list[tuple[str, bytes]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.append((self.path, self.rfile.read(int(self.headers["Content-Length"] or 0))))
                self._answer()

            def do_GET(self) -> None:
                asked.append((self.path, b""))
                self._answer()

            def _answer(self) -> None:
                status, headers, body = next(left)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Script:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def client_of(script: Script, pauses: Pauses, metrics: Metrics) -> Service:
    return Service(script.url, pauses, metrics)


def test_busy_and_not_ready_are_waited_out(pauses: Pauses, metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    """With pauses that grow, or as long as the service asks for; the same body each time."""
    busy = problem(429, "too-busy", Retry_After="2")
    starting = [problem(503, "recovering")] * 7
    with Script(busy, *starting, problem(503, "recovering", Retry_After="3600"), GOOD) as script:
        assert client_of(script, pauses, metrics).post(b"batch", "pms", 3, "run", False) == Receipt(7, 1)
    assert pauses.seconds == [2, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 30]
    assert len(set(script.asked)) == 1 and script.asked[0][1] == b"batch"
    assert metrics.registry.get_sample_value("livejoin_stream_waits_total", {"at": "service"}) == 9
    assert "429 too-busy: so it is" in caplog.text and "retrying in 2 s" in caplog.text


def test_an_end_is_not_waited_for(pauses: Pauses, metrics: Metrics) -> None:
    pauses.set()
    with Script(problem(429, "too-busy")) as script, pytest.raises(Stopped):
        client_of(script, pauses, metrics).post(b"", "pms", 3, "run", False)


@pytest.mark.parametrize(("answer", "failure"), [(problem(409, "source-reset"), SourceTaken), (problem(413, "body-too-large"), TooLarge)])
def test_what_waiting_does_not_mend(answer: Answer, failure: type[Exception], pauses: Pauses, metrics: Metrics) -> None:
    with Script(answer) as script, pytest.raises(failure, match="so it is"):
        client_of(script, pauses, metrics).post(b"", "pms", 3, "run", False)
    assert pauses.seconds == []


def lines(*records: dict[str, Any]) -> Answer:
    return 200, JSONL, b"".join(json.dumps(record).encode() + b"\n" for record in records)


PROGRESS = {"version": 4, "op": "progress", "token": "t4"}
ERROR = {"op": "error", "problem": {"type": "/problems/view-building", "title": "Building", "detail": "not yet"}, "token": None}


def pieces(feed: Feed) -> Iterator[Any]:
    for piece in feed:
        yield from piece


def test_changes_of_a_service_that_is_not_ready(pauses: Pauses, metrics: Metrics) -> None:
    waits = [problem(503, "view-building", Retry_After="1"), problem(429, "too-busy")]
    with Script(*waits, lines(PROGRESS)) as script, closing(Feed(client_of(script, pauses, metrics), "v", "t3")) as feed:
        assert list(pieces(feed)) == [Progress(4, "t4")]
    assert pauses.seconds == [1, 0.2]


def test_a_token_of_now(pauses: Pauses, metrics: Metrics) -> None:
    with Script(lines(PROGRESS), lines(ERROR)) as script:
        client = client_of(script, pauses, metrics)
        assert token_of_now(client, "v") == Progress(4, "t4")
        with pytest.raises(FeedInterrupted, match="not yet"):
            token_of_now(client, "v")


@pytest.mark.parametrize("body", [b"what?\n", b"[]\n", b'{"op": "insert"}\n', b'{"op": "error"}\n', b"5\n"])
def test_changes_that_are_none(body: bytes, pauses: Pauses, metrics: Metrics) -> None:
    with Script((200, JSONL, body)) as script, closing(Feed(client_of(script, pauses, metrics), "v", "t")) as feed:
        with pytest.raises(StreamError, match="unexpected record among the changes of the view v"):
            list(pieces(feed))

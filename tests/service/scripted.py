"""A server that sends the answers that the test specifies, including broken connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import orjson


class Answer(NamedTuple):
    """`whole` False: the connection is closed before the body ends."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    whole: bool = True


class Asked(NamedTuple):
    method: str
    path: str
    params: dict[str, str]
    body: bytes


def problem(kind: str, status: int, retry_after: str | None = None) -> Answer:
    headers = (("Retry-After", retry_after),) if retry_after else ()
    return Answer(orjson.dumps({"type": f"/problems/{kind}", "title": kind, "detail": "because"}), status, headers)


@contextmanager
def scripted(*answers: Answer) -> Iterator[tuple[str, list[Asked]]]:
    """Yield (url, the requests received). After the last answer, every request gets a 410."""
    left, asked = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(Asked(self.command, parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), body))
            answer = left.pop(0) if left else problem("token-expired", 410)
            self.send_response(answer.status)
            headers = {"Content-Type": "application/jsonl", **dict(answer.headers), "Transfer-Encoding": "chunked", "Connection": "close"}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            for start in range(0, len(answer.body), 7):  # lines are split anywhere
                piece = answer.body[start : start + 7]
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            if answer.whole:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        do_POST = do_PUT = do_DELETE = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()

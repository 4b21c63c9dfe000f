"""A relay before a service that loses the answer to the first batch, after the service has given it."""

from __future__ import annotations

import os
import signal
import socket
import threading

import psutil

from tests.listener import Listener


class Relay(Listener):
    """`with Relay(port) as relay:`. The connection over which the first POST came is closed in place of its answer; with `kill`, whoever
    has sent it is killed first. `passed`: requests that were passed on; `lost`: answers that were not."""

    def __init__(self, port: int, kill: bool) -> None:
        super().__init__()
        self.kill, self.passed, self.lost = kill, 0, 0
        self._port = port
        self._lock = threading.Lock()

    def _take(self, client: socket.socket) -> None:
        threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Requests one after another: each is passed on as it comes, and its answer comes back when it has begun."""
        with client, socket.create_connection(("127.0.0.1", self._port)) as service:
            while request := _whole(client):
                self.passed += 1
                service.sendall(request)
                answer = _whole(service)
                with self._lock:
                    lose = request.startswith(b"POST /v1/changes") and not self.lost
                    self.lost += lose
                if lose:
                    if self.kill:
                        os.kill(_process_at(client.getpeername()[1]), signal.SIGKILL)
                    return
                client.sendall(answer)


def _whole(end: socket.socket) -> bytes:
    """A message with a Content-Length, or without a body; b"" at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = end.recv(1 << 16)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    size = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < size:
        body += end.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def _process_at(port: int) -> int:
    """The process that has the local port of a connection: one of ours."""
    for process in psutil.Process().children(recursive=True):
        try:
            if any(one.laddr and one.laddr.port == port for one in process.net_connections()):
                return process.pid
        except psutil.Error:
            continue
    raise LookupError(f"no process of ours has the port {port}")

"""Clients with so little overhead that they do not distort the measurements: prepared bytes over plain sockets."""

from __future__ import annotations

import http.client
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import psutil

ARROW = "application/vnd.apache.arrow.stream"


class Spent(NamedTuple):
    """Wall-clock time of all requests, and the processor time of client and server; in seconds."""

    wall: float
    client: float
    server: float
    requests: int

    @property
    def rate(self) -> float:
        return self.requests / self.wall

    @property
    def own_limit(self) -> float:
        """Requests a second if the server took no time."""
        return self.requests / self.client


def post(path: str, body: bytes, kind: str) -> bytes:
    """Return a request as it is sent."""
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def exchange(port: int, process: psutil.Process, requests: list[bytes], connections: int) -> Spent:
    """Send all requests to the server that is `process`; each connection waits for an answer before it sends its next request.

    Raises ValueError for any answer except 200.
    """
    left = iter(requests)
    sockets = [connect(port) for _ in range(connections)]
    used, cpu, start = _processor_time(process), time.process_time(), time.perf_counter()
    if connections == 1:
        for request in left:
            sockets[0].sendall(request)
            read_answer(sockets[0], b"")
    else:
        _turns(sockets, left)
    spent = Spent(time.perf_counter() - start, time.process_time() - cpu, _processor_time(process) - used, len(requests))
    for connection in sockets:
        connection.close()
    return spent


def _processor_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _turns(sockets: list[socket.socket], left: Iterator[bytes]) -> None:
    with selectors.DefaultSelector() as selector:
        for connection in sockets:
            if (request := next(left, None)) is not None:
                connection.sendall(request)
                selector.register(connection, selectors.EVENT_READ)
        while selector.get_map():
            for ready, _ in selector.select():
                connection: socket.socket = ready.fileobj
                read_answer(connection, b"")
                if (request := next(left, None)) is not None:
                    connection.sendall(request)
                else:
                    selector.unregister(connection)


def read_answer(connection: socket.socket, data: bytes) -> None:
    """Read one complete answer."""
    while True:
        received = connection.recv(65_536)
        if not received:
            raise ConnectionError("the server closed the connection")
        data += received
        end = data.find(b"\r\n\r\n")
        if end < 0:
            continue
        at = data.lower().index(b"content-length: ") + 16
        if len(data) >= end + 4 + int(data[at : data.index(b"\r", at)]):
            break
    if data[9:12] != b"200":
        raise ValueError(data.decode(errors="replace"))


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def post_all(port: int, bodies: Iterable[bytes], connections: int, path: str = "/v1/changes", kind: str = ARROW) -> float:
    """Send large bodies, with a thread per connection; return seconds. Raises the first failure."""
    left, lock, failures = iter(bodies), threading.Lock(), []

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        try:
            while True:
                with lock:
                    body = next(left, None)
                if body is None:
                    return
                connection.request("POST", path, body, {"Content-Type": kind})
                answer = connection.getresponse()
                text = answer.read()
                if answer.status != 200:
                    raise ValueError(text.decode(errors="replace"))
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(connections)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return time.perf_counter() - start


_SENDER = """
import socket, sys
left, block = int(sys.argv[2]), bytes(2 << 20)
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.recv(1)
    while left > 0:
        connection.sendall(memoryview(block)[:left])
        left -= len(block)
"""


def bare_seconds(size: int) -> float:
    """Seconds that this number of bytes takes from one process to another over loopback, sent without any computation and read in pieces of
    1 MiB."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = subprocess.Popen([sys.executable, "-c", _SENDER, str(listener.getsockname()[1]), str(size)])
        connection, _ = listener.accept()
    buffer, received = bytearray(1 << 20), 0
    with connection:
        start = time.perf_counter()
        connection.sendall(b"!")
        while count := connection.recv_into(buffer):
            received += count
        elapsed = time.perf_counter() - start
    if sender.wait() or received != size:
        raise ConnectionError(f"received {received} of {size} bytes")
    return elapsed


def open_stream(port: int, path: str, accept: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse, float]:
    """Send a request over a connection that is already open. Return the connection, the answer, and seconds until the first byte of the
    body can be read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.connect()
    assert connection.sock is not None
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    start = time.perf_counter()
    connection.request("GET", path, headers={"Accept": accept})
    answer = connection.getresponse()
    if answer.status != 200:
        raise ValueError(answer.read().decode(errors="replace"))
    answer.peek(1)
    return connection, answer, time.perf_counter() - start

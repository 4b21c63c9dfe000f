"""Requests and their answers: what every request has, what is no answer, what is reused."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle

import pytest

import livejoin
from tests.client.hotel import Hotel, row
from tests.waiting import until

HEAD = b"HTTP/1.1 200 OK\r\n"
WHOLE = HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}'


class Asked:
    """What a server of bytes has been asked: heads of requests, and the connection that each came by."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections: list[int] = []
        self.gate = threading.Event()  # answers wait for it
        self.gate.set()


@contextmanager
def answering(*answers: bytes, piece: int = 1 << 20, closes: bool = False) -> Iterator[tuple[str, Asked]]:
    """A server that answers with these bytes in turn, again and again, some at a time; `closes`: the connection after each."""
    asked, left, listener = Asked(), cycle(answers), socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket, number: int) -> None:
        with connection, connection.makefile("rb") as file:
            while True:
                lines = []
                while (line := file.readline()) != b"\r\n":
                    if not line:  # the client has closed it
                        return
                    lines.append(line)
                asked.heads.append(b"".join(lines))
                asked.connections.append(number)
                length = [int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length")]
                asked.bodies.append(file.read(length[0]) if length else b"")
                answer = next(left)
                asked.gate.wait()
                for at in range(0, len(answer), piece):
                    connection.sendall(answer[at : at + piece])
                if closes:
                    return

    def accept() -> None:
        number = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(connection, number), daemon=True).start()
            number += 1

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_what_every_request_has() -> None:
    with answering(WHOLE) as (url, asked), livejoin.connect(f"{url}/behind/", token="lj_x") as lj:
        assert lj.status() == lj.status() == {"a": 1}
        assert asked.connections == [0, 0], "a connection is used again"
        lines = asked.heads[0].decode().splitlines()
        assert lines[0] == "GET /behind/v1/status HTTP/1.1" and f"Host: {url[7:]}" in lines
        assert "Authorization: Bearer lj_x" in lines and "Accept-Encoding: identity" in lines


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9\r\n\r\n", HEAD + b"Content-Length: 9\r\n\r\n{}", HEAD + b"x: " + b"y" * 200_000, b""]
)
def test_what_is_no_answer(answer: bytes) -> None:
    with answering(answer, closes=True) as (url, asked), livejoin.connect(url, patience=0) as lj:
        with pytest.raises(livejoin.Unreachable, match="the answer is not complete") as caught:
            lj.relation("r").upsert([{"id": 1}])
        assert caught.value.sent and len(asked.heads) == 1, "it may be applied, so it is not sent again"


def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    with answering(WHOLE, closes=True) as (url, asked), livejoin.connect(url) as lj:
        lj.status()
        kept = lj._http._http._transport._pool.connections  # type: ignore[attr-defined]
        until(lambda: all(one.has_expired() for one in kept))  # the end has arrived
        lj.status()
        assert asked.connections == [0, 1]


def test_a_refusal_before_the_end_of_a_body_is_told() -> None:
    """The service closes the connection of a body that is too large: what it has said first counts."""
    problem = b'{"type": "/problems/body-too-large", "title": "t", "detail": "because"}'
    answer = b"HTTP/1.1 413 x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(problem), problem)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 20):  # or else what was received would be lost with the connection
                    pass

        refused = thread.submit(refuse)
        with livejoin.connect(f"http://127.0.0.1:{listener.getsockname()[1]}") as lj, pytest.raises(livejoin.BodyTooLarge, match="because"):
            lj.relation("r").post(b"x" * (1 << 20), "application/jsonl")
        refused.result(60)


def test_a_silent_service_and_one_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with livejoin.connect(url, patience=0, timeout=0.2) as lj, pytest.raises(livejoin.Unreachable, match="does not respond") as caught:
            lj.status()
        assert caught.value.sent
    with livejoin.connect(url, patience=0) as lj, pytest.raises(livejoin.Unreachable, match="no service answers") as caught:
        lj.status()
    assert not caught.value.sent


def test_a_media_type_cannot_hold_more_of_the_head(lj: livejoin.Client) -> None:
    with pytest.raises(ValueError, match="is not a media type"):
        lj.post_changes(b"", "text/csv\r\nAuthorization: Bearer lj_y")


def test_threads_and_tasks_share_connections(hotel: Hotel) -> None:
    def write(number: int) -> int:
        return hotel.bookings.upsert([row(number)]).applied

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(write, range(200))) == 200
    assert hotel.bookings.get()["rows"] == 200
    kept = hotel.lj._http._http._transport._pool.connections  # type: ignore[attr-defined]
    assert 0 < len(kept) <= 8

    async def with_tasks() -> None:
        async with livejoin.connect_async(hotel.lj.url) as lj:
            bookings = lj.relation(hotel.bookings.name)
            receipts = await asyncio.gather(*[bookings.upsert([row(number, "B")]) for number in range(100)])
            assert sum(receipt.applied for receipt in receipts) == 100
            one = asyncio.create_task(bookings.upsert([row(1)]))
            await asyncio.sleep(0)
            one.cancel()
            with pytest.raises(asyncio.CancelledError):
                await one
            assert (await bookings.get())["rows"] == 200, "what was given up leaves no answer behind"

    asyncio.run(with_tasks())


def test_large_bodies_and_answers(hotel: Hotel) -> None:
    long = "x" * 3_000_000
    assert hotel.bookings.upsert([row(1, long), row(2, long)]).applied == 2
    with pytest.raises(livejoin.BadRows) as caught:
        hotel.bookings.upsert([{**row(number), "s": "x" * 2_000} for number in range(100)])
    assert len(caught.value.errors) == 100

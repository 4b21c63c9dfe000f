"""Many followers of many views, in a process of their own: `python -m tests.soak.crowd PORT VIEWS FOLLOWERS`.

Follower number k follows the view v<k modulo VIEWS>; the first one reads slowly, the second one not at all. Prints "ready" when all are
following, then answers each line of its input with a line of JSON: for each follower, the sums of its rows (inserted minus deleted: their
number, their x, their y), and how many seconds after `at` rows have arrived, for those since the previous line. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from typing import cast

import orjson
import uvloop

SLOW, DEAD = 0, 1  # numbers of followers
_SIP, _PAUSE = 1 << 10, 0.05  # bytes that the slow one reads at a time, and the seconds in between


class Follower(asyncio.Protocol):
    def __init__(self, number: int, path: str, begun: asyncio.Semaphore) -> None:
        self._number, self._path, self._begun = number, path, begun
        self._rest: bytes | None = None
        self.sums = [0, 0, 0]
        self.late: list[float] = []
        self.errors: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        if self._rest is None:
            assert data.startswith(b"HTTP/1.1 200"), data
            self._rest, data = b"", data.partition(b"\r\n\r\n")[2]
            self._begun.release()
        if self._number == DEAD:
            self._transport.pause_reading()
            return
        if self._number == SLOW:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(_PAUSE, self._go_on)
        *lines, self._rest = (self._rest + data).split(b"\n")
        now = time.monotonic()
        for line in lines:
            if not line.startswith(b"{"):  # the frame of a chunk
                continue
            record = orjson.loads(line)
            if record["op"] == "error":
                self.errors.append(line.decode())
            if "row" not in record:
                continue
            sign, row = (1 if record["op"] == "insert" else -1), record["row"]
            for position, value in enumerate((1, row["x"], row["y"])):
                self.sums[position] += sign * value
            if sign > 0:
                self.late.append(now - row["at"] / 1e6)

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()


async def follow(port: int, views: int, followers: int) -> None:
    loop, begun = asyncio.get_running_loop(), asyncio.Semaphore(0)
    crowd = []
    for number in range(followers):
        connection = socket.create_connection(("127.0.0.1", port))
        if number in (SLOW, DEAD):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SIP)
        follower = Follower(number, f"/v1/views/v{number % views}/changes", begun)
        await loop.create_connection(lambda follower=follower: follower, sock=connection)  # type: ignore[misc]
        crowd.append(follower)
        await begun.acquire()
    print("ready", flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        said = [{"sums": follower.sums, "late": follower.late, "errors": follower.errors} for follower in crowd]
        print(json.dumps(said), flush=True)
        for follower in crowd:
            follower.late = []


if __name__ == "__main__":
    uvloop.run(follow(*map(int, sys.argv[1:4])))

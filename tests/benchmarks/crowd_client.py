"""Many followers of one view, in a process of their own: `python -m tests.benchmarks.crowd_client PORT VIEW FOLLOWERS`.

Prints "ready" when all are following, reads until its input ends, then prints one line of JSON: for each follower, when it had received
which version completely.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import cast

import uvloop

_PROGRESS = re.compile(rb'"version":(\d+),"op":"progress"')


class Follower(asyncio.Protocol):
    def __init__(self, path: str, begun: asyncio.Semaphore) -> None:
        self._path, self._begun = path, begun
        self._first, self._rest = True, b""
        self.seen: list[tuple[float, int]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        if self._first:
            assert data.startswith(b"HTTP/1.1 200"), data
            self._first = False
            self._begun.release()
        data = self._rest + data
        self._rest = data[-64:]  # the last record may be incomplete
        versions = _PROGRESS.findall(data, max(0, len(data) - 400))
        if versions and (not self.seen or int(versions[-1]) > self.seen[-1][1]):
            self.seen.append((time.monotonic(), int(versions[-1])))


async def follow(port: int, view: str, followers: int) -> None:
    loop, begun = asyncio.get_running_loop(), asyncio.Semaphore(0)
    path, crowd = f"/v1/views/{view}/changes", []
    for _ in range(followers):
        _, follower = await loop.create_connection(lambda: Follower(path, begun), "127.0.0.1", port)
        crowd.append(follower)
        await begun.acquire()
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps([follower.seen for follower in crowd]), flush=True)


if __name__ == "__main__":
    uvloop.run(follow(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))

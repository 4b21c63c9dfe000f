"""Many clients read one resource at once, from a process of their own: `python -m tests.benchmarks.readers_client PORT PATH CLIENTS`.

Prints "ready", reads all of the answers as Arrow, then prints one line of JSON: how many bytes each client received.
"""

from __future__ import annotations

import asyncio
import json
import sys

_CHUNK = 1 << 20  # bytes


async def read(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_CHUNK)
    fields = f"Host: 127.0.0.1:{port}\r\nAccept: application/vnd.apache.arrow.stream\r\nConnection: close\r\n\r\n"
    writer.write(f"GET {path} HTTP/1.1\r\n{fields}".encode())
    status = await reader.readline()
    assert b" 200 " in status, status
    received = 0
    while part := await reader.read(_CHUNK):
        received += len(part)
    writer.close()
    return received


async def main(port: int, path: str, clients: int) -> None:
    print("ready", flush=True)
    print(json.dumps(await asyncio.gather(*(read(port, path) for _ in range(clients)))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))

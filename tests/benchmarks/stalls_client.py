"""Single changes over one connection, each sent after the answer to the one before, from a process of their own: `python -m
tests.benchmarks.stalls_client PORT RELATION`.

Prints "ready" once the connection is warm, posts until its input ends, then prints one line of JSON: when each change was sent (seconds of
the system's monotonic clock), and after how many seconds it was answered. The relation has the columns id, s and e.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from tests.benchmarks.raw_client import connect, post, read_answer

ROWS = 1_000  # rows that are changed repeatedly
_WARM = 200


def requests(relation: str) -> list[bytes]:
    rows = ({"relation": relation, "op": "upsert", "row": {"id": key, "s": key, "e": key + 10}} for key in range(ROWS))
    return [post("/v1/changes", json.dumps({"changes": [row]}, separators=(",", ":")).encode(), "application/json") for row in rows]


def main(port: int, relation: str) -> None:
    all_ended, ready = threading.Event(), requests(relation)
    connection = connect(port)
    sent: list[tuple[float, float]] = []

    def exchange(number: int) -> tuple[float, float]:
        start = time.monotonic()
        connection.sendall(ready[number % ROWS])
        read_answer(connection, b"")
        return start, time.monotonic() - start

    def wait_for_the_end() -> None:
        sys.stdin.read()
        all_ended.set()

    for number in range(_WARM):
        exchange(number)
    print("ready", flush=True)
    threading.Thread(target=wait_for_the_end, daemon=True).start()
    while not all_ended.is_set():
        sent.append(exchange(len(sent)))
    print(json.dumps(sent), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

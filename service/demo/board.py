"""What has arrived: counts and recent changes of each view, reported by its followers only."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from service.client import Client, ClientError

RECENT = 8  # changes kept for the panel


class Arrived(NamedTuple):
    view: str
    insert: bool
    row: dict[str, Any]


@dataclass
class Tally:
    rows: int = 0
    inserted: int = 0
    deleted: int = 0


@dataclass
class Board:
    """Written by the followers' threads, read by the panel; hold `lock` for either."""

    tallies: dict[str, Tally]
    recent: deque[Arrived] = field(default_factory=lambda: deque(maxlen=RECENT))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def apply(self, view: str, records: list[dict[str, Any]]) -> None:
        """The changes of one version."""
        with self.lock:
            tally = self.tallies[view]
            for record in records:
                insert = record["op"] == "insert"
                tally.inserted += insert
                tally.deleted += not insert
                self.recent.append(Arrived(view, insert, record["row"]))
            tally.rows = tally.inserted - tally.deleted


def follow(board: Board, url: str, view: str, stop: threading.Event) -> threading.Thread:
    """Follows one view from its first row on, in a thread, until `stop` or the end of the service."""
    thread = threading.Thread(target=_follow, args=(board, url, view, stop), name=f"follow-{view}", daemon=True)
    thread.start()
    return thread


def _follow(board: Board, url: str, view: str, stop: threading.Event) -> None:
    params = {"snapshot": "true"}
    with Client(url) as client:
        while not stop.is_set():
            unfinished: list[dict[str, Any]] = []
            try:
                for line in client.changes(view, params | {"wait": "1"}):
                    record = orjson.loads(line)
                    if record["op"] in ("insert", "delete"):
                        unfinished.append(record)
                        continue
                    board.apply(view, unfinished)
                    unfinished = []
                    params = {"since": record["token"]}
                    if stop.is_set():
                        return
            except ClientError:
                stop.wait(0.5)

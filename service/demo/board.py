"""What has arrived: counts and recent changes of each view, as reported by its followers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import livejoin

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

    def apply(self, view: str, changes: Iterable[livejoin.Change]) -> None:
        """Apply the changes of one version."""
        with self.lock:
            tally = self.tallies[view]
            for change in changes:
                insert = change.op == "insert"
                tally.inserted += insert
                tally.deleted += not insert
                self.recent.append(Arrived(view, insert, change.row))
            tally.rows = tally.inserted - tally.deleted


def follow(board: Board, url: str, view: str, stop: threading.Event) -> threading.Thread:
    """Follow one view from its first row on, in a thread, until `stop` or the end of the service."""
    thread = threading.Thread(target=_follow, args=(board, url, view, stop), name=f"follow-{view}", daemon=True)
    thread.start()
    return thread


def _follow(board: Board, url: str, view: str, stop: threading.Event) -> None:
    token: str | None = None
    with livejoin.connect(url) as client:
        while not stop.is_set():
            versions = client.view(view).follow(snapshot=True, since=token, wait=1)
            try:
                for version in versions:
                    board.apply(view, version.changes)
                    if stop.is_set():
                        return
            except livejoin.LivejoinError:
                stop.wait(0.5)
            token = versions.token

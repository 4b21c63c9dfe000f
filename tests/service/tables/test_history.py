"""Passages of several threads through one history, which forgets what all have passed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from service.tables import history
from service.tables.changes import Run
from service.tables.history import History
from structures.rows import change_queue

VERSIONS = 500


class Slow:
    """A lock before which others get their turn: what was looked at without it may be another thing by then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        time.sleep(1e-5)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything is forgotten at once, and threads take turns all the time."""
    monkeypatch.setattr(history, "_PIECE", 5)
    monkeypatch.setattr(change_queue, "_BLOCK", 4)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager")
def test_each_passage_takes_every_version_once() -> None:
    relation: Any = SimpleNamespace(id=0, name="r", no_keys=None)
    noted, newest = History(0, [relation]), [0]
    noted._lock = Slow()  # type: ignore[assignment]
    passages = [noted.passage([relation]) for _ in range(4)]
    taken: list[list[int]] = [[] for _ in passages]

    def go(number: int) -> None:
        passage = passages[number]
        while passage.version < VERSIONS:
            for step in passage.take(newest[0]):
                run = step.runs["r"]
                taken[number] += (step.first + run.offsets).tolist()
            passage.passed()
            assert passage.left >= 0

    threads = [threading.Thread(target=go, args=(number,), daemon=True) for number in range(len(passages))]
    for thread in threads:
        thread.start()
    for version in range(1, VERSIONS + 1):
        slot = np.array([version], np.int32)
        noted.note(version, {"r": Run(1, np.zeros(1, np.int64), slot - 1, slot, 2)})
        newest[0] = version
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert taken == [list(range(1, VERSIONS + 1))] * len(passages)

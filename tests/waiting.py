"""Waits for what another thread or process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


def until(met: Callable[[], object], emitted: Callable[[], object] = lambda: "") -> None:
    """Wait until `met` returns something true. After a minute, fail with what `emitted` returns."""
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end, emitted()
        time.sleep(0.005)


class HeldCall:
    """A function whose calls wait until `go` is set; `begun`: one does."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.go, self.begun, self._call = threading.Event(), threading.Event(), call
        self.threads: list[str] = []  # that have called it

    def __call__(self, *given: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        self.begun.set()
        assert self.go.wait(60)
        return self._call(*given)

"""Waits for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(met: Callable[[], object], emitted: Callable[[], object] = lambda: "") -> None:
    """Wait until `met` returns something true. After a minute, fail with what `emitted` returns."""
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end, emitted()
        time.sleep(0.005)

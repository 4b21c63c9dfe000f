"""Waits for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(met: Callable[[], object], told: Callable[[], object] = lambda: "") -> None:
    """Wait until `met` returns something true. After a minute, fail with what `told` returns."""
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end, told()
        time.sleep(0.005)

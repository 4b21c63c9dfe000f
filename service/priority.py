"""Threads that work beside the writer and requests, and give way to them."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress


def give_way(nice: int) -> None:
    """Let other threads go before this one. Only Linux has priorities of threads."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + nice)

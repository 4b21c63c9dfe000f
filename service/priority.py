"""Threads that work beside the writer and requests, and give way to them; how many there is room for."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

_GROUPS, _QUOTAS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def processors() -> int:
    """How many processors this process may use: those that it may run on, and no more than the quotas of its control groups come to (of
    version 2 on Linux, as containers and systemd set them)."""
    may_run_on = getattr(os, "sched_getaffinity", None)
    count = len(may_run_on(0)) if may_run_on is not None else os.cpu_count() or 1
    return max(1, min(count, int(_quota())))


def _quota() -> float:
    """Processors, by the smallest quota of the group and of those around it; very many without one."""
    least = 1e9
    with suppress(OSError, ValueError):
        group = next(line.partition("::")[2] for line in (*_GROUPS.read_text().splitlines(), "0::/") if line.startswith("0::"))
        inner = _QUOTAS / group.strip("/")
        for folder in (inner, *inner.parents):
            if folder == _QUOTAS.parent:
                break
            with suppress(OSError, ValueError):
                share, period = (folder / "cpu.max").read_text().split()
                least = min(least, int(share) / int(period))  # ValueError: "max", none
    return least


def give_way(nice: int) -> None:
    """Let other threads go before this one. Only Linux has priorities of threads."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + nice)

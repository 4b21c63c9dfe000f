"""Servers forked from a process that has imported the service: its imports are most of what a start costs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from service import cli

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["service.server"])


class ForkedServer:
    """What `ServerProcess` asks of a `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, before: Callable[[], None] | None) -> None:
        self._process = _FORKS.Process(target=_serve, args=(list(arguments), dict(environment), log, before), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("serve", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _serve(arguments: list[str], environment: dict[str, str], log: Path, before: Callable[[], None] | None) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(environment)
    if before:
        before()
    sys.exit(cli.main(arguments))

"""Commands of livejoin and functions of tests, forked from a process that has imported livejoin: imports are most of the cost of a
start."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO

from service import cli
from service.durability import failpoints

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.preloaded"])
_SHARED = "TESTS_FORKSERVER"  # the variable with the address of a fork server that several test processes share


def share() -> None:
    """Share one fork server among all processes that are started from now on, as long as this process exists. Starting one takes seconds
    and hundreds of megabytes."""
    forkserver.ensure_running()
    os.environ[_SHARED] = forkserver._forkserver._forkserver_address


class _Shared(forkserver.ForkServer):
    """A fork server that another process has started."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._forkserver_address = address
        self._forkserver_alive_fd = os.open(os.devnull, os.O_WRONLY)  # goes to each child, which closes it

    def ensure_running(self) -> None: ...


if _SHARED in os.environ:
    forkserver.connect_to_new_process = _Shared(os.environ[_SHARED]).connect_to_new_process


Work = Sequence[str] | Callable[[], None]  # the arguments of a command, or a function of a module


class Forked:
    """A command, with the methods of `subprocess.Popen` that tests use. `output`: the file for its output; without it, `stderr` has the
    output. `before` runs in the child."""

    def __init__(
        self, work: Work, environment: Mapping[str, str], output: Path | None = None, before: Callable[[], None] | None = None
    ) -> None:
        ours, theirs = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=_run, args=(work, dict(environment), output or theirs, before), daemon=True)
        self._process.start()
        theirs.close()
        self.stderr: TextIO = os.fdopen(os.dup(ours.fileno()))
        ours.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("livejoin", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and its status has not arrived yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def finished(work: Work, environment: Mapping[str, str] | None = None, timeout: float = 120) -> tuple[int, str]:
    """Run a command and wait for it. Return its exit status (for a signal, the negative number of the signal) and its output."""
    with tempfile.NamedTemporaryFile("r", errors="replace") as output:
        status = Forked(work, {**os.environ, **(environment or {})}, Path(output.name)).wait(timeout)
        return status, output.read()


def _run(work: Work, environment: dict[str, str], output: Path | Connection, before: Callable[[], None] | None) -> None:
    os.setsid()
    if isinstance(output, Path):
        file = os.open(output, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    else:
        os.dup2(output.fileno(), 2)
        output.close()
    os.environ.clear()
    os.environ.update(environment)
    failpoints.arm(environment.get("LIVEJOIN_FAILPOINT"))  # read at import by others
    if before:
        before()
    sys.exit(work() if callable(work) else cli.main(list(work)))

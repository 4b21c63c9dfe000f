"""Servers on a disk that fails: forked from a process in which `shim.c` intercepts file operations, and controlled by orders to it."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing import forkserver
from pathlib import Path
from random import Random
from unittest import mock

import httpx
import pytest

from service.access.access_token import make
from service.access.store import add_token
from tests.faults.disk import Disk, records, word, write_out
from tests.faults.patches import Patch, apply
from tests.forked import Forked
from tests.server_process import ServerProcess

TOKEN = "lj_" + "0123456789" * 4
_SOURCE = Path(__file__).with_name("shim.c")


class _Control(ctypes.Structure):
    """Memory shared with the server; the fields are those of shim.c."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "operations", "kill_at", "room", "read_only", "syncs", "fail_sync", "writes", "fail_write", "short_every", "reads", "fail_read",
            "renames", "fail_rename", "links", "fail_link",
        )
    ]


@cache
def library() -> Path:
    """Return the compiled shim. Without a compiler, the test is skipped, except in CI, where it fails."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        why = "faults of the disk need Linux and a C compiler: install one (Debian: apt install gcc libc6-dev)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    made = Path(tempfile.mkdtemp(prefix="livejoin-shim-")) / "shim.so"
    flags = ["-O1", "-Wall", "-Wextra", "-shared", "-fPIC"]
    command = [compiler, *flags, "-o", str(made), str(_SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return made


_FORKS = forkserver.ForkServer()
_FORKS.set_forkserver_preload(["tests.preloaded"])


@contextmanager
def _preloaded() -> Iterator[None]:
    """Forked processes have the shim: they come from a separate fork server, which is started with the first one."""
    with mock.patch.dict(os.environ, LD_PRELOAD=str(library())), mock.patch.object(
        forkserver, "connect_to_new_process", _FORKS.connect_to_new_process
    ):
        yield


def _begin(folder: str, journal: str, control: str, patches: Sequence[Patch]) -> None:
    """Called in the server before anything else."""
    shim = ctypes.CDLL(None, use_errno=True)
    if shim.shim_begin(folder.encode(), journal.encode(), control.encode()):
        raise OSError(ctypes.get_errno(), "shim_begin")
    apply(*patches)


class FaultyDisk:
    """The folder `root`/disk, in which servers keep their data (`data`); their file operations are recorded in a journal.

    `faults` are the orders to the shim, which can be changed while a server runs.
    """

    def __init__(self, root: Path) -> None:
        library()
        root.mkdir(parents=True, exist_ok=True)
        self.root = (root / "disk").resolve()
        self.root.mkdir()
        self.data = self.root / "data"
        self._journal = self.root.with_name("journal")
        self._control = self.root.with_name("control")
        self._control.write_bytes(bytes(_Control(room=-1)))
        with self._control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.faults = _Control.from_buffer(self._memory)
        self.restart()

    def restart(self) -> None:
        """Begin with an empty journal, the disk in its current state, and no faults."""
        self.disk = Disk(self.root)
        self._journal.write_bytes(b"")
        ctypes.memset(ctypes.addressof(self.faults), 0, ctypes.sizeof(self.faults))
        self.faults.room = -1

    def server(self, *patches: Patch, environment: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> FaultyServer:
        before = partial(_begin, str(self.root), str(self._journal), str(self._control), patches)
        return FaultyServer(self.data, before=before, environment=environment, arguments=arguments, log=self.root.with_name("log"))

    def run(self, patch: Patch, *arguments: str | Path) -> tuple[int, str]:
        """Run a command of livejoin with the shim and wait for it. Return its exit status and its output."""
        before = partial(_begin, str(self.root), str(self._journal), str(self._control), (patch,))
        output = self.root.with_name("output")
        output.write_bytes(b"")
        with _preloaded():
            process = Forked([str(argument) for argument in arguments], os.environ, output, before)
        return process.wait(120), output.read_text(errors="replace")

    def begin_token_mode(self) -> None:
        """Put the data folder into token mode, while no server runs."""
        add_token(self.data, make({"name": "boss", "scope": "admin"}, TOKEN, time.time()), begin=True)

    @property
    def journal(self) -> bytes:
        return self._journal.read_bytes()

    def note(self, text: str) -> None:
        """Append what is known by now to the journal."""
        with self._journal.open("ab", buffering=0) as file:
            file.write(word(text.encode()))

    def cut_power(self, chance: Random | None) -> None:
        """Called after the server's end: leave what a power cut at that moment would leave, and start a new journal."""
        for record in records(self.journal):
            self.disk.follow(record)
        write_out(self.disk.cut(chance), self.root)
        self.restart()


class FaultyServer(ServerProcess):
    """A server whose clients have an admin token, which a folder in token mode requires."""

    def client(self, timeout: float = 60) -> httpx.Client:
        client = super().client(timeout)
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        return client

    def start(self, wait: bool = True) -> FaultyServer:
        with _preloaded():
            super().start(wait)
        return self

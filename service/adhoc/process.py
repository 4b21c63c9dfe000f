"""The processes that run queries: one per query, forked from one that has imported what they need (`nursery`)."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress

from service.adhoc.frames import is_readable

KEPT = 600.0  # seconds without a query after which the nursery is ended: it takes some 80 MiB
STATUS = struct.Struct("<i")
_LAST = 0.05  # seconds in which a child should end by itself when its work is done
_PATIENCE = 30.0  # seconds for the rest of a frame that has begun, and for a child to start
_BUFFER = 1 << 20  # bytes that the kernel buffers on the way to a child, if it allows so many
# Nothing of the service's own environment. The allocators keep less memory: the child's address space is limited. No threads: it is forked.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}


class Child:
    """One process; `socket` is connected to it."""

    def __init__(self, ours: socket.socket, reports: socket.socket) -> None:
        """`reports`: the socket on which the nursery reports about the child. OSError: no further process is possible."""
        self.socket, self._emitted = ours, reports
        word, files, _, _ = socket.recv_fds(reports, STATUS.size, 1, socket.MSG_CMSG_CLOEXEC)
        if not files:
            raise ChildProcessError("no process for a query")
        self.pid: int = STATUS.unpack(word)[0]
        self._pidfd = files[0]
        self._status: int | None = None
        self._ended = False
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End the child in whatever state it is; from any thread. Readers of its socket notice it."""
        with self._lock, suppress(ProcessLookupError):
            if not self._ended:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def end(self) -> int | None:
        """End the child if it still runs; return its exit status, negative for a signal, None if unknown because the nursery has ended
        before. Takes milliseconds."""
        if self._ended:
            return self._status
        if not is_readable(self._emitted, _LAST):
            self.stop()
        word = self._emitted.recv(STATUS.size)
        if not word:
            self.stop()
        with self._lock:
            self._status, self._ended = STATUS.unpack(word)[0] if word else None, True
            os.close(self._pidfd)
        self._emitted.close()
        self.socket.close()
        return self._status


class Nursery:
    """The process that forks children. OSError: no further process is possible."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-B", "-m", "service.adhoc.nursery", str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=_ENVIRONMENT,
                    start_new_session=True,
                )
            except OSError:
                self._socket.close()
                raise

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def is_ending(self) -> bool:
        """Whether it has ended, or is about to: the system closes its socket, to which it never writes, before its end can be seen."""
        return not self.alive or is_readable(self._socket, _LAST)

    def child(self) -> Child:
        """Return a new child. OSError. The first call waits until the nursery has imported everything."""
        (ours, theirs), (reports, reporting) = socket.socketpair(), socket.socketpair()
        try:
            with theirs, reporting:
                theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
                socket.send_fds(self._socket, [b"\0"], [theirs.fileno(), reporting.fileno()])
            ours.settimeout(_PATIENCE)
            reports.settimeout(_PATIENCE)
            return Child(ours, reports)
        except OSError:
            ours.close()
            reports.close()
            raise

    def close(self) -> None:
        """Start no further child; the process ends with its last one."""
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_LAST)


class Children:
    """Starts children. Any thread; each call takes milliseconds, the first one a third of a second."""

    def __init__(self) -> None:
        self.nursery: Nursery | None = None
        self._since = 0.0  # when the last child was needed
        self._lock = threading.Lock()

    def take(self) -> Child:
        """Return a child for a query. OSError."""
        with self._lock:
            self._since = time.monotonic()
            nursery = self.nursery
            if nursery is not None and nursery.alive:
                try:
                    return nursery.child()
                except OSError:
                    if not nursery.is_ending:
                        raise
            self.nursery = Nursery()
            return self.nursery.child()

    def tidy(self) -> None:
        """End the nursery if there was no query for a while."""
        if time.monotonic() - self._since >= KEPT:
            self.close()

    def close(self) -> None:
        """End the nursery; another query starts one again."""
        with self._lock:
            nursery, self.nursery = self.nursery, None
        if nursery is not None:
            nursery.close()

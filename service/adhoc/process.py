"""The processes that run queries: one for each, and one in reserve, because a start takes a third of a second."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time

RESERVED = 600.0  # seconds without a query for which a child is kept: it takes some 50 MiB
_LAST = 0.05  # seconds that a child has to end by itself when its work is done
_PATIENCE = 30.0  # seconds for the rest of a frame that has begun
_BUFFER = 1 << 20  # bytes that the kernel holds on the way to a child, as far as it allows
# Nothing of the service's own. The allocators keep less for themselves: the child's address space is limited.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "LC_ALL": "C.UTF-8"}


class Child:
    """One process, from its start on; `socket` leads to it. OSError: there can be no other process."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(_PATIENCE)
        with theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-B", "-m", "service.adhoc.child", str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=_ENVIRONMENT,
                    start_new_session=True,
                )
            except OSError:
                self.socket.close()
                raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End it, whatever it does; from any thread. Whoever waits for its socket learns of it."""
        self._process.kill()

    def end(self) -> int:
        """Its exit status, of a signal the negative number; it is ended if it is not yet. Takes milliseconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST)
        self._process.kill()
        self.socket.close()
        return self._process.wait()


class Children:
    """Starts them. Any thread; each call takes milliseconds."""

    def __init__(self) -> None:
        self._reserve: Child | None = None
        self._since = 0.0  # when the last one was needed
        self._closed = False
        self._lock = threading.Lock()

    def take(self) -> Child:
        """A child for a query. OSError."""
        with self._lock:
            child, self._reserve = self._reserve, None
            self._since = time.monotonic()
        if child is not None:
            if child.alive:
                return child
            child.end()
        return Child()

    def reserve(self) -> None:
        """Have one ready for the next query, if that can be."""
        with self._lock, contextlib.suppress(OSError):
            if self._reserve is None and not self._closed:
                self._reserve = Child()

    def tidy(self) -> None:
        """End the one in reserve if there was no query for a while."""
        if time.monotonic() - self._since >= RESERVED:
            self._let_go()

    def close(self) -> None:
        """End it, and have no other."""
        with self._lock:
            self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            child, self._reserve = self._reserve, None
        if child is not None:
            child.stop()
            child.end()

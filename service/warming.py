"""Compiles kernels into the cache when they are needed, in a separate process.

    make setup   `python -m service.warming`: all kernels
    a start      waits for those of `EVERY_BATCH`; a view, for those of its rooms (`Kernels.when_there`). Kernels that are waited for come
                 first, then the others, at low priority once the service is ready
    before use   whoever registers a relation, or builds a view, loads its kernels from the cache (`Kernels.load`). Numba loads and compiles
                 under one lock: a writer that called a kernel for the first time would wait in its turn for all others who load

Numba's front end holds the GIL: compiled in this process, a kernel would stop the event loop for seconds. The front end takes half of the
time, most of it for helpers that kernels share. So a single process runs it for all kernels, and its children optimize and store them
(`load_divided`).
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from math import inf
from time import monotonic
from typing import Any, TextIO

from llvmlite.binding import get_host_cpu_features

import structures
from structures.core import kernel

EVERY_BATCH = ("rows", "core", "pages")  # rooms: those of the tables
_CHILDREN = 2  # of the compiling process, at once
_IN_HAND = _CHILDREN + 1  # kernels: with one more than its children have, it always has an order to read, and so checks for failed children
_LOWEST = 19  # priority, as for `nice`
_PAUSE = 10.0  # seconds between two lines in a log
_COMPILE = "compile"
_COMMAND = (sys.executable, "-m", "service.warming", _COMPILE)

Progress = Callable[[int, int], None]

_ready: set[str] = set()  # rooms whose kernels this process has loaded


class Unusable(Exception):
    """The cache, or its target processor, cannot be used on this machine; the text says what to do."""


class Kernels:
    """The state of the compilation. `require` may be called by any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._missing: set[str] = set()
        self._waiting: list[str] = []  # the missing kernels that no process is compiling, in the order of the list
        self._wanted: set[str] = set()  # kernels that are waited for
        self._asked: list[tuple[set[str], Callable[[], None]]] = []  # functions to call, each with the kernels that it needs
        self._process: subprocess.Popen[str] | None = None
        self._failure = ""

    def start(self) -> None:
        """Start to compile, unless all kernels are in the cache. Raises Unusable."""
        _require_processor()
        import_all()
        if kernel.is_cached():
            return
        self._waiting = [_name(dispatcher) for dispatcher, _ in kernel._listed]
        self._missing = set(self._waiting)
        self._process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        threading.Thread(target=self._employ, args=(self._process,), name="compiling", daemon=True).start()

    def require(self, rooms: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Wait until the kernels of these rooms of `structures`, and of those that they import, are in the cache; None: of all rooms. They
        are compiled before others. `progress(done, total)` is called after each. Raises Unusable."""
        if not self._missing:
            return
        with self._changed:
            mine = self._missing if rooms is None else self._missing & _kernels_of(rooms)
            self._wanted |= mine
            total, done = len(mine), 0
            while mine := mine & self._missing:
                if self._failure:
                    raise Unusable(self._failure)
                self._changed.wait()
                if progress is not None and done != (done := total - len(mine & self._missing)):
                    progress(done, total)

    def when_there(self, rooms: Collection[str], call: Callable[[], None]) -> None:
        """Call `call` once `require` would not wait for these rooms, in the thread that finds that out: immediately, if they are there.
        Their kernels are compiled before others."""
        with self._changed:
            mine = self._missing & _kernels_of(rooms) if self._missing else set()
            self._wanted |= mine
            self._asked.append((mine, call))
        self._emit()

    def load(self, rooms: Collection[str]) -> None:
        """Wait as `require` does, and load these kernels in this thread, unless they are loaded: a call of one then waits for nobody. Takes
        a tenth of a second of processor time for a room, half a second more for the first. Raises Unusable."""
        self.require(rooms)
        if _ready.issuperset(rooms):
            return
        wanted = _kernels_of(rooms)
        for dispatcher, _ in list(kernel._listed):
            if _name(dispatcher) in wanted:
                kernel.compiled(dispatcher)
        gc.collect(1)
        gc.freeze()  # as after a start: no request must wait while Python searches permanent objects for cycles
        _ready.update(rooms)

    def load_compiled(self, rooms: Collection[str]) -> None:
        """As `load`, but do nothing if it would have to wait for some to be compiled."""
        if self._has(rooms):
            self.load(rooms)

    def has_loaded(self, rooms: Collection[str]) -> bool:
        """Return whether `load` would return at once."""
        return _ready.issuperset(rooms) and self._has(rooms)

    def _has(self, rooms: Collection[str]) -> bool:
        return not self._missing or not self._missing & _kernels_of(rooms)

    def stand_back(self) -> None:
        """From now on, compile at low priority."""
        if sys.platform != "win32" and self._process is not None and self._process.poll() is None:
            os.setpriority(os.PRIO_PGRP, self._process.pid, _LOWEST)

    def end(self) -> None:
        """Stop compiling, and notify those who wait."""
        self._fail("the service ends")
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL) if sys.platform != "win32" else self._process.kill()
            self._process.wait()

    def _fail(self, reason: str) -> None:
        with self._changed:
            self._failure = self._failure or reason
        self._emit()

    def _emit(self) -> None:
        """Notify those who wait: some kernels are there, or no more will come."""
        with self._changed:
            self._changed.notify_all()
            met = [call for mine, call in self._asked if self._failure or not mine & self._missing]
            self._asked = [(mine, call) for mine, call in self._asked if not self._failure and mine & self._missing]
        for call in met:
            call()

    def _employ(self, process: subprocess.Popen[str]) -> None:
        """Have a process compile one kernel after another until none is left."""
        assert process.stdin is not None and process.stdout is not None
        in_hand: set[str] = set()
        with process, process.stdin as orders, process.stdout as answers:
            try:
                while True:
                    while len(in_hand) < _IN_HAND and (name := self.take()) is not None:
                        in_hand.add(name)
                        print(name, file=orders, flush=True)
                    if not in_hand:
                        return
                    if len(in_hand) < _IN_HAND:
                        orders.close()  # it now waits for its children, and ends if one failed
                    answer = answers.readline().rstrip("\n")
                    in_hand.remove(answer)
                    with self._changed:
                        self._missing.discard(answer)
                    self._emit()
            except (OSError, KeyError):
                reason = f"the process that compiles kernels ended at {' or '.join(sorted(in_hand))}: its reason is above; start again"
                self._fail(answer or reason)

    def take(self) -> str | None:
        """Return the next kernel to compile."""
        with self._changed:
            if self._failure or not self._waiting:
                return None
            name = next((name for name in self._waiting if name in self._wanted), self._waiting[0])
            self._waiting.remove(name)
            return name


def warm(progress: Progress) -> None:
    """Compile every kernel, unless all are in the cache; `progress(done, total)` is called after each. Takes minutes of processor time, or
    none.

    Raises Unusable.
    """
    kernels = Kernels()
    kernels.start()
    try:
        kernels.require(None, progress)
    finally:
        kernels.end()


def _require_processor() -> None:
    """Check the processor. An image determines the target of its kernels; on a processor that lacks an instruction, the process would end
    without a message."""
    host = get_host_cpu_features()
    wanted = os.environ.get("NUMBA_CPU_FEATURES", "").split(",")
    lacking = [name[1:] for name in wanted if name.startswith("+") and not host.get(name[1:])]
    if lacking:
        raise Unusable(
            f"this processor lacks {', '.join(lacking)}, for which the kernels are compiled: use a newer one, or set NUMBA_CPU_NAME and "
            "NUMBA_CPU_FEATURES to empty texts, and LIVEJOIN_CACHE to a folder that can be written"
        )


def import_all() -> None:
    """Import all modules: kernels are listed when their module is imported."""
    for module in pkgutil.walk_packages(structures.__path__, "structures."):
        importlib.import_module(module.name)


def _name(dispatcher: Any) -> str:
    return f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__name__}"


def _kernels_of(rooms: Collection[str]) -> set[str]:
    """Return the names of the listed kernels of these rooms, and of those that they import."""
    needed = set().union(*map(kernel._sources.needed_by, rooms))
    return {name for name in map(_name, (dispatcher for dispatcher, _ in kernel._listed)) if name.split(".")[1] in needed}


def _compile_on_demand() -> None:
    """Run the process of `Kernels`: for each name that is read, this process or a child prints the name once the kernel is in the cache, or
    an error. It ends when the input ends, or when a child failed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are sent to whole process groups: the parent decides
        signal.signal(number, signal.SIG_IGN)
    import_all()
    listed = {_name(dispatcher): (dispatcher, signature) for dispatcher, signature in kernel._listed}
    load = kernel.load_divided if hasattr(os, "fork") else kernel.load
    parent, children = os.getpid(), 0
    for line in sys.stdin:
        children -= _reap(children, children >= _CHILDREN)
        try:
            child = load(*listed[line.rstrip("\n")])
        except OSError as error:
            print(f"compiled kernels cannot be stored ({error}): set LIVEJOIN_CACHE to a folder that can be written", flush=True)
            os._exit(1)
        if child:
            children += 1
        else:
            print(line, end="", flush=True)
            if os.getpid() != parent:
                os._exit(0)
    while children:
        children -= _reap(children, True)


class Line:
    """Tells on a stream how far `warm` is: in one line of a terminal, elsewhere in a line every ten seconds and one at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._said = stream, -inf

    def __call__(self, done: int, total: int) -> None:
        text, is_over, terminal = f"compiling kernels (once, some two minutes): {done} of {total}", done == total, self._stream.isatty()
        if terminal or is_over or monotonic() - self._said >= _PAUSE:
            self._said = monotonic()
            print(f"\r{text}" if terminal else text, end="" if terminal and not is_over else "\n", file=self._stream, flush=True)


def _reap(children: int, wait: bool) -> int:
    """Return how many children have ended; at least one if `wait`. This process ends if one failed."""
    ended = 0
    while ended < children:
        pid, status = os.waitpid(-1, 0 if wait and not ended else os.WNOHANG)
        if not pid:
            break
        if status:
            os._exit(1)
        ended += 1
    return ended


if __name__ == "__main__":
    if sys.argv[1:] == [_COMPILE]:
        _compile_on_demand()
    else:
        warm(Line(sys.stderr))

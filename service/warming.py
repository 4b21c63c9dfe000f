"""Compiled kernels before the first request: `python -m service.warming` for a set-up, `warm` for a server that starts. What is in the
cache is loaded when it is called; `Loading` does it for the rest while the server runs.

With a cold cache a second process compiles from the other end of the list and leaves what it has made in the cache, where the first one
finds it: on two cores half the time.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from llvmlite.binding import get_host_cpu_features

import structures
from service.trimming import give_back
from structures.core import kernel

_FROM_THE_END = "from-the-end"
_COLD_SECONDS = 2.0  # who is not done by then is compiling: a second process is worth its start
_DELAY, _PAUSE = 5.0, 0.1  # seconds before the first kernel that nobody asked for, and between two


class Unusable(Exception):
    """The cache, or what it is compiled for, cannot be used on this machine; the text says what to do."""


def warm(progress: Callable[[int, int], None]) -> None:
    """Compile every kernel, unless all are in the cache; `progress(done, total)` after each. Minutes of processor time, or nothing.

    Raises Unusable.
    """
    _require_processor()
    _import_all()
    if kernel.is_cached():
        return
    started = time.monotonic()
    helper: subprocess.Popen[bytes] | None = None

    def after_each(done: int, total: int) -> None:
        nonlocal helper
        progress(done, total)
        if helper is None and done < total and time.monotonic() - started > _COLD_SECONDS and (os.cpu_count() or 1) > 1:
            helper = subprocess.Popen([sys.executable, "-m", "service.warming", _FROM_THE_END], stdin=subprocess.DEVNULL)

    try:
        kernel.warm(after_each)
    except OSError as error:
        raise Unusable(f"compiled kernels cannot be stored ({error}): set LIVEJOIN_CACHE to a folder that can be written") from error
    finally:
        if helper is not None:
            helper.kill()
            helper.wait()


class Loading(threading.Thread):
    """Loads the kernels that no call has loaded, after the first requests, and with pauses: whoever is served meanwhile waits for one at
    most, about ten milliseconds."""

    def __init__(self) -> None:
        super().__init__(name="kernels", daemon=True)
        self._ended = threading.Event()

    def run(self) -> None:
        pause = _DELAY
        for dispatcher, signature in list(kernel._listed):
            if self._ended.wait(pause):
                return
            pause = _PAUSE
            kernel.load(dispatcher, signature)
        gc.freeze()  # as after a start: nobody is to wait while Python looks for circles in what stays
        give_back()

    def end(self) -> None:
        """Stop after the kernel in hand, and wait for that for a second at most: the process should not end inside a compiler."""
        self._ended.set()
        if self.is_alive():
            self.join(1.0)


def _require_processor() -> None:
    """An image fixes what its kernels are compiled for; a processor that lacks an instruction would end the process without a word."""
    host = get_host_cpu_features()
    wanted = os.environ.get("NUMBA_CPU_FEATURES", "").split(",")
    lacking = [name[1:] for name in wanted if name.startswith("+") and not host.get(name[1:])]
    if lacking:
        raise Unusable(
            f"this processor lacks {', '.join(lacking)}, for which the kernels are compiled: use a newer one, or set NUMBA_CPU_NAME and "
            "NUMBA_CPU_FEATURES to empty texts, and LIVEJOIN_CACHE to a folder that can be written"
        )


def _import_all() -> None:
    """Kernels list themselves when their module is imported."""
    for module in pkgutil.walk_packages(structures.__path__, "structures."):
        importlib.import_module(module.name)


def _warm_from_the_end() -> None:
    """Ends with the process that wanted it."""
    parent = os.getppid()
    _import_all()
    for dispatcher, signature in reversed(kernel._listed):
        if os.getppid() != parent:
            return
        kernel.load(dispatcher, signature)


if __name__ == "__main__":
    if sys.argv[1:] == [_FROM_THE_END]:
        _warm_from_the_end()
    else:
        words = "compiling kernels (once, about a minute)"
        warm(lambda done, total: print(f"\r{words}: {done} of {total}", end="" if done < total else "\n", flush=True))

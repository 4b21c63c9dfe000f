"""Compiled kernels before the first request: `python -m service.warming` for a set-up, `warm` for a server that starts.

With a cold cache a second process compiles from the other end of the list and leaves what it has made in the cache, where the first one
finds it: on two cores half the time.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Callable

import structures
from structures.core import kernel

_FROM_THE_END = "from-the-end"
_COLD_SECONDS = 2.0  # a warm cache is loaded by then


def warm(progress: Callable[[int, int], None]) -> None:
    """Compile or load every kernel; `progress(done, total)` after each. Cold: minutes of processor time; warm: about a second."""
    _import_all()
    started = time.monotonic()
    helper: subprocess.Popen[bytes] | None = None

    def after_each(done: int, total: int) -> None:
        nonlocal helper
        progress(done, total)
        if helper is None and done < total and time.monotonic() - started > _COLD_SECONDS and (os.cpu_count() or 1) > 1:
            helper = subprocess.Popen([sys.executable, "-m", "service.warming", _FROM_THE_END], stdin=subprocess.DEVNULL)

    try:
        kernel.warm(after_each)
    finally:
        if helper is not None:
            helper.kill()
            helper.wait()


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
        words = "compiling kernels, which takes a minute or two, once"
        warm(lambda done, total: print(f"\r{words}: {done} of {total}", end="" if done < total else "\n", flush=True))

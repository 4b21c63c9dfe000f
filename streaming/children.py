"""Child processes that do not outlive us."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def start(command: Sequence[str], folder: Path, output: IO[bytes], keep: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Starts `command` in `folder`, in a session of its own (a Ctrl-C is ours alone to handle).

    `keep`: file descriptors that stay open in it. On Linux the kernel ends it when the calling *thread* ends, so call this
    from the main thread.
    """
    parent = os.getpid()

    def before_exec() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)  # the parent ended before the kernel knew

    return subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=before_exec,
        pass_fds=keep,
    )

"""Named steps at which a test can kill the process, as a power switch would.

`LIVEJOIN_FAILPOINT=after-commit` kills it when it first reaches that step, `after-commit:3` the third time. Without the variable, a step
costs one comparison.
"""

from __future__ import annotations

import os
import signal
import threading

BACKUP_STEPS = ("in-backup", "in-restore")
STEPS = (
    "before-append", "after-append", "after-commit", "before-publish", "in-snapshot", "after-snapshot", "in-log-cleaning", "in-build",
    "in-patch", "in-recovery", "in-replay", "in-repair", *BACKUP_STEPS,
)  # fmt: skip


class _Failpoint:
    """A step to die at, and how often to pass it first."""

    def __init__(self, setting: str) -> None:
        step, _, times = setting.partition(":")
        if step not in STEPS or not (times or "1").isdigit() or int(times or "1") < 1:
            raise ValueError(f"LIVEJOIN_FAILPOINT={setting!r}: use one of {', '.join(STEPS)}, and optionally ':n' for the n-th time")
        self.step = step
        self._left = int(times or "1")
        self._lock = threading.Lock()

    def reach(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


_armed: _Failpoint | None = None


def arm(setting: str | None) -> None:
    """Die at the step named by the variable's value; never without a value. ValueError: there is no such step."""
    global _armed
    _armed = _Failpoint(setting) if setting else None


def reach(step: str) -> None:
    """Report that `step` is reached; kills the process with SIGKILL if `LIVEJOIN_FAILPOINT` says so."""
    if _armed is not None and _armed.step == step:
        _armed.reach()


arm(os.environ.get("LIVEJOIN_FAILPOINT"))

"""The modes in which the tests of the structures run again, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Without the JIT and with tiny blocks, so that every edge case occurs; compiled with bounds checks.
MODES = {
    "bounds-checks-4": {"NUMBA_BOUNDSCHECK": "1", "LIVEJOIN_LEAF": "4", "LIVEJOIN_FANOUT": "4"},
    "jit-off-2-3": {"LIVEJOIN_JIT": "off", "LIVEJOIN_LEAF": "2", "LIVEJOIN_FANOUT": "3"},
    "jit-off-3-4": {"LIVEJOIN_JIT": "off", "LIVEJOIN_LEAF": "3", "LIVEJOIN_FANOUT": "4"},
}
TINY_MODES = ("jit-off-2-3", "jit-off-3-4")
CANARY_MODE = "jit-off-3-4"


def run(arguments: list[str], mode: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, in a mode."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, **MODES[mode]}, capture_output=True, text=True, timeout=600, check=False
    )

"""What the job says while it runs: lines on standard error."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    print(f"livejoin: {line}", file=sys.stderr, flush=True)

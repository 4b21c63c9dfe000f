"""What the job says while it runs: lines on standard error."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """A line on standard error. From any thread, but not from a signal's handler."""
    # One write with the line's end: several threads talk, and lines must not run into one another.
    sys.stderr.write(f"livejoin: {line}\n")

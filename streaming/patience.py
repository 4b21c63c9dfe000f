"""Waiting for something that is away, until it is back or the job is to end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from streaming.log import say

_FIRST, _LONGEST = 0.1, 5.0


class Stopped(Exception):
    """The job was asked to end while it waited; nothing was done halfway."""


def pauses() -> Iterator[float]:
    """Seconds between tries: 0.1, 0.2, 0.4 … 5, 5, 5 …"""
    pause = _FIRST
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST)


def wait(stop: threading.Event, seconds: float, reason: str) -> None:
    """Says why and waits; raises Stopped as soon as the job is to end."""
    say(f"{reason}; trying again in {seconds:g} s")
    if stop.wait(seconds):
        raise Stopped

"""Waiting for an unavailable system, until it is back or the job is to stop."""

from __future__ import annotations

import logging
import threading
import time
from typing import Literal

from streaming.metrics import Metrics

_FIRST, _LONGEST = 0.1, 5.0
_EMITTED = 8  # attempts that are logged each; later ones once in _SECONDS: a night is 500 lines
_SECONDS = 60.0

log = logging.getLogger("livejoin.stream")


class Stopped(Exception):
    """The job was told to stop while it waited; nothing is half done."""


class Patience:
    """One wait for one system, from its first failed attempt: pauses of 0.1, 0.2, 0.4 … 5, 5, 5 … seconds."""

    def __init__(self, stop: threading.Event, metrics: Metrics, at: Literal["service", "kafka"]) -> None:
        self._stop = stop
        self._metrics = metrics
        self._at = at
        self._pause = _FIRST
        self._tries = 0
        self._emitted = 0.0

    def wait(self, reason: str, at_least: float = 0.0) -> None:
        """Logs the reason and waits; raises Stopped as soon as the job is to stop."""
        seconds = max(self._pause, at_least)
        self._pause = min(2 * self._pause, _LONGEST)
        self._metrics.waited(self._at)
        self._tries += 1
        now = time.monotonic()
        if self._tries <= _EMITTED or now - self._emitted >= _SECONDS:
            self._emitted = now
            more = ", logged once a minute from now on" if self._tries == _EMITTED else ""
            log.warning("%s; retrying in %g s%s", reason, seconds, more)
        if self._stop.wait(seconds):
            raise Stopped

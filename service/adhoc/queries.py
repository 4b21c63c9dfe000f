"""The running queries: their maximum number, the limits of each, and the processes that run them."""

from __future__ import annotations

from service.adhoc.failures import Limits
from service.adhoc.process import Children
from service.errors import Problem
from service.settings import Settings

OUTCOMES = ("done", "refused", "too-large", "timeout", "gone", "failed")


class Queries:
    """Used in the event loop, except `children`."""

    def __init__(self, settings: Settings) -> None:
        self.limits = Limits(settings.query_memory, settings.query_threads, settings.query_time)
        self.children = Children()
        self.running = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self._most = settings.max_queries

    def begin(self) -> None:
        """Count one more running query, until `end`. Problem `too-busy`."""
        if self.running >= self._most:
            raise Problem("too-busy", f"{self.running} queries are already running, the maximum (--max-queries)")
        self.running += 1

    def end(self, outcome: str) -> None:
        self.running -= 1
        self.outcomes[outcome] += 1

"""The recent problems of a service, for operators: the newest of each type on each path, with the number of occurrences."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextvars import ContextVar
from typing import NamedTuple

from service.errors import Problem

MOST = 50
_LONGEST = 500  # characters of a detail: it may contain what a client sent

PROBLEM: ContextVar[Problem | None] = ContextVar("problem", default=None)
"""The problem with which the current task's request was answered."""


class Occurrence(NamedTuple):
    """`times`: occurrences since the first; the other fields are those of the last. `time`: seconds since 1970."""

    time: float
    times: int
    status: int
    method: str
    path: str
    type: str
    detail: str
    request_id: str


class Problems:
    """The recent problems. Updated in the event loop; read by any thread."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, str, str], Occurrence] = OrderedDict()

    def note(self, method: str, path: str, status: int, request_id: str) -> None:
        """Record a response with a status of 400 or more. Responses without one of our problems, and those to probes, are not recorded."""
        problem = PROBLEM.get()
        if problem is None or path == "/readyz":
            return
        kind, path = problem.type, path[:_LONGEST]
        before = self._found.pop((kind, method, path), None)
        times = 1 if before is None else before.times + 1
        self._found[kind, method, path] = Occurrence(time.time(), times, status, method, path, kind, problem.detail[:_LONGEST], request_id)
        if len(self._found) > MOST:
            self._found.popitem(last=False)

    def newest(self) -> list[Occurrence]:
        """Return the problems, the most recent first."""
        return list(self._found.copy().values())[::-1]

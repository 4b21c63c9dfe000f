"""Limits on bodies: the size of each, and the memory of all together, checked by their declared lengths before a byte is read, and as they
grow.

    declared length -> read -> memory for decoding -> applied, released

Bodies of up to `FREE` bytes are not counted: each connection has one at most, so the limit on connections bounds them.
"""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from typing import Any

from livejoin.wire.budget import Budget
from livejoin.wire.errors import TooLarge
from service.errors import Problem
from service.settings import Settings

FREE = 64 << 10  # bytes
DEFINITION = 4 << 20  # bytes: of a relation or a view; it is parsed in the event loop


def client_of(scope: MutableMapping[str, Any]) -> str:
    """Return the client of a request, for limits per client: the name of its access token, otherwise its address."""
    name = getattr(scope.get("token"), "name", None)
    client = scope.get("client")
    return f"token {name}" if name else f"address {client[0] if client else ''}"


class Bodies:
    """The bodies in progress. Any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.held = 0  # bytes of the counted ones
        self._lock = threading.Lock()

    def definition_budget(self) -> BodyBudget:
        """Return the place for the body of a definition."""
        return BodyBudget(self, min(DEFINITION, self.settings.max_body))

    def resize(self, before: int, after: int) -> None:
        """Change the memory of a body from `before` to `after` bytes. Problem `too-busy`, without effect, if other bodies leave no room for
        it."""
        most = self.settings.max_body_memory
        with self._lock:
            others = self.held - before
            if after > before and others and others + after > most:
                raise Problem("too-busy", f"the bodies of other requests take {others} of {most} bytes (--max-body-memory)")
            self.held = others + after


class BodyBudget(Budget):
    """The memory that one body takes, and its limits. Call `free` at the end."""

    _body = _decoded = _held = 0  # bytes

    def __init__(self, bodies: Bodies, limit: int) -> None:
        self.limit = limit  # bytes as sent
        self.rows = bodies.settings.max_batch_rows
        self._bodies = bodies

    @classmethod
    def of_replacement(cls, bodies: Bodies) -> BodyBudget:
        """Return the place for all rows of a relation."""
        budget = cls(bodies, bodies.settings.max_body)
        budget.rows, budget.rows_setting = bodies.settings.max_relation_rows, "--max-relation-rows"
        return budget

    def expect(self, size: int) -> None:
        """Note that the body has, or declares, `size` bytes. Problems `body-too-large`, `too-busy`; the rest of the body is not read."""
        try:
            if size > self.limit:
                setting = " (--max-body)" if self.limit > DEFINITION else ""
                raise Problem("body-too-large", f"the body is larger than {self.limit} bytes{setting}", limit=self.limit)
            if size > self._body:
                self._body = size
                self._count()
        except Problem as problem:
            problem.headers["Connection"] = "close"
            raise

    def take(self, size: int) -> None:
        self._decoded += size
        most = self._bodies.settings.max_decoded
        if self._decoded > most:
            raise TooLarge(f"the body is larger than {most} bytes when it is decoded (--max-decoded)", most)
        self._count()

    def has_taken(self, size: int) -> bool:
        """Like `take`, for optional memory: return False, without effect, if there is no room."""
        try:
            self.take(size)
        except (Problem, TooLarge):
            self._decoded -= size
            return False
        return True

    def free(self) -> None:
        if self._held:
            self._bodies.resize(self._held, 0)
            self._held = 0

    def _count(self) -> None:
        size = self._body + self._decoded
        if size > FREE:
            self._bodies.resize(self._held, size)
            self._held = size

"""Batches that are prepared outside the writer's queue. Later ones of their sources wait: else they would make the earlier ones duplicates.

    a truncate     its views get new structures beforehand (`truncates.py`)
    a rewrite      its rows are found beforehand (`rewrites.py`)
    any other      waits behind one of its source
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile

from service.errors import ending
from service.wire.batch import Batch


class UnderWay:
    """Any thread."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []  # in order; replaced, never changed
        self._changed = threading.Condition()
        self.is_ending = False  # no batch waits any longer

    @property
    def count(self) -> int:
        return len(self._batches)

    def holds(self, source: str | None) -> bool:
        """Whether a batch of this source is under way."""
        return source is not None and any(batch.source == source for batch in self._batches)

    def begin(self, batch: Batch) -> None:
        with self._changed:
            self._batches = [*self._batches, batch]

    def end(self, batch: Batch) -> None:
        with self._changed:
            self._batches = [other for other in self._batches if other is not batch]
            self._changed.notify_all()

    def wait(self, batch: Batch) -> None:
        """Wait until no earlier batch of its source is under way. Problem `recovering` once the service ends."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_ending or not self._is_behind(batch))
        if self.is_ending:
            raise ending()

    def _is_behind(self, batch: Batch) -> bool:
        earlier = takewhile(lambda other: other is not batch, self._batches)
        return batch.source is not None and any(other.source == batch.source for other in earlier)

    @contextmanager
    def turn(self, batch: Batch) -> Iterator[None]:
        """Context in which it is under way, and no earlier batch of its source is. Problem `recovering`."""
        self.begin(batch)
        try:
            self.wait(batch)
            yield
        finally:
            self.end(batch)

    def close(self) -> None:
        """Let no batch wait any longer."""
        with self._changed:
            self.is_ending = True
            self._changed.notify_all()

"""Batches that are prepared outside the writer's queue: truncates (`truncates.py`) and rewrites (`rewrites.py`). Later batches of their
sources are held until these are queued or done: otherwise they would make the earlier ones duplicates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from service.errors import ending
from service.wire.batch import Batch


class _Entry:
    """A batch, and what to call when it begins. `waits`: no thread is busy with it."""

    def __init__(self, batch: Batch, go: Callable[[], None] | None) -> None:
        self.batch, self.go, self.waits = batch, go, True
        self.begun: Future[None] = Future()


class UnderWay:
    """Any thread. No thread waits for another source."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []  # in order; replaced, never changed
        self._lock = threading.Lock()
        self._beginning = threading.local()  # entries: those that begin in this thread
        self.is_ending = False  # nothing new begins

    @property
    def waiting(self) -> int:
        """Number of batches that will be queued."""
        return sum(entry.waits for entry in self._entries)

    def holds(self, source: str | None) -> bool:
        """Whether a batch of this source is under way."""
        return self._first_of(source) is not None

    def begin(self, batch: Batch, go: Callable[[], None] | None = None) -> None:
        """Note the batch, and call `go` once no earlier batch of its source is under way: now, or in the thread that ends that one. It is
        also called once the service ends. Problem `recovering` afterwards."""
        self._begin(batch, go)

    def begun(self, batch: Batch) -> Future[None]:
        """Note the batch, unless it is known. The future is done when `begin` would call `go`; do not cancel it. Problem `recovering`."""
        return self._begin(batch, None).begun

    @contextmanager
    def expecting(self, expected: Batch) -> Iterator[Callable[[Batch], None]]:
        """Context in which a batch is decoded. `expected` has its source, if that is known, and stands for the batch until the function is
        called with it."""
        if expected.source is not None:
            self._begin(expected, None)

        def become(batch: Batch) -> None:
            with self._lock:
                for entry in self._entries:
                    if entry.batch is expected:
                        entry.batch = batch

        try:
            yield become
        finally:
            self.end(expected)

    def _begin(self, batch: Batch, go: Callable[[], None] | None) -> _Entry:
        with self._lock:
            if self.is_ending:
                raise ending()
            for known in self._entries:
                if known.batch is batch:
                    return known
            entry, before = _Entry(batch, go), self._first_of(batch.source)
            self._entries = [*self._entries, entry]
        if before is None:
            self._go(entry)
        return entry

    def end(self, batch: Batch) -> None:
        """The batch is queued or done. A second call does nothing."""
        with self._lock:
            first = self._first_of(batch.source)
            self._entries = [entry for entry in self._entries if entry.batch is not batch]
            following = self._first_of(batch.source)
        if following is not None and following is not first:
            self._go(following)

    @contextmanager
    def turn(self, batch: Batch) -> Iterator[None]:
        """Context in which the batch is under way, perhaps since before, and no earlier one of its source is. Problem `recovering`."""
        entry = self._begin(batch, None)
        try:
            entry.begun.result()
            if self.is_ending:
                raise ending()
            entry.waits = False
            yield
        finally:
            self.end(batch)

    def close(self) -> None:
        """Let no batch wait any longer."""
        with self._lock:
            self.is_ending = True
        for entry in self._entries:
            self._go(entry)

    def _first_of(self, source: str | None) -> _Entry | None:
        return None if source is None else next((entry for entry in self._entries if entry.batch.source == source), None)

    def _go(self, entry: _Entry) -> None:
        """Let the batch begin. If this is called by one that begins in this thread, it does so after that: many may follow each other."""
        entries: list[_Entry] | None = getattr(self._beginning, "entries", None)
        if entries is not None:
            entries.append(entry)
            return
        self._beginning.entries = entries = [entry]
        try:
            for one in entries:
                with self._lock:
                    has_begun = one.begun.done()
                    if not has_begun:
                        one.begun.set_result(None)
                if not has_begun and one.go is not None:
                    one.go()
        finally:
            del self._beginning.entries

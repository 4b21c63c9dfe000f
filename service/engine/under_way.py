"""Batches that are prepared outside the writer's queue: truncates (`truncates.py`) and rewrites (`rewrites.py`). Later batches of their
sources are held until these are queued or done: otherwise they would make the earlier ones duplicates. Batches that are still received or
decoded hold back those of their run with greater epochs, until they are answered or known as one of the former. No batch is held behind
one of its run with a greater epoch, which would make it a duplicate itself; nor behind one whose sender may not use its source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from livejoin.wire.batch import Batch
from service.errors import ending

Writes = frozenset[str] | None  # `Batch.writes`
_Key = tuple[str, str | None, int, Writes]  # of a batch: source, run and epoch, and the rights of its sender


class _Entry:
    """A batch, and what to call when it begins. `waits`: no thread is busy with it."""

    def __init__(self, batch: Batch, go: Callable[[], None] | None) -> None:
        self.batch, self.go, self.waits = batch, go, True
        self.begun: Future[None] = Future()


class PendingSources:
    """Any thread. No thread waits for another source. may_use: whether a source is known and a sender with these rights may use it."""

    def __init__(self, may_use: Callable[[str, Writes], bool]) -> None:
        self._may_use = may_use
        self._entries: list[_Entry] = []  # in order; replaced, never changed
        self._expected: dict[_Key, object] = {}  # replaced, never changed
        self._lock = threading.Lock()
        self._beginning = threading.local()  # entries: those that begin in this thread
        self.is_ending = False  # nothing new begins

    @property
    def waiting(self) -> int:
        """Number of batches that will be queued."""
        return sum(entry.waits for entry in self._entries)

    def holds(self, batch: Batch) -> bool:
        """Whether the batch must wait for another one of its source."""
        if not (self._entries or self._expected) or batch.source is None:
            return False
        entries = self._entries
        return self._is_held(batch, entries[: _position(batch, entries)])

    def begin(self, batch: Batch, go: Callable[[], None] | None = None) -> None:
        """Note the batch, and call `go` once it need not wait any longer: now, or in the thread that ends what it waits for. It is also
        called once the service ends. Problem `recovering` afterwards."""
        self._begin(batch, go)

    def begun(self, batch: Batch) -> Future[None]:
        """Note the batch, unless it is known. The future is done when `begin` would call `go`; do not cancel it. Problem `recovering`."""
        return self._begin(batch, None).begun

    @contextmanager
    def expecting(self, fields: Mapping[str, Any], writes: Writes) -> Iterator[None]:
        """Context in which a batch with these fields is received and decoded. It holds back those of its run with greater epochs: others
        do not make it a duplicate. If it is sent again meanwhile, the new copy takes its position: the connection of this one may be
        lost."""
        source, run, epoch = fields.get("source"), fields.get("run"), fields.get("epoch")
        if source is None or epoch is None:
            yield
            return
        key, mine = (source, run, epoch, writes), object()
        with self._lock:
            self._expected = {**self._expected, key: mine}
        try:
            yield
        finally:
            with self._lock:
                self._expected = {other: one for other, one in self._expected.items() if one is not mine}
                following = self._next_of(source)
            for entry in following:
                self._go(entry)

    def _begin(self, batch: Batch, go: Callable[[], None] | None) -> _Entry:
        with self._lock:
            if self.is_ending:
                raise ending()
            for known in self._entries:
                if known.batch is batch:
                    return known
            entry, position = _Entry(batch, go), _position(batch, self._entries)
            before = self._entries[:position]
            self._entries = [*before, entry, *self._entries[position:]]
            is_held = self._is_held(batch, before)
        if not is_held:
            self._go(entry)
        return entry

    def end(self, batch: Batch) -> None:
        """The batch is queued or done. A second call does nothing."""
        with self._lock:
            self._entries = [entry for entry in self._entries if entry.batch is not batch]
            following = self._next_of(batch.source)
        for entry in following:
            self._go(entry)

    @contextmanager
    def turn(self, batch: Batch) -> Iterator[None]:
        """Context in which the batch is under way, perhaps since before, and need not wait any longer. Problem `recovering`."""
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

    def _is_held(self, batch: Batch, before: Sequence[_Entry]) -> bool:
        """Whether the batch must wait for those in front of it, or for one that is expected."""
        owner, epoch = (batch.source, batch.run), batch.epoch
        if any(entry.batch.source == batch.source and self._concerns(entry.batch.writes, batch) for entry in before):
            return True
        expected = ((key[2], key[3]) for key in self._expected if key[:2] == owner)
        return epoch is not None and any(other < epoch and self._concerns(writes, batch) for other, writes in expected)

    def _concerns(self, writes: Writes, batch: Batch) -> bool:
        """Whether a batch of a sender with these rights, of the same source, may make the other one a duplicate."""
        return batch.source is not None and (writes == batch.writes or self._may_use(batch.source, writes))

    def _next_of(self, source: str | None) -> list[_Entry]:
        """Return the entries of the source that have not begun and need not wait: one for each kind of sender at most."""
        found: list[_Entry] = []
        before: list[_Entry] = []
        for entry in self._entries if source is not None else ():
            if entry.batch.source == source:
                if not entry.begun.done() and not self._is_held(entry.batch, before):
                    found.append(entry)
                before.append(entry)
        return found

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


def _position(batch: Batch, entries: Sequence[_Entry]) -> int:
    """Return the place of the batch among the entries: the last, but in front of those of its run with greater epochs."""
    epoch, owner = batch.epoch, (batch.source, batch.run)
    if epoch is not None:
        for position, entry in enumerate(entries):
            other = entry.batch
            if (other.source, other.run) == owner and other.epoch is not None and other.epoch > epoch:
                return position
    return len(entries)

"""A cell whose relations are kept as a log of effects, from which it can be rebuilt.

    log     blobs first … next - 1, each at most 1 MB: effects of steps, in order; further steps fill the last one while it is small
    live    rows that the relations have

A row that a blob inserts is live in it if it has not changed since the blob was written: then no later blob mentions it. Compaction appends
the live rows of the oldest blob again, and removes it; its deletes are of rows that no blob has. While the log has more than three times as
many rows as the relations, a step compacts twice as many rows as it has appended, and at least two blobs. So while compaction passes
through the whole log once, steps append at most half as much, and the log has at most about three times as many rows as the relations,
whatever is inserted and deleted; if most rows are deleted at once, this holds again after further steps.

Invariant: a replay of the blobs gives the relations. Cost of a step: three times its own effects, and two old blobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from livejoin.wire.batch import Changes
from service.engine.headless import Cell, StepResult

_LARGEST = 1 << 20  # bytes of a blob
_SMALL = 1 << 14
_TIMES = 3
_AT_ONCE = 2  # blobs that a step compacts, or as many times its own rows


class Blobs(Protocol):
    """Where blobs are kept, by number."""

    def get(self, number: int) -> bytes: ...

    def put(self, number: int, blob: bytes) -> None: ...

    def remove(self, number: int) -> None: ...


class Extent(NamedTuple):
    """The extent of a log. `rows`: its inserts and deletes."""

    first: int = 0
    next: int = 0
    rows: int = 0


class LoggedCell:
    """The blobs are passed with each call, because Spark has different ones in each batch."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.extent = Extent()
        self._versions: dict[int, int] = {}  # of the cell, when a blob was written last
        self._last = b""  # the last blob, while it is small

    @classmethod
    def replayed(cls, cell: Cell, extent: Extent, blobs: Blobs) -> LoggedCell:
        """`cell`: an empty one."""
        found = cls(cell)
        for index in range(extent.first, extent.next):
            blob = blobs.get(index)
            cell.replay(blob)
            found._versions[index] = cell.version
            found._last = blob if len(blob) < _SMALL else b""
        found.extent = extent
        return found

    def load(self, name: str, rows: pa.RecordBatch, blobs: Blobs) -> None:
        """Add rows to a relation before the first step. Problem `bad-rows`: a duplicate key."""
        self.cell.load(name, rows)
        self._append(self.cell.inserted(name, rows), blobs)

    def step(self, changes: Sequence[Changes], blobs: Blobs) -> StepResult:
        """Like a cell's. If it raises, the cell must be discarded."""
        stepped = self.cell.step(changes)
        due, compacted, number = _AT_ONCE * self._append(stepped.effects, blobs), 0, 0
        while self.extent.rows > _TIMES * self.cell.live and (number < _AT_ONCE or compacted < due):
            compacted += self._compact(blobs)
            number += 1
        return stepped

    def _append(self, effects: bytes, blobs: Blobs) -> int:
        """Returns their number of rows."""
        for part in self.cell.parted(effects, _LARGEST):
            first, number, rows = self.extent
            if self._last and len(self._last) + len(part) <= _LARGEST:
                number, part = number - 1, self._last + part
            else:
                self.extent = self.extent._replace(next=number + 1)
            blobs.put(number, part)
            self._versions[number] = self.cell.version
            self._last = part if len(part) < _SMALL else b""
        found = self.cell.rows_in(effects)
        self.extent = self.extent._replace(rows=self.extent.rows + found)
        return found

    def _compact(self, blobs: Blobs) -> int:
        """Returns the number of rows of the oldest blob."""
        first, following, rows = self.extent
        oldest, version = blobs.get(first), self._versions.pop(first)
        blobs.remove(first)
        had = self.cell.rows_in(oldest)
        self.extent = Extent(first + 1, following, rows - had)
        if first + 1 == following:
            self._last = b""
        self._append(self.cell.living(oldest, version), blobs)
        return had

    def check(self, blobs: Blobs, another: Cell) -> None:
        """Prove the invariant. `another`: an empty one. Cost: a replay."""
        assert sorted(self._versions) == list(range(self.extent.first, self.extent.next)), "blobs are missing"
        rows = 0
        for number in self._versions:
            rows += another.rows_in(blobs.get(number))
        assert rows == self.extent.rows, "rows of the log are miscounted"
        again = LoggedCell.replayed(another, self.extent, blobs)
        assert again.cell.live == self.cell.live, "a replay has other rows"
        self.cell.check()
        again.cell.check()

"""The deltas of a feed that are yet to be settled, the oldest first."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import takewhile

from service.views.deltas import Delta


class PendingDeltas(deque[Delta]):
    """Each published as a whole, or not yet. `rows`: their number, without those of deltas that are to be read (`Delta.later`). Not
    synchronized."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def put(self, at: int, delta: Delta) -> None:
        self.insert(at, delta)
        self.rows += delta.rows

    def to_read(self, published: int) -> Delta | None:
        """Return the oldest published delta whose rows are yet to be read."""
        return next((delta for delta in self if delta.later is not None and delta.versions[0] <= published), None)

    def to_settle(self, published: int) -> list[Delta]:
        """Return the published deltas before the first one that is to be read."""
        return [*takewhile(lambda delta: delta.later is None and delta.versions[-1] <= published, self)]

    def take_out(self, delta: Delta) -> int | None:
        """Remove a delta that was to be read, and return its place; None: it was dropped meanwhile."""
        at = next((at for at, one in enumerate(self) if one is delta), None)
        if at is not None:
            del self[at]
        return at

    def leave_out(self, version: int) -> int:
        """Remove versions up to this one, at least one; return the last of them."""
        last = -1
        while self and self[0].versions[0] <= version:
            delta = self.popleft()
            count = bisect_right(delta.versions, version)
            last = delta.versions[count - 1]
            self.rows -= delta.starts[count]
            if delta.later is not None:
                delta.later.close()
            if count < len(delta.versions):
                self.appendleft(delta.part(count, len(delta.versions)))
        return last


def first_rows(deltas: list[Delta], most: int) -> list[Delta]:
    """Return the first versions that have at most `most` rows together; at least one."""
    found, rows = list[Delta](), 0
    for delta in deltas:
        count = bisect_right(delta.starts, most - rows) - 1
        if count < len(delta.versions):
            if count > 0 or not found:
                found.append(delta.part(0, max(1, count)))
            break
        found.append(delta)
        rows += delta.rows
    return found

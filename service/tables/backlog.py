"""The changes of some relations while a view over them is built, and their net effect.

The writer records every changed row as (version, old slot, new slot). The builder takes what has accumulated up to a version, and gets its
net effect: deleted rows and inserted rows. A row that was inserted and deleted again meanwhile is in neither, even if its slot was used
several times: slots that the last version taken sees are not reused before the build releases that version, so a slot counts -1, 0 or +1.
Changes of a relation up to the version at which its rows are loaded are skipped; that version counts as the last one taken.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from service.tables.changes import Run, Runs
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Resolved, Slots, StoredRows
from structures.rows.cancelling import cancel
from structures.rows.change_queue import ChangeQueue

_PIECE = 1 << 18  # rows: with half as many, fewer share a leaf, and take a sixth longer; a build that is cancelled ends its piece
_NO_INDICES = np.empty(0, np.int64)
_VERSION, _OLD, _NEW = range(3)  # of a change


class Net(NamedTuple):
    """Deleted and inserted rows of a relation: slots, ascending."""

    relation: Relation
    gone: Slots
    come: Slots


class Piece(NamedTuple):
    """Some of the changes, as a join takes them: first what they need, then what they do."""

    resolved: Mapping[str, Resolved]
    runs: Runs


class Backlog:
    """The changes of these relations that were not taken yet: `changes` many. The writer records them, one other thread takes them."""

    def __init__(self, relations: Iterable[Relation]) -> None:
        self._relations = {relation.name: relation for relation in relations}
        self._queues = {name: ChangeQueue(3) for name in self._relations}
        self._lock = threading.Lock()
        self.changes = 0

    def note(self, version: int, runs: Runs) -> None:
        """Record changes that are in the tables already, of `version` or of earlier ones that are published with it."""
        for name, run in runs.items():
            queue, count = self._queues.get(name), len(run.old)
            if queue is None:
                continue
            with self._lock:
                queue.append(count, version, run.old, run.new)
                self.changes += count

    def take(self, version: int) -> list[Net]:
        """Return the net effect of the changes up to `version`, which the caller holds, or which is the newest if the caller is the writer.
        The writer waits for none of the copying."""
        nets = []
        for name, queue in self._queues.items():
            parts = self._up_to(version, queue)
            gone, come = (_slots([part[column] for part in parts]) for column in (_OLD, _NEW))
            self._drop(queue, parts)
            if parts:
                nets.append(Net(self._relations[name], *cancel(gone, come)))
        return nets

    def skip(self, name: str, version: int) -> None:
        """Drop the changes of a relation up to `version`, which the caller holds, and at which it is about to load the rows."""
        queue = self._queues[name]
        self._drop(queue, self._up_to(version, queue))

    def _up_to(self, version: int, queue: ChangeQueue) -> list[np.ndarray]:
        """Return the changes of a relation up to `version`, in parts that are not empty."""
        with self._lock:
            parts = queue.parts(queue.begin, queue.end)
        counts = [int(np.searchsorted(part[_VERSION], version, "right")) for part in parts]
        return [part[:, :count] for part, count in zip(parts, counts, strict=True) if count]

    def _drop(self, queue: ChangeQueue, parts: Sequence[np.ndarray]) -> None:
        count = sum(part.shape[1] for part in parts)
        with self._lock:
            queue.drop(queue.begin + count)
            self.changes -= count


def _slots(parts: Sequence[np.ndarray]) -> Slots:
    """Return those of the rows, without -1."""
    return np.concatenate([NO_SLOTS, *(part[part >= 0].astype(np.int32) for part in parts)])


def pieces(nets: Iterable[Net]) -> Iterator[Piece]:
    """Yield all deletes, then all inserts, a bounded number of rows at a time."""
    nets = list(nets)
    for net in nets:
        for first in range(0, len(net.gone), _PIECE):
            yield _piece(net.relation, net.gone[first : first + _PIECE], NO_SLOTS)
    for net in nets:
        for first in range(0, len(net.come), _PIECE):
            yield _piece(net.relation, NO_SLOTS, net.come[first : first + _PIECE])


def _piece(relation: Relation, gone: Slots, come: Slots) -> Piece:
    inserts = StoredRows(relation, come)
    resolved = Resolved(relation, False, inserts, np.full(len(come), -1, np.int32), gone, relation.no_keys, 0, _NO_INDICES)
    old = np.concatenate((gone, np.full(len(come), -1, np.int32)))
    new = np.concatenate((np.full(len(gone), -1, np.int32), come))
    return Piece({relation.name: resolved}, {relation.name: Run(1, np.zeros(len(old), np.int64), old, new, len(old))})

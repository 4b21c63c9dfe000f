"""The changes of some relations while a view over them is built, and their net effect.

The writer records every changed row as (version, old slot, new slot). The builder takes what has accumulated up to a version, and gets its
net effect: deleted rows and inserted rows. A row that was inserted and deleted again meanwhile is in neither, even if its slot was used
several times: slots that the last version taken sees are not reused before the build releases that version, so a slot counts -1, 0 or +1.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from service.tables.changes import Run, Runs
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Resolved, Slots, StoredRows
from structures.rows.cancelling import cancel

_PIECE = 1 << 17  # rows: the more, the more changes share a leaf; but a build that is cancel, too, goes on to the end of its piece
_NO_INDICES = np.empty(0, np.int64)


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
    """The changes of these relations that were not taken yet. The writer records them, one other thread takes them.

    changes  how many wait
    noted    how many were ever recorded
    """

    def __init__(self, relations: Iterable[Relation]) -> None:
        self._relations = {relation.name: relation for relation in relations}
        self._words = self._empty()  # three per change
        self._lock = threading.Lock()
        self.changes = self.noted = 0

    def _empty(self) -> dict[str, array[int]]:
        return {name: array("q") for name in self._relations}

    def note(self, version: int, runs: Runs) -> None:
        """Record changes that are in the tables already, of `version` or of earlier ones that are published with it."""
        for name, run in runs.items():
            if name not in self._relations:
                continue
            count = len(run.old)
            with self._lock:
                words = self._words[name]
                if count == 1:
                    words.extend((version, int(run.old[0]), int(run.new[0])))
                else:
                    words.frombytes(np.column_stack((np.full(count, version), run.old, run.new)).astype(np.int64, copy=False).tobytes())
                self.changes += count
                self.noted += count

    def take(self, version: int) -> list[Net]:
        """Return the net effect of the changes up to `version`, which the caller holds, or which is the newest if the caller is the writer.
        The writer waits at most for the copying of later changes."""
        with self._lock:
            taken, self._words = self._words, self._empty()
            self.changes = 0
        nets = []
        for name, words in taken.items():
            if words:
                changes = np.frombuffer(words, np.int64).reshape(-1, 3)
                cut = int(np.searchsorted(changes[:, 0], version, "right"))
                self._put_back(name, changes[cut:])
                if cut:
                    nets.append(_net(self._relations[name], changes[:cut]))
        return nets

    def _put_back(self, name: str, changes: np.ndarray) -> None:
        """Put these back before everything recorded meanwhile."""
        words = array("q", changes.tobytes())
        with self._lock:
            words.extend(self._words[name])
            self._words[name] = words
            self.changes += len(changes)


def _net(relation: Relation, changes: np.ndarray) -> Net:
    """Releases the interpreter to other threads where it takes long."""
    old, new = changes[:, 1].astype(np.int32), changes[:, 2].astype(np.int32)
    return Net(relation, *cancel(old[old >= 0], new[new >= 0]))


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

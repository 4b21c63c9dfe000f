"""The changes of the relations, version by version, while views are replayed after a start.

    since    the log, as recovery applies it    now
      |---------------------------------------|----- what the writer applies meanwhile ----->
            passage of one view ->      passage of another ->

A view that may be followed is built at the version `since`, and then follows all later changes, so that its feed gets the deltas again that
it had before the service ended. Until then, rows deleted since are kept: no slot is reused that a passage has yet to read (`floor`).
Memory: 32 bytes a change, until all passages are past it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.tables.changes import Run, Runs
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Indices, Resolved, Slots, StoredRows
from structures.rows.change_queue import ChangeQueue

_VERSION, _RELATION, _OLD, _NEW = range(4)  # of a change: the last two are slots
_PIECE = 1 << 14  # changes to take at once, unless a version has more
_RUN = 256  # single changes to combine, as in the writer
_NO_INDICES: Indices = np.empty(0, np.int64)
_NO_CHANGES = np.empty((4, 0), np.int64)

Changes = npt.NDArray[np.int64]
"""int64[n, 4], by version."""


class Step(NamedTuple):
    """Versions from `first` on, in the form a view takes: what they need, and what they do. One version, or single changes of several."""

    first: int
    versions: int
    resolved: Mapping[str, Resolved]
    runs: Runs

    @property
    def changes(self) -> int:
        return sum(len(run.old) for run in self.runs.values())


class History:
    """The changes of these relations. Recovery records them, then the writer; one other thread advances each passage."""

    def __init__(self, since: int, relations: Iterable[Relation]) -> None:
        self.since = since
        self._relations = {relation.name: relation for relation in relations}
        self._queue = ChangeQueue(4)
        self._fresh = 0  # where the writer's changes begin
        self._passages: list[Passage] = []
        self._lock = threading.Lock()

    def add(self, changes: Sequence[tuple[Relation, Indices, Slots, Slots]]) -> None:
        """Record changes from the log, of several relations: versions, none below one recorded before, old and new slots."""
        self._note_all([np.column_stack((versions, np.full(len(old), one.id), old, new)) for one, versions, old, new in changes])

    def note(self, first: int, runs: Runs) -> None:
        """Record the writer's changes, already in the tables, of versions from `first` on."""
        parts = []
        for name, run in runs.items():
            if (relation := self._relations.get(name)) is not None:
                parts.append(np.column_stack((first + run.offsets, np.full(len(run.old), relation.id), run.old, run.new)))
        if parts:
            self._note_all(parts)

    def _note_all(self, parts: Sequence[Changes]) -> None:
        changes = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if len(changes) > 1:
            changes = changes[np.argsort(changes[:, _VERSION], kind="stable")]
        with self._lock:
            self._queue.append(len(changes), *changes.T)

    def begin(self) -> None:
        """Mark the end of the log's changes: later ones are the writer's."""
        self._fresh = self.end

    @property
    def end(self) -> int:
        """Number of changes recorded so far."""
        return self._queue.end

    def passage(self, relations: Iterable[Relation]) -> Passage:
        """Return a passage for a view over these relations; must be called before any other passage advances."""
        passage = Passage(self, relations)
        self._passages.append(passage)
        return passage

    def close(self, passage: Passage) -> bool:
        """End a passage; return whether others are left. By the writer."""
        self._passages = [other for other in self._passages if other is not passage]
        return bool(self._passages)

    def floor(self, relation: Relation) -> int | None:
        """The oldest version whose rows a passage still reads; None if there is none."""
        return min((passage.version for passage in self._passages if relation.id in passage.relations), default=None)

    def read(self, at: int, version: int) -> tuple[Changes, bool]:
        """Return whole versions up to `version` from change number `at` on, some thousand changes or one version; and whether these are
        all."""
        count = _PIECE
        while True:
            with self._lock:
                parts = self._queue.parts(at, min(at + count, self._queue.end))
            found = np.concatenate([_NO_CHANGES, *parts], axis=1).T
            versions = found[:, _VERSION]
            cut = int(np.searchsorted(versions, version, "right"))
            if cut < len(found) or len(found) < count:
                return found[:cut], True
            cut = int(np.searchsorted(versions, versions[-1], "left"))
            if cut:
                return found[:cut], False
            count *= 2

    def drop(self) -> None:
        """Discard what all passages are past. Called from any thread that follows a passage, also from two at once."""
        with self._lock:
            self._queue.drop(min((passage.at for passage in self._passages), default=0))

    def fresh(self, at: int) -> int:
        """Number of the writer's changes from number `at` on."""
        return self.end - max(at, self._fresh)


class Passage:
    """One view's position in the history: it is past version `version`, and past `at` changes."""

    def __init__(self, history: History, relations: Iterable[Relation]) -> None:
        self._history = history
        self.relations = {relation.id: relation for relation in relations}
        self.version, self.at = history.since, 0
        self._next = self.version, self.at

    @property
    def left(self) -> int:
        """Changes of all relations that are still ahead."""
        return self._history.end - self.at

    @property
    def changes(self) -> int:
        """How many of those the writer has applied since the start."""
        return self._history.fresh(self.at)

    def take(self, version: int) -> list[Step]:
        """Return the next changes up to `version`, which is published: some thousand; call `passed` when they are followed."""
        changes, whole = self._history.read(self.at, version)
        self._next = version if whole else int(changes[-1, _VERSION]), self.at + len(changes)
        mine = changes[np.isin(changes[:, _RELATION], np.array(list(self.relations), np.int64))]
        return [self._step(part) for part in _parts(mine)]

    def passed(self) -> None:
        """Advance past the changes taken: their rows are not read any more."""
        self.version, self.at = self._next
        self._history.drop()

    def _step(self, changes: Changes) -> Step:
        first = int(changes[0, _VERSION])
        versions = int(changes[-1, _VERSION]) - first + 1
        resolved, runs = {}, {}
        for number in np.unique(changes[:, _RELATION]).tolist():
            relation, mine = self.relations[number], changes[changes[:, _RELATION] == number]
            old, new = mine[:, _OLD].astype(np.int32), mine[:, _NEW].astype(np.int32)
            gone, come = old[old >= 0], new[new >= 0]
            inserts = StoredRows(relation, come)
            resolved[relation.name] = Resolved(relation, False, inserts, NO_SLOTS, gone, relation.no_keys, 0, _NO_INDICES)
            runs[relation.name] = Run(versions, mine[:, _VERSION] - first, old, new, len(gone) + len(come))
        return Step(first, versions, resolved, runs)


def _parts(changes: Changes) -> Iterator[Changes]:
    """Split into versions of several changes, and runs of versions with one change each, of different rows."""
    if not len(changes):
        return
    starts = np.concatenate(([0], np.flatnonzero(np.diff(changes[:, _VERSION])) + 1))
    ends = np.append(starts[1:], len(changes))
    begin = 0  # of a run
    made = _made_by(changes).tolist()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start == 1 and made[start] < begin and start - begin < _RUN:
            continue
        if start > begin:
            yield changes[begin:start]
        begin = start
        if end - start > 1:
            yield changes[start:end]
            begin = end
    if begin < len(changes):
        yield changes[begin:]


def _made_by(changes: Changes) -> Indices:
    """int64[n]: the index of the change that added the row that each change removes; -1: none of these."""
    news = changes[:, _RELATION] << 32 | changes[:, _NEW]
    there = np.flatnonzero(changes[:, _NEW] >= 0)
    order = there[np.argsort(news[there])]
    made = np.full(len(changes), -1, np.int64)
    if len(order):
        olds = changes[:, _RELATION] << 32 | changes[:, _OLD]
        at = np.minimum(np.searchsorted(news[order], olds), len(order) - 1)
        found = (news[order][at] == olds) & (changes[:, _OLD] >= 0)
        made[found] = order[at[found]]
    return made

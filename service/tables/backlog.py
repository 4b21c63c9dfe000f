"""The one queue of the changes that others follow later: views that are built, rebuilt or replayed, and rewrites of relations.

    recorded   the log, as recovery applies it | what the writer applies ----->
                  ^ backlog of one view           ^ backlog of another

The writer records every changed row as (version, old slot, new slot), as long as a `Backlog` is open that includes the relation. Each
backlog is a position in the queue, and is read in one of two ways:

    take    the net effect up to a version: deleted and inserted rows. A row that was inserted and deleted again meanwhile is in neither,
            even if its slot was used several times: slots that the last version taken sees are not reused before the build releases that
            version, so a slot counts -1, 0 or +1
    steps   version by version (`steps.py`), as a feed needs them: rows deleted since are kept until it is past them (`floor`)

Memory: 24 bytes a change, until all backlogs are past it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from service.tables.changes import Run, Runs
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Indices, Resolution, Slots, StoredRows
from service.tables.steps import Step, steps_of
from structures.rows.cancelling import cancel
from structures.rows.change_queue import ChangeQueue

_PIECE = 1 << 18  # rows: with half as many, fewer share a leaf, and take a sixth longer; a build that is cancelled ends its piece
_SOME = 1 << 14  # changes of a relation to take at once as steps, unless a version has more
_NO_INDICES = np.empty(0, np.int64)
_VERSION, _OLD, _NEW = range(3)  # of a change


class Net(NamedTuple):
    """Deleted and inserted rows of a relation: slots, ascending."""

    relation: Relation
    deleted: Slots
    inserted: Slots


class Piece(NamedTuple):
    """Some of the changes, as a join takes them: first what they need, then what they do."""

    resolved: Mapping[str, Resolution]
    runs: Runs


class Recorder:
    """The queue. Recovery records, then the writer, who also opens and closes backlogs; each backlog is read by one other thread."""

    def __init__(self) -> None:
        self._queues: dict[str, ChangeQueue] = {}  # by the name of the relation
        self._backlogs: list[Backlog] = []
        self._since = 0  # version from which on `keep` has recorded
        self._lock = threading.Lock()

    def keep(self, since: int, relations: Iterable[Relation]) -> None:
        """Record the changes of these relations after version `since`, for backlogs that are opened before `begin`."""
        self._since = since
        self._queues = {relation.name: ChangeQueue(3) for relation in relations}

    def begin(self) -> None:
        """What is recorded from now on is the writer's; drop what no backlog is to follow."""
        for backlog in self._backlogs:
            backlog.fresh = {name: queue.end for name, queue in backlog.queues.items()}
        self._drop_unused()

    def open_replay(self, relations: Iterable[Relation]) -> Backlog:
        """Return the backlog of all changes since `keep`, to be read as steps. Before `begin`."""
        return self._open(relations, self._since, True)

    def open(self, relations: Iterable[Relation]) -> Backlog:
        """Return the backlog of all later changes of these relations, to be taken net."""
        return self._open(relations, 0, False)

    def open_steps(self, relations: Iterable[Relation], version: int) -> Backlog:
        """Return the backlog of all changes of these relations after `version`, the newest, to be read as steps."""
        return self._open(relations, version, True, False)

    def _open(self, relations: Iterable[Relation], version: int, is_replay: bool, from_start: bool = True) -> Backlog:
        with self._lock:
            queues = {relation.name: self._queues.setdefault(relation.name, ChangeQueue(3)) for relation in relations}
            backlog = Backlog(self, self._lock, {one.name: one for one in relations}, queues, version, is_replay, is_replay and from_start)
            self._backlogs = [*self._backlogs, backlog]
        return backlog

    def close(self, backlog: Backlog) -> None:
        """Nobody follows it any longer. A second call does nothing."""
        with self._lock:
            backlog.is_open = False
            self._backlogs = [other for other in self._backlogs if other is not backlog]
            self._drop_unused()

    def _drop_unused(self) -> None:
        used = {name for backlog in self._backlogs for name in backlog.queues}
        self._queues = {name: queue for name, queue in self._queues.items() if name in used}
        self.drop(self._queues)

    def drop(self, names: Iterable[str]) -> None:
        """Drop what all backlogs of these relations are past. Under the lock."""
        for name in names:
            self._queues[name].drop(min(backlog.at[name] for backlog in self._backlogs if name in backlog.at))

    def add(self, changes: Sequence[tuple[Relation, Indices, Slots, Slots]]) -> None:
        """Record changes from the log, of several relations: versions, none below one recorded before, old and new slots."""
        for relation, versions, old, new in changes:
            if (queue := self._queues.get(relation.name)) is not None:
                order = np.argsort(versions, kind="stable")
                queue.append(len(old), versions[order], old[order], new[order])

    def note(self, first: int, runs: Runs) -> None:
        """Record the writer's changes, which are in the tables already, of versions from `first` on."""
        for name, run in runs.items():
            if (queue := self._queues.get(name)) is not None:
                with self._lock:
                    queue.append(len(run.old), first if run.versions == 1 else first + run.offsets, run.old, run.new)

    def __len__(self) -> int:
        """Number of open backlogs."""
        return len(self._backlogs)

    @property
    def is_replaying(self) -> bool:
        """Whether views are replayed after a start."""
        return any(backlog.is_replay for backlog in self._backlogs)

    def floor(self, relation: Relation) -> int | None:
        """The oldest version whose rows a replay still reads; None if there is none."""
        return min((one.version for one in self._backlogs if one.is_replay and relation.name in one.at), default=None)


class Backlog:
    """The changes of some relations that one build, or rewrite, has yet to follow. `version`: of a replay, the one that it is past."""

    def __init__(
        self, recorder: Recorder, lock: threading.Lock, relations: Mapping[str, Relation], queues: Mapping[str, ChangeQueue], version: int,
        is_replay: bool, from_start: bool,
    ) -> None:  # fmt: skip
        """`from_start`: begin with what is recorded already."""
        self._recorder, self._lock, self._relations, self.queues = recorder, lock, relations, queues
        self.version, self.is_replay, self.is_open = version, is_replay, True
        self.at = {name: queue.begin if from_start else queue.end for name, queue in queues.items()}  # by relation
        self.fresh = dict(self.at)  # where the writer's changes begin
        self._next = version, self.at

    @property
    def left(self) -> int:
        """Number of changes."""
        return sum(queue.end - self.at[name] for name, queue in self.queues.items())

    @property
    def changes(self) -> int:
        """How many of those the writer has applied since the start."""
        return sum(queue.end - max(self.at[name], self.fresh[name]) for name, queue in self.queues.items())

    @property
    def passed_changes(self) -> int:
        """Number of changes that were followed."""
        return sum(self.at.values())

    def take(self, version: int) -> list[Net]:
        """Return the net effect of the changes up to `version`, which the caller holds, or which is the newest if the caller is the writer.
        The writer waits for none of the copying."""
        nets = []
        for name, relation in self._relations.items():
            parts = self._up_to(version, name)
            deleted, inserted = (_slots([part[column] for part in parts]) for column in (_OLD, _NEW))
            self._advance(name, parts)
            if parts:
                nets.append(Net(relation, *cancel(deleted, inserted)))
        return nets

    def skip(self, name: str, version: int) -> None:
        """Drop the changes of a relation up to `version`, which the caller holds, and at which it is about to load the rows; that version
        counts as the last one taken."""
        self._advance(name, self._up_to(version, name))

    def steps(self, version: int) -> list[Step]:
        """Return the next changes up to `version`, which is published, version by version: some thousand; call `passed` when they are
        followed."""
        count = _SOME
        while True:
            parts = {name: np.concatenate([np.empty((3, 0), np.int64), *self._parts(name, count)], axis=1) for name in self.queues}
            full = [int(part[_VERSION, -1]) - 1 for part in parts.values() if part.shape[1] == count]  # they may have more of the last
            cut = min([version, *full])
            parts = {name: part[:, : np.searchsorted(part[_VERSION], cut, "right")] for name, part in parts.items()}
            if cut == version or any(part.shape[1] for part in parts.values()):
                self._next = cut, {name: self.at[name] + part.shape[1] for name, part in parts.items()}
                return steps_of(self._relations, parts)
            count *= 2

    def passed(self) -> None:
        """Advance past the steps taken: their rows are not read any more."""
        with self._lock:
            self.version, self.at = self._next
            if self.is_open:
                self._recorder.drop(self.at)

    def _parts(self, name: str, most: int | None = None) -> list[np.ndarray]:
        """Return the next changes of a relation, all if there is no bound; none once this is closed, as they may be dropped."""
        queue, at = self.queues[name], self.at[name]
        with self._lock:
            return queue.parts(at, queue.end if most is None else min(queue.end, at + most)) if self.is_open else []

    def _up_to(self, version: int, name: str) -> list[np.ndarray]:
        """Return the changes of a relation up to `version`, in parts that are not empty."""
        parts = self._parts(name)
        counts = [int(np.searchsorted(part[_VERSION], version, "right")) for part in parts]
        return [part[:, :count] for part, count in zip(parts, counts, strict=True) if count]

    def _advance(self, name: str, parts: Sequence[np.ndarray]) -> None:
        with self._lock:
            self.at[name] += sum(part.shape[1] for part in parts)
            if self.is_open:
                self._recorder.drop([name])


def _slots(parts: Sequence[np.ndarray]) -> Slots:
    """Return those of the rows, without -1."""
    return np.concatenate([NO_SLOTS, *(part[part >= 0].astype(np.int32) for part in parts)])


def pieces(nets: Iterable[Net]) -> Iterator[Piece]:
    """Yield all deletes, then all inserts, a bounded number of rows at a time."""
    nets = list(nets)
    for net in nets:
        for first in range(0, len(net.deleted), _PIECE):
            yield _piece(net.relation, net.deleted[first : first + _PIECE], NO_SLOTS)
    for net in nets:
        for first in range(0, len(net.inserted), _PIECE):
            yield _piece(net.relation, NO_SLOTS, net.inserted[first : first + _PIECE])


def _piece(relation: Relation, deleted: Slots, inserted: Slots) -> Piece:
    inserts = StoredRows(relation, inserted)
    resolved = Resolution(relation, False, inserts, np.full(len(inserted), -1, np.int32), deleted, relation.no_keys, 0, _NO_INDICES)
    old = np.concatenate((deleted, np.full(len(inserted), -1, np.int32)))
    new = np.concatenate((np.full(len(deleted), -1, np.int32), inserted))
    return Piece({relation.name: resolved}, {relation.name: Run(1, np.zeros(len(old), np.int64), old, new, len(old))})

"""Recorded changes, version by version, in the form that a view takes: one version, or single changes of several together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.tables.changes import Run, Runs
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Indices, Resolution, StoredRows

_VERSION, _RELATION, _OLD, _NEW = range(4)  # of a change: the last two are slots
_RUN = 256  # single changes to combine, as in the writer
_NO_INDICES: Indices = np.empty(0, np.int64)

Changes = npt.NDArray[np.int64]
"""int64[n, 4], by version."""


class Step(NamedTuple):
    """Versions from `first` on, in the form a view takes: what they need, and what they do. One version, or single changes of several."""

    first: int
    versions: int
    resolved: Mapping[str, Resolution]
    runs: Runs

    @property
    def changes(self) -> int:
        return sum(len(run.old) for run in self.runs.values())


def steps_of(relations: Mapping[str, Relation], parts: Mapping[str, np.ndarray]) -> list[Step]:
    """Return the steps of these changes: of each relation its versions, ascending, with old and new slots, int64[3, n]."""
    names = list(parts)
    changes = np.concatenate(
        [np.column_stack((part[0], np.full(part.shape[1], index), part[1], part[2])) for index, part in enumerate(parts.values())]
    )
    if len(names) > 1:
        changes = changes[np.argsort(changes[:, _VERSION], kind="stable")]
    return [_step([relations[name] for name in names], part) for part in _split(changes)]


def _step(relations: list[Relation], changes: Changes) -> Step:
    first = int(changes[0, _VERSION])
    versions = int(changes[-1, _VERSION]) - first + 1
    resolved, runs = {}, {}
    for index in np.unique(changes[:, _RELATION]).tolist():
        relation, mine = relations[index], changes[changes[:, _RELATION] == index]
        old, new = mine[:, _OLD].astype(np.int32), mine[:, _NEW].astype(np.int32)
        runs[relation.name] = run = Run.counted(versions, mine[:, _VERSION] - first, old, new)
        resolved[relation.name] = resolution_of(relation, run)
    return Step(first, versions, resolved, runs)


def resolution_of(relation: Relation, run: Run) -> Resolution:
    """Return what a run needs of the structures that follow it; its rows are in the table already."""
    deleted, inserted = run.old[run.old >= 0], run.new[run.new >= 0]
    return Resolution(relation, False, StoredRows(relation, inserted), NO_SLOTS, deleted, relation.no_keys, 0, _NO_INDICES)


def _split(changes: Changes) -> Iterator[Changes]:
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

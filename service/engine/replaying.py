"""Apply effects, as stored in the log and in the states of cells, to tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from livejoin.wire.batch import RowBlock
from service.durability.effects import Effect
from service.tables.backlog import Recorder
from service.tables.evolution import widened
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Slots
from service.tables.store import Numbers

Values = tuple[Any, ...]
_Changed = tuple[Relation, Numbers, Slots, Slots]
_TOGETHER = 1024  # rows


class _PendingChanges:
    """Changes of one relation to be applied together, all of different keys: deleted keys and inserted rows, each with its version."""

    def __init__(self) -> None:
        self.deletes: list[Values] = []
        self.inserts: list[Values] = []
        self.of_deletes: list[int] = []
        self.of_inserts: list[int] = []
        self.keys: set[Values] = set()

    def add(self, version: int, effect: Effect, inserts: Sequence[Values], keys: Sequence[Values]) -> None:
        deletes = effect.deletes.values or []
        if effect.ages is None:
            self.of_deletes += [version] * len(deletes)
            self.of_inserts += [version] * len(inserts)
        else:
            versions = (version - effect.ages.astype(np.int64)).tolist()
            self.of_deletes += versions[: len(deletes)]
            self.of_inserts += versions[len(deletes) :]
        self.deletes += deletes
        self.inserts += inserts
        self.keys.update(keys)

    def effect(self, relation: Relation) -> tuple[int, Effect]:
        """All these changes as one effect of the last version."""
        last = max(self.of_deletes + self.of_inserts)
        ages = last - np.array(self.of_deletes + self.of_inserts, np.int64)
        deleted, inserted = RowBlock.few(self.deletes, relation.no_keys.struct), RowBlock.few(self.inserts, relation.no_rows.struct)
        return last, Effect(relation.id, False, deleted, inserted, ages)


class Replay:
    """Apply changes to the tables, version after version. Versions that change few rows are combined as long as all rows of a relation have
    different keys: each alone would take as long as dozens of them."""

    def __init__(self, relations: Mapping[int, Relation], recorder: Recorder) -> None:
        self._relations, self._recorder = relations, recorder
        self._waiting: dict[int, _PendingChanges] = {}  # by the relation's id
        self._rows = 0  # changes in _waiting

    def take(self, version: int, effects: list[Effect]) -> None:
        few = []
        for effect in effects:
            relation = self._relations[effect.relation_id]
            inserts = widened(effect.inserts, relation.schema)
            if effect.truncate or effect.deletes.values is None or inserts.values is None:
                self.flush()
                self._recorder.add([_entered(self._relations[one.relation_id], version, one) for one in effects])
                return
            few.append((effect, inserts.values, [*effect.deletes.values, *(relation.keys_of(inserts).values or ())]))
        waits = self._waiting
        meets = any(not waits[one.relation_id].keys.isdisjoint(keys) for one, _, keys in few if one.relation_id in waits)
        if meets or self._rows >= _TOGETHER:
            self.flush()
        for effect, rows, keys in few:
            self._waiting.setdefault(effect.relation_id, _PendingChanges()).add(version, effect, rows, keys)
            self._rows += len(keys)

    def flush(self) -> None:
        """Apply the combined changes that wait."""
        waiting, self._waiting, self._rows = self._waiting, {}, 0
        entered = []
        for id_, waits in waiting.items():
            relation = self._relations[id_]
            entered.append(_entered(relation, *waits.effect(relation)))
        if entered:
            self._recorder.add(entered)


def _entered(relation: Relation, version: int, effect: Effect) -> _Changed:
    """Apply a truncate, deletes, and inserts; an inserted row replaces the one with its key. Return the version of each change, and the
    slots before and after it (-1: none)."""
    table, inserts = relation.table, widened(effect.inserts, relation.schema)
    ages = np.zeros(effect.deletes.num_rows + inserts.num_rows, np.int64) if effect.ages is None else effect.ages.astype(np.int64)
    of_deleted, of_inserted = ages[: effect.deletes.num_rows], ages[effect.deletes.num_rows :]
    given = table.given(inserts) if inserts.num_rows else None
    previous = table.find_given(given) if given is not None else NO_SLOTS
    deleted = table.find(effect.deletes)
    of_deleted, deleted = of_deleted[deleted >= 0], deleted[deleted >= 0]
    if effect.truncate:
        deleted = table.scan(version, 0, table.rows)[0]
        of_deleted = np.zeros(len(deleted), np.int64)
    if len(deleted) and len(previous):  # deleted and inserted again
        only = ~np.isin(deleted, previous)
        of_deleted, deleted = of_deleted[only], deleted[only]
    table.delete(version, np.concatenate((previous[previous >= 0], deleted)))
    slots = table.enter(version, given) if given is not None else NO_SLOTS
    nothing = np.full(len(deleted), -1, np.int32)
    return (
        relation, version - np.concatenate((of_inserted, of_deleted)), np.concatenate((previous, deleted)),
        np.concatenate((slots, nothing)),
    )

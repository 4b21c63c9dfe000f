"""From a data folder to the relations that it holds: snapshot, then log. The views are built on them by `Engine.recover`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from service.durability.effects import Effect, decode_effects
from service.durability.log import Log
from service.durability.snapshots import newest_snapshot
from service.engine.state import State
from service.tables.relations import Relation
from service.wire.batch import RowBlock
from service.wire.schema import parse_relation

Progress = Callable[[str, float], None]
_NO_PINS = np.empty(0, np.int64)


def recover_relations(state: State, log: Log, folder: Path, progress: Progress) -> int:
    """Fill the tables and the sources; gives the snapshot's version (0: none). Raises Damaged.

    Cost: the snapshot's rows once, the log's changes once.
    """
    relations = [Relation(id_, name, parse_relation(definition)) for id_, name, definition, _ in log.catalog()[0]]
    state.relations = {relation.name: relation for relation in relations}
    by_id = {relation.id: relation for relation in relations}
    snapshot = newest_snapshot(folder)
    start = snapshot.version if snapshot is not None else 0
    if snapshot is not None:
        total = sum(table.rows for table in snapshot.tables.values()) or 1
        done = 0
        for relation in by_id.values():
            for rows in snapshot.batches(relation.id):
                relation.table.insert(start, RowBlock(rows))
                done += rows.num_rows
                progress("loading the snapshot", done / total)
    schemas = {id_: relation.schema for id_, relation in by_id.items()}
    keys = {id_: relation.key for id_, relation in by_id.items()}
    state.newest = start
    last = max(log.last_version, start)
    for row in log.replay(start):
        for effect in decode_effects(row.payload, schemas, keys):
            _replay(by_id[effect.relation_id], row.version, effect)
        state.newest = row.version
        if row.version % 256 == 0:
            progress("replaying the log", (row.version - start) / (last - start))
            _reclaim(state)
    state.newest = last
    _reclaim(state)
    state.sources = {name: (source.run, source.epoch) for name, source in log.sources().items()}
    return start


def _replay(relation: Relation, version: int, effect: Effect) -> None:
    """Truncate, deletes, inserts; an inserted row replaces the one that has its key."""
    table = relation.table
    if effect.truncate:
        table.delete(version, table.scan(version, 0, table.rows)[0])
    for keys in (effect.deletes, relation.keys_of(effect.inserts)):
        if keys.num_rows:
            slots = table.find(keys)
            table.delete(version, slots[slots >= 0])
    if effect.inserts.num_rows:
        table.insert(version, effect.inserts)


def _reclaim(state: State) -> None:
    for relation in state.relations.values():
        while relation.table.reclaim(state.newest, _NO_PINS):
            pass

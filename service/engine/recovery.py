"""Restore the relations of a data folder: snapshot, then log; and register its views again. `Engine.recover` builds them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from livejoin.wire.batch import RowBlock
from livejoin.wire.schema import RelationDefinition, parse_relation
from service.durability.database import RelationRecord, ViewRecord
from service.durability.effects import EffectsShape, decode_effects
from service.durability.failpoints import reach
from service.durability.folder import DamagedFolder
from service.durability.log import Log
from service.durability.snapshots import Snapshot, read_snapshot, remove_unfinished, set_aside, snapshot_paths
from service.engine.replaying import Replay
from service.engine.state import State
from service.errors import Problem
from service.tables.estimates import estimates_of
from service.tables.evolution import widened
from service.tables.relations import Relation
from service.tables.store import NO_NUMBERS
from service.views.live_view import LiveView
from service.views.parse import View, noted_relations, noted_since, noted_views, parse_view, refused_view

logger = logging.getLogger("livejoin.recovery")

Progress = Callable[[str, float], None]


class RecoveryEnded(Exception):
    """The service is stopped while it recovers."""


class LoadContext:
    """Context in which a folder is loaded; `go_on`, which is called at intervals, raises Ended once `end` has been called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self.go_on()
        except RecoveryEnded:
            self._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def go_on(self) -> None:
        """Raise Ended if `end` has been called."""
        if self._is_over:
            raise RecoveryEnded

    def end(self) -> None:
        """Wait until no load is running, and prevent further ones. A second call does nothing."""
        self._is_over = True
        with self._lock:
            pass


def recover_relations(state: State, log: Log, folder: Path, progress: Progress, keep_history: bool) -> Snapshot | None:
    """Fill the tables and the sources; return the snapshot. `progress` may raise, to abort. Raises Damaged.

    `keep_history`: record all changes from the snapshot on; all rows that were deleted since are kept for them. Cost: one pass over the
    snapshot's rows and the log's changes.
    """
    records = log.catalog()[0]
    snapshot, relations = _newest_whole(log, folder, records, progress)
    start = snapshot.version if snapshot is not None else 0
    state.relations = {relation.name: relation for relation in relations}
    by_id = {relation.id: relation for relation in relations}
    shapes = Shapes(records, {id_: EffectsShape.of(relation.schema, relation.key) for id_, relation in by_id.items()})
    if keep_history:
        state.recorder.keep(start, relations)
    state.newest = start
    last = max(log.last_version, start)
    replay = Replay(by_id, state.recorder)
    for row in log.replay(start):
        reach("in-recovery")
        replay.take(row.version, decode_effects(row.payload, shapes.at(row.version)))
        state.newest = row.version
        progress("replaying the log", (row.version - start) / (last - start))
        if row.version % 256 == 0 and not keep_history:
            replay.flush()
            _reclaim(state)
    replay.flush()
    state.newest = last
    if not keep_history:
        _reclaim(state)
    for name, source in log.sources().items():
        state.sources[name], state.written[name] = (source.run, source.epoch), source.written
        if source.receipt is not None:
            state.receipts[name] = source.receipt
    state.timeline = log.timeline
    return snapshot


class Shapes:
    """The shapes of the log's rows by relation id, as they change from version to version; `shapes` are the present ones."""

    def __init__(self, records: Iterable[RelationRecord], shapes: Mapping[int, EffectsShape]) -> None:
        self._shapes = dict(shapes)
        self._changes = deque(sorted((version, record.id, columns) for record in records for version, columns in record.shapes))
        self._now = dict(shapes)

    def at(self, version: int) -> Mapping[int, EffectsShape]:
        """Return the shapes at a version, which must not be below that of the previous call."""
        while self._changes and self._changes[0][0] < version:
            _, id_, columns = self._changes.popleft()
            shape = self._shapes[id_]
            self._now[id_] = EffectsShape.of(pa.schema(list(shape.rows.schema)[:columns]), shape.keys.schema.names)
        return self._now


def _newest_whole(
    log: Log, folder: Path, records: Sequence[RelationRecord], progress: Progress
) -> tuple[Snapshot | None, list[Relation]]:  # fmt: skip
    """Load the relations from the newest undamaged snapshot after which the log is complete; return it and them.

    A damaged snapshot is set aside if there is another to continue from; otherwise raises Damaged for the newest.
    """
    remove_unfinished(folder)
    damaged: list[tuple[Path, DamagedFolder]] = []
    for path in [*reversed(snapshot_paths(folder)[0]), None]:
        version = int(path.name) if path is not None else 0
        if damaged and version < log.forgotten:
            raise damaged[0][1]
        relations = [Relation(record.id, record.name, parse_relation(record.definition)) for record in records]
        snapshot = None
        try:
            if path is not None:
                snapshot = read_snapshot(path)
                _load(snapshot, relations, progress)
        except DamagedFolder as problem:
            assert path is not None
            damaged.append((path, problem))
            continue
        for bad, damage in damaged:
            said = "snapshot %s is damaged (%s in %s). Nothing is lost: that of version %d and the log have everything; check the disk"
            logger.error(said, bad.name, damage.what, damage.where, version)
            set_aside(bad)
        return snapshot, relations
    raise AssertionError  # without a snapshot there is nothing that could be damaged


def _load(snapshot: Snapshot, relations: Sequence[Relation], progress: Progress) -> None:
    total = sum(table.rows for table in snapshot.tables.values()) or 1
    done = 0
    for relation in relations:
        for rows in snapshot.batches(relation.id):
            reach("in-recovery")
            relation.table.insert(snapshot.version, widened(RowBlock(rows), relation.schema))
            done += rows.num_rows
            progress("loading the snapshot", done / total)


def _reclaim(state: State) -> None:
    for relation in state.relations.values():
        while relation.table.reclaim(state.newest, NO_NUMBERS):
            pass


def kept_view(record: ViewRecord, state: State) -> LiveView:
    """Return the view, to be built, after adding the stored views that it reads; it alone is failed if this version of livejoin rejects its
    definition, which another one accepted."""
    relations = state.relations
    try:
        parsed = _parsed(record, relations, state.newest)
        state.stored = state.stored | state.stored_for(parsed)
        view = LiveView(record.id, parsed, state.readable, state.indexes)
        view.since = min(noted_since(record.query), state.newest)  # a repair may have lost that version
        return view
    except Exception as error:
        reason = str(error) if isinstance(error, Problem) else f"{type(error).__name__}, see the service's log"
        unexpected = None if isinstance(error, Problem) else error
        logger.error("the definition of the view %s is refused: %s", record.name, reason, exc_info=unexpected)
        view = LiveView(record.id, refused_view(record.name, record.definition, record.query, reason), relations, state.indexes)
        view.refuse(reason)
        return view


def _parsed(record: ViewRecord, relations: Mapping[str, Relation], newest: int) -> View:
    """Parse with the definitions that its relations had when it was registered: `SELECT *` means the columns of that time."""
    definitions: dict[str, RelationDefinition] = {name: relation.definition for name, relation in relations.items()}
    counted = partial(estimates_of, relations=relations, version=newest)
    definitions |= noted_relations(record.query)
    return parse_view(record.name, record.definition, definitions, counted, True, views=noted_views(record.query))

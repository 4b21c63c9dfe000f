"""One cell of a distributed join: its relations and views in memory, without log, HTTP and threads.

    cell = Cell(relations, views); cell.load(name, rows); cell.rows(view)          rows alone
    cell = Cell(relations, views); cell.replay(effects); cell.step(changes)        resume from the effects of earlier steps

Rows come first: `load` and `replay` fill the tables, and the first `step` or `rows` builds the views over them. The owner of a cell keeps
the effects of its steps, and can rebuild it from them. Errors of a view are raised, not recorded: a cell is its views.

The owner can keep the effects short: `parted` splits them, and `living` returns what is still valid of old ones.

Costs: an empty cell 10 ms; a loaded or replayed row about half a microsecond, views included; steps and rows as the plans of the views say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import Batch, Changes, RowBlock
from livejoin.wire.schema import RelationDefinition
from service.durability.effects import Effect, EffectsShape, decode_effects, encode_effects
from service.engine.replaying import Replay
from service.engine.state import State
from service.engine.versions import VersionsInUse
from service.errors import Problem, unsupported
from service.planning.planner import plan
from service.query.conditions import ColumnRef, Filter
from service.query.filters import ordered
from service.query.model import Output, Query
from service.tables.endpoints import stored_endpoints
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Resolution
from service.tables.store import NO_NUMBERS, pieces
from service.views.deltas import Combination
from service.views.joins.protocol import Join
from service.views.live_view import LiveView
from service.views.parse import View, parse_view
from structures.rows.key_groups import key_groups

Rows = tuple[pa.RecordBatch, pa.RecordBatch]
"""The identities (columns alias.column) and the rows of a view, as they are sent."""

_ALL = (1 << 40, 1 << 60)  # bounds of a view's delta in one step: rows, bytes
_CHUNK = 1 << 16  # rows


class ViewChange(NamedTuple):
    """The rows that a step has deleted from a view, and those that it has inserted: batches, none of them empty."""

    deletes: list[Rows]
    inserts: list[Rows]


class StepResult(NamedTuple):
    """`effects`: the step's effects on the relations, as in the log. `deltas`: the changed rows of each view, by name; in a cell without
    views, those of each relation, in stored form, where a deleted row may be inserted again unchanged. `ignored`: deletes of rows that did
    not exist. `candidates`: deleted and inserted rows, at home or not."""

    effects: bytes
    deltas: dict[str, ViewChange]
    ignored: int
    candidates: int


class CellHome(NamedTuple):
    """Which rows of the views belong to the cell: those whose member that starts last has a flag set. `members`: for each alias, its
    interval and the column of the flag."""

    members: Mapping[str, tuple[str, str]]


class Cell:
    """Used by one thread at a time. Any method may raise OSError or MemoryError: memory is exhausted, and the cell must be discarded."""

    def __init__(self, relations: Mapping[str, RelationDefinition], views: Collection[View], homes: Collection[CellHome] = ()) -> None:
        """Relation ids follow their order, which must be the same whenever effects are replayed. A row must meet all `homes`."""
        self._state = State()
        self._state.newest = 1
        self._state.relations = {name: Relation(id_, name, one) for id_, (name, one) in enumerate(relations.items(), 1)}
        self._homes = homes
        self._own = {view.name: len(view.query.outputs) for view in views}
        self._views = [self._with_homes(view._replace(query=replace(view.query, retain=_ALL))) for view in views]
        by_id = {relation.id: relation for relation in self._state.relations.values()}
        self._shapes = {id_: EffectsShape.of(relation.schema, relation.key) for id_, relation in by_id.items()}
        self._replay = Replay(by_id, self._state.recorder)
        self._is_built = False

    def _with_homes(self, view: View) -> View:
        """Append the columns that decide about homes to the view's outputs: a row that moves into the cell must appear as a changed row."""
        relations = dict(view.query.aliases)
        refs = [
            ColumnRef(alias, column)
            for home in self._homes
            for alias, (interval, flag) in home.members.items()
            for column in (view.relations[relations[alias]].intervals[interval].start_column, flag)
        ]
        outputs = (Output(f"home{index}", "column", ref, ()) for index, ref in enumerate(refs))
        return view._replace(query=replace(view.query, outputs=(*view.query.outputs, *outputs)))

    def load(self, name: str, rows: pa.RecordBatch) -> None:
        """Add rows in stored form (`arrow_schema`) to a relation. Problem `bad-rows`: two rows have the same key."""
        assert not self._is_built, "rows are loaded before anything else"
        if not rows.num_rows:
            return
        relation = self._state.relations[name]
        given = relation.table.given(RowBlock(rows))
        is_known = relation.table.find_given(given) >= 0
        if is_known.any() or key_groups(given) is not None:
            raise Problem("bad-rows", f"two rows of {name} have the same key ({', '.join(relation.key)}); nothing was loaded")
        relation.table.enter(self._state.newest, given)

    def inserted(self, name: str, rows: pa.RecordBatch) -> bytes:
        """Return the effects of a step that inserts these rows, in stored form."""
        relation = self._state.relations[name]
        return encode_effects([Effect(relation.id, False, relation.no_keys, RowBlock(rows))]) if rows.num_rows else b""

    def replay(self, effects: bytes) -> None:
        """Apply the effects of earlier steps, concatenated, to the relations. Each call is a version."""
        assert not self._is_built, "effects are replayed before the first step"
        self._state.newest += 1
        for effect in decode_effects(effects, self._shapes):
            self._replay.take(self._state.newest, [effect])
        self._replay.flush()

    def step(self, changes: Sequence[Changes]) -> StepResult:
        """Apply changes, at most one item per relation. Problems `bad-rows` (an insert of an existing key), `no-room`: nothing was
        applied."""
        self._build()
        batch = Batch(list(changes), sum(len(part.ops) for part in changes), 0, [], 0)
        validated = self._state.validate([batch])
        assert validated is not None, "only several batches are validated anew"
        deltas = {} if self._views else {one.relation.name: _rows_of(one) for one in validated.resolved}
        candidates = sum(len(keys) for emitted in deltas.values() for keys, _ in (*emitted.deletes, *emitted.inserts))
        applied = self._state.apply(validated)
        self._require_sound()
        for view, delta in applied.deltas:
            if delta.cut >= 0:
                raise Problem("delta-too-large", f"a step has changed more than {_ALL[0]} rows of the view {view.name}")
            (deletes,) = delta.deletes
            deleted, inserted = (tuple(slots[part] for slots in delta.slots) for part in (slice(deletes), slice(deletes, None)))
            deltas[view.name] = ViewChange(self._shown(view, deleted), self._shown(view, inserted))
            candidates += sum(len(slots[0]) for slots in (deleted, inserted) if slots)
        self._tidy()
        (receipt,) = applied.receipts
        return StepResult(applied.payload, deltas, receipt.ignored, candidates)

    def rows(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a view, some ten thousand at a time; no step may be made meanwhile."""
        self._build()
        view = self._state.views[name]
        enumeration = view.join.rows(view.join.root, None)
        while not enumeration.done:
            slots = self._at_home(view, enumeration.fill(_CHUNK))
            for part in pieces(view.shown.text_bytes(slots)):
                yield self._plain(view, view.shown.rows(tuple(column[part] for column in slots)))

    def definition(self, relation: str) -> RelationDefinition:
        return self._state.relations[relation].definition

    def schema(self, name: str) -> pa.Schema:
        """Schema of the batches of `rows`."""
        self._build()
        schema = self._state.views[name].shown.schema
        return pa.schema(list(schema)[: self._own[name]]) if self._homes else schema

    def nothing(self, name: str) -> Rows:
        """Return no rows of a view, in the form of a step's delta."""
        self._build()
        view = self._state.views[name]
        keys, rows = view.shown.with_keys((NO_SLOTS,) * view.width)
        return keys, self._plain(view, rows)

    @property
    def held(self) -> int:
        """Bytes of the tables and structures."""
        tables = sum(relation.table.bytes for relation in self._state.relations.values())
        return tables + sum(view.bytes for view in self._state.views.values())

    @property
    def live(self) -> int:
        """Number of rows of all relations."""
        return sum(relation.table.rows for relation in self._state.relations.values())

    @property
    def version(self) -> int:
        """Version of the last step or replay."""
        return self._state.newest

    def rows_in(self, effects: bytes) -> int:
        """Count the deletes and inserts in effects."""
        return sum(one.deletes.num_rows + one.inserts.num_rows for one in decode_effects(effects, self._shapes))

    def living(self, effects: bytes, version: int) -> bytes:
        """Return effects that insert those inserted rows which are still unchanged at a version; empty if there are none."""
        found = []
        for effect in decode_effects(effects, self._shapes):
            relation = next(one for one in self._state.relations.values() if one.id == effect.relation_id)
            if effect.inserts.num_rows:
                seen = relation.table.find_seen(version, relation.table.given_keys(relation.keys_of(effect.inserts)))
                slots = np.unique(seen[seen >= 0])
                rows = relation.table.take(relation.schema.names, slots)
                found.append(Effect(relation.id, False, relation.no_keys, RowBlock(rows)))
        return encode_effects(one for one in found if one.inserts.num_rows)

    def parted(self, effects: bytes, most: int) -> list[bytes]:
        """Split effects into several, in the same order, each of at most `most` bytes or of one row."""
        if len(effects) <= most:
            return [effects] if effects else []
        return [part for effect in decode_effects(effects, self._shapes) for part in self._parted(effect, most)]

    def _parted(self, effect: Effect, most: int) -> Iterator[bytes]:
        payload, deleted, inserted = encode_effects([effect]), effect.deletes, effect.inserts
        if len(payload) <= most or deleted.num_rows + inserted.num_rows <= 1:
            yield payload
            return
        nothing = RowBlock.few([], inserted.struct)
        if deleted.num_rows and inserted.num_rows:
            halves = [effect._replace(inserts=nothing), effect._replace(deletes=nothing)]
        elif deleted.num_rows:
            halves = [effect._replace(deletes=half) for half in _halves(deleted)]
        else:
            halves = [effect._replace(inserts=half) for half in _halves(inserted)]
        for half in halves:
            yield from self._parted(half, most)

    def check(self) -> None:
        """Verify the invariants of the tables and of all structures. Cost: as `rows`."""
        self._build()
        for relation in self._state.relations.values():
            relation.table.check()
        for view in self._state.views.values():
            view.join.check()

    def _build(self) -> None:
        """Build the views over the loaded and replayed rows; does nothing the second time."""
        if self._is_built:
            return
        self._is_built = True
        self._replay.flush()
        self._reclaim()
        state = self._state
        views = [LiveView(str(number), view, state.relations, state.indexes) for number, view in enumerate(self._views, 1)]
        for view in views:
            view.make_room()
            self._fill(view.join)
            view.state = "live"
        state.views = {view.name: view for view in views}

    def _fill(self, join: Join) -> None:
        """Load all present rows of the relations."""
        newest = self._state.newest
        join.hold(newest)
        join.build(newest, lambda part: None)
        while not join.conclude(newest):
            join.settle()
            while join.reclaim(newest, NO_NUMBERS):
                pass
            join.hold(newest)

    def _shown(self, view: LiveView, slots: Combination) -> list[Rows]:
        if not slots or not len(slots[0]):
            return []
        slots = self._at_home(view, slots)
        emitted = []
        for part in pieces(view.shown.text_bytes(slots)):
            keys, rows = view.shown.with_keys(tuple(column[part] for column in slots))
            emitted.append((keys, self._plain(view, rows)))
        return emitted

    def _plain(self, view: LiveView, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select(list(range(self._own[view.name]))) if self._homes else rows

    def _at_home(self, view: LiveView, slots: Combination) -> Combination:
        for home in self._homes:
            last, flags = np.empty(0, np.int64), np.empty(0, np.bool_)
            for input, own in zip(view.inputs, slots, strict=True):
                if input.alias in home.members:
                    interval, flag = home.members[input.alias]
                    table = input.relation.table
                    starts, is_set = stored_endpoints(table, input.spans[interval], own)[0], table.numbers([flag], own)[0][0] != 0
                    if not len(last):
                        last, flags = starts, is_set
                    flags, last = np.where(starts > last, is_set, flags), np.maximum(starts, last)
            slots = tuple(column[flags] for column in slots)
        return slots

    def _require_sound(self) -> None:
        for view in self._state.views.values():
            if view.problem is not None:
                raise view.problem

    def _tidy(self) -> None:
        """Do the work of a service between changes: rebuild outgrown structures, and release old versions."""
        for view in self._state.views.values():
            if view.is_outgrown(self._state.newest):
                another = view.another()
                self._fill(another)
                view.replace(another)
        self._reclaim()
        self._require_sound()

    def _reclaim(self) -> None:
        for reclaim in self._state.to_reclaim():
            while reclaim(VersionsInUse(self._state.newest, NO_NUMBERS, NO_NUMBERS)):
                pass


def _rows_of(resolved: Resolution) -> ViewChange:
    """The rows that a change deletes and those that it inserts; call it before the change is applied."""
    relation, inserted = resolved.relation, resolved.inserts
    pieces_of = relation.table.take_pieces(relation.schema.names, resolved.deletes) if len(resolved.deletes) else ()
    deleted = [(rows.select(relation.key), rows) for _, rows in pieces_of]
    return ViewChange(deleted, [(inserted.arrow.select(relation.key), inserted.arrow)] if inserted.num_rows else [])


def _halves(rows: RowBlock) -> list[RowBlock]:
    middle = rows.num_rows // 2
    return [RowBlock(rows.arrow.slice(0, middle)), RowBlock(rows.arrow.slice(middle))]


def parse_for_cells(name: str, data: Any, relations: Mapping[str, RelationDefinition]) -> View:
    """As `parse_view`. Problem `unsupported-query` also for a view with stored queries or tables of constants, which a cell does not
    have."""
    view = parse_view(name, data, relations)
    if view.stored:
        what = "a subquery of FROM that is neither a projection of one relation nor alone there, on a cluster,"
        raise unsupported(what, "compute it as a frame of its own, and join that")
    if view.constants:
        raise unsupported("VALUES or generate_series on a cluster", "make a frame of these rows, and join that")
    return view


def over(view: View, relations: Mapping[str, RelationDefinition], names: Mapping[str, str], filters: Sequence[Filter]) -> View:
    """Return the same view over other relations: each alias over the one that `names` gives, restricted to the rows that also meet the
    filters; planned again. Raises Problem, as `parse_view` does."""
    query = replace(_renamed(view.query, names), algorithm="auto", guarantee="best-effort")
    query = replace(query, filters=ordered((*query.filters, *filters)))
    return view._replace(query=query, plan=plan(query, relations), relations={name: relations[name] for name in query.named})


def _renamed(query: Query, names: Mapping[str, str]) -> Query:
    def of(aliases: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((alias, names[alias]) for alias, _ in aliases)

    return replace(
        query,
        aliases=of(query.aliases),
        absent=tuple(group._replace(aliases=of(group.aliases)) for group in query.absent),
        subqueries=tuple(replace(part, join=_renamed(part.join, names)) for part in query.subqueries),
        named=tuple(dict.fromkeys(names.values())),
    )

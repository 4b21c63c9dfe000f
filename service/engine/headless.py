"""One cell of a distributed join: its relations and views in memory, without log, HTTP and threads.

    cell = Cell(relations, views); cell.load(name, rows); cell.rows(view)          rows alone
    cell = Cell(relations, views); cell.replay(effects); cell.step(changes)        from what `step` gave before, and on

Rows come first: `load` and `replay` fill the tables, and the first `step` or `rows` builds the views over them. Whoever has a cell keeps
the effects of its steps, and so can make it again. Errors of a view are raised, not kept: a cell is its views.

Costs: an empty cell 10 ms; a loaded or replayed row about half a microsecond, views included; steps and rows as the plans of the views say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from service.durability.effects import Shape, decode_effects
from service.engine.replaying import Replay
from service.engine.state import State
from service.errors import Problem
from service.planning.planner import plan
from service.query.filters import ordered
from service.query.model import Filter, Query
from service.tables.relations import Relation
from service.tables.resolution import last_of_each
from service.tables.store import pieces
from service.views.deltas import Combination
from service.views.joins.protocol import Join
from service.views.live_view import LiveView
from service.views.parse import View
from service.wire.batch import Batch, Changes, RowBlock
from service.wire.schema import RelationDefinition

Rows = tuple[pa.RecordBatch, pa.RecordBatch]
"""The identities (columns alias.column) and the rows of a view, as they are sent."""

_ALL = (1 << 40, 1 << 60)  # what a step may tell of a view: rows, bytes
_CHUNK = 1 << 16  # rows
_MAINTAINED = 64  # steps of what changes have put off, at once
_NO_PINS = np.empty(0, np.int64)


class Changed(NamedTuple):
    """What a step has taken from a view, and what it has added: batches of rows, none of them empty."""

    deletes: list[Rows]
    inserts: list[Rows]


class Stepped(NamedTuple):
    """`effects`: what the step did to the relations, as in the log. `deltas`: by the names of the views that it has changed."""

    effects: bytes
    deltas: dict[str, Changed]


class Cell:
    """Used by one thread at a time. OSError, MemoryError from anything: there is no room, and the cell is to be thrown away."""

    def __init__(self, relations: Mapping[str, RelationDefinition], views: Collection[View]) -> None:
        """The relations have ids in their order, which is to be the same whenever effects are replayed."""
        self._state = State()
        self._state.newest = 1
        self._state.relations = {name: Relation(id_, name, one) for id_, (name, one) in enumerate(relations.items(), 1)}
        self._views = [view._replace(query=replace(view.query, retain=_ALL)) for view in views]
        by_id = {relation.id: relation for relation in self._state.relations.values()}
        self._shapes = {id_: Shape.of(relation.schema, relation.key) for id_, relation in by_id.items()}
        self._replay = Replay(by_id, None)
        self._is_built = False

    def load(self, name: str, rows: pa.RecordBatch) -> None:
        """Add rows to a relation, in the form in which they are kept (`arrow_schema`). Problem `bad-rows`: a key comes twice."""
        assert not self._is_built, "rows are loaded before anything else"
        if not rows.num_rows:
            return
        relation = self._state.relations[name]
        given = relation.table.given(RowBlock(rows))
        is_known = relation.table.find_given(given) >= 0
        if is_known.any() or last_of_each(pa.table(rows.select(relation.key))) is not None:
            raise Problem("bad-rows", f"two rows of {name} have the same key ({', '.join(relation.key)}); nothing was loaded")
        relation.table.enter(self._state.newest, given)

    def replay(self, effects: bytes) -> None:
        """Do what a step did to the relations."""
        assert not self._is_built, "effects are replayed before the first step"
        self._state.newest += 1
        self._replay.take(self._state.newest, decode_effects(effects, self._shapes))

    def step(self, changes: Sequence[Changes]) -> Stepped:
        """Apply changes, each relation's at most once. Problems `bad-rows` (an insert of a key that is there), `no-room`: nothing was done.
        """
        self._build()
        batch = Batch(list(changes), sum(len(part.ops) for part in changes), 0, [], 0)
        applied = self._state.apply(self._state.judge(batch))
        self._require_sound()
        deltas = {}
        for view, delta in applied.deltas:
            if delta.cut >= 0:
                raise Problem("delta-too-large", f"a step has changed more than {_ALL[0]} rows of the view {view.name}")
            (deletes,) = delta.deletes
            gone, come = (tuple(slots[part] for slots in delta.slots) for part in (slice(deletes), slice(deletes, None)))
            deltas[view.name] = Changed(_shown(view, gone), _shown(view, come))
        self._tidy()
        return Stepped(applied.payload, deltas)

    def rows(self, name: str) -> Iterator[pa.RecordBatch]:
        """All rows of a view, some ten thousand at a time; no step meanwhile."""
        self._build()
        view = self._state.views[name]
        enumeration = view.join.rows(view.join.root, None)
        while not enumeration.done:
            slots = enumeration.fill(_CHUNK)
            for part in pieces(view.shown.text_bytes(slots)):
                yield view.shown.rows(tuple(column[part] for column in slots))

    def schema(self, name: str) -> pa.Schema:
        """Of the batches of `rows`."""
        self._build()
        return self._state.views[name].shown.schema

    @property
    def bytes(self) -> int:
        """What the views' structures hold."""
        return sum(view.bytes for view in self._state.views.values())

    def check(self) -> None:
        """Prove the invariants of the tables and of all structures. Cost: as `rows`."""
        self._build()
        for relation in self._state.relations.values():
            relation.table.check()
        for view in self._state.views.values():
            view.join.check()

    def _build(self) -> None:
        """The views, over what was loaded and replayed; later, nothing."""
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
        """With everything that the relations have now."""
        newest = self._state.newest
        join.hold(newest)
        join.build(newest, lambda part: None)
        while not join.conclude(newest):
            join.settle()
            while join.reclaim(newest, _NO_PINS):
                pass
            join.hold(newest)

    def _require_sound(self) -> None:
        for view in self._state.views.values():
            if view.problem is not None:
                raise view.problem

    def _tidy(self) -> None:
        """What a service does between changes: structures that are outgrown are built anew, and what nobody reads any more is let go."""
        for view in self._state.views.values():
            if view.is_outgrown(self._state.newest):
                another = view.another()
                self._fill(another)
                view.replace(another)
        while self._state.maintain(_MAINTAINED):
            pass
        self._reclaim()
        self._require_sound()

    def _reclaim(self) -> None:
        for reclaim in self._state.to_reclaim():
            while reclaim(self._state.newest, _NO_PINS):
                pass


def _shown(view: LiveView, slots: Combination) -> list[Rows]:
    if not slots or not len(slots[0]):
        return []
    return [view.shown.with_keys(tuple(column[part] for column in slots)) for part in pieces(view.shown.text_bytes(slots))]


def over(view: View, relations: Mapping[str, RelationDefinition], names: Mapping[str, str], filters: Sequence[Filter]) -> View:
    """The same view over other relations, each alias over the one that `names` gives it, of only those rows that meet the filters besides;
    planned anew. Raises Problem, as `parse_view` does."""
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
        parts=tuple(replace(part, join=_renamed(part.join, names)) for part in query.parts),
        named=tuple(dict.fromkeys(names.values())),
    )

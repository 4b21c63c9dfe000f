"""The latest rows of each key of one relation: all its rows in order, the first ones of each key in a list (`structures.ranked`).

Keys are coded as those of groups (`columns`), so null is a key. An entry has the key's code, and the first words (`views/words.py`) of the
values of the order and of the primary key, the greatest first. Rows that tie in these are read.

Costs: O(log n + listed rows of a key) a changed row, and the rows that tie with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from service.planning.plans.plan import Plan
from service.planning.plans.stages.latest import has_null_apart, room_of, sort_keys
from service.query.assembly import value_output
from service.query.computed import ComputedColumn
from service.query.conditions import Term
from service.query.model import GroupColumn, Grouping, Query
from service.tables.changes import Runs, order_of, parted
from service.tables.inputs import Input, scanned
from service.tables.resolution import NO_SLOTS, Resolution, Slots
from service.tables.store import FREED_AT_ONCE, Numbers
from service.views.deltas import Sink, emit_slots
from service.views.joins.protocol import Bounds, Enumeration, Join, Store
from service.views.joins.slots_cursor import SlotsCursor
from service.views.stages.columns import Columns
from service.views.words import Ints, SortedColumn, first_words, ranks_of, words_of
from structures.core.cursor import GivenCursor
from structures.core.entries import DELETE, INSERT
from structures.core.entry_tree import EntryRoot
from structures.index.indexes import Entries
from structures.ranked.entries import RankedChanges
from structures.ranked.tops import Tops

_NO_ROWS = np.empty((1, 0), np.int32)


class LatestStage(Join):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, query: Query, plan: Plan, input: Input) -> None:
        """OSError, MemoryError: there is no room."""
        latest = query.latest
        assert latest is not None
        self._input, self._never = input, query.never
        definition = input.relation.definition
        outputs = tuple(value_output(value, str(at)) for at, value in enumerate(latest.by))
        by = tuple(GroupColumn(str(at), at, None) for at in range(len(latest.by)))
        grouping = Grouping(by, (), (), (), 1)
        read = Query(query.aliases, (), (), (), (), (), (), (), (), outputs, None, "auto", "best-effort", False, groups=grouping)
        self._columns = Columns(read, [Input(read, 0, input.relation)], {input.relation.name: definition})
        self._columns.open()
        keys, computed = sort_keys(query, definition), list[ComputedColumn]()
        self._order = list[SortedColumn]()
        for value, descending, nulls_first in keys:
            if isinstance(value, Term):
                computed.append(ComputedColumn.of(value))
            name = computed[-1].name if isinstance(value, Term) else value.column
            self._order.append(SortedColumn(name, descending, nulls_first, has_null_apart(definition, value)))
        self._table = input.relation.computing(computed).table
        self._words, exact = room_of(keys, definition)
        self._tops = Tops(1 + self._words, latest.rows, None if exact else self._ranks)

    @property
    def root(self) -> EntryRoot:
        return self._tops.root

    @property
    def update_steps(self) -> int:
        return self._tops.steps

    def _ranks(self, slots: Slots) -> Ints:
        return ranks_of(*words_of(self._table, self._order, slots))

    def _entries(self, codes: Slots, slots: Slots) -> Entries:
        words = first_words(*words_of(self._table, self._order, slots, self._words), self._words)
        return Entries(np.column_stack((codes, words)), np.ascontiguousarray(slots, np.int32))

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) for sorting."""
        parts = list[Entries]()
        for _, every in () if self._never else scanned([self._input.relation], version, progress):
            if len(slots := self._input.chosen(every)):
                parts.append(self._entries(self._columns.read((slots,), (np.ones(len(slots), np.bool_), version)).codes, slots))
        if parts:
            self._tops.load(version, Entries(*(np.concatenate(column) for column in zip(*parts, strict=True))))
        progress(1.0)

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        one = resolved.get(self._input.relation.name)
        if one is None:
            return
        inserted = one.inserts.num_rows
        self._tops.require(inserted + len(one.deletes))
        if self._columns.domain is not None:
            self._columns.domain.require(inserted, one.inserts.bytes)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        run = runs.get(self._input.relation.name)
        if run is None or self._never:
            return
        deleted, inserted, moved = parted(self._input, run, sink is not None)
        parts = [
            (deleted.offsets, deleted.old, DELETE, True), (
                inserted.offsets, inserted.new, INSERT, True
            ), (moved.offsets, moved.old, DELETE, False),
            (moved.offsets, moved.new, INSERT, False),
        ]  # fmt: skip
        lengths = [len(slots) for _, slots, _, _ in parts]
        offsets, slots = np.concatenate([one[0] for one in parts]), np.concatenate([one[1] for one in parts])
        signs = np.repeat(np.array([one[2] for one in parts], np.int8), lengths)
        emitted = np.repeat(np.array([one[3] for one in parts]), lengths)
        if (chosen := self._input.selected(slots)) is not None:
            offsets, slots, signs, emitted = offsets[chosen], slots[chosen], signs[chosen], emitted[chosen]
        if not len(slots):
            return
        read = self._columns.read((slots,), (~emitted | (signs != DELETE), version))
        order = order_of(offsets, emitted, read.codes, signs)
        entries = self._entries(read.codes, slots).take(order)
        groups = np.stack((offsets, emitted, read.codes))[:, order]
        ends = np.flatnonzero(np.append((groups[:, 1:] != groups[:, :-1]).any(axis=0), True)) + 1
        found = self._tops.apply(version, RankedChanges(entries, signs[order], ends))
        if sink is not None:
            at = ends[found.groups] - 1
            some = groups[1, at] != 0
            emit_slots(sink, groups[0, at[some]], found.slots[some])
        if not emitted.all():  # they only move
            self._columns.release(read, ~emitted, version)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self._tops.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return self._columns.reclaim(oldest_needed, pins)

    def rows(self, root: EntryRoot, window: Bounds | None) -> Enumeration:
        return SlotsCursor(self._tops.of(root))

    def partners(self, root: EntryRoot, position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        slots = NO_SLOTS if self._never else self._input.chosen(slots)
        if len(slots):
            codes = self._columns.read((slots,), None).codes
            codes, slots = codes[codes >= 0], slots[codes >= 0]
            slots = slots[self._tops.holds(root, codes, slots)]
        return SlotsCursor(GivenCursor(slots.reshape(1, -1)))

    def of_key(self, root: EntryRoot, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        code = self._columns.look_up([key.column(name) for name in self._input.equal])
        return SlotsCursor(self._tops.of(root, code) if code >= 0 else GivenCursor(_NO_ROWS))

    def is_empty(self, root: EntryRoot) -> bool | None:
        return root.counts[0] == 0

    def entries(self, root: EntryRoot) -> int:
        """All rows in order, at the newest version, and those that are listed."""
        return self._tops.rows + root.counts[0]

    @property
    def bytes(self) -> int:
        return self._tops.bytes + self._columns.bytes

    @property
    def stores(self) -> Sequence[Store]:
        return (self._tops.arena, self._tops.list.arena)

    def check(self) -> None:
        self._tops.check()
        self._columns.check()

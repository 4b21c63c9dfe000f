"""For each row of one alias, the latest row of another (`ASOF [LEFT] JOIN`): an interval tree holds points, and the intervals in which rows
of the other alias are the latest of their key.

    set 0   points: rows of the one alias, at their time
    set 1   rows of the other, from their time until just before the next one of their key (`structures.ranked.validity`)

`>=` and `>` use the reversed order (~time); `<` takes a point just before the time. An inserted row shortens the interval of its
predecessor: the predecessor's entry is replaced, which is not reported; the part that it loses is reported as deleted, and the new row's
own interval is inserted. So the points in it are reported to go from one row to the other.

All rows of the other alias take their turns, even those that WHERE excludes: these have no entries. Only rows whose whole key it excludes
(`Input.deciding`) are left out. With LEFT, the time before the first row of a key is an entry of nobody, and rows that nothing can match
are points under a key of their own.

Costs: O(log n) a changed row, and its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.planning.plans.plan import Plan
from service.query.conditions import ColumnRef
from service.query.model import Query
from service.tables.changes import DELETE, ENTER, INSERT, LEAVE, SIGNS, Runs, order_of, parted
from service.tables.domains import Domain
from service.tables.inputs import Codes, Input, ends_of, joined, scanned, text_pieces
from service.tables.masks import pair_mask
from service.tables.resolution import NO_SLOTS, Resolution, Slots
from service.tables.store import FREED_AT_ONCE, Numbers
from service.views.deltas import Combination, Sink
from service.views.joins.outer_cursor import CursorChain
from service.views.joins.protocol import Bounds, Enumeration, Join, Store
from service.views.joins.slots_cursor import Filtered, SlotsCursor, agreeing
from service.views.words import BYTES, SortedColumn, words_of
from structures.core.arena import KEY_MAX
from structures.core.cursor import Cursor, GivenCursor
from structures.core.encoding import NEG_INF, POS_INF, encode_floats
from structures.core.entries import NO_ENTRIES, Entries, room_for, tree_order
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.core.reserve import SLOTS
from structures.index.indexes import Entries as Rows
from structures.interval.changes import EMITTED
from structures.interval.tree import IntervalTree
from structures.ordered.lists import find_ends
from structures.ordered.whole import read_all
from structures.ranked.entries import RankedChanges
from structures.ranked.tries import NOBODY
from structures.ranked.validity import Validity, ValidityChanges

_LONELY = KEY_MAX - 1  # the key of points that nothing matches
_NOBODY = SLOTS - 1  # the slot for the time before the first row of a key
_POINT, _OTHER = 0, 1  # sets
_LOST, _GAINED = 4, 5  # beside the kinds of `tables.changes`: a part of an entry, whose rows are deleted or inserted
_SIGNS = np.append(SIGNS, np.array([EMITTED, EMITTED], np.int8))
_NO_ROWS = np.empty((2, 0), np.int32)
Ints = npt.NDArray[np.int64]


class _Step(NamedTuple):
    """Entries of one kind, the offsets of their versions, and ranks in the tree's order, equal where several entries belong to one row."""

    kind: int
    offsets: Ints
    entries: Entries
    ranks: Ints


Keep = Callable[[Combination], npt.NDArray[np.bool_]]


def shown(rows: Sequence[Slots], point: int) -> Combination:
    """Convert slots of both sets to rows of the view."""
    others = np.where(rows[_OTHER] == _NOBODY, np.int32(-1), rows[_OTHER])
    return (rows[_POINT], others) if point == 0 else (others, rows[_POINT])


class AsOfJoin(Join):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, query: Query, plan: Plan, inputs: Sequence[Input]) -> None:
        """OSError, MemoryError: there is no room."""
        as_of = query.as_of
        assert as_of is not None
        by_alias = {input.alias: input for input in inputs}
        self._point, self._other = by_alias[as_of.point.alias], by_alias[as_of.of.alias]
        self._optional, self._never = as_of.optional, query.never
        self._conditions, self._inputs = as_of.conditions, inputs
        self._keep = self._meet if as_of.conditions else None
        self._turned, self._open = as_of.op in (">", ">="), as_of.op in ("<", ">")
        self._spans, self._columns, self._ties = plan.spans, plan.keys, plan.ties
        types = [inputs[0].relation.schema.field(name).type for name in self._columns[0]]
        self.domain = Domain(types) if types else None
        self._acquire = self.domain.acquire_of if self.domain is not None else None
        self._look_up = self.domain.look_up_of if self.domain is not None else None
        known = {*self._columns[self._other.position], as_of.of.column}
        self._telling = [SortedColumn(name, descending=True) for name in self._other.relation.key if name not in known]
        self._validity = Validity(self._words if plan.ties is None else len(plan.ties), self._optional)
        self.tree = IntervalTree("pair")
        self._filled = 0  # number of keys, by code, for which the tree has an entry of nobody

    @property
    def root(self) -> EntryRoot:
        return self.tree.root

    @property
    def update_steps(self) -> int:
        return int(self.tree.update_steps) + self._validity.looked_at

    # --- rows as entries

    def _times(self, input: Input, slots: Slots) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the times in the order of the tree, and which of them are not null."""
        left, right = ends_of(input.relation.table, self._spans[input.position], slots)
        return ~left if self._turned else left, left <= right

    def _codes(self, input: Input, slots: Slots, codes: Codes | None) -> Slots:
        """Return the codes of the keys; -1 for a null."""
        return np.zeros(len(slots), np.int32) if codes is None else codes(input.relation.table, self._columns[input.position], slots)

    def _points(self, slots: Slots, codes: Codes | None) -> tuple[Entries, Ints]:
        """Return entries for these points, and the numbers of the rows that they are made of."""
        chosen = self._point.selected(slots)
        indices = np.arange(len(slots)) if chosen is None else chosen
        slots = slots[indices]
        at, able = self._times(self._point, slots)
        if self._open:
            able &= at > NEG_INF
            at = at - able
        key = np.full(len(slots), -1, np.int32)
        key[able] = self._codes(self._point, slots[able], codes)
        lonely = key < 0
        if self._optional:
            key, at = np.where(lonely, np.int32(_LONELY), key), np.where(lonely, 0, at)
        else:
            key, at, slots, indices = key[~lonely], at[~lonely], slots[~lonely], indices[~lonely]
        return Entries(np.full(len(slots), _POINT, np.uint8), key, at, at, slots), indices

    def _rows(self, slots: Slots, codes: Codes | None) -> tuple[Rows, Ints]:
        """Return rows of the other alias for their index, and their numbers among the given ones."""
        at, able = self._times(self._other, slots)
        if self._other.deciding:
            able &= self._other.meets(self._other.deciding, slots)
        indices = np.flatnonzero(able)
        key = self._codes(self._other, slots[indices], codes)
        indices, key = indices[key >= 0], key[key >= 0]
        columns = [key.astype(np.int64), at[indices]]
        if self._ties:
            table = self._other.relation.table
            for name, words in zip(self._ties, table.numbers(self._ties, slots[indices])[0], strict=True):
                is_float = pa.types.is_floating(table.type_of(name))
                columns.append(~(encode_floats(words.view(np.float64), 0) if is_float else words))
        return Rows(np.stack(columns, axis=1), np.ascontiguousarray(slots[indices], np.int32)), indices

    def _words(self, slots: Slots) -> tuple[Ints, Ints]:
        """Return words of rows of the other alias that sort the greatest primary key first."""
        return words_of(self._other.relation.table, self._telling, slots)

    def _fill(self) -> Entries:
        """Return entries of nobody for all new keys, whose rows are inserted later."""
        codes = 1 if self.domain is None else self.domain.codes
        keys = np.arange(self._filled, codes)
        self._filled = max(self._filled, codes)
        return _entries(keys, np.full(len(keys), NEG_INF), np.full(len(keys), POS_INF), np.full(len(keys), _NOBODY, np.int32))

    def _filled_step(self) -> _Step:
        entries = self._fill()
        return _Step(ENTER, np.zeros(len(entries.slot), np.int64), entries, np.arange(len(entries.slot)))

    def _meet(self, rows: Combination) -> npt.NDArray[np.bool_]:
        """bool[n]: which rows of the join meet the conditions on both aliases."""

        inputs = {input.alias: input for input in self._inputs}

        def column(part: slice, ref: ColumnRef) -> pa.Array:
            slots = rows[inputs[ref.alias].position][part]
            there = slots >= 0
            found = inputs[ref.alias].relation.table.take([ref.column], slots[there]).column(0)
            return found if there.all() else found.take(pa.array(np.cumsum(there) - 1, mask=~there))

        refs = {ref for one in self._conditions for ref in one.columns}
        given = [(inputs[ref.alias].relation.table, ref.column, np.maximum(rows[inputs[ref.alias].position], 0)) for ref in refs]
        parts = [np.empty(0, np.bool_)]
        for part in text_pieces(given):
            parts.append(pair_mask(self._conditions, partial(column, part), len(rows[0][part])))
        return np.concatenate(parts)

    # --- writing

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) for sorting."""
        if self._never:
            return
        points, rows = [NO_ENTRIES], list[Rows]()
        for of_point, slots in scanned([self._other.relation, self._point.relation], version, progress):
            if of_point:
                points.append(self._points(slots, self._acquire)[0])
            else:
                rows.append(self._rows(NO_SLOTS if self._other.is_hidden else slots, self._acquire)[0])
        self._validity.load(Rows(*(np.concatenate(column) for column in zip(*rows, strict=True))))
        entries = joined([*points, self._others()])
        if len(entries.slot):
            self.tree.bulk_load(version, entries)
        progress(1.0)

    def _others(self) -> Entries:
        """Return the entries of set 1, including those of nobody, as the index has them."""
        spans = self._validity.spans()
        found = [_entries(spans.key, spans.left, spans.right, self._other.masked(spans.slot))]
        if self._optional:
            nobody = self._fill()
            first = np.flatnonzero(np.diff(spans.key, prepend=-1))
            known = spans.key[first]  # codes are dense, so these are their places
            nobody.right[known] = np.where(spans.left[first] > NEG_INF, spans.left[first] - 1, NEG_INF)
            gap = np.ones(len(nobody.key), np.bool_)
            gap[known] = spans.left[first] > NEG_INF
            found += [nobody.take(gap), _entries(*(np.array([one]) for one in (_LONELY, NEG_INF, POS_INF, _NOBODY)))]
        return joined(found)

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        points, others = (resolved.get(input.relation.name) for input in (self._point, self._other))
        changes = [0 if one is None else one.inserts.num_rows + len(one.deletes) for one in (points, others)]
        inserts = [one.inserts for one in (points, others) if one is not None]
        self.tree.require(changes[0] + 8 * changes[1] + sum(one.num_rows for one in inserts), 1)
        self._validity.require_index(changes[1] if self._ties is not None else changes[1] + self._nodes_of(others))
        if self.domain is not None:
            self.domain.require(sum(one.num_rows for one in inserts), sum(one.bytes for one in inserts))

    def _nodes_of(self, resolved: Resolution | None) -> int:
        """Return how many entries of nodes may be inserted and deleted with these rows at most: three per word."""
        if resolved is None:
            return 0
        return 3 * int(resolved.inserts.bytes // BYTES + len(self._telling) * resolved.inserts.num_rows)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        if self._never:
            return
        deleted_rows = [NO_SLOTS]  # keys of deleted entries
        moved, deleted, inserted = self._follow_points(runs, sink is not None, deleted_rows)
        shifted, changed = self._follow_others(runs, sink is not None, deleted_rows)
        rounds = [[self._filled_step()] if self._optional else [], moved, shifted, [deleted], changed, [inserted]]
        steps = [step for some in rounds for step in some]
        lengths = [len(one.offsets) for one in steps]
        if not any(lengths):
            return
        entries = joined([one.entries for one in steps])
        offsets, kinds = np.concatenate([one.offsets for one in steps]), np.repeat([one.kind for one in steps], lengths)
        rounds_of = np.repeat(np.repeat(np.arange(len(rounds)), [len(some) for some in rounds]), lengths)
        # Within a round the order is the tree's, so each leaf is visited once; only the entries of one row are in the order of the steps.
        ranks = np.concatenate([one.ranks for one in steps])
        order = order_of(offsets, rounds_of * (ranks.max() + 1) + ranks)
        offsets, kinds = offsets[order], kinds[order]

        def emit(sink: Sink, at: Ints, rows: npt.NDArray[np.int32]) -> int:
            inserted_rows = np.isin(kinds[at], (INSERT, _GAINED))
            emitted = np.lexsort((inserted_rows, offsets[at]))
            found = shown(tuple(rows[:, emitted]), self._point.position)
            if self._keep is not None:
                kept = self._keep(found)
                emitted, found = emitted[kept], tuple(slots[kept] for slots in found)
                if not len(emitted):
                    return 0
            wanted = sink(offsets[at][emitted], inserted_rows[emitted], found)
            return 0 if wanted else int(np.searchsorted(offsets, offsets[at[-1]], "right"))

        emitted = None if sink is None else partial(emit, sink)
        self.tree.apply(version, _SIGNS[kinds], entries.take(order), np.arange(len(order)), emitted)
        if self.domain is not None:
            self.domain.release(np.concatenate(deleted_rows), version)

    def _follow_points(self, runs: Runs, followed: bool, deleted_rows: list[Slots]) -> tuple[list[_Step], _Step, _Step]:
        """Return the steps for the points that move, are deleted, and are inserted."""
        run = runs.get(self._point.relation.name)
        if run is None:
            return [], _NOTHING, _NOTHING
        part = parted(self._point, run, followed)
        entries, which = self._points(part.moved.new, self._look_up)
        former, ranks = entries._replace(slot=part.moved.old[which]), _ranked(entries)
        moved = [_Step(kind, part.moved.offsets[which], some, ranks) for kind, some in ((LEAVE, former), (ENTER, entries))]
        inserted_rows, at_inserted = self._points(part.inserted.new, self._acquire)
        went, at_went = self._points(part.deleted.old, self._look_up)
        deleted_rows.append(went.key[went.key != _LONELY])
        deleted = _Step(DELETE, part.deleted.offsets[at_went], went, _ranked(went))
        return moved, deleted, _Step(INSERT, part.inserted.offsets[at_inserted], inserted_rows, _ranked(inserted_rows))

    def _follow_others(self, runs: Runs, followed: bool, deleted_rows: list[Slots]) -> tuple[list[_Step], list[_Step]]:
        """Return the steps for entries that move, and for those that change."""
        run = runs.get(self._other.relation.name)
        if run is None:
            return [], []
        part = parted(self._other, run, followed)
        rows, offsets, signs, stays = list[Rows](), list[Ints](), list[int](), list[bool]()
        for some, slots, codes, sign, moves in (
            (part.moved, part.moved.old, self._look_up, -1, True), (part.moved, part.moved.new, self._look_up, 1, True),
            (part.inserted, part.inserted.new, self._acquire, 1, False), (part.deleted, part.deleted.old, self._look_up, -1, False),
        ):  # fmt: skip
            found, which = self._rows(slots, codes)
            rows.append(found)
            offsets.append(some.offsets[which])
            signs.append(sign)
            stays.append(moves)
        deleted_rows.append(rows[-1].coordinates[:, 0].astype(np.int32))
        lengths = [len(one.slot) for one in rows]
        if not any(lengths):
            return [], []
        every = Rows(*(np.concatenate(column) for column in zip(*rows, strict=True)))
        signed, move = np.repeat(np.array(signs, np.int8), lengths), np.repeat(np.array(stays), lengths)
        names = np.stack((np.concatenate(offsets), move, every.coordinates[:, 0]))
        order = order_of(names[0], ~move, names[2], every.coordinates[:, 1], signed)
        names = names[:, order]
        ends = np.flatnonzero(np.append((names[:, 1:] != names[:, :-1]).any(axis=0), True)) + 1
        changes = self._validity.apply(RankedChanges(every.take(order), signed[order], ends))
        offset, stayed, key = names[:, ends[changes.group] - 1]
        return self._steps(changes, offset, stayed != 0, key)

    def _steps(self, changes: ValidityChanges, offset: Ints, moves: npt.NDArray[np.bool_], key: Ints) -> tuple[list[_Step], list[_Step]]:
        """Return the changes of entries that these changes make."""
        before, after = self._other.masked(changes.before), self._other.masked(changes.after)
        if self._optional:
            nobody = np.where(changes.at == NEG_INF, np.int32(_NOBODY), np.int32(NOBODY))
            before, after = np.where(before == NOBODY, nobody, before), np.where(after == NOBODY, nobody, after)
        at, old, new = changes.at, changes.until_before, changes.until_after
        there, here, same = before != NOBODY, after != NOBODY, before == after

        def step(kind: int, which: npt.NDArray[np.bool_], left: Ints, right: Ints, slots: Slots) -> _Step:
            some = np.flatnonzero(which)
            return _Step(kind, offset[some], _entries(key[some], left[some], right[some], slots[some]), some)

        moved = moves & there & ~same
        lost, gained = ~moves & there & same & (new < old), ~moves & there & same & (new > old)
        deleted_rows, inserted_rows = ~moves & there & ~same, ~moves & here & ~same
        shifted = [step(LEAVE, moved, at, old, before), step(ENTER, moved, at, new, after)]
        return shifted, [
            step(_LOST, lost, new + lost, old, before), step(DELETE, deleted_rows, at, old, before),
            step(_GAINED, gained, old + gained, new, after), step(INSERT, inserted_rows, at, new, after),
            step(LEAVE, lost | gained, at, old, before), step(ENTER, lost | gained, at, new, after),
        ]  # fmt: skip

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self.tree.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return self.domain is not None and self.domain.reclaim(oldest_needed, pins)

    # --- reading

    def _read(self, cursor: Cursor, keep: Keep | None = None) -> Enumeration:
        """Read the rows that meet the conditions, and pass a test."""
        reading: Enumeration = SlotsCursor(cursor, lambda rows: shown(rows, self._point.position))
        for test in (keep, self._keep):
            if test is not None:
                reading = Filtered(reading, test)
        return reading

    def rows(self, root: EntryRoot, window: Bounds | None) -> Enumeration:
        return self._read(self.tree.rows(root))

    def partners(self, root: EntryRoot, position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        if self._never:
            return self._read(GivenCursor(_NO_ROWS))
        if position == self._point.position:
            entries, _ = self._points(slots, self._look_up)
            entries = entries.take(entries.key >= 0)
        else:
            rows, _ = self._rows(self._other.chosen(slots), self._look_up)
            entries = _entries(rows.coordinates[:, 0], rows.coordinates[:, 1], rows.coordinates[:, 1].copy(), rows.slot)
            held = np.zeros(len(entries.slot), np.uint8)
            compiled(find_ends)(self.tree.arena.nodes, root.offset, root.height, entries, held)
            entries = entries.take(held != 0)
        return self._read(self.tree.partners(root, entries))

    def of_key(self, root: EntryRoot, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        """Includes rows that nothing can match: all of these are scanned."""
        assert self.domain is not None
        code = int(self.domain.look_up(key.select(self._columns[position]))[0])

        def of_code() -> Enumeration:
            others = 1 - self._point.position
            keep = None if position == self._point.position or not self._optional else lambda rows: rows[others] >= 0
            return self._read(self.tree.rows(root, code) if code >= 0 else GivenCursor(_NO_ROWS), keep)

        def lonely() -> Enumeration:
            def agree(rows: Combination) -> npt.NDArray[np.bool_]:
                return np.isin(rows[position], agreeing(self._point, key, rows[position]))

            return self._read(self.tree.rows(root, _LONELY), agree)

        return CursorChain([of_code, lonely], 2) if self._optional and position == self._point.position else of_code()

    def is_empty(self, root: EntryRoot) -> bool | None:
        return True if self.tree.is_empty(root) else None if self._keep is not None else False

    def entries(self, root: EntryRoot) -> int:
        """Entries in the tree, and in the index of the newest version."""
        return sum(root.counts) + self._validity.rows

    @property
    def bytes(self) -> int:
        return int(self.tree.live_bytes) + self._validity.index_bytes + (self.domain.bytes if self.domain is not None else 0)

    @property
    def stores(self) -> Sequence[Store]:
        return (self.tree.arena, self._validity.arena)

    def check(self) -> None:
        """Also verify that the tree has exactly the intervals of the index."""
        self.tree.check(self.root)
        self._validity.check()
        if self.domain is not None:
            self.domain.check()
        if not self._never:
            entries = room_for(sum(self.root.counts))
            compiled(read_all)(self.tree.arena.nodes, self.tree.arena.C, entries)
            filled, self._filled = self._filled, 0
            assert _named(entries.take(entries.set == _OTHER)) == _named(self._others()), "the tree has other intervals than the index"
            assert self._filled == filled, "a key before whose first row nobody stands"


def _entries(keys: Ints, left: Ints, right: Ints, slots: Slots) -> Entries:
    """Return entries of set 1, without those of NOBODY."""
    there = slots != NOBODY
    keys, left, right, slots = keys[there].astype(np.int32), left[there], right[there], slots[there].astype(np.int32)
    return Entries(np.full(len(slots), _OTHER, np.uint8), keys, left, right, slots)


def _ranked(entries: Entries) -> Ints:
    """Return the rank of each in the tree's order."""
    ranks = np.empty(len(entries.slot), np.int64)
    ranks[tree_order(entries.set, entries.key, entries.left, entries.slot)] = np.arange(len(ranks))
    return ranks


def _named(entries: Entries) -> list[tuple[int, ...]]:
    return sorted(zip(*(column.tolist() for column in entries[1:]), strict=True))


_NOTHING = _Step(DELETE, np.empty(0, np.int64), NO_ENTRIES, np.empty(0, np.int64))

"""A join over indexes, and its cursor: one level per bound alias, depth first, a chunk of bindings at a time."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.planning.binding import Binding, Index, Step
from service.query.model import Span
from service.tables.domains import Domain
from service.tables.inputs import Input, Source, ends_of, joined, text_pieces
from service.tables.masks import residual_columns, residual_mask
from service.tables.resolution import NO_SLOTS, Slots
from service.tables.store import FREED_AT_ONCE, Numbers, Table
from service.views.deltas import Combination
from service.views.joins.protocol import Bounds
from service.views.joins.slots_cursor import GivenRowsCursor
from service.views.read_counts import Counts
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import DELETE, INSERT, Entries
from structures.interval.tree import Cursor, EntryRoot, IntervalTree
from structures.join_tree.cursors import Start

Mask = npt.NDArray[np.bool_]

_CHUNK = 4096  # bindings per level at a time
_LOOKS = 16  # attempts without rows before a call ends
_CALLS = 3  # calls of a tree's `apply` per version: moves, deletes, inserts


class IndexedRoot(NamedTuple):
    """A version: of the relations, and of each index."""

    version: int
    roots: tuple[EntryRoot, ...]


class KeptIndex:
    """All rows of a side in an interval tree, by key and span, and the domain of their keys: finds partners of a bound row in O(log n)."""

    def __init__(self, input: Input, index: Index) -> None:
        types = [input.relation.schema.field(name).type for name in index.columns]
        self.source = Source(input, 0, index.columns, index.span)
        self.domain = Domain(types) if types else None
        self.tree = IntervalTree("pair")  # set 1 stays empty: it is only used for lookups
        self._codes = self.domain.look_up_of if self.domain is not None else None
        self._taken = self.domain.acquire_of if self.domain is not None else None

    def load(self, version: int, parts: Sequence[Slots]) -> None:
        entries = joined([self.source.entries(slots, self._taken).entries for slots in parts])
        if len(entries.slot):
            self.tree.bulk_load(version, entries)

    def insert(self, version: int, slots: Slots) -> None:
        entries = self.source.entries(slots, self._taken).entries
        if len(entries.slot):
            self._change(version, INSERT, entries)

    def delete(self, version: int, slots: Slots) -> None:
        entries = self.source.entries(slots, self._codes).entries
        if len(entries.slot):
            self._change(version, DELETE, entries)
            if self.domain is not None:
                self.domain.release(entries.key, version)

    def move(self, version: int, before: Slots, after: Slots) -> None:
        """Move rows whose columns used by the view are unchanged from slot to slot."""
        chosen = self.source.entries(after, self._codes)
        if len(chosen.entries.slot):
            old = before if chosen.indices is None else before[chosen.indices]
            self._change(version, DELETE, chosen.entries._replace(slot=old))
            self._change(version, INSERT, chosen.entries)

    def _change(self, version: int, sign: int, entries: Entries) -> None:
        n = len(entries.slot)
        self.tree.apply(version, np.full(n, sign, np.int8), entries, np.zeros(n, np.int64), None)

    def of_code(self, root: EntryRoot, code: int) -> Cursor:
        """(slots, zeros): the rows with this code of the key; 0 for an index without one."""
        ends = np.array([NEG_INF]), np.array([POS_INF])
        return self.tree.partners(root, Entries(np.ones(1, np.uint8), np.array([code], np.int32), *ends, np.zeros(1, np.int32)))

    def require(self, changes: int, keys: int, text_bytes: int) -> None:
        """Raise MemoryError unless this many changes of its alias surely fit."""
        self.tree.require(changes, _CALLS)
        if self.domain is not None:
            self.domain.require(keys, text_bytes)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self.tree.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return self.domain is not None and self.domain.reclaim(oldest_needed, pins)

    @property
    def bytes(self) -> int:
        return int(self.tree.live_bytes) + (self.domain.bytes if self.domain is not None else 0)

    def check(self) -> None:
        self.tree.check(self.tree.root)
        if self.domain is not None:
            self.domain.check()


class IndexedPlan(NamedTuple):
    """What a cursor reads: the aliases, the orders in which they are bound, the indexes. `never`: there are no rows."""

    inputs: list[Input]
    binding: Binding
    indexes: list[KeptIndex]
    never: bool


class _Level(NamedTuple):
    """Bindings, the search for rows to join them with next, and which of them it has continued."""

    bound: Combination
    cursor: Cursor
    continued: Mask


class IndexedCursor:
    """Rows of one version that start with those of `start` for alias `position`. Plain data beside the indexes."""

    def __init__(self, join: IndexedPlan, root: IndexedRoot, position: int, start: Start, window: Bounds | None) -> None:
        self._join, self._root, self._start = join, root, start
        self._order, self._path = join.binding.orders[position], join.binding.steps[position]
        self._levels: list[_Level] = []
        self._window = window
        self.steps = self._dead_ends = self._gap = self._since = 0  # steps: bindings visited, and lookups
        if join.never:
            self._start = GivenRowsCursor((NO_SLOTS,))

    @property
    def done(self) -> bool:
        return not self._levels and self._start.done

    @property
    def counts(self) -> Counts:
        return Counts(self.steps, self._gap, self._dead_ends)

    def clone(self) -> IndexedCursor:
        other = copy.copy(self)
        other._start = self._start.clone()
        other._levels = [_Level(level.bound, level.cursor.clone(), level.continued.copy()) for level in self._levels]
        return other

    def fill(self, limit: int) -> Combination:
        """Return at most about `limit` rows, or none if `_LOOKS` attempts have found none."""
        for _ in range(_LOOKS):
            if self.done:
                break
            bound = self._next(max(1, min(limit, _CHUNK)))
            if len(bound[0]) == 0:
                continue
            if len(bound) == len(self._order):
                self._gap = max(self._gap, self.steps - self._since)
                self._since = self.steps
                return tuple(bound[self._order.index(position)] for position in range(len(bound)))
            self._levels.append(_Level(bound, self._search(bound), np.zeros(len(bound[0]), np.bool_)))
        return (NO_SLOTS,) * len(self._order)

    def _next(self, limit: int) -> Combination:
        """Return further bindings of the deepest level that has any; [] may mean that they were dropped."""
        if not self._levels:
            slots = self._start.fill(limit)[0]
            self.steps += len(slots)
            if self._window is not None:
                slots = self._without(slots, self._in_window(0, slots))
            return (slots,)
        bound, cursor, continued = self._levels[-1]
        found, given = cursor.fill(limit)
        self.steps += len(found) + 1
        if len(found):
            kept = self._fits(len(bound), (*(part[given] for part in bound), found))
            found, given = self._without(found, kept), given[kept]
            continued[given] = True
        if cursor.done:
            self._levels.pop()
            self._dead_ends += len(continued) - int(np.count_nonzero(continued))
        return (*(part[given] for part in bound), found)

    def _without(self, slots: Slots, kept: Mask) -> Slots:
        """Drop the bindings that are not kept, and count them as dead ends."""
        some: Slots = slots[kept]
        self._dead_ends += len(slots) - len(some)
        return some

    def _search(self, bound: Combination) -> Cursor:
        """Find the partners of these bindings in the next step's index."""
        step = self._path[len(bound) - 1]
        index = self._join.indexes[step.at]
        count = len(bound[0])
        numbers = np.arange(count, dtype=np.int32)
        if step.probe is None:
            left = right = np.zeros(count, np.int64)
        else:
            left, right = self._ends(bound, *step.probe)
        key = np.zeros(count, np.int32)
        if index.domain is not None:
            columns = [(self._table(position), name, self._slots(bound, position)) for position, name in step.keys]
            parts = []
            for piece in text_pieces(columns):
                arrays = [table.take([name], slots[piece]).column(0) for table, name, slots in columns]
                parts.append(index.domain.look_up(pa.RecordBatch.from_arrays(arrays, [str(position) for position in range(len(arrays))])))
            key = np.concatenate(parts)
        kept = (key >= 0) & (left <= right)
        if not kept.all():
            numbers, key, left, right = numbers[kept], key[kept], left[kept], right[kept]
        entries = Entries(np.ones(len(numbers), np.uint8), key, left, right, numbers)
        return index.tree.partners(self._root.roots[step.at], entries)

    def _fits(self, depth: int, bound: Combination) -> Mask:
        """bool[n]: whether the newest alias of each binding, number `depth` of the order, fits the others."""
        step = self._path[depth - 1]
        kept = np.ones(len(bound[0]), np.bool_)
        for position, theirs, mine in step.meets:
            left, right = self._ends(bound, position, theirs)
            low, high = ends_of(self._table(self._order[depth]), mine, bound[depth])
            kept &= (left <= high) & (low <= right) & (low <= high) & (left <= right)
        if step.residual:
            kept &= self._residual(step, depth, bound)
        if self._window is not None:
            kept &= self._in_window(depth, bound[depth])
        return kept

    def _residual(self, step: Step, depth: int, bound: Combination) -> Mask:
        inputs = [self._join.inputs[position] for position in self._order[: depth + 1]]
        names = {input.alias: residual_columns(step.residual, input.alias) for input in inputs}
        columns = [(input.relation.table, name, slots) for input, slots in zip(inputs, bound, strict=True) for name in names[input.alias]]
        parts = []
        for piece in text_pieces(columns):
            taken: Mapping[str, pa.RecordBatch] = {
                input.alias: input.relation.table.take(names[input.alias], slots[piece])
                for input, slots in zip(inputs, bound, strict=True)
                if names[input.alias]
            }
            parts.append(residual_mask(step.residual, taken))
        return np.concatenate(parts)

    def _in_window(self, depth: int, slots: Slots) -> Mask:
        """Whether the joined intervals of the alias at this depth meet the window."""
        assert self._window is not None
        input = self._join.inputs[self._order[depth]]
        mask = np.ones(len(slots), np.bool_)
        for span in input.spans.values():
            bounds = self._window.get(span)
            if bounds is not None:
                left, right = ends_of(input.relation.table, span, slots)
                mask &= (left <= bounds[1]) & (bounds[0] <= right)
        return mask

    def _slots(self, bound: Combination, position: int) -> Slots:
        return bound[self._order.index(position)]

    def _ends(self, bound: Combination, position: int, span: Span) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return ends_of(self._table(position), span, self._slots(bound, position))

    def _table(self, position: int) -> Table:
        return self._join.inputs[position].relation.table

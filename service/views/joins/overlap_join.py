"""A join in one structure: entries of all aliases in an interval tree, a tree of cliques, a box tree or an IJ-heap, converted to rows by a
shape (`shapes`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.planning.plans.plan import Plan
from service.query.model import Query
from service.tables.changes import DELETE, ENTER, INSERT, LEAVE, SIGNS, DividedRun, Runs, parted
from service.tables.domains import Domain
from service.tables.estimates import shares_of
from service.tables.inputs import BoxSource, Input, Source, joined, scanned
from service.tables.resolution import NO_SLOTS, Indices, Resolution, Slots
from service.tables.store import FREED_AT_ONCE, Numbers
from service.views.deltas import Combination, Sink
from service.views.joins.protocol import Bounds, Join, Store
from service.views.joins.slots_cursor import SlotsCursor
from service.views.read_counts import Counts
from service.views.shapes import Shape
from structures.box.tree import BoxTree
from structures.clique.tree import CliqueTree
from structures.core.cursor import Cursor
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries
from structures.ij_heap.heap import IJHeap, Topology
from structures.interval.tree import IntervalTree

_TICKS = INSERT + 1  # of a version: one for each kind of change
_CHUNK = 1 << 16  # rows of a delta at once
_SOME, _FEW = 2048, 512  # rows of a sample: beside the writer, in its turn
_FEWEST_ARRANGED, _ARRANGED_AGAIN, _WORTH = 1 << 14, 4, 2.0  # boxes; growth factor; how many times more pairs meet than need be
_KINDS = {"pair": "pair", "self_less": "self", "self_not_equal": "self", "list": "list"}


class ShapedCursor(SlotsCursor):
    """A cursor whose slots a shape converts to rows. `of`, where two or more aliases share a set: return only the rows with one of these
    slots as alias `position`; a structure of pairs returns each beside its partner."""

    def __init__(self, cursor: Cursor, shape: Shape, of: tuple[int, Slots] | None = None) -> None:
        super().__init__(cursor)
        self._shape, self._of = shape, of
        self._dropped = 0  # candidates that were no rows

    @property
    def counts(self) -> Counts:
        """Dropped candidates are dead ends, too, where any may be dropped, or the structure's cursor counts some."""
        own = super().counts
        return own.dropping(self._dropped) if self._shape.drops or own.dead_ends is not None else own

    def fill(self, limit: int) -> Combination:
        slots = self._cursor.fill(max(1, limit // self._shape.factor))
        if self._of is not None and len(slots) == 2:
            found = self._shape.combine_given(self._of[0], *slots)
            self._dropped += len(slots[0]) - len(found[0])
            return found
        found = self._shape.combine(*slots)
        self._dropped += self._shape.factor * len(slots[0]) - len(found[0])
        if self._of is None:
            return found
        position, given = self._of
        mine = np.isin(found[position], given)
        return tuple(part[mine] for part in found)


class OverlapJoin(Join):
    """See the module docstring; `protocol` describes the methods."""

    root: Any = None

    def __init__(self, query: Query, plan: Plan, inputs: Sequence[Input]) -> None:
        self.inputs = list(inputs)
        one_set = plan.shape not in ("pair", "heap")
        self._sources = [self._source(input, 0 if one_set else input.position, plan) for input in inputs]
        # One set under two aliases takes its entries from the first.
        self._feeding = [] if query.never else self._sources[:1] if one_set else self._sources
        self.never = query.never
        self._boxes = plan.boxes
        self._loaded = 0  # version
        self._arranged = _FEWEST_ARRANGED  # number of boxes when the order of their dimensions was last checked
        self.tree = _structure(plan, len(inputs))
        types = [inputs[0].relation.schema.field(name).type for name in self._sources[0].columns]
        self.domain = Domain(types) if types else None
        self._acquire = self.domain.acquire_of if self.domain is not None else None
        self._look_up = self.domain.look_up_of if self.domain is not None else None
        self.shape = Shape(query, plan, inputs)
        self._exact = plan.guarantee == "strict"  # everything enumerated is a row
        self.root: Any = self.tree.root  # of the last applied changes; any thread reads it, but only the writer its tree

    @staticmethod
    def _source(input: Input, set_: int, plan: Plan) -> Source:
        keys = plan.keys[input.position]
        return BoxSource(
            input, set_, keys, plan.boxes[input.position]
        ) if plan.boxes else Source(input, set_, keys, plan.spans[input.position])

    @property
    def update_steps(self) -> int:
        return int(self.tree.update_steps)

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) for sorting."""
        self._loaded = version
        if self._boxes:
            self._arrange(version)
        rows = scanned([source.input.relation for source in self._feeding], version, progress)
        entries = joined([self._feeding[at].entries(slots, self._acquire).entries for at, slots in rows])
        if len(entries.slot):
            self.root = self.tree.bulk_load(version, entries)
        self._arranged = max(self._arranged, len(entries.slot))

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        ours = [one for source in self._feeding if (one := resolved.get(source.input.relation.name)) is not None]
        inserts = deletes = 0
        for one in ours:
            inserts, deletes = inserts + one.inserts.num_rows, deletes + len(one.deletes)
        self.tree.require(inserts + deletes, 1)
        if self._boxes:
            self.tree.reach(max([one.relation.table.used + one.inserts.num_rows for one in ours], default=0))
        if self.domain is not None:
            self.domain.require(inserts, sum([one.inserts.bytes for one in ours]))

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Cost: O(log n) a changed row, and its rows."""
        work = _Work([], [], [])
        for source in self._feeding:
            run = runs.get(source.input.relation.name)
            if run is not None:
                self._collect(source, parted(source.input, run, sink is not None), work)
        if not work.kinds:
            return
        entries, ticks, kinds = joined(work.entries), np.concatenate(work.ticks), np.concatenate(work.kinds)
        emit = None if sink is None else partial(self._emit, sink, ticks)
        self.root = self.tree.apply(version, SIGNS[kinds], entries, ticks, emit)
        if self.domain is not None and len(deleted := entries.key[kinds == DELETE]):
            self.domain.release(deleted, version)

    def catch_up(self, version: int, runs: Runs, sink: Sink | None = None) -> None:
        """Changes belong to the version that was loaded, so that blocks are changed in place."""
        self.apply(self._loaded, runs, sink)

    def _emit(self, sink: Sink, ticks: Indices, changes: Indices, slots: npt.NDArray[np.int32]) -> int:
        """Pass rows that changes report to the sink; return the tick before which it wants no more."""
        step = _CHUNK // self.shape.factor  # combinations in all orders are many
        for first in range(0, len(changes), step):
            rows, which = self.shape.emitted(*slots[:, first : first + step])
            some = ticks[changes[first : first + step] if which is None else changes[first + which]]
            offsets, kinds = np.divmod(some, _TICKS)
            if not sink(offsets, kinds == INSERT, rows):
                return int(_TICKS * (offsets[-1] + 1))
        return 0

    def _collect(self, source: Source, part: DividedRun, work: _Work) -> None:
        """Add the entries of one alias that move to another slot, and of those that are deleted and inserted."""
        (deleted_at, deleted, _), (inserted_at, _, inserted), (moved_at, before, after) = part
        if len(after):
            entries, chosen = source.entries(after, self._look_up)
            if chosen is not None:
                moved_at, before = moved_at[chosen], before[chosen]
            work.add(LEAVE, moved_at, entries._replace(slot=before))
            work.add(ENTER, moved_at, entries)
        for kind, offsets, slots, codes in ((DELETE, deleted_at, deleted, self._look_up), (INSERT, inserted_at, inserted, self._acquire)):
            if len(slots):
                entries, chosen = source.entries(slots, codes)
                work.add(kind, offsets if chosen is None else offsets[chosen], entries)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self.tree.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return self.domain is not None and self.domain.reclaim(oldest_needed, pins)

    def is_outgrown(self, version: int) -> bool:
        """Whether a box tree is uneven, or its dimensions would now be ordered otherwise: this is checked whenever the number of boxes has
        grown fourfold."""
        if not self._boxes:
            return False
        if self.tree.is_uneven:
            return True
        entries = self.entries(self.root)
        if entries < _ARRANGED_AGAIN * self._arranged:
            return False
        self._arranged = entries
        shares = shares_of(self.inputs, list(zip(*self._boxes, strict=True)), version, _FEW)
        return shares is not None and any(share > _WORTH * best for share, best in zip(shares[:-1], sorted(shares), strict=False))

    def _arrange(self, version: int) -> None:
        """Order the dimensions: first those in which the fewest pairs meet. In all but the last, a box is copied to each slab that it
        spans: with intervals of half the line first, a box took 700 bytes instead of 125, and a change seven times as long."""
        shares = shares_of(self.inputs, list(zip(*self._boxes, strict=True)), version, _SOME)
        if shares is not None:
            order = np.argsort(shares, kind="stable").tolist()
            self._boxes = tuple(tuple(spans[dimension] for dimension in order) for spans in self._boxes)
            for source in self._sources:
                cast(BoxSource, source).spans = self._boxes[source.input.position]

    def rows(self, root: Any, window: Bounds | None) -> ShapedCursor:
        return ShapedCursor(self.tree.rows(root, None, self._window(window)), self.shape)

    def partners(self, root: Any, position: int, slots: Slots, window: Bounds | None) -> ShapedCursor:
        entries = self._sources[position].entries(NO_SLOTS if self.never else slots, self._look_up).entries
        cursor = self.tree.partners(root, entries, self._window(window))
        # One set under two aliases: the given row must be this one.
        return ShapedCursor(cursor, self.shape, (position, slots) if len(self._feeding) < len(self.inputs) else None)

    def of_key(self, root: Any, position: int, key: pa.RecordBatch, window: Bounds | None) -> ShapedCursor:
        assert self.domain is not None
        code = int(self.domain.look_up(key.select(self._sources[position].columns))[0])
        if code < 0:
            return self.partners(root, position, NO_SLOTS, None)
        return ShapedCursor(self.tree.rows(root, code, self._window(window)), self.shape)

    def _window(self, window: Bounds | None) -> Any:
        """Convert the window for the structure: (lo, hi), for a box tree a value per dimension; a dimension that is no overlap has none."""
        if not window:
            return None
        if not self._boxes:
            return next(iter(window.values()))
        ends = [window.get(span, (NEG_INF, POS_INF)) for span in self._boxes[0]]
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    def is_empty(self, root: Any) -> bool | None:
        return True if self.tree.is_empty(root) else False if self._exact else None

    def entries(self, root: Any) -> int:
        return int(sum(root.counts))

    @property
    def bytes(self) -> int:
        return int(self.tree.live_bytes) + (int(self.domain.bytes) if self.domain is not None else 0)

    @property
    def stores(self) -> Sequence[Store]:
        return (self.tree.arena,)

    def check(self) -> None:
        self.tree.check(self.root)
        if self.domain is not None:
            self.domain.check()


def _structure(plan: Plan, aliases: int) -> Any:
    """Return an IntervalTree, CliqueTree, BoxTree or IJHeap: their methods are alike, except for the form of windows."""
    if plan.edges:
        return IJHeap(Topology(aliases, plan.edges))
    if plan.shape.startswith("clique"):
        return CliqueTree(aliases)
    kind = _KINDS[plan.shape]
    return BoxTree(len(plan.boxes[0]), kind) if plan.boxes else IntervalTree(kind)


class _Work(NamedTuple):
    """Entries to be changed, in parts: their ticks, which are their versions' offsets and within these their kinds, and the kinds."""

    entries: list[Entries]
    ticks: list[Indices]
    kinds: list[Indices]

    def add(self, kind: int, offsets: Indices, entries: Entries) -> None:
        self.entries.append(entries)
        self.ticks.append(_TICKS * offsets + kind)
        self.kinds.append(np.full(len(offsets), kind))

"""The stretches of rows' intervals that partners leave free (gaps) or cover (coverage). A read walks them, and the structure
(`structures.cover`), which stores the intervals of both sides but no stretches, reports their changes.

A row of the view is a slot of its relation, and the ends of the stretch, closed and encoded: int32[n], int64[n], int64[n]. The reports of
one version are netted (`stretches`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import kept
from service.planning.plans.plan import Outer
from service.query.conditions import ColumnRef
from service.query.model import OF_STRETCH, Output, Query
from service.tables.changes import Runs
from service.tables.inputs import Input
from service.tables.masks import pair_mask
from service.tables.projection import Projection
from service.tables.resolution import Resolution, Slots
from service.tables.store import FREED_AT_ONCE, Numbers, pieces
from service.views.collecting import StretchCollector
from service.views.deltas import Combination, Sink, stretches_of
from service.views.joins.outer_cursor import scanned_for
from service.views.joins.protocol import Bounds, Enumeration, Join, Store
from service.views.joins.slots_cursor import Filtered, SlotsCursor
from service.views.joins.two_inputs import TwoInputs
from service.views.shown import STRETCH
from structures.core.cursor import Cursor
from structures.cover.tree import Cover, CoverRoot


class GapsRoot(NamedTuple):
    """A version: of the relations, and of the structure."""

    version: int
    cover: CoverRoot


class GapsStage(Join):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, query: Query, outer: Outer, inputs: Sequence[Input]) -> None:
        """`outer`: the rows, and their join with the partners. `inputs`: all sides that are read; the first is that of the rows."""
        assert query.stretches is not None
        self._query, self._input = query, inputs[0]
        kept, support = outer.joins
        self._both = TwoInputs(kept, support, outer.counts[0], inputs)
        self._cover = Cover(query.stretches.function == "coverage")
        self._span = inputs[0].spans[query.stretches.of.interval]
        self._version = 0
        function, _, of, _ = query.stretches
        ends = tuple(Output(end, f"{function}_{end}", None, (of,)) for end in ("start", "end"))
        self._ends = Projection(replace(query, outputs=ends), {inputs[0].relation.name: inputs[0].relation.definition})
        self._conditions = query.stretches.conditions
        self._keep = self._meet if self._conditions else None

    def _meet(self, rows: Combination) -> npt.NDArray[np.bool_]:
        """bool[n]: which stretches meet the conditions."""
        slots, table, alias = rows[0], self._input.relation.table, self._input.alias
        ends = self._ends.rows({}, stretches=stretches_of(rows))

        def column(part: slice, ref: ColumnRef) -> pa.Array:
            return kept(ends.column(ref.column)[part]) if ref.alias == OF_STRETCH else table.take([ref.column], slots[part]).column(0)

        refs = {ref.column: None for one in self._conditions for ref in one.columns if ref.alias == alias}
        parts = [np.empty(0, np.bool_)]
        for part in pieces(table.text_bytes(list(refs), slots)):
            parts.append(pair_mask(self._conditions, partial(column, part), len(slots[part])))
        return np.concatenate(parts)

    @property
    def root(self) -> GapsRoot:
        return GapsRoot(self._version, self._cover.root)

    @property
    def update_steps(self) -> int:
        return self._cover.steps

    # --- writing

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) for sorting."""
        self._version = version
        self._cover.load(version, *self._both.read(version, progress))

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        self._cover.require(*self._both.rows_after(resolved))

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Cost: O(log n) a changed row or partner, and a stretch that changes with it."""
        assert sink is None or isinstance(sink, StretchCollector)
        self._version = version
        changed = self._both.changed(runs, sink is not None)
        if changed is None:
            return
        deltas = self._cover.apply(version, changed.moves, None if sink is None else sink.limit)
        if sink is not None:
            sink.take(changed.offsets, deltas, self._keep)
        self._both.release(changed.moves, version)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self._cover.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return self._both.domain is not None and self._both.domain.reclaim(oldest_needed, pins)

    # --- reading

    def _window(self, window: Bounds | None) -> tuple[int, int] | None:
        """Return the window that applies to the stretches."""
        return None if window is None else window.get(self._span)

    def _read(self, cursor: Cursor) -> Enumeration:
        """Read the stretches that meet the conditions."""
        stretches = SlotsCursor(cursor, stretch_rows)
        return stretches if self._keep is None else Filtered(stretches, self._keep)

    def rows(self, root: GapsRoot, window: Bounds | None) -> Enumeration:
        return self._read(self._cover.stretches(root.cover, None, self._window(window)))

    def partners(self, root: GapsRoot, position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        entries, _ = self._both.rows.entries(slots, self._both.look_up)
        return self._read(self._cover.of_rows(root.cover, entries, self._window(window)))

    def of_key(self, root: GapsRoot, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        """Uses the structure if these are the join columns; otherwise scans the relation."""
        both = self._both
        if both.domain is None or {*both.columns} != {*key.schema.names} or both.never:
            return scanned_for(self._input, root.version, key, partial(self.partners, root, position, window=window), STRETCH)
        code = int(both.domain.look_up(key.select(both.columns))[0])
        return self._read(self._cover.stretches(root.cover, code, self._window(window)))

    def is_empty(self, root: GapsRoot) -> bool | None:
        if not root.cover.rows.counts[0]:
            return True
        if self._cover.emits_covered:
            return True if not root.cover.partners.counts[0] else None
        if self._keep is not None:
            return None
        return False if not root.cover.partners.counts[0] else None

    def entries(self, root: GapsRoot) -> int:
        return self._cover.entries(root.cover)

    @property
    def bytes(self) -> int:
        return self._cover.bytes + (self._both.domain.bytes if self._both.domain is not None else 0)

    @property
    def stores(self) -> Sequence[Store]:
        return (self._cover.rows.arena, self._cover.partners.arena)

    def check(self) -> None:
        """Also verify that the structure has exactly the rows and partners of the newest version."""
        self._cover.check()
        rows, partners = self._both.now()
        for input, wanted in ((self._cover.rows, rows), (self._cover.partners, partners)):
            assert input.root.counts[0] == len(wanted.slot), "rows or partners are kept that are not there"
            assert input.holds(input.root, wanted).all(), "a row or a partner is missing"
        if self._both.domain is not None:
            self._both.domain.check()


def stretch_rows(rows: Sequence[np.ndarray]) -> Combination:
    """Convert a structure's stretches to rows of the view."""
    return rows[0].astype(np.int32), rows[1], rows[2]

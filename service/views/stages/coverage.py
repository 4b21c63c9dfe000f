"""What the intervals of each group of rows cover, as merged runs of a key: `coverage(b.stay) … GROUP BY b.room`.

    rows of the relation ──> codes of their groups (`columns`) ──> `structures.cover`: partners by code, and an unbounded row for each code

A row of the view is the code of its group, and the ends of the run, closed and encoded. An unused code stays, and covers nothing, until
another group gets it. Costs: O(log n) a changed row, and a run that is inserted or deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.query.model import Query
from service.tables.changes import Runs, order_of, parted
from service.tables.inputs import NEWEST, Input, ends_of, joined, scanned
from service.tables.resolution import Resolution, Slots
from service.tables.store import FREED_AT_ONCE, Numbers
from service.views.collecting import StretchCollector
from service.views.deltas import Sink
from service.views.joins.protocol import Bounds, Enumeration, Join, Store
from service.views.joins.slots_cursor import SlotsCursor
from service.views.stages.columns import References
from service.views.stages.gaps import stretch_rows
from service.views.stages.groups import require_few
from service.views.stages.key_stretches import KeyStretches
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import NO_ENTRIES, Entries
from structures.cover.tree import Cover, CoverRoot, Moves
from structures.event_tree import runs as kinds


class CoverageStage(Join):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, query: Query, inputs: Sequence[Input], shown: KeyStretches, is_another: bool = False) -> None:
        """`shown`: its columns hold the codes. `is_another`: it will replace one that uses them. OSError, MemoryError: there is no room."""
        assert query.stretches is not None and query.groups is not None
        self._input, self._never, self._most = inputs[0], query.never, query.groups.most
        self._columns = shown.columns
        self._has_codes = not is_another
        if self._has_codes:
            self._columns.open()
        self._span = self._input.spans[query.stretches.of.interval]
        self._cover = Cover(True)
        self._codes = 0  # codes that have a row in the structure

    @property
    def root(self) -> CoverRoot:
        return self._cover.root

    @property
    def update_steps(self) -> int:
        return self._cover.steps

    # --- writing

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) for sorting."""
        rows = () if self._never else scanned([self._input.relation], version, progress)
        parts = [self._entries(slots, np.arange(len(slots)), True, version)[0] for _, slots in rows]
        self._cover.load(version, self._new_codes(), joined([NO_ENTRIES, *parts]))
        self._require_few()

    def _entries(self, slots: Slots, offsets: npt.NDArray[np.int64], inserted: bool, version: int) -> tuple[Entries, npt.NDArray[np.int64]]:
        """Return the entries of the rows that meet the filters, and their offsets. Codes of inserted rows gain references, others lose
        them."""
        chosen = self._input.selected(slots)
        if chosen is not None:
            slots, offsets = slots[chosen], offsets[chosen]
        if self._never or not len(slots):
            return NO_ENTRIES, offsets[:0]
        codes = self._columns.read((slots,), (np.full(len(slots), inserted), version)).codes
        left, right = ends_of(self._input.relation.table, self._span, slots)
        return Entries(np.zeros(len(slots), np.uint8), codes, left, right, slots), offsets

    def _new_codes(self) -> Entries:
        """Add a row for each code that has none yet."""
        codes = np.arange(self._codes, self._columns.codes, dtype=np.int32)
        self._codes += len(codes)
        n = len(codes)
        return Entries(np.zeros(n, np.uint8), codes, np.full(n, NEG_INF), np.full(n, POS_INF), codes)

    def _require_few(self) -> None:
        """Problem `too-many-groups`. O(1), and O(groups) if those that have ended are too many with the others."""
        domain = self._columns.domain
        if domain is not None and domain.keys > self._most:
            keys, counts = domain.counted
            require_few(int(np.count_nonzero(counts[: keys.used])), self._most)

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        one, table = resolved.get(self._input.relation.name), self._input.relation.table
        inserted = one.inserts.num_rows if one is not None else 0
        if self._columns.domain is not None:
            self._columns.domain.require(inserted, one.inserts.bytes if one is not None else 0)
        self._cover.require(self._codes + inserted + 1, table.rows + inserted)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Cost: O(log n) a changed row, and a run that is inserted or deleted."""
        assert sink is None or isinstance(sink, StretchCollector)
        run = runs.get(self._input.relation.name)
        if run is None:
            return
        part = parted(self._input, run, False)
        inserted, inserted_at = self._entries(part.inserted.new, part.inserted.offsets, True, version)
        deleted, deleted_at = self._entries(part.deleted.old, part.deleted.offsets, False, version)
        new = self._new_codes()
        known, at = np.unique(inserted.key, return_index=True)  # versions ascend
        first, mine = np.zeros(len(new.key), np.int64), np.isin(new.key, known)  # others are of a structure that this one has replaced
        first[mine] = inserted_at[at[np.searchsorted(known, new.key[mine])]]
        self._require_few()
        lengths = [len(one.slot) for one in (inserted, deleted, new)]
        kind = np.repeat(np.array([kinds.PARTNER_INSERT, kinds.PARTNER_DELETE, kinds.OUTER_INSERT], np.int8), lengths)
        offsets, taken = np.concatenate([inserted_at, deleted_at, first]), joined([inserted, deleted, new])
        if not len(offsets):
            return
        order = order_of(offsets, kind, taken.key, taken.left)
        taken, offsets, n = taken.take(order), offsets[order], len(order)
        moves = Moves(kind[order], taken.key, taken.left, taken.right, taken.slot, np.full(n, -1, np.int32), np.zeros(n, np.int64))
        deltas = self._cover.apply(version, moves, None if sink is None else sink.limit)
        if sink is not None:
            sink.take(offsets, deltas)

    def begin_anew(self, version: int) -> None:
        """Take over the codes from a structure that this one, which has no rows, has replaced. O(codes)."""
        self._columns.release_all(version, References())
        self._has_codes = True

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self._cover.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return self._has_codes and self._columns.reclaim(oldest_needed, pins)

    # --- reading

    def _window(self, window: Bounds | None) -> tuple[int, int] | None:
        return None if window is None else window.get(self._span)

    def rows(self, root: CoverRoot, window: Bounds | None) -> Enumeration:
        return SlotsCursor(self._cover.stretches(root, None, self._window(window)), stretch_rows)

    def partners(self, root: CoverRoot, position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        """For the code of a group, or none."""
        return SlotsCursor(self._cover.stretches(root, int(slots[0]) if len(slots) else -1, self._window(window)), stretch_rows)

    def of_key(self, root: CoverRoot, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        raise TypeError("a group is looked up by its code")

    def is_empty(self, root: CoverRoot) -> bool | None:
        return not root.partners.counts[0]

    def entries(self, root: CoverRoot) -> int:
        return root.partners.counts[0]

    @property
    def bytes(self) -> int:
        return self._cover.bytes + self._columns.bytes

    @property
    def stores(self) -> Sequence[Store]:
        return (self._cover.rows.arena, self._cover.partners.arena)

    def check(self) -> None:
        """Also verify that the structure has exactly the rows of the newest version."""
        self._cover.check()
        self._columns.check()
        table = self._input.relation.table
        slots = np.empty(0, np.int32) if self._never else self._input.chosen(table.scan(NEWEST, 0, table.used + 1)[0])
        assert self._cover.partners.root.counts[0] == len(slots), "rows are kept that are not there"
        assert self._cover.rows.root.counts[0] == self._codes, "codes have no row"

"""Any join, by lookups: the aliases are bound one after another, each by the index that best fits those already bound (`binding`).

Only the indexes are stored. Conditions that an index does not cover are checked on each candidate, and a bound row may turn out to have no
partner, so only the number of candidates bounds the delay between rows and the cost of a change (`best-effort`). A changed row is bound
first.

A batch goes through the aliases one by one: first all deletes, while the later aliases still have theirs, then all inserts, so that each
row of the delta belongs to exactly one of its parts. A changed row's rows are reported before its delete, and after its insert.

Costs: space O(n) an index; a change O(log n) an index and its candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from service.planning.binding import Binding, Index
from service.tables.changes import DividedRun, Runs, by_version, parted
from service.tables.inputs import Input
from service.tables.resolution import Resolution, Slots
from service.tables.store import PIECE_ROWS, Numbers
from service.views.deltas import Sink, emit
from service.views.joins.indexed_cursor import IndexedCursor, IndexedPlan, IndexedRoot, KeptIndex
from service.views.joins.protocol import Bounds, Join, Store
from service.views.joins.slots_cursor import GivenRowsCursor, scan_of
from structures.join_tree.cursors import Start


class IndexedJoin(Join):
    """See the module docstring; `protocol` describes the methods. `indexes`: the i-th belongs to the steps of `binding` whose index is i;
    the last one to the alias that is bound first, if it is `listed`."""

    update_steps = 0  # bindings visited and lookups, over all changes

    def __init__(self, inputs: Sequence[Input], binding: Binding, never: bool, listed: bool) -> None:
        """`listed`: an index holds the rows of the alias that is bound first, too; otherwise they are read from their table."""
        self.inputs, self.binding, self.never = list(inputs), binding, never
        kept = [*binding.indexes, Index(binding.first, (), None)] if listed else binding.indexes
        self.indexes = [KeptIndex(inputs[index.position], index) for index in kept]
        self._indexed = IndexedPlan(self.inputs, binding, self.indexes, never)
        self._version = 0
        self._listed = listed
        self._of_position = [[one for one in self.indexes if one.source.input.position == input.position] for input in inputs]

    @property
    def root(self) -> IndexedRoot:
        return IndexedRoot(self._version, tuple(index.tree.root for index in self.indexes))

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        self._version = version
        if self.never:
            return
        for number, index in enumerate(self.indexes):
            index.load(version, index.source.input.rows_of(version))
            progress((number + 1) / len(self.indexes))

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        for index in self.indexes:
            one = resolved.get(index.source.input.relation.name)
            if one is not None:
                index.require(len(one.deletes) + one.inserts.num_rows, one.inserts.num_rows, one.inserts.bytes)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        self._version = version
        for offset, changes in by_version({} if self.never else runs):
            self._apply_one(version, offset, changes, sink)

    def _apply_one(self, version: int, offset: int, runs: Runs, sink: Sink | None) -> None:
        """Apply the changes of one version."""
        parts: dict[int, DividedRun] = {}
        for input in self.inputs:
            run = runs.get(input.relation.name)
            if run is not None:
                parts[input.position] = part = parted(input, run, sink is not None)
                if len(part.moved.new):
                    for index in self._of_position[input.position]:
                        index.move(version, part.moved.old, part.moved.new)
        for position, part in parts.items():
            if len(slots := self.inputs[position].chosen(part.deleted.old)):
                sink = self._emit(sink, offset, False, position, slots)
                for index in self._of_position[position]:
                    index.delete(version, slots)
        for position, part in parts.items():
            if len(slots := self.inputs[position].chosen(part.inserted.new)):
                for index in self._of_position[position]:
                    index.insert(version, slots)
                sink = self._emit(sink, offset, True, position, slots)

    def _emit(self, sink: Sink | None, offset: int, inserted: bool, position: int, slots: Slots) -> Sink | None:
        """Report the rows of these changed ones, by the indexes as they are now; return None once the sink wants no more."""
        if sink is None:
            return None
        cursor = IndexedCursor(self._indexed, self.root, position, GivenRowsCursor((slots,)), None)
        wanted = True
        while wanted and not cursor.done:
            rows = cursor.fill(PIECE_ROWS)
            wanted = emit(sink, offset, inserted, rows)
        self.update_steps += cursor.steps
        return sink if wanted else None

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return any(index.reclaim(oldest_needed, pins) for index in self.indexes)

    def rows(self, root: IndexedRoot, window: Bounds | None) -> IndexedCursor:
        position = self.binding.first
        start: Start = scan_of(self.inputs[position], root.version)
        if self._listed:
            start = self.indexes[-1].of_code(root.roots[-1], 0)
        return IndexedCursor(self._indexed, root, position, start, window)

    def partners(self, root: IndexedRoot, position: int, slots: Slots, window: Bounds | None) -> IndexedCursor:
        return IndexedCursor(self._indexed, root, position, GivenRowsCursor((self.inputs[position].chosen(slots),)), window)

    def of_key(self, root: IndexedRoot, position: int, key: pa.RecordBatch, window: Bounds | None) -> IndexedCursor:
        return IndexedCursor(self._indexed, root, position, scan_of(self.inputs[position], root.version, key), window)

    def is_empty(self, root: IndexedRoot) -> bool | None:
        return True if self.never or any(one.counts[0] == 0 for one in root.roots) else None

    def entries(self, root: IndexedRoot) -> int:
        return sum(one.counts[0] for one in root.roots)

    @property
    def bytes(self) -> int:
        return sum(index.bytes for index in self.indexes)

    @property
    def stores(self) -> Sequence[Store]:
        return [index.tree.arena for index in self.indexes]

    def check(self) -> None:
        for index in self.indexes:
            index.check()

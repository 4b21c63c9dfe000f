"""A hierarchical natural join by a view tree over the service's shared indexes (`tables.indexes`), which are up to date before it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from service.planning.plans.plan import Path
from service.tables.changes import Runs, versions_of
from service.tables.indexes import Order, SharedIndex, SharedIndexes
from service.tables.interest import Touched
from service.tables.resolution import NO_SLOTS, Indices, Resolved, Slots
from service.tables.sides import Side
from service.tables.store import Numbers
from service.views.deltas import Sink, tell
from service.views.joins.product_join import These
from service.views.joins.protocol import Bounds, Enumeration
from service.views.joins.slots_cursor import SlotsCursor
from structures.view_tree.tree import Atom, Root, ViewTree


class ViewTreeJoin:
    """See the module's head; what the methods do is said in `protocol`."""

    def __init__(self, sides: Sequence[Side], paths: Sequence[Path], never: bool, indexes: SharedIndexes, own: bool) -> None:
        """`own`: nobody else has these indexes, nor brings them up to date. OSError, MemoryError: there is no room."""
        self.sides, self.never = list(sides), never
        self.indexes, self._own, self._paths = indexes, own, paths
        self._taken: list[SharedIndex] = []
        self._tree: ViewTree | None = None
        self._touched = Touched(())  # of what room was asked for last
        if not never:
            indexes.make_room()

    @property
    def root(self) -> Root | None:
        return self._tree.root if self._tree is not None else None

    @property
    def update_steps(self) -> int:
        return self._tree.update_steps if self._tree is not None else 0

    @property
    def flips(self) -> int:
        """Prefixes that became live, or died, in all changes so far."""
        return self._tree.flipped if self._tree is not None else 0

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) for the indexes that nobody had, O(n) for the tree."""
        if self.never:
            return
        for done, (side, path) in enumerate(zip(self.sides, self._paths, strict=True), 1):
            self._taken.append(self.indexes.take(self, version, side, Order(path.columns, path.same)))
            progress(done / (len(self.sides) + 1))
        atoms = [Atom(one.number, path.variables) for one, path in zip(self._taken, self._paths, strict=True)]
        self._tree = self.indexes.plant(self, version, atoms)

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        if self._own:
            self._touched = Touched(resolved.values())
            self.indexes.require(resolved, self._touched, True)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Once the indexes have followed."""
        if self._own:
            self.indexes.apply(version, runs, self._touched)
        if self._tree is None:
            return
        if versions_of(runs) == 1:
            self._tree.follow(self.indexes.batch, None if sink is None else lambda sign, slots: sink(0, sign > 0, tuple(slots)))
        elif (applied := self.indexes.applied) is not None:
            limit = None if sink is None else sink.limit
            deltas = self._tree.follow_in_order(applied.run, limit, np.isin(applied.order.offsets, self._unchanged(runs)))
            if sink is not None:
                tell(sink, applied.order, deltas, lambda part: tuple(deltas.rows[:, part]))

    def _unchanged(self, runs: Runs) -> Indices:
        """The offsets of the versions that leave all that the view uses as it was."""
        found = [np.empty(0, np.int64)]
        for name, run in runs.items():
            both = np.flatnonzero((run.old >= 0) & (run.new >= 0))
            varying = list(dict.fromkeys(column for side in self.sides if side.relation.name == name for column in side.varying))
            if len(both) and varying:
                table = next(side.relation.table for side in self.sides if side.relation.name == name)
                both = both[table.same(varying, run.old[both], run.new[both])]
            found.append(run.offsets[both])
        return np.concatenate(found)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> None:
        if self._own:
            self.indexes.reclaim(oldest_needed, pins)

    def rows(self, root: Root | None, window: Bounds | None) -> Enumeration:
        return self._nothing() if self._tree is None or root is None else SlotsCursor(self._tree.rows(root))

    def partners(self, root: Root | None, place: int, slots: Slots, window: Bounds | None) -> Enumeration:
        if self._tree is None or root is None:
            return self._nothing()
        return SlotsCursor(self._tree.partners(root, place, self._taken[place].entries(slots, False)[0]))

    def of_key(self, root: Root | None, place: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        coordinates = None if self._tree is None else self._taken[place].key(key)
        if self._tree is None or root is None or coordinates is None:
            return self._nothing()
        return SlotsCursor(self._tree.of_key(root, place, coordinates))

    def _nothing(self) -> These:
        return These((NO_SLOTS,) * len(self.sides))

    def is_empty(self, root: Root | None) -> bool:
        return self._tree is None or root is None or self._tree.is_empty(root)

    def entries(self, root: Root | None) -> int:
        return sum(map(self.indexes.count, self._taken))

    @property
    def bytes(self) -> int:
        """Live prefixes, and of an index that several views or aliases have its share."""
        return sum(map(self.indexes.bytes_of, self._taken)) + (self._tree.live_bytes if self._tree is not None else 0)

    @property
    def retired_bytes(self) -> int:
        return self.indexes.retired_bytes if self._own else 0

    def check(self) -> None:
        if self._tree is not None:
            self.indexes.check()
            self._tree.check()

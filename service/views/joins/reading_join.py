"""Natural joins whose structure reads the service's shared indexes (`tables.indexes`), which are up to date before it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from service.planning.plans.plan import Plan
from service.query.model import Query
from service.tables.changes import Runs, versions_of
from service.tables.indexes import Key, SharedIndexes
from service.tables.interest import Touched
from service.tables.loading import Loading
from service.tables.resolution import NO_SLOTS, Indices, Resolved, Slots
from service.tables.shared_index import Order, SharedIndex
from service.tables.sides import Side
from service.tables.store import Numbers
from service.views.deltas import Sink, tell
from service.views.joins.product_join import These
from service.views.joins.protocol import Bounds, Defaults, Enumeration
from service.views.joins.slots_cursor import SlotsCursor, Slotted
from structures.adaptive.bow_tie import BowTie
from structures.adaptive.intersect import Intersect
from structures.core.runs import Deltas
from structures.index.following import Atom, Member
from structures.index.indexes import Batch, Entries, Run
from structures.minesweeper.minesweeper import Minesweeper
from structures.tree_tracker.tracker import TreeTracker
from structures.view_tree.tree import ViewTree


class Reader(Protocol):
    """A structure over indexes that others write. `own_bytes`: what it keeps besides them."""

    @property
    def root(self) -> Any: ...

    @property
    def own_bytes(self) -> int: ...

    @property
    def update_steps(self) -> int: ...

    def follow(self, batch: Batch, sink: Callable[[int, Any], bool] | None) -> None: ...

    def follow_in_order(self, run: Run, offsets: Indices, limit: int | None, quiet: Any) -> Deltas: ...

    def rows(self, root: Any) -> Slotted: ...

    def partners(self, root: Any, place: int, entries: Entries) -> Slotted: ...

    def of_key(self, root: Any, place: int, coordinates: Sequence[int]) -> Slotted: ...

    def is_empty(self, root: Any) -> bool | None: ...

    def check(self) -> None: ...


R = TypeVar("R", bound=Reader)


class ReadingJoin(Defaults, ABC, Generic[R]):
    """See the module's head; what the methods do is said in `protocol`."""

    def __init__(self, query: Query, plan: Plan, sides: Sequence[Side], indexes: SharedIndexes, own: bool) -> None:
        """`own`: nobody else has these indexes, nor brings them up to date. OSError, MemoryError: there is no room."""
        self.sides, self.never, self._plan = list(sides), query.never, plan
        self.indexes, self._own = indexes, own
        self._loading: dict[Key, Loading] = {}  # while it is built: what nobody else has
        self._taken: list[SharedIndex] = []
        self._of_alias: list[SharedIndex] = []  # of each the one by which its entries and keys are given
        self._reader: R | None = None
        self._touched = Touched(())  # of what room was asked for last
        if not self.never:
            indexes.make_room()

    @abstractmethod
    def _make(self, version: int, atoms: Sequence[Atom]) -> R:
        """The structure over these."""

    @property
    def root(self) -> Any:
        return self._reader.root if self._reader is not None else None

    @property
    def update_steps(self) -> int:
        return self._reader.update_steps if self._reader is not None else 0

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) for the indexes that nobody has. Those that others have, too, come with `conclude`."""
        wanted = [(side, Order(path.columns, path.same)) for side, paths in zip(self.sides, self._tracks, strict=True) for path in paths]
        for done, (side, order) in enumerate(wanted):
            key = self.indexes.key(side, order)
            loading = None if key in self._loading else self.indexes.loading(side, order)
            if loading is not None:
                self._loading[key] = loading
                loading.load(version, lambda part, done=done: progress((done + part) / len(wanted)))  # type: ignore[misc]
        if self._own:
            self.conclude(version)

    def settle(self) -> None:
        """Follow what was noted while it is built."""
        for loading in self._loading.values():
            loading.settle()

    def conclude(self, version: int) -> None:
        """Take the indexes, at the newest version, with all of its changes noted. Cost: O(n), and that of the structure."""
        if self._reader is not None or self.never:
            return
        atoms: list[Atom] = []
        for side, paths in zip(self.sides, self._tracks, strict=True):
            taken = [self._take(version, side, Order(path.columns, path.same)) for path in paths]
            self._taken += taken
            self._of_alias.append(taken[0])
            atoms.append(tuple(Member(one.number, path.variables) for one, path in zip(taken, paths, strict=True)))
        self._reader = self._make(version, atoms)

    def _take(self, version: int, side: Side, order: Order) -> SharedIndex:
        return self.indexes.take(self, version, side, order, self._loading.pop(self.indexes.key(side, order), None))

    def abandon(self, version: int) -> None:
        for loading in self._loading.values():
            loading.abandon(version)
        self._loading = {}

    @property
    def _tracks(self) -> Sequence[Sequence[Any]]:
        """Of each alias the indexes that it is read by; of none if it never has a row."""
        return ((),) * len(self.sides) if self.never else self._plan.tracks

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        if self._own:
            self._touched = Touched(resolved.values())
            self.indexes.require(resolved, self._touched, True)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Once the indexes have followed."""
        if self._own:
            self.indexes.apply(version, runs, self._touched)
        if self._reader is None:
            for loading in self._loading.values():
                if (run := runs.get(loading.index.relation.name)) is not None:
                    loading.note(run)
            return
        if versions_of(runs) == 1:
            self._reader.follow(self.indexes.batch, None if sink is None else lambda sign, slots: sink(0, sign > 0, tuple(slots)))
        elif (applied := self.indexes.applied) is not None:
            offsets, limit = applied.order.offsets, None if sink is None else sink.limit
            deltas = self._reader.follow_in_order(applied.run, offsets, limit, np.isin(offsets, self._unchanged(runs)))
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

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return self._own and self.indexes.reclaim(oldest_needed, pins)

    def rows(self, root: Any, window: Bounds | None) -> Enumeration:
        return self._nothing() if self._reader is None or root is None else SlotsCursor(self._reader.rows(root))

    def partners(self, root: Any, place: int, slots: Slots, window: Bounds | None) -> Enumeration:
        if self._reader is None or root is None:
            return self._nothing()
        return SlotsCursor(self._reader.partners(root, place, self._of_alias[place].entries(slots, False)[0]))

    def of_key(self, root: Any, place: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        coordinates = None if self._reader is None else self._of_alias[place].key(key)
        if self._reader is None or root is None or coordinates is None:
            return self._nothing()
        return SlotsCursor(self._reader.of_key(root, place, coordinates))

    def _nothing(self) -> These:
        return These((NO_SLOTS,) * len(self.sides))

    def is_empty(self, root: Any) -> bool | None:
        return self._reader is None or root is None or self._reader.is_empty(root)

    def entries(self, root: Any) -> int:
        """Of each alias, once: whatever the number of its indexes."""
        return sum(map(self.indexes.count, self._of_alias))

    @property
    def bytes(self) -> int:
        """What the structure keeps, and of an index that several views or aliases have its share."""
        return sum(map(self.indexes.bytes_of, self._taken)) + (self._reader.own_bytes if self._reader is not None else 0)

    @property
    def retired_bytes(self) -> int:
        return self.indexes.retired_bytes if self._own else 0

    def check(self) -> None:
        if self._reader is not None:
            self.indexes.check()
            self._reader.check()


class ViewTreeJoin(ReadingJoin[ViewTree]):
    """A hierarchical join."""

    def _make(self, version: int, atoms: Sequence[Atom]) -> ViewTree:
        """Cost: O(n)."""
        return self.indexes.plant(self, version, lambda indexes: ViewTree(indexes, atoms))

    @property
    def flips(self) -> int:
        """Prefixes that became live, or died, in all changes so far."""
        return self._reader.flipped if self._reader is not None else 0


class TreeTrackerJoin(ReadingJoin[TreeTracker]):
    """An acyclic join."""

    def _make(self, version: int, atoms: Sequence[Atom]) -> TreeTracker:
        return TreeTracker(self.indexes.structure, atoms, self._plan.edges)


class MinesweeperJoin(ReadingJoin[Minesweeper]):
    """A join of any class."""

    def _make(self, version: int, atoms: Sequence[Atom]) -> Minesweeper:
        return Minesweeper(self.indexes.structure, atoms, self._plan.levels)


class IntersectJoin(ReadingJoin[Intersect]):
    """A join of a chain of variable sets."""

    def _make(self, version: int, atoms: Sequence[Atom]) -> Intersect:
        return Intersect(self.indexes.structure, atoms)


class BowTieJoin(ReadingJoin[BowTie]):
    """R(x), S(x, y), T(y), with a two-dimensional tree of its own."""

    def _make(self, version: int, atoms: Sequence[Atom]) -> BowTie:
        """Cost: O(n log U), U the range of the values."""
        return self.indexes.plant(self, version, lambda indexes: BowTie(indexes, atoms))

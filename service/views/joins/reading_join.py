"""Natural joins whose structure reads the service's shared indexes (`tables.indexes`), which are updated before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

import numpy as np
import pyarrow as pa

from service.planning.plans.plan import Plan
from service.query.model import Query
from service.tables.changes import INSERT, SIGNS, Runs
from service.tables.indexes import Key, SharedIndexes
from service.tables.inputs import Input
from service.tables.interest import TouchedRows
from service.tables.loading import IndexLoad
from service.tables.resolution import NO_SLOTS, Indices, Resolution, Slots
from service.tables.shared_index import Order, SharedIndex
from service.tables.store import Numbers
from service.views.deltas import Sink
from service.views.joins.protocol import Bounds, Enumeration, Join, Store
from service.views.joins.slots_cursor import GivenRowsCursor, SlotsCursor
from structures.adaptive.bow_tie import BowTie
from structures.adaptive.elimination import Elimination
from structures.adaptive.intersect import Intersect
from structures.index.following import Atom, Member
from structures.index.planting import IndexLoader
from structures.minesweeper.minesweeper import Minesweeper
from structures.tree_tracker.tracker import TreeTracker
from structures.view_tree.tree import ViewTree

_ALONE = object()


Reader = ViewTree | TreeTracker | Minesweeper | Intersect | Elimination | BowTie
R = TypeVar("R", bound=Reader)


class ReadingJoin(Join, ABC, Generic[R]):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, query: Query, plan: Plan, inputs: Sequence[Input], indexes: SharedIndexes, own: bool, part: bool) -> None:
        """`own`: the indexes are private, and this join updates them; `part`: permanently. OSError, MemoryError: there is no room."""
        self.inputs, self.never, self._plan = list(inputs), query.never, plan
        self.indexes, self._own, self._part = indexes, own, part
        self._generation = indexes.generation
        self._loading: dict[Key, IndexLoad] = {}  # while it is built: indexes that do not exist yet
        self._taken: list[SharedIndex] = []  # in the order of `_wanted`
        self._of_alias: list[SharedIndex] = []  # for each alias the index that provides its entries and keys
        self._held = 0  # while it is built: the held version
        self._planted: IndexLoader | None = None  # while it is built: the reader, if it has trees of its own
        self._reader: R | None = None  # once it is built
        self._touched = TouchedRows(())  # changes of the last call of `require`
        if not self.never:
            indexes.make_room()

    @property
    def _owner(self) -> object:
        """The owner known to the indexes: private ones do not hold this object, so all are freed at once, without the cycle collector."""
        return _ALONE if self._own else self

    @abstractmethod
    def _make(self, atoms: Sequence[Atom]) -> R:
        """Return the structure over these."""

    @property
    def root(self) -> Any:
        return self._reader.root if self._reader is not None else None

    @property
    def update_steps(self) -> int:
        return self._reader.update_steps if self._reader is not None else 0

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) for the indexes that do not exist yet. `conclude` makes the structure that reads them."""
        self._load(version, progress)
        while self._own and not self.conclude(version):
            self.hold(version)
            self.settle()

    def _load(self, version: int, progress: Callable[[float], None]) -> None:
        """Load the wanted indexes that are not taken yet and do not exist."""
        wanted = self._wanted
        for done in range(len(self._taken), len(wanted)):
            input, order = wanted[done]
            key = self.indexes.key(self._generation, input, order)
            loading = None if key in self._loading else self.indexes.loading(key, input, order)
            if loading is not None:
                self._loading[key] = loading
                loading.load(version, lambda part, done=done: progress((done + part) / len(wanted)))  # type: ignore[misc]

    def hold(self, version: int) -> None:
        self._held = version
        if self._planted is not None:
            self._planted.hold()

    def settle(self) -> None:
        """Follow the changes recorded while it is built, and determine what comes next."""
        for loading in self._loading.values():
            loading.settle()
        self._load(self._held, lambda part: None)  # another join had it, and has dropped it since
        if self._planted is not None:
            self._planted.gather()

    def conclude(self, version: int) -> bool:
        """Take the indexes, loaded ones a piece per step; then do the steps of a structure that has trees of its own."""
        if self._reader is not None or self.never:
            return True
        if self._planted is None:
            if not self._take_some(version):
                return False
            reader = self._make(self._atoms)
            if not isinstance(reader, IndexLoader):
                self._reader = reader
                return True
            self._planted = reader
            self.indexes.plant(self._owner, reader)
            return False
        if not self.indexes.advance(version, self._planted):
            return False
        self._reader, self._planted = cast(R, self._planted), None
        return True

    def _take_some(self, version: int) -> bool:
        """Take indexes, up to one that was loaded; return whether it has all."""
        wanted, put = self._wanted, False
        while len(self._taken) < len(wanted) and not put:
            input, order = wanted[len(self._taken)]
            key = self.indexes.key(self._generation, input, order)
            made = self._loading.get(key)
            one = self.indexes.take(self._owner, version, key, input, made)
            if one is None:
                return False
            self._loading.pop(key, None)
            self._taken.append(one)
            put = made is not None
        return len(self._taken) == len(wanted)

    @property
    def _atoms(self) -> list[Atom]:
        """Return the indexes of each alias, once all are taken."""
        atoms, taken = [], iter(self._taken)
        for paths in self._tracks:
            own = [next(taken) for _ in paths]
            self._of_alias.append(own[0])
            atoms.append(tuple(Member(one.number, path.variables) for one, path in zip(own, paths, strict=True)))
        return atoms

    def abandon(self, version: int) -> None:
        for loading in self._loading.values():
            self.indexes.give_up(loading, version)
        self._loading, self._planted = {}, None
        self.indexes.forget(self._owner)

    @property
    def _tracks(self) -> Sequence[Sequence[Any]]:
        """Return the indexes by which each alias is read; none if it never has a row."""
        return ((),) * len(self.inputs) if self.never else self._plan.tracks

    @property
    def _wanted(self) -> list[tuple[Input, Order]]:
        """The indexes of all aliases, one after another."""
        tracks = zip(self.inputs, self._tracks, strict=True)
        return [(input, Order(path.columns, path.same)) for input, paths in tracks for path in paths]

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        if self._own:
            self._touched = TouchedRows(resolved.values())
            self.indexes.require(resolved, self._touched, True)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Called after the indexes have followed the changes."""
        if self._own:
            self.indexes.apply(version, runs, self._touched)
        if self._reader is None:
            for loading in self._loading.values():
                if (run := runs.get(loading.index.relation.name)) is not None:
                    loading.note(run)
            for position, index in enumerate(self._of_alias):
                if self._planted is not None and (run := runs.get(index.relation.name)) is not None:
                    slots = np.concatenate((run.old[run.old >= 0], run.new[run.new >= 0]))
                    self._planted.note(position, index.entries(slots, False)[0])
            return
        if (applied := self.indexes.applied) is None:
            return

        def emit(sink: Sink, at: Indices, rows: Slots) -> int:
            offsets, kinds = np.divmod(applied.ticks[at], len(SIGNS))
            return 0 if sink(offsets, kinds == INSERT, tuple(rows)) else len(SIGNS) * (offsets.item(-1) + 1)

        self._reader.follow(applied, None if sink is None else partial(emit, sink))

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return self._own and self.indexes.reclaim(oldest_needed, pins)

    def rows(self, root: Any, window: Bounds | None) -> Enumeration:
        return self._nothing() if self._reader is None or root is None else SlotsCursor(self._reader.rows(root))

    def partners(self, root: Any, position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        if self._reader is None or root is None:
            return self._nothing()
        return SlotsCursor(self._reader.partners(root, position, self._of_alias[position].entries(slots, False)[0]))

    def of_key(self, root: Any, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        coordinates = None if self._reader is None else self._of_alias[position].key(key)
        if self._reader is None or root is None or coordinates is None:
            return self._nothing()
        return SlotsCursor(self._reader.of_key(root, position, coordinates))

    def _nothing(self) -> GivenRowsCursor:
        return GivenRowsCursor((NO_SLOTS,) * len(self.inputs))

    def is_empty(self, root: Any) -> bool | None:
        return self._reader is None or root is None or self._reader.is_empty(root)

    def entries(self, root: Any) -> int:
        """Entries of each alias, counted once, whatever the number of its indexes."""
        return sum(map(self.indexes.count, self._of_alias))

    @property
    def bytes(self) -> int:
        """Bytes of the structure, and its share of indexes that several views or aliases use. Replaced indexes count nothing: what readers
        need of them is counted by the indexes."""
        if isinstance(self._reader, IndexLoader) and not self.indexes.has(self._owner):
            return 0
        return sum(map(self.indexes.bytes_of, self._taken)) + (self._reader.own_bytes if self._reader is not None else 0)

    @property
    def stores(self) -> Sequence[Store]:
        return self.indexes.stores if self._own else ()

    def is_outgrown(self, version: int) -> bool:
        """Also true if after a replay it has indexes of its own that others may have as well, or if its indexes are of a former
        generation."""
        if self._reader is None:
            return False
        return (self._own and not self._part) or self._reader.is_outgrown or self._generation < self.indexes.generation

    def check(self) -> None:
        if self._reader is not None:
            self.indexes.check()
            self._reader.check()


class ViewTreeJoin(ReadingJoin[ViewTree]):
    """A hierarchical join."""

    def _make(self, atoms: Sequence[Atom]) -> ViewTree:
        return ViewTree(self.indexes.structure, atoms)

    @property
    def flips(self) -> int:
        """Number of prefixes that became live or dead, over all changes."""
        return self._reader.flipped if self._reader is not None else 0


class TreeTrackerJoin(ReadingJoin[TreeTracker]):
    """An acyclic join."""

    def _make(self, atoms: Sequence[Atom]) -> TreeTracker:
        return TreeTracker(self.indexes.structure, atoms, self._plan.edges)


class MinesweeperJoin(ReadingJoin[Minesweeper]):
    """A join of any class."""

    def _make(self, atoms: Sequence[Atom]) -> Minesweeper:
        return Minesweeper(self.indexes.structure, atoms, self._plan.levels)


class IntersectJoin(ReadingJoin[Intersect]):
    """A join of a chain of variable sets."""

    def _make(self, atoms: Sequence[Atom]) -> Intersect:
        return Intersect(self.indexes.structure, atoms)


class EliminationJoin(ReadingJoin[Elimination]):
    """R(x), S(x, y), T(y), without structures of its own."""

    def _make(self, atoms: Sequence[Atom]) -> Elimination:
        return Elimination(self.indexes.structure, atoms)


class BowTieJoin(ReadingJoin[BowTie]):
    """R(x), S(x, y), T(y), with a two-dimensional tree of its own."""

    def _make(self, atoms: Sequence[Atom]) -> BowTie:
        return BowTie(self.indexes.structure, atoms)

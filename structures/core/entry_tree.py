"""The base of the classes that keep entries: loading, changing, and the reporting of deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from structures.core.arena import EntryBlocks
from structures.core.control import VERSION
from structures.core.entries import Entries, RowBuffer
from structures.core.kernel import contiguous
from structures.core.runs import MISSING, REFUSED, RunChanges, Sink, report
from structures.core.versioned import VersionedStructure

CHUNK = 1 << 16  # rows of a delta that a sink receives at once

Store = TypeVar("Store", bound=EntryBlocks)


class EntryRoot(NamedTuple):
    """One version of a tree, with the number of entries of each set: plain data, valid as long as the version is pinned."""

    offset: int
    height: int  # 0 where readers need none
    counts: tuple[int, ...]
    live: bool


class EntryTree(VersionedStructure[Store]):
    """Entries of some sets under change. One thread writes; any number read roots of pinned versions meanwhile.

    `_change(changes, deltas)` of a subclass calls its writing kernel with all other arguments: it continues a run (`core/runs.py`) until
    all is done or `_out` is full, and returns the number of rows reported, or REFUSED.
    """

    _change: Callable[[RunChanges, bool], int]

    def __init__(self, arena: Store, sets: int, members: int, state: np.ndarray) -> None:
        """`members`: the number of slots of a row; `state`: of the writing kernel, beginning with that of a run."""
        self.arena = arena
        self._sets, self._state = sets, state
        self._out = np.empty((members, CHUNK), np.int32)
        self._emitted = RowBuffer(self._out.reshape(-1), CHUNK)

    @property
    def root(self) -> EntryRoot:
        """The newest version, published or not."""
        raise NotImplementedError

    def _order(self, entries: Entries) -> np.ndarray:
        """Return int64[n]: the places of the entries in the best order for changing them."""
        raise NotImplementedError

    def _load(self, entries: Entries) -> None:
        """Build the tree, which is empty, from these entries, of which there is at least one."""
        raise NotImplementedError

    def _columns(self, entries: Entries) -> Entries:
        """Return the same entries, of which there is at least one, in the form that the kernels take. Raises TypeError or ValueError if the
        columns do not fit this structure."""
        entries.require_columns()
        return entries

    def _run_of(self, signs: np.ndarray, entries: Entries) -> Entries:
        """Return the entries of a run, as `_columns` does. Raises TypeError or ValueError if the signs are invalid, or not one for each
        entry."""
        contiguous((np.int8,), (signs,))
        if len(signs) != len(entries.key):
            raise ValueError(f"a run has a sign for each entry, not {len(signs)} for {len(entries.key)}")
        return self._columns(entries) if len(signs) else entries

    def _begin(self, version: int) -> None:
        self.arena.C[VERSION] = version

    def bulk_load(self, version: int, entries: Entries) -> EntryRoot:
        """Fill an empty tree. Returns the root. O(n log n). Raises ValueError if it is not empty, MemoryError (nothing done) if it cannot
        fit."""
        if any(self.root.counts):
            raise ValueError("bulk_load fills an empty tree only")
        n = len(entries.key)
        if n:
            entries = self._columns(entries)
            entries.require(self._sets)
        self.arena.require(n)
        self._begin(version)
        if n:
            self._load(entries)
        return self.root

    def is_empty(self, root: EntryRoot) -> bool:
        """Return whether the version has no row. O(1)."""
        return not root.live

    def require(self, changes: int, applies: int) -> None:
        """Raise MemoryError unless `changes` deletes and inserts, in `applies` calls of `apply`, surely fit. O(1)."""
        self.arena.require(changes, applies)

    def apply(self, version: int, signs: np.ndarray, entries: Entries, ticks: np.ndarray, sink: Sink | None) -> EntryRoot:
        """Delete and insert entries, as `version` (above every previous version): by ascending tick, those of one tick in the order that
        suits the tree. Returns the root.

        signs: int8[n], of `core/entries`: DELETE, INSERT; LEAVE, ENTER without a delta. ticks: int64[n], >= 0. Each change reports the rows
        of its entry in the tree as it is then; sink None: no delta is computed. Deleted entries must be there and inserted ones not
        (KeyError: the tree is then damaged). Raises MemoryError with nothing done.
        """
        entries, n = self._run_of(signs, entries), len(signs)
        self.arena.require(n)
        self._begin(version)
        if n:
            order, done = self._in_order(entries, ticks), np.zeros(n, np.int64)

            def go_on(end: int, deltas: bool) -> int:
                return self._go_on(RunChanges(signs, entries, order[:end], done), deltas)

            emitted = None if sink is None else lambda at, rows: sink(order[at], rows)
            report(self._state, done, self._out, go_on, ticks[order], emitted)
            if self._state.item(MISSING):
                raise KeyError(f"{self._state[MISSING]} deleted entries were not in the tree")
        return self.root

    def _in_order(self, entries: Entries, ticks: np.ndarray) -> np.ndarray:
        """Return int64[n]: the places of the entries in the order in which they are changed."""
        if len(ticks) < 2 or (ticks[1:] > ticks[:-1]).all():
            return np.arange(len(ticks))
        order = self._order(entries)
        return order[np.argsort(ticks[order], kind="stable")]

    def _go_on(self, changes: RunChanges, deltas: bool) -> int:
        """Continue a run. Returns the number of rows reported. Raises ValueError, with nothing done, if an entry is invalid."""
        emitted = self._change(changes, deltas)
        if emitted == REFUSED:
            changes.entries.require(self._sets)
        return emitted

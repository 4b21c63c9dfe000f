"""What `IJHeap` and `CliqueTree` share: the tree of `tree.py`, how it is loaded, changed and reclaimed; they differ in what a node says
of the entries below it, and so in what a change tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from structures.core.compaction import LOOKED_AT
from structures.core.control import VERSION
from structures.core.entries import Entries, Told
from structures.core.versioned import Versioned
from structures.multiway.changes import ACTIVE, AT, MISSING, REFUSED, Changes, entry_order
from structures.multiway.compaction import compact
from structures.multiway.layout import MultiwayArena
from structures.multiway.topology import SETS
from structures.multiway.tree import build, make_empty

CHUNK = 1 << 16  # rows of a delta that a sink gets at once

Sink = Callable[[int, np.ndarray], bool]


class Root(NamedTuple):
    """One version of a tree: plain data, good as long as its version is pinned."""

    offset: int
    height: int
    counts: tuple[int, ...]
    live: bool


class MultiwayTree(Versioned[MultiwayArena]):
    """One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, arena: MultiwayArena, scratch: np.ndarray, members: int) -> None:
        """`scratch`: int64, for the summaries; `members`: the slots of a row."""
        self.arena = arena
        self._arrays = arena.nodes, arena.writing, scratch
        make_empty(*self._arrays)
        self._sets = int(arena.T[SETS])
        self._promised = 0  # words, to the changes that room was asked for last
        self._state = np.zeros(3, np.int64)
        self._out = np.empty((members, CHUNK), np.int32)
        self._told = Told(self._out.reshape(-1), CHUNK)

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        raise NotImplementedError

    def _change(self, state: np.ndarray, changes: Changes, deltas: bool) -> int:
        """Run the writing kernel until there is no room for more rows, or all is done; how many rows were told."""
        raise NotImplementedError

    def bulk_load(self, version: int, entries: Entries) -> Root:
        """Fill an empty tree. O(n log n). Raises ValueError if it is not empty, MemoryError (nothing done) if it cannot fit."""
        if any(self.root.counts):
            raise ValueError("bulk_load fills an empty tree only")
        entries.require(self._sets)
        self.arena.require(len(entries.key))
        self.arena.C[VERSION] = version
        if len(entries.key):
            build(*self._arrays, entries, entry_order(entries.set, entries.key, entries.left, entries.slot))
        return self.root

    def require(self, changes: int, applies: int) -> None:
        """Raise MemoryError unless so many deletes and inserts, in so many calls of `apply`, surely fit. O(1)."""
        self._promised = self.arena.require(changes, applies)

    def apply(self, version: int, deletes: Entries, inserts: Entries, sink: Sink | None) -> Root:
        """All deletes, then all inserts, as `version` (above every version before).

        `sink(sign, slots)` gets the delta in chunks: sign -1 or 1, slots int32[t, n] of its own. It returns False to get no more (the
        changes go on). None: no delta is computed. Deleted entries must be there and inserted ones not (KeyError: the tree is then
        damaged). MemoryError: nothing was done.
        """
        if len(deletes.key) and len(inserts.key):
            inserts.require(self._sets)  # before deletes are written; what else there is the kernel looks at first
        self.arena.require(len(deletes.key) + len(inserts.key))
        self.arena.C[VERSION] = version
        for sign, entries in ((-1, deletes), (1, inserts)):
            if len(entries.key):
                sink = self._run(sign, entries, sink)
        if self.arena.is_sparse:
            compact(*self._arrays[:2], LOOKED_AT * (len(deletes.key) + len(inserts.key)), self._promised)
        return self.root

    def _run(self, sign: int, entries: Entries, sink: Sink | None) -> Sink | None:
        """Apply one sign; the sink, or None once it wants no more."""
        entries.require_columns()
        N, out = self._state, self._out
        N[:] = 0
        changes = Changes(sign, entries, entry_order(entries.set, entries.key, entries.left, entries.slot))
        while N[AT] < len(changes.order):
            n = self._change(N, changes, sink is not None)
            if n == REFUSED:
                entries.require(self._sets)
            if sink is not None and n and not sink(sign, out[:, :n].copy()):
                sink = None
                N[ACTIVE] = 0
        if N[MISSING]:
            raise KeyError(f"{N[MISSING]} deleted entries were not in the tree")
        return sink

    def is_empty(self, root: Root) -> bool:
        """Whether the version has no row. O(1)."""
        return not root.live

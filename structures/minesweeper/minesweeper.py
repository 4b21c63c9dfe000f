r"""Minesweeper: natural joins by the gaps between the values of ordered indexes, without any further state except a cache of gaps.

Problem: report the rows of a natural join (a row is one slot per atom); all of them, those of given entries or of a given key of an atom,
and the change that a batch or each of many single changes makes; at any version that is still pinned. Where few comparisons prove the
result (a *certificate* C), few look-ups find it, however many entries there are.

    R(A)  1 2 3 4 5 6 7 8 9          one probe, (-, -), finds S's gap before 7 and T's gap behind 3: C = 1 comparison, T's last value with
    S(A, B)  7,1  7,2  8,1           S's first, proves that there is no row; no index is read through
    T(A)  1 2 3

A search keeps the gaps that it meets in a constraint tree (`cds.py`), asks it for the least tuple that may yet be a row (`shadow.py`; all
rows of a triangle: `triangle.py`), and looks that up in all atoms (`walk.py`). The variables are searched in one order; where an entry or a
key is given, its variables are bound (`shape.py`). The tree of the readings of all rows is kept for the versions to come
(`logged_tree.py`), but not that of a triangle. Nested elimination orders, which beta-acyclic joins have, give the bounds below; others
depend on their width.

Invariants, by which `check()` names what broke
    M1  the roots of the atoms are those of their indexes
    M2  all indexes of an atom have as many entries as it counts
    M3 to M7  of the constraint trees (`cds.py`, `triangle.py`)

Costs (n entries, Z rows, C the least certificate for the order)
    follow      O(1) a changed entry, besides its rows, found by a search with its variables bound
    rows        O((C + Z) log n) in a nested elimination order, otherwise O((C^(w + 1) + Z) log n) by its width w; no bound between two
                rows, and none once the tree was full; for a triangle see `triangle.py`
    memory      the kept tree, up to 64 MiB once all rows were read; up to 16 MiB while another reading lasts
Differences from the paper: only gaps along the probed tuple are inserted, one an atom, not 2^arity of them; rows are not constraints, as
the search continues after them.
Source: *Beyond Worst-case Analysis for Joins with Minesweeper*; *Towards Instance Optimal Join Algorithms for Data in Indexes*, Section
3.3; docs/design/natural-joins.md (*minesweeper*).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np

from structures.core import cursor
from structures.core.entries import RowBuffer
from structures.core.kernel import compiled
from structures.index.following import ONE, Atom, IndexReader, Member
from structures.index.indexes import Entries, OrderedIndexes, items_of
from structures.index.layout import IndexArena
from structures.minesweeper.cds import KEPT_SIZE, PRIVATE_SIZE, ConstraintTree, Size
from structures.minesweeper.logged_tree import Keeper, Lease
from structures.minesweeper.shadow import AT, CONSTRAINTS, COVERED, FORGOTTEN, GAP, LOOKUPS, OUTPUTS, PAIRS, PROBES, RESETS, STEPS
from structures.minesweeper.shape import ATOMS, GIVEN, TRIANGLE, MinesweeperShape, index_orders
from structures.minesweeper.triangle import TriangleTree
from structures.minesweeper.walk import STATE_WORDS, MinesweeperWalk, mine

__all__ = ["Atom", "MinesweeperCursor", "Member", "Minesweeper", "MinesweeperRoot", "index_orders"]


class MinesweeperRoot(NamedTuple):
    """One version: the roots of the atoms' indexes, the number of entries of each atom, and the lease of the kept tree. Plain data, valid
    as long as the version is pinned."""

    roots: tuple[int, ...]
    counts: tuple[int, ...]
    lease: Lease


class _SharedTree:
    """The tree that a cursor and its clones share, made when the first of them needs it."""

    def __init__(self) -> None:
        self.tree: ConstraintTree | None = None
        self._lock = Lock()

    def take(self, make: Callable[[], ConstraintTree]) -> ConstraintTree:
        with self._lock:
            if self.tree is None:
                self.tree = make()
            return self.tree


class MinesweeperCursor(cursor.Cursor):
    """A reading. Its steps are look-ups, steps in the constraint tree, and rows; its dead ends are probes that were not rows."""

    _STEPS, _GAP = STEPS, GAP
    _BUDGET = 1 << 16  # a step in the constraint tree takes several times as long as one in an index

    def __init__(
        self,
        arena: IndexArena,
        walking: MinesweeperWalk,
        items: Entries,
        make: Callable[[], ConstraintTree],
        kept: tuple[Keeper, Lease] | None,
    ) -> None:
        """`make`: makes an empty tree; `kept`: returns the kept tree, if available."""
        super().__init__(int(walking.plan[ATOMS]) + int(walking.plan[GIVEN] >= 0), walking.state)
        self._arena, self._walking, self._items = arena, walking, items_of(items)
        self._ended = len(items.slot) == 0
        self._make, self._kept = make, kept
        self._takes_kept = kept is not None and not walking.plan[TRIANGLE]
        self._own = _SharedTree()  # shared by clones

    def _more(self, want: int) -> np.ndarray:
        out = np.empty((len(self._nothing), want), np.int32)
        tree = self._take()
        try:
            n = self._walk(RowBuffer(out.reshape(-1), want), tree)
        finally:
            tree.lock.release()
        if self._kept is not None and self._Z[COVERED]:
            self._kept[0].note_empty(self._kept[1])
        self._ended = self._Z.item(AT) == len(self._items.slots)
        return out[:, :n]

    def _take(self) -> ConstraintTree:
        """A tree, with its lock held: the kept one, that of this cursor and its clones, or an empty one if these are in use."""
        tree = self._kept[0].take(self._kept[1]) if self._kept is not None and self._takes_kept else None
        if tree is None:
            tree = self._own.take(self._make)
            if not tree.lock.acquire(blocking=False):
                tree = self._make()
                tree.lock.acquire()
        return tree

    def use(self, tree: ConstraintTree) -> None:
        """Use this empty tree instead of an own one."""
        self._own.tree = tree

    def _walk(self, emitted: RowBuffer, tree: ConstraintTree) -> int:
        lost = tree.make_room()
        if lost >= 0:
            self._Z[RESETS] += 1
            self._Z[FORGOTTEN] += lost
        return int(compiled(mine)(self._arena.nodes, tree.arrays, self._walking, self._items, emitted, self._BUDGET))

    def clone(self) -> Self:
        """An independent cursor at the same place, which shares the constraints of a single item."""
        other = super().clone()
        other._walking = self._walking._replace(state=other._Z)
        if len(self._items.slots) > 1:  # constraints are those below one item, and the two cursors soon differ in theirs
            other._own = _SharedTree()
        return other

    @property
    def dead_ends(self) -> int:
        return int(self._Z[PROBES] - self._Z[OUTPUTS])

    @property
    def counters(self) -> dict[str, int]:
        """Tuples probed, those that are in all atoms; for a triangle the pairs of values of its first two variables visited; look-ups as
        the paper counts them, one a coordinate; intervals inserted; how often a full tree was cleared, and intervals lost by that."""
        is_triangle = bool(self._walking.plan[TRIANGLE])
        return {name: int(self._Z[word]) for name, word in _COUNTERS.items() if is_triangle or word != PAIRS}


_COUNTERS = {
    "probes": PROBES, "outputs": OUTPUTS, "pairs": PAIRS, "lookups": LOOKUPS, "constraints": CONSTRAINTS, "resets": RESETS,
    "forgotten": FORGOTTEN,
}  # fmt: skip


class Minesweeper(IndexReader):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(
        self, indexes: OrderedIndexes, atoms: Sequence[Atom], order: Sequence[int], size: Size = PRIVATE_SIZE, kept: Size = KEPT_SIZE,
    ) -> None:  # fmt: skip
        """Over atoms with the members that `index_orders` names, all loaded; their variables are searched in this order. `size`, `kept`:
        the maximum sizes of a reading's own constraint tree, and of the kept one. ValueError: not 2 to 8 atoms, not 1 to 8 variables, or
        other indexes."""
        self.shape = MinesweeperShape(atoms, [[indexes.arity(one.index) for one in atom] for atom in atoms], order)
        self._size, self._keeper = size, Keeper(kept, not self.shape.plan(None, False)[TRIANGLE])
        self._scratch: ConstraintTree | None = None  # for deltas
        self._trees: WeakKeyDictionary[ConstraintTree, None] = WeakKeyDictionary()  # of readings, and the one for deltas
        super().__init__(indexes, atoms)

    @property
    def root(self) -> MinesweeperRoot:
        """The newest version, published or not."""
        return MinesweeperRoot(tuple(self._roots.tolist()), tuple(self._counts), self._keeper.newest)

    def _change(self, atom: int, sign: int, entries: Entries, common: np.ndarray) -> None:
        super()._change(atom, sign, entries, common)
        levels = self.shape.levels(atom)
        new = common < len(levels) if sign > 0 else np.zeros(len(common), np.bool_)
        self._keeper.follow(atom, levels, entries.coordinates[new])

    # --- reading

    def is_empty(self, root: MinesweeperRoot) -> bool | None:
        """True if an atom has no entry, or a reading has found no row; None otherwise: only reading the rows can decide. O(1)."""
        return True if min(root.counts) == 0 or self._keeper.is_empty(root.lease) else None

    def rows(self, root: MinesweeperRoot) -> MinesweeperCursor:
        """All rows, in the order of the variables."""
        return self._cursor(root, None, False, ONE)

    def partners(self, root: MinesweeperRoot, position: int, entries: Entries) -> MinesweeperCursor:
        """The rows in which atom `position` is one of these entries, in their order, which are not looked up."""
        return self._cursor(root, position, True, entries)

    def _rows_of_changed(self, atom: int, entries: Entries) -> MinesweeperCursor:
        """With one tree for all deltas, cleared: a new one takes longer than most deltas."""
        cursor = self.partners(self.root, atom, entries)
        if self._scratch is None:
            self._scratch = self._make()
        self._scratch.clear()
        cursor.use(self._scratch)
        return cursor

    def of_key(self, root: MinesweeperRoot, position: int, coordinates: Sequence[int]) -> MinesweeperCursor:
        """The rows in which atom `position` has these values in all its variables."""
        return self._cursor(root, position, False, self._entry(position, coordinates))

    def _cursor(self, root: MinesweeperRoot, position: int | None, given: bool, items: Entries) -> MinesweeperCursor:
        walking = MinesweeperWalk(self.shape.plan(position, given), np.array(root.roots, np.int64), np.zeros(STATE_WORDS, np.int64))
        kept = (self._keeper, root.lease) if position is None else None
        kind = TriangleTree if walking.plan[TRIANGLE] else ConstraintTree
        return MinesweeperCursor(self.indexes.arena, walking, items, partial(self._make, kind), kept)

    def _make(self, kind: type[ConstraintTree] = ConstraintTree) -> ConstraintTree:
        tree = kind(self._size)
        self._trees[tree] = None
        return tree

    def _private(self) -> list[ConstraintTree]:
        """The trees of all readings in use, and the one for deltas."""
        return [tree for reference in self._trees.keyrefs() if (tree := reference()) is not None]

    @property
    def own_bytes(self) -> int:
        """Bytes of the kept tree, the one for deltas, and those of all readings in use. Any thread."""
        return self._keeper.bytes + sum(tree.bytes for tree in self._private())

    def kept(self) -> list[tuple[tuple[int | None, ...], int, int, int]]:
        """For each kept constraint the pattern, with a value or None (any) for each level before that of the interval, its least and
        greatest value, and its mask, as of the newest version. Slow, for tests."""
        return self._keeper.constraints()

    def check(self) -> None:
        """Prove M1 and M2 of the newest version, and M3 to M7 of all trees; AssertionError names the invariant."""
        self.check_roots("M")
        self._keeper.check()
        for tree in self._private():
            with tree.lock:
                tree.check()

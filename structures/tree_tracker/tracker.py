r"""TreeTracker: acyclic natural joins by look-ups in ordered indexes, with nothing kept beside these.

Problem: tell the rows of a natural join (a row is a slot an atom) whose atoms form a join tree; all of them, those of given entries or of a
given key of an atom, and the change that a batch or each of many single changes makes; at any version that is still pinned. In all it takes
no more look-ups than the rows, and the entries that are in none, ask for, though no join is reduced by semi-joins first.

Atoms are ordered indexes, which somebody else writes and other views may read too (`index/indexes.py`): of each atom one for each key by
which a neighbour looks it up (`shape.py`). A walk starts at the atom with the fewest entries, or at the changed one, and goes down the tree
(`walk.py`). What it learns, the no-goods, is a cache of this reading and its clones (`no_goods.py`): it is not kept for later versions, as
an entry that comes may revive others far up the tree.

    G(g, p), P(p), C(p, c), D(c)       G - P - C - D       (g, p) is looked up in P, p in C, c in D; a c that D lacks is a no-good
                                                           of C, and a p is one of P once all its c are

Invariants, by which `check()` names what broke
    T1  the roots of the atoms are those of their indexes
    T2  all indexes of an atom have as many entries as it counts

Costs (t atoms, n entries, r rows)
    follow      O(1) a changed entry, besides its rows, which are a walk from it
    rows        (t - 1) (r + removed) look-ups of O(log n) at most, removed <= n; no bound between two rows
    TT-gamma    as `rows`, and a look-up for each entry and child first: none fails afterwards
    memory      none; 32 bytes a no-good while a reading lasts, up to 32 MiB, beyond which no more are kept
Differences from the paper: entries are removed, not values; an iteration that has ended is not taken for one that failed (`walk.py`);
look-ups cost O(log n) in an index that others maintain, instead of O(1) in a hash table that is built for each reading.
Source: *TreeTracker Join: A Composable Join Algorithm that Yields Optimal Acyclic Multi-Way Joins*; docs/design/natural-joins.md
(*tree-tracker*).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from structures.core.entries import Told
from structures.core.kernel import compiled
from structures.core.runs import Deltas
from structures.index.following import Atom, IndexReader, Member
from structures.index.indexes import Entries, OrderedIndexes, items_of
from structures.index.layout import IndexArena
from structures.tree_tracker.no_goods import NoGoods
from structures.tree_tracker.shape import Shape, index_orders
from structures.tree_tracker.walk import (
    AT,
    FORGOTTEN,
    GAP,
    LEVEL,
    LOOKUPS,
    NO_GOODS,
    PHASE,
    REDUCE,
    REMOVED,
    STATE_WORDS,
    STEPS,
    Walking,
    tracker_fill,
)

__all__ = ["Atom", "Cursor", "Deltas", "Member", "Root", "TreeTracker", "index_orders"]

_BUDGET = 1 << 18  # steps of a call: milliseconds


class Root(NamedTuple):
    """One version: the roots of the atoms' indexes, and the entries of each atom. Plain data, good as long as the version is pinned."""

    roots: tuple[int, ...]
    counts: tuple[int, ...]


class Cursor:
    """A reading; plain data beside the indexes. `fill` releases the GIL."""

    def __init__(self, arena: IndexArena, plan: np.ndarray, roots: Sequence[int], items: Entries, reduced: bool) -> None:
        self._arena, self._t, self._items = arena, int(plan[0]), items_of(items)
        self._no_goods = NoGoods()
        self._walking = Walking(plan, np.array(roots, np.int64), np.zeros(STATE_WORDS, np.int64), self._no_goods.table)
        if reduced:
            self._walking.Z[LEVEL], self._walking.Z[PHASE] = self._t - 1, REDUCE

    def fill(self, limit: int) -> np.ndarray:
        """Up to `limit` >= 1 further rows, int32[t, rows]: their slots. May have none before the end (`done`)."""
        out = np.empty((self._t, limit), np.int32)
        told = Told(out.reshape(-1), limit)
        if self._no_goods.lock.acquire(blocking=False):
            try:
                n = self._fill(told, self._no_goods)
            finally:
                self._no_goods.lock.release()
        else:  # a clone has them: what it knows is found again
            n = self._fill(told, NoGoods())
        return out if n == limit else out[:, :n]

    def _fill(self, told: Told, known: NoGoods) -> int:
        known.grow()
        walking = self._walking._replace(T=known.table)
        return int(compiled(tracker_fill)(self._arena.nodes, walking, self._items, told, _BUDGET))

    @property
    def done(self) -> bool:
        return self._walking.Z.item(AT) == len(self._items.slots)

    def clone(self) -> Cursor:
        """An independent cursor at the same place, which shares what is known of no-goods."""
        other = copy.copy(self)
        other._walking = self._walking._replace(Z=self._walking.Z.copy())
        return other

    @property
    def steps(self) -> int:
        """Look-ups, steps of loops and past no-goods, and rows."""
        return int(self._walking.Z[STEPS])

    @property
    def largest_gap(self) -> int:
        """The most steps between two rows so far."""
        return int(self._walking.Z[GAP])

    @property
    def dead_ends(self) -> int:
        """Entries that were found to be in no row."""
        return int(self._walking.Z[REMOVED])

    @property
    def counters(self) -> dict[str, int]:
        """Look-ups; entries removed; those of them that were noted as no-goods, and those that found no room."""
        Z = self._walking.Z
        return {name: int(Z[word]) for name, word in _COUNTERS.items()}


_COUNTERS = {"lookups": LOOKUPS, "removed": REMOVED, "no_goods": NO_GOODS, "forgotten": FORGOTTEN}


class TreeTracker(IndexReader):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom], edges: Sequence[tuple[int, int]]) -> None:
        """Over atoms with the members that `index_orders` names, all loaded, joined by these edges of a join tree. ValueError: not 2 to 8
        atoms, no join tree, or other indexes."""
        self.shape = Shape(atoms, [[indexes.arity(one.index) for one in atom] for atom in atoms], edges)
        super().__init__(indexes, atoms)

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        return Root(tuple(self._roots), tuple(self._counts))

    # --- reading

    def is_empty(self, root: Root) -> bool | None:
        """Whether the version has no row, where an atom has no entry; None: only its rows tell. O(1)."""
        return True if min(root.counts) == 0 else None

    def rows(self, root: Root, start: int | None = None, reduced: bool = False) -> Cursor:
        """All rows, in the order of the index of atom `start`, which is the smallest if nobody says. `reduced`: by TT-gamma."""
        if start is None:
            start = root.counts.index(min(root.counts))
        return self._cursor(root, start, 0, _ONE, reduced)

    def partners(self, root: Root, place: int, entries: Entries) -> Cursor:
        """The rows in which atom number `place` is one of these entries, in their order, which are not looked up."""
        return self._cursor(root, place, -1, entries, False)

    def of_key(self, root: Root, place: int, coordinates: Sequence[int]) -> Cursor:
        """The rows in which atom number `place` has these values in all its variables."""
        variables = self.shape.members[self.shape.first[place]].variables
        if len(coordinates) != len(variables):
            raise ValueError(f"atom {place} has {len(variables)} variables, {len(coordinates)} are given")
        return self._cursor(root, place, len(variables), Entries(np.array([coordinates], np.int64), _ONE.slot), False)

    def _cursor(self, root: Root, start: int, prefix: int, items: Entries, reduced: bool) -> Cursor:
        order = sorted(range(self.shape.t), key=lambda atom: root.counts[atom])
        return Cursor(self.indexes.arena, self.shape.plan(start, prefix, tuple(order)), root.roots, items, reduced)

    def check(self) -> None:
        """Prove T1 and T2 of the newest version; AssertionError names the invariant."""
        self.check_roots("T")


_ONE = Entries(np.zeros((1, 1), np.int64), np.zeros(1, np.int32))

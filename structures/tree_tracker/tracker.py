r"""TreeTracker: acyclic natural joins by look-ups in ordered indexes, without any further state.

Problem: report the rows of a natural join (a row is one slot per atom) whose atoms form a join tree; all of them, those of given entries or
of a given key of an atom, and the change that a batch or each of many single changes makes; at any version that is still pinned. The number
of look-ups is bounded by the rows and by the entries that are in none, without a reduction by semi-joins first.

Atoms are ordered indexes, which are written elsewhere and may be shared by other views (`index/indexes.py`): each atom has one for each key
by which a neighbour looks it up (`shape.py`). A walk starts at the atom with the fewest entries, or at the changed one, and goes down the
tree (`walk.py`). The no-goods that it finds are a cache of this reading and its clones (`no_goods.py`): they are not kept for later
versions, as a new entry may revive others far up the tree.

    G(g, p), P(p), C(p, c), D(c)       G - P - C - D       (g, p) is looked up in P, p in C, c in D; a c that D lacks is a no-good
                                                           of C, and a p is one of P once all its c are

Invariants, by which `check()` names what broke
    T1  the roots of the atoms are those of their indexes
    T2  all indexes of an atom have as many entries as it counts

Costs (t atoms, n entries, r rows)
    follow      O(1) a changed entry, besides its rows, which are a walk from it
    rows        (t - 1) (r + removed) look-ups of O(log n) at most; removed <= n while all no-goods are kept, otherwise each may be removed
                again; no bound between two rows
    TT-gamma    as `rows`, and a look-up for each entry and child first: none fails afterwards, with as much room
    memory      none; 32 bytes a no-good while a reading lasts, up to 32 MiB a reading (`own_bytes`), beyond which no more are kept
Differences from the paper: entries are removed, not values; an iteration that has ended is not treated as failed (`walk.py`);
look-ups cost O(log n) in an index that others maintain, instead of O(1) in a hash table that is built for each reading.
Source: *TreeTracker Join: A Composable Join Algorithm that Yields Optimal Acyclic Multi-Way Joins*; docs/design/natural-joins.md
(*tree-tracker*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np

from structures.core import cursor
from structures.core.entries import INSERT, RowBuffer
from structures.core.kernel import compiled
from structures.core.runs import BEGUN, Sink, report
from structures.index.following import CHUNK, ONE, Atom, IndexReader, Member
from structures.index.indexes import Entries, OrderedIndexes, Run, items_of
from structures.index.layout import IndexArena
from structures.tree_tracker.no_goods import NoGoods
from structures.tree_tracker.runs import RUN_STATE, Groups, follow_run
from structures.tree_tracker.shape import POSITIONS, TreeTrackerShape, index_orders
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
    TreeTrackerWalk,
    tracker_fill,
)

__all__ = ["Atom", "TreeTrackerCursor", "Member", "TreeTrackerRoot", "TreeTracker", "index_orders"]


class TreeTrackerRoot(NamedTuple):
    """One version: the roots of the atoms' indexes, and the number of entries of each atom. Plain data, valid as long as the version is
    pinned."""

    roots: tuple[int, ...]
    counts: tuple[int, ...]


class TreeTrackerCursor(cursor.Cursor):
    """A reading. Its steps are look-ups, steps of loops and past no-goods, and rows; its dead ends are entries found to be in no row."""

    _STEPS, _GAP, _DEAD = STEPS, GAP, REMOVED

    def __init__(self, arena: IndexArena, plan: np.ndarray, roots: np.ndarray, items: Entries, no_goods: NoGoods) -> None:
        super().__init__(int(plan[POSITIONS]), np.zeros(STATE_WORDS, np.int64))
        self._arena, self._items, self._no_goods = arena, items_of(items), no_goods
        self._walking = TreeTrackerWalk(plan, roots, self._Z, no_goods.table)
        self._ended = len(items.slot) == 0

    def reduce(self) -> None:
        """For a cursor that has not begun: begin with TT-gamma, a pass over all entries that marks those without partners as no-goods."""
        self._Z[LEVEL], self._Z[PHASE] = len(self._nothing) - 1, REDUCE

    def _more(self, want: int) -> np.ndarray:
        out = np.empty((len(self._nothing), want), np.int32)
        emitted = RowBuffer(out.reshape(-1), want)
        if self._no_goods.lock.acquire(blocking=False):
            try:
                n = self._walk(emitted, self._no_goods)
            finally:
                self._no_goods.lock.release()
        else:  # a clone holds them: what it knows is found again
            n = self._walk(emitted, NoGoods())
        self._ended = self._Z.item(AT) == len(self._items.slots)
        return out[:, :n]

    def _walk(self, emitted: RowBuffer, known: NoGoods) -> int:
        known.grow()
        walking = self._walking._replace(table=known.table)
        return int(compiled(tracker_fill)(self._arena.nodes, walking, self._items, emitted, self._BUDGET))

    def clone(self) -> Self:
        """An independent cursor at the same place, which shares the known no-goods."""
        other = super().clone()
        other._walking = self._walking._replace(state=other._Z)
        return other

    @property
    def counters(self) -> dict[str, int]:
        """Look-ups; entries removed; those that were stored as no-goods, and those for which there was no room."""
        return {name: int(self._Z[word]) for name, word in _COUNTERS.items()}


_COUNTERS = {"lookups": LOOKUPS, "removed": REMOVED, "no_goods": NO_GOODS, "forgotten": FORGOTTEN}


class TreeTracker(IndexReader):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom], edges: Sequence[tuple[int, int]]) -> None:
        """Over atoms with the members that `index_orders` names, all loaded, joined by these edges of a join tree. ValueError: not 2 to 8
        atoms, not a join tree, or other indexes."""
        self.shape = TreeTrackerShape(atoms, [[indexes.arity(one.index) for one in atom] for atom in atoms], edges)
        super().__init__(indexes, atoms)
        self._walk = np.zeros(STATE_WORDS, np.int64)
        self._out = np.empty((self.shape.t, CHUNK), np.int32)
        self._tables: WeakKeyDictionary[NoGoods, None] = WeakKeyDictionary()

    @property
    def root(self) -> TreeTrackerRoot:
        """The newest version, published or not."""
        return TreeTrackerRoot(tuple(self._roots.tolist()), tuple(self._counts))

    # --- following

    def follow(self, run: Run, sink: Sink | None) -> None:
        """As `IndexReader.follow`. The changes of one tick and index must be one after another."""
        starts = run.groups
        wanted = np.abs(run.signs[starts[:-1]]) == INSERT
        members, order = self._members_of(run.indexes), self._by_size(self._counts)
        plans = np.concatenate([self.shape.plan(a, -1, order) for a in range(self.shape.t)])
        groups = Groups(plans, np.array([*self.first, len(self._roots)]), starts, members, run.after, wanted)
        state, done = np.zeros(RUN_STATE, np.int64), np.zeros(len(starts) - 1, np.int64)
        walking, known = TreeTrackerWalk(plans[: len(plans) // self.shape.t].copy(), self._roots, self._walk, _NO_TABLE), NoGoods()
        items, emitted = items_of(run.entries), RowBuffer(self._out.reshape(-1), CHUNK)

        def go_on(end: int, deltas: bool) -> int:
            nonlocal known
            if state[BEGUN]:
                known.grow()
            else:
                known = NoGoods()
            some = groups._replace(starts=starts[: end + 1], wanted=wanted if deltas else np.zeros_like(wanted))
            return int(
                compiled(follow_run)(self.indexes.arena.nodes, walking._replace(table=known.table), some, items, emitted, done, state)
            )

        given = None if sink is None else lambda ticks, rows: sink(starts[ticks], rows)
        report(state, done, self._out, go_on, run.ticks[starts[:-1]], given)
        for a, first in enumerate(self.first):
            self._counts[a] += int(np.sign(run.signs[members >> first & 1 != 0]).sum())

    # --- reading

    def is_empty(self, root: TreeTrackerRoot) -> bool | None:
        """True if an atom has no entry, so that the version has no row; None otherwise: only reading the rows can decide. O(1)."""
        return True if min(root.counts) == 0 else None

    def rows(self, root: TreeTrackerRoot, start: int | None = None, reduced: bool = False) -> TreeTrackerCursor:
        """All rows, in the order of the index of atom `start`, by default the smallest. `reduced`: by TT-gamma."""
        if start is None:
            start = root.counts.index(min(root.counts))
        cursor = self._cursor(root, start, 0, ONE)
        if reduced:
            cursor.reduce()
        return cursor

    def partners(self, root: TreeTrackerRoot, position: int, entries: Entries) -> TreeTrackerCursor:
        """The rows in which atom `position` is one of these entries, in their order, which are not looked up."""
        return self._cursor(root, position, -1, entries)

    def of_key(self, root: TreeTrackerRoot, position: int, coordinates: Sequence[int]) -> TreeTrackerCursor:
        """The rows in which atom `position` has these values in all its variables."""
        return self._cursor(root, position, len(coordinates), self._entry(position, coordinates))

    def _cursor(self, root: TreeTrackerRoot, start: int, prefix: int, items: Entries) -> TreeTrackerCursor:
        plan, no_goods = self.shape.plan(start, prefix, self._by_size(root.counts)), NoGoods()
        self._tables[no_goods] = None
        return TreeTrackerCursor(self.indexes.arena, plan, np.array(root.roots, np.int64), items, no_goods)

    def _by_size(self, counts: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(range(self.shape.t), key=lambda atom: counts[atom]))

    @property
    def update_steps(self) -> int:
        """Steps of all deltas so far, as cursors count them."""
        return super().update_steps + int(self._walk[STEPS])

    @property
    def own_bytes(self) -> int:
        """Bytes of the tables of all readings in use. Any thread."""
        return sum(table.bytes for table in (reference() for reference in self._tables.keyrefs()) if table is not None)

    def check(self) -> None:
        """Prove T1 and T2 of the newest version; AssertionError names the invariant."""
        self.check_roots("T")


_NO_TABLE = np.empty(0, np.int64)

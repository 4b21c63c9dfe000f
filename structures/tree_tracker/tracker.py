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
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from structures.core.entries import DELETE, INSERT, Told
from structures.core.kernel import compiled
from structures.core.runs import Deltas
from structures.index.indexes import Batch, Entries, OrderedIndexes, Run, items_of
from structures.index.layout import IndexArena
from structures.tree_tracker.no_goods import NoGoods
from structures.tree_tracker.shape import Atom, Member, Shape, index_orders
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

_CHUNK = 1 << 16
_FIRST = 1 << 8  # rows of the first step of a delta
_BUDGET = 1 << 18  # steps of a call: milliseconds

Sink = Callable[[int, np.ndarray], bool]


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


class TreeTracker:
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom], edges: Sequence[tuple[int, int]]) -> None:
        """Over atoms with the members that `index_orders` names, all loaded, joined by these edges of a join tree. ValueError: not 2 to 8
        atoms, no join tree, or other indexes."""
        self.indexes = indexes
        self.shape = Shape(atoms, [[indexes.arity(one.index) for one in atom] for atom in atoms], edges)
        self._roots = [indexes.root(one.index) for one in self.shape.members]
        self._counts = [indexes.count(atom[0].index, indexes.root(atom[0].index)) for atom in atoms]
        self._of_atom = [[m for m, a in enumerate(self.shape.atom_of) if a == atom] for atom in range(len(atoms))]
        self._told_steps = 0

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        return Root(tuple(self._roots), tuple(self._counts))

    # --- following

    def follow(self, batch: Batch, sink: Sink | None) -> None:
        """Follow what happened to the indexes. Every batch with one of this view's is to be followed, before the next.

        `sink(sign, slots)` gets the delta in chunks, deletes first: sign -1 or 1, slots int32[t, n] of its own; each row comes once, by the
        last of its parts to change. It returns False to get no more. None: no delta is computed.
        """
        mine = [[(m, batch[i]) for m in own if (i := self.shape.members[m].index) in batch] for own in self._of_atom]
        for halves in mine:
            for m, (deletes, _) in halves:
                self._roots[m] = deletes.before
        for step, sign in enumerate((DELETE, INSERT)):
            for atom, halves in enumerate(mine):
                if not halves:
                    continue
                entries = halves[0][1][step].entries
                if sink is not None and len(entries.slot) and not self._tell(atom, entries, sign, sink):
                    sink = None
                for m, both in halves:
                    self._roots[m] = both[step].after
                self._counts[atom] += sign * len(entries.slot)

    def follow_in_order(self, run: Run, offsets: np.ndarray, limit: int | None, quiet: np.ndarray | None = None) -> Deltas:
        """Follow single changes, and tell what they did, as those before left the view; of those of other indexes nothing.

        offsets: int64[n], ascending: changes of one number and sign are the same entries in several indexes, and the rows stand at the
        first of them. quiet: bool[n], changes whose rows are not wanted. Deltas of more than `limit` rows are given up; None: there are
        none.
        """
        n, total = len(run.signs), 0
        starts, ends, too_large = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
        parts = [np.empty((self.shape.t, 0), np.int32)]
        cuts = (np.flatnonzero((np.diff(offsets) != 0) | (np.diff(run.signs) != 0)) + 1).tolist()
        for first, end in zip([0, *cuts], [*cuts, n], strict=True) if n else ():
            told: list[np.ndarray] | None = None if limit is None or (quiet is not None and quiet[first]) else []
            rows = self._follow_some(run, first, end, told, limit or 0)
            too_large[first] = told is not None and rows > (limit or 0)
            starts[first:end], ends[first:end] = total, total
            if told and not too_large[first]:
                parts += told
                total += rows
                ends[first], starts[first + 1 : end], ends[first + 1 : end] = total, total, total
        return Deltas(starts, ends, np.concatenate(parts, axis=1), too_large)

    def _follow_some(self, run: Run, first: int, end: int, told: list[np.ndarray] | None, limit: int) -> int:
        """Changes of one sign, which are one change of the rows; how many rows were told, up to a few more than `limit`."""
        numbers, count = run.indexes[first:end].tolist(), 0

        def gather(_: int, rows: np.ndarray) -> bool:
            nonlocal count
            count += rows.shape[1]
            if told is not None:
                told.append(rows)
            return count <= limit

        for atom, own in enumerate(self._of_atom):
            here = [first + i for i, number in enumerate(numbers) if number == self.shape.members[own[0]].index]
            if not here:
                continue
            if told is not None and count <= limit:
                self._tell(atom, run.entries.take(np.array(here)), 0, gather)
            for m in own:
                places = [i for i, number in enumerate(numbers) if number == self.shape.members[m].index]
                self._roots[m] = int(run.after[first + places[-1]])
            self._counts[atom] += int(run.signs[first]) * len(here)
        return count

    def _tell(self, atom: int, entries: Entries, sign: int, sink: Sink) -> bool:
        """The rows of these entries, with the other atoms as they are now; whether more are wanted."""
        cursor = self.partners(self.root, atom, entries)
        wanted, limit = True, _FIRST
        while wanted and not cursor.done:
            rows = cursor.fill(limit)
            limit = min(4 * limit, _CHUNK)
            wanted = rows.shape[1] == 0 or sink(sign, rows)
        self._told_steps += cursor.steps
        return wanted

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

    @property
    def update_steps(self) -> int:
        """Steps of all deltas so far, as cursors count them."""
        return self._told_steps

    def check(self) -> None:
        """Prove T1 and T2 of the newest version; AssertionError names the invariant."""
        for m, member in enumerate(self.shape.members):
            atom, root = self.shape.atom_of[m], self.indexes.root(member.index)
            assert self._roots[m] == root, f"T1: the root of atom {atom} by {member.variables}"
            count, mine = self.indexes.count(member.index, root), self._counts[atom]
            assert mine == count, f"T2: atom {atom} counts {mine} entries, its index by {member.variables} has {count}"


_ONE = Entries(np.zeros((1, 1), np.int64), np.zeros(1, np.int32))

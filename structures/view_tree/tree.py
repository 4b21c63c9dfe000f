r"""View trees: full hierarchical natural joins, maintained under updates.

Problem: report the rows of a natural join (a row is one slot per atom) in which the atoms of any two variables are nested or disjoint; all
of them, those of given entries or of a given key of an atom, and the exact change that a batch or each of many single changes causes; at
any version that is still pinned.

The variables then form a tree, and those of each atom a path from its root. An atom is an ordered index of the variables in path order,
which is written elsewhere and may be shared by other views (`index/indexes.py`). A node, wherever paths part or an atom ends, keeps an
index of its own: its *live prefixes*, those that all its children have, atoms or nodes. This is the productive list: from its first entry
on, every step leads to a row.

    R(x), S(x, y), T(x, y)          (x)        live: the x of R that have a live (x, y)
                                   /   \
                                  R   (x,y)    live: the (x, y) that S and T have
                                       / \
                                      S   T

Invariants, named by `check()` when violated
    V1  a node's live prefixes are those that all of its children have
    V2  the roots of the atoms are those of their indexes

Costs (t atoms, n entries, r rows)
    load            O(n)
    follow          O(t log n) a changed entry, besides its rows: look-ups, one a child of the nodes on its path
    rows            first row and between rows O(t) look-ups; O(1) amortised a row in order
    is_empty        O(1)
    memory          8 k + 4 bytes a live prefix of k coordinates, besides the indexes
Differences from the paper: no support count is kept for a prefix, as the trees show whether there is another entry below it.
Source: Berkholz, Keppeler and Schweikardt, *Answering Conjunctive Queries under Updates*; docs/design/natural-joins.md (*view-tree*).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from structures.core import cursor
from structures.core.entries import RowBuffer
from structures.core.kernel import compiled
from structures.core.runs import Sink, report
from structures.index.following import CHUNK, ONE, Atom, Member
from structures.index.indexes import Entries, OrderedIndexes, Run, items_of
from structures.index.layout import IndexArena
from structures.index.planting import IndexLoader
from structures.index.search import Items
from structures.view_tree.changes import FLIPPED, LOOKED, STATE, TupleChanges, View, follow_run, live_prefixes, recheck_all
from structures.view_tree.shape import HOLDER, PLAN_WORDS, ViewTreeShape, path_orders
from structures.view_tree.walk import AT, DEAD, GAP, STATE_WORDS, STEPS, ViewTreeWalk, view_fill

__all__ = ["Atom", "ViewTreeCursor", "Member", "ViewTreeRoot", "ViewTree", "path_orders"]

_ONE = items_of(ONE)


class ViewTreeRoot(NamedTuple):
    """One version: the roots of atoms and nodes. Plain data, valid as long as the version is pinned."""

    roots: tuple[int, ...]


class ViewTreeCursor(cursor.Cursor):
    """A reading. Its steps are look-ups, steps of loops, and rows; its dead ends are given entries that had no rows."""

    _STEPS, _GAP, _DEAD = STEPS, GAP, DEAD

    def __init__(self, arena: IndexArena, shape: ViewTreeShape, plan: int, roots: Sequence[int], items: Items) -> None:
        super().__init__(shape.t, np.zeros(STATE_WORDS, np.int64))
        self._arena, self._first, self._items = arena, plan * PLAN_WORDS, items
        self._walking = ViewTreeWalk(shape.plans, np.array(roots, np.int64), self._Z)
        self._ended = len(items.slots) == 0

    def _more(self, want: int) -> np.ndarray:
        out = np.empty((len(self._nothing), want), np.int32)
        emitted = RowBuffer(out.reshape(-1), want)
        n = compiled(view_fill)(self._arena.nodes, self._walking, self._first, self._items, emitted, self._BUDGET)
        self._ended = self._Z.item(AT) == len(self._items.slots)
        return out if n == want else out[:, :n]

    def clone(self) -> Self:
        other = super().clone()
        other._walking = self._walking._replace(state=other._Z)
        return other


class ViewTree(IndexLoader):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom]) -> None:
        """Over atoms with one index each, whose first coordinates are the variables in path order (`path_orders`). ValueError: not 2 to 8
        atoms, or they form no tree."""
        members = [member for atom in atoms for member in atom]
        self.shape = ViewTreeShape([one.variables for one in members], [indexes.arity(one.index) for one in members])
        super().__init__(indexes, atoms)
        self._live = [indexes.add(node.prefix) for node in self.shape.nodes]
        table = self.shape.table
        table[self.shape.t :, HOLDER] = [indexes.holder(index) for index in self._live]
        arena = indexes.arena
        self._arrays = arena.nodes, arena.writing
        self._roots = np.append(self._roots, np.zeros(len(self._live), np.int64))  # of the atoms, then of the nodes
        self._next = len(self._roots) - 1  # the node whose tree is to be built next
        self._walk, self._state = np.zeros(STATE_WORDS, np.int64), np.zeros(STATE, np.int64)
        self._view = View(table.reshape(-1), self._roots, self._state)
        self._out = np.empty((self.shape.t, CHUNK), np.int32)

    @property
    def root(self) -> ViewTreeRoot:
        """The newest version, published or not."""
        return ViewTreeRoot(tuple(self._roots.tolist()))

    # --- writing

    def _next_tree(self) -> Entries | None:
        """The live prefixes of the next node, whose children have been built. O(n)."""
        t, v, (members, roots, _) = self.shape.t, self._next, self._view
        if v < t:
            return None
        node = self.shape.nodes[v - t]
        sizes = [self.indexes.count(*self._tree(child)) for child in node.children]
        found = np.empty(min(sizes) * node.prefix, np.int64)
        n = live_prefixes(self._arrays[0], members, roots, v, np.zeros(2 * len(sizes), np.int64), found)
        return Entries(found[: n * node.prefix].reshape(n, node.prefix), np.zeros(n, np.int32))

    def _position(self) -> int:
        return self._live[self._next - self.shape.t]

    def _grown(self) -> None:
        self._roots[self._next] = self.indexes.root(self._live[self._next - self.shape.t])
        self._next -= 1

    def _recheck(self, atom: int, entries: Entries) -> None:
        self.indexes.require(len(entries.slot) * len(self.shape.above(atom)), 1)
        compiled(recheck_all)(*self._arrays, self._view, items_of(entries), atom)

    def _tree(self, member: int) -> tuple[int, int]:
        """The index of an atom or node, and its root."""
        t = self.shape.t
        return self.members[member].index if member < t else self._live[member - t], int(self._roots[member])

    @property
    def _own_indexes(self) -> Sequence[int]:
        return self._live

    def flips(self, counts: Mapping[int, int]) -> int:
        """The most live prefixes that these numbers of changes of the indexes can flip."""
        return sum(counts.get(one.index, 0) * len(self.shape.above(a)) for a, one in enumerate(self.members))

    def follow(self, run: Run, sink: Sink | None) -> None:
        """As `IndexReader.follow`. The changes of one tick and index must be one after another."""
        starts, own = run.groups, np.array([one.index for one in self.members], np.int64)
        changes = TupleChanges(run.indexes, run.signs, run.common, run.after, starts, own)
        walking, items = ViewTreeWalk(self.shape.plans, self._roots, self._walk), items_of(run.entries)
        emitted, done = RowBuffer(self._out.reshape(-1), CHUNK), np.zeros(len(starts) - 1, np.int64)

        def go_on(end: int, deltas: bool) -> int:
            some = changes._replace(starts=starts[: end + 1])
            return int(compiled(follow_run)(*self._arrays, self._view, walking, some, items, emitted, done if deltas else done[:0]))

        given = None if sink is None else lambda ticks, rows: sink(starts[ticks], rows)
        report(self._state, done, self._out, go_on, run.ticks[starts[:-1]], given)

    # --- reading

    def is_empty(self, root: ViewTreeRoot) -> bool:
        """Whether the version has no row. O(1)."""
        return root.roots[self.shape.t] == 0

    def rows(self, root: ViewTreeRoot) -> ViewTreeCursor:
        """All rows, in the order of the live prefixes."""
        return self._cursor(root, 2 * self.shape.t, _ONE)

    def partners(self, root: ViewTreeRoot, position: int, entries: Entries) -> ViewTreeCursor:
        """The rows in which atom `position` is one of these entries, in their order, which are not looked up."""
        return self._cursor(root, position, items_of(entries))

    def of_key(self, root: ViewTreeRoot, position: int, coordinates: Sequence[int]) -> ViewTreeCursor:
        """The rows in which atom `position` has these values in all its variables."""
        return self._cursor(root, self.shape.t + position, items_of(self._entry(position, coordinates)))

    def _cursor(self, root: ViewTreeRoot, plan: int, items: Items) -> ViewTreeCursor:
        return ViewTreeCursor(self.indexes.arena, self.shape, plan, root.roots, items)

    @property
    def update_steps(self) -> int:
        """Steps of all deltas so far, as cursors count them, and look-ups for the live prefixes."""
        return super().update_steps + int(self._walk[STEPS] + self._state[LOOKED])

    @property
    def flipped(self) -> int:
        """Live prefixes that were added or removed in all changes so far."""
        return int(self._state[FLIPPED])

    @property
    def own_bytes(self) -> int:
        """Bytes of the newest version's live prefixes; the indexes have their own."""
        return sum(self.indexes.bytes(index) for index in self._live)

    def check(self) -> None:
        """Prove V1 and V2 of the newest version; AssertionError names the invariant."""
        for a, one in enumerate(self.members):
            assert self._roots[a] == self.indexes.root(one.index), f"V2: the root of atom {a}"
        for v, node in enumerate(self.shape.nodes):
            here = self._prefixes(self.shape.t + v, node.prefix)
            wanted = set.intersection(*(self._prefixes(child, node.prefix) for child in node.children))
            assert here == wanted, f"V1: node {v} lacks {wanted - here} and has {here - wanted} too much"

    def _prefixes(self, member: int, length: int) -> set[tuple[int, ...]]:
        """The prefixes of the entries of an atom's or a node's index."""
        index, root = self._tree(member)
        found: set[tuple[int, ...]] = set()
        cursor = self.indexes.entries(index, root)
        while not cursor.done:
            found |= set(map(tuple, cursor.fill(CHUNK).coordinates[:, :length].tolist()))
        return found



r"""Bow-ties R(x), S(x, y), T(y): by the holes between the values of R and T, over a two-dimensional tree of S.

Problem: report the rows of the join (a row is one slot per atom): all of them, those of given entries or of a given key of an atom, and the
exact change that a batch or each of many single changes causes; at any version that is still pinned.

All rows are found by Algorithm 4 (`holes.py`), which goes from point to point of S and skips all points in a hole of R or of T at once.
For this, the points are in a dyadic tree as well (`dyadic.py`), which this class maintains: an index for each of its inner levels, in the
same store. A changed entry, or a key, binds a variable: the rest is an adaptive walk, as in `elimination.py`.

    y
    5 . . # . .       R and T lack 3: a hole (2, 4) each, in which all points of S lie. However long the arms of the cross are, Algorithm
    4 . . # . .       4 visits a few of them: one a hole and range of the other variable. Algorithm 9 visits one for each value of R.
    3 # # # # #
    2 . . # . .
    1 . . # . .   1 to 5: x

Invariants, named by `check()` when violated
    F1  the roots of the atoms are those of their indexes
    F2  all indexes of an atom have as many entries as it counts
    D1  the inner levels below the top are those of the points of S, each once
    D2  all points lie in one block of the top level, unless the tree is outgrown

Costs (n points of S, h_X and h_Y holes that have points, Z tuples, U the distance between the least and the greatest x)
    load        O(n log n) a level
    follow      O(log16 U log n) a point that comes or goes, O(1) an entry of R or T, besides the rows, which are a walk below the entry;
                O(n) for levels that become necessary when a point comes far from all others, while there are few (`MOST_AT_ONCE`);
                from then on such a point makes the tree outgrown
    rows        2 (h_X + 1) (h_Y + 1) + Z points, each O(log16 U) look-ups of O(log n); no bound between two rows. While the tree is
                outgrown a look-up may continue through the blocks of the highest level that there is
    memory      about 40 bytes a point and inner level, at most 15; 32 bytes a waiting range while a reading lasts, up to 2 MiB
Differences from the paper: blocks are determined by the values, so the tree is maintained under changes; ranges wait on a bounded stack;
the set W of the holes of R is not kept, as the next value of R is one look-up away.
Source: *Towards Instance Optimal Join Algorithms for Data in Indexes*, Section 4, Algorithm 4; docs/design/natural-joins.md
(*bow-tie*).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from structures.adaptive import dyadic
from structures.adaptive.cursors import AdaptiveCursor, HolesCursor
from structures.adaptive.elimination import Elimination
from structures.adaptive.reading import AdaptiveRoot
from structures.core.entries import INSERT
from structures.core.kernel import compiled
from structures.index.following import Atom, Member
from structures.index.indexes import Entries, OrderedIndexes, items_of
from structures.index.planting import IndexLoader

__all__ = ["Atom", "BowTie", "AdaptiveCursor", "Member", "AdaptiveRoot"]

MOST_RANGES = 1 << 16
MOST_AT_ONCE = 1 << 13  # most points for which levels are built within a change
_CHUNK = 1 << 16


class BowTie(Elimination, IndexLoader):
    """See the module's head."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom]) -> None:
        """Over loaded atoms R(x), S(x, y) and T(y), in any order; S has a second index, by (y, x). ValueError: other atoms or indexes."""
        super().__init__(indexes, atoms)
        self._levels: list[int] = []  # the index of each inner level from 1 on
        self._block: int | None = None  # the block of the top level that has all points
        self._is_outgrown = False
        self._by_y: np.ndarray | None = None  # all points, while levels are built from them, and the top to which these lead
        self._new_top = 1

    # --- writing

    @property
    def _top(self) -> int:
        return len(self._levels) + 1

    @property
    def _points_root(self) -> int:
        """The root of S by (x, y), as far as this view has followed."""
        return int(self._roots[self.first[self._s]])

    @property
    def _points_index(self) -> int:
        return self.members[self.first[self._s]].index

    @property
    def _own_indexes(self) -> Sequence[int]:
        return self._levels

    def flips(self, counts: Mapping[int, int]) -> int:
        """The most entries of the levels that these numbers of changes of the indexes insert or delete."""
        changes, points, levels = counts.get(self._points_index, 0), self._counts[self._s], len(self._levels)
        planted = min(points + changes, MOST_AT_ONCE) if changes and points <= MOST_AT_ONCE else 0
        return changes * levels + planted * (dyadic.MOST_LEVELS - levels)

    @property
    def root(self) -> AdaptiveRoot:
        """The newest version, published or not."""
        return super().root._replace(levels=(self._top, *map(self.indexes.root, self._levels)))

    def _change(self, atom: int, sign: int, entries: Entries, common: np.ndarray) -> None:
        super()._change(atom, sign, entries, common)
        if atom == self._s:
            alone = np.flatnonzero((common >= 0) & (common < 2))
            points = np.ascontiguousarray(entries.coordinates[alone, :2])
            if len(points):
                self._change_points(sign, points)

    def _change_points(self, sign: int, points: np.ndarray) -> None:
        """Insert or delete points."""
        arena, holders = self.indexes.arena, np.array([self.indexes.holder(index) for index in self._levels], np.int64)
        items = items_of(Entries(points, np.zeros(len(points), np.int32)))
        compiled(dyadic.change_points)(arena.nodes, arena.writing, holders, sign, items, np.zeros(3, np.int64))
        if sign == INSERT:
            self._reach(points)

    def _reach(self, points: np.ndarray) -> None:
        """Extend the levels for these points, which are there and may be far from all others."""
        if {block(int(x), self._top) for x in (points[:, 0].min(), points[:, 0].max())} == {self._block}:
            return
        if self._counts[self._s] > MOST_AT_ONCE:
            self._is_outgrown = True
            return
        while (level := self._next_tree()) is not None:
            self.indexes.require(len(level.slot), 1)
            self.indexes.build(self._position(), level)

    @property
    def is_outgrown(self) -> bool:
        extent = self._extent if self._is_outgrown else None
        return extent is not None and block(extent[0], self._top) != block(extent[1], self._top)

    @property
    def _extent(self) -> tuple[int, int] | None:
        """The least x and the greatest; None if there is no point."""
        index, root = self._points_index, self._points_root
        first, (greatest, _) = self.indexes.seek(index, root, ()), self.indexes.find_gap(index, root, (), dyadic.LAST_VALUE)
        return None if first is None or greatest is None else (first[0], greatest)

    def _next_tree(self) -> Entries | None:
        """The next level, unless all points lie in one block of the top."""
        if self._by_y is None:
            if (extent := self._extent) is None:
                return None
            self._new_top = self._top
            while block(extent[0], self._new_top) != block(extent[1], self._new_top):
                self._new_top += 1
            self._block = block(extent[0], self._new_top)
            self._by_y = self._all_points() if self._new_top > self._top else np.empty((0, 2), np.int64)
        points = self._by_y
        if self._top == self._new_top:
            self._by_y, self._is_outgrown = None, False
            return None
        blocks = blocks_of(points[:, 1], self._top)
        order = np.argsort(blocks, kind="stable")  # O(n) where most points lie in one block
        return Entries(np.column_stack((blocks, points))[order], np.zeros(len(points), np.int32))

    def _position(self) -> int:
        self._levels.append(self.indexes.add(3))
        return self._levels[-1]

    def _grown(self) -> None:
        """Nothing to do: the level is listed from the beginning."""

    def _recheck(self, atom: int, entries: Entries) -> None:
        if atom != self._s:
            return
        points = np.ascontiguousarray(entries.coordinates[:, :2])
        arena, holders = self.indexes.arena, np.array([self.indexes.holder(index) for index in self._levels], np.int64)
        self.indexes.require(len(points) * len(self._levels), 1)
        items = items_of(Entries(points, np.zeros(len(points), np.int32)))
        compiled(dyadic.recheck_points)(arena.nodes, arena.writing, self._points_root, holders, items, np.zeros(3, np.int64))
        self._reach(points)

    def _all_points(self) -> np.ndarray:
        """int64[n, 2], as (y, x), in order, each once."""
        by_y = self.first[self._s] + 1
        parts, cursor = [np.empty((0, 2), np.int64)], self.indexes.entries(self.members[by_y].index, self._roots[by_y])
        while not cursor.done:
            parts.append(cursor.fill(_CHUNK).coordinates)
        points = np.concatenate(parts)
        return points[np.concatenate((np.ones(1, np.bool_), (points[1:] != points[:-1]).any(axis=1)))[: len(points)]]

    # --- reading

    def rows(self, root: AdaptiveRoot, most_ranges: int = MOST_RANGES) -> AdaptiveCursor:
        """All rows, by Algorithm 4, with at most `most_ranges` ranges on its stack."""
        return HolesCursor(self.indexes.arena, self._whole, self._roots_of(root), most_ranges)

    @property
    def own_bytes(self) -> int:
        """Bytes of the newest version's inner levels; the indexes have their own."""
        return sum(map(self.indexes.bytes, self._levels))

    def check(self) -> None:
        """Prove F1, F2, D1 and D2 of the newest version; AssertionError names the invariant."""
        super().check()
        points = self._all_points().tolist()
        for level, index in enumerate(self._levels, 1):
            found, cursor = [], self.indexes.entries(index, self.indexes.root(index))
            while not cursor.done:
                found += cursor.fill(_CHUNK).coordinates.tolist()
            wanted = sorted([(x + 8 * (16**level - 1) // 15) >> 4 * level, y, x] for y, x in points)
            assert found == wanted, f"D1: level {level} is not that of the points"
        blocks = {(x + 8 * (16**self._top - 1) // 15) >> 4 * self._top for _, x in points if self._top <= dyadic.MOST_LEVELS}
        assert self._is_outgrown or blocks <= {self._block}, f"D2: blocks {blocks} of level {self._top}, not {self._block} alone"


def blocks_of(x: np.ndarray, level: int) -> np.ndarray:
    """As `dyadic.block_of`, for arrays."""
    rest = (1 << (dyadic.DIGIT * level)) - 1
    found: np.ndarray = (x >> (dyadic.DIGIT * level)) + (((x & rest) + rest // 15 * 8) >> (dyadic.DIGIT * level))
    return found


def block(x: int, level: int) -> int:
    """As `dyadic.block_of`, also for the level above all inner ones, which has one block."""
    return int(blocks_of(np.array([x], np.int64), level)[0]) if level <= dyadic.MOST_LEVELS else 0

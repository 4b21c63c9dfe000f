"""Cliques of interchangeable aliases: one set of intervals in an interval tree, each combination found where its last one begins.

    a ====================           the start of c lies in a and in b: with t = 3 the row {a, b, c} is found at c
    b     ===========                the start of b lies in a alone: with t = 3 nothing is found there
    c         ==================

All intervals that cover the start of an interval have that point in common, so any t - 1 of them make a row with it (Helly in one
dimension). Of intervals that start together the one with the larger slot counts as the later one. The rows of a given interval r are
those found at its own start, and those found with it at the starts of the later ones that it covers.

Costs: O(log n + c) steps for an interval whose start c others cover, and O(1) a row; a changed row as much for itself and each later
partner. Memory: one entry a row, however many aliases; what covers one start is held while its rows are read.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.joins.changes import Change
from service.joins.indexed_cursor import Given, Start
from service.joins.protocol import Bounds, Sink
from service.joins.tree_join import ShapedCursor, TreeJoin
from service.plans.plan import Plan
from service.resolution import NO_SLOTS, Slots
from service.sides import NO_ENTRIES, Side, ends_of, joined
from service.terms import Query
from structures.encoding import NEG_INF, POS_INF
from structures.interval_tree import Cursor, Entries, IntervalTree, Root

_CENTERS = 1024  # intervals whose starts are looked at together
_PAIRS = 1 << 16
_CHUNK = 1 << 16
_LOOKS = 16  # without rows before a call ends
_MOST = 1 << 50  # combinations of one start that are counted: nobody reads so many
_NO_PLACES = np.empty(0, np.int64)

Places = npt.NDArray[np.int64]


@lru_cache(maxsize=64)
def binomials(most: int, k: int) -> list[Places]:
    """Of each j <= k, C(c, j) for c = 0..most, cut at 2**50. O(k most)."""
    table = [np.ones(most + 1, np.int64)]
    for _ in range(k):
        sums, about = np.cumsum(table[-1][:-1]), np.cumsum(table[-1][:-1].astype(np.float64))
        table.append(np.concatenate((np.zeros(1, np.int64), np.where(about >= _MOST, _MOST, sums))))
    return table


def combination(table: list[Places], ranks: Places, k: int) -> list[Places]:
    """The k numbers, descending, of the combinations with these ranks (combinatorial number system). O(k log most) each."""
    found = []
    for j in range(k, 0, -1):
        number = np.searchsorted(table[j], ranks, "right") - 1
        ranks = ranks - table[j][number]
        found.append(number)
    return found


class Listed:
    """All entries, or those of one key: key code by key code."""

    def __init__(self, tree: IntervalTree, root: Root, first: int, end: int) -> None:
        self._tree, self._root, self._next, self._end = tree, root, first, end
        self._found: Cursor | None = None

    @property
    def done(self) -> bool:
        return (self._found is None or self._found.done) and self._next >= self._end

    def fill(self, limit: int) -> Slots:
        if self._found is None or self._found.done:
            codes = np.arange(self._next, min(self._next + _CENTERS, self._end), dtype=np.int32)
            self._next += len(codes)
            ends = np.full(len(codes), NEG_INF), np.full(len(codes), POS_INF)
            # No entry has a slot below 0, so none is taken for the one that is asked about.
            wanted = Entries(np.zeros(len(codes), np.uint8), codes, *ends, np.full(len(codes), -1, np.int32))
            self._found = self._tree.partners(self._root, wanted)
        slots: Slots = self._found.fill(limit)[1]
        return slots

    def clone(self) -> Listed:
        other = copy.copy(self)
        other._found = self._found and self._found.clone()
        return other


class CliqueCursor:
    """Combinations of one version, each once, as t arrays in no order: those found at the starts of what `start` gives, or, if these are
    `given` (sorted), all in which they take part."""

    def __init__(self, join: CliqueJoin, root: Root, start: Start, window: tuple[int, int] | None, given: Slots | None) -> None:
        self._join, self._root, self._start, self._window, self._given = join, root, start, window, given
        self.steps = self.dead_ends = self.largest_gap = self._since = 0
        self._later: Cursor | None = None  # what the given ones cover, whose starts come next
        self._stab: Cursor | None = None  # who covers these starts
        self._centers = NO_ENTRIES
        self._must = NO_SLOTS  # of each center the given interval that has to be in its rows, or none
        self._from = 0  # the first center that is not whole yet
        self._at = self._total = 0
        self._numbers, self._covers = _NO_PLACES, NO_SLOTS  # of the centers from there on
        self._block: tuple[Any, ...] = ()

    @property
    def done(self) -> bool:
        return self._at == self._total and self._stab is None and self._later is None and self._start.done

    def fill(self, limit: int) -> tuple[Slots, ...]:
        for _ in range(_LOOKS):
            if self.done:
                break
            if self._at == self._total:
                self._advance()
                continue
            gap = self.steps - self._since + 1
            rows = self._rows(limit)
            if len(rows[0]):
                self.largest_gap, self._since = max(self.largest_gap, gap), self.steps
                return rows
        return (NO_SLOTS,) * self._join.count

    def clone(self) -> CliqueCursor:
        other = copy.copy(self)
        other._start = self._start.clone()
        other._later = self._later and self._later.clone()
        other._stab = self._stab and self._stab.clone()
        return other

    def _advance(self) -> None:
        """Look on: for more that covers the centers, for more centers, for more of what was given."""
        if self._stab is not None:
            self._cover(self._stab)
        elif self._later is not None:
            given, centers = self._later.fill(_CENTERS)
            self.steps += len(centers) + 1
            if self._later.done:
                self._later = None
            self._look_at(centers, given)
        else:
            slots = self._start.fill(_CENTERS)
            if self._window is not None:
                slots = slots[self._join.meets(slots, self._window)]
            if self._given is not None and len(slots):
                self._later = self._join.tree.partners(self._root, self._join.entries_of(slots))
            self._look_at(slots, None)

    def _look_at(self, slots: Slots, must: Slots | None) -> None:
        """These are the next centers; of those with a given interval, the ones that start later than it."""
        centers = self._join.entries_of(slots)
        kept = np.ones(len(slots), np.bool_)
        if self._window is not None:
            kept &= (centers.left <= self._window[1]) & (centers.right >= self._window[0])
        if must is not None:
            lefts = self._join.lefts(must)
            kept &= (lefts < centers.left) | ((lefts == centers.left) & (must < slots))
        self._centers = centers.take(kept)
        self._must = NO_SLOTS if must is None else must[kept]
        count = len(self._centers.slot)
        if count:
            # Their starts as points, a number in the place of the slot: an interval may be a center for several of the given ones.
            numbers = -1 - np.arange(count, dtype=np.int32)
            points = self._centers._replace(right=self._centers.left, slot=numbers)
            self._stab = self._join.tree.partners(self._root, points)
            self._from, self._numbers, self._covers = 0, _NO_PLACES, NO_SLOTS
            self.steps += count

    def _cover(self, stab: Cursor) -> None:
        """Take what covers the centers; those of which all is there make a block."""
        numbers, covers = stab.fill(_PAIRS)
        self.steps += len(covers) + 1
        numbers = -1 - numbers.astype(np.int64)
        whole = len(self._centers.slot) if stab.done else int(numbers[-1]) if len(numbers) else self._from
        lefts, starts, mine = self._join.lefts(covers), self._centers.left[numbers], self._centers.slot[numbers]
        kept = (lefts < starts) | ((lefts == starts) & (covers < mine))  # the center itself is none of them
        if len(self._must):
            kept &= covers != self._must[numbers]
        if self._window is not None:  # what covers a start begins before it: it meets the window unless it ends before
            kept &= self._join.meets(covers, self._window)
        self._numbers, self._covers = np.concatenate((self._numbers, numbers[kept])), np.concatenate((self._covers, covers[kept]))
        if whole > self._from:
            self._block_of(whole)
        if stab.done:
            self._stab = None

    def _block_of(self, end: int) -> None:
        """The centers up to there, with all that covers them, and how many combinations each has."""
        k = self._join.count - 1 - (len(self._must) > 0)
        cut = int(np.searchsorted(self._numbers, end))
        sizes = np.bincount(self._numbers[:cut] - self._from, minlength=end - self._from)
        table = binomials(1 << int(sizes.max(initial=0)).bit_length(), k)  # of few sizes: they are kept
        totals = table[k][sizes]
        self.dead_ends += int(np.count_nonzero(totals == 0))
        ends = np.cumsum(totals)
        self._block = (self._from, np.cumsum(sizes) - sizes, self._covers[:cut], table, ends - totals, ends, k)
        self._at, self._total = 0, int(ends[-1])
        self._numbers, self._covers, self._from = self._numbers[cut:], self._covers[cut:], end

    def _rows(self, limit: int) -> tuple[Slots, ...]:
        first, starts, covers, table, begun, ends, k = self._block
        ranks = np.arange(self._at, min(self._at + limit, self._total))
        self._at += len(ranks)
        self.steps += len(ranks)
        center = np.searchsorted(ends, ranks, "right")
        parts = [covers[starts[center] + number] for number in combination(table, ranks - begun[center], k)]
        rows = [self._centers.slot[first + center], *parts]
        if len(self._must):
            rows.append(self._must[first + center])
        if self._given is None:
            return tuple(rows)
        # A row that several of the given take part in falls to the first of them.
        mine = rows[-1] if len(self._must) else rows[0]
        kept, last = np.ones(len(ranks), np.bool_), len(self._given) - 1
        for part in rows:
            found = self._given[np.minimum(np.searchsorted(self._given, part), last)] == part
            kept &= (part >= mine) | ~found
        return tuple(part[kept] for part in rows)


class CliqueJoin(TreeJoin):
    """See the module's head; what the methods do is said in `protocol`."""

    def __init__(self, query: Query, plan: Plan, sides: Sequence[Side]) -> None:
        super().__init__(query, plan, sides)
        self.count = len(sides)
        self._told_steps = 0

    @property
    def update_steps(self) -> int:
        return self._told_steps

    @property
    def takes_runs(self) -> bool:
        return False

    def entries_of(self, slots: Slots) -> Entries:
        """Of those of these rows that take part, all if they are in the tree."""
        return self._sources[0].entries(slots, self._look_up).entries

    def lefts(self, slots: Slots) -> Places:
        return self._ends(slots)[0]

    def meets(self, slots: Slots, window: tuple[int, int]) -> npt.NDArray[np.bool_]:
        left, right = self._ends(slots)
        met: npt.NDArray[np.bool_] = (left <= window[1]) & (right >= window[0])
        return met

    def _ends(self, slots: Slots) -> tuple[Places, Places]:
        return ends_of(self.sides[0].relation.table, self._sources[0].span, slots)

    def apply(self, version: int, changes: Mapping[str, Change], sink: Sink | None) -> None:
        """Cost: as the module's head says."""
        work = self._work(changes, sink is not None)
        deletes, inserts = joined(work.deletes), joined(work.inserts)
        if work.moved_from:
            self.tree.apply(version, joined(work.moved_from), joined(work.moved_to), None)
        if len(deletes.slot):
            sink = self._tell(sink, False, deletes.slot)
            self.tree.apply(version, deletes, NO_ENTRIES, None)
            if self.domain is not None:
                self.domain.release(deletes.key, version)
        if len(inserts.slot):
            self.tree.apply(version, NO_ENTRIES, inserts, None)
            self._tell(sink, True, inserts.slot)

    def _tell(self, sink: Sink | None, come: bool, slots: Slots) -> Sink | None:
        """The rows of these, as the tree stands; None once the sink wants no more."""
        if sink is None:
            return None
        cursor = self._reading(self.tree.root, slots, None)
        reading, wanted = ShapedCursor(cursor, self.shape), True
        while wanted and not reading.done:
            rows = reading.fill(_CHUNK)
            wanted = len(rows[0]) == 0 or sink(come, rows)
        self._told_steps += cursor.steps
        return sink if wanted else None

    def _reading(self, root: Root, slots: Slots, window: Bounds | None) -> CliqueCursor:
        return CliqueCursor(self, root, Given(slots), self._window(window), np.sort(slots))

    def rows(self, root: Root, window: Bounds | None) -> ShapedCursor:
        codes = 1 if self.domain is None else self.domain.codes
        return self._listed(root, 0, codes, window)

    def _listed(self, root: Root, first: int, end: int, window: Bounds | None) -> ShapedCursor:
        return ShapedCursor(CliqueCursor(self, root, Listed(self.tree, root, first, end), self._window(window), None), self.shape)

    def partners(self, root: Root, place: int, slots: Slots, window: Bounds | None) -> ShapedCursor:
        there = self.entries_of(NO_SLOTS if self.never else slots).slot
        return ShapedCursor(self._reading(root, there, window), self.shape, (place, slots))

    def of_key(self, root: Root, place: int, key: pa.RecordBatch, window: Bounds | None) -> ShapedCursor:
        assert self.domain is not None
        code = int(self.domain.look_up(key.select(self._sources[place].columns))[0])
        return self._listed(root, max(code, 0), code + 1, window)

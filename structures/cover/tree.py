r"""The parts of rows that the intervals of their key leave uncovered, or cover, under updates.

Problem: rows and partners, closed intervals with an int32 key, come and go; report the stretches of each row that no partner of its key
meets (its gaps), maximal, or those that partners cover; all of them, those of a key, those that meet a window; and the exact change that
each row or partner causes; at any pinned version. Intervals that touch (5..7, 8..9) leave no gap, and cover one stretch.

    row        |-------------------------------|
    partners  ----|   |------|  |---||---|                  a partner changes the stretches under it that no other covers
                       |----|
    gaps           |-|        |-|         |----|

Both sides are ordered trees (`ordered/tree.py`) whose nodes know, besides how far the intervals below reach, where the last gap among them
ends (`ordered/summary.py`, COVER): the first gap from a place on is found by one descent, however many intervals touch before it.
The rows' tree finds the next place that has a row, so that stretches without rows are skipped.

Invariants, by which `check()` names what broke: those of the trees (I1 to I4 of `ordered/tree.py`, the last gaps among I2).

Costs (n rows and partners): a change O(log n), and O(log n) for each stretch under it that has rows and each stretch reported; more where
rows and stretches alternate without meeting. Reading: O(log n) a stretch. Memory 27 to 40 bytes a row or partner.
Source: docs/design/queries.md (*Gaps and coverage*).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.arena import KEY_MAX, KIND, B
from structures.core.control import STORE_WORDS
from structures.core.cursor import Cursor
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.core.runs import MISSING, Deltas, gather
from structures.cover import walk
from structures.cover.changes import COVERED, MOST_HITS, SEARCH, SPARE, STATE_WORDS, STEPS, Scratch, Trees, run_moves
from structures.event_tree.runs import LONELY, Moves
from structures.ordered import search
from structures.ordered.lists import RowList
from structures.ordered.scan import SCAN_DEPTH, SCAN_WORDS, scan_start
from structures.ordered.search import NOTHING_BEFORE, SEARCH_WORDS, Bounds, next_key, search_fill, search_start
from structures.ordered.summary import COVER

CHUNK = 1 << 16  # stretches reported at once
_ITEMS = 4 * B  # rows searched at once, approximately


class CoverRoot(NamedTuple):
    """A version: plain data, valid as long as it is pinned."""

    rows: EntryRoot
    partners: EntryRoot


class _Intervals(RowList):
    """The intervals of one side."""

    def __init__(self, words: int) -> None:
        super().__init__(words)
        self.arena.C[KIND] = COVER


class Cover:
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile.

    A row that can have no partner has the key LONELY and any interval.
    """

    def __init__(self, emits_covered: bool, words: int = STORE_WORDS) -> None:
        """`emits_covered`: whether to report what partners cover, or what they leave uncovered. `words`: address space of each tree in
        8-byte words."""
        self.emits_covered = emits_covered
        self.rows, self.partners = _Intervals(words), _Intervals(words)
        self._trees = Trees(*(part for one in (self.rows, self.partners) for part in (one.arena.nodes, one.arena.writing)))
        self._Z = np.zeros(STATE_WORDS, np.int64)
        self._Z[COVERED] = emits_covered
        self._scratch = Scratch(self._Z, np.empty(MOST_HITS, np.int32), np.empty(2 * MOST_HITS, np.int64))
        self._out = np.empty((3, CHUNK + SPARE), np.int64)

    @property
    def root(self) -> CoverRoot:
        """The newest version, published or not."""
        return CoverRoot(self.rows.root, self.partners.root)

    # --- writing

    def load(self, version: int, rows: Entries, partners: Entries) -> None:
        """Fill the structure, which is empty. O(n log n). MemoryError: the rows do not fit."""
        self.rows.load(version, rows)
        self.partners.load(version, partners)

    def require(self, rows: int, partners: int) -> None:
        """Raise MemoryError unless a version with at most these numbers of rows and partners certainly fits. O(1)."""
        self.rows.require(rows)
        self.partners.require(partners)

    def apply(self, version: int, moves: Moves, limit: int | None) -> Deltas:
        """Apply these changes one after another, as `version`. Each reports its delta relative to the state left by the changes before it:
        columns of `Deltas.rows`, int64[3, n]: slot of the row (~slot: the stretch goes), start, last.

        Deltas of more than `limit` stretches that fill more than a chunk are abandoned; None: no deltas are reported. KeyError: a row to be
        deleted is not there, and the structure is damaged. MemoryError, TypeError, ValueError: nothing was done.
        """
        moves.require()
        self.rows.begin(version)
        self.partners.begin(version)

        def go_on(end: int, emitted: bool) -> int:
            part = moves if end == len(moves.kind) else Moves(*(column[:end] for column in moves))
            return int(compiled(run_moves)(self._trees, self._scratch, self._out, part, emitted))

        deltas = gather(self._Z, moves.done, self._out, go_on, limit)
        if missing := int(self._Z[MISSING]):
            raise KeyError(f"{missing} rows or partners that were to go are not there")
        return deltas

    def reclaim(self, oldest: int, pins: np.ndarray, most: int) -> bool:
        """As `Versioned.reclaim`."""
        return self.rows.reclaim(oldest, pins, most) or self.partners.reclaim(oldest, pins, most)

    # --- reading

    def stretches(self, root: CoverRoot, key: int | None = None, window: tuple[int, int] | None = None) -> Cursor:
        """The stretches of a version, int64[3, n] (slot of the row, start, last): all, or those of a key, that meet the closed window."""
        if key is None and window is None:
            return _AllCursor(self, root)
        return _KeysCursor(self, root, key, window or (NEG_INF, POS_INF))

    def of_rows(self, root: CoverRoot, rows: Entries, window: tuple[int, int] | None = None) -> Cursor:
        """The stretches of the given rows, which are in this version."""
        items = np.stack([rows.key, rows.left, rows.right, rows.slot], axis=1).astype(np.int64)
        return StretchCursor(self, root, items, window or (NEG_INF, POS_INF))

    def entries(self, root: CoverRoot) -> int:
        return root.rows.counts[0] + root.partners.counts[0]

    @property
    def steps(self) -> int:
        """Places, and nodes and entries of rows, visited for all deltas so far."""
        return int(self._Z[STEPS] + self._Z[SEARCH + search.STEPS])

    @property
    def bytes(self) -> int:
        return self.rows.live_bytes + self.partners.live_bytes

    def check(self, others: tuple[CoverRoot, ...] = ()) -> None:
        """Prove the invariants of the newest version, and that no block is lost, given the other roots in use."""
        self.rows.check(self.rows.root, tuple(root.rows for root in others))
        self.partners.check(self.partners.root, tuple(root.partners for root in others))


class StretchCursor(Cursor):
    """Stretches of rows that come in portions: the given rows first, then those that `_next_items` finds."""

    _STEPS, _GAP = walk.STEPS, walk.GAP

    def __init__(self, cover: Cover, root: CoverRoot, items: np.ndarray, window: tuple[int, int]) -> None:
        """`items`: int64[n, ITEM]."""
        super().__init__(3, np.zeros(walk.READ_WORDS, np.int64))
        self._rows, self._nodes, self._root = cover.rows.arena.nodes, cover.partners.arena.nodes, root
        self._items = items
        self._asked = np.array([*window, cover.emits_covered], np.int64)

    def _next_items(self) -> np.ndarray | None:
        """Return further rows, perhaps none yet; None if there are no more."""
        return None

    def _more(self, want: int) -> np.ndarray:
        state = self._Z
        if state[walk.ITEM_AT] == len(self._items):
            items = self._next_items()
            if items is None:
                self._ended = True
                return self._nothing
            self._items, state[walk.ITEM_AT] = items, 0
            state[walk.STEPS] += 1
        out = np.empty((3, want), np.int64)
        n = compiled(walk.emit_items)(self._nodes, *self._root.partners[:2], self._items, state, out, self._asked)
        return out[:, :n]


_NO_ITEMS = np.empty((0, walk.ITEM), np.int64)


class _AllCursor(StretchCursor):
    """Stretches of all rows."""

    def __init__(self, cover: Cover, root: CoverRoot) -> None:
        super().__init__(cover, root, _NO_ITEMS, (NEG_INF, POS_INF))
        self._scan = np.zeros(SCAN_WORDS, np.int64)
        compiled(scan_start)(self._scan, root.rows.offset)

    def _next_items(self) -> np.ndarray | None:
        if self._scan[SCAN_DEPTH] == 0:
            return None
        items = np.empty((_ITEMS, walk.ITEM), np.int64)
        n = compiled(walk.scan_items)(self._rows, self._scan, self._root.rows.height, items)
        return items[:n]

    def clone(self) -> _AllCursor:
        other = super().clone()
        other._scan = self._scan.copy()
        return other


class _KeysCursor(StretchCursor):
    """Stretches of the rows of a key, or of each key, that meet a window."""

    def __init__(self, cover: Cover, root: CoverRoot, key: int | None, window: tuple[int, int]) -> None:
        super().__init__(cover, root, _NO_ITEMS, window)
        self._window, self._is_one = window, key is not None
        self._search = np.zeros(SEARCH_WORDS, np.int64)
        self._key = -1 if key is None else key
        if key is not None:
            self._begin()

    def _begin(self) -> None:
        rows, (low, high) = self._root.rows, self._window
        bounds = Bounds(NEG_INF, NOTHING_BEFORE, high, low)
        compiled(search_start)(self._search, rows.offset, rows.height, 0, self._key, bounds)

    def _next_items(self) -> np.ndarray | None:
        rows, state = self._root.rows, self._search
        if state[search.DEPTH] == 0:
            if self._is_one:
                return None
            self._key = int(compiled(next_key)(self._rows, rows.offset, rows.height, self._key))
            if self._key == KEY_MAX:
                self._is_one = True
                return None
            self._begin()
        slots, ends = np.empty(_ITEMS, np.int32), np.empty(2 * _ITEMS, np.int64)
        n = compiled(search_fill)(self._rows, state, slots, 0, ends)
        items = np.empty((n, walk.ITEM), np.int64)
        items[:, walk.KEY_], items[:, walk.SLOT_] = self._key, slots[:n]
        items[:, walk.LEFT_], items[:, walk.RIGHT_] = ends[: 2 * n : 2], ends[1 : 2 * n : 2]
        return items

    def clone(self) -> _KeysCursor:
        other = super().clone()
        other._search = self._search.copy()
        return other


__all__ = ["LONELY", "Cover", "CoverRoot", "Moves"]

"""The base of the classes that keep entries: loading, changing, and the reporting of deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from structures.core.arena import EntryBlocks
from structures.core.control import VERSION
from structures.core.cursor import Cursor
from structures.core.entries import DELETE, INSERT, Entries, Told
from structures.core.kernel import contiguous
from structures.core.runs import AT, MISSING, REFUSED, RUN_WORDS, Changes, Deltas, Keep, gather
from structures.core.versioned import Versioned

CHUNK = 1 << 16  # rows of a delta that a sink receives at once
_FEWEST = 64
_MANY = 64  # deletes from which on it is checked whether a set becomes empty
_MOST_LEFT = 4.0  # entries that remain for each of them: with more, deletes one by one take less time
MOST_LEFT_OF_DENSE = 0.25  # as `_MOST_LEFT`, for deletes without a delta that share the path to a leaf
_FEW = np.repeat(np.array([DELETE, INSERT], np.int8), _FEWEST)  # not written to
_IN_TURN = np.arange(2)  # likewise

Sink = Callable[[int, np.ndarray], bool]
Store = TypeVar("Store", bound=EntryBlocks)


class Root(NamedTuple):
    """One version of a tree, with the number of entries of each set: plain data, valid as long as the version is pinned."""

    offset: int
    height: int  # 0 where readers need none
    counts: tuple[int, ...]
    live: bool


class EntryTree(Versioned[Store]):
    """Entries of some sets under change. One thread writes; any number read roots of pinned versions meanwhile.

    `_change(changes, deltas)` of a subclass calls its writing kernel with all other arguments: it continues a run (`core/runs.py`) until
    all is done or `_out` is full, and returns the number of rows reported, or REFUSED.
    """

    _change: Callable[[Changes, bool], int]
    _most_left_untold = _MOST_LEFT  # for deletes without a delta

    def __init__(self, arena: Store, sets: int, members: int, state: np.ndarray) -> None:
        """`members`: the number of slots of a row; `state`: of the writing kernel, beginning with that of a run."""
        self.arena = arena
        self._sets, self._state, self._run_state = sets, state, state[:RUN_WORDS]
        self._promised = 0  # words that the last `require` promised
        self._out = np.empty((members, CHUNK), np.int32)
        self._told = Told(self._out.reshape(-1), CHUNK)
        self._many = _MANY
        self._read_steps = 0  # of the readings that reported a delta

    @property
    def root(self) -> Root:
        """The newest version, published or not."""
        raise NotImplementedError

    def _order(self, entries: Entries) -> np.ndarray:
        """Return int64[n]: the places of the entries in the best order for changing them."""
        raise NotImplementedError

    def _load(self, entries: Entries) -> None:
        """Build the tree, which is empty, from these entries, of which there is at least one."""
        raise NotImplementedError

    def _entries(self) -> Entries:
        """Return all entries of the newest version, in any order, in the form in which they are passed in. O(n)."""
        raise NotImplementedError

    def _clear(self) -> None:
        """Remove all entries. O(blocks)."""
        raise NotImplementedError

    def rows(self, root: Root) -> Cursor:
        """Return a cursor over all rows of a version."""
        raise NotImplementedError

    def _compact(self, changes: int) -> None:
        """Move blocks after `changes` changes, if the store is sparse. Structures that do so beside each change do nothing here."""

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

    def bulk_load(self, version: int, entries: Entries) -> Root:
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

    def is_empty(self, root: Root) -> bool:
        """Return whether the version has no row. O(1)."""
        return not root.live

    def require(self, changes: int, applies: int) -> None:
        """Raise MemoryError unless `changes` deletes and inserts, in `applies` calls of `apply`, surely fit. O(1)."""
        self._promised = self.arena.require(changes, applies)

    def apply(self, version: int, deletes: Entries, inserts: Entries, sink: Sink | None) -> Root:
        """Apply all deletes, then all inserts. As `change`, to which they are passed together."""
        gone = len(deletes.key)
        if gone and len(inserts.key):
            return self.change(version, Entries(*map(np.concatenate, zip(deletes, inserts, strict=True))), gone, sink)
        return self.change(version, deletes if gone else inserts, gone, sink)

    def change(self, version: int, entries: Entries, gone: int, sink: Sink | None) -> Root:
        """Delete the first `gone` of these entries, then insert the others, as `version` (above every previous version). Returns the root.

        Deletes that leave a set without entries, as a truncate does, cost O(1) each, their rows, and as much as a load of the remaining
        entries, unless these are more than `_MOST_LEFT` times as many (without a delta, `_most_left_untold` times).

        `sink(sign, slots)` receives the delta in chunks: sign -1 or 1, slots int32[t, n], which it may keep. It returns False to receive no
        more (the changes continue). None: no delta is computed. Deleted entries must be there and inserted ones not (KeyError: the tree is
        then damaged). Raises MemoryError with nothing done.
        """
        n = len(entries.key)
        if n:
            entries = self._columns(entries)
        self.arena.require(n)
        self._begin(version)
        order, signs = self._deletes_first(entries, gone), self._signs(n, gone)
        rest = self._rest(entries, gone, self._most_left_untold if sink is None else _MOST_LEFT) if gone >= self._many else None
        if rest is not None:
            sink = self._leave_only(rest, sink)
            order, gone = order[gone:], 0
        if len(order):
            self._run(Changes(signs, entries, order, np.empty(n, np.int64)), gone, sink)
        if self.arena.is_sparse:
            self._compact(n)
        return self.root

    def _deletes_first(self, entries: Entries, gone: int) -> np.ndarray:
        """Return int64[n]: the places of the first `gone` entries in the best order, then those of the others."""
        n = len(entries.key)
        if gone <= 1 and n - gone <= 1:
            return _IN_TURN[:n]
        order = self._order(entries)
        return order if gone in (0, n) else np.concatenate((order[order < gone], order[order >= gone]))

    def _leave_only(self, rest: Entries, sink: Sink | None) -> Sink | None:
        """Remove all rows, which are the delta, and rebuild the tree from these entries. Returns the sink, or None once it wants no
        more."""
        wanted = sink is not None and self._tell_all(sink)
        self._clear()
        if len(rest.key):
            self._load(self._columns(rest))
        return sink if wanted else None

    def _rest(self, entries: Entries, gone: int, most: float) -> Entries | None:
        """Return the entries that remain after the first `gone` of these are deleted, if some set becomes empty and at most `most` remain
        for each of them: all rows are then deleted, as a row has an entry of each set. None: that is not so, or an entry is not there.
        Raises as `Entries.require`."""
        counts = self.root.counts
        if sum(counts) > (1 + most) * gone:
            return None
        entries.require(self._sets)
        sets = entries.set[:gone]
        if not any(0 < count == some for count, some in zip(counts, np.bincount(sets, minlength=len(counts)).tolist(), strict=False)):
            return None
        here = self._entries()
        stay = np.flatnonzero(~np.isin(self._numbers(here.set, here.slot), self._numbers(sets, entries.slot[:gone])))
        return here.take(stay) if len(stay) + gone == len(here.key) else None

    def _numbers(self, sets: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return int64[n], a number for each entry: unique in a tree, and dense if slots are."""
        numbers: np.ndarray = slots * np.int64(self._sets) + sets
        return numbers

    def _tell_all(self, sink: Sink) -> bool:
        """Report all rows as deleted. Returns whether the sink wants more."""
        cursor, wanted = self.rows(self.root), True
        while wanted and not cursor.done:
            rows = cursor.fill(CHUNK)
            wanted = rows.shape[1] == 0 or sink(DELETE, rows)
        self._read_steps += cursor.steps
        return wanted

    @staticmethod
    def _signs(n: int, gone: int) -> np.ndarray:
        """Return int8[n]: of so many deletes, then inserts."""
        if n <= _FEWEST:
            return _FEW[_FEWEST - gone : _FEWEST - gone + n]
        return np.repeat(np.array([DELETE, INSERT], np.int8), (gone, n - gone))

    def _run(self, changes: Changes, gone: int, sink: Sink | None) -> None:
        """Apply changes, of which the first `gone` in their order are deletes, and the others inserts."""
        state, at, end = self._state, 0, len(changes.order)
        self._run_state.fill(0)
        while at < end:
            first, told = at, self._go_on(changes, sink is not None)
            at = state.item(AT)
            if told:
                cut = 0 if first >= gone else told if at < gone else changes.done.item(gone - 1)
                for sign, rows in ((DELETE, self._out[:, :cut]), (INSERT, self._out[:, cut:told])):
                    if sink is not None and rows.shape[1] and not sink(sign, rows.copy()):
                        sink = None
        self._none_missing()

    def _go_on(self, changes: Changes, deltas: bool) -> int:
        """Continue a run. Returns the number of rows reported. Raises ValueError, with nothing done, if an entry is invalid."""
        told = self._change(changes, deltas)
        if told == REFUSED:
            changes.entries.require(self._sets)
        return told

    def _none_missing(self) -> None:
        if self._state.item(MISSING):
            raise KeyError(f"{self._state[MISSING]} deleted entries were not in the tree")

    def apply_in_order(self, version: int, signs: np.ndarray, entries: Entries, limit: int | None, keep: Keep | None = None) -> Deltas:
        """Apply deletes and inserts one after another, as `version`; each reports its delta against the state left by the previous ones.

        signs: int8[n], of `core/entries`: DELETE, INSERT; LEAVE, ENTER without a delta. `limit`, `keep`: as in `gather`. Errors as in
        `apply`. Cost: as `apply`, and a copy of the deltas.
        """
        entries = self._run_of(signs, entries)
        self.arena.require(len(signs))
        self._begin(version)
        done = np.zeros(len(signs), np.int64)
        order = np.arange(len(signs))

        def go_on(end: int, told: bool) -> int:
            return self._go_on(Changes(signs, entries, order[:end], done), told)

        deltas = gather(self._state, done, self._out, go_on, limit, keep)
        self._none_missing()
        if self.arena.is_sparse:
            self._compact(len(signs))
        return deltas

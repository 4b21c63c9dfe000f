"""A Hypothesis state machine that drives ordered indexes of several arities in one arena beside their naive twin: batches, single changes,
indexes made and removed, pins, look-ups, reads by bits, unpins; `check()` after every version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.core.entries import DELETE, ENTER, INSERT
from structures.index.indexes import Entries, IndexCursor, OrderedIndexes
from structures.index.layout import BLOCK
from tests.naive import ordered_index as twin
from tests.naive.natural_join import Entry
from tests.structures.batches import Changes, apply_steps, apply_to_indexes
from tests.structures.machines import Reading, ReadingMachine

VALUES = st.one_of(st.integers(0, 3), st.integers(0, 12), st.sampled_from([-(2**63), 2**63 - 1, -1]))
ENTRIES = st.tuples(st.integers(0, 2), st.tuples(*[VALUES] * 8), st.integers(0, 3))
ARITIES = (1, 2, 3, 8)


def packed(given: Iterable[Entry], width: int) -> Entries:
    """As arrays, in the order given; columns beyond the coordinates hold what nobody looks at."""
    rows = list(given)
    coordinates = [[*one[:-1], *[99] * (width - len(one) + 1)] for one in rows]
    return Entries(np.array(coordinates, np.int64).reshape(-1, width), np.array([one[-1] for one in rows], np.int32))


def unpacked(entries: Entries) -> list[Entry]:
    return [(*row, slot) for row, slot in zip(entries.coordinates.tolist(), entries.slot.tolist(), strict=True)]


def read_entries(cursor: IndexCursor, limit: int = 3) -> list[Entry]:
    found: list[Entry] = []
    while not cursor.done:
        found += unpacked(cursor.fill(limit))
    return found


class Seen(NamedTuple):
    """An index at a version: its number and arity, its root, and what is in it."""

    number: int
    arity: int
    root: int
    entries: frozenset[Entry]


class IndexMachine(ReadingMachine):
    @initialize(arities=st.lists(st.sampled_from(ARITIES), min_size=3, max_size=3), given=st.lists(ENTRIES, max_size=40))
    def begin(self, arities: list[int], given: list[tuple[int, Entry, int]]) -> None:
        self.indexes = OrderedIndexes(1 << 20)
        self.indexes.begin(1)
        self.now: dict[int, frozenset[Entry]] = {}
        self.leaving: dict[int, int] = {}  # blocks at a time
        for position, arity in enumerate(arities):
            self._make(arity, given, position)
        self._settle()

    def _make(self, arity: int, given: list[tuple[int, Entry, int]], position: int) -> None:
        index = self.indexes.add(arity)
        loaded = self._new(given, position, arity, frozenset())
        self.indexes.load(index, packed(loaded, 8))
        self.now[index] = frozenset(loaded)

    def _new(self, given: list[tuple[int, Entry, int]], position: int, arity: int, there: frozenset[Entry]) -> list[Entry]:
        """Of what is given that which is for this place, each at a slot that few others have; none that is there."""
        made = dict.fromkeys((*values[:arity], slot) for at, values, slot in given if at == position)
        return [one for one in made if one not in there]

    def _settle(self) -> None:
        self.indexes.reclaim(self.version, self.pin_array())
        self.indexes.check([(one.arity, one.root) for seen in self.pins.values() for one in seen])
        assert self.indexes.arena.blocks * 8 * BLOCK == self.indexes.arena.live_bytes

    def _next(self) -> None:
        self.version += 1
        self.indexes.begin(self.version)

    def _doomed(self, data: st.DataObject, index: int) -> list[Entry]:
        there = sorted(self.now[index])
        return data.draw(st.lists(st.sampled_from(there), unique=True, max_size=12)) if there else []

    def _at(self, index: int, root: int) -> list[Entry]:
        return read_entries(self.indexes.entries(index, root), 5)

    @rule(given=st.lists(ENTRIES, max_size=15), data=st.data())
    def batch(self, given: list[tuple[int, Entry, int]], data: st.DataObject) -> None:
        self._next()
        changes, wanted = {}, {}
        for position, index in enumerate(self.now):
            arity = self.indexes.arity(index)
            deleted = self._doomed(data, index)
            left = self.now[index] - set(deleted)
            inserted = self._new(given, position, arity, left)
            moved = [one for one in sorted(left) if (*one[:-1], one[-1] + 1000) not in self.now[index]][:2]
            after = [(*one[:-1], one[-1] + 1000) for one in moved]
            changes[index] = Changes(*(packed(part, arity + 1) for part in (deleted, inserted, moved, after)))
            between = (left - set(moved)) | set(after)
            wanted[index] = between | set(deleted), between, between | set(inserted)
        roots = {index: self.indexes.root(index) for index in changes}
        run = apply_to_indexes(self.indexes, changes)
        for index, (old, middle, new) in wanted.items():
            mine = run.indexes == index
            for sign, then in ((ENTER, old), (DELETE, middle), (INSERT, new)):
                some = np.flatnonzero(mine & (run.signs == sign))
                root = int(run.after[some[-1]]) if len(some) else roots[index]
                assert self._at(index, root) == sorted(then)
                roots[index] = root
            assert roots[index] == self.indexes.root(index)
            self.now[index] = frozenset(new)
        self._settle()

    @rule(given=st.lists(ENTRIES, max_size=8), data=st.data())
    def singles(self, given: list[tuple[int, Entry, int]], data: st.DataObject) -> None:
        """Each entry comes if it is not there, and goes if it is."""
        self._next()
        toggled = [(index, one) for index in self.now for one in self._doomed(data, index)]
        for position, index in enumerate(self.now):
            toggled += [(index, (*values[: self.indexes.arity(index)], slot)) for at, values, slot in given if at == position]
        signs, wanted = [], []
        for index, one in toggled:
            signs.append(DELETE if one in self.now[index] else INSERT)
            self.now[index] ^= {one}
            wanted.append((self.now[index], twin.in_common(self.now[index], one)))
        entries = packed([one for _, one in toggled], 9)
        run = apply_steps(self.indexes, np.array([index for index, _ in toggled], np.int64), np.array(signs, np.int8), entries)
        for i, (then, common) in enumerate(wanted):
            assert self._at(toggled[i][0], int(run.after[i])) == sorted(then)
            assert run.common[i] == common
        self._settle()

    @rule(arity=st.sampled_from(ARITIES), given=st.lists(ENTRIES, max_size=20), piece=st.sampled_from([1, 2, 100]), data=st.data())
    def replace(self, arity: int, given: list[tuple[int, Entry, int]], piece: int, data: st.DataObject) -> None:
        """An index is removed, a piece at once, another made."""
        self._next()
        deleted = data.draw(st.sampled_from(sorted(self.now)))
        del self.now[deleted]
        if not self.indexes.remove(deleted, piece):
            self.leaving[deleted] = piece
        self._make(arity, given, 0)
        self._settle()

    @precondition(lambda self: self.leaving)
    @rule(data=st.data())
    def go_on_removing(self, data: st.DataObject) -> None:
        self._next()
        deleted = data.draw(st.sampled_from(sorted(self.leaving)))
        if self.indexes.remove(deleted, self.leaving[deleted]):
            del self.leaving[deleted]
        self._settle()

    def rows_of(self, coordinates: np.ndarray, slots: np.ndarray) -> list[Entry]:
        return unpacked(Entries(coordinates, slots))

    def pinned(self) -> Any:
        of = self.indexes
        return [Seen(index, of.arity(index), of.root(index), then) for index, then in self.now.items()]

    @rule(data=st.data(), values=st.tuples(*[VALUES] * 8), length=st.integers(0, 8))
    def look(self, data: st.DataObject, values: Entry, length: int) -> None:
        index = data.draw(st.sampled_from(sorted(self.now)))
        self._look(index, self.indexes.root(index), self.now[index], values, length)

    def _look(self, index: int, root: int, then: frozenset[Entry], values: Entry, length: int) -> None:
        of, arity = self.indexes, self.indexes.arity(index)
        prefix = values[: min(length, arity)]
        assert of.count(index, root, prefix) == len(twin.below(then, prefix))
        assert of.seek(index, root, prefix) == twin.seek(then, prefix)
        if len(prefix) < arity:
            value = values[len(prefix)]
            assert of.find_gap(index, root, prefix, value) == twin.find_gap(then, prefix, value)

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), values=st.tuples(*[VALUES] * 8), length=st.integers(0, 8))
    def open(self, data: st.DataObject, values: Entry, length: int) -> None:
        version = self.some_pin(data)
        for index, arity, root, then in self.pins[version]:
            if index in self.now and self.indexes.arity(index) == arity:
                self._look(index, root, then, values, length)
                prefix = values[: min(length, arity)]
                self.readings.append(Reading(self.indexes.entries(index, root, prefix), twin.below(then, prefix), version))

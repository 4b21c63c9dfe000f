"""The base of structures that read ordered indexes which others write: the roots of the newest version, and deltas as the rows of changed
entries.

Each atom has one or more indexes over the same rows, its *members*. A changed entry is joined with the other atoms: those before its atom
as they are after the tick, those after it as they were before. So each row of a delta is reported once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from structures.core.cursor import Cursor
from structures.core.runs import Sink, has_delta
from structures.index.indexes import Entries, OrderedIndexes, Run

CHUNK = 1 << 16  # most rows that a sink gets at once
_FIRST = 1 << 8


class Member(NamedTuple):
    """An index (its number in `OrderedIndexes`), and the variables of its coordinates."""

    index: int  # type: ignore[assignment]  # hides the method of tuples
    variables: tuple[int, ...]


Atom = tuple[Member, ...]
"""Indexes over the same rows, by the same variables. Keys and entries are given in the order of the first."""

ONE = Entries(np.zeros((1, 1), np.int64), np.zeros(1, np.int32))  # the only item of a cursor that starts from no entry


class IndexReader(ABC):
    """See the module's head. `members`: of all atoms, one after another; `first`: for each atom the number of its first."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom]) -> None:
        """All indexes are loaded."""
        self.indexes = indexes
        self.members = [one for atom in atoms for one in atom]
        self._atom_of = [a for a, atom in enumerate(atoms) for _ in atom]
        self.first = [self._atom_of.index(a) for a in range(len(atoms))]
        self._of_atom = [[m for m, a in enumerate(self._atom_of) if a == atom] for atom in range(len(atoms))]
        self._roots = np.zeros(len(self.members), np.int64)
        self._counts = [0] * len(atoms)
        self._emitted_steps = 0
        self.look()

    def look(self) -> None:
        """Take the current roots of the indexes."""
        self._roots[: len(self.members)] = [self.indexes.root(one.index) for one in self.members]
        for a, m in enumerate(self.first):
            index = self.members[m].index
            self._counts[a] = self.indexes.count(index, self.indexes.root(index))

    @property
    def is_outgrown(self) -> bool:
        """Whether the structure should be replaced by a new one, as the data has changed."""
        return False

    @property
    @abstractmethod
    def root(self) -> Any:
        """The newest version, published or not."""

    @abstractmethod
    def partners(self, root: Any, position: int, entries: Entries) -> Cursor:
        """The rows in which atom `position` is one of these entries, in their order, which are not looked up."""

    def _entry(self, position: int, coordinates: Sequence[int]) -> Entries:
        """The values of all variables of atom `position`, without a slot. ValueError: the number of values is wrong."""
        variables = self.members[self.first[position]].variables
        if len(coordinates) != len(variables):
            raise ValueError(f"atom {position} has {len(variables)} variables, {len(coordinates)} are given")
        return Entries(np.array([coordinates], np.int64), np.zeros(1, np.int32))

    def _members_of(self, index: np.ndarray) -> np.ndarray:
        """For each change the members that read its index, as bits."""
        members = np.zeros(len(index), np.int64)
        for m, member in enumerate(self.members):
            members |= (index == member.index).astype(np.int64) << m
        return members

    def _change(self, atom: int, sign: int, entries: Entries, common: np.ndarray) -> None:
        """At least one entry was deleted or inserted, and all members of the atom have the tick's roots; `common` as in `Run`."""
        self._counts[atom] += sign * len(entries.slot)

    def follow(self, run: Run, sink: Sink | None) -> None:
        """Follow the changes of the indexes. Every run that changes one of this view's indexes must be followed, before the next.

        The sink gets the rows of the deleted and inserted entries, each row once, with the last of its parts to change, and for each row
        the first change of the tick that reports it. None: no delta is computed.
        """
        wanted = 0
        for first, end in pairwise(run.groups.tolist()):
            telling = sink is not None and has_delta(run.signs.item(first)) and run.ticks.item(first) >= wanted
            wanted = max(wanted, self._follow_tick(run, first, end, sink if telling else None))

    def _follow_tick(self, run: Run, first: int, end: int, sink: Sink | None) -> int:
        """Follow the changes of a tick, which have one sign. Returns the tick before which no more rows are wanted."""
        numbers, sign, wanted = run.indexes[first:end], run.signs.item(first), 0
        for atom, own in enumerate(self._of_atom):
            here = first + np.flatnonzero(numbers == self.members[own[0]].index)
            if not len(here):
                continue
            entries = run.entries.take(here)
            if sink is not None and wanted <= run.ticks.item(first):
                wanted = self._emit(atom, entries, first, sink)
            for m in own:
                self._roots[m] = run.after[first + np.flatnonzero(numbers == self.members[m].index)[-1]]
            if has_delta(sign):
                self._change(atom, sign, entries, run.common[here])
        return wanted

    def _rows_of_changed(self, atom: int, entries: Entries) -> Cursor:
        return self.partners(self.root, atom, entries)

    def _emit(self, atom: int, entries: Entries, change: int, sink: Sink) -> int:
        """Pass the rows of these entries, with the other atoms as they are now, to the sink, in growing chunks. Returns what it returns."""
        cursor, limit, wanted = self._rows_of_changed(atom, entries), _FIRST, 0
        while not cursor.done and not wanted:
            rows = cursor.fill(limit)
            limit = min(4 * limit, CHUNK)
            if rows.shape[1]:
                wanted = sink(np.full(rows.shape[1], change), rows)
        self._emitted_steps += cursor.steps
        return wanted

    @property
    def update_steps(self) -> int:
        """Steps of all deltas so far, as cursors count them."""
        return self._emitted_steps

    def check_roots(self, name: str) -> None:
        """Prove that the roots are those of the indexes, and that all indexes of an atom have as many entries as it counts; AssertionError
        names the invariants `name`1 and `name`2."""
        for m, member in enumerate(self.members):
            atom, root = self._atom_of[m], self.indexes.root(member.index)
            assert self._roots[m] == root, f"{name}1: the root of atom {atom} by {member.variables}"
            count, mine = self.indexes.count(member.index, root), self._counts[atom]
            assert mine == count, f"{name}2: atom {atom} counts {mine} entries, its index by {member.variables} has {count}"

"""The base of structures that read ordered indexes which others write: the roots of the newest version, and deltas as the rows of changed
entries.

Each atom has one or more indexes over the same rows, its *members*. A changed entry is joined with the other atoms: those before its atom
as they are after the step, those after it as they were before. So each row of a delta is reported once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from structures.core.cursor import Cursor
from structures.core.entries import DELETE, INSERT
from structures.core.runs import Deltas
from structures.index.deltas import CHUNK, Sink, tell_all
from structures.index.indexes import Batch, Entries, OrderedIndexes, Run


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
        self._told_steps = 0
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
    def partners(self, root: Any, place: int, entries: Entries) -> Cursor:
        """The rows in which atom number `place` is one of these entries, in their order, which are not looked up."""

    def _entry(self, place: int, coordinates: Sequence[int]) -> Entries:
        """The values of all variables of atom number `place`, without a slot. ValueError: the number of values is wrong."""
        variables = self.members[self.first[place]].variables
        if len(coordinates) != len(variables):
            raise ValueError(f"atom {place} has {len(variables)} variables, {len(coordinates)} are given")
        return Entries(np.array([coordinates], np.int64), np.zeros(1, np.int32))

    def _members_of(self, index: np.ndarray) -> np.ndarray:
        """For each change the members that read its index, as bits."""
        members = np.zeros(len(index), np.int64)
        for m, member in enumerate(self.members):
            members |= (index == member.index).astype(np.int64) << m
        return members

    def _change(self, atom: int, sign: int, entries: Entries, common: np.ndarray) -> None:
        """At least one entry was deleted or inserted, and all members of the atom have the step's roots; `common` as in `Half`."""
        self._counts[atom] += sign * len(entries.slot)

    def follow(self, batch: Batch, sink: Sink | None) -> None:
        """Follow the changes of the indexes. Every batch that changes one of this view's indexes must be followed, before the next.

        `sink(sign, slots)` gets the delta in chunks, deletes first: sign -1 or 1, slots int32[t, n], each its own; each row is reported
        once, with the last of its parts to change. It returns False to get no more. None: no delta is computed.
        """
        mine = [[(m, batch[i]) for m in own if (i := self.members[m].index) in batch] for own in self._of_atom]
        for halves in mine:
            for m, (deletes, _) in halves:
                self._roots[m] = deletes.before
        for step, sign in enumerate((DELETE, INSERT)):
            for atom, halves in enumerate(mine):
                if not halves:
                    continue
                half = halves[0][1][step]
                changed = len(half.entries.slot) > 0
                if sink is not None and changed and not self._tell(atom, half.entries, sign, sink):
                    sink = None
                for m, both in halves:
                    self._roots[m] = both[step].after
                if changed:
                    self._change(atom, sign, half.entries, half.common)

    def follow_in_order(self, run: Run, offsets: np.ndarray, limit: int | None, quiet: np.ndarray | None = None) -> Deltas:
        """Follow single changes, and report the delta of each, relative to the view left by the changes before it; changes of other indexes
        report nothing.

        offsets: int64[n], ascending: changes of one number and sign are the same entries in several indexes, and the rows are reported with
        the first of them. quiet: bool[n], changes whose rows are not wanted. Deltas of more than `limit` rows that fill more than a chunk
        are abandoned; None: no deltas are reported.
        """
        most = max(limit or 0, CHUNK)
        n, total = len(run.signs), 0
        starts, ends, too_large = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
        parts = [np.empty((len(self._of_atom), 0), np.int32)]
        cuts = (np.flatnonzero((np.diff(offsets) != 0) | (np.diff(run.signs) != 0)) + 1).tolist()
        for first, end in zip([0, *cuts], [*cuts, n], strict=True) if n else ():
            told: list[np.ndarray] | None = None if limit is None or (quiet is not None and quiet[first]) else []
            rows = self._follow_some(run, first, end, told, most)
            too_large[first] = told is not None and rows > most
            starts[first:end], ends[first:end] = total, total
            if told and not too_large[first]:
                parts += told
                total += rows
                ends[first], starts[first + 1 : end], ends[first + 1 : end] = total, total, total
        return Deltas(starts, ends, np.concatenate(parts, axis=1), too_large)

    def _follow_some(self, run: Run, first: int, end: int, told: list[np.ndarray] | None, limit: int) -> int:
        """Follow changes of one sign that are one change of the rows. Returns the number of rows reported, up to a few more than
        `limit`."""
        numbers, count = run.indexes[first:end].tolist(), 0

        def gather(_: int, rows: np.ndarray) -> bool:
            nonlocal count
            count += rows.shape[1]
            if told is not None:
                told.append(rows)
            return count <= limit

        for atom, own in enumerate(self._of_atom):
            here = np.array([first + i for i, number in enumerate(numbers) if number == self.members[own[0]].index], np.int64)
            if not len(here):
                continue
            entries = run.entries.take(here)
            if told is not None and count <= limit:
                self._tell(atom, entries, 0, gather)
            for m in own:
                places = [i for i, number in enumerate(numbers) if number == self.members[m].index]
                self._roots[m] = int(run.after[first + places[-1]])
            self._change(atom, int(run.signs[first]), entries, run.common[here])
        return count

    def _rows_of_changed(self, atom: int, entries: Entries) -> Cursor:
        return self.partners(self.root, atom, entries)

    def _tell(self, atom: int, entries: Entries, sign: int, sink: Sink) -> bool:
        """Pass the rows of these entries, with the other atoms as they are now, to the sink. Returns whether it wants more."""
        cursor = self._rows_of_changed(atom, entries)
        wanted = tell_all(cursor, sign, sink) is not None
        self._told_steps += cursor.steps
        return wanted

    @property
    def update_steps(self) -> int:
        """Steps of all deltas so far, as cursors count them."""
        return self._told_steps

    def check_roots(self, name: str) -> None:
        """Prove that the roots are those of the indexes, and that all indexes of an atom have as many entries as it counts; AssertionError
        names the invariants `name`1 and `name`2."""
        for m, member in enumerate(self.members):
            atom, root = self._atom_of[m], self.indexes.root(member.index)
            assert self._roots[m] == root, f"{name}1: the root of atom {atom} by {member.variables}"
            count, mine = self.indexes.count(member.index, root), self._counts[atom]
            assert mine == count, f"{name}2: atom {atom} counts {mine} entries, its index by {member.variables} has {count}"

"""What the Hypothesis state machines share of structures that read ordered indexes (`index/following.py`): two or more of them over the
same indexes, beside a naive twin: batches, single changes, moves, pins, reads by bits, unpins; `check()` after every version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from structures.core.entries import DELETE, INSERT
from structures.index.following import CHUNK, Atom, Member
from structures.index.indexes import Entries, OrderedIndexes, Run
from tests.naive.natural_join import Entry, join
from tests.structures.batches import Changes, apply_steps, apply_to_indexes, follow_batch, follow_steps
from tests.structures.index.machine import packed
from tests.structures.machines import Reading, ReadingMachine, Row, transposed

Variables = tuple[int, ...]
Relations = Mapping[int, Iterable[Entry]]  # by number
Key = tuple[int, tuple[int, ...]]  # of an index: its relation, and which of its columns it goes by


class View(NamedTuple):
    """A structure over indexes, and what its atoms are, for the twin: relation, variables."""

    tree: Any
    atoms: Sequence[tuple[int, Variables]]

    def wanted(self, then: Relations) -> set[Row]:
        return join([then[relation] for relation, _ in self.atoms], [own for _, own in self.atoms])

    def entries(self, position: int, given: Iterable[Entry]) -> Entries:
        """In the order of the atom's first index."""
        own = self.atoms[position][1]
        first = self.tree.members[self.tree.first[position]].variables
        return packed([permuted(one, tuple(own.index(v) for v in first)) for one in given], len(own) + 1)


def permuted(entry: Entry, columns: Sequence[int]) -> Entry:
    return (*(entry[j] for j in columns), entry[-1])


def atoms_of(
    indexes: OrderedIndexes, made: dict[Key, int], atoms: Sequence[tuple[int, Variables]], orders: Iterable[Iterable[Variables]],
    given: Relations,
) -> list[Atom]:  # fmt: skip
    """The atoms' indexes, by variables in these orders; those that nobody made yet are loaded."""
    found = []
    for (relation, own), mine in zip(atoms, orders, strict=True):
        members = []
        for order in mine:
            key = relation, tuple(own.index(v) for v in order)
            if key not in made:
                made[key] = indexes.add(len(order))
                indexes.load(made[key], packed([permuted(one, key[1]) for one in given[relation]], len(order)))
            members.append(Member(made[key], order))
        found.append(tuple(members))
    return found


class FollowingMachine(ReadingMachine):
    """A machine has its rules, which call these methods, and begins by `prepare` and `_settle`."""

    WIDTH = 4  # columns of the widest relation
    CHUNK = CHUNK  # rows up to which no delta is given up
    WHOLE = 2  # ways to read all rows

    indexes: OrderedIndexes
    views: list[View]

    def prepare(self, arities: tuple[int, ...], tuples: list[tuple[int, Entry, int]]) -> None:
        """Empty indexes, and the relations, of these arities."""
        self.indexes = OrderedIndexes(1 << 20)
        self.indexes.begin(1)
        self.arities = arities
        self.now = {position: frozenset(self._new(tuples, position)) for position in range(len(arities))}
        self.made: dict[Key, int] = {}

    def note(self, run: Run) -> None:
        """What was done to indexes."""

    def whole(self, tree: Any, root: Any, position: int, how: int) -> Any:
        """A cursor of all rows, in one of the ways; `position`: an atom."""
        return tree.rows(root)

    def held(self, view: View, root: Any) -> list[tuple[int, int]]:
        """The arity and the root of each index that a version needs."""
        return [(len(one.variables), at) for one, at in zip(view.tree.members, root.roots, strict=True)]

    @property
    def unlinked(self) -> list[tuple[int, int]]:
        """The arity and the root of each part of trees that are being written."""
        return []

    def _new(self, tuples: list[tuple[int, Entry, int]], position: int) -> list[Entry]:
        """Up to two entries of a tuple each."""
        made = []
        for at, values, copies in tuples:
            for _ in range(copies if at % len(self.arities) == position else 0):
                self.slot += 1
                made.append((*values[: self.arities[position]], self.slot))
        return made

    def _settle(self) -> None:
        self.indexes.reclaim(self.version, self.pin_array())
        pairs = [pair for roots, _ in self.pins.values() for pair in zip(self.views, roots, strict=False)]  # more have come since
        self.indexes.check([*(one for view, root in pairs for one in self.held(view, root)), *self.unlinked])
        for view in self.views:
            view.tree.check()
            wanted, rows, cursor = view.wanted(self.now), list[Row](), view.tree.rows(view.tree.root)
            while not cursor.done and len(rows) <= len(wanted):
                rows += transposed(cursor.fill(3))
            assert sorted(rows) == sorted(wanted)
            assert view.tree.is_empty(view.tree.root) in (None, not wanted)

    def _begin_version(self) -> None:
        self.version += 1
        self.indexes.begin(self.version)

    def change_at_once(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject) -> None:
        self._begin_version()
        changes, before, between, after = {}, dict(self.now), dict(self.now), dict(self.now)
        for position, entries in self.now.items():
            there = sorted(entries)
            deleted = data.draw(st.lists(st.sampled_from(there), unique=True, max_size=6)) if there else []
            inserted = self._new(tuples, position)
            moved = sorted(entries - set(deleted))[:1]
            moves = [(*one[:-1], self.slot + 1) for one in moved]
            self.slot += len(moves)
            for (relation, columns), index in self.made.items() if deleted or inserted or moves else ():
                if relation == position:
                    parts = ([permuted(one, columns) for one in part] for part in (deleted, inserted, moved, moves))
                    changes[index] = Changes(*(packed(part, self.WIDTH + 1) for part in parts))
            before[position] = (entries - set(moved)) | set(moves)
            between[position] = before[position] - set(deleted)
            after[position] = between[position] | set(inserted)
        done = apply_to_indexes(self.indexes, changes)
        self.note(done)
        for view in self.views:
            emitted: dict[int, list[Row]] = {DELETE: [], INSERT: []}

            def sink(sign: int, slots: np.ndarray, emitted: dict[int, list[Row]] = emitted) -> bool:
                emitted[sign] += transposed(slots)
                return True

            follow_batch(view.tree, done, sink)
            assert sorted(emitted[DELETE]) == sorted(view.wanted(before) - view.wanted(between))
            assert sorted(emitted[INSERT]) == sorted(view.wanted(after) - view.wanted(between))
        self.now = after
        self._settle()

    def change_singly(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject, limit: int | None) -> None:
        """Each change goes into all indexes of its relation."""
        self._begin_version()
        steps: list[tuple[int, int, Entry]] = []
        for position, entries in self.now.items():
            there = sorted(entries)
            deleted = data.draw(st.lists(st.sampled_from(there), unique=True, max_size=3)) if there else []
            steps += [(DELETE, position, one) for one in deleted] + [(INSERT, position, one) for one in self._new(tuples, position)]
        steps = data.draw(st.permutations(steps))
        states = [self.now]
        entries_of: list[tuple[int, int, int, Entry]] = []  # number of the step, index, sign, entry
        for number, (sign, position, one) in enumerate(steps):
            states.append({**states[-1], position: states[-1][position] ^ {one}})
            mine = [(index, columns) for (relation, columns), index in self.made.items() if relation == position]
            entries_of += [(number, index, sign, permuted(one, columns)) for index, columns in mine]
        offsets, numbers = (np.array([one[word] for one in entries_of], np.int64) for word in (0, 1))
        signs = np.array([sign for _, _, sign, _ in entries_of], np.int8)
        widest = [(*one[:-1], *[7] * (self.WIDTH + 1 - len(one)), one[-1]) for *_, one in entries_of]
        run = apply_steps(self.indexes, numbers, signs, packed(widest, self.WIDTH), offsets)
        self.note(run)
        for view in self.views:
            found = follow_steps(view.tree, run, limit)
            for number in range(len(steps)):
                wanted = view.wanted(states[number]) ^ view.wanted(states[number + 1])
                given_up = limit is None or len(wanted) > limit
                assert sorted(transposed(found[number]) if number in found else []) == ([] if given_up else sorted(wanted))
        self.now = states[-1]
        self._settle()

    def pinned(self) -> Any:
        return [view.tree.root for view in self.views], self.now

    def open_one(self, data: st.DataObject, values: Entry, how: int) -> None:
        """A reading of a pinned version: of all rows, by WHOLE ways, then of given entries, then of a key."""
        version = self.some_pin(data)
        roots, then = self.pins[version]
        number = data.draw(st.integers(0, len(roots) - 1))
        view = self.views[number]
        root, wanted = roots[number], view.wanted(then)
        position = data.draw(st.integers(0, len(view.atoms) - 1))
        relation, own = view.atoms[position]
        if how < self.WHOLE:
            cursor = self.whole(view.tree, root, position, how)
        elif how == self.WHOLE:
            given = [one for one in sorted(then[relation]) if one[-1] % 2]
            cursor = view.tree.partners(root, position, view.entries(position, given))
            wanted = {row for row in wanted if row[position] % 2}
        else:
            key = values[: len(own)]
            cursor = view.tree.of_key(root, position, view.entries(position, [(*key, 0)]).coordinates[0, : len(own)].tolist())
            mine = {one[-1] for one in then[relation] if one[: len(own)] == key}
            wanted = {row for row in wanted if row[position] in mine}
        self.readings.append(Reading(cursor, wanted, version))

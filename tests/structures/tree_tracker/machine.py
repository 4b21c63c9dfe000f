"""A Hypothesis state machine that drives two tree-trackers over the same indexes beside a naive twin: batches, single changes, moves, pins,
reads by bits from any atom, TT-gamma, given entries, given keys, unpins; `check()` after every version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.core.entries import DELETE, INSERT
from structures.index.indexes import Changes, Entries, OrderedIndexes
from structures.tree_tracker.tracker import Member, TreeTracker, index_orders
from tests.naive.natural_join import Entry, join
from tests.structures.index.machine import packed
from tests.structures.machines import Reading, ReadingMachine, Row, empty_chunks, transposed

Relations = dict[int, frozenset[Entry]]  # by number
VALUES = st.one_of(st.integers(0, 2), st.sampled_from([-(2**63), 2**63 - 1]))
TUPLES = st.tuples(st.integers(0, 4), st.tuples(*[VALUES] * 4), st.integers(1, 2))
Key = tuple[int, tuple[int, ...]]  # of an index: its relation, and which of its columns it goes by


class Shape(NamedTuple):
    """arities of the relations; of each view its atoms, each a relation and its variables, and the edges of its join tree."""

    arities: tuple[int, ...]
    views: tuple[tuple[tuple[tuple[int, tuple[int, ...]], ...], tuple[tuple[int, int], ...]], ...]


_CHAIN = ((0, 1), (1, 2), (2, 3))
SHAPES = [
    Shape((2, 1, 2, 1), ((((0, (0, 1)), (1, (1,)), (2, (1, 2)), (3, (2,))), _CHAIN), (((0, (0, 1)), (0, (1, 2)), (1, (2,))), _CHAIN[:2]))),
    Shape(
        (1, 3, 1, 2),
        (
            (((0, (0,)), (1, (0, 1, 2)), (2, (2,)), (3, (1, 2))), ((0, 1), (1, 2), (1, 3))),
            (((3, (0, 1)), (3, (1, 2))), ((0, 1),)),
        ),
    ),
    Shape(
        (2,),
        (
            (((0, (0, 1)), (0, (1, 2)), (0, (2, 3))), ((0, 1), (1, 2))),
            (((0, (0, 1)), (0, (0, 1)), (0, (1, 0))), ((0, 1), (0, 2))),
        ),
    ),
    Shape(
        (3, 2, 2),
        (
            (((0, (0, 1, 2)), (1, (0, 3)), (2, (1, 4))), ((0, 1), (0, 2))),
            (((1, (0, 1)), (0, (3, 1, 0)), (2, (3, 5)), (2, (3, 6))), _CHAIN),
        ),
    ),
    Shape(
        (4, 4),
        (
            (((0, (0, 1, 2, 3)), (1, (2, 0, 4, 1))), ((0, 1),)),
            (((0, (0, 1, 2, 3)), (1, (3, 5, 6, 7)), (1, (3, 8, 9, 0))), ((0, 1), (0, 2))),
        ),
    ),
    Shape(
        (2, 2, 1),
        (
            (((0, (0, 1)), (1, (1, 2)), (0, (2, 3)), (2, (1,)), (2, (3,)), (1, (0, 4))), ((0, 1), (1, 2), (0, 3), (2, 4), (0, 5))),
            (((2, (0,)), (0, (0, 1)), (1, (0, 2)), (2, (0,))), _CHAIN),
        ),
    ),
]


class View(NamedTuple):
    """A structure over indexes, and what its atoms are, for the twin: relation, variables."""

    tree: Any
    atoms: Sequence[tuple[int, tuple[int, ...]]]

    def wanted(self, then: Mapping[int, Iterable[Entry]]) -> set[Row]:
        return join([then[relation] for relation, _ in self.atoms], [own for _, own in self.atoms])

    def entries(self, place: int, given: Iterable[Entry]) -> Entries:
        """In the order of the atom's first index."""
        own = self.atoms[place][1]
        first = self.tree.members[self.tree.first[place]].variables
        return packed([permuted(one, tuple(own.index(v) for v in first)) for one in given], 5)


def permuted(entry: Entry, columns: Sequence[int]) -> Entry:
    return (*(entry[j] for j in columns), entry[-1])


def tracker_of(
    indexes: OrderedIndexes, made: dict[Key, int], atoms: Sequence[tuple[int, tuple[int, ...]]], edges: Sequence[tuple[int, int]],
    given: Mapping[int, Iterable[Entry]],
) -> TreeTracker:  # fmt: skip
    """Over the indexes that it needs; those that nobody made yet are loaded."""
    members = []
    for (relation, own), orders in zip(atoms, index_orders([own for _, own in atoms], edges), strict=True):
        mine = []
        for order in orders:
            key = relation, tuple(own.index(v) for v in order)
            if key not in made:
                made[key] = indexes.add(len(order))
                indexes.load(made[key], packed([permuted(one, key[1]) for one in given[relation]], len(order)))
            mine.append(Member(made[key], order))
        members.append(tuple(mine))
    return TreeTracker(indexes, members, edges)


class TrackerMachine(ReadingMachine):
    @initialize(shape=st.sampled_from(SHAPES), tuples=st.lists(TUPLES, max_size=30))
    def begin(self, shape: Shape, tuples: list[tuple[int, Entry, int]]) -> None:
        self.indexes = OrderedIndexes(1 << 20)
        self.indexes.begin(1)
        self.arities = shape.arities
        self.now: Relations = {place: frozenset(self._new(tuples, place)) for place in range(len(shape.arities))}
        self.made: dict[Key, int] = {}
        self.views = [View(tracker_of(self.indexes, self.made, *one, self.now), one[0]) for one in shape.views]
        self._settle()

    def _new(self, tuples: list[tuple[int, Entry, int]], place: int) -> list[Entry]:
        """Up to two entries of a tuple each."""
        made = []
        for at, values, copies in tuples:
            for _ in range(copies if at % len(self.arities) == place else 0):
                self.slot += 1
                made.append((*values[: self.arities[place]], self.slot))
        return made

    def _settle(self) -> None:
        self.indexes.reclaim(self.version, self.pin_array())
        used = []
        for roots, _ in self.pins.values():
            for view, root in zip(self.views, roots, strict=True):
                used += [(len(one.variables), at) for one, at in zip(view.tree.members, root.roots, strict=True)]
        self.indexes.check(used)
        for view in self.views:
            view.tree.check()
            wanted, rows, cursor = view.wanted(self.now), list[Row](), view.tree.rows(view.tree.root)
            while not cursor.done and len(rows) <= len(wanted):
                rows += transposed(cursor.fill(3))
            assert sorted(rows) == sorted(wanted)
            assert view.tree.is_empty(view.tree.root) in (None, not wanted)

    @rule(tuples=st.lists(TUPLES, max_size=10), data=st.data())
    def batch(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject) -> None:
        self.version += 1
        empty_chunks(self.indexes.arena, self.version)
        self.indexes.begin(self.version)
        changes, before, between, after = {}, dict(self.now), dict(self.now), dict(self.now)
        for place, entries in self.now.items():
            there = sorted(entries)
            gone = data.draw(st.lists(st.sampled_from(there), unique=True, max_size=6)) if there else []
            come = self._new(tuples, place)
            moved = sorted(entries - set(gone))[:1]
            moves = [(*one[:-1], self.slot + 1) for one in moved]
            self.slot += len(moves)
            for (relation, columns), index in self.made.items() if gone or come or moves else ():
                if relation == place:
                    parts = ([permuted(one, columns) for one in part] for part in (gone, come, moved, moves))
                    changes[index] = Changes(*(packed(part, 5) for part in parts))
            before[place] = (entries - set(moved)) | set(moves)
            between[place] = before[place] - set(gone)
            after[place] = between[place] | set(come)
        done = self.indexes.apply(changes)
        for view in self.views:
            told: dict[int, list[Row]] = {DELETE: [], INSERT: []}

            def sink(sign: int, slots: np.ndarray, told: dict[int, list[Row]] = told) -> bool:
                told[sign] += transposed(slots)
                return True

            view.tree.follow(done, sink)
            assert sorted(told[DELETE]) == sorted(view.wanted(before) - view.wanted(between))
            assert sorted(told[INSERT]) == sorted(view.wanted(after) - view.wanted(between))
        self.now = after
        self._settle()

    @rule(tuples=st.lists(TUPLES, max_size=5), data=st.data(), limit=st.sampled_from([0, 10**6, None]), quiet=st.booleans())
    def singles(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject, limit: int | None, quiet: bool) -> None:
        """Each change goes into all indexes of its relation."""
        self.version += 1
        empty_chunks(self.indexes.arena, self.version)
        self.indexes.begin(self.version)
        steps: list[tuple[int, int, Entry]] = []
        for place, entries in self.now.items():
            there = sorted(entries)
            gone = data.draw(st.lists(st.sampled_from(there), unique=True, max_size=3)) if there else []
            steps += [(DELETE, place, one) for one in gone] + [(INSERT, place, one) for one in self._new(tuples, place)]
        steps = data.draw(st.permutations(steps))
        states = [self.now]
        entries_of: list[tuple[int, int, int, Entry]] = []  # number of the step, index, sign, entry
        for number, (sign, place, one) in enumerate(steps):
            states.append({**states[-1], place: states[-1][place] ^ {one}})
            mine = [(index, columns) for (relation, columns), index in self.made.items() if relation == place]
            entries_of += [(number, index, sign, permuted(one, columns)) for index, columns in mine]
        offsets, numbers = (np.array([one[word] for one in entries_of], np.int64) for word in (0, 1))
        signs = np.array([sign for _, _, sign, _ in entries_of], np.int8)
        widest = [(*one[:-1], *[7] * (5 - len(one)), one[-1]) for *_, one in entries_of]
        run = self.indexes.apply_in_order(numbers, signs, packed(widest, 4))
        hushed = offsets % 3 == 0 if quiet else None
        for view in self.views:
            deltas = view.tree.follow_in_order(run, offsets, limit, hushed)
            for number in range(len(steps)):
                mine = np.flatnonzero(offsets == number)
                rows = [row for i in mine for row in transposed(deltas.rows[:, deltas.starts[i] : deltas.ends[i]])]
                wanted = view.wanted(states[number]) ^ view.wanted(states[number + 1])
                hush = limit is None or (hushed is not None and hushed[mine[0]])
                assert sorted(rows) == ([] if hush else sorted(wanted))
            assert not deltas.too_large.any(), "none fills a chunk"
        self.now = states[-1]
        self._settle()

    def pinned(self) -> Any:
        return [view.tree.root for view in self.views], self.now

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), values=st.tuples(*[VALUES] * 4), how=st.integers(0, 3))
    def open(self, data: st.DataObject, values: Entry, how: int) -> None:
        version = self.some_pin(data)
        number = data.draw(st.integers(0, len(self.views) - 1))
        view, (roots, then) = self.views[number], self.pins[version]
        root, wanted = roots[number], view.wanted(then)
        place = data.draw(st.integers(0, len(view.atoms) - 1))
        relation, own = view.atoms[place]
        if how < 2:
            cursor = view.tree.rows(root, place, reduced=how == 1)
        elif how == 2:
            given = [one for one in sorted(then[relation]) if one[-1] % 2]
            cursor = view.tree.partners(root, place, view.entries(place, given))
            wanted = {row for row in wanted if row[place] % 2}
        else:
            key = values[: len(own)]
            cursor = view.tree.of_key(root, place, view.entries(place, [(*key, 0)]).coordinates[0, : len(own)].tolist())
            mine = {one[-1] for one in then[relation] if one[: len(own)] == key}
            wanted = {row for row in wanted if row[place] in mine}
        self.readings.append(Reading(cursor, wanted, version))

"""A Hypothesis state machine that drives two view trees over the same indexes beside a naive twin: batches, single changes, moves, pins,
reads by bits, given entries, given keys, unpins; further trees that come to be meanwhile; `check()` after every version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.core.entries import DELETE, INSERT
from structures.index.indexes import OrderedIndexes
from structures.view_tree.tree import Member, ViewTree
from tests.naive.natural_join import Entry, join
from tests.structures.batches import Changes, apply_steps, apply_to_indexes, follow_batch, follow_steps
from tests.structures.index.machine import packed
from tests.structures.index.planting_machine import PlantingMachine
from tests.structures.machines import Reading, Row, read_all, transposed

Relations = dict[int, frozenset[Entry]]  # by index
VALUES = st.integers(0, 2)
TUPLES = st.tuples(st.integers(0, 4), st.tuples(*[VALUES] * 5), st.integers(1, 3))


class Shape(NamedTuple):
    """arities of the indexes; of each atom of each view its index and its variables."""

    arities: tuple[int, ...]
    views: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]


SHAPES = [
    Shape((1, 1), (((0, (0,)), (1, (0,))), ((1, (3,)), (1, (3,))))),  # a self-join on one index beside it
    Shape((1, 1, 2), (((0, (0,)), (1, (0,)), (2, (0,))), ((2, (0, 1)), (0, (0,))))),  # stars; an index of more than joins
    Shape((1, 1, 1, 1), (((0, (0,)), (1, (0,)), (2, (0,)), (3, (0,))), ((3, (0,)), (0, (0,)), (3, (0,)), (3, (0,))))),
    Shape((1, 2, 2), (((0, (0,)), (1, (0, 1)), (2, (0, 1))), ((2, (0, 1)), (1, (0, 1))))),
    Shape((2, 2, 2, 1), (((0, (0, 1)), (1, (0, 1)), (2, (0, 2)), (2, (0, 2)), (3, (0,))), ((0, (0, 1)), (2, (0, 2))))),
    Shape((3, 3, 2, 2), (((0, (0, 1, 2)), (1, (0, 1, 2)), (2, (0, 1)), (3, (0, 3))), ((0, (5, 1, 2)), (1, (5, 1, 4)), (3, (5, 3))))),
    Shape((4, 5), (((0, (0, 1, 2, 3)), (1, (0, 1, 2, 3, 4))), ((0, (0, 1, 2)), (0, (0, 1, 4)), (1, (0, 9))))),
]


class View(NamedTuple):
    """A view tree, and what its atoms are, for the twin: index, variables."""

    tree: ViewTree
    atoms: Sequence[tuple[int, tuple[int, ...]]]

    def wanted(self, then: Relations) -> set[Row]:
        relations = [[(*one[: len(own)], one[-1]) for one in then[index]] for index, own in self.atoms]
        return join(relations, [own for _, own in self.atoms])


class ViewMachine(PlantingMachine):
    @initialize(shape=st.sampled_from(SHAPES), tuples=st.lists(TUPLES, max_size=25))
    def begin(self, shape: Shape, tuples: list[tuple[int, Entry, int]]) -> None:
        self.indexes = OrderedIndexes(1 << 20)
        self.indexes.begin(1)
        self.made = [self.indexes.add(arity) for arity in shape.arities]
        self.now: Relations = {}
        for position, index in enumerate(self.made):
            loaded = self._new(tuples, position)
            self.indexes.load(index, packed(loaded, 5))
            self.now[index] = frozenset(loaded)
        self.views: list[View] = []
        for atoms in shape.views:
            own = [(self.made[position], variables) for position, variables in atoms]
            self.views.append(self._view(own))
            self.views[-1].tree.load()
        self._settle()

    def _view(self, atoms: Sequence[tuple[int, tuple[int, ...]]]) -> View:
        return View(ViewTree(self.indexes, [(Member(*one),) for one in atoms]), atoms)

    def another(self, view: View) -> View:
        return self._view(view.atoms)

    def _new(self, tuples: list[tuple[int, Entry, int]], position: int) -> list[Entry]:
        """Up to three entries of a tuple each."""
        made = []
        for at, values, copies in tuples:
            for _ in range(copies if at % len(self.made) == position else 0):
                self.slot += 1
                made.append((*values[: self.indexes.arity(self.made[position])], self.slot))
        return made

    def _settle(self) -> None:
        self.indexes.reclaim(self.version, self.pin_array())
        used = []
        for roots, _ in self.pins.values():
            for view, root in zip(self.views, roots, strict=False):  # more have come since
                arities = [*(self.indexes.arity(index) for index, _ in view.atoms), *(node.prefix for node in view.tree.shape.nodes)]
                used += list(zip(arities, root.roots, strict=True))
        self.indexes.check([*used, *self.unlinked])
        for view in self.views:
            view.tree.check()
            wanted = view.wanted(self.now)
            assert set(read_all(view.tree.rows(view.tree.root), 3)) == wanted
            assert view.tree.is_empty(view.tree.root) == (not wanted)

    @rule(tuples=st.lists(TUPLES, max_size=10), data=st.data())
    def batch(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject) -> None:
        self.version += 1
        self.indexes.begin(self.version)
        changes, before, between, after = {}, dict(self.now), dict(self.now), dict(self.now)
        for position, index in enumerate(self.made):
            there = sorted(self.now[index])
            deleted = data.draw(st.lists(st.sampled_from(there), unique=True, max_size=6)) if there else []
            inserted = self._new(tuples, position)
            moved = sorted(self.now[index] - set(deleted))[:1]
            moves = [(*one[:-1], self.slot + 1) for one in moved]
            self.slot += len(moves)
            if deleted or inserted or moves:
                changes[index] = Changes(*(packed(part, 5) for part in (deleted, inserted, moved, moves)))
            before[index] = (self.now[index] - set(moved)) | set(moves)
            between[index] = before[index] - set(deleted)
            after[index] = between[index] | set(inserted)
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

    @rule(tuples=st.lists(TUPLES, max_size=5), data=st.data(), limit=st.sampled_from([0, 3, 10**6]))
    def singles(self, tuples: list[tuple[int, Entry, int]], data: st.DataObject, limit: int) -> None:
        self.version += 1
        self.indexes.begin(self.version)
        steps: list[tuple[int, int, Entry]] = []
        for position, index in enumerate(self.made):
            there = sorted(self.now[index])
            deleted = data.draw(st.lists(st.sampled_from(there), unique=True, max_size=3)) if there else []
            steps += [(DELETE, index, one) for one in deleted] + [(INSERT, index, one) for one in self._new(tuples, position)]
        steps = data.draw(st.permutations(steps))
        states = [self.now]
        for _, index, one in steps:
            states.append({**states[-1], index: states[-1][index] ^ {one}})
        numbers, signs = np.array([at for _, at, _ in steps], np.int64), np.array([sign for sign, _, _ in steps], np.int8)
        run = apply_steps(self.indexes, numbers, signs, packed([one for *_, one in steps], 6))
        self.note(run)
        for view in self.views:
            found = follow_steps(view.tree, run, limit)
            for i in range(len(steps)):
                wanted = view.wanted(states[i]) ^ view.wanted(states[i + 1])
                assert sorted(transposed(found[i]) if i in found else []) == (sorted(wanted) if len(wanted) <= limit else [])
        self.now = states[-1]
        self._settle()

    def pinned(self) -> Any:
        return [view.tree.root for view in self.views], self.now

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), values=st.tuples(*[VALUES] * 5), how=st.integers(0, 2))
    def open(self, data: st.DataObject, values: Entry, how: int) -> None:
        version = self.some_pin(data)
        roots, then = self.pins[version]
        number = data.draw(st.integers(0, len(roots) - 1))
        view = self.views[number]
        root, wanted = roots[number], view.wanted(then)
        position = data.draw(st.integers(0, len(view.atoms) - 1))
        index, own = view.atoms[position]
        if how == 0:
            cursor = view.tree.rows(root)
        elif how == 1:
            given = [one for one in sorted(then[index]) if one[-1] % 2]
            cursor = view.tree.partners(root, position, packed(given, 5))
            wanted = {row for row in wanted if row[position] % 2}
        else:
            cursor = view.tree.of_key(root, position, values[: len(own)])
            mine = {one[-1] for one in then[index] if one[: len(own)] == values[: len(own)]}
            wanted = {row for row in wanted if row[position] in mine}
        self.readings.append(Reading(cursor, wanted, version))

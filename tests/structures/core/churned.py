"""What a day of churn is tried on: each structure that has a store of its own, behind the same few methods.

Entry number i has a value, which a change replaces by another one; its slot is its number. Lengths are such that there are about as many
rows as entries. What is held: stores of blocks, and arrays beside them as far as they have ever been used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from structures.aggregate import layout
from structures.aggregate.groups import Groups, Step
from structures.aggregate.layout import GroupedColumns
from structures.box.tree import BoxTree
from structures.clique.tree import CliqueTree
from structures.core.blocks import Blocks
from structures.core.entries import DELETE, INSERT, Entries
from structures.cover.tree import Cover
from structures.event_tree import layout as events
from structures.event_tree.matching import Matching
from structures.event_tree.runs import OUTER_DELETE, OUTER_INSERT, PARTNER_DELETE, PARTNER_INSERT, Moves
from structures.event_tree.tree import EventTree
from structures.ij_heap.heap import IJHeap, Topology
from structures.index.indexes import Entries as Tuples
from structures.index.indexes import OrderedIndexes
from structures.interval.tree import IntervalTree
from structures.join_tree.tree import JoinTree, Port
from structures.quadtree.trees import QuadTrees
from structures.ranked.entries import RankedChanges as Ranks
from structures.ranked.tops import Tops
from structures.view_tree.tree import Member, ViewTree
from tests.structures.batches import Changes, apply_batch, apply_to_indexes, apply_to_join, follow_batch

LINE = 10**9  # values are below
IN_PLACE = ("groups",)  # nobody but the writer reads them: pins hold nothing


class Subject:
    """See the module's head. `n`: the entries that it will have."""

    stores: tuple[Blocks, ...] = ()

    def __init__(self, n: int) -> None:
        self.n = n

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        """Fill it, as version 1."""
        raise NotImplementedError

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        """These entries get their later values, as a version."""
        raise NotImplementedError

    def reclaim(self, version: int, pins: np.ndarray) -> None:
        raise NotImplementedError

    @property
    def held(self) -> int:
        """Bytes."""
        return sum(store.held_bytes for store in self.stores)

    def check(self) -> None:
        """Prove the invariants of the newest version, the only one in use, and that no block is lost."""
        raise NotImplementedError


class Intervals(Subject):
    """A tree of intervals, each as long as the mean distance of two that begin."""

    sets = 2

    def __init__(self, n: int, tree: Any) -> None:
        super().__init__(n)
        self.tree, self.stores = tree, (tree.arena,)

    def entries(self, numbers: np.ndarray, values: np.ndarray) -> Entries:
        left = values[numbers]
        sets = (numbers % self.sets).astype(np.uint8)
        return Entries(sets, np.zeros(len(numbers), np.int32), left, left + LINE // self.n, numbers.astype(np.int32))

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        self.tree.bulk_load(1, self.entries(numbers, values))

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        apply_batch(self.tree, version, self.entries(numbers, values), self.entries(numbers, later), None)

    def reclaim(self, version: int, pins: np.ndarray) -> None:
        self.tree.reclaim(version, pins)

    def check(self) -> None:
        self.tree.check(self.tree.root)


class Cliques(Intervals):
    sets = 1


class Boxes(Intervals):
    """Squares, of which each meets about one; or so short ones that most lie in records alone."""

    def __init__(self, n: int, length: int) -> None:
        super().__init__(n, BoxTree(2, "pair"))
        self.length = length

    def entries(self, numbers: np.ndarray, values: np.ndarray) -> Entries:
        flat = super().entries(numbers, values)
        left = np.stack([flat.left, (flat.left * 7919) % LINE], axis=1)
        return flat._replace(left=left, right=left + self.length)


class Index(Subject):
    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.tree = OrderedIndexes()
        self.stores, self.number = (self.tree.arena,), self.tree.add(2)

    def entries(self, numbers: np.ndarray, values: np.ndarray) -> Tuples:
        return Tuples(np.column_stack((values[numbers], numbers)), numbers.astype(np.int32))

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        self.tree.begin(1)
        self.tree.load(self.number, self.entries(numbers, values))

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        self.tree.begin(version)
        apply_to_indexes(self.tree, {self.number: Changes(self.entries(numbers, values), self.entries(numbers, later))})

    def reclaim(self, version: int, pins: np.ndarray) -> None:
        self.tree.reclaim(version, pins)

    def check(self) -> None:
        self.tree.check()


class View(Subject):
    """R(x, y) and S(x, z), about four of each x: half of what is stored are live x."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.indexes = OrderedIndexes()
        self.stores, self.atoms = (self.indexes.arena,), [self.indexes.add(2), self.indexes.add(2)]

    def entries(self, numbers: np.ndarray, values: np.ndarray, atom: int) -> Tuples:
        mine = numbers[numbers % 2 == atom]
        return Tuples(np.column_stack((values[mine] % (self.n // 8 + 1), values[mine])), mine.astype(np.int32))

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        self.indexes.begin(1)
        for atom, index in enumerate(self.atoms):
            self.indexes.load(index, self.entries(numbers, values, atom))
        self.tree = ViewTree(self.indexes, [(Member(index, (0, 1 + atom)),) for atom, index in enumerate(self.atoms)])
        self.tree.load()

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        self.indexes.begin(version)
        changes = {
            index: Changes(self.entries(numbers, values, atom), self.entries(numbers, later, atom)) for atom, index in enumerate(self.atoms)
        }
        follow_batch(self.tree, apply_to_indexes(self.indexes, changes), None)

    def reclaim(self, version: int, pins: np.ndarray) -> None:
        self.indexes.reclaim(version, pins)

    def check(self) -> None:
        self.indexes.check()
        self.tree.check()


class Join(Subject):
    """R and S by codes, S and T by spans: of each code two rows, of each span about one other."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.tree = JoinTree([Port(0, 0, False), Port(1, 0, False), Port(1, -1, True), Port(2, -1, True)], [(0, 1), (2, 3)])
        self.stores = (self.tree.arena,)

    def describe(self, alias: int, mine: np.ndarray, values: np.ndarray) -> None:
        codes, left = (values[mine] % (self.n // 6 + 1)).astype(np.int32), values[mine]
        ends = left, left + 3 * LINE // self.n
        given = [([codes], [None]), ([codes, None], [None, ends]), ([None], [ends])][alias]
        self.tree.describe(alias, mine.astype(np.int32), *given)

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        for alias in range(3):
            mine = numbers[numbers % 3 == alias]
            self.describe(alias, mine, values)
            self.tree.load(1, alias, mine.astype(np.int32))

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        for alias in range(3):
            mine = numbers[numbers % 3 == alias]
            apply_to_join(self.tree, version, alias, mine.astype(np.int32), False)
            self.describe(alias, mine, later)
            apply_to_join(self.tree, version, alias, mine.astype(np.int32), True)

    def reclaim(self, version: int, pins: np.ndarray) -> None:
        self.tree.reclaim(version, pins)

    def check(self) -> None:
        self.tree.check([np.arange(alias, self.n, 3, dtype=np.int32) for alias in range(3)])


class Quads(Subject):
    """A tree of pairs below 2**20, and one in two parts; loaded anew once they are outgrown."""

    trees: QuadTrees
    values: np.ndarray

    def entries(self, numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.column_stack((values[numbers] >> 10, values[numbers] * 7919 % LINE >> 10, numbers)).astype(np.int32)

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        self.values = values[numbers].copy()
        self._load(1)

    def _load(self, version: int) -> None:
        self.trees = QuadTrees([(2, 0), (2, 1)])
        self.stores = (self.trees.arena,)
        for tree in range(2):
            self.trees.bulk_load(version, tree, self.entries(np.arange(self.n), self.values))

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        self.trees.require(4 * len(numbers), 1)
        for tree in range(2):
            self.trees.delete(version, tree, self.entries(numbers, values))
            self.trees.insert(version, tree, self.entries(numbers, later))
        self.values[numbers] = later[numbers]
        if self.trees.is_outgrown:
            self._load(version)

    def reclaim(self, version: int, pins: np.ndarray) -> None:
        self.trees.reclaim(version, pins)

    @property
    def held(self) -> int:
        return super().held + self.trees.forms.bytes(True) + self.trees.forms.bytes(False)

    def check(self) -> None:
        self.trees.check(self.trees.roots)


class Inputs(Subject):
    """Rows and partners of half as many lengths: a part of the rows meets some."""

    tree: Matching | Cover

    def intervals(self, numbers: np.ndarray, values: np.ndarray, input: int) -> Entries:
        mine = numbers[numbers % 2 == input]
        zeros = np.zeros(len(mine), np.uint8)
        return Entries(zeros, zeros.astype(np.int32), values[mine], values[mine] + LINE // self.n, mine.astype(np.int32))

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        self.tree.load(1, self.intervals(numbers, values, 0), self.intervals(numbers, values, 1))

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        steps = [(OUTER_DELETE, 0, values), (PARTNER_INSERT, 1, later), (PARTNER_DELETE, 1, values), (OUTER_INSERT, 0, later)]
        if isinstance(self.tree, Cover):  # nothing is listed, so it does not matter; but a slot is there once
            steps[1:3] = steps[2], steps[1]
        parts = [(kind, self.intervals(numbers, of, input)) for kind, input, of in steps]
        kinds = np.concatenate([np.full(len(one.slot), kind, np.int8) for kind, one in parts])
        key, left, right, slot = (np.concatenate([one[column] for _, one in parts]) for column in range(1, 5))
        self.tree.apply(version, Moves(kinds, key, left, right, slot, np.zeros(len(kinds), np.int32), np.zeros(len(kinds), np.int64)), None)

    def reclaim(self, version: int, pins: np.ndarray) -> None:
        self.tree.reclaim(version, pins, 1 << 40)

    def check(self) -> None:
        self.tree.check()


class Matches(Inputs):
    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.tree = Matching(True, False)
        self.stores = self.tree.unmatched.arena, self.tree.matched.arena

    @property
    def held(self) -> int:
        assert isinstance(self.tree, Matching)
        return super().held + event_bytes(self.tree.tree)


class Stretches(Inputs):
    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.tree = Cover(False)
        self.stores = self.tree.rows.arena, self.tree.partners.arena


class Firsts(Subject):
    """The first two of about four rows a key."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.tops = Tops(2, 2, None)
        self.stores = self.tops.list.arena, self.tops.arena
        self.slots = np.arange(n, dtype=np.int32)  # a row that changes gets another one

    def entries(self, numbers: np.ndarray, values: np.ndarray) -> Tuples:
        key, order = values[numbers] % (self.n // 4 + 1), values[numbers] * self.n + numbers
        return Tuples(np.column_stack((key, order)), self.slots[numbers])

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        self.tops.load(1, self.entries(numbers, values))

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        deleted = self.entries(numbers, values)
        self.slots[numbers] = np.where(deleted.slot < self.n, deleted.slot + self.n, deleted.slot - self.n)
        inserted = self.entries(numbers, later)
        coordinates, slots = np.concatenate((deleted.coordinates, inserted.coordinates)), np.concatenate((deleted.slot, inserted.slot))
        signs = np.repeat(np.array([DELETE, INSERT], np.int8), len(numbers))
        order = np.lexsort((signs, coordinates[:, 0]))
        ends = np.append(np.flatnonzero(np.diff(coordinates[order, 0])) + 1, len(order))
        self.tops.require(len(order))
        self.tops.apply(version, Ranks(Tuples(coordinates[order], slots[order]), signs[order], ends))

    def reclaim(self, version: int, pins: np.ndarray) -> None:
        self.tops.reclaim(version, pins, 1 << 40)

    def check(self) -> None:
        self.tops.check()


class Totals(Subject):
    """Counts, sums and least values of about a hundred rows a group."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        steps = Step()
        steps.of(layout.COUNT, 0)
        steps.of(layout.FLOAT_SUM, 1)
        steps.of(layout.VALUES, 0)
        self.codes = n // 100 + 1
        self.groups = Groups(steps, [(layout.OF_ROWS, 0, 0, 0, 1)], 2, self.codes)

    def add(self, numbers: np.ndarray, values: np.ndarray, sign: int) -> None:
        given = values[numbers]
        columns = np.stack((given, (given / 3).view(np.int64)))
        codes, signs = (given % self.codes).astype(np.int32), np.full(len(given), sign, np.int8)
        self.groups.add(GroupedColumns(codes, signs, columns, np.zeros(columns.shape, np.uint8)))

    def load(self, numbers: np.ndarray, values: np.ndarray) -> None:
        self.groups.begin()
        self.add(numbers, values, 1)

    def change(self, version: int, numbers: np.ndarray, values: np.ndarray, later: np.ndarray) -> None:
        self.groups.begin()
        self.add(numbers, values, -1)
        self.add(numbers, later, 1)

    def reclaim(self, version: int, pins: np.ndarray) -> None:
        """Written in place."""

    @property
    def held(self) -> int:
        return self.groups.bytes

    def check(self) -> None:
        self.groups.check(self.codes)


def event_bytes(tree: EventTree) -> int:
    """Of all nodes that there have been, free ones too."""
    arrays = tree.arrays
    return int(arrays.control[events.LEAVES]) * arrays.leaves[0].nbytes + int(arrays.control[events.INNERS]) * arrays.inners[0].nbytes


SUBJECTS: dict[str, Callable[[int], Subject]] = {
    "interval": lambda n: Intervals(n, IntervalTree("pair")),
    "ij_heap": lambda n: Intervals(n, IJHeap(Topology(2, ((0, 1),)))),
    "clique": lambda n: Cliques(n, CliqueTree(3)),
    "box": lambda n: Boxes(n, int(LINE / n**0.5)),
    "box_records": lambda n: Boxes(n, 30 * LINE // n),
    "join_tree": Join,
    "quadtree": Quads,
    "index": Index,
    "view_tree": View,
    "event_tree": Matches,
    "cover": Stretches,
    "ranked": Firsts,
    "groups": Totals,
}

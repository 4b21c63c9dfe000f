"""Hierarchical natural joins by view trees: load, changes, the whole view and memory, compared with DuckDB's query, hash joins, and
maintained results.

Stars R(x), S(x), T(x), and a tree of two levels R(x), S(x, y), T(x, y), in which a tuple has about two partners in each other atom, and
some have none; and a star with thirty, whose result is too large to store.
"""

from __future__ import annotations

import numpy as np

from structures.index.indexes import Entries, OrderedIndexes
from structures.view_tree.tree import Member, ViewTree, ViewTreeCursor
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.measured_natural import Data, measure
from tests.benchmarks.measured_tree import NO_PINS, Note
from tests.benchmarks.natural_rivals import Batch
from tests.structures.batches import Changes, apply_steps, apply_to_indexes, follow_batch, follow_steps

TITLE = "View trees: hierarchical natural joins, 100,000 to 1,000,000 tuples"
RUN = 1_000  # single changes that are applied together, each as its own version


def star(n: int, partners: int) -> Data:
    rng = np.random.default_rng(1)
    m = n // 3
    entries = [Entries(rng.integers(0, m // partners, (m, 1)), np.arange(m, dtype=np.int32)) for _ in range(3)]
    return Data(f"star, {3 * m:,} tuples, {partners} partners", ((0,), (0,), (0,)), entries)


def two_levels(n: int) -> Data:
    rng = np.random.default_rng(2)
    m = n // 3
    pairs = [rng.integers(0, m // 2, m) for _ in range(2)]
    columns = [rng.integers(0, m // 4, (m, 1)), *(np.column_stack((pair // 2, pair)) for pair in pairs)]
    return Data(f"two levels, {3 * m:,} tuples", ((0,), (0, 1), (0, 1)), [Entries(one, np.arange(m, dtype=np.int32)) for one in columns])


class Live:
    """The live view, with an index for each atom."""

    def __init__(self, data: Data) -> None:
        self.indexes, self.version = OrderedIndexes(), 1
        self.indexes.begin(1)
        self.members = [Member(self.indexes.add(len(own)), own) for own in data.variables]
        for member, entries in zip(self.members, data.entries, strict=True):
            self.indexes.load(member.index, entries)
        self.view = ViewTree(self.indexes, [(member,) for member in self.members])
        self.view.load()

    def change(self, batch: Batch) -> int:
        """Apply deletes, then inserts, with the delta; return the rows gained."""
        gained: list[int] = []

        def sink(sign: int, slots: np.ndarray) -> bool:
            gained.append(sign * slots.shape[1])
            return True

        self._begin()
        changes = {member.index: Changes(*one) for member, one in zip(self.members, batch, strict=True)}
        follow_batch(self.view, apply_to_indexes(self.indexes, changes), sink)
        self.indexes.reclaim(self.version, NO_PINS)
        return sum(gained)

    def singles(self, positions: np.ndarray, signs: np.ndarray, entries: Entries) -> int:
        """Apply changes one by one, with their deltas; return the rows of these deltas."""
        rows, index = 0, np.array([member.index for member in self.members])[positions]
        for first in range(0, len(signs), RUN):
            self._begin()
            some = slice(first, first + RUN)
            run = apply_steps(self.indexes, index[some], signs[some], Entries(entries.coordinates[some], entries.slot[some]))
            rows += sum(found.shape[1] for found in follow_steps(self.view, run, 1 << 20).values())
            self.indexes.reclaim(self.version, NO_PINS)
        return rows

    def _begin(self) -> None:
        self.version += 1
        self.indexes.begin(self.version)

    @property
    def bytes(self) -> int:
        return self.indexes.live_bytes

    def rows(self) -> ViewTreeCursor:
        return self.view.rows(self.view.root)


def run(scale: Scale, note: Note) -> list[Figure]:
    small, large = scale.size(100_000, 1_200), scale.size(1_000_000, 3_000)
    shapes = star(small, 2), star(large, 2), star(small, 30), two_levels(large)
    return [figure for data in shapes for figure in measure(data, Live, scale, note)]

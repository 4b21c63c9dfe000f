"""Acyclic natural joins by join trees: the path R(a, b), S(b, c), T(c, d): load, changes, the whole view and memory, compared with DuckDB's
query, hash joins, and a maintained result.

With 100,000 and 1,000,000 tuples that have about two partners per link; and with many dangling tuples: one tuple of S in twenty has a
partner in R, and one in twenty has one in T.
"""

from __future__ import annotations

import numpy as np

from structures.core.entries import INSERT
from structures.index.indexes import Entries
from structures.join_tree.tree import JoinCursor, JoinTree, Port, RowChanges
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.measured_natural import Data, measure
from tests.benchmarks.measured_tree import NO_PINS, Note
from tests.benchmarks.natural_rivals import Batch
from tests.structures.batches import apply_to_join

TITLE = "Join trees: acyclic natural joins, 100,000 to 1,000,000 tuples"
RUN = 1_000  # single changes that are applied together, each as its own version
VARIABLES = ((0, 1), (1, 2), (2, 3))
PORTS = [Port(0, 0, False), Port(1, 0, False), Port(1, 1, False), Port(2, 1, False)]
EDGES = [(0, 1), (2, 3)]
MIDDLE = 1  # the alias with which the whole view begins
COLUMNS = ([1], [0, 1], [0])  # for each atom, the columns that join it


def path(n: int, dangling: bool = False) -> Data:
    rng = np.random.default_rng(5)
    m = n // 3
    partners, spread = m // 2, 20 if dangling else 1
    columns = [(m, partners), (spread * partners, spread * partners), (partners, m)]
    entries = [Entries(np.column_stack([rng.integers(0, of, m) for of in pair]), np.arange(m, dtype=np.int32)) for pair in columns]
    return Data(f"path, {3 * m:,} tuples{', most of them dangling' if dangling else ''}", VARIABLES, entries)


class Live:
    """The live view; values are codes."""

    def __init__(self, data: Data) -> None:
        self.tree, self.version = JoinTree(PORTS, EDGES), 1
        for position, entries in enumerate(data.entries):
            self._inserted(position, entries)
            self.tree.load(1, position, entries.slot)
        self._rows = [len(one.slot) for one in data.entries]
        b, c = ([data.entries[i].coordinates[:, j] for i, j in ends] for ends in (((0, 1), (1, 0)), ((1, 1), (2, 0))))
        self._codes = [len(np.unique(np.concatenate(one))) for one in (b, c)]

    def _inserted(self, position: int, entries: Entries) -> None:
        codes = [entries.coordinates[:, j].astype(np.int32) for j in COLUMNS[position]]
        self.tree.describe(position, entries.slot, codes, [None] * len(codes))

    def change(self, batch: Batch) -> int:
        """Apply deletes, then inserts, with the delta; return the rows gained."""
        gained: list[int] = []

        def sink(inserted: bool, rows: np.ndarray) -> bool:
            gained.append(rows.shape[1] if inserted else -rows.shape[1])
            return True

        self.version += 1
        for position, (deleted, _) in enumerate(batch):
            apply_to_join(self.tree, self.version, position, deleted.slot, False, sink)
        for position, (_, inserted) in enumerate(batch):
            self._inserted(position, inserted)
            apply_to_join(self.tree, self.version, position, inserted.slot, True, sink)
        self.tree.reclaim(self.version, NO_PINS)
        return sum(gained)

    def singles(self, positions: np.ndarray, signs: np.ndarray, entries: Entries) -> int:
        """Apply changes one by one, with their deltas; return the rows of these deltas."""
        emitted: list[int] = []

        def sink(changes: np.ndarray, rows: np.ndarray) -> int:
            emitted.append(rows.shape[1])
            return 0

        for first in range(0, len(signs), RUN):
            self.version += 1
            some = slice(first, first + RUN)
            for position in range(len(VARIABLES)):
                self._inserted(position, entries.take(first + np.flatnonzero((signs[some] == INSERT) & (positions[some] == position))))
            slots = entries.slot[some]
            numbers = np.arange(len(slots))
            self.tree.apply(self.version, RowChanges(signs[some], positions[some], slots, slots, np.zeros_like(numbers)), numbers, sink)
            self.tree.reclaim(self.version, NO_PINS)
        return sum(emitted)

    @property
    def bytes(self) -> int:
        """Without the dictionary of codes."""
        return self.tree.bytes(self._rows, self._codes)

    def rows(self) -> JoinCursor:
        return self.tree.rows(self.tree.roots, MIDDLE, self.tree.all_of(self.tree.roots, 1))


def run(scale: Scale, note: Note) -> list[Figure]:
    small, large = scale.size(100_000, 1_200), scale.size(1_000_000, 3_000)
    shapes = path(small), path(large), path(small, dangling=True), path(large, dangling=True)
    return [figure for data in shapes for figure in measure(data, Live, scale, note)]

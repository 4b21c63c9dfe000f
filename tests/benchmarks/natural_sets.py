"""UNION and EXCEPT by lazy qdags: paths of two edges minus triangles, triangles of either of two graphs, and one graph minus another;
compared with DuckDB's query, and for the paths also with computing both sides by qdags.

For one graph minus another hashing is best: here, each edge costs a descent in the tree, and excluded edges are visited too. The structure
is meant for changes: their deltas, which DuckDB finds by running the query again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from structures.qdag.union import Branch, Or, QdagUnionCursor
from structures.quadtree.trees import QuadTrees
from tests.benchmarks.figures import Figure, Rival, Scale
from tests.benchmarks.measured_natural import count
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.natural_absent import ANEW, NO_PINS, TIMES, DuckDb, Pair, View, _atom, in_batches
from tests.benchmarks.natural_triangle import graph

TITLE = "Lazy qdags: UNION and EXCEPT in graphs of 100,000 edges"
Listed = list[tuple[Pair, int]]
"""Atoms: for each, its variables and which of the two graphs it is over."""


class SetView:
    """Branches over the edges of two graphs, with three trees for each graph; each branch has at most one group."""

    def __init__(self, branches: Sequence[tuple[Listed, Listed]]) -> None:
        self.trees, self.branches = QuadTrees([(2, 0), (2, 1), (2, 1)] * 2), branches
        made = [
            Branch([_atom(own, 3 * which) for own, which in atoms], [[_atom(own, 3 * which) for own, which in group]] if group else [])
            for atoms, group in branches
        ]
        self.join = Or(self.trees, 1 + max(max(own) for own, _ in branches[0][0]), made)
        self.version = 0

    def load(self, edges: np.ndarray, others: np.ndarray) -> None:
        self.version += 1
        for which, given in enumerate((edges, others)):
            for tree, one in enumerate(View._each(given), 3 * which):
                self.trees.bulk_load(self.version, tree, one)

    def change(self, deleted: np.ndarray, inserted: np.ndarray) -> int:
        """Apply changes of edges that are in both graphs; return the rows gained."""
        self.trees.require(6 * (len(deleted) + len(inserted)), 1)
        self.version += 1
        before = self.trees.roots
        for which in range(2):
            for edges, write in ((deleted, self.trees.delete), (inserted, self.trees.insert)):
                for tree, one in enumerate(View._each(edges), 3 * which):
                    if len(one):
                        write(self.version, tree, one)
        after = self.trees.roots
        gained = len(self._emitted(inserted, deleted, after, before)) - len(self._emitted(deleted, inserted, before, after))
        self.trees.reclaim(self.version, NO_PINS)
        return gained

    def _emitted(self, edges: np.ndarray, others: np.ndarray, roots: tuple, without: tuple) -> np.ndarray:  # type: ignore[type-arg]
        """The tuples that only one of the versions has."""
        found = [np.empty((0, self.join.dimension), np.int32)]
        for number, (atoms, group) in enumerate(self.branches):
            for position in range(len(atoms) + len(group)):
                tuples = (edges if position < len(atoms) else others)[:, :2]
                cursor = self.join.changes(number, position, tuples, roots, without)
                while not cursor.done:
                    found.append(cursor.fill(1 << 16)[self.join.lines :].T)
        return np.unique(np.concatenate(found), axis=0)

    def rows(self) -> QdagUnionCursor:
        return self.join.rows(self.trees.roots)


PATHS: Listed = [((0, 1), 0), ((1, 2), 0)]
CLOSED: Listed = [((0, 2), 0)]
OPEN = (
    "SELECT x.a, x.b, y.b AS c FROM e x JOIN e y ON x.b = y.a"
    " EXCEPT SELECT x.a, x.b, y.b FROM e x JOIN e y ON x.b = y.a JOIN e z ON z.a = x.a AND z.b = y.b"
)
TRIANGLES = "SELECT x.a, x.b, y.b AS c FROM {0} x JOIN {0} y ON x.b = y.a JOIN {0} z ON z.a = x.a AND z.b = y.b"
EITHER = f"{TRIANGLES.format('e')} UNION {TRIANGLES.format('n')}"
LESS = "SELECT a, b FROM e EXCEPT SELECT a, b FROM n"


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(100_000, 2_000)
    edges = graph("random", n)
    some, most = edges[: len(edges) // 2], edges[len(edges) // 4 :]
    paths = measure(f"paths EXCEPT triangles, {n:,} edges", SetView([(PATHS, PATHS + CLOSED)]), OPEN, edges, edges, scale, note)
    both = [View([own for own, _ in atoms], None) for atoms in (PATHS, PATHS + CLOSED)]
    spent = 0.0
    for one in both:
        one.load(edges, edges[:0])
        spent += min(_seconds(one) for _ in range(TIMES))
    paths[0].rivals.append(Rival("both sides by qdag", 1e3 * spent, "computes paths and triangles, but not their difference"))
    either: list[tuple[Listed, Listed]] = [([(own, which) for own, _ in PATHS + CLOSED], []) for which in range(2)]
    return [
        *paths,
        *measure(f"triangles of one graph UNION those of another, {n:,} edges", SetView(either), EITHER, edges, most, scale, note),
        *measure(f"one graph EXCEPT another, {n:,} edges", SetView([([((0, 1), 0)], [((0, 1), 1)])]), LESS, edges, some, scale, note),
    ]


def _seconds(view: View | SetView) -> float:
    start = time.perf_counter()
    count(view.rows())
    return time.perf_counter() - start


def measure(name: str, view: SetView, query: str, edges: np.ndarray, others: np.ndarray, scale: Scale, note: Note) -> list[Figure]:
    """Measure the whole view, and batches that delete edges of both graphs and reinsert those that the batch before deleted."""
    rival = DuckDb(query, edges, others)
    view.load(edges, others)
    cursor = view.rows()
    rows = count(cursor)
    spent = min(_seconds(view) for _ in range(TIMES))
    theirs, whole = rival.read_best()
    assert theirs == rows, f"DuckDB found {theirs} rows, we {rows}"
    note(f"{name}: {rows:,} rows, {1e3 * spent:.0f} ms, {cursor.steps:,} steps")
    common = np.flatnonzero(np.isin(edges[:, 2], others[:, 2]))
    batches = in_batches(name, view.change, rival, edges, common, rows)
    rival.close()
    return [
        Figure(f"{name}: time of the whole view", 1e3 * spent, "ms", less=True, note=f"{rows:,} rows, {cursor.steps:,} steps",
               rivals=[Rival("DuckDB", 1e3 * whole, ANEW)]),
        batches,
    ]  # fmt: skip

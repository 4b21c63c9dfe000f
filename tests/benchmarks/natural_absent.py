"""NOT EXISTS in one graph, by lazy qdags: paths of two edges that no edge closes, triangles without a listed edge, and a relation minus
itself; compared with DuckDB's query, and for the paths also with computing both sides of the difference.

Open paths R(A, B), R(B, C), not R(A, C) are the paper's example with one relation in all three places. For a relation minus itself hashing
is best: here, each entry costs a descent in the tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from structures.qdag.qdag import And, Atom, QdagCursor
from structures.quadtree.trees import QuadTrees, in_order
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_natural import count
from tests.benchmarks.measured_tree import NO_PINS, Note
from tests.benchmarks.natural_triangle import graph
from tests.benchmarks.rivals import CHUNK

TITLE = "Lazy qdags: NOT EXISTS in a graph of 100,000 edges"
ANEW = "runs the query again"
TIMES = 5
Pair = tuple[int, int]


class View:
    """Atoms over the edges, and an atom over the edges of which none may match: three trees for each."""

    def __init__(self, atoms: Sequence[Pair], absent: Pair | None) -> None:
        self.trees = QuadTrees([(2, 0), (2, 1), (2, 1)] * 2)
        groups = [[_atom(absent, 3)]] if absent is not None else []
        self.join = And(self.trees, 1 + max(map(max, atoms)), [_atom(own, 0) for own in atoms], groups)
        self.count = len(self.join.atoms)
        self.version = 0

    @staticmethod
    def _each(edges: np.ndarray) -> Iterator[np.ndarray]:
        yield from (edges, edges, np.ascontiguousarray(edges[:, [1, 0, 2]]))

    def load(self, edges: np.ndarray, others: np.ndarray) -> None:
        self.version += 1
        for first, given in ((0, edges), (3, others)):
            for tree, one in enumerate(self._each(given), first):
                self.trees.bulk_load(self.version, tree, one)

    def change(self, deleted: np.ndarray, inserted: np.ndarray) -> int:
        """Apply changes of edges that are in both positions: first those that remove rows, then those that add rows. Return the rows
        gained."""
        self.trees.require(6 * (len(deleted) + len(inserted)), 2)
        gained = 0
        for sign, edges, others in ((-1, deleted, inserted), (1, inserted, deleted)):
            self.version += 1
            before = self.trees.roots
            for first, given in ((0, edges), (3, others)):
                for tree, one in enumerate(self._each(given), first):
                    if len(one):
                        (self.trees.insert if (sign > 0) == (first == 0) else self.trees.delete)(self.version, tree, one)
            after = self.trees.roots
            for position in range(self.count):
                changed = edges if position < self.join.lines else others
                versions = [after if other < position else before for other in range(self.count)]
                gained += sign * count(self.join.partners(versions, position, in_order(changed)))
        self.trees.reclaim(self.version, NO_PINS)
        return gained

    def rows(self) -> QdagCursor:
        return self.join.rows([self.trees.roots] * self.count)


def _atom(own: Pair, tree: int) -> Atom:
    return Atom(
        frozenset(own), {frozenset[int](): (tree, own), frozenset(own[:1]): (tree + 1, own), frozenset(own[1:]): (tree + 2, own[::-1])}
    )


class DuckDb:
    """In process, in memory, on all cores: tables `e` and `n`."""

    def __init__(self, query: str, edges: np.ndarray, others: np.ndarray) -> None:
        import duckdb

        self._db, self._query = duckdb.connect(), query
        for name, given in (("e", edges), ("n", others)):
            self._register("given", given)
            self._db.execute(f"CREATE TABLE {name} AS SELECT * FROM given")

    def _register(self, name: str, edges: np.ndarray) -> None:
        self._db.register(name, pa.table({column: np.ascontiguousarray(edges[:, i]) for i, column in enumerate("abs")}))

    def read(self) -> tuple[int, float]:
        """Return rows as Arrow, and seconds."""
        start = time.perf_counter()
        rows = sum(batch.num_rows for batch in self._db.sql(self._query).to_arrow_reader(CHUNK))
        return rows, time.perf_counter() - start

    def read_best(self) -> tuple[int, float]:
        return min((self.read() for _ in range(TIMES)), key=lambda one: one[1])

    def change(self, deleted: np.ndarray, inserted: np.ndarray) -> tuple[int, float]:
        """The same after a batch in both tables, whose time is included."""
        self._register("gone", deleted)
        self._register("come", inserted)
        start = time.perf_counter()
        for name in ("e", "n"):
            self._db.execute(f"DELETE FROM {name} WHERE s IN (SELECT s FROM gone)")
            self._db.execute(f"INSERT INTO {name} FROM come")
        applied = time.perf_counter() - start
        rows, spent = self.read()
        return rows, applied + spent

    def close(self) -> None:
        self._db.close()


PATHS: list[Pair] = [(0, 1), (1, 2)]
TRIANGLE: list[Pair] = [*PATHS, (0, 2)]
OPEN = "SELECT x.s, y.s FROM e x JOIN e y ON x.b = y.a WHERE NOT EXISTS (SELECT 1 FROM n WHERE n.a = x.a AND n.b = y.b)"
LESS = (
    "SELECT x.s, y.s, z.s FROM e x JOIN e y ON x.b = y.a JOIN e z ON y.b = z.b AND x.a = z.a"
    " WHERE NOT EXISTS (SELECT 1 FROM n WHERE n.a = x.a AND n.b = x.b)"
)
ITSELF = "SELECT e.s FROM e WHERE NOT EXISTS (SELECT 1 FROM n WHERE n.a = e.a AND n.b = e.b)"


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(100_000, 2_000)
    figures = []
    for kind in ("random", "skewed"):
        edges = graph(kind, n)
        figures += open_paths(f"open paths, {len(edges):,} edges, {kind}", edges, scale, note)
        name = f"triangles without half of the edges, {len(edges):,} edges, {kind}"
        figures.append(_whole(name, TRIANGLE, LESS, edges, edges[::2], note))
    figures.append(_whole(f"a relation less itself, {n:,} edges", [(0, 1)], ITSELF, graph("random", n), graph("random", n), note))
    return figures


def _timed(view: View) -> tuple[int, float, int]:
    """Rows, seconds (the best of several readings, as for the rivals), steps."""
    spent = []
    for _ in range(TIMES):
        cursor = view.rows()
        start = time.perf_counter()
        rows = count(cursor)
        spent.append(time.perf_counter() - start)
    return rows, min(spent), cursor.steps


def _whole(name: str, atoms: list[Pair], query: str, edges: np.ndarray, others: np.ndarray, note: Note) -> Figure:
    view, rival = View(atoms, (0, 1)), DuckDb(query, edges, others)
    view.load(edges, others)
    rows, spent, steps = _timed(view)
    theirs, whole = rival.read_best()
    rival.close()
    assert theirs == rows, f"DuckDB found {theirs} rows, we {rows}"
    note(f"{name}: {rows:,} rows, {1e3 * spent:.0f} ms, {steps:,} steps")
    return Figure(
        f"{name}: time of the whole view", 1e3 * spent, "ms", less=True, note=f"{rows:,} rows, {steps:,} steps",
        rivals=[Rival("DuckDB", 1e3 * whole, ANEW)],
    )  # fmt: skip


def in_batches(
    name: str, change: Callable[[np.ndarray, np.ndarray], int], rival: DuckDb, edges: np.ndarray, some: np.ndarray, rows: int
) -> Figure:
    """Batches that delete the edges whose numbers are in `some`, and reinsert those that the batch before deleted. `rows`: the number
    before the first batch. `change` applies one and returns the rows gained."""
    size, now = min(1_000, len(some) // 8), rows
    order, out, batches, anew = np.random.default_rng(3).permutation(some), edges[:0], list[float](), list[float]()
    for chosen in order[: 4 * size].reshape(-1, size):
        deleted = edges[chosen]
        start = time.perf_counter()
        now += change(deleted, out)
        batches.append((len(deleted) + len(out)) / (time.perf_counter() - start))
        theirs, elapsed = rival.change(deleted, out)
        assert theirs == now, f"DuckDB found {theirs} rows, the deltas say {now}"
        anew.append((len(deleted) + len(out)) / elapsed)
        out = deleted
    what = f"{name}: batches with delta, {2 * size:,} changes"
    return sampled(what, batches, "changes/s", rivals=[Rival("DuckDB", middle(anew), ANEW)])


def open_paths(name: str, edges: np.ndarray, scale: Scale, note: Note) -> list[Figure]:
    """Measure the whole view, and batches that delete edges and reinsert those that the batch before deleted."""
    view, rival = View(PATHS, (0, 2)), DuckDb(OPEN, edges, edges)
    view.load(edges, edges)
    rows, spent, steps = _timed(view)
    both = [View(PATHS, None), View(TRIANGLE, None)]
    for one in both:
        one.load(edges, edges[:0])
    (paths, first, _), (closed, second, _) = map(_timed, both)
    theirs, whole = rival.read_best()
    assert theirs == rows, f"DuckDB found {theirs} rows, we {rows}"
    assert paths - closed == rows, "each triangle closes one path: edges are different"
    note(f"{name}: {rows:,} of {paths:,} paths, {1e3 * spent:.0f} ms, {steps:,} steps")
    batches = in_batches(name, view.change, rival, edges, np.arange(len(edges)), rows)
    rival.close()
    return [
        Figure(f"{name}: time of the whole view", 1e3 * spent, "ms", less=True, note=f"{rows:,} rows, {steps:,} steps",
               rivals=[Rival("DuckDB", 1e3 * whole, ANEW),
                       Rival("both sides by qdag", 1e3 * (first + second), "computes paths and triangles, but not their difference")]),
        batches,
    ]  # fmt: skip

"""The triangle R(A, B), R(B, C), R(A, C) in one graph, by qdags: load, changes, the whole view, memory, beside DuckDB's pairwise plan.

Graphs: at random; skewed, some vertices having many edges; a hub that every edge has to do with, whose pairs are n^2 / 4 and whose
triangles are O(n); and a complete one, which has as many triangles as n edges can have: n^(3/2), the AGM bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from structures.qdag import And, Atom, Cursor
from structures.quad_tree import QuadTrees
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.graph_rivals import PATIENCE, DuckDbTriangle
from tests.benchmarks.measured_tree import Note

TITLE = "Quadtrees: the triangle, 100,000 edges"
VARIABLES = ((0, 1), (1, 2), (0, 2))
CHUNK = 1 << 16
NO_PINS = np.empty(0, np.int64)
ANEW = "the query anew, pairwise"


def coded(edges: np.ndarray, n: int) -> np.ndarray:
    """int32[n, 3]: different edges in random order, vertices by codes in the order of their coming (as a domain gives them), slots."""
    rng = np.random.default_rng(1)
    edges = np.unique(edges, axis=0)
    rng.shuffle(edges)
    edges = edges[:n]
    _, first, codes = np.unique(edges.reshape(-1), return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[codes].reshape(-1, 2)
    return np.hstack((codes, np.arange(len(codes))[:, None])).astype(np.int32)


def graphs(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    side, half = int(n**0.5), n // 2
    hub = np.vstack([np.column_stack((np.zeros(half), np.arange(half))), np.column_stack((np.arange(1, half), np.zeros(half - 1)))])
    return {
        "random": coded(rng.integers(0, n // 10, (n + n // 20, 2)), n),
        "skewed": coded((n // 10 * rng.random((3 * n, 2)) ** 3).astype(np.int64), n),
        "hub": coded(hub.astype(np.int64), n),
        "complete": coded(np.argwhere(np.ones((side, side))), n),
    }


class Triangle:
    """The live view over one set of edges: a plain tree, and one with either end first."""

    def __init__(self) -> None:
        self.trees = QuadTrees([(2, 0), (2, 1), (2, 1)])
        atoms = [
            Atom(frozenset(own), {frozenset[int](): (0, own), frozenset(own[:1]): (1, own), frozenset(own[1:]): (2, own[::-1])})
            for own in VARIABLES
        ]
        self.join = And(self.trees, 3, atoms)
        self.version = 0

    def _each(self, edges: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        turned = np.ascontiguousarray(edges[:, [1, 0, 2]])
        yield from enumerate((edges, edges, turned))

    def load(self, edges: np.ndarray) -> None:
        self.version += 1
        for tree, one in self._each(edges):
            self.trees.bulk_load(self.version, tree, one)

    def change(self, gone: np.ndarray, come: np.ndarray) -> int:
        """Deletes, then inserts, with the delta; rows gained."""
        self.trees.require(3 * (len(gone) + len(come)), 2)
        gained = 0
        for sign, edges in ((-1, gone), (1, come)):
            if len(edges):
                self.version += 1
                before = self.trees.roots
                for tree, one in self._each(edges):
                    (self.trees.insert if sign > 0 else self.trees.delete)(self.version, tree, one)
                after = self.trees.roots
                for place in range(3):
                    versions = [after if other < place else before for other in range(3)]
                    gained += sign * count(self.join.partners(versions, place, edges), 1 << 10)
        self.trees.reclaim(self.version, NO_PINS)
        return gained

    def rows(self) -> Cursor:
        return self.join.rows([self.trees.roots] * 3)


def count(cursor: Cursor, limit: int = CHUNK) -> int:
    rows = 0
    while not cursor.done:
        rows += cursor.fill(limit).shape[1]
    return rows


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(100_000, 2_000)
    return [figure for name, edges in graphs(n).items() for figure in measure(name, edges, scale, note)]


def measure(name: str, edges: np.ndarray, scale: Scale, note: Note) -> list[Figure]:
    n, kind = len(edges), f"triangle, {len(edges):,} edges, {name}"
    view, rival = Triangle(), DuckDbTriangle(edges)
    load = seconds(lambda: view.load(edges))
    live = view.trees.live_bytes / n
    rows, whole, steps = _whole(view, 1 if scale.quick else 3)
    note(f"{name}: {rows:,} rows, {1e3 * whole:.0f} ms, {steps:,} steps")
    theirs = rival.read()
    assert theirs is None or theirs.rows == rows, f"DuckDB found {theirs.rows if theirs else 0} rows, we {rows}"
    note(f"DuckDB: {theirs.all if theirs else PATIENCE:.2f} s")
    rng = np.random.default_rng(3)
    size = min(10_000, n // 8 * 2)
    # A batch takes some edges out and puts in those that the one before took out: the graph stays what it is.
    order = rng.permutation(n)
    out, batches, theirs_batches = edges[:0], [], []
    for some in order[: 2 * size].reshape(-1, size // 2):
        gone = edges[some]
        start = time.perf_counter()
        gained = view.change(gone, out)
        batches.append((len(gone) + len(out)) / (time.perf_counter() - start))
        if theirs is not None and len(theirs_batches) == len(batches) - 1 < 2 and (done := rival.change(gone, out)) is not None:
            assert done[1] == gained, f"DuckDB gained {done[1]} rows, we {gained}"
            theirs_batches.append((len(gone) + len(out)) / done[0])
        out = gone
    view.change(edges[:0], out)
    calls = 50 if scale.quick else 2_000
    some = edges[order[-calls:]]
    spent = seconds(lambda: [(view.change(some[i : i + 1], edges[:0]), view.change(edges[:0], some[i : i + 1])) for i in range(calls)])
    assert _whole(view, 1)[0] == rows
    rival.close()
    note(f"{2 * calls / spent / 1e3:.1f} k/s one by one, {middle(batches) / 1e3:.0f} k/s in batches, {live:.0f} bytes an edge")
    at_most = "" if theirs else f"; at most: given up after {PATIENCE:.0f} s"
    return [
        Figure(f"{kind}: whole view", rows / whole, "rows/s", note=f"{rows:,} rows, {1e3 * whole:.0f} ms, {steps:,} steps",
               rivals=[Rival("DuckDB", rows / (theirs.all if theirs else PATIENCE), ANEW + at_most)]),
        Figure(f"{kind}: load", n / load, "edges/s"),
        sampled(f"{kind}: batches with delta, {size:,} changes", batches, "changes/s", aim=100e3,
                rivals=[Rival("DuckDB", middle(theirs_batches), "deltas by hand, pairwise")] if theirs_batches else []),
        Figure(f"{kind}: single changes with delta", 2 * calls / spent, "changes/s", aim=30e3),
        Figure(f"{kind}: bytes an edge", live, "B", aim=200.0, less=True),
    ]  # fmt: skip


def _whole(view: Triangle, times: int) -> tuple[int, float, int]:
    """Rows, seconds, steps."""
    spent = []
    for _ in range(times):
        cursor = view.rows()
        start = time.perf_counter()
        rows = count(cursor)
        spent.append(time.perf_counter() - start)
    return rows, middle(spent), cursor.steps

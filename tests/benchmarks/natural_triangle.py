"""The triangle R(A, B), R(B, C), R(A, C) in one graph, by qdags: load, changes, the whole view and memory, compared with DuckDB's pairwise
plan.

Graphs: random; skewed, in which some vertices have many edges; a hub that is an end of every edge, with n^2 / 4 pairs of edges and O(n)
triangles; and a complete one, which has as many triangles as n edges can have: n^(3/2), the AGM bound. Also the size of the compact form,
for the graph of the world's air routes too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from structures.qdag.qdag import And, Atom, QdagCursor
from structures.qdag.run import STEP_DELETE, STEP_INSERT, Runs
from structures.quadtree.trees import QuadTrees, in_order
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.graph_rivals import PATIENCE, DuckDbTriangle
from tests.benchmarks.measured_natural import count
from tests.benchmarks.measured_tree import NO_PINS, Note
from tests.datasets import table

TITLE = "Quadtrees: the triangle, 100,000 edges"
KINDS = ("random", "skewed", "hub", "complete")
MOST_EDGES = {"random": 10, "skewed": 10, "hub": 3, "complete": 3}  # multiples of `n` for which the whole view is timed
VARIABLES = ((0, 1), (1, 2), (0, 2))
RUN = 1 << 10  # changes per call, as in the service
MOST = 1 << 40
ANEW = "runs the query again, pairwise"


def coded(edges: np.ndarray, n: int) -> np.ndarray:
    """int32[n, 3]: distinct edges in random order, as codes of vertices in the order of their first occurrence (as a domain assigns them),
    and slots."""
    rng = np.random.default_rng(1)
    edges = np.unique(edges, axis=0)
    rng.shuffle(edges)
    edges = edges[:n]
    _, first, codes = np.unique(edges.reshape(-1), return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[codes].reshape(-1, 2)
    return np.hstack((codes, np.arange(len(codes))[:, None])).astype(np.int32)


def graph(kind: str, n: int) -> np.ndarray:
    """Return a graph of about n edges, as `coded` does."""
    rng = np.random.default_rng(2)
    if kind == "random":
        return coded(rng.integers(0, n // 10, (n + n // 20, 2)), n)
    if kind == "skewed":
        return coded((n // 10 * rng.random((3 * n, 2)) ** 3).astype(np.int64), n)
    if kind == "hub":
        half = n // 2
        out, back = np.column_stack((np.zeros(half), np.arange(half))), np.column_stack((np.arange(1, half), np.zeros(half - 1)))
        return coded(np.vstack((out, back)).astype(np.int64), n)
    if kind == "routes":
        routes = table("openflights", "routes")
        ends = np.concatenate([routes.column(name).to_numpy() for name in ("src", "dst")])
        return coded(np.unique(ends, return_inverse=True)[1].reshape(2, -1).T, n)
    input = int(n**0.5)
    return coded(np.argwhere(np.ones((input, input))), n)


class Triangle:
    """The live view over one set of edges: a plain tree, and one with each end first."""

    def __init__(self) -> None:
        self.trees = QuadTrees([(2, 0), (2, 1), (2, 1)])
        atoms = [
            Atom(frozenset(own), {frozenset[int](): (0, own), frozenset(own[:1]): (1, own), frozenset(own[1:]): (2, own[::-1])})
            for own in VARIABLES
        ]
        self.join = And(self.trees, 3, atoms)
        self.runs = Runs(self.join, [[(0, (0, 1, 2)), (1, (0, 1, 2)), (2, (1, 0, 2))]], [0, 0, 0])
        self.version = 0

    def _each(self, edges: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        turned = np.ascontiguousarray(edges[:, [1, 0, 2]])
        yield from enumerate((edges, edges, turned))

    def load(self, edges: np.ndarray) -> None:
        self.version += 1
        for tree, one in self._each(edges):
            self.trees.bulk_load(self.version, tree, one)

    def change(self, deleted: np.ndarray, inserted: np.ndarray) -> int:
        """Apply deletes, then inserts, with the delta; return the rows gained."""
        self.trees.require(3 * (len(deleted) + len(inserted)), 2)
        gained = 0
        for sign, edges in ((-1, deleted), (1, inserted)):
            if len(edges):
                edges = in_order(edges)
                self.version += 1
                before = self.trees.roots
                for tree, one in self._each(edges):
                    (self.trees.insert if sign > 0 else self.trees.delete)(self.version, tree, one)
                after = self.trees.roots
                for position in range(3):
                    versions = [after if other < position else before for other in range(3)]
                    gained += sign * count(self.join.partners(versions, position, edges))
        self.trees.reclaim(self.version, NO_PINS)
        return gained

    def singles(self, edges: np.ndarray) -> tuple[float, float]:
        """Delete and reinsert each edge, in a call each. Return changes a second, and steps of a change."""
        n = 2 * len(edges)
        steps = np.zeros((n, 4), np.int64)
        steps[:, 0], steps[::2, 1], steps[1::2, 1] = np.arange(n), STEP_DELETE, STEP_INSERT
        steps[:, 3] = np.repeat(3 * np.arange(n // 2), 2)
        before, rows, start = self.runs.steps, 0, time.perf_counter()
        for first in range(0, n, RUN):
            self.trees.require(3 * RUN, 1)
            for emitted in self.runs.follow(self.version, steps[first : first + RUN], edges.reshape(-1), MOST):
                rows += emitted.rows.shape[1] if emitted.inserted else -emitted.rows.shape[1]
            self.version = self.trees.version
            self.trees.reclaim(self.version, NO_PINS)
        rate = n / (time.perf_counter() - start)
        assert rows == 0, f"inserted and deleted rows differ by {rows}"
        return rate, (self.runs.steps - before) / n

    def rows(self) -> QdagCursor:
        return self.join.rows([self.trees.roots] * 3)


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(100_000, 2_000)
    figures = [figure for kind in KINDS for figure in measure(kind, graph(kind, n), scale, note)]
    figures += [whole_view(kind, graph(kind, size)) for kind, most in MOST_EDGES.items() for size in (n // 100, n // 10, n, most * n)]
    return figures + [figure for kind in (*KINDS, "routes") for figure in space(kind, graph(kind, n))]


def whole_view(kind: str, edges: np.ndarray) -> Figure:
    """How the ratio to the rival grows with the number of edges; the best of several readings."""
    view, rival = Triangle(), DuckDbTriangle(edges)
    view.load(edges)
    ours = [_whole(view, 1) for _ in range(5)]
    spent = min(one[1] for one in ours)

    def beside(name: str) -> Rival:
        theirs = [rival.read()]
        while theirs[0] is not None and theirs[0].all < 1 and len(theirs) < len(ours):
            theirs.append(rival.read())
        known = [one for one in theirs if one is not None]
        assert all(one.rows == ours[0][0] for one in known), f"DuckDB found {known} rows, we {ours[0][0]}"
        other = min((one.all for one in known), default=PATIENCE)
        return Rival(name, 1e3 * other, f"{ANEW}: {'' if known else 'at least '}{other / spent:.3g} times ours")

    rivals = [beside("DuckDB")]
    rival.use_one_thread()
    rivals.append(beside("DuckDB on one thread, as ours"))
    rival.close()
    return Figure(f"triangle, {len(edges):,} edges, {kind}: time of the whole view", 1e3 * spent, "ms", less=True, rivals=rivals)


def space(kind: str, edges: np.ndarray) -> list[Figure]:
    """The size of the compact form; the paper's bound for a tuple is (k + 2) log l bits, plus the slot of a row."""
    view, n = Triangle(), len(edges)
    peak = peak_bytes(lambda: view.load(edges))
    what, bound = f"triangle, {n:,} edges, {kind}", 4.0 * view.trees.roots[0].bits
    bits = [view.trees.bits_a_tuple(tree) for tree in range(3)]
    figures = [
        Figure(f"{what}: bits a tuple, compact", bits[0], "bits", aim=1.3 * bound, less=True,
               rivals=[Rival("the paper's bound", bound)], note=f"trees with one end first: {bits[1]:.1f}, {bits[2]:.1f}"),
        Figure(f"{what}: bytes an edge, compact, three trees", view.trees.live_bytes / n, "B", aim=200.0, less=True),
    ]  # fmt: skip
    if peak is not None:
        figures.append(Figure(f"{what}: bytes an edge while loading", peak / n, "B", aim=200.0, less=True))
    return figures


def peak_bytes(work: Callable[[], None]) -> int | None:
    """How much the memory of the process grew during this work; None except on Linux."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        return None

    def read(field: str) -> int:
        return 1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(field))

    before = read("VmRSS")
    reset.write_text("5")  # resets the peak to the current size
    work()
    return read("VmHWM") - before


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
    # A batch deletes some edges and reinserts those that the one before deleted, so the graph stays the same.
    order = rng.permutation(n)
    out, batches, theirs_batches = edges[:0], [], []
    for some in order[: 2 * size].reshape(-1, size // 2):
        deleted = edges[some]
        start = time.perf_counter()
        gained = view.change(deleted, out)
        batches.append((len(deleted) + len(out)) / (time.perf_counter() - start))
        if theirs is not None and len(theirs_batches) == len(batches) - 1 < 2 and (done := rival.change(deleted, out)) is not None:
            assert done[1] == gained, f"DuckDB gained {done[1]} rows, we {gained}"
            theirs_batches.append((len(deleted) + len(out)) / done[0])
        out = deleted
    view.change(edges[:0], out)
    rate, _ = view.singles(edges[order[-(50 if scale.quick else 4_000) :]])
    changed = view.trees.live_bytes / n
    assert _whole(view, 1)[0] == rows
    rival.close()
    note(f"{rate / 1e3:.1f} k/s one by one, {middle(batches) / 1e3:.0f} k/s in batches, {live:.0f} bytes an edge, {changed:.0f} after them")
    at_most = "" if theirs else f"; upper bound: interrupted after {PATIENCE:.0f} s"
    return [
        Figure(f"{kind}: whole view", rows / whole, "rows/s", note=f"{rows:,} rows, {1e3 * whole:.0f} ms, {steps:,} steps",
               rivals=[Rival("DuckDB", rows / (theirs.all if theirs else PATIENCE), ANEW + at_most)]),
        Figure(f"{kind}: load", n / load, "edges/s"),
        sampled(f"{kind}: batches with delta, {size:,} changes", batches, "changes/s", aim=100e3,
                rivals=[Rival("DuckDB", middle(theirs_batches), "hand-written delta queries, pairwise")] if theirs_batches else []),
        Figure(f"{kind}: single changes with delta", rate, "changes/s", aim=30e3),
        Figure(f"{kind}: bytes an edge, after these changes", changed, "B", aim=200.0, less=True),
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

"""Minesweeper: natural joins by the gaps of their indexes, in cases in which few comparisons prove the result, and in cases in which as
many as tuples are needed.

Stars, paths and trees of edges between a few chosen vertices, as in Table 1 of the paper, but with the same number of vertices for all
sizes of the graph: the number of probes must not grow with it. The time until the first row of a view that has not been read before depends
on the choice of vertices, so it is the median of several choices. Layers of edges without a path of three. What the stored tree saves after
changes. Triangles at a hub, and without rows, with their specialized structure and with the general tree. Random triangles, and paths in
which nearly all tuples have rows, where the algorithm is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from service.planning.plans.minesweeper import search_order
from structures.index.following import Atom
from structures.index.indexes import NO_ENTRIES, Entries, OrderedIndexes
from structures.minesweeper.minesweeper import Member, Minesweeper
from structures.minesweeper.minesweeper import index_orders as mined_orders
from structures.tree_tracker.tracker import TreeTracker
from structures.tree_tracker.tracker import index_orders as tracked_orders
from tests.benchmarks import natural_path
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_natural import ANEW, count
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.natural_rivals import DuckDbNatural, Variables
from tests.benchmarks.natural_triangle import Triangle, graph
from tests.structures.batches import Changes, apply_to_indexes, follow_batch

TITLE = "Minesweeper: natural joins by gaps"
CHOSEN = 20  # vertices of each choice


class Query(NamedTuple):
    """Edges first, then choices; the edges of the join tree, by atom."""

    variables: Variables
    tree: list[tuple[int, int]]


QUERIES = {
    "star": Query(((0, 1), (0, 2), (0, 3), (0,), (1,), (2,), (3,)), [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (2, 6)]),
    "path": Query(((0, 1), (1, 2), (2, 3), (0,), (1,), (2,), (3,)), [(0, 1), (1, 2), (0, 3), (0, 4), (1, 5), (2, 6)]),
    "tree": Query(((0, 1), (1, 2), (1, 3), (3, 4), (0,), (2,), (3,), (4,)), [(0, 1), (0, 2), (2, 3), (0, 4), (1, 5), (2, 6), (3, 7)]),
}
LAYERED = Query(((0, 1), (1, 2), (2, 3)), [(0, 1), (1, 2)])
TRIANGLE = Query(((0, 1), (1, 2), (0, 2)), [])
GENERAL = Query((*TRIANGLE.variables, (0, 1)), [])  # R twice, which is not recognised, so that the tree for all queries is used


def loaded(variables: Variables, orders: Sequence[Sequence[tuple[int, ...]]], data: Sequence[Entries]) -> tuple[OrderedIndexes, list[Atom]]:
    indexes, atoms = OrderedIndexes(), []
    indexes.begin(1)
    for own, mine, entries in zip(variables, orders, data, strict=True):
        atoms.append(tuple(Member(indexes.add(len(own)), one) for one in mine))
        for member in atoms[-1]:
            columns = np.ascontiguousarray(entries.coordinates[:, [own.index(v) for v in member.variables]])
            indexes.load(member.index, Entries(columns, entries.slot))
    return indexes, atoms


def mined(query: Query, data: Sequence[Entries], order: tuple[int, ...] | None = None) -> Callable[[], Minesweeper]:
    """Return a function that creates views over the same indexes, none of which has been read. `order`: the variables, if not in the
    planner's order."""
    by = order or search_order(query.variables)
    indexes, atoms = loaded(query.variables, mined_orders(query.variables, by), data)
    return lambda: Minesweeper(indexes, atoms, by)


def tracked(query: Query, data: Sequence[Entries]) -> TreeTracker:
    return TreeTracker(*loaded(query.variables, tracked_orders(query.variables, query.tree), data), query.tree)


def slotted(tuples: np.ndarray) -> Entries:
    return Entries(np.ascontiguousarray(tuples.astype(np.int64)), np.arange(len(tuples), dtype=np.int32))


def random_edges(n: int) -> np.ndarray:
    """Ten edges per vertex."""
    return np.unique(np.random.default_rng(2).integers(0, n // 10, (n, 2)), axis=0)


def routes(n: int) -> np.ndarray:
    """n of the pairs of airports between which airlines fly; there are 37,595."""
    edges = graph("routes", n)[:, :2].astype(np.int64)
    return np.unique(edges, axis=0)


def chosen(query: Query, edges: np.ndarray, seed: int = 2) -> list[Entries]:
    """Return this graph, and `CHOSEN` vertices of each choice, such that one vertex of each is in a row."""
    rng, vertices = np.random.default_rng(seed), int(edges.max()) + 1
    out = dict(zip(*np.unique(edges[:, 0], return_index=True), strict=True))
    values: dict[int, int] = {}
    while not all(v in values for own in query.variables for v in own):  # repeat until no edge of the row is missing
        values = {query.variables[0][0]: int(edges[rng.integers(len(edges)), 0])}
        for x, y in (own for own in query.variables if len(own) == 2):
            if values[x] in out:
                values[y] = int(edges[out[values[x]], 1])
            else:
                break
    choices = [np.append(rng.choice(vertices, CHOSEN - 1, replace=False), values[own[0]]) for own in query.variables if len(own) == 1]
    data = [slotted(edges)] * (len(query.variables) - len(choices))
    return data + [slotted(np.unique(one)[:, None]) for one in choices]


def of_graph(edges: np.ndarray) -> Entries:
    return Entries(np.ascontiguousarray(edges[:, :2].astype(np.int64)), np.ascontiguousarray(edges[:, 2]))


def whole(make: Callable[[], Any], times: int) -> list[float]:
    """Milliseconds of reading all rows, for each view."""

    def read(view: Any) -> float:
        return 1e3 * seconds(lambda: count(view.rows(view.root)))

    return [read(make()) for _ in range(times)]


def first(make: Callable[[], Minesweeper], times: int) -> list[float]:
    """Milliseconds until the first row, for each view."""

    def read(view: Minesweeper) -> None:
        cursor = view.rows(view.root)
        while not (cursor.fill(1).shape[1] or cursor.done):
            pass

    def measured(view: Minesweeper) -> float:
        return 1e3 * seconds(lambda: read(view))

    return [measured(make()) for _ in range(times)]


def between_chosen(name: str, of: str, edges: np.ndarray, times: int, note: Note) -> list[Figure]:
    query, data = QUERIES[name], chosen(QUERIES[name], edges)
    make = mined(query, data)
    miner = make()
    cursor = miner.rows(miner.root)
    rows = count(cursor)
    ours, again = whole(make, times), whole(lambda: miner, times)
    samples = [middle(first(mined(query, chosen(query, edges, seed)), times)) for seed in range(2, 2 + times)]
    early_again = first(lambda: miner, times)
    tracker = tracked(query, data)
    theirs = tracker.rows(tracker.root)
    assert count(theirs) == rows
    duck = DuckDbNatural(query.variables, data)
    duck.read()
    best = min((duck.read() for _ in range(times)), key=lambda one: one.all)
    duck.close()
    assert best.rows == rows, f"DuckDB found {best.rows} rows, we {rows}"
    rivals = [
        Rival("tree-tracker", middle(whole(lambda: tracker, times)), f"{theirs.counters['lookups']:,} look-ups"),
        Rival("DuckDB", 1e3 * best.all, ANEW),
    ]
    about = f"{name} between chosen vertices, {len(edges):,} {of}"
    counted = cursor.counters
    note(f"{about}: {counted}, {middle(ours):.3g} ms")
    return [
        Figure(f"{about}: probes", counted["probes"], "probes", less=True, note=f"{rows} rows, {counted['lookups']} look-ups"),
        sampled(f"{about}: all rows", ours, "ms", less=True, rivals=rivals),
        sampled(f"{about}: all rows, read before", again, "ms", less=True),
        sampled(f"{about}: first row", samples, "ms", less=True, aim=0.1,
                note=f"median of {times} choices; {min(samples):.2g} to {max(samples):.2g} ms depending on where the row is"),
        sampled(f"{about}: first row, read before", early_again, "ms", less=True, aim=0.1),
    ]


def layers(n: int, times: int, note: Note) -> list[Figure]:
    """Two layers of n² edges each, without a path of three."""
    square = np.indices((n, n)).reshape(2, -1).T
    data = [slotted(np.concatenate([square + [0, n], square + [n, 2 * n]]))] * 3
    make = mined(LAYERED, data)
    miner = make()
    cursor = miner.rows(miner.root)
    assert count(cursor) == 0
    ours = whole(make, times)
    tracker = tracked(LAYERED, data)
    theirs = tracker.rows(tracker.root)
    assert count(theirs) == 0
    out: dict[int, list[int]] = {}
    for x, y in data[0].coordinates.tolist():
        out.setdefault(x, []).append(y)

    def nested() -> None:
        assert not any(out.get(c) for targets in out.values() for b in targets for c in out.get(b, ()))

    rivals = [
        Rival("nested loops", 1e3 * seconds(nested), f"in Python, {n**3:,} paths of two edges"),
        Rival("tree-tracker", middle(whole(lambda: tracker, times)), f"{theirs.counters['lookups']:,} look-ups"),
    ]
    probes = cursor.counters["probes"]
    note(f"layers of {n}: {probes} probes, {middle(ours):.3g} ms")
    return [
        Figure(f"no path of three in {2 * n * n:,} edges: probes", probes, "probes", less=True),
        sampled(f"no path of three in {2 * n * n:,} edges: all rows", ours, "ms", less=True, rivals=rivals),
    ]


def after_changes(n: int, note: Note) -> list[Figure]:
    """Paths between chosen vertices: probes of a reading after this number of new edges, or of new chosen vertices, since the last
    reading."""
    query = QUERIES["path"]
    rng, data = np.random.default_rng(3), chosen(query, random_edges(n))
    miner = mined(query, data)()
    name = f"path between chosen vertices, {n:,} edges, kept tree: probes"

    def figure(when: str) -> Figure:
        cursor = miner.rows(miner.root)
        count(cursor)
        return Figure(f"{name} {when}", cursor.counters["probes"], "probes", less=True)

    figures, slot = [figure("at first"), figure("again")], n
    for version, (changes, what) in enumerate([(k, what) for what in ("edges", "chosen vertices") for k in (1, 10, 100)], 2):
        miner.indexes.begin(version)
        width = 2 if what == "edges" else 1
        new, slots = rng.integers(0, n // 10, (changes, width)), np.arange(slot, slot + changes, dtype=np.int32)
        slot += changes
        batch = {}
        for atom, first in enumerate(miner.first):
            own = query.variables[atom]
            for member in miner.members[first : [*miner.first[1:], len(miner.members)][atom]] if len(own) == width else ():
                columns = np.ascontiguousarray(new[:, [own.index(v) for v in member.variables]])
                batch[member.index] = Changes(NO_ENTRIES, Entries(columns, slots))
        follow_batch(miner, apply_to_indexes(miner.indexes, batch), None)
        figures.append(figure(f"after {changes} new {what}"))
    note(f"kept: {[int(one.value) for one in figures]}")
    return figures


def triangles(n: int, times: int, note: Note) -> list[Figure]:
    """Random triangles, compared with quadtrees."""
    edges = graph("random", n)
    view = Triangle()
    view.load(edges)
    make = mined(TRIANGLE, [of_graph(edges)] * 3)
    miner = make()
    cursor = miner.rows(miner.root)
    rows, theirs = count(cursor), count(view.rows())
    assert rows == theirs, f"quadtrees found {theirs} rows, we {rows}"
    ours = whole(make, times)
    qdag = middle([1e3 * seconds(lambda: count(view.rows())) for _ in range(times)])
    note(f"triangles: {middle(ours):.3g} ms, qdag {qdag:.3g} ms")
    return [sampled(f"triangle, {n:,} random edges: all rows", ours, "ms", less=True, note=f"{cursor.counters['probes']:,} probes",
                    rivals=[Rival("qdag", qdag)])]  # fmt: skip


def hubs(n: int, note: Note) -> list[Figure]:
    """A vertex with half of all edges: n² / 4 pairs of edges meet, and O(n) comparisons determine the rows."""
    data = [of_graph(graph("hub", n))] * 3
    miner = mined(TRIANGLE, data)()
    cursor = miner.rows(miner.root)
    rows = count(cursor)
    duck = DuckDbNatural(TRIANGLE.variables, data)
    joined = duck.joined()
    duck.close()
    counted = cursor.counters
    note(f"hub of {n:,} edges: {counted}, {cursor.steps} steps; DuckDB joins {joined:,} rows")
    emitted = f"{rows:,} rows, {counted['pairs']:,} pairs of values, {cursor.steps:,} steps"
    rival = Rival("DuckDB", joined, "rows that its joins produce")
    return [Figure(f"triangle, {n:,} edges at a hub: probes", counted["probes"], "probes", less=True, note=emitted, rivals=[rival])]


def without_rows(n: int, note: Note) -> list[Figure]:
    """R = [n] x [n], S = [n] x {2}, T = [n] x {1}: O(n) comparisons, although n² pairs of a and b have no row. Then S with the even numbers
    for each b and T with the odd ones for each a: O(n²) comparisons, n for each of n² pairs. Then R with a random half of all pairs, where
    for each other pair a random value of its own is in S for b and in T for a: O(n²) comparisons, in the order of the values, but no two
    pairs can be excluded together, and each takes n look-ups: C^(3/2)."""
    up, rng = np.arange(1, n + 1), np.random.default_rng(n)
    square = np.indices((n, n)).reshape(2, -1).T + 1
    given = list(map(slotted, [square, np.column_stack((up, up * 0 + 2)), np.column_stack((up, up * 0 + 1))]))
    alternating = list(map(slotted, [square, square * [1, 2], square * [1, 2] + [0, 1]]))
    mine = rng.random(len(square)) < 0.5
    value = rng.permutation(len(square))[~mine]
    half = list(map(slotted, [square[mine], np.column_stack((square[~mine, 1], value)), np.column_stack((square[~mine, 0], value))]))
    figures = []
    for name, data in (("no row", given), ("alternating", alternating), ("half of the pairs", half)):
        cursors = []
        for query, some in ((TRIANGLE, data), (GENERAL, [*data, data[0]])):
            miner = mined(query, some, (0, 1, 2))()
            cursors.append(miner.rows(miner.root))
            assert count(cursors[-1]) == 0
        cursor, general = cursors
        counted = cursor.counters
        emitted = f"{counted['probes']:,} probes, {counted['pairs']:,} pairs of values, {counted['constraints']:,} constraints"
        emitted += f", {counted['resets']:,} resets" if counted["resets"] else ""
        rival = Rival("the general tree", general.steps, f"{general.counters['probes']:,} probes; R is joined twice")
        note(f"{name}, {n} values: {emitted}, {cursor.steps} steps, general {general.steps}")
        figures.append(Figure(f"triangle, {name}, {n} values: steps", cursor.steps, "steps", less=True, note=emitted, rivals=[rival]))
    return figures


def all_rows(n: int, times: int, note: Note) -> list[Figure]:
    """A path in which nearly every tuple has a row: the certificate is as large as the data."""
    data = natural_path.path(n)
    live = natural_path.Live(data)
    make = mined(LAYERED, data.entries)
    miner = make()
    cursor = miner.rows(miner.root)
    rows = count(cursor)
    assert rows == count(live.rows())
    ours = [1e3 * rows / one for one in whole(make, times)]
    theirs = middle([rows / seconds(lambda: count(live.rows())) for _ in range(times)])
    note(f"{data.name}: {middle(ours) / 1e6:.3g} M rows/s, join tree {theirs / 1e6:.3g} M")
    counted = f"{rows:,} rows, {cursor.counters['probes']:,} probes, {cursor.counters['resets']} resets"
    return [sampled(f"{data.name}: whole view", ours, "rows/s", note=counted, rivals=[Rival("join-tree", theirs)])]


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = [1_000, 3_000] if scale.quick else [10_000, 100_000, 1_000_000]
    times = 1 if scale.quick else 11
    graphs = [("edges", random_edges(n)) for n in sizes]
    graphs += [("air routes", routes(n)) for n in ((1_000, 3_000) if scale.quick else (5_000, 10_000, 40_000))]
    figures = [figure for name in QUERIES for of, edges in graphs for figure in between_chosen(name, of, edges, times, note)]
    figures += [figure for n in ((10, 20) if scale.quick else (50, 100, 200)) for figure in layers(n, times, note)]
    figures += after_changes(scale.size(15_000, 1_500), note)
    figures += triangles(scale.size(10_000, 1_000), times, note)
    figures += [figure for n in ((400, 800) if scale.quick else (5_000, 10_000, 20_000)) for figure in hubs(n, note)]
    figures += [figure for n in ((10, 20) if scale.quick else (50, 100, 200)) for figure in without_rows(n, note)]
    return figures + all_rows(scale.size(100_000, 1_200), times, note)

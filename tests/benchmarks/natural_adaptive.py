"""Adaptive joins on the paper's instances: how the time and the look-ups of the whole view grow with n; changes; memory.

Example 4.1: R and T lack two values that all points of S have, so that the join is empty: by two-dimensional tree, by one index (Algorithm
9), by a join tree, and by DuckDB's query. Disjoint ranges of values, and alternating values: by intersect, by a view tree, and by DuckDB's
query. Bytes of the two-dimensional tree for values from a small range and from all of int64.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from structures.adaptive.bow_tie import BowTie
from structures.adaptive.elimination import Elimination
from structures.adaptive.intersect import Intersect, Member
from structures.index.indexes import NO_ENTRIES, Entries, OrderedIndexes
from tests.benchmarks import natural_path, natural_star
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_natural import ANEW, Cursor, Data, count
from tests.benchmarks.measured_tree import NO_PINS, Note
from tests.benchmarks.natural_rivals import DuckDbNatural
from tests.structures.batches import Changes, apply_to_indexes, follow_batch

TITLE = "Adaptive joins: the paper's instances, n from 10^3 to 10^6"
VARIABLES = ((0,), (0, 1), (1,))
TIMES = 5


def entries(columns: np.ndarray) -> Entries:
    """The entries of these values; slots are their numbers."""
    return Entries(np.ascontiguousarray(columns.reshape(len(columns), -1), np.int64), np.arange(len(columns), dtype=np.int32))


def cross(n: int) -> Data:
    """Example 4.1, for an odd n."""
    out = np.array([n // 2, (n + 1) // 2 + 1])
    all_ = np.arange(1, n + 1)
    left = np.setdiff1d(all_, out)
    arms = [np.column_stack((all_, np.full(n, v))) for v in out]
    points = np.unique(np.concatenate([*arms, *(arm[:, ::-1] for arm in arms)]), axis=0)
    return Data("Example 4.1", VARIABLES, [entries(left), entries(points), entries(left)])


def scattered(n: int, span: int) -> Data:
    """n points, and n values each of R and T, drawn from a range."""
    rng = np.random.default_rng(8)
    values = [rng.integers(-span, span, shape) for shape in (n, (n, 2), n)]
    return Data(f"{n:,} points at random", VARIABLES, [entries(one) for one in values])


def pair_of(name: str, left: np.ndarray, right: np.ndarray) -> Data:
    return Data(name, ((0,), (0,)), [entries(left), entries(right)])


def turned(points: Entries) -> Entries:
    """The entries ordered by (y, x)."""
    return Entries(np.ascontiguousarray(points.coordinates[:, 1::-1]), points.slot)


class Tie:
    """A live bow-tie."""

    def __init__(self, data: Data) -> None:
        self.indexes, self.version = OrderedIndexes(), 1
        self.indexes.begin(1)
        self.numbers = [self.indexes.add(k) for k in (1, 2, 2, 1)]
        of_r, of_s, of_t = data.entries
        for number, one in zip(self.numbers, (of_r, of_s, turned(of_s), of_t), strict=True):
            self.indexes.load(number, one)
        r, by_x, by_y, t = self.numbers
        atoms = [(Member(r, (0,)),), (Member(by_x, (0, 1)), Member(by_y, (1, 0))), (Member(t, (1,)),)]
        self.tree = BowTie(self.indexes, atoms)
        self.tree.load()

    def change(self, deleted: Entries, inserted: Entries) -> None:
        """Write a new version with these rows of S, with their delta."""
        self.version += 1
        self.indexes.begin(self.version)
        by_x, by_y = self.numbers[1:3]
        changes = {by_x: Changes(deleted, inserted), by_y: Changes(turned(deleted), turned(inserted))}
        follow_batch(self.tree, apply_to_indexes(self.indexes, changes), lambda sign, rows: True)
        self.indexes.reclaim(self.version, NO_PINS)


class Sets:
    """A live intersection."""

    def __init__(self, data: Data) -> None:
        indexes = OrderedIndexes()
        indexes.begin(1)
        atoms = []
        for one in data.entries:
            number = indexes.add(1)
            indexes.load(number, one)
            atoms.append((Member(number, (0,)),))
        self.tree = Intersect(indexes, atoms)


def timed(rows: Callable[[], Cursor], wanted: int) -> list[float]:
    """Microseconds of the whole view, several times."""
    found = []
    for _ in range(TIMES):
        start = time.perf_counter()
        assert count(rows()) == wanted
        found.append(1e6 * (time.perf_counter() - start))
    return found


def duckdb(data: Data, wanted: int) -> Rival:
    duck = DuckDbNatural(data.variables, data.entries)
    reads = [duck.read() for _ in range(3)]
    duck.close()
    assert {one.rows for one in reads} == {wanted}
    return Rival("DuckDB", 1e6 * min(one.all for one in reads), ANEW)


def join_tree(data: Data) -> natural_path.Live:
    """The bow-tie as a path; the other columns of its ends are their slots."""
    r, s, t = data.entries
    inputs = [Entries(np.column_stack(columns), one.slot) for one, columns in ((r, (r.slot, r.coordinates)), (t, (t.coordinates, t.slot)))]
    return natural_path.Live(Data(data.name, natural_path.VARIABLES, [inputs[0], s, inputs[1]]))


def example(n: int, note: Note) -> list[Figure]:
    data = cross(n)
    live, other = Tie(data), join_tree(data)
    cursor, one = live.tree.rows(live.tree.root), Elimination.rows(live.tree, live.tree.root)
    assert count(cursor) == count(one) == 0
    counted, by_one = cursor.counters, one.counters
    note(f"Example 4.1, n = {n:,}: {counted}; by one index {by_one}")
    what, about = f"{data.name}, n = {n:,}", {"n": n, "points": counted["probes"], "look-ups by one index": by_one["lookups"]}
    by_x = middle(timed(lambda: Elimination.rows(live.tree, live.tree.root), 0))
    tree = Rival("join tree", middle(timed(other.rows, 0)), "maintained")
    rivals = [Rival("Algorithm 9", by_x, "one index of S"), tree, duckdb(data, 0)]
    points = data.entries[1]
    singles = []
    for position in np.random.default_rng(9).permutation(len(points.slot))[:300]:
        some = points.take(np.array([position]))
        for change in ((some, NO_ENTRIES), (NO_ENTRIES, some)):
            start = time.perf_counter()
            live.change(*change)
            singles.append(1e6 * (time.perf_counter() - start))
    shared = sum(map(live.indexes.bytes, live.numbers[1:3])) / len(points.slot)
    return [
        sampled(f"{what}: whole view", timed(lambda: live.tree.rows(live.tree.root), 0), "µs", less=True, rivals=rivals, parameters=about),
        Figure(f"{what}: look-ups of the whole view", counted["lookups"], "look-ups", less=True,
               rivals=[Rival("Algorithm 9", by_one["lookups"])], note=f"{counted['probes']} points"),
        sampled(f"{what}: a row of S inserted or deleted, with delta", singles, "µs", less=True),
        Figure(f"{what}: bytes a row of S in the tree", live.tree.own_bytes / len(points.slot), "B", less=True,
               note=f"besides {shared:.0f} in the two shared indexes"),
    ]  # fmt: skip


def sets(data: Data, note: Note) -> list[Figure]:
    live, view = Sets(data), natural_star.Live(data)
    cursor = live.tree.rows(live.tree.root)
    assert count(cursor) == 0
    note(f"{data.name}: {cursor.counters}")
    rivals = [Rival("view tree", middle(timed(view.rows, 0)), "maintained"), duckdb(data, 0)]
    about = {"look-ups": cursor.counters["lookups"]}
    found = timed(lambda: live.tree.rows(live.tree.root), 0)
    return [sampled(f"{data.name}: whole view", found, "µs", less=True, rivals=rivals, parameters=about,
                    note=f"{cursor.counters['lookups']:,} look-ups")]  # fmt: skip


def memory(data: Data, where: str) -> Figure:
    live = Tie(data)
    points = len(data.entries[1].slot)
    shared = sum(map(live.indexes.bytes, live.numbers[1:3])) / points
    levels = live.tree.root.levels[0] - 1
    return Figure(f"{data.name}, {where}: bytes a row of S in the tree", live.tree.own_bytes / points, "B", less=True,
                  note=f"{levels} levels, besides {shared:.0f} in the two shared indexes")  # fmt: skip


def run(scale: Scale, note: Note) -> list[Figure]:
    figures = []
    for n in [63, 201] if scale.quick else [1_001, 10_001, 100_001, 1_000_001]:
        figures += example(n, note)
    for n in [100, 1_000] if scale.quick else [1_000, 10_000, 100_000, 1_000_000]:
        values = np.arange(n)
        figures += sets(pair_of(f"sets that lie apart, {n:,} values each", values, values + n), note)
        figures += sets(pair_of(f"sets that alternate, {n:,} values each", 2 * values, 2 * values + 1), note)
    n = scale.size(200_000, 1_000)
    figures.append(memory(scattered(n, n // 2), "a range of as many values"))
    figures.append(memory(scattered(n, 2**62), "all of int64"))
    return figures

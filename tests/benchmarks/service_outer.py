"""Views with parts, in the engine but without HTTP and log: LEFT JOIN and NOT EXISTS over pairs of intervals, compared with their inner
join for the same changes. The rivals are counts of partners, and DuckDB's query. Then one interval over all rows, inserted and deleted,
compared with counts of partners and a join tree, which visit all rows. The time is that of a view for its changes, including deltas.
PostgreSQL is not among the rivals, because it is not a dependency of the tests."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import RowBlock
from livejoin.wire.schema import parse_relation
from service.server import COLLECTOR_THRESHOLDS
from service.tables.changes import Run, batch_run
from service.tables.indexes import SharedIndexes
from service.tables.relations import Relation
from service.tables.resolution import Resolution, Slots
from service.views.live_view import LiveView
from service.views.parse import parse_view
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note

TITLE = "Outer and anti joins over pairs of intervals"
CONDITION = "overlaps(a.span, b.span)"
VIEWS = {
    "inner": f"SELECT a.id AS i, b.id AS j FROM a JOIN b ON {CONDITION}",
    "left": f"SELECT a.id AS i, b.id AS j FROM a LEFT JOIN b ON {CONDITION}",
    "anti": f"SELECT a.id AS i FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {CONDITION})",
}
ANTI = "SELECT count(*) FROM a ANTI JOIN b ON a.s < b.e AND b.s < a.e"
_RUN = 256  # single changes that the writer applies together
_DEFINITION = parse_relation(
    {
        "columns": [{"name": name, "type": "int64"} for name in ("id", "s", "e")],
        "key": ["id"],
        "intervals": {"span": {"start": "s", "end": "e"}},
    }
)


class Bench:
    """Relations a and b of n / 2 rows each, one view over them."""

    def __init__(self, sql: str, n: int, partners: float, algorithm: str = "auto") -> None:
        self.random = np.random.default_rng(7)
        self.reach = 10 * n
        self.longest = max(2, int(partners * self.reach / (n / 2)))  # two intervals of this length on average
        self.relations = {name: Relation(at, name, _DEFINITION) for at, name in enumerate("ab")}
        self.version = 1
        self.slots = {name: relation.table.insert(1, self._rows(np.arange(n // 2))) for name, relation in self.relations.items()}
        view = parse_view("v", {"sql": sql, "algorithm": algorithm}, dict.fromkeys("ab", _DEFINITION))
        self.view = LiveView("v", view, self.relations, SharedIndexes())
        self.view.make_room()
        self.view.join.build(1, lambda part: None)
        self.view.state = "live"
        gc.set_threshold(*COLLECTOR_THRESHOLDS)  # as in a service

    def _rows(self, ids: np.ndarray) -> RowBlock:
        starts = self.random.integers(0, self.reach, len(ids))
        columns = [ids, starts, starts + self.random.integers(1, self.longest, len(ids))]
        return RowBlock(pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], ["id", "s", "e"]))

    def changes(self, count: int) -> Iterator[tuple[str, np.ndarray, Slots, Slots]]:
        """Replace rows of both relations, alternately: positions, old and new slots."""
        for name, relation in self.relations.items():
            at = self.random.choice(len(self.slots[name]), count // 2, replace=False)
            old = self.slots[name][at]
            relation.table.delete(self.version, old)
            new = relation.table.insert(self.version, self._rows(at.astype(np.int64)))
            self.slots[name][at] = new
            yield name, at, old, new

    def apply(self, count: int, single: bool) -> float:
        """Return the seconds that the view takes for this number of changed rows."""
        self.version += count if single else 1
        runs: dict[str, Run] = {}
        resolved = {}
        for position, (name, at, old, new) in enumerate(self.changes(count)):
            if single:
                runs[name] = Run(count, 2 * np.arange(count // 2) + position, old, new, 2 * len(at))
            else:
                runs[name] = batch_run(old, old, new)
            rows = RowBlock(self.relations[name].table.take(["id", "s", "e"], new))
            resolved[name] = Resolution(self.relations[name], False, rows, old, old, self.relations[name].no_keys, 0, np.empty(0, np.int64))
        start = time.perf_counter()
        self.view.require(resolved)
        self.view.apply(self.version - count + 1 if single else self.version, count if single else 1, runs)
        spent = time.perf_counter() - start
        for relation in self.relations.values():
            relation.table.reclaim(self.version, np.empty(0, np.int64))
        while self.view.reclaim(self.version, np.empty(0, np.int64)):
            pass
        return spent

    def on_and_off(self) -> tuple[float, float, int]:
        """Insert and delete a row of b over all rows of a: seconds that the view takes, and the number of its rows that change."""
        relation, spent = self.relations["b"], []
        row = pa.RecordBatch.from_arrays([pa.array([value], pa.int64()) for value in (-1, -1, 2 * self.reach)], ["id", "s", "e"])
        before, nothing = self.view.join.flips or 0, np.empty(0, np.int32)
        slots = relation.table.insert(self.version + 1, RowBlock(row))
        for inserted in (True, False):
            self.version += 1
            if not inserted:
                relation.table.delete(self.version, slots)
            run = batch_run(np.full(1, -1, np.int32), nothing, slots) if inserted else batch_run(nothing, slots, nothing)
            start = time.perf_counter()
            self.view.apply(self.version, 1, {"b": run})
            spent.append(time.perf_counter() - start)
            self.view.reclaim(self.version, np.empty(0, np.int64))
        return spent[0], spent[1], (self.view.join.flips or 0) - before

    def rows(self) -> int:
        cursor, total = self.view.join.rows(self.view.join.root, None), 0
        while not cursor.done:
            total += len(cursor.fill(1 << 16)[0])
        return total


def duckdb_rows(bench: Bench) -> tuple[int, float]:
    """The number of rows without a partner, and the seconds to count them again."""
    import duckdb

    db = duckdb.connect()
    for name, relation in bench.relations.items():
        db.register("given", pa.Table.from_batches([relation.table.take(["s", "e"], bench.slots[name])]))
        db.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    start = time.perf_counter()
    found = db.execute(ANTI).fetchone()
    spent = time.perf_counter() - start
    db.close()
    assert found is not None
    return int(found[0]), spent


def run(scale: Scale, note: Note) -> list[Figure]:
    n, few = scale.size(1_000_000, 4_000), scale.quick
    figures = []
    benches = {name: Bench(VIEWS[name], n, 2.0) for name in VIEWS}
    for single, size in ((True, _RUN), (False, 400 if few else 10_000)):
        turns = [{name: size / bench.apply(size, single) for name, bench in benches.items()} for _ in range(3 if few else 30)]
        for name, bench in benches.items():
            rates = [one[name] for one in turns]
            how = "singles in runs" if single else f"batches of {size:,}"
            what = f"{name}, {n:,} rows, 2 partners: {how}"
            rivals = []
            if name == "left":
                parts = [one["left"] / one["inner"] for one in turns]
                figures.append(sampled(f"left beside its inner view, in turns: {how}", parts, "of 1", aim=0.7))
                note(f"left beside its inner view: {how}: {middle(parts):.2f}")
            if name == "anti":
                found, spent = duckdb_rows(bench)
                assert bench.rows() == found, "DuckDB has other rows"
                rivals = [Rival("DuckDB", size / spent, "runs the query again once for all changes")]
                counted = Bench(VIEWS[name], n, 2.0, "interval-tree")
                again = middle([size / counted.apply(size, single) for _ in range(3 if few else 10)])
                rivals.append(Rival("counts of partners", again, "the same changes"))
            aim = None if name != "anti" else 200e3 if single else 300e3
            figures.append(sampled(what, rates, "changes/s", rivals=rivals, aim=aim))
            note(f"{what}: {middle(rates):,.0f} changes/s")
    return [*figures, *hostile(n, few, note)]


def hostile(n: int, few: bool, note: Note) -> list[Figure]:
    """One interval over all rows; with 11 other partners on average, only few of the rows have no partner without it."""
    bench = Bench(VIEWS["anti"], n, 11.0)
    found = [bench.on_and_off() for _ in range(3 if few else 15)]
    flips = found[0][2] // 2
    counted = Bench(VIEWS["anti"], n, 11.0, "interval-tree")
    tree = Bench(VIEWS["inner"], n, 11.0, "join-tree")
    others = [(Rival, "counts of partners", counted, ""), (Rival, "join-tree", tree, "of the inner join, whose delta has all rows")]
    figures = []
    for at, what in enumerate(("is inserted", "is deleted")):
        rivals = [kind(name, 1e3 * middle([one.on_and_off()[at] for _ in range(3)]), note_) for kind, name, one, note_ in others]
        samples, name = [1e3 * one[at] for one in found], f"an interval over {n // 2:,} rows {what}, {flips} rows flip"
        figures.append(sampled(name, samples, "ms", rivals=rivals, aim=0.1 + 0.002 * flips, less=True))
        note(f"{name}: {middle(samples):.2f} ms; {', '.join(f'{one.name} {one.value:.1f}' for one in rivals)}")
    return figures



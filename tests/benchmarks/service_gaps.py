"""Views with gaps and coverage, in the engine but without HTTP and log: the time a view takes for its changes, including deltas, and how
fast its stretches are read. The rival is DuckDB, which recomputes them with window functions. Then one interval over gaps that hold no row,
inserted and deleted. PostgreSQL's range_agg is not among the rivals, because PostgreSQL is not a dependency of the tests."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries
from structures.cover.tree import Cover, Moves
from structures.event_tree.runs import PARTNER_DELETE, PARTNER_INSERT
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.service_outer import CONDITION, Bench

TITLE = "Gaps and coverage over pairs of intervals"
VIEWS = {
    "gaps": f"SELECT a.id AS i, gaps(a.span, b.span) AS g FROM a LEFT JOIN b ON {CONDITION}",
    "coverage": f"SELECT a.id AS i, coverage(a.span, b.span) AS g FROM a JOIN b ON {CONDITION}",
    "coverage of one group": "SELECT coverage(b.span) AS g FROM b",
}
# The clipped pairs are a separate table: within a larger query, DuckDB uses a nested-loop join.
CLIPPED = "CREATE TABLE p AS SELECT a.id, greatest(a.s, b.s) AS s, least(a.e, b.e) AS e FROM a JOIN b ON a.s < b.e AND b.s < a.e"
RUNS = """
    SELECT id, min(s) AS s, max(e) AS e FROM (
        SELECT *, sum(CASE WHEN r >= s THEN 0 ELSE 1 END) OVER (PARTITION BY id ORDER BY s, e) AS n FROM (
            SELECT *, max(e) OVER (PARTITION BY id ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS r FROM {0}))
    GROUP BY id, n
"""
BETWEEN = """
    SELECT count(*) FROM (
        SELECT id, lag(e) OVER (PARTITION BY id ORDER BY s) AS first, s AS last FROM r
        UNION ALL SELECT a.id, m.e, a.e FROM a LEFT JOIN (SELECT id, max(e) AS e FROM r GROUP BY id) m ON m.id = a.id) g
    JOIN a ON a.id = g.id WHERE coalesce(first, a.s) < last
"""
COUNTS = {
    "gaps": [CLIPPED, f"CREATE TABLE r AS {RUNS.format('p')}", BETWEEN],
    "coverage": [CLIPPED, f"SELECT count(*) FROM ({RUNS.format('p')})"],
    "coverage of one group": [f"SELECT count(*) FROM ({RUNS.format('(SELECT 0 AS id, s, e FROM b)')})"],
}
_RUN = 256  # single changes that the writer applies together


def duckdb_rows(bench: Bench, name: str) -> tuple[int, float]:
    """The number of stretches, and the seconds to count them again."""
    import duckdb

    with duckdb.connect() as db:
        for table, relation in bench.relations.items():
            db.register("given", pa.Table.from_batches([relation.table.take(["id", "s", "e"], bench.slots[table])]))
            db.execute(f"CREATE TABLE {table} AS SELECT * FROM given")
        start = time.perf_counter()
        for sql in COUNTS[name]:
            found = db.execute(sql).fetchone()
        spent = time.perf_counter() - start
    assert found is not None
    return int(found[0]), spent


def run(scale: Scale, note: Note) -> list[Figure]:
    n, few = scale.size(1_000_000, 4_000), scale.quick
    figures = []
    for name, sql in VIEWS.items():
        bench = Bench(sql, n, 2.0)
        for single, size in ((True, _RUN), (False, 400 if few else 10_000)):
            rates = [size / bench.apply(size, single) for _ in range(3 if few else 30)]
            found, spent = duckdb_rows(bench, name)
            assert bench.rows() == found, "DuckDB has other rows"
            what = f"{name}, {n:,} rows, 2 partners: {'singles in runs' if single else f'batches of {size:,}'}"
            rivals = [Rival("DuckDB", size / spent, "runs the query again once for all changes")]
            figures.append(sampled(what, rates, "changes/s", rivals=rivals, aim=100e3 if name == "gaps" else None))
            note(f"{what}: {middle(rates):,.0f} changes/s, DuckDB {size / spent:,.0f}")
        reads = [_seconds(bench) for _ in range(3)]
        figures.append(sampled(f"{name}, {n:,} rows, 2 partners: read", [found / one for one in reads], "rows/s"))
        note(f"{name}: {found / middle(reads):,.0f} rows/s")
    return [*figures, *hostile(n, few, note)]


def _seconds(bench: Bench) -> float:
    start = time.perf_counter()
    bench.rows()
    return time.perf_counter() - start


def hostile(n: int, few: bool, note: Note) -> list[Figure]:
    """One interval over n gaps, of which ten hold a row."""
    cover, left = Cover(False), 4 * np.arange(n)
    cover.load(1, _entries(left[:: n // 10][:10] + 2, 0), _entries(left, 1))
    spent: tuple[list[float], list[float]] = ([], [])
    for version in range(2, 8 if few else 42):
        kind = PARTNER_INSERT if version % 2 == 0 else PARTNER_DELETE
        of_key, ends, slot = np.zeros(1, np.int32), (np.array([NEG_INF]), np.array([POS_INF])), np.array([n], np.int32)
        one = Moves(np.array([kind], np.int8), of_key, *ends, slot, np.full(1, -1, np.int32), np.zeros(1, np.int64))
        start = time.perf_counter()
        told = cover.apply(version, one, 1 << 40).rows.shape[1]
        spent[version % 2].append(1e3 * (time.perf_counter() - start))
        assert told >= 10
        cover.reclaim(version, np.empty(0, np.int64), 1 << 40)
    figures = []
    for what, samples in zip(("comes", "goes"), spent, strict=True):
        name = f"an interval over {n:,} gaps, ten of them with a row, {what}"
        figures.append(sampled(name, samples, "ms", aim=0.2, less=True))
        note(f"{name}: {middle(samples):.3f} ms")
    return figures


def _entries(left: np.ndarray, length: int) -> Entries:
    n = len(left)
    return Entries(np.zeros(n, np.uint8), np.zeros(n, np.int32), left, left + length, np.arange(n, dtype=np.int32))

"""Gaps and coverage of real data beside DuckDB's islands: exons and what conserved regions leave of them, outages by station."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import RelationDefinition, parse_relation
from service.instance import Instance
from service.reading.cursors import open_rows
from tests import datasets
from tests.service.engine.test_engine import read_all
from tests.service.running import check, opened

# Gaps and islands: what reaches farthest before an interval tells whether it begins something new.
ISLANDS = """
    WITH reached AS (
        SELECT *, max(e) OVER (PARTITION BY k ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS r FROM {clipped}
    ),
    numbered AS (SELECT *, sum(CASE WHEN r >= s THEN 0 ELSE 1 END) OVER (PARTITION BY k ORDER BY s, e) AS n FROM reached)
    SELECT k, min(s) AS s, max(e) AS e FROM numbered GROUP BY k, n
"""
CLIPPED = (  # as a table of its own: within a larger query DuckDB joins by nested loops
    "CREATE TABLE clipped AS SELECT x.id AS k, greatest(x.start_pos, y.start_pos) AS s, least(x.end_pos, y.end_pos) AS e "
    "FROM exons x JOIN conserved y ON x.start_pos < y.end_pos AND y.start_pos < x.end_pos"
)
GAPS = """
    WITH runs AS MATERIALIZED ({islands}), ends AS (SELECT k, max(e) AS e FROM runs GROUP BY k),
    marks AS (
        SELECT k, s AS last, lag(e) OVER (PARTITION BY k ORDER BY s) AS first FROM runs
        UNION ALL SELECT x.id, x.end_pos, ends.e FROM exons x LEFT JOIN ends ON k = x.id
    )
    SELECT k, coalesce(first, x.start_pos) AS s, last AS e FROM marks JOIN exons x ON x.id = k WHERE coalesce(first, x.start_pos) < last
"""
# Seconds are closed: intervals that touch are one.
STATIONS = f"SELECT k, s, e - 1 FROM ({ISLANDS.format(clipped='(SELECT station AS k, start_s AS s, end_s + 1 AS e FROM at_station)')})"
VIEWS = {
    "free": (
        "SELECT x.id, gaps(x.span, y.span) AS free FROM exons x LEFT JOIN conserved y ON overlaps(x.span, y.span)",
        GAPS.format(islands=ISLANDS.format(clipped="clipped")),
    ),
    "busy": (
        "SELECT x.id, coverage(x.span, y.span) AS busy FROM exons x JOIN conserved y ON overlaps(x.span, y.span)",
        ISLANDS.format(clipped="clipped"),
    ),
    "out": ("SELECT station, coverage(span) AS out FROM at_station GROUP BY station", STATIONS),
}
TABLES = (("genome_chr1", "exons"), ("genome_chr1", "conserved"), ("outages", "at_station"))


def of_rows(name: str, definition: RelationDefinition, rows: pa.Table, op: int) -> Batch:
    batch = rows.combine_chunks().to_batches()[0].cast(definition.arrow_schema())
    n = len(batch)
    return Batch([Changes(name, definition, np.full(n, op, np.uint8), RowBlock(batch), np.arange(n))], n, 0, [], 0)


def compare(engine: Instance, tables: dict[str, pa.Table]) -> Counter[str]:
    found: Counter[str] = Counter()
    with duckdb.connect() as db:
        for name, table in tables.items():
            db.register(name, table)
        db.execute(CLIPPED)
        for name, (_, sql) in VIEWS.items():
            wanted = Counter(db.sql(sql).fetchall())
            assert read_all(open_rows(engine.readers, name), 5000) == wanted, name
            found[name] = wanted.total()
    return found


@pytest.mark.parametrize("seed", [1])
def test_beside_duckdb(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    rng, engine = random.Random(seed), opened(tmp_path)
    definitions, tables = dict[str, RelationDefinition](), dict[str, pa.Table]()
    for about, name in TABLES:
        definitions[name] = parse_relation(datasets.definition(about, name))
        tables[name] = datasets.table(about, name).combine_chunks()
        engine.put_relation(name, definitions[name])
        engine.apply(of_rows(name, definitions[name], tables[name], UPSERT))
    for name, (sql, _) in VIEWS.items():
        assert engine.put_view(name, {"sql": sql}, wait=120)[1] == "created", engine.views[name].problem
    before = compare(engine, tables)
    assert min(before.values()) > 5000, before
    for _ in range(2):
        for _, name in TABLES:
            deleted = sorted(rng.sample(range(len(tables[name])), len(tables[name]) // 10))
            engine.apply(of_rows(name, definitions[name], tables[name].take(deleted), DELETE))
            kept: Any = np.ones(len(tables[name]), np.bool_)
            kept[deleted] = False
            tables[name] = tables[name].filter(pa.array(kept))
        assert compare(engine, tables) != before
    check(engine)
    engine.close()

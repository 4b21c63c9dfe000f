"""Narrowed readings give the rows that a query needs: DuckDB finds the same in them as in everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.access.access_token import EVERYONE
from service.adhoc.conditions import conditions
from service.adhoc.statement import QueriedTable, VisibleNames, read
from service.instance import Instance
from service.reading import narrowing
from service.reading.cursors import RowReader, open_relation_rows, open_rows
from tests.service.duck import connected
from tests.service.running import opened

SEED = 20261124
BOUNDS = ("[)", "[]", "(]", "()")
POSITIONS = [(relation, bounds) for relation, bounds in zip("pqrs", BOUNDS, strict=True)]


def definition(bounds: str) -> Any:
    return parse_relation(
        {
            "columns": [
                {"name": "k", "type": "string"},
                {"name": "n", "type": "int64"},
                {"name": "lo", "type": "int64", "nullable": True},
                {"name": "hi", "type": "int64", "nullable": True},
                {"name": "At", "type": "timestamp"},
            ],
            "key": ["k", "n"],
            "intervals": {"span": {"start": "lo", "end": "hi", "bounds": bounds}, "moment": {"at": "At"}},
        }
    )


def rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    found = []
    for number in range(count):
        low = chance.choice([None, chance.randrange(12)])
        high = chance.choice([None, (low or 0) + chance.randrange(3, 6)])
        day = datetime(2026, 1, chance.randrange(1, 9), tzinfo=UTC)
        found.append({"k": chance.choice(["a", "a", "b", "b", "", '"q']), "n": number, "lo": low, "hi": high, "At": day})
    return found


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    print("seed", SEED)
    chance = random.Random(SEED)
    engine = opened(tmp_path_factory.mktemp("narrowed"))
    for name, bounds in POSITIONS:
        made = definition(bounds)
        engine.put_relation(name, made)
        made_rows = pa.RecordBatch.from_pylist(rows(chance, 30), made.arrow_schema())
        index = np.arange(30)
        engine.apply(Batch([Changes(name, made, np.full(30, UPSERT, np.uint8), RowBlock(made_rows), index)], 30, 0, [], 0))
    for (one, _), (other, _) in (*zip(POSITIONS, POSITIONS[1:], strict=False), (POSITIONS[3], POSITIONS[0])):
        sql = (
            f"SELECT a.k AS ak, a.n AS an, b.k AS bk, b.n AS bn, intersection(a.span, b.span) AS both "
            f"FROM {one} a JOIN {other} b ON a.k = b.k AND overlaps(a.span, b.span)"
        )
        engine.put_view(f"{one}{other}", {"sql": sql}, wait=60)
    engine.put_view("g", {"sql": "SELECT k AS k, lo AS lo, count(*) AS c FROM p GROUP BY k, lo"}, wait=60)
    engine.put_view("d", {"sql": "SELECT DISTINCT a.k AS k, a.n AS n FROM p a JOIN q b ON overlaps(a.span, b.span)"}, wait=60)
    yield engine
    engine.close()


def table_of(reader: RowReader) -> pa.Table:
    batches = []
    while (found := reader.read(1000)) is not None:
        batches.append(found)
    reader.close()
    return pa.Table.from_batches(batches, reader.schema)


def narrowed(engine: Instance, table: QueriedTable) -> pa.Table:
    if table.kind == "relation":
        definition = engine.relations[table.name].definition
        window, key = narrowing.of_relation(definition, list(conditions(table, [column.name for column in definition.columns])))
        return table_of(open_relation_rows(engine.readers, table.name, window=window, key=key))
    view = engine.views[table.name]
    window, point = narrowing.of_view(view, list(conditions(table, view.shown.schema.names)))
    return table_of(open_rows(engine.readers, table.name, window=window, point=point))


def everything(engine: Instance, table: QueriedTable) -> pa.Table:
    whole = open_relation_rows if table.kind == "relation" else open_rows
    return table_of(whole(engine.readers, table.name))


def found(sql: str, tables: dict[str, pa.Table]) -> list[Any]:
    with connected() as con:
        for name, table in tables.items():
            con.register(name, table)
        columns = [column.to_pylist() for column in con.sql(sql).to_arrow_table().columns]
        return sorted(zip(*columns, strict=True), key=repr)


def tables_of(engine: Instance, sql: str) -> list[QueriedTable]:
    return read(sql, VisibleNames(engine.relations, engine.views, EVERYONE), 1 << 16).tables


def agree(engine: Instance, sql: str) -> int:
    """The query finds the same in both; how many rows were spared."""
    tables = tables_of(engine, sql)
    whole = {table.name: everything(engine, table) for table in tables}
    less = {table.name: narrowed(engine, table) for table in tables}
    assert found(sql, less) == found(sql, whole), sql
    return sum(whole[name].num_rows - less[name].num_rows for name in whole)


def condition(chance: random.Random, columns: list[str], alias: str) -> str:
    column = chance.choice(columns)
    name = chance.choice([f"{alias}.{column}", f"{alias}.{column.upper()}"])
    if column in ("k", "ak", "bk"):
        value = chance.choice(["'a'", "'b'", "'A'", "''", "'\"q'", "NULL"])
    elif column == "At":
        kind, offset = chance.choice(["", "TIMESTAMPTZ ", "TIMESTAMP "]), chance.choice(["", "Z", "+02"])
        value = f"{kind}'2026-01-0{chance.randrange(1, 9)} 00:00:00{offset}'"
    else:
        value = chance.choice([str(chance.randrange(16)), f"'{chance.randrange(16)}'", "-1", "3.5"])
    op = chance.choice(["=", "=", "<", "<=", ">", ">=", "<>"])
    if chance.random() < 0.15 and column not in ("k", "ak", "bk", "At"):
        low = chance.randrange(12)
        return f"{name} BETWEEN {low} AND {low + chance.randrange(4)}"
    return chance.choice([f"{name} {op} {value}", f"{value} {op} {name}", f"({name} {op} {value} OR {name} IS NULL)"])


def test_columns_by_themselves(engine: Instance) -> None:
    """Each column of each view read alone, and two in another order, are those of the whole rows."""
    terms = "SELECT p.n AS n, p.n + 1 AS more, 5 AS five, p.k || 'x' AS text FROM p LEFT JOIN q ON p.k = q.k"
    engine.put_view("terms", {"sql": terms}, wait=60)
    engine.put_view("either", {"sql": "SELECT k AS k, n AS n FROM p UNION SELECT k, n FROM q"}, wait=60)
    for name in ("pq", "g", "terms", "either"):
        whole = table_of(open_rows(engine.readers, name))
        for columns in (*([one] for one in whole.column_names), whole.column_names[::-1]):
            assert table_of(open_rows(engine.readers, name, columns=columns)).equals(whole.select(columns)), (name, columns)


def test_random_conditions(engine: Instance) -> None:
    print("seed", SEED)
    chance, spared = random.Random(SEED), 0
    for _ in range(250):
        name = chance.choice([*"pqrs", "pq", "qr", "rs", "sp", "g"])
        columns = {1: ["k", "n", "lo", "hi", "At"], 2: ["ak", "an", "bk", "bn", "both_start", "both_end"]}[len(name)]
        columns = ["k", "lo", "c"] if name == "g" else columns
        parts = [condition(chance, columns, "t") for _ in range(chance.randrange(1, 4))]
        if chance.random() < 0.2:
            parts.append(f"t.{columns[0]} IN (SELECT k FROM {chance.choice('pqrs')} u WHERE u.n = {chance.randrange(30)})")
        beside = ""
        if chance.random() < 0.4:
            kind = chance.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
            beside = f" {kind} (VALUES ('a', 1), ('b', 2), ('c', 3)) AS v(w, i) ON v.w = t.{columns[0]}"
        spared += agree(engine, f"SELECT * FROM {name} t{beside} WHERE {' AND '.join(parts)}")
    assert spared > 1000  # else nothing was tested


@pytest.mark.parametrize(
    ("sql", "narrows"),
    [
        ("SELECT * FROM p WHERE k = 'a' AND n = 3", True),
        ("SELECT * FROM p WHERE p.n = 3 AND 'a' = p.k AND lo > 1", True),
        ("SELECT * FROM p AS x WHERE x.k = 'a' AND x.n = 3", True),
        ("SELECT * FROM p WHERE lo < 2", True),
        ("SELECT * FROM p WHERE hi > 12", True),
        ("SELECT * FROM p WHERE hi >= 12", False),
        ("SELECT * FROM q WHERE hi >= 12", True),
        ("SELECT * FROM p WHERE lo < 2 OR n = 3", False),
        ("SELECT * FROM p WHERE NOT lo < 2", False),
        ("SELECT * FROM p WHERE k = 'a'", False),
        ("SELECT * FROM p ANTI JOIN (SELECT 1 AS n) b USING (n) WHERE p.k = 'a' AND p.n = 3", False),
        ("SELECT * FROM p POSITIONAL JOIN (VALUES (1), (2)) v(i) WHERE p.k = 'a' AND p.n = 3", False),
        ("SELECT * FROM (VALUES (20)) v(i) ASOF JOIN p ON v.i >= p.n WHERE p.k = 'a' AND p.n = 3", False),
        ("SELECT * FROM p TABLESAMPLE 100% WHERE k = 'a' AND n = 3", False),
        ("SELECT * FROM p t(a, b, c, d, e) WHERE a = 'a' AND b = 3", False),
        ("SELECT n + 1 AS n, k FROM p WHERE k = 'a' AND n = 3", False),
        ("SELECT * FROM p a, p b WHERE a.k = 'a' AND a.n = 3", False),
        ("SELECT * FROM p WHERE k = 'a' AND n = 3 AND (SELECT count(*) FROM p) > 2", False),
        ("SELECT * FROM pq WHERE ak = 'a' AND an = 3", True),
        ("SELECT * FROM pq WHERE bk = 'a'", True),
        ("SELECT * FROM pq WHERE both_start < 2", True),
        ("SELECT * FROM pq WHERE both_end > 12 AND both_start < 14", True),
        ("SELECT * FROM pq WHERE both_end > 3 AND both_start < 2", True),
        ("SELECT * FROM g WHERE k = 'a' AND lo = 3", True),
        ("SELECT * FROM g WHERE k = '' AND lo = 3", True),
        ("SELECT * FROM g WHERE k = '\"q' AND lo = 3", True),
        ("SELECT * FROM g WHERE k = 'a'", False),
        ("SELECT * FROM d WHERE k = 'a' AND n = 3", False),
    ],
)
def test_what_narrows(engine: Instance, sql: str, narrows: bool) -> None:
    assert (agree(engine, sql) > 0) == narrows

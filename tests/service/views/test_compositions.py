"""Views over views, WITH and subqueries, in forms in which one query captures what another one means: PostgreSQL has the same rows, or they
are refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_rows
from service.views import parse
from service.views.parse import parse_view
from tests.service import postgres
from tests.service.running import opened

COLUMNS = {"a": "id k v s e".split(), "b": "id k w s e".split(), "c": "k u v".split()}
ROWS = {
    "a": [(0, 0, 1, 0, 2), (1, 1, 1, 1, 3), (2, 1, 2, 4, 6), (3, 2, 0, 0, 9), (4, 2, 2, 5, 6), (5, 0, 2, 1, 2)],
    "b": [(0, 1, 0, 0, 1), (1, 1, 2, 2, 5), (2, 0, 1, 0, 9), (3, 2, 2, 3, 4), (4, 3, 1, 1, 7)],
    "c": [(0, 1, 1), (1, 0, 2), (2, 2, 0), (4, 1, 1)],
}
RANKED = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS n FROM a"
WRONG = [
    "SELECT 1 AS one FROM (SELECT count(*) AS n FROM a) x",
    "SELECT x.one FROM (SELECT 1 AS one, sum(v) AS n FROM a WHERE k = 77) x",
    f"SELECT id FROM (SELECT id, {RANKED} LIMIT 1) t WHERE n <= 1",
    f"SELECT id FROM (SELECT id, {RANKED} OFFSET 30) t WHERE n <= 1",
    "SELECT k FROM (SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY k) AS n FROM a GROUP BY k) t WHERE n <= 3",
    "SELECT k FROM (SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY k) AS n FROM a GROUP BY k HAVING count(*) > 9) t WHERE n <= 1",
    "SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM (SELECT k FROM b OFFSET 300) x WHERE x.k = a.k)",
    "SELECT a.id FROM a WHERE a.k IN (SELECT x.k FROM (SELECT k, w FROM b LIMIT 0) x)",
    "SELECT a.id, b.id AS bid, c.k AS ck FROM c LEFT JOIN (a JOIN b USING (k)) ON a.v = c.k AND b.w = c.u",
    "SELECT a.id, b.id AS bid, c.k AS ck FROM c, (a JOIN b ON a.k = b.k AND b.w = 0) RIGHT JOIN c d ON d.k = a.v",
    "SELECT DISTINCT ON (x.c) x.k, x.id FROM (SELECT 1 AS c, k, v, id FROM a) x ORDER BY x.c, x.id DESC",
    "SELECT a.id FROM a JOIN c ON a.k = c.k WHERE EXISTS (SELECT 1 FROM (SELECT b.k, b.w FROM b WHERE b.k = a.s) a WHERE a.w = c.u)",
    "SELECT x.id FROM a x JOIN c z0 ON x.k = z0.k WHERE EXISTS (SELECT 1 FROM (SELECT x.k AS k, y.u FROM b x JOIN c y ON x.k = y.k) z "
    "WHERE z.k = x.s AND z.u = z0.u)",
]
CAPTURED = (
    "SELECT p.id FROM a p JOIN b AS a ON p.k = a.k "
    "WHERE EXISTS (SELECT 1 FROM (SELECT b.k FROM b WHERE b.w = a.s) AS y JOIN c AS a ON a.k = y.k WHERE a.u = p.v)"
)
WRONG += [
    CAPTURED,
    "SELECT c.k FROM c FULL JOIN (SELECT id, k FROM a WHERE v > 0) x ON c.k = x.k JOIN b ON b.k = x.k",
    "SELECT a.id FROM a JOIN b ON a.k = b.k AND a.s * 1.5::decimal(12, 2) * 1.5::decimal(12, 2) <> b.w::decimal(12, 4)",
    "SELECT n FROM (SELECT DISTINCT count(*) AS n FROM a) x WHERE n > 100",
    "SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM (SELECT k FROM generate_series(1, 3) k) y WHERE y.k = a.k)",
    "SELECT a.id, t.w FROM a LEFT JOIN LATERAL (VALUES (a.k, 1)) AS t(k, w) ON t.k = a.k",
    "SELECT coalesce(a.id, 99) AS id, t.w FROM (VALUES (1, 2), (1, 2), (NULL, 0)) AS t(k, w) FULL JOIN a USING (k)",
    "SELECT x.k, x.n FROM (SELECT t.k, count(a.id) AS n FROM (VALUES (0), (7), (7)) AS t(k) LEFT JOIN a ON a.k = t.k GROUP BY t.k) x "
    "WHERE x.n > 0",
    "WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT a.id, t.n FROM a CROSS JOIN t",
    "WITH t(k) AS (VALUES (1), (2)) SELECT u.k, v.k AS l, a.id FROM t AS u JOIN t AS v ON v.k >= u.k JOIN a ON a.k = u.k",
    "SELECT a.id FROM a WHERE a.k NOT IN (SELECT t.k FROM (VALUES (1), (NULL)) AS t(k))",
    "SELECT a.id, (SELECT max(t.w) FROM (VALUES (1, 5), (1, 7)) AS t(k, w) WHERE t.k = a.k) AS w FROM a",
    "SELECT k FROM a INTERSECT SELECT n FROM generate_series(1, 9) AS g(n)",
    "SELECT t.k, a.id FROM a RIGHT JOIN (VALUES (1), (9)) AS t(k) ON t.k = a.k",
    "SELECT g.n, a.id, b.id AS bid FROM generate_series(0, 9, 3) g(n) LEFT JOIN a ON a.s <= g.n AND g.n <= a.e LEFT JOIN b ON b.k = a.k",
    "SELECT generate_series(1, 3) AS n, 1 AS one UNION ALL SELECT k, v FROM a",
    "SELECT a.id, t.t FROM a JOIN (VALUES (0, 'x'::text), (1, NULL)) AS t(k, t) ON t.k = a.k AND t.t IS NULL",
    "SELECT n FROM (SELECT DISTINCT k, count(*) AS n FROM a GROUP BY k) x WHERE k > 100",
]
RAISE = [
    "SELECT a.id FROM a JOIN b ON a.k = b.k AND (a.v = 1 OR b.w = 2) RIGHT JOIN c ON c.k = b.k",
    "SELECT * FROM ((SELECT nosuch FROM a)) x",
    "SELECT count(x.*) AS n FROM (SELECT * FROM a) x",
]


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    made = opened(tmp_path)
    for name, columns in COLUMNS.items():
        intervals = {"x": {"start": "s", "end": "e"}} if "s" in columns else {}
        key = [columns[0]]
        definition = parse_relation({"columns": [{"name": one, "type": "int64"} for one in columns], "key": key, "intervals": intervals})
        made.put_relation(name, definition)
        schema, rows = definition.arrow_schema(), [dict(zip(columns, row, strict=True)) for row in ROWS[name]]
        block, index = RowBlock(pa.RecordBatch.from_pylist(rows, schema=schema)), np.arange(len(rows), dtype=np.int64)
        made.apply(Batch([Changes(name, definition, np.full(len(rows), UPSERT, np.uint8), block, index)], len(rows), 0, [], 0))
    yield made
    made.close()


def rows_of(engine: Instance, name: str) -> list[tuple[Any, ...]]:
    reader = open_rows(engine.readers, name)
    return sorted(tuple(row.values()) for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist())


@pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed")
@pytest.mark.parametrize("text", WRONG)
def test_postgres_has_the_same_rows_or_it_is_refused(engine: Instance, text: str) -> None:
    try:
        engine.put_view("v", {"sql": text}, wait=60)
    except Problem:
        return
    tables = []
    for name, columns in COLUMNS.items():
        tables.append(f"CREATE TEMP TABLE {name} ({', '.join(f'{one} bigint' for one in columns)});")
        tables.append(f"INSERT INTO {name} VALUES {', '.join(map(str, ROWS[name]))};")
    ours = [[None if value is None else str(value) for value in row] for row in rows_of(engine, "v")]
    assert sorted(ours, key=str) == sorted(postgres.answers([*tables, f"{text};"]), key=str)


@pytest.mark.parametrize("text", RAISE)
def test_what_is_not_supported_is_a_problem(engine: Instance, text: str) -> None:
    with pytest.raises(Problem):
        engine.put_view("v", {"sql": text}, wait=60)


def test_group_by_all_means_all_of_the_subquery(engine: Instance) -> None:
    engine.put_view("v", {"sql": "SELECT x.k, x.n FROM (SELECT k, v, count(*) AS n FROM a GROUP BY ALL) x"}, wait=60)
    assert len(rows_of(engine, "v")) == len({(row[1], row[2]) for row in ROWS["a"]})


def test_levels(engine: Instance) -> None:
    engine.put_view("v1", {"sql": "SELECT id, k FROM a"}, wait=60)
    for level in range(2, 9):
        engine.put_view(f"v{level}", {"sql": f"SELECT * FROM v{level - 1}"}, wait=60)
    with pytest.raises(Problem, match="a view over more than 7 levels of views"):
        engine.put_view("v9", {"sql": "SELECT * FROM v8"})


def test_many_subqueries(engine: Instance) -> None:
    chained = ", ".join(f"w{n} AS (SELECT id FROM {f'w{n - 1}' if n else 'a'})" for n in range(120))
    with pytest.raises(Problem, match="more than 64 subqueries"):
        engine.put_view("v", {"sql": f"WITH {chained} SELECT * FROM w119"})


def test_stretches_are_stored(engine: Instance) -> None:
    engine.put_view("g", {"sql": "SELECT a.id, gaps(a.x, b.x) AS i FROM a LEFT JOIN b ON overlaps(a.x, b.x)"}, wait=60)
    engine.put_view("v", {"sql": "SELECT i_start, i_end, id FROM g"}, wait=60)
    assert rows_of(engine, "v") == sorted((start, end, key) for key, start, end in rows_of(engine, "g"))
    engine.put_view("w", {"sql": "SELECT g.id, c.id AS other FROM g JOIN a c ON overlaps(g.i, c.x)"}, wait=60)
    spans = [(row[0], row[-2], row[-1]) for row in ROWS["a"]]
    assert len(rows_of(engine, "w")) == sum(start < y and x < end for _, start, end in rows_of(engine, "g") for _, x, y in spans)


TWO = "JOIN b ON overlaps(a.x, b.x)"


@pytest.mark.parametrize("join", [TWO, f"{TWO} JOIN b c ON overlaps(a.x, c.x) AND overlaps(b.x, c.x)"])
def test_the_ends_of_an_intersection(engine: Instance, join: str) -> None:
    of = "a.x, b.x, c.x" if " c " in join else "a.x, b.x"
    engine.put_view("g", {"sql": f"SELECT a.id, intersection({of}) AS clash, b.id AS other FROM a {join}"}, wait=60)
    engine.put_view("all", {"sql": "SELECT * FROM g"}, wait=60)
    assert rows_of(engine, "all") == rows_of(engine, "g") and engine.views["all"].shown.schema.names == engine.views["g"].shown.schema.names
    engine.put_view("named", {"sql": "SELECT first, last FROM g AS t (i, first, last) WHERE last - first > 1"}, wait=60)
    assert rows_of(engine, "named") == sorted(row[1:3] for row in rows_of(engine, "g") if row[2] - row[1] > 1)


def test_messages_do_not_name_what_only_the_view_reads(engine: Instance) -> None:
    engine.put_view("p", {"sql": "SELECT id AS shown FROM a"}, wait=60)
    text = "SELECT a.shown FROM p a WHERE EXISTS (SELECT 1 FROM (SELECT * FROM p z WHERE z.shown = a.shown) a WHERE a.shown = 1)"
    definitions = {one.name: one.definition for one in engine.relations.values()}
    inner = "SELECT q.k FROM q WHERE EXISTS (SELECT 1 FROM (SELECT * FROM p z WHERE z.shown = q.k) q WHERE q.shown = 1)"
    engine.put_view("q", {"sql": "SELECT id, k FROM b"}, wait=60)
    for one in (text, inner):
        try:
            parse_view("w", {"sql": one}, definitions, views=engine.view_sources, nameable={})
        except Problem as problem:
            assert "there are id, k, v, s, e" not in str(problem.detail)


def test_a_view_of_any_and_all_is_read(engine: Instance) -> None:
    engine.put_view("p", {"sql": "SELECT id, k FROM a WHERE k = ANY (SELECT k FROM b) AND id <> ALL (SELECT k + 100 FROM b)"}, wait=60)
    engine.put_view("w", {"sql": "SELECT * FROM p"}, wait=60)
    assert rows_of(engine, "w") == rows_of(engine, "p") != []


def test_a_view_named_several_times_is_read_once(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.put_view("p", {"sql": "SELECT id, k FROM a WHERE v > 0"}, wait=60)
    read, tree_of = list[Any](), parse.tree_of
    monkeypatch.setattr(parse, "tree_of", lambda form, *given: read.append(form) or tree_of(form, *given))
    engine.put_view("w", {"sql": "SELECT x.id, y.id AS other FROM p x JOIN p y ON x.k = y.k WHERE y.id > 1"}, wait=60)
    assert len(read) == 1
    assert rows_of(engine, "w") == [(0, 5), (1, 2), (2, 2), (4, 4), (5, 5)]

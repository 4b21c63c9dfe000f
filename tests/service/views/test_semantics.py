"""What definitions mean, by brute force against DuckDB on small random tables; and every view of the data sets."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.schema import RelationDefinition, parse_relation
from service.errors import Problem
from service.views.parse import parse_view
from tests import datasets
from tests.service.definitions import evaluate, relation
from tests.service.duck import connected

BOUNDS = ("[)", "[]", "(]", "()")
COLUMNS = "id:int64, k:int64?, t:string?, f:float64?, v:bool?, d:date?, w:timestamp?, s:int64?, e:int64?, p:int64, q:int64"
LEFT = relation(COLUMNS, {"i": {"start": "s", "end": "e"}, "j": {"start": "p", "end": "q"}, "point": {"at": "p"}})
RIGHT = relation(COLUMNS, {"i": {"start": "s", "end": "e"}, "c": {"start": "p", "end": "q", "bounds": "[]"}})
DEFINITIONS = {"l": LEFT, "r": RIGHT}


def random_rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.25 else value

    rows = []
    for number in range(count):
        s, p = rng.randrange(8), rng.randrange(8)
        rows.append(
            {
                "id": number,
                "k": maybe(rng.randrange(3)),
                "t": maybe(rng.choice(["", "a", "b", "é", "zz"])),
                "f": maybe(rng.choice([-1.5, -0.0, 0.0, 2.0, float("nan"), float("inf")])),
                "v": maybe(rng.random() < 0.5),
                "d": maybe(date(2026, 1, rng.randrange(1, 9))),
                "w": maybe(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=rng.randrange(9))),
                "s": maybe(s),
                "e": maybe(s + 1 + rng.randrange(4)),
                "p": p,
                "q": p + 1 + rng.randrange(4),
            }
        )
    return rows


def batches(definitions: dict[str, RelationDefinition], seed: int, count: int = 25) -> dict[str, pa.RecordBatch]:
    print(f"seed {seed}")
    rng = random.Random(seed)
    return {name: pa.RecordBatch.from_pylist(random_rows(rng, count), schema=d.arrow_schema()) for name, d in definitions.items()}


def in_duckdb(text: str, tables: dict[str, pa.RecordBatch]) -> list[tuple[Any, ...]]:
    with connected() as connection:
        for name, batch in tables.items():
            connection.register(name, pa.Table.from_batches([batch]))
        return connection.sql(text).to_arrow_table().to_pylist()


def agree(ours: list[tuple[Any, ...]], theirs: list[dict[str, Any]]) -> None:
    assert Counter(map(repr, ours)) == Counter(repr(tuple(row.values())) for row in theirs)


CONSTANTS = {"k": "1", "t": "'b'", "f": "0.0", "v": "TRUE", "d": "DATE '2026-01-04'", "w": "TIMESTAMPTZ '2026-01-01 03:00:00+00'"}
FILTERS = [
    *(f"{c} {op} {value}" for op in ("=", "<>", "<", "<=", ">", ">=") for c, value in CONSTANTS.items()),
    *(f"f {op} 2" for op in ("<", "<=", ">", ">=")),
    *("k IN (0, 2)", "k IN (0, NULL)", "k NOT IN (0, 1)", "k NOT IN (0, NULL)", "t IN ('é', '')", "NOT t IN ('a')", "f IN (0, 2)"),
    *("v IN (TRUE)", "d IN ('2026-01-02', '2026-01-03')", "w IN ('2026-01-01 02:00:00+00')", "k IS NULL", "f IS NOT NULL"),
    *("NOT (k IS NULL OR t = 'a')", "v", "NOT v", "v IS FALSE", "k BETWEEN 1 AND 2", "d BETWEEN '2026-01-02' AND '2026-01-05'"),
    *("NOT k < 2", "NOT f < 0", "NOT f >= 2", "k = NULL", "TRUE", "FALSE", "k = 1 AND t <> 'a' AND v"),
]


@pytest.mark.parametrize("condition", FILTERS)
def test_filters(condition: str) -> None:
    tables = batches(DEFINITIONS, seed=7, count=60)
    text = f"SELECT id, t, f, w FROM l WHERE {condition}"
    agree(evaluate(parse_view("v", {"sql": text}, DEFINITIONS), DEFINITIONS, tables), in_duckdb(text, tables))


DISTINCT = [
    *("k IS DISTINCT FROM 1", "k IS NOT DISTINCT FROM 1", "NOT k IS DISTINCT FROM 2", "NOT k IS NOT DISTINCT FROM 2"),
    *("t IS DISTINCT FROM NULL",),
    *("'a' IS DISTINCT FROM t", "f IS NOT DISTINCT FROM NULL", "f IS DISTINCT FROM 0.0", "d IS NOT DISTINCT FROM DATE '2026-01-04'"),
    *("id IS DISTINCT FROM 3", "v IS DISTINCT FROM TRUE"),
]


@pytest.mark.parametrize("condition", DISTINCT)
def test_distinct_from(condition: str) -> None:
    test_filters(condition)


LEAVES = [*FILTERS, *DISTINCT, "v IS NOT TRUE", "v IS NOT FALSE", "k NOT BETWEEN 0 AND 1"]
PATTERNS = ["a", "%", "_", "", "%z", "z%", "_z", "%é%", "a%b%", "%%", "z_"]


def random_condition(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.25:
            return f"t {rng.choice(('LIKE', 'NOT LIKE'))} '{rng.choice(PATTERNS)}'"
        return rng.choice(LEAVES)
    parts = [f"({random_condition(rng, depth - 1)})" for _ in range(rng.choice((1, 2, 2, 3)))]
    joined = rng.choice((" OR ", " OR ", " AND ")).join(parts)
    return f"NOT ({joined})" if rng.random() < 0.4 else joined


@pytest.mark.parametrize("seed", range(150))
def test_or_not_and_like(seed: int) -> None:
    tables = batches(DEFINITIONS, seed=seed, count=60)
    condition = random_condition(random.Random(seed), 3)
    text = f"SELECT id, t, f, w FROM l WHERE {condition}"
    agree(evaluate(parse_view("v", {"sql": text}, DEFINITIONS), DEFINITIONS, tables), in_duckdb(text, tables))


@pytest.mark.parametrize(
    ("like", "elsewhere"),
    [
        (r"t LIKE 'a\%b'", r"t LIKE 'a\%b' ESCAPE '\'"),
        ("t LIKE 'a!_!!%' ESCAPE '!'", None),
        (r"t LIKE 'a\b' ESCAPE ''", r"t LIKE 'a\b'"),
        (r"t LIKE '%\\b'", r"t LIKE '%\\b' ESCAPE '\'"),
        (r"t NOT LIKE '_\_%'", r"t NOT LIKE '_\_%' ESCAPE '\'"),
        ("t LIKE '.*'", None),
        ("t LIKE '_.(%'", None),
        ("t LIKE 'A'", None),
    ],
)
def test_escapes_in_patterns(like: str, elsewhere: str | None) -> None:
    texts = ["a%b", "axb", "a_!", "a_!x", "ax!", r"a\b", r"x\b", "_", "a_", "é_", ".*", "x.(y", "a\nb", "", None]
    rows = [{**row, "t": text} for text, row in zip(texts, random_rows(random.Random(1), len(texts)), strict=True)]
    tables = {"l": pa.RecordBatch.from_pylist(rows, schema=LEFT.arrow_schema())}
    query = "SELECT id, t FROM l WHERE "
    ours = evaluate(parse_view("v", {"sql": query + like}, DEFINITIONS), DEFINITIONS, tables)
    agree(ours, in_duckdb(query + (elsewhere or like), tables))
    assert "NOT" in like or "A" in like.split("'")[1] or ours


UNBOUNDED = "(x.s IS NULL OR y.e IS NULL OR x.s < y.e) AND (y.s IS NULL OR x.e IS NULL OR y.s < x.e)"
JOINS = [
    ("x.s < y.e AND y.s < x.e", None),
    ("overlaps(x.i, y.i)", UNBOUNDED),
    ("x.i OVERLAPS y.i AND x.k = y.k", f"{UNBOUNDED} AND x.k = y.k"),
    ("(x.s, x.e) OVERLAPS (y.s, y.e) AND x.k = y.k AND x.t = y.t", f"{UNBOUNDED} AND x.k = y.k AND x.t = y.t"),
    (UNBOUNDED, None),
    (
        "COALESCE(x.s, '-infinity') < y.e AND y.s < COALESCE(x.e, 'infinity')",
        "(x.s IS NULL OR x.s < y.e) AND y.e IS NOT NULL AND y.s < COALESCE(x.e, 99)",
    ),
    ("NOT (x.s >= y.e OR y.s >= x.e) AND x.f = y.f", None),
    ("x.p < y.q AND y.p <= x.q", None),
    ("x.p < y.p AND x.t = y.t", None),
    ("x.s <= y.e AND x.k < y.k", None),
    ("x.f <= y.f AND x.k = y.k", None),
    ("x.f < y.f AND x.t <= y.t AND x.v <> y.v", None),
    ("abs(x.p - y.q) <= 2 AND x.d <= y.d", None),
    ("x.w BETWEEN y.w - INTERVAL '2 hours' AND y.w + INTERVAL '2 hours'", None),
    ("x.k = y.k AND x.t = y.t", None),
    ("overlaps(x.i, y.i) AND overlaps(x.j, y.c)", f"{UNBOUNDED} AND x.p <= y.q AND y.p < x.q"),
    ("y.p <= x.p AND x.p <= y.q", None),
    ("x.p BETWEEN y.p AND y.q AND x.v = y.v AND x.t > 'a' AND y.d IS NOT NULL", None),
    ("x.p <= y.q AND y.p < x.q", None),
]


@pytest.mark.parametrize(("conditions", "elsewhere"), JOINS)
def test_joins(conditions: str, elsewhere: str | None) -> None:
    tables = batches(DEFINITIONS, seed=11)
    text = "SELECT x.id, y.id, x.t, y.w FROM l AS x, r AS y WHERE "
    view = parse_view("v", {"sql": text + conditions}, DEFINITIONS)
    ours = evaluate(view, DEFINITIONS, tables)
    agree(ours, in_duckdb(text.replace("y.id", "y.id AS id2") + (elsewhere or conditions), tables))
    assert ours


@pytest.mark.parametrize(
    "more",
    [
        "",
        " AND x.id < y.id",
        " AND x.id > y.id",
        " AND x.id <> y.id",
        " AND x.f < y.f",
        " AND x.t <> y.t",
        " AND x.t < y.t",
        " AND x.v < y.v",
    ],
)
@pytest.mark.parametrize("key", ["", " AND x.k = y.k"])
def test_self_joins(key: str, more: str) -> None:
    tables = batches({"l": LEFT}, seed=13)
    text = "SELECT x.id, y.id AS id2 FROM l AS x, l AS y WHERE x.p < y.q AND y.p < x.q" + key + more
    ours = evaluate(parse_view("v", {"sql": text}, DEFINITIONS), DEFINITIONS, tables)
    agree(ours, in_duckdb(text, tables))
    assert ours


@pytest.mark.parametrize("left", BOUNDS)
@pytest.mark.parametrize("right", BOUNDS)
def test_strictness_of_bounds(left: str, right: str) -> None:
    """`<` exactly when the start or the end is open; any other pair of inequalities is two comparisons, and so is every one where an open
    start meets an open end."""
    definitions = {
        name: relation("id:int64, s:int64, e:int64", {"i": {"start": "s", "end": "e", "bounds": bounds}})
        for name, bounds in (("l", left), ("r", right))
    }
    taken = {}
    for first in ("<", "<="):
        for second in ("<", "<="):
            text = f"SELECT x.id, y.id FROM l x, r y WHERE x.s {first} y.e AND y.s {second} x.e"
            query = parse_view("v", {"sql": text}, definitions).query
            if query.overlaps:
                taken[first, second] = query
            else:
                assert [one.op for one in query.comparisons] == sorted((first, second))
    wanted = ("<" if left[0] == "(" or right[1] == ")" else "<=", "<" if right[0] == "(" or left[1] == ")" else "<=")
    plain = parse_view("v", {"sql": "SELECT x.id, y.id FROM l x, r y WHERE overlaps(x.i, y.i)"}, definitions).query
    parted = "()" in (left[0] + right[1], right[0] + left[1])
    assert taken == ({} if parted else {wanted: plain})


ENDS: dict[str, list[Any]] = {
    "int64": list(range(6)),
    "float64": [0.0, 5e-324, 1e-323, 1.0, 1.5, 2.0],
    "date": [date(2026, 1, day) for day in range(1, 7)],
    "timestamp": [datetime(2026, 1, 1, microsecond=number, tzinfo=UTC) for number in range(6)],
}


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("left", BOUNDS)
@pytest.mark.parametrize("right", BOUNDS)
def test_two_inequalities_are_those_of_sql(kind: str, left: str, right: str) -> None:
    """With every strictness; the values of the ends are next to one another. COALESCE is SQL's, too, or refused (of floats)."""
    rng = random.Random(f"{kind} {left} {right}")
    definitions = {
        name: relation(f"id:int64, s:{kind}?, e:{kind}?", {"i": {"start": "s", "end": "e", "bounds": bounds}})
        for name, bounds in (("l", left), ("r", right))
    }
    tables = {}
    for name, bounds in (("l", left), ("r", right)):
        ends = [(s, e) for s in range(6) for e in range(s + (bounds[0] == "(") + (bounds[1] == ")"), 6)]
        rows = [{"id": number, "s": ENDS[kind][s], "e": ENDS[kind][e]} for number, (s, e) in enumerate(rng.choices(ends, k=30))]
        rows = [{column: None if column != "id" and rng.random() < 0.2 else value for column, value in row.items()} for row in rows]
        tables[name] = pa.RecordBatch.from_pylist(rows, schema=definitions[name].arrow_schema())
    found = 0
    for first, second in product(("<", "<="), repeat=2):
        text = f"SELECT x.id, y.id AS id2 FROM l x, r y WHERE x.s {first} y.e AND y.s {second} x.e"
        ours = evaluate(parse_view("v", {"sql": text}, definitions), definitions, tables)
        agree(ours, in_duckdb(text, tables))
        found += len(ours)
        unbounded = text.replace("y.e ", "COALESCE(y.e, 'infinity') ")
        try:
            view = parse_view("v", {"sql": unbounded}, definitions)
        except Problem as problem:
            assert kind == "float64" and "with nulls as unbounded, of float64" in problem.detail
        else:
            elsewhere = text.replace(f"x.s {first} y.e", f"x.s IS NOT NULL AND (y.e IS NULL OR x.s {first} y.e)")
            agree(evaluate(view, definitions, tables), in_duckdb(elsewhere, tables))
    assert found


@pytest.mark.parametrize("name", ["congress", "genome_chr1", "outages", "rects_world", "openflights"])
def test_views_of_the_data_sets(name: str) -> None:
    """Each view: of two aliases the right class, and the rows of DuckDB on a part of the tables."""
    definitions = {table: parse_relation(datasets.definition(name, table)) for table in datasets.tables(name)}
    rng = random.Random(5)
    seen = 0
    for about in datasets.queries(name):
        view = parse_view(about["name"], {"sql": about["sql"]}, definitions)
        join = about["join"]
        tables = {}
        for table in {part["table"] for part in join["from"]}:
            whole = datasets.table(name, table).combine_chunks()
            chosen = sorted(rng.sample(range(min(whole.num_rows, 200)), min(whole.num_rows, 80)))
            tables[table] = whole.take(chosen).combine_chunks().to_batches()[0].cast(definitions[table].arrow_schema())
        agree(evaluate(view, definitions, tables), in_duckdb(about["sql"], tables))
        if len(join["from"]) == 2 and name not in ("rects_world", "openflights"):
            assert view.plan.guarantee == "strict"
            assert view.plan.shape == ("self_less" if join["less"] else "pair")
        assert len(view.query.equal) == len(join["equal"]) and [o.name for o in view.query.outputs] == about["result_columns"]
        seen += 1
    assert seen >= 3

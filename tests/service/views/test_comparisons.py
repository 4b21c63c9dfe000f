"""Views whose relations are joined by expressions, by values of several types, and by nulls that are equal, against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count as count_up
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.schema import parse_patch, parse_relation
from service.errors import Problem
from tests.service.alike import alike
from tests.service.random_sql import DEFINITIONS, Rows, asked, in_duckdb, to_batch
from tests.service.running import check, opened
from tests.service.twin import Row, values
from tests.service.views.test_random_sql import Added, rows_of

EQUAL = (
    "x.k = y.f", "x.f = y.g", "x.g = y.f", "x.k = y.m", "x.c = y.k", "x.m = y.c", "x.c = y.f", "x.d = y.w", "y.k * 2 = x.p",
    "x.q - x.p = y.k", "lower(x.t) = y.t", "date_trunc('day', x.w) = y.w", "coalesce(x.k, 1) = y.k", "x.m + 0.5 = y.c",
    "x.v = (y.k > 1)", "x.t || 'a' = y.t", "CASE WHEN x.v THEN x.k END = y.k",
    *(f"x.{one} IS NOT DISTINCT FROM y.{one}" for one in "ktfvdwmuhyg"),
    *(f"x.{x} IS NOT DISTINCT FROM y.{y}" for x, y in ("fk", "mc", "pk", "kc", "mk", "cp")),
)  # fmt: skip
OTHERS = (
    "x.k < y.f", "x.f >= y.g", "x.g > y.f", "x.k <= y.m", "x.m < y.k", "x.k < y.c", "y.c <= x.k", "x.m < y.c", "x.c <= y.m", "x.m >= y.c",
    "x.c < y.f", "x.d < y.w", "x.w <= y.d", "x.k + 1 < y.f", "x.k * 2 < y.p", "lower(x.t) <= y.t",
    "abs(x.m) < y.c", "x.p * 2 < y.q AND y.p < x.q * 2", "x.p BETWEEN y.m AND y.q + y.k", "(y.g IS NULL OR x.p < y.g)",
    "(x.w IS NULL OR y.w IS NULL OR x.w <= y.w)", "(x.m IS NULL OR x.m < y.n)", "(x.s IS NULL OR x.s < y.q) AND y.p <= x.q",
)  # fmt: skip
DIFFERENT = ("x.k <> y.f", "x.t <> lower(y.t)", "x.k <> y.k % 3")
Ends = tuple[str, str, str]


def between(start: str, end: str, opens: int, discrete: bool) -> str:
    """A value is between them, in DuckDB's SQL; null is unbounded."""
    more = f"{start}::HUGEINT + {opens} <= {end}" if discrete else f"{start} {'<' if opens else '<='} {end}"
    return f"({start} IS NULL OR {end} IS NULL OR {more})"


def ranges(name: str, one: Ends, other: Ends) -> tuple[str, str]:
    """`&&` of two ranges, given by start, end and bounds; and in DuckDB's SQL."""
    ours = [f"{name}({start}, {end}, '{bounds}')" for start, end, bounds in (one, other)]
    met = ((one, one), (other, other), (one, other), (other, one))
    theirs = [between(x[0], y[1], (x[2][0] == "(") + (y[2][1] == ")"), name != "numrange") for x, y in met]
    return " && ".join(ours), " AND ".join(theirs)


RANGES = (
    ranges("int8range", ("x.s", "x.e", "[)"), ("y.s", "y.e", "[)")),
    ranges("int8range", ("x.k", "x.g", "[)"), ("y.s", "y.g", "[]")),
    ranges("int8range", ("x.k", "x.p", "(]"), ("y.p", "y.k", "()")),
    ranges("int8range", ("x.p", "x.q", "()"), ("y.p", "y.q", "()")),
    ranges("int8range", ("x.p + 1", "x.g", "[]"), ("y.k", "y.q * 2", "[)")),
    ranges("numrange", ("x.m", "x.n", "(]"), ("y.c", "y.m", "()")),
    ranges("numrange", ("x.n", "x.c", "[)"), ("y.m", "y.n", "[]")),
    ("numrange(x.m, x.c, '[]') @> y.n", f"y.n IS NOT NULL AND {between('x.m', 'y.n', 0, False)} AND {between('y.n', 'x.c', 0, False)}"),
    ("int8range(x.k, x.g, '()') @> y.p + 1", f"{between('x.k', '(y.p + 1)', 1, True)} AND {between('(y.p + 1)', 'x.g', 1, True)}"),
)
FORMS = (
    "SELECT x.id, y.nr, y.site FROM l x JOIN r y ON {0}",
    "SELECT x.id, y.nr, y.site FROM l x JOIN r y ON {0} AND {1} WHERE x.k < 3",
    "SELECT x.id, y.nr, y.site, y.f FROM l x LEFT JOIN r y ON {0} AND {1}",
    "SELECT x.id, y.nr, y.site FROM l x FULL JOIN r y ON {0}",
    "SELECT x.id FROM l x WHERE EXISTS (SELECT 1 FROM r y WHERE {0} AND {1})",
    "SELECT x.id FROM l x WHERE NOT EXISTS (SELECT 1 FROM r y WHERE {0})",
    "SELECT x.id, y.nr, y.site, z.id AS other FROM l x JOIN r y ON {0} JOIN l z ON z.p = y.p AND z.k IS NOT DISTINCT FROM y.k",
    "SELECT x.id, y.nr, y.site, z.id AS other FROM l x JOIN r y ON {0} LEFT JOIN l z ON z.t IS NOT DISTINCT FROM x.t AND z.k = x.f",
    "SELECT x.t AS t, count(*) AS c, sum(y.p) AS s FROM l x JOIN r y ON {0} GROUP BY x.t",
    "SELECT x.k AS k, count(*) AS c, min(y.c) AS s FROM l x JOIN r y ON {0} GROUP BY x.k",
)
AFTER = (
    "coalesce(y.p, 0) = 0", "y.f IS NULL", "(y.k IS NULL OR y.p > 2)", "y.k IS DISTINCT FROM 2", "coalesce(y.p > 2, true)",
    "y.v IS NOT TRUE", "NOT coalesce(y.v, false)", "(y.c IS NULL OR y.c > y.m)", "coalesce(y.t, 'a') = 'a' AND y.p IS DISTINCT FROM 1",
)  # fmt: skip
MERGED = ("k = 2", "k IS NULL", "k IN (0, 1, 3)", "(k < 2 OR k IS NULL)", "k + 1 > 2", "NOT k = 1", "k BETWEEN 1 AND 2", "k IS NOT NULL")
OUTER = (
    "SELECT x.id, y.nr, y.site, y.f FROM l x LEFT JOIN r y ON {on} WHERE {after}",
    "SELECT x.id, y.nr, y.site FROM l x LEFT JOIN r y ON {on} AND y.p > 0 WHERE {after} AND x.p < 4",
    "SELECT x.id, y.nr, y.site FROM l x FULL JOIN r y ON {on} WHERE {after}",
    "SELECT x.id, y.nr, y.site FROM l x FULL JOIN r y ON {on} AND y.q > 2 WHERE {after} AND (x.f IS NULL OR x.k = 1)",
    "SELECT x.id, y.nr, y.site, z.id AS z FROM l x LEFT JOIN r y ON {on} LEFT JOIN l z ON z.p = y.p AND z.k = y.k WHERE {after}",
    "SELECT x.id, y.nr, y.site FROM l x LEFT JOIN r y ON {on} WHERE {after} AND EXISTS (SELECT 1 FROM r w WHERE w.k = x.k)",
    "SELECT x.id, y.nr, y.site FROM l x LEFT JOIN r y ON {on} WHERE NOT EXISTS (SELECT 1 FROM l w WHERE w.p = y.p AND w.k = 1) AND {after}",
    "SELECT x.t AS t, count(*) AS c, count(y.nr) AS n, sum(y.p) AS s FROM l x LEFT JOIN r y ON {on} WHERE {after} GROUP BY x.t",
    "SELECT k, x.id AS x, y.nr, y.site FROM l x FULL JOIN r y USING (k) WHERE {merged}",
    "SELECT k, x.id AS x, y.nr, y.site FROM l x FULL JOIN r y USING (k) WHERE {merged} AND {after}",
    "SELECT k, x.id AS x, y.nr, y.site FROM l x FULL JOIN r y USING (k) WHERE {merged} AND x.p > 1",
    "SELECT k, count(*) AS c FROM l x FULL JOIN r y USING (k) WHERE {merged} GROUP BY k",
)
_EXTREME = (2**53, 2**53 + 1, 2**53 + 2, 2**63 - 2, 2 - 2**63)  # a null that is unbounded is not beyond ±2^63


class Mixed(Rows):
    """Rows whose columns of different types often have the same values."""

    def row(self, name: str) -> Row:
        rng = self.random
        row = super().row(name) | {"c": rng.choice([None, 0, 100, 1000, 1050, 1055, 1500, 2000, 3000, -1250]), "p": rng.randrange(5)}
        given: dict[str, Any] = {
            "f": rng.choice([-0.0, 0.0, 1.0, 2.0, 2.5, float(2**53), float(2**63), float("nan"), float("inf"), None]),
            "g": rng.choice([*_EXTREME, 0, 1, None]), "m": rng.choice([0, 10, 100, 105, 150, 200, 300, -125, None]),
            "t": rng.choice(["A", "a", "aa", "b", "", None]), "q": row["p"] + 1 + rng.randrange(3),
        }  # fmt: skip
        return row | given


def statement(rng: random.Random) -> tuple[str, str]:
    """A view, and the same in DuckDB's SQL."""
    first = rng.choice(rng.choice((EQUAL, EQUAL, OTHERS, RANGES)))
    conditions = [one if isinstance(one, tuple) else (one, one) for one in (first, rng.choice((*EQUAL, *OTHERS, *DIFFERENT, *RANGES)))]
    form = rng.choice(FORMS)
    ours, theirs = (form.format(*(f"({one[at]})" for one in conditions)) for at in range(2))
    return ours, theirs


@pytest.fixture
def with_another_decimal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    column = {"name": "c", "type": "decimal", "precision": 12, "scale": 3, "nullable": True}
    for name, definition in DEFINITIONS.items():
        given = definition.to_json()
        monkeypatch.setitem(DEFINITIONS, name, parse_relation(given | {"columns": [*given["columns"], column]}))
    yield


CASES = [(0, 16), *(pytest.param(seed, 60, marks=pytest.mark.soak) for seed in range(1, 40))]


@pytest.mark.usefixtures("with_another_decimal")
@pytest.mark.parametrize(("seed", "count"), CASES)
def test_duckdb_confirms(tmp_path: Path, seed: int, count: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    confirm(tmp_path, rng, iter(lambda: statement(rng), None), count)


@pytest.mark.usefixtures("with_another_decimal")
@pytest.mark.parametrize(("seed", "count"), CASES)
def test_duckdb_confirms_what_is_judged_after_outer_joins(tmp_path: Path, seed: int, count: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    texts = (rng.choice(OUTER).format(on=rng.choice(EQUAL), after=rng.choice(AFTER), merged=rng.choice(MERGED)) for _ in count_up())
    confirm(tmp_path, rng, ((text, text) for text in texts), count)


def chain(rng: random.Random) -> str:
    """Three to five relations, each of which is compared with one before it; some of them are joined by an interval each."""
    aliases = list(zip("xyzwv"[: rng.choice((3, 3, 4, 4, 5))], "lrlrl", strict=False))
    kind = rng.choice((["p", "q", "k"], ["p", "k"], ["m"]))
    columns = {alias: rng.choice(kind) for alias, _ in aliases}
    forms = ("{0} < {1}", "{0} <= {1}", "{0} + 1 < {1}", "{0} <= {1} - 2", "abs({0} - {1}) <= 1", "{0} BETWEEN {1} - 1 AND {1}")
    conditions = []
    for at, (alias, _) in list(enumerate(aliases))[1:]:
        other = rng.choice([name for name, _ in aliases[:at]]) if rng.random() < 0.7 else aliases[at - 1][0]
        mine, theirs = f"{alias}.{columns[alias]}", f"{other}.{columns[other]}"
        one, two = rng.sample((mine, theirs), 2)
        form = rng.choice(forms) if kind == ["m"] or rng.random() < 0.8 else f"{alias}.p <= {theirs} AND {theirs} < {alias}.q"
        conditions.append(form.format(one, two))
    if rng.random() < 0.3:
        conditions.append("x.p < y.q")
    if rng.random() < 0.4:
        conditions += [f"x.k = {alias}.k" for alias, _ in aliases[1:]]
    keys = {"l": "{0}.id AS {0}i", "r": "{0}.nr AS {0}n, {0}.site AS {0}s"}
    ids = ", ".join(keys[name].format(alias) for alias, name in aliases[1:])
    froms = ", ".join(f"{name} {alias}" for alias, name in aliases)
    return f"SELECT x.id, {ids} FROM {froms} WHERE {' AND '.join(conditions)} AND x.p < 2 AND {aliases[-1][0]}.q > 4"


@pytest.mark.usefixtures("with_another_decimal")
@pytest.mark.parametrize(("seed", "count"), CASES)
def test_duckdb_confirms_chains_of_comparisons(tmp_path: Path, seed: int, count: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    confirm(tmp_path, rng, ((text, text) for text in (chain(rng) for _ in count_up())), count)


def test_a_column_that_a_condition_computes_with_stays_without_nulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    engine, rows = opened(tmp_path), Rows(rng, 30)
    for name, definition in DEFINITIONS.items():
        engine.put_relation(name, definition)
    text = "SELECT x.id, y.nr, y.site FROM l x JOIN r y ON x.p % 3 = y.q % 3 AND lower(x.t) IS NOT DISTINCT FROM y.t"
    engine.put_view("v", {"sql": text}, wait=60)
    with pytest.raises(Problem, match="'p' is a column by which v joins"):
        engine.patch_relation("l", parse_patch({"nullable": ["p"]}))
    engine.patch_relation("l", parse_patch({"nullable": ["n"], "add_columns": [{"name": "more", "type": "int64", "nullable": True}]}))
    monkeypatch.setitem(DEFINITIONS, "l", engine.relation("l").definition)
    drawn = rows.row
    monkeypatch.setattr(rows, "row", lambda name: drawn(name) | {"more": 1})
    engine.apply(to_batch(rows.changes(90)))
    other = in_duckdb(rows.relations)
    assert alike(rows_of(engine, "v"), asked(other, text)) and len(rows_of(engine, "v")) > 0
    other.close()
    with pytest.raises(Problem, match=r"needs all of the key \(id\), not p"):
        rows_of(engine, "v", ("x", {"p": "3"}))
    check(engine)
    engine.close()


def confirm(tmp_path: Path, rng: random.Random, statements: Iterator[tuple[str, str]], count: int) -> None:
    """Compare views with DuckDB, under changes and after a restart."""
    engine, rows = opened(tmp_path), Mixed(rng, 16)
    for name, definition in DEFINITIONS.items():
        engine.put_relation(name, definition)
    engine.apply(to_batch(rows.changes(30)))
    views = dict[str, tuple[str, str]]()
    for text, theirs in islice(statements, count):
        engine.put_view(f"v{len(views)}", {"sql": text}, wait=60)
        views[f"v{len(views)}"] = text, theirs
    added = [Added(engine, name) for name in views]
    for step in range(5):
        other = in_duckdb(rows.relations)
        for one in added:
            text, theirs = views[one.name]
            ours = rows_of(engine, one.name)
            assert alike(ours, asked(other, theirs)), text
            one.catch_up()
            assert sorted(map(repr, one.rows.values())) == sorted(repr(values(row)) for row in ours), text
            if text.startswith("SELECT x.id"):
                key = rng.randrange(rows.keys)
                found = rows_of(engine, one.name, ("x", {"id": str(key)}))
                assert alike(found, [row for row in ours if row["id"] == key]), text
        other.close()
        if step == 3:
            tokens = [one.subscription.idle_progress().token for one in added]
            engine.close()
            engine = opened(tmp_path)
            for one, token in zip(added, tokens, strict=True):
                one.subscribe(engine, token)
        for _ in range(3):
            engine.apply(to_batch(rows.changes(rng.choice((1, 1, 3, 12)))))
    check(engine)
    engine.close()

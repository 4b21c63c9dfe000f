"""Functions in expressions: random ones against PostgreSQL, where it is installed, step by step with null for its errors."""

from __future__ import annotations

import json
import math
import os
import random
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.kinds import sent_batch
from service.errors import Problem
from service.query.conditions import Term
from service.query.terms import may_need_more
from service.tables.projection import Projection
from service.views.parse import parse_view
from tests.service import postgres
from tests.service.duck import connected
from tests.service.random_functions import HELPERS, IN_DUCKDB, IN_POSTGRES, KIND_OF, STEPS, Node, T, drawn, filled, literal, rooted, rows

ROWS = 20
KINDS = [kind for kind in IN_POSTGRES if kind not in ("json", "bytes")]
SHOWN = {
    "time": "(extract(epoch FROM {0}) * 1000000)::bigint", "local": "(extract(epoch FROM {0}) * 1000000)::bigint",
    "day": "{0} - DATE '1970-01-01'", "clock": "(extract(epoch FROM {0}) * 1000000)::bigint",
}  # fmt: skip


def ours(nodes: list[Node], batch: pa.RecordBatch) -> dict[int, list[Any]]:
    """The values by index; without those that may need too many digits."""
    found = {}
    for index, node in enumerate(nodes):
        try:
            view = parse_view("v", {"sql": f"SELECT {node.sql} AS x FROM t"}, {"t": T})
        except Problem as problem:
            assert any(word in str(problem.detail) for word in ("digits", "steps")), (node.sql, problem.detail)
            continue
        if may_be_cut(view.query.outputs[0].term):
            continue
        column = Projection(view.query, {"t": T}).rows({"t": batch}).column(0)
        if pa.types.is_timestamp(column.type) or pa.types.is_time(column.type):
            column = column.view(pa.int64())
        elif pa.types.is_date(column.type):
            column = column.view(pa.int32())
        found[index] = column.to_pylist()
    return found


def may_be_cut(term: Term | None) -> bool:
    return term is not None and (may_need_more(term) or any(map(may_be_cut, term.args)))


def theirs(nodes: dict[int, Node], given: list[dict[str, Any]]) -> dict[int, list[str | None]]:
    """Each step in a block of its own, where an error is null."""
    names = ["id", *KIND_OF]
    columns = ", ".join(f"{name} {IN_POSTGRES[KIND_OF.get(name, 'int')]}" for name in names)
    values = ",\n".join("(" + ", ".join(literal(name, row[name]) for name in names) + ")" for row in given)
    script = ["SET client_min_messages = error; DROP SCHEMA IF EXISTS judge CASCADE; CREATE SCHEMA judge; SET search_path = judge;"]
    script += [HELPERS, f"CREATE TABLE t ({columns});", f"INSERT INTO t VALUES {values};"]
    script += ["CREATE TABLE found (number int, id bigint, value text);"]
    for index, node in nodes.items():
        places = {id(one): f"v{at}" for at, one in enumerate(node.nodes())}
        declared = " ".join(f"{places[id(one)]} {IN_POSTGRES[one.step.kind]};" for one in node.nodes())
        body = []
        for one in node.nodes():
            form = filled(one.step.judge or one.step.form, [places[id(arg)] for arg in one.args])
            form = f"r.{form}" if form in KIND_OF else form
            body.append(f"BEGIN {places[id(one)]} := {form}; EXCEPTION WHEN OTHERS THEN {places[id(one)]} := NULL; END;")
        last = SHOWN.get(node.step.kind, "{0}").replace("{0}", places[id(node)])
        script.append(
            f"DO $do$ DECLARE r record; {declared} BEGIN FOR r IN SELECT * FROM t LOOP {' '.join(body)}"
            f" INSERT INTO found VALUES ({index}, r.id, ({last})::text); END LOOP; END $do$;"
        )
    script.append("SELECT number, array_to_json(array_agg(value ORDER BY id)) FROM found GROUP BY number;")
    return {int(index or 0): json.loads(value or "") for index, value in postgres.answers(script)}


def same(kind: str, mine: Any, other: str | None) -> bool:
    if mine is None or other is None:
        return mine is None and other is None
    if kind == "float":
        value = float(other)
        return mine == value or (math.isnan(mine) and math.isnan(value)) or math.isclose(mine, value, rel_tol=1e-14)
    if kind in ("decimal", "int", "time", "local", "day", "clock"):
        return Decimal(mine) == Decimal(other)
    if kind == "bool":
        return (mine is True) == (other == "true")
    return bool(mine == other)


def check(nodes: list[Node], seed: int) -> int:
    given = rows(random.Random(seed), ROWS)
    batch = pa.RecordBatch.from_pylist(given, schema=T.arrow_schema())
    mine = ours(nodes, batch)
    other = theirs({index: nodes[index] for index in mine}, given)
    wrong = []
    for index, values in mine.items():
        for row, (x, y) in enumerate(zip(values, other[index], strict=True)):
            if not same(nodes[index].step.kind, x, y):
                wrong.append((nodes[index].sql, x, y, given[row]))
                break
    assert not wrong, f"seed {seed}: {len(wrong)} of {len(mine)}: " + "\n".join(map(str, wrong[:40]))
    return len(mine) * ROWS


@pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed")
def test_each_step() -> None:
    rng = random.Random(1)
    assert check([rooted(rng, step, 1) for step in STEPS], 1) > 0.9 * ROWS * len(STEPS)


def in_duckdb(nodes: list[Node], batch: pa.RecordBatch) -> dict[int, list[str | None]]:
    shown = {**dict.fromkeys(("time", "local", "clock"), "epoch_us({0})"), "day": "({0} - DATE '1970-01-01')"}
    found = {}
    with connected() as connection:
        connection.register("sent", pa.Table.from_batches([sent_batch(batch, T.sent_schema())]))
        for index, node in enumerate(nodes):
            value = shown.get(node.step.kind, "{0}").replace("{0}", tried(node))
            found[index] = [one for (one,) in connection.sql(f"SELECT ({value})::text FROM sent ORDER BY id").fetchall()]
    return found


def tried(node: Node) -> str:
    """Null where DuckDB has an error."""
    return f"TRY({filled(node.step.form, [tried(arg) for arg in node.args])})" if node.args else node.sql


def test_against_duckdb() -> None:
    rng, given = random.Random(3), rows(random.Random(3), ROWS)
    batch = pa.RecordBatch.from_pylist(given, schema=T.arrow_schema())
    nodes = [rooted(rng, step, 1) for some in IN_DUCKDB.values() for step in some]
    nodes += [drawn(rng, rng.choice(KINDS), 2, IN_DUCKDB) for _ in range(200)]
    mine, other = ours(nodes, batch), in_duckdb(nodes, batch)
    wrong = []
    for index, values in mine.items():
        pairs = list(zip(values, other[index], strict=True))
        kind = nodes[index].step.kind
        wrong += [(nodes[index].sql, *pair, row) for pair, row in zip(pairs, given, strict=True) if not same(kind, *pair)][:1]
    assert not wrong, f"{len(wrong)} of {len(mine)}: " + "\n".join(map(str, wrong[:40]))
    assert len(mine) > 0.9 * len(nodes) > 400


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("btrim('xxaxx', 'x')", "a"), ("substring('hotel' FROM -1 FOR 4)", "ho"), ("split_part('a,b,c', ',', -1)", "c"),
        ("octet_length('é')", 2), ("round(2.5)", Decimal(3)), ("round(2.5::double precision)", 2.0), ("round(1234.567, -2)", Decimal(1200)),
        ("sign((-3)::bigint)", -1.0), ("(-8) ^ (1.0 / 3)", None), ("0 ^ -1", None), ("sqrt(-1)", None), ("-2 ^ 2", 4.0),
        ("2 ^ 3 ^ 2", 64.0),
        ("10.5 % 3", Decimal("1.5")), ("'Room 12' ~ '[0-9]+$'", True), ("'ROOM' !~* 'room'", False),
        ("'50%' ILIKE '5_\\%'", True),
        ("to_char(DATE '2026-01-05', 'FMDay, DD Mon YYYY')", "Monday, 05 Jan 2026"),
        ("to_char((TIMESTAMPTZ '2026-01-05 15:04Z') AT TIME ZONE 'Europe/Berlin', 'YYYY-MM-DD\"T\"HH24:MI')", "2026-01-05T16:04"),
        ("date_trunc('day', (TIMESTAMPTZ '2026-07-01 23:00:00Z'), 'Europe/Berlin')", datetime(2026, 7, 1, 22, tzinfo=UTC)),
        ("(TIMESTAMP '2026-03-29 02:30:00') AT TIME ZONE 'Europe/Berlin'", datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        ("(TIMESTAMP '2026-10-25 02:30:00') AT TIME ZONE 'Europe/Berlin'", datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
        ("date_bin('15 minutes', (TIMESTAMPTZ '2020-02-11 15:44:17Z'), (TIMESTAMPTZ '2001-01-01'))",
         datetime(2020, 2, 11, 15, 30, tzinfo=UTC)),
        ("(DATE '2026-01-31') + INTERVAL '1 month'", datetime(2026, 2, 28, tzinfo=UTC)), ("make_date(2026, 2, 29)", None),
        ("extract(century FROM (DATE '2000-12-31'))", Decimal(20)),
        ("extract(epoch FROM (TIMESTAMPTZ '1970-01-01 00:00:01.5Z'))", Decimal("1.5")),
        ("(TIMESTAMPTZ '2026-01-05') - (TIMESTAMPTZ '2026-01-04') > 20 * INTERVAL '1 hour'", True),
        ("json_array_length('[1, [2, 3], 1e400]')", 3), ("json_array_length('{}')", None),
        ("""'{"a": [1, {"b c": 1.10}]}' #>> '{a,1,"b c"}'""", "1.10"),
        ("concat('a', NULL, 1, DATE '2026-01-05')", "a12026-01-05"), ("greatest(1, NULL, 2.5)", Decimal("2.5")), ("nullif(2, 2.0)", None),
        ("'a' || 1 || TRUE", "a1true"), ("replace('aaa', '', 'b')", "aaa"), ("md5('')", "d41d8cd98f00b204e9800998ecf8427e"),
    ],
)  # fmt: skip
def test_results_that_postgresql_has(expression: str, shown: Any) -> None:
    """Those of which DuckDB has others, or none."""
    view = parse_view("v", {"sql": f"SELECT {expression} AS x FROM t"}, {"t": T})
    batch = pa.RecordBatch.from_pylist(rows(random.Random(1), 1), schema=T.arrow_schema())
    (found,) = Projection(view.query, {"t": T}).rows({"t": batch}).column(0).to_pylist()
    assert found == shown and type(found) is type(shown)


def test_nan_divided_by_zero_is_nan() -> None:
    view = parse_view("v", {"sql": "SELECT f / sign(f - f) AS x FROM t"}, {"t": T})
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(T.arrow_schema().names) | {"id": 1, "f": float("nan")}], schema=T.arrow_schema())
    (found,) = Projection(view.query, {"t": T}).rows({"t": batch}).column(0).to_pylist()
    assert found != found


def test_a_text_that_is_too_long_is_null() -> None:
    doubled = "t"
    for _ in range(5):
        doubled = f"replace({doubled}, 'a', repeated)".replace("repeated", "'" + "a" * 40 + "'")
    view = parse_view("v", {"sql": f"SELECT {doubled} AS x FROM t"}, {"t": T})
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(T.arrow_schema().names) | {"id": 1, "t": "a"}], schema=T.arrow_schema())
    assert Projection(view.query, {"t": T}).rows({"t": batch}).column(0).to_pylist() == [None]


def test_rows_whose_texts_together_are_too_long_are_evaluated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    view = parse_view("v", {"sql": "SELECT length(replace(t, 'a', repeat_)) AS x FROM t".replace("repeat_", f"'{'b' * 1000}'")}, {"t": T})
    none = dict.fromkeys(T.arrow_schema().names)
    batch = pa.RecordBatch.from_pylist([none | {"id": i, "t": "a" * i or None} for i in range(50)], schema=T.arrow_schema())
    monkeypatch.setattr("service.tables.values.terms._MOST_BYTES", 5000)
    found = Projection(view.query, {"t": T}).rows({"t": batch}).column(0).to_pylist()
    assert found == [None, *(1000 * i for i in range(1, 50))]


@pytest.mark.parametrize("pattern", ["(((a{1,10}){1,10}){1,10})b", "(ab){200}", "(a{200}){2}"])
def test_patterns_that_repeat_too_much_are_refused(pattern: str) -> None:
    with pytest.raises(Problem, match="when its repetitions are written out"):
        parse_view("v", {"sql": f"SELECT id FROM t WHERE t ~ '{pattern}'"}, {"t": T})


def test_arguments_of_any_types() -> None:
    """Are refused, or have values."""
    rng = random.Random(4)
    batch = pa.RecordBatch.from_pylist(rows(rng, 20), schema=T.arrow_schema())
    refused = 0
    for _ in range(2000):
        step = rng.choice(STEPS)
        takes = tuple(one if rng.random() < 0.5 else rng.choice(list(IN_POSTGRES)) for one in step.takes)
        text = rooted(rng, step._replace(takes=takes), 1).sql
        text = re.sub(r"'[^']*'|[0-9]+", lambda one: rng.choice(("NULL", "-7", "''", "1e300", "'x'", *[one[0]] * 12)), text)
        try:
            view = parse_view("v", {"sql": f"SELECT {text} AS x FROM t"}, {"t": T})
        except Problem as problem:
            assert problem.type in ("unsupported-query", "bad-query", "unknown-column"), text
            refused += 1
            continue
        made = Projection(view.query, {"t": T}).rows({"t": batch})
        made.validate(full=True)
    assert 200 < refused < 1800


def depths(seed: int, count: int) -> list[Node]:
    rng = random.Random(seed)
    return [drawn(rng, rng.choice(KINDS), 6) for _ in range(count)]


@pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed")
def test_deep_ones() -> None:
    assert check(depths(2, 400), 2) > 200 * ROWS


@pytest.mark.soak
@pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed")
def test_many_deep_ones() -> None:
    """LIVEJOIN_FUZZ evaluations (a million) that have never been tried."""
    seed, left = int.from_bytes(os.urandom(4)), int(os.environ.get("LIVEJOIN_FUZZ") or 1_000_000)
    print("seed", seed)
    while left > 0:
        left -= check(depths(seed, 200), seed)
        seed += 1


def test_concat_ws_leaves_out_nulls_and_their_separators() -> None:
    """The values are those that PostgreSQL's manual gives for it."""
    view = parse_view("v", {"sql": "SELECT concat_ws(',', 'abcde', 2, NULL, 22) AS x, concat_ws(NULL, 'a', 'b') AS y FROM t"}, {"t": T})
    batch = pa.RecordBatch.from_pylist(rows(random.Random(1), 1), schema=T.arrow_schema())
    assert Projection(view.query, {"t": T}).rows({"t": batch}).to_pylist() == [{"x": "abcde,2,22", "y": None}]

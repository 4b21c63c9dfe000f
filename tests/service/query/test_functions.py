"""Functions in expressions: random ones against PostgreSQL, where it is installed, step by step with null for its errors."""

from __future__ import annotations

import json
import math
import os
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from service.errors import Problem
from service.tables.projection import Projection
from service.views.parse import parse_view
from tests.service import postgres
from tests.service.random_functions import HELPERS, IN_POSTGRES, KIND_OF, STEPS, Node, T, drawn, filled, literal, rooted, rows

ROWS = 20
KINDS = [kind for kind in IN_POSTGRES if kind not in ("json", "bytes")]
SHOWN = {
    "time": "(extract(epoch FROM {0}) * 1000000)::bigint", "local": "(extract(epoch FROM {0}) * 1000000)::bigint",
    "day": "{0} - DATE '1970-01-01'", "clock": "(extract(epoch FROM {0}) * 1000000)::bigint",
}  # fmt: skip


def ours(nodes: list[Node], batch: pa.RecordBatch) -> dict[int, list[Any]]:
    """The values by number; without those that need too many digits."""
    found = {}
    for number, node in enumerate(nodes):
        try:
            view = parse_view("v", {"sql": f"SELECT {node.sql} AS x FROM t"}, {"t": T})
        except Problem as problem:
            assert any(word in str(problem.detail) for word in ("digits", "steps")), (node.sql, problem.detail)
            continue
        column = Projection(view.query, {"t": T}).rows({"t": batch}).column(0)
        if pa.types.is_timestamp(column.type) or pa.types.is_time(column.type):
            column = column.view(pa.int64())
        elif pa.types.is_date(column.type):
            column = column.view(pa.int32())
        found[number] = column.to_pylist()
    return found


def theirs(nodes: dict[int, Node], given: list[dict[str, Any]]) -> dict[int, list[str | None]]:
    """Each step in a block of its own, where an error is null."""
    names = ["id", *KIND_OF]
    columns = ", ".join(f"{name} {IN_POSTGRES[KIND_OF.get(name, 'int')]}" for name in names)
    values = ",\n".join("(" + ", ".join(literal(name, row[name]) for name in names) + ")" for row in given)
    script = ["SET client_min_messages = error; DROP SCHEMA IF EXISTS judge CASCADE; CREATE SCHEMA judge; SET search_path = judge;"]
    script += [HELPERS, f"CREATE TABLE t ({columns});", f"INSERT INTO t VALUES {values};"]
    script += ["CREATE TABLE found (number int, id bigint, value text);"]
    for number, node in nodes.items():
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
            f" INSERT INTO found VALUES ({number}, r.id, ({last})::text); END LOOP; END $do$;"
        )
    script.append("SELECT number, array_to_json(array_agg(value ORDER BY id)) FROM found GROUP BY number;")
    return {int(number or 0): json.loads(value or "") for number, value in postgres.answers(script)}


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
    other = theirs({number: nodes[number] for number in mine}, given)
    wrong = []
    for number, values in mine.items():
        for row, (x, y) in enumerate(zip(values, other[number], strict=True)):
            if not same(nodes[number].step.kind, x, y):
                wrong.append((nodes[number].sql, x, y, given[row]))
                break
    assert not wrong, f"seed {seed}: {len(wrong)} of {len(mine)}: " + "\n".join(map(str, wrong[:40]))
    return len(mine) * ROWS


@pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed")
def test_each_step() -> None:
    rng = random.Random(1)
    assert check([rooted(rng, step, 1) for step in STEPS], 1) > 0.9 * ROWS * len(STEPS)


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

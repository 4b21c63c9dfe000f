"""Views with conditions by expression: columns that become nullable, deletes by condition, and a restart, against DuckDB."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import Batch
from livejoin.wire.schema import parse_patch
from service.query.definition import read_where
from tests.service.alike import alike
from tests.service.random_sql import DEFINITIONS, Rows, asked, in_duckdb, to_batch
from tests.service.running import check, opened
from tests.service.twin import Row, values
from tests.service.views.test_random_sql import Added, rows_of

VIEWS = (
    "SELECT x.id, x.p FROM l x WHERE x.p + x.q > 30",
    "SELECT x.id, y.nr, y.site FROM l x LEFT JOIN r y ON x.t = y.t AND y.n > y.p * 2 WHERE x.n IS DISTINCT FROM x.p OR x.k = 1",
    "SELECT x.id FROM l x WHERE NOT EXISTS (SELECT 1 FROM r y WHERE y.t = x.t AND y.p < y.q - 2) AND lower(x.t) <> 'é'",
    "SELECT x.t AS t, COUNT(*) AS c, SUM(x.p) AS s FROM l x JOIN r y ON x.k = y.k "
    "WHERE CASE WHEN y.v THEN y.p > 9 ELSE y.n > 1.005 END GROUP BY x.t",
    "SELECT DISTINCT ON (x.t) x.t, x.w, x.p FROM l x WHERE x.q - x.p > 1 ORDER BY x.t, x.w DESC NULLS LAST, x.id DESC",
)
DELETED = "p + coalesce(k, 0) > 12 AND (q - p > 0 OR lower(t) = 'b')"


def with_nulls(rng: random.Random, row: Row) -> Row:
    return row | {name: None for name in "npq" if rng.random() < 0.4}


def test_conditions_through_the_life_of_a_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    engine, rows = opened(tmp_path), Rows(rng, 30)
    for name, definition in DEFINITIONS.items():
        engine.put_relation(name, definition)
    engine.apply(to_batch(rows.changes(60)))
    for number, text in enumerate(VIEWS):
        engine.put_view(f"v{number}", {"sql": text}, wait=60)
    added = [Added(engine, f"v{number}") for number in range(len(VIEWS))]

    def compare() -> None:
        other = in_duckdb(rows.relations)
        for one, text in zip(added, VIEWS, strict=True):
            ours = rows_of(engine, one.name)
            assert alike(ours, asked(other, text)), text
            one.catch_up()
            assert sorted(map(repr, one.rows.values())) == sorted(repr(values(row)) for row in ours), text
        other.close()

    def change() -> None:
        for _ in range(4):
            compare()
            engine.apply(to_batch(rows.changes(rng.choice((1, 3, 12)))))
        compare()

    change()
    for name in DEFINITIONS:
        engine.patch_relation(name, parse_patch({"nullable": ["n", "p", "q"]}))
        monkeypatch.setitem(DEFINITIONS, name, engine.relation(name).definition)
    drawn = rows.row
    monkeypatch.setattr(rows, "row", lambda name: with_nulls(rng, drawn(name)))
    change()
    other = in_duckdb(rows.relations)
    gone = [row[0] for row in asked(other, f"SELECT id FROM l WHERE {DELETED}")]
    where: list[dict[str, Any]] = [{"expression": DELETED}]
    read = partial(read_where, "l", where=where, most=9)
    assert engine.delete("l", Batch([], 0, 0, [], 0), lambda one: read(one.definition)).applied == len(gone) > 0
    for key in gone:
        del rows.relations["l"][key,]
    change()
    check(engine)
    tokens = [one.subscription.idle_progress().token for one in added]
    engine.close()
    engine = opened(tmp_path)
    for one, token in zip(added, tokens, strict=True):
        one.subscribe(engine, token)
    change()
    check(engine)
    engine.close()

"""Names in each place of each form: right rows, which DuckDB confirms, or a refusal that names the column."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import UPSERT, Batch, Changes, RowBlock
from service.errors import Problem
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests.service.alike import alike
from tests.service.duck import connected
from tests.service.running import check, opened
from tests.service.scoped import RELATIONS, asked, in_json

STATEMENTS, DEFINITIONS = list(asked()), list(in_json())
ROWS = {
    "l": [(1, 1, 2), (2, 1, None), (3, 2, 4), (4, None, 3), (5, 3, 1), (6, 4, 6)],
    "r": [(1, 1, 3), (2, 1, None), (3, 2, 1), (4, None, 2), (5, 4, 5), (6, 5, 4)],
    "s": [(1, 1, 1), (2, 2, 2), (3, 2, None), (4, None, 3), (5, 4, 4), (6, 6, 6)],
}


def tables() -> dict[str, pa.RecordBatch]:
    named = {name: definition.arrow_schema() for name, definition in RELATIONS.items()}
    return {name: pa.RecordBatch.from_arrays([*map(pa.array, zip(*ROWS[name], strict=True))], schema=named[name]) for name in RELATIONS}


def in_duckdb() -> duckdb.DuckDBPyConnection:
    other = connected()
    for name, rows in tables().items():
        other.register(name, rows)
    return other


def step(pace: int) -> list[object]:
    """Take one statement of so many; in the soak, all."""
    return [pytest.param(pace, 3), pytest.param(1, 0, marks=pytest.mark.soak)]


@pytest.mark.parametrize(("pace", "first"), step(37))
def test_the_names_that_duckdb_knows_and_no_others(pace: int, first: int) -> None:
    other, taken = in_duckdb(), 0
    for what, one in STATEMENTS[first::pace]:
        try:
            other.sql(one.theirs)
            known = True
        except duckdb.BinderException:
            known = False
        try:
            parse_view("v", {"sql": one.text}, RELATIONS)
            assert known, (what, one.text)
            taken += 1
        except Problem as problem:
            said, column = str(problem.detail), one.name.rpartition(".")[2]
            if known:  # after USING, DuckDB takes the column of the left side where PostgreSQL calls a name ambiguous
                assert problem.type == "unsupported-query" or (column == "a" and "ambiguous" in said), (what, one.text, said)
            else:
                assert problem.type in ("unknown-column", "bad-query") and column in said, (what, one.text, said)
    assert taken > len(STATEMENTS) / pace / 5


@pytest.mark.parametrize(("pace", "first"), step(149))
def test_duckdb_confirms_the_rows(tmp_path: Path, pace: int, first: int) -> None:
    engine, other, compared = opened(tmp_path), in_duckdb(), 0
    for name, rows in tables().items():
        engine.put_relation(name, RELATIONS[name])
        ops, index = np.full(rows.num_rows, UPSERT, np.uint8), np.arange(rows.num_rows)
        engine.apply(Batch([Changes(name, RELATIONS[name], ops, RowBlock(rows), index)], rows.num_rows, 0, [], 0))
    for what, one in STATEMENTS[first::pace]:
        try:
            view, _ = engine.put_view("v", {"sql": one.text}, wait=60)
        except Problem as problem:
            assert problem.status == 422, (what, one.text, problem)
            continue
        assert view.state == "live", (what, one.text, view.problem)
        reader = open_rows(engine.readers, "v")
        ours = [row for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist()]
        reader.close()
        assert alike(ours, _rows(other.sql(one.theirs).to_arrow_table())), (what, one.text)
        compared += 1
        engine.drop_view("v")
    assert compared > len(STATEMENTS) / pace / 5
    check(engine)
    engine.close()


def _rows(table: pa.Table) -> list[dict[str, object]]:
    """`*` of several relations has names twice."""
    return table.rename_columns([str(position) for position in range(table.num_columns)]).to_pylist()


@pytest.mark.parametrize(("what", "data", "name", "visible"), DEFINITIONS[::7], ids=[what for what, *_ in DEFINITIONS[::7]])
def test_definitions_in_json(what: str, data: dict[str, object], name: str, visible: bool) -> None:
    try:
        parse_view("v", data, RELATIONS)
        assert visible
    except Problem as problem:
        assert problem.type == "unsupported-query" if visible else problem.type == "unknown-column", problem.detail
        alias, _, column = name.partition(".")
        assert visible or (column in str(problem.detail) and alias in str(problem.detail)), problem.detail

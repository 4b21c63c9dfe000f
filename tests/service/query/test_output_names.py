"""The names of output columns: PostgreSQL's, and DuckDB's for repeated ones."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest

from livejoin.wire.schema import RelationDefinition, parse_relation
from service.errors import Problem
from service.views.parse import parse_view

COLUMNS = {"id": "int64", "at": "timestamp", "doc": "json", "word": "string", "n_1": "int64", "N": "int64", "n": "int64"}
DEFINITION: RelationDefinition = parse_relation(
    {
        "columns": [{"name": name, "type": type_} for name, type_ in COLUMNS.items()], "key": ["id"],
        "intervals": {"span": {"start": "id", "end": "n", "bounds": "[)"}},
    }
)  # fmt: skip


def names(definition: str | dict[str, Any]) -> list[str]:
    data = {"sql": definition} if isinstance(definition, str) else definition
    query = parse_view("v", data, {"t": DEFINITION}).query
    return [output.name for output in (query.groups or query).outputs]


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("t.id", "id"),
        ('T."N"', "N"),
        ("(id)", "id"),
        ("lower(word)", "lower"),
        ("UPPER(lower(word))", "upper"),
        ("coalesce(n, 1)", "coalesce"),
        ("date_trunc('day', at)", "date_trunc"),
        ("n::text", "n"),
        ("CAST(lower(word) AS bigint)", "lower"),
        ("CASE WHEN n > 1 THEN 1 ELSE 2 END", "case"),
        ("CASE WHEN n > 1 THEN word END", "case"),
        ("CASE WHEN n > 1 THEN id ELSE n END", "n"),
        ("CASE n WHEN 1 THEN 'x' ELSE lower(word) END", "lower"),
        ("CASE WHEN n > 1 THEN 1 ELSE CASE WHEN n > 0 THEN 2 ELSE 3 END END::text", "case"),
        ("n + 1", "column"),
        ("-n", "column"),
        ("word || 'x'", "column"),
        ("doc ->> 'a'", "column"),
        ("n IS NULL", "column"),
        ("n % 2", "column"),
        ("lower(word) = 'x'", "column"),
        ("1", "column"),
        ("duration(span)", "duration"),
        ("intersection(span)", "intersection_start"),
    ],
)
def test_one_row(expression: str, name: str) -> None:
    assert names(f"SELECT {expression} FROM t")[0] == name
    if not name.startswith(("intersection", "duration")):
        assert names({"from": {"t": "t"}, "select": [{"expression": expression}]}) == [name]


def test_groups() -> None:
    text = (
        "SELECT t.word, date_trunc('day', t.at), COUNT(*), count(n), COUNT(DISTINCT n), Sum(n), AVG(n) AS sum, MIN(n), MAX(n) FROM t "
        "GROUP BY 1, 2"
    )
    assert names(text) == ["word", "date_trunc", "count", "count_1", "count_2", "sum_1", "sum", "min", "max"]
    assert [column.name for column in parse_view("v", {"sql": text}, {"t": DEFINITION}).query.groups.columns] == ["word", "date_trunc"]  # type: ignore[union-attr]
    assert names("SELECT word, COUNT(*) FROM t GROUP BY word HAVING count > 1") == ["word", "count"]
    json = {
        "from": {"t": "t"}, "group": ["t.word", {"trunc": "day", "of": "t.at"}], "having": [{"column": "count_1", "op": ">", "value": 1}],
        "aggregate": [{"count": "*"}, {"count_distinct": "t.n"}, {"sum": {"duration": ["t.span"]}}],
    }  # fmt: skip
    assert names(json) == ["word", "date_trunc", "count", "count_1", "sum"]
    assert names("SELECT DISTINCT n, id, n FROM t") == ["n", "id", "n_1"]


def test_a_group_column_that_is_not_selected_has_a_name_of_its_own() -> None:
    def columns(text: str) -> list[str]:
        groups = parse_view("v", {"sql": text}, {"t": DEFINITION}).query.groups
        assert groups is not None
        return [column.name for column in groups.columns]

    assert columns("SELECT COUNT(*) FROM t a JOIN t b USING (id) GROUP BY a.n, b.n, date_trunc('day', a.at)") == ["n", "n_1", "date_trunc"]
    assert columns("SELECT a.word AS n FROM t a JOIN t b USING (id) GROUP BY a.word, b.n") == ["n", "n_1"]


def test_group_by_an_output_name() -> None:
    assert names("SELECT date_trunc('day', at), COUNT(*) FROM t GROUP BY date_trunc") == ["date_trunc", "count"]


def test_repeated_names_are_duckdbs() -> None:
    database = duckdb.connect()
    database.execute('CREATE TABLE t (id BIGINT, "at" TIMESTAMP, doc JSON, word VARCHAR, n_1 BIGINT, "M" BIGINT, n BIGINT)')
    choice = random.Random(1)
    columns = [{"name": name.replace("N", "M"), "type": type_} for name, type_ in COLUMNS.items()]
    definition = parse_relation({"columns": columns, "key": ["id"]})
    for _ in range(100):
        chosen = choice.choices(["a.n", "b.n", "n_1", "*", "a.*", "b.id", "a.word"], k=choice.randint(1, 5))
        text = f"SELECT {', '.join(chosen)} FROM t a JOIN t b ON a.id = b.id".replace(" n_1", " a.n_1")
        found = [output.name for output in parse_view("v", {"sql": text}, {"t": definition}).query.outputs]
        assert found == database.sql(f"FROM ({text})").columns, text


def test_names_given_with_as_stay() -> None:
    assert names("SELECT t.n, id AS n, id AS n_1, t.n FROM t") == ["n_2", "n", "n_1", "n_3"]
    with pytest.raises(Problem, match="two columns named n: rename one of them with AS"):
        names("SELECT id AS n, n AS n FROM t")

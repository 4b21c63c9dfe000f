"""USING, NATURAL JOIN, ON without a comparison, the schema public, GROUP BY ALL: the columns of `*` are those of PostgreSQL 15."""

from __future__ import annotations

import pytest

from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.query.model import ColumnRef, Query
from service.views.parse import parse_view

RELATIONS = {
    name: parse_relation({"columns": [{"name": column, "type": "int64"} for column in columns.split()], "key": [columns.split()[0]]})
    for name, columns in {"x": "id a b c", "y": "id a d", "z": "a b e", "w": "f g"}.items()
}


def query(sql: str) -> Query:
    return parse_view("v", {"sql": sql}, RELATIONS).query


def refused(sql: str) -> Problem:
    with pytest.raises(Problem) as caught:
        query(sql)
    return caught.value


@pytest.mark.parametrize(
    ("source", "names", "of"),
    [
        ("x JOIN y USING (a)", "a id b c id_1 d", "x x x x y y"),
        ("x LEFT JOIN y USING (a)", "a id b c id_1 d", "x x x x y y"),
        ("x RIGHT JOIN y USING (a)", "a id b c id_1 d", "y x x x y y"),
        ("x FULL JOIN y USING (a)", "a id b c id_1 d", "- x x x y y"),
        ("x NATURAL JOIN y", "id a b c d", "x x x x y"),
        ("x JOIN y USING (a, id)", "a id b c d", "x x x x y"),
        ("x NATURAL RIGHT JOIN y", "id a b c d", "y y x x y"),
        ("x JOIN z USING (b) JOIN y USING (id)", "id b a c a_1 e a_2 d", "x x x x z z y y"),
        ("x JOIN z USING (a) NATURAL JOIN y", "a id b c b_1 e d", "x x x x z z y"),
        ("w, x NATURAL JOIN z", "f g a b id c e", "w w x x x x z"),
        ("w NATURAL JOIN y", "f g id a d", "w w y y y"),
        ("x CROSS JOIN z", "id a b c a_1 b_1 e", "x x x x z z z"),
    ],
)
def test_star(source: str, names: str, of: str) -> None:
    found = query(f"SELECT * FROM {source}" + (" WHERE f = x.a" if "," in source.partition("(")[0] else ""))
    assert [output.name for output in found.outputs] == names.split()
    assert ["-" if output.column is None else output.column.alias for output in found.outputs] == of.split()


def test_a_name_alone() -> None:
    assert query("SELECT a FROM x JOIN z USING (a) RIGHT JOIN y USING (a)").outputs[0].column == ColumnRef("y", "a")
    (whole, more) = query("SELECT a, a + 1 FROM x FULL JOIN y USING (a)").outputs
    assert (whole.name, more.name) == ("a", "column")
    assert whole.term is not None and (whole.term.op, [str(one.value) for one in whole.term.args]) == ("coalesce", ["x.a", "y.a"])
    assert query("SELECT x.*, y.a FROM x FULL JOIN y USING (a)").outputs[1].column == ColumnRef("x", "a")
    assert [one.name for one in query("SELECT * EXCLUDE (a, y.id) FROM x FULL JOIN y USING (a)").outputs] == ["id", "b", "c", "d"]
    assert query("SELECT x.id FROM x JOIN y USING (a) WHERE a = 1") == query("SELECT x.id FROM x JOIN y ON x.a = y.a WHERE x.a = 1")


def test_a_join_that_asks_for_a_product() -> None:
    product = query("SELECT * FROM x CROSS JOIN w")
    assert query("SELECT * FROM x JOIN w ON true") == product == query("SELECT * FROM x NATURAL JOIN w")
    assert query("SELECT * FROM x JOIN w ON g > 3") == query("SELECT * FROM x CROSS JOIN w WHERE g > 3")
    assert query("SELECT * FROM x JOIN w ON g > 3 WHERE c = f") == query("SELECT * FROM x JOIN w ON c = f WHERE g > 3")
    assert "a join without a condition between x and w" in str(refused("SELECT * FROM x, w").detail)
    assert "a join without a condition between x and w" in str(refused("SELECT * FROM x JOIN w ON c <> f").detail)
    assert query("SELECT * FROM x LEFT JOIN w ON true").subqueries[0].join.cross == (("x", "w"),)


def test_the_schema_public() -> None:
    assert query("SELECT public.x.id, x.a FROM public.x WHERE public.x.b > 1") == query("SELECT id, a FROM x WHERE b > 1")
    assert "all relations are in the schema public: write x" in str(refused("SELECT id FROM other.x").detail)
    assert "no relation or view nope" in str(refused("SELECT id FROM public.nope").detail)


def test_group_by_all() -> None:
    assert query("SELECT a, b AS n, COUNT(*) FROM x GROUP BY ALL") == query("SELECT a, b AS n, COUNT(*) FROM x GROUP BY a, b")
    assert query("SELECT COUNT(*) FROM x GROUP BY ALL") == query("SELECT COUNT(*) FROM x")
    assert query("SELECT *, SUM(e) FROM z GROUP BY ALL") == query("SELECT a, b, e, SUM(e) FROM z GROUP BY a, b, e")

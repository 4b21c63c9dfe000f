"""Which names can be used in which place of a statement; `views/test_scope.py` crosses all forms with all places."""

from __future__ import annotations

import pytest

from service.query.scope import Scope
from tests.service.definitions import refused, relation, sql

RELATIONS = {
    "l": relation("id:int64, a:int64?, b:int64?", {}),
    "r": relation("id:int64, a:int64?, b:int64?, c:int64?", {}),
    "s": relation("id:int64, a:int64?, c:int64?, d:int64?", {}),
}
DELETED = "r cannot be used here: the right side of SEMI JOIN and ANTI JOIN is visible in its ON alone"


@pytest.mark.parametrize("join", ["SEMI", "ANTI"])
@pytest.mark.parametrize("on", ["ON l.a = r.a", "USING (a)"])
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT * FROM {}", None),
        ("SELECT id AS x, b AS y FROM {} WHERE a > 5", None),
        ("SELECT l.id FROM {} WHERE EXISTS (SELECT 1 FROM r WHERE r.b = l.b)", None),
        ("SELECT * FROM {} CROSS JOIN s", None),
        ("SELECT l.id, r.b AS rb FROM {}", "r.b"),
        ("SELECT c FROM {}", "r.c"),
        ("SELECT r.* FROM {}", "r.*"),
        ("SELECT l.* FROM {} WHERE r.b > 1000", "r.b"),
        ("SELECT l.id FROM {} WHERE c = 1", "r.c"),
        ("SELECT COUNT(r.b) AS n FROM {}", "r.b"),
        ("SELECT l.a FROM {} GROUP BY l.a, r.b", "r.b"),
        ("SELECT l.a FROM {} GROUP BY l.a HAVING MAX(r.b) > 1", "r.b"),
        ("SELECT DISTINCT r.a FROM {}", "r.a"),
        ("SELECT DISTINCT ON (r.a) l.id FROM {} ORDER BY r.a, l.id DESC", "r.a"),
        ("SELECT l.id FROM {} QUALIFY ROW_NUMBER() OVER (PARTITION BY l.a ORDER BY r.b DESC) = 1", "r.b"),
        ("SELECT l.id FROM {} JOIN s ON s.c = r.c", "r.c"),
        ("SELECT l.id FROM {} JOIN s USING (c)", "r.c"),
        ("SELECT l.id FROM {} WHERE EXISTS (SELECT 1 FROM s WHERE s.c = r.c)", "r.c"),
        ("SELECT l.id FROM {} WHERE l.a IN (SELECT r.a FROM s WHERE s.a = l.a)", "r.a"),
    ],
)
def test_the_right_side_of_semi_and_anti_join_is_visible_in_its_on_alone(join: str, on: str, text: str, name: str | None) -> None:
    text = text.format(f"l {join} JOIN r {on}")
    if name is not None:
        problem = refused(text, RELATIONS)
        assert (problem.type, problem.detail) == ("unknown-column", f"{name}: {DELETED}")
        return
    outputs = [output.name for output in sql(text, RELATIONS).query.outputs]
    assert outputs[:3] == ["id", "a", "b"] if "*" in text else outputs[0] in ("x", "id")


def test_a_part_knows_the_columns_that_using_makes_one() -> None:
    text = "SELECT l.id FROM l JOIN r USING (a) WHERE EXISTS (SELECT 1 FROM s x WHERE x.d = {})"
    relations = RELATIONS | {"s": relation("id:int64, d:int64?", {})}
    assert sql(text.format("a"), relations).query == sql(text.format("l.a"), relations).query


def test_a_long_list_of_relations_is_refused_before_its_scopes_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 5,000 of them took 14 s, for which all other definitions waited."""
    monkeypatch.setattr(Scope, "without", None)
    problem = refused(f"SELECT x0.id FROM {', '.join(f'l x{index}' for index in range(5000))}", RELATIONS)
    assert "a join of 5000 relations is not supported: a view joins at most 8" in problem.detail

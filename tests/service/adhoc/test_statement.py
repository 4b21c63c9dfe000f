"""Which relations and views a text names."""

from __future__ import annotations

import pytest

from service.access.access_token import EVERYONE
from service.adhoc.statement import VisibleNames, read
from service.errors import Problem

KNOWN = VisibleNames({"a", "b"}, {"v"}, EVERYONE)


def names(sql: str) -> list[str]:
    return [f"{table.kind} {table.name} {len(table.positions)}" for table in read(sql, KNOWN, 1 << 16)]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT 1", []),
        ("SELECT * FROM a", ["relation a 1"]),
        ("SELECT * FROM A x, a y JOIN V USING (id)", ["relation a 2", "view v 1"]),
        ("FROM a SELECT count(*)", ["relation a 1"]),
        ("VALUES (1), (2)", []),
        ("VALUES ((SELECT max(id) FROM a))", ["relation a 1"]),
        ("SELECT * FROM a UNION ALL SELECT * FROM v", ["relation a 1", "view v 1"]),
        ("WITH a AS (SELECT 1) SELECT * FROM a", []),
        ("WITH A AS (SELECT * FROM b) SELECT * FROM a", ["relation b 1"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["relation a 1"]),
        ("WITH x AS (WITH a AS (SELECT 1) SELECT * FROM a) SELECT * FROM x, a", ["relation a 1"]),
        ("SELECT * FROM b WHERE id IN (WITH b AS (SELECT 1) SELECT * FROM b)", ["relation b 1"]),
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a", []),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.id = a.id)", ["relation a 1", "relation b 1"]),
        ("SELECT unnest([1, 2]) FROM a", ["relation a 1"]),
    ],
)
def test_names(sql: str, found: list[str]) -> None:
    assert sorted(names(sql)) == sorted(found)


@pytest.mark.parametrize(
    ("sql", "kind", "said"),
    [
        ("SELECT * FROM nix", "unknown-relation", "'nix'"),
        ("SELECT * FROM relation.a", "unknown-relation", "'relation.a': relations and views are in no schema or database"),
        ("SELECT * FROM x.main.a", "unknown-relation", "write the name alone"),
        ('SELECT * FROM "A"', "unknown-relation", "'A'"),
        ("SELECT * FROM read_csv('x')", "unsupported-query", "in FROM"),
        ("SELECT * FROM a, unnest([1])", "unsupported-query", "unnest in SELECT"),
        ("WITH c AS (SELECT * FROM d), d AS (SELECT 1) SELECT * FROM c", "unknown-relation", "'d'"),
        ("DELETE FROM a", "bad-query", "a query begins with SELECT, not with 'DELETE'"),
        ("SELECT * FROM a; DROP VIEW a", "bad-query", "one is run at a time"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "bad-query", "nested too deeply"),
        ("SELECT * FROM a" + " JOIN a" * 3000, "bad-query", ""),
        ("SELECT '" + "x" * 70_000 + "'", "bad-query", "--max-sql"),
    ],
)
def test_refused(sql: str, kind: str, said: str) -> None:
    with pytest.raises(Problem) as caught:
        names(sql)
    assert caught.value.type == kind and said in caught.value.detail
    assert kind != "bad-query" or caught.value.status == 400

"""Which relations and views a text names."""

from __future__ import annotations

import pytest

from service.access.access_token import EVERYONE
from service.adhoc.statement import VisibleNames, read
from service.errors import Problem

KNOWN = VisibleNames(["a", "b"], ["v"], EVERYONE)


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
    ("sql", "said"),
    [
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "nested too deeply"),
        ("SELECT * FROM a" + " JOIN a" * 3000, ""),
        ("SELECT '" + "x" * 70_000 + "'", "--max-sql"),
    ],
)
def test_long_texts(sql: str, said: str) -> None:
    with pytest.raises(Problem) as caught:
        names(sql)
    assert caught.value.type == "bad-query" and caught.value.status == 400 and said in caught.value.detail

"""Which relations and views a text names."""

from __future__ import annotations

import pytest

from service.access.access_token import EVERYONE
from service.adhoc.statement import VisibleNames, read
from service.errors import Problem

KNOWN = VisibleNames(["a", "b"], ["v"], EVERYONE)


def names(sql: str) -> list[str]:
    return [f"{table.kind} {table.name} {len(table.positions)}" for table in read(sql, KNOWN, 1 << 16).tables]


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
        ('SELECT public.a.id FROM Public.a, "public" . V', ["relation a 1", "view v 1"]),
        ("WITH x AS (SELECT * FROM public.b) SELECT * FROM public.a, x", ["relation a 1", "relation b 1"]),
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


@pytest.mark.parametrize(
    ("sql", "given"),
    [
        ("SELECT public.a.id, a.* FROM public.a", "SELECT a.id, a.* FROM a"),
        ('SELECT 1 FROM "public" -- é\n . a JOIN Public/**/.b y', "SELECT 1 FROM a JOIN b y"),
        ("SELECT public.s.x FROM a public", "SELECT public.s.x FROM a public"),
        ("SELECT public.b.x, public.a.x FROM b public, public.a", "SELECT public.b.x, a.x FROM b public, a"),
    ],
)
def test_the_schema_is_blank(sql: str, given: str) -> None:
    text = read(sql, KNOWN, 1 << 16).text
    assert text.split() == given.split() and len(text) == len(sql), "places stay"
    assert [at for at, one in enumerate(text) if one == "\n"] == [at for at, one in enumerate(sql) if one == "\n"]


def test_tables_of_constants_name_nothing() -> None:
    found = read("SELECT * FROM generate_series(1, 3) AS g(n) JOIN (VALUES (1)) AS t(n) USING (n) JOIN a ON a.x = g.n", KNOWN, 1 << 16)
    assert [table.name for table in found.tables] == ["a"]


def test_all_at_once() -> None:
    with pytest.raises(Problem) as caught:
        read("SELECT * FROM nix JOIN range(3) USING (x) WHERE id IN (SELECT id FROM public.nowhere)", KNOWN, 1 << 16)
    said = [(one["detail"][:32], one["position"]["column"]) for one in caught.value.extensions["complaints"]]
    assert sorted(said, key=lambda one: one[1]) == [
        ("there is no relation or view 'ni", 15), ("reading from functions, files an", 24), ("there is no relation or view 'pu", 71),
    ]  # fmt: skip

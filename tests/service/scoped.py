"""Statements that cross each form that takes a relation with each place where a name can stand, and definitions in JSON likewise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from tests.service.definitions import relation

RELATIONS = {
    "l": relation("id:int64, a:int64?, b:int64?", {}),
    "r": relation("id:int64, a:int64?, c:int64?", {}),
    "s": relation("id:int64, a:int64?, d:int64?", {}),
}


class Form(NamedTuple):
    """FROM, and a condition of WHERE; the aliases that are visible behind it."""

    source: str
    where: str
    visible: str


class Asked(NamedTuple):
    """A statement, its form for DuckDB, and the name that it is about."""

    text: str
    theirs: str
    name: str


_ON = {
    f"{kind}{on}": Form(f"l {kind}JOIN r {condition}", "", "l" if kind in ("SEMI ", "ANTI ") else "lr")
    for kind in ("", "LEFT ", "RIGHT ", "FULL ", "SEMI ", "ANTI ")
    for on, condition in (("on", "ON l.a = r.a"), ("using", "USING (a)"), ("bare", "ON l.a = c"))
}
FORMS = {
    **_ON,
    "alone": Form("l", "", "l"),
    "comma": Form("l, r", "l.a = r.a", "lr"),
    "cross": Form("l CROSS JOIN r", "", "lr"),
    "as of": Form("l ASOF JOIN r ON l.a = r.a AND r.id <= l.b", "", "lr"),
    "as of left": Form("l ASOF LEFT JOIN r ON r.a = l.a AND r.id < l.b", "", "lr"),
    "exists": Form("l", "EXISTS (SELECT 1 FROM r WHERE r.a = l.a AND c > 1)", "l"),
    "not exists": Form("l", "NOT EXISTS (SELECT r.id FROM r WHERE r.a = l.a AND l.b < c)", "l"),
    "in": Form("l", "l.a IN (SELECT a FROM r WHERE c > 1)", "l"),
    "exists of two": Form("l", "EXISTS (SELECT r.* FROM r JOIN s USING (a) WHERE a = l.a)", "l"),
    "two joins": Form("l JOIN r USING (a) JOIN s USING (a)", "", "lrs"),
    "semi, then join": Form("l SEMI JOIN r USING (a) JOIN s USING (a)", "", "ls"),
    "anti, then left": Form("l ANTI JOIN r ON l.a = r.a LEFT JOIN s ON l.b = d", "", "ls"),
    "left, then semi": Form("l LEFT JOIN s ON l.b = d SEMI JOIN r ON r.c = l.a", "", "ls"),
    "semi, then cross": Form("l SEMI JOIN r ON l.b = c CROSS JOIN s", "", "ls"),
    "semi, then comma": Form("l SEMI JOIN r USING (a), s", "s.a = l.a", "ls"),
    "semi twice": Form("l SEMI JOIN r USING (a) ANTI JOIN s USING (a)", "", "l"),
}
NAMES = ("l.b", "r.c", "s.d", "z.id", "l.c", "r.nope", "a", "b", "c", "d", "nope", "r.a")
_POSITIONS = {
    "select": ("{n} AS o", "", ""),
    "expression": ("coalesce({n}, 0) + 1 AS o", "", ""),
    "where": ("l.id AS o", "{n} > 1", ""),
    "where or": ("l.id AS o", "({n} > 3 OR {n} IS NULL)", ""),
    "exists": ("l.id AS o", "EXISTS (SELECT 1 FROM s y WHERE y.d = {n})", ""),
    "not exists": ("l.id AS o", "NOT EXISTS (SELECT 1 FROM s y WHERE {n} = y.d)", ""),
    "in": ("l.id AS o", "{n} IN (SELECT y.d FROM s y)", ""),
    "group": ("{n} AS o, COUNT(*) AS k", "", "GROUP BY {n}"),
    "group alone": ("COUNT(*) AS k", "", "GROUP BY {n}"),
    "having": ("l.b AS o", "", "GROUP BY l.b HAVING MAX({n}) > 2"),
    "aggregates": ("COUNT({n}) AS k, MIN({n}) AS m", "", ""),
    "distinct": ("DISTINCT {n} AS o", "", ""),
    "distinct on": ("DISTINCT ON ({n}) l.id AS o", "", "ORDER BY {n}, l.id DESC"),
    "partition": ("l.id AS o", "", "QUALIFY ROW_NUMBER() OVER (PARTITION BY {n} ORDER BY l.id DESC) = 1"),
}
_JOINS = {
    "on": "JOIN s y ON y.d = {n}",
    "left on": "LEFT JOIN s y ON {n} = y.d",
    "semi on": "SEMI JOIN s y ON y.d = {n}",
    "anti on": "ANTI JOIN s y ON y.d = {n}",
}


def asked() -> Iterator[tuple[str, Asked]]:
    """Yield all statements, each with its form and place."""
    for (called, form), name in product(FORMS.items(), NAMES):
        for position, (select, where, rest) in _POSITIONS.items():
            text = _text(form, select, where, rest).format(n=name)
            yield f"{called}: {position} {name}", Asked(text, text, name)
        for position, join in _JOINS.items():
            text = _text(form._replace(source=f"{form.source} {join}"), "l.id AS o", "", "").format(n=name)
            yield f"{called}: {position} {name}", Asked(text, text, name)
        if "." not in name:
            text = _text(form._replace(source=f"{form.source} JOIN s y USING ({name})"), "l.id AS o, y.d AS e", "", "")
            yield f"{called}: using {name}", Asked(text, text, name)
    for called, form in FORMS.items():
        every = ", ".join(f"{alias}.*" for alias in form.visible)  # DuckDB shows a column of USING once
        yield f"{called}: *", Asked(_text(form, "*", "", ""), _text(form, every, "", ""), "*")
        for alias in "lrsz":
            text = _text(form, f"{alias}.*", "", "")
            yield f"{called}: {alias}.*", Asked(text, text, f"{alias}.*")


def _text(form: Form, select: str, where: str, rest: str) -> str:
    conditions = " AND ".join(filter(None, (form.where, where)))
    return f"SELECT {select} FROM {form.source}{f' WHERE {conditions}' if conditions else ''} {rest}".rstrip()


_PART = {"from": {"r": "r"}, "join": [{"equal": ["l.a", "r.a"]}]}
_JSON_FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "alone": ({"from": {"l": "l"}}, "l"),
    "join": ({"from": {"l": "l", "r": "r"}, "join": _PART["join"]}, "lr"),
    "exists": ({"from": {"l": "l"}, "exists": [_PART]}, "l"),
    "not exists": ({"from": {"l": "l"}, "not_exists": [_PART]}, "l"),
    "left": ({"from": {"l": "l"}, "left": [_PART]}, "lr"),
    "full": ({"from": {"l": "l"}, "full": _PART}, "lr"),
    "as of": ({"from": {"l": "l", "r": "r"}, "join": [{"equal": ["l.a", "r.a"]}, {"as_of": ["r.id", "<=", "l.b"]}]}, "lr"),
}


def in_json() -> Iterator[tuple[str, dict[str, Any], str, bool]]:
    """Yield definitions: what it is, the definition, the column that it is about, and whether that is visible there."""
    for (called, (form, visible)), name in product(_JSON_FORMS.items(), ("l.b", "r.c", "s.d", "l.c", "r.nope")):
        there = name in ("l.b", "r.c", "s.d")
        compared = {"column": name, "op": ">", "value": 1}
        inner = {"from": {"y": "s"}, "join": [{"equal": [name, "y.d"]}]}
        select = {"select": ["l.id as o"]}
        for position, more in {
            "select": {"select": [f"{name} as o"]},
            "expression": {"select": [{"expression": f"{name} + 1", "as": "o"}]},
            "where": {**select, "where": [{"or": [compared, {"not": compared}]}]},
            "group": {"group": [name], "aggregate": [{"count": "*", "as": "k"}]},
            "aggregate": {"group": ["l.id"], "aggregate": [{"max": name, "as": "k"}]},
            "latest": {**select, "latest": {"by": [name], "order": "l.id"}},
            "order": {**select, "latest": {"by": ["l.a"], "order": name}},
            "join": {**select, "join": [*form.get("join", []), {"less": ["l.id", name]}]},
        }.items():
            yield f"{called}: {position} {name}", form | more, name, there and name[0] in visible
        for kind in ("exists", "not_exists", "left"):
            more = {**select, kind: [*form.get(kind, []), inner]}
            yield f"{called}: in {kind} {name}", form | more, name, there and name[0] in visible

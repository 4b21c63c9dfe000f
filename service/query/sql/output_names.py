"""The name of an output column without AS, by PostgreSQL's rule: that of the column, of the function that is called, or `case`; a cast
has that of what it casts. Everything else is called `column` (`?column?` in PostgreSQL, which also names casts by their type)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from service.errors import Problem
from service.query import naming
from service.query.assembly import check_output_name
from service.query.naming import UNNAMED
from service.query.sql.names import Names, fold

CALLED = "called"
MERGED = "merged"
"""Marks the value of a column of both sides of a FULL JOIN, by USING: COALESCE of the two."""
"""In the metadata of a function call: its name as written, as the syntax tree has synonyms of a function as one."""
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}


def name_of(node: exp.Expr) -> str:
    """Return the name of an expression of SELECT."""
    return _strong(node) or ("case" if isinstance(_uncast(node), exp.Case) else UNNAMED)


def _uncast(node: exp.Expr) -> exp.Expr:
    node = node.unnest()
    while isinstance(node, exp.Cast):
        node = node.this.unnest()
    return node


def _strong(node: exp.Expr) -> str | None:
    """Return the name of a column or of a call, which is also that of a CASE with this ELSE; None for others."""
    node = _uncast(node)
    if isinstance(node, exp.Column):
        return fold(node.this)
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return None if default is None else _strong(default)
    while isinstance(node, exp.Filter | exp.Window):
        node = node.this
    if isinstance(node, exp.AtTimeZone):
        return "timezone"
    called: str | None = node.meta.get(CALLED)
    return _TRIMS.get(node.text("position").upper(), "btrim") if called == "trim" else called


def given_name(expression: exp.Expr, names: Names) -> str | None:
    """Return the name that AS gives; None without AS. Problem `bad-query` for one that no column can have."""
    if not isinstance(expression, exp.Alias):
        return None
    try:
        return check_output_name(fold(expression.args["alias"]))
    except Problem as problem:
        raise names.bad(expression.args["alias"], str(problem.detail)) from None


def told_apart(names: Names, named: Sequence[tuple[str, exp.Expr]]) -> list[str]:
    """Return names of output columns, each of an expression of SELECT, without repetitions. Problem `bad-query` for one that AS gives
    twice."""
    given = [isinstance(origin, exp.Alias) for _, origin in named]
    seen = set[str]()
    for (name, origin), is_given in zip(named, given, strict=True):
        if is_given and name in seen:
            raise names.bad(origin, f"the view has two columns named {name}: rename one of them with AS")
        seen |= {name} if is_given else set()
    return naming.told_apart([(name, is_given) for (name, _), is_given in zip(named, given, strict=True)])

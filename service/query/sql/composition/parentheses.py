"""Joins in parentheses, written without them: `(a JOIN b ON p) JOIN c ON q` needs none, `c JOIN (a JOIN b ON p) ON q` is
`c CROSS JOIN a JOIN b ON p AND q`, and the right side of a LEFT or FULL JOIN is a list of relations, which all of its conditions join."""

from __future__ import annotations

from sqlglot import exp

from service.errors import unsupported
from service.query.sql.composition.merging import add_condition
from service.query.sql.names import Source, is_comma, is_relation


def without_parentheses(tree: exp.Expr, source: Source) -> None:
    """Write the joins of each SELECT without parentheses. Notes problems `unsupported-query`."""
    for select in list(tree.find_all(exp.Select)):
        start = select.args.get("from_")
        if start is not None:
            with source.noting(start):
                table, joins = _opened(start.this)
                start.set("this", table)
                select.set("joins", _flat([*joins, *(select.args.get("joins") or ())]))


def _opened(node: exp.Expr) -> tuple[exp.Expr, list[exp.Join]]:
    """Return the first relation of a join in parentheses, and the joins of the others; of anything else, itself."""
    joins = node.args.get("joins") or []
    node.set("joins", None)
    if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
        first = "JOIN (SELECT k, x FROM b QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= 2) AS t ON t.k = a.k"
        raise unsupported("LATERAL", f"write an aggregate or a first row in SELECT, or join the first rows of each key: {first}")
    if not _is_join(node):
        if not isinstance(node, exp.Subquery | exp.Tuple) and not is_relation(node):
            raise unsupported("a function in FROM", "FROM has relations, views, subqueries, VALUES, and generate_series")
        return node, joins
    if node.args.get("alias"):
        raise unsupported("an alias of a join in parentheses", "give each relation its own")
    table, inner = _opened(node.this)
    return table, [*inner, *joins]


def _is_join(node: exp.Expr) -> bool:
    inner = node.this
    if isinstance(node, exp.Subquery) and isinstance(inner, exp.Subquery):
        return bool(inner.args.get("alias") or inner.args.get("joins")) or _is_join(inner)
    return isinstance(node, exp.Subquery) and isinstance(inner, exp.Table)


def _flat(joins: list[exp.Join]) -> list[exp.Join]:
    made = list[exp.Join]()
    for join in joins:
        table, inner = _opened(join.this)
        inner = _flat(inner)
        join.set("this", table)
        made.append(join)
        if not inner:
            continue
        is_apart = is_comma(join) or join.method or any(one.method or one.args.get("using") for one in [join, *inner])
        if is_apart or any(one.side or one.method or one.kind not in ("", "INNER", "CROSS") for one in inner):
            raise unsupported("this join in parentheses", "after JOIN, only inner joins can be in parentheses: begin FROM with the others")
        on = join.args.get("on")
        if not join.side and join.kind in ("", "INNER", "CROSS"):
            join.set("on", None)
            join.set("kind", "CROSS")
            if on is not None:
                add_condition(inner[-1], on)
            made += inner
        elif join.side in ("LEFT", "FULL") and join.kind in ("", "OUTER"):
            for one in inner:
                if one.args.get("on") is not None:
                    add_condition(join, one.args["on"])
            join.set("this", exp.Tuple(expressions=[table, *(one.this for one in inner)]))
        else:
            raise unsupported("this join in parentheses", "begin FROM with the relations in the parentheses")
    return made

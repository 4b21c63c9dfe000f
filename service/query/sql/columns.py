"""The names of a SELECT: which columns its clauses use, and which * stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeGuard

from sqlglot import exp

from livejoin.wire.schema import RelationDefinition
from service.errors import unsupported
from service.query.scope import Scope
from service.query.sql.names import Names, Shown, Source, Sources, fold, read_sources
from service.query.sql.output_names import CALLED, MERGED, name_of

_SOURCES = ("from_", "joins", "with_")


def check_names(
    select: exp.Select, source: Source, relations: Mapping[str, RelationDefinition], outer: Scope | None = None
) -> Sources | None:
    """Return FROM of a SELECT, after checking every column and interval in SELECT, ON, WHERE and QUALIFY; None if it reads from anything
    but relations."""
    sources = read_sources(select, source, relations, outer)
    if sources is None:
        return None
    _write_out(select, sources)
    parts = [(one, sources.names) for one in (*select.expressions, *filter(None, map(select.args.get, ("where", "qualify", "order"))))]
    named = {one.alias or name_of(one) for one in select.expressions}
    for part, names in (*parts, *((one.join.args.get("on"), one.names) for one in sources.joined)):
        for column in own_columns(part) if part is not None else ():
            if not isinstance(part, exp.Order | exp.Qualify) or column.args.get("table") or fold(column.this) not in named:
                with source.noting(column):
                    names.check(column)
    return sources


def _write_out(select: exp.Select, sources: Sources) -> None:
    """Replace each name that means a column of both sides of a FULL JOIN, by USING, by COALESCE of the two."""
    either = {refs[0].column: refs for refs in sources.names.shown if len(refs) > 1}
    for _, part in clauses_of(select) if either else ():
        for column in list(own_columns(part)):
            if not column.args.get("table") and (refs := either.get(fold(column.this))) is not None:
                column.replace(merged(refs, column.this))


def merged(refs: Shown, written: exp.Identifier | None = None) -> exp.Coalesce:
    """Return the value of a column of both sides of a FULL JOIN; it keeps the name and the position of what was written."""
    columns = [exp.Column(this=exp.to_identifier(ref.column, quoted=True), table=exp.to_identifier(ref.alias)) for ref in refs]
    made = exp.Coalesce(this=columns[0], expressions=columns[1:])
    made.meta.update({} if written is None else written.meta)
    made.meta.update({CALLED: refs[0].column, MERGED: True})
    return made


def clauses_of(select: exp.Select) -> Iterator[tuple[str, exp.Expr]]:
    """Yield the clauses, each expression of SELECT apart, by the names of their arguments; neither FROM with its joins nor WITH."""
    for name, value in select.args.items():
        if name not in _SOURCES:
            yield from ((name, part) for part in (value if isinstance(value, list) else [value]) if isinstance(part, exp.Expr))


def own_columns(part: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns of a clause, except those in subqueries and those that * leaves out."""
    for node in part.walk(prune=lambda n: isinstance(n, exp.Query | exp.Star)):
        if isinstance(node, exp.Column):
            yield node


def is_star(node: exp.Expr) -> TypeGuard[exp.Star | exp.Column]:
    """Return whether this is `*` or `x.*`."""
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def read_star(expression: exp.Star | exp.Column, names: Names) -> list[Shown]:
    """Read `*` or `x.*`, perhaps with EXCLUDE."""
    star, shown = expression, list(names.shown)
    if isinstance(expression, exp.Column):
        star, of = expression.this, fold(expression.args["table"])
        shown = [(ref,) for ref in names.scope.columns(of)]
    for what, value in star.args.items():
        if value and what != "except_":
            raise unsupported(f"{what.upper()} after *", "name the columns")
    for column in star.args.get("except_") or []:
        if not isinstance(column, exp.Column):
            raise names.bad(column, f"EXCLUDE takes names of columns, not {column.sql('postgres')}")
        alias, name = (fold(column.args["table"]) if column.args.get("table") else None), fold(column.this)
        left = [refs for refs in shown if refs[0].column != name or alias not in (None, *(ref.alias for ref in refs))]
        if len(left) == len(shown):
            raise names.bad(column, f"EXCLUDE: * has no column {column.sql('postgres')}")
        shown = left
    return shown

"""Expressions over the columns and the aggregates of groups: each is replaced by a column, whose value the caller knows."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from livejoin.wire.kinds import digits_of
from livejoin.wire.schema import Column
from service.errors import Problem
from service.query.conditions import ColumnRef, Term
from service.query.scope import Scope
from service.query.sql.names import Names
from service.query.sql.terms import check_steps, read_term

_ALIAS = "of the group"  # no relation has it


def read_over(node: exp.Expr, names: Names, value: Callable[[exp.Expr], Term | None]) -> Term:
    """Read an expression whose parts are groups' columns and aggregates. `value`: returns such a part, None for any other; it raises a
    problem for columns that are none. Problems as those of `read_term`."""
    check_steps(node)  # each part is read
    found, words = list[Term](), list[str]()

    def replaced(part: exp.Expr) -> exp.Expr:
        term = value(part)
        if term is None:
            return part
        made = exp.column(exp.to_identifier(str(len(found)), quoted=True), exp.to_identifier(_ALIAS, quoted=True))
        made.meta.update(part.meta)
        found.append(term)
        words.append(part.sql("postgres"))
        return made

    try:
        return _filled(read_term(node.transform(replaced), _Parts(names, found)), found)
    except Problem as problem:
        for number, said in enumerate(words):
            problem.detail = str(problem.detail).replace(f'"{_ALIAS}"."{number}"', said)
        raise


class _Parts(Names):
    """Names in an expression whose parts are replaced."""

    def __init__(self, names: Names, found: list[Term]) -> None:
        self.scope, self.bad, self.placed = _PartsScope(found), names.bad, names.placed

    def column(self, node: exp.Column) -> ColumnRef:
        return ColumnRef(_ALIAS, node.name)


class _PartsScope(Scope):
    def __init__(self, found: list[Term]) -> None:
        super().__init__({}, {})
        self._found = found

    def describe(self, ref: ColumnRef) -> Column:
        kind = self._found[int(ref.column)].kind
        precision, scale = digits_of(kind) or (None, None)
        type_ = kind if precision is None else "decimal"
        return Column.model_construct(name=ref.column, type=type_, nullable=True, precision=precision, scale=scale, zone=None)


def _filled(term: Term, found: list[Term]) -> Term:
    if term.op == "column":
        return found[int(term.value.column)]
    return term._replace(args=tuple(_filled(one, found) for one in term.args))

"""Expressions over the columns and the aggregates of groups, each of which is replaced by a column whose value the caller knows; and
conditions on stretches: expressions over `lower(gaps(x, y))`, `upper(gaps(x, y))`, `duration(gaps(x, y))`, and the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sqlglot import exp

from livejoin.wire.schema import Column
from service.errors import Problem, unsupported
from service.query.conditions import ColumnRef, Condition, IntervalRef, Term
from service.query.filters import holds
from service.query.model import OF_STRETCH, STRETCHES
from service.query.scope import Scope
from service.query.sql.names import Names
from service.query.sql.terms import check_steps, read_term
from service.query.terms import is_elapsed, logical

_ALIAS = "of the group"  # no relation has it


def read_over(node: exp.Expr, names: Names, value: Callable[[exp.Expr], Term | None]) -> Term:
    """Read an expression whose parts are groups' columns and aggregates. `value`: returns such a part, None for any other; it raises a
    problem for columns that are none. Problems as those of `read_term`."""
    check_steps(node)  # each part is read
    found, words, elapsed = list[Term](), list[str](), set[ColumnRef]()

    def replaced(part: exp.Expr) -> exp.Expr:
        term = value(part)
        if term is None:
            return part
        made = exp.column(exp.to_identifier(str(len(found)), quoted=True), exp.to_identifier(_ALIAS, quoted=True))
        made.meta.update(part.meta)
        if _is_elapsed(part, names):
            elapsed.add(ColumnRef(_ALIAS, str(len(found))))
        else:
            made.meta["is_sum"] = isinstance(part.this if isinstance(part, exp.Filter) else part, exp.Sum)
        found.append(term)
        words.append(part.sql("postgres"))
        return made

    try:
        return _filled(read_term(node.transform(replaced), _Parts(names, found, elapsed)), found)
    except Problem as problem:
        for index, said in enumerate(words):
            problem.detail = str(problem.detail).replace(f'"{_ALIAS}"."{index}"', said)
        raise


def _is_elapsed(part: exp.Expr, names: Names) -> bool:
    """Return whether an aggregate is an interval in PostgreSQL: one of differences of timestamps."""
    aggregate = part.this if isinstance(part, exp.Filter) else part
    of = aggregate.this if isinstance(aggregate, exp.Max | exp.Min | exp.Sum | exp.Avg) else None
    return isinstance(of, exp.Sub | exp.Paren | exp.Case) and is_elapsed(read_term(of, names))


class _Parts(Names):
    """Names in an expression whose parts are replaced."""

    def __init__(self, names: Names, found: list[Term], elapsed: set[ColumnRef]) -> None:
        self.scope, self.bad, self.placed = _PartsScope(found), names.bad, names.placed
        self._elapsed = elapsed

    def column(self, node: exp.Column) -> ColumnRef:
        return ColumnRef(_ALIAS, node.name)

    def is_elapsed(self, ref: ColumnRef) -> bool:
        return ref in self._elapsed


class _PartsScope(Scope):
    def __init__(self, found: list[Term]) -> None:
        super().__init__({}, {})
        self._found = found

    def describe(self, ref: ColumnRef) -> Column:
        return Column.of_kind(ref.column, self._found[int(ref.column)].kind, True)


def _filled(term: Term, found: list[Term]) -> Term:
    if term.op == "column":
        return found[int(term.value.column)]
    return term._replace(args=tuple(_filled(one, found) for one in term.args))


# --- stretches


class OfStretches(NamedTuple):
    """A condition on the stretches of two intervals."""

    function: str
    intervals: tuple[IntervalRef, ...]
    condition: Condition


def _called(node: exp.Expr | None) -> exp.Anonymous | None:
    """Return the call of gaps or coverage that a node is."""
    node = node.unnest() if node is not None else None
    return node if isinstance(node, exp.Anonymous) and node.name.lower() in STRETCHES else None


def is_of_stretches(node: exp.Expr) -> bool:
    return any(_called(one) is not None for one in node.walk(prune=lambda one: isinstance(one, exp.Query)))


def read_of_stretches(node: exp.Expr, negated: bool, names: Names) -> OfStretches:
    """Read a condition that must hold, or (`negated`) must be false. Problems as of `read_term`."""
    found = dict[tuple[str, tuple[IntervalRef, ...]], None]()

    def end(part: exp.Expr) -> Term | None:
        call = _called(part.this) if isinstance(part, exp.Lower | exp.Upper) else None
        if call is None:
            if _called(part) is not None:
                instead = f"write duration({part.sql('postgres')}), or lower(…) or upper(…) around it"
                raise unsupported(f"{part.sql('postgres')} in a condition", instead)
            return _column(part, names) if isinstance(part, exp.Column) else None
        intervals = tuple(map(names.interval, call.expressions))
        found[call.name.lower(), intervals] = None
        start = names.scope.declared(intervals[0]).start_column
        kind = names.scope.describe(ColumnRef(intervals[0].alias, start)).kind
        return Term("column", kind, (), ColumnRef(OF_STRETCH, "start" if isinstance(part, exp.Lower) else "end"))

    term = read_over(node.transform(_written_out), names, end)
    opposite = logical("not", term)  # refuses what is no condition
    if len(found) > 1:
        raise unsupported(f"{node.sql('postgres')}, on stretches of several kinds,", "define a view for each")
    ((function, of),) = found
    return OfStretches(function, of, holds(opposite if negated else term))


def _written_out(node: exp.Expr) -> exp.Expr:
    """Write a duration as the difference of two ends."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "duration" or len(node.expressions) != 1:
        return node
    if (call := _called(node.expressions[0])) is None:
        return node
    return exp.Paren(this=exp.Sub(this=exp.Upper(this=call.copy()), expression=exp.Lower(this=call.copy())))


def _column(node: exp.Column, names: Names) -> Term:
    ref = names.column(node)
    return Term("column", names.scope.describe(ref).kind, (), ref)

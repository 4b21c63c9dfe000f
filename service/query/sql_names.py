"""Identifiers in SQL: folded to lower case unless quoted, resolved to columns and intervals; and their positions in the text."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from sqlglot import exp

from service.errors import Problem
from service.query.assembly import unsupported
from service.query.model import STRETCHES, ColumnRef, IntervalRef
from service.query.scope import Scope

_OF_INTERVALS = ("overlaps", "intersection", "duration", *STRETCHES)
_FUNCTIONS = (
    *(*_OF_INTERVALS, "latest", "exists", "coalesce", "lower", "upper", "abs", "date_trunc"),
    *("count", "sum", "avg", "min", "max"),
)


def bad_query(detail: str, line: int, column: int) -> Problem:
    """Lines and columns count from 1."""
    return Problem("bad-query", f"{detail} (line {line}, column {column})", position={"line": line, "column": column})


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return the line and column of the character at `offset` (from 0), both counted from 1."""
    before = text[:offset]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def fold(identifier: exp.Expr) -> str:
    """Return an identifier's name by PostgreSQL's rules."""
    name: str = identifier.name
    return name if identifier.args.get("quoted") else name.lower()


def position(node: exp.Expr, text: str) -> tuple[int, int]:
    """Return line and column of the first word of a node; those of the beginning if the parser kept none."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return line_and_column(text, min(starts, default=0))


def placed(problem: Problem, node: exp.Expr, text: str) -> Problem:
    """Return the problem with the position of its node, unless it has one already or the parser kept none."""
    if any("start" in part.meta for part in node.walk()):
        line, column = position(node, text)
        problem.extensions.setdefault("position", {"line": line, "column": column})
    return problem


def meant(node: exp.Expr) -> str | None:
    """Return what to write instead of an unknown function, if its name resembles a known one."""
    if not isinstance(node, exp.Anonymous):
        return None
    close = get_close_matches(node.name.lower(), _FUNCTIONS, 1)
    return f"did you mean {close[0]}(…)?" if close else None


class Names:
    """Resolves names within one SELECT."""

    def __init__(self, scope: Scope, text: str) -> None:
        self.scope = scope
        self._text = text
        self._merged: dict[str, set[ColumnRef]] = {}  # by name, the columns that USING merges

    def merge(self, left: ColumnRef, right: ColumnRef) -> None:
        """Merge two columns joined by USING: the name then needs no alias."""
        self._merged.setdefault(left.column, set()).update((left, right))

    def is_ambiguous(self, name: str, aliases: Iterable[str]) -> bool:
        """Return whether the name may refer to several columns of these aliases."""
        found = {ColumnRef(alias, name) for alias in aliases}
        return len(found) > 1 and not found <= self._merged.get(name, set())

    def placed(self, problem: Problem, node: exp.Expr) -> Problem:
        return placed(problem, node, self._text)

    def bad(self, node: exp.Expr, detail: str) -> Problem:
        return bad_query(detail, *position(node, self._text))

    def check(self, column: exp.Column) -> None:
        """Check that a column or an interval of that name exists. Problem `unknown-column`, with its position."""
        alias, name = self._parts(column)
        try:
            self._check(alias, name, column.parent)
        except Problem as problem:
            if alias is None and column.this.args.get("quoted"):
                problem.detail += " (a text stands in single quotes)"
            raise self.placed(problem, column.this if alias in self.scope.aliases else column) from None

    def _check(self, alias: str | None, name: str, within: exp.Expr | None) -> None:
        try:
            if alias is None:
                if not any(name in self.scope.definition(a).intervals for a in self.scope.aliases):
                    self.scope.find_column(name)
            elif name not in self.scope.definition(alias).intervals:
                self.scope.column(alias, name)
        except Problem:
            if isinstance(within, exp.Overlaps) or (isinstance(within, exp.Anonymous) and within.name.lower() in _OF_INTERVALS):
                if alias is None:
                    self.scope.find_interval(name)
                else:
                    self.scope.interval(alias, name)
            raise

    def column(self, node: exp.Column) -> ColumnRef:
        alias, name = self._parts(node)
        if alias is not None:
            return self.scope.column(alias, name)
        found = self.scope.find_column(name)
        if self.is_ambiguous(name, [ref.alias for ref in found]):
            raise self.bad(node, f"the column {name} is ambiguous: write {' or '.join(map(str, found))}")
        return found[0]

    def interval(self, node: exp.Expr) -> IntervalRef:
        """Resolve `b.stay`, `stay` if only one relation has it, or `(b.checkin, b.checkout)` over a declared interval."""
        node = node.unnest()
        if isinstance(node, exp.Tuple):
            return self._over_columns(node)
        if not isinstance(node, exp.Column):
            raise unsupported(f"{node.sql('postgres')} as an interval", "write alias.interval with an interval that the relation declares")
        alias, name = self._parts(node)
        if alias is not None:
            return self.scope.interval(alias, name)
        found = self.scope.find_interval(name)
        if len(found) > 1:
            raise self.bad(node, f"the interval {name} is ambiguous: write {' or '.join(map(str, found))}")
        return found[0]

    def _over_columns(self, node: exp.Tuple) -> IntervalRef:
        ends = [end.unnest() for end in node.expressions]
        if len(ends) != 2 or not all(isinstance(end, exp.Column) for end in ends):
            raise unsupported(f"{node.sql('postgres')} as an interval", "write (start, end), two columns of one relation")
        start, end = (self.column(end) for end in ends)
        found = list(self.scope.intervals_over(start, end))
        if len(found) > 1:  # OVERLAPS in SQL is for half-open periods
            found = [ref for ref in found if self.scope.declared(ref).bounds == "[)"] or found
        if not found:
            raise unsupported(
                f"({start}, {end})", f"declare an interval over ({start.column}, {end.column}) in {self.scope.aliases[start.alias]}"
            )
        if len(found) > 1:
            raise unsupported(f"({start}, {end})", f"several intervals have these ends: write {' or '.join(map(str, found))}")
        return found[0]

    def _parts(self, node: exp.Column) -> tuple[str | None, str]:
        if node.args.get("db"):
            raise unsupported(f"the schema in {node.sql('postgres')}", "write alias.column")
        table = node.args.get("table")
        return (fold(table) if table else None), fold(node.this)

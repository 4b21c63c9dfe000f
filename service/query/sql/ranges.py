"""Reads PostgreSQL's ranges, `tstzrange(start, end)` and the like, in `&&`, `@>` and `<@`: a null end is unbounded."""

from __future__ import annotations

from typing import NamedTuple, get_args

from sqlglot import exp

from livejoin.wire.kinds import digits_of
from livejoin.wire.schema import Bounds
from service.errors import unsupported
from service.query import terms
from service.query.comparisons import following
from service.query.conditions import IntervalRef, Term
from service.query.sql.constants import is_null
from service.query.sql.names import Names
from service.query.sql.terms import read_term

_KINDS = {
    "tstzrange": "timestamp", "tsrange": "timestamp", "daterange": "date", "int8range": "int64", "int4range": "int64",
    "numrange": "decimal",
}  # fmt: skip
OPERATORS = (exp.ArrayOverlaps, exp.ArrayContainsAll, exp.ArrayContainedBy)


DISCRETE = ("date", "int64")  # a range without its end ends at the value before it


class End(NamedTuple):
    """An end of a range, or a point: `is_open` if it does not belong to the range, `unbounded` if it is unbounded where it is null."""

    node: exp.Expr
    is_open: bool = False
    unbounded: bool = True


class Range(NamedTuple):
    """From `start` to `end`, of values of `kind`. Where the end is before the start, or the range is empty, it meets nothing."""

    start: End
    end: End
    kind: str

    @property
    def declared_as(self) -> str:
        """The bounds of a declared interval that is the same."""
        return ("(" if self.start.is_open else "[") + (")" if self.end.is_open else "]")

    def interval(self, names: Names) -> IntervalRef | None:
        """Return the declared interval that it is."""
        start, end = self.start.node, self.end.node
        if not isinstance(start, exp.Column) or not isinstance(end, exp.Column):
            return None
        found = names.scope.intervals_over(names.column(start), names.column(end))
        return next((one for one in found if names.scope.declared(one).bounds == self.declared_as), None)

    def is_never_empty(self, names: Names) -> bool:
        return is_null(self.start.node) or is_null(self.end.node) or self.interval(names) is not None

    def is_not_empty(self, names: Names) -> Term:
        """Return the condition that something is in it."""
        start, end = (read_term(one.node, names) for one in (self.start, self.end))
        is_apart = self.start.is_open and self.end.is_open and self.kind in DISCRETE
        low, op = following(start, 1) if is_apart else start, "<" if self.start.is_open or self.end.is_open else "<="
        return terms.logical("or", terms.tested("is_null", start), terms.tested("is_null", end), terms.compared(op, low, end))


def range_with(kind: str) -> str | None:
    """Return the name of the range whose ends are of this kind."""
    family = "decimal" if digits_of(kind) is not None else kind
    return next((name for name, takes in _KINDS.items() if takes == family), None)


def range_of(node: exp.Expr, names: Names) -> Range | None:
    """Return the range; None for anything else. Problems `unsupported-query`, `bad-query`."""
    node = node.unnest()
    kind = _KINDS.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
    if kind is None:
        return None
    ends = [one.unnest() for one in node.expressions]
    bounds = ends[2].name if len(ends) > 2 and isinstance(ends[2], exp.Literal) else "[)"
    if len(ends) not in (2, 3) or bounds not in get_args(Bounds):
        raise unsupported(node.sql("postgres"), f"write {node.name.lower()}(start, end), or add '[]', '(]' or '()' as a third argument")
    for end in ends[:2]:
        given = names.scope.describe(names.column(end)).kind if isinstance(end, exp.Column) else kind
        if given != kind and (kind != "decimal" or digits_of(given) is None):
            right = range_with(given)
            instead = f": write {right}({ends[0].sql('postgres')}, {ends[1].sql('postgres')})" if right else ""
            raise names.bad(end, f"{node.name.lower()} takes ends of type {kind}, and {end.sql('postgres')} is {given}{instead}")
    return Range(End(ends[0], bounds[0] == "("), End(ends[1], bounds[1] == ")"), kind)

"""Reads PostgreSQL's ranges, `tstzrange(start, end)` and the like, in `&&`, `@>` and `<@`: a null end is unbounded."""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import exp

from livejoin.wire.kinds import digits_of
from service.errors import unsupported
from service.query.sql.names import Names

_KINDS = {
    "tstzrange": "timestamp", "tsrange": "timestamp", "daterange": "date", "int8range": "int64", "int4range": "int64",
    "numrange": "decimal",
}  # fmt: skip
OPERATORS = (exp.ArrayOverlaps, exp.ArrayContainsAll, exp.ArrayContainedBy)


class Range(NamedTuple):
    """From `start`, which belongs to it, to `end`, which does so if `closed`. Where the end is before the start, or the range is empty, it
    meets nothing."""

    start: exp.Expr
    end: exp.Expr
    closed: bool

    def is_never_empty(self, names: Names) -> bool:
        """Return whether its ends are those of a declared interval, by which no row is empty."""
        if not isinstance(self.start, exp.Column) or not isinstance(self.end, exp.Column):
            return isinstance(self.start, exp.Null) or isinstance(self.end, exp.Null)
        declared = names.scope.intervals_over(names.column(self.start), names.column(self.end))
        return any(self.closed or names.scope.declared(one).end_open for one in declared)


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
    if len(ends) not in (2, 3) or bounds not in ("[)", "[]"):
        raise unsupported(node.sql("postgres"), f"write {node.name.lower()}(start, end), or with '[]' behind it if the end belongs to it")
    for end in ends[:2]:
        if isinstance(end, exp.Column):
            given = names.scope.describe(names.column(end)).kind
            if given != kind and (kind != "decimal" or digits_of(given) is None):
                right = range_with(given)
                instead = f": write {right}({ends[0].sql('postgres')}, {ends[1].sql('postgres')})" if right else ""
                raise names.bad(end, f"{node.name.lower()} takes ends of type {kind}, and {end.sql('postgres')} is {given}{instead}")
    return Range(ends[0], ends[1], bounds == "[]")

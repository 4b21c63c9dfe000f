"""`intersection` and `duration` within expressions: terms over the columns of the intervals' ends, of which null is unbounded."""

from __future__ import annotations

from collections.abc import Sequence

from service.errors import unsupported
from service.query import terms
from service.query.conditions import ColumnRef, IntervalRef, Term
from service.query.scope import Scope


def intersection_end(intervals: Sequence[IntervalRef], scope: Scope, side: str) -> Term:
    """Return the `start` or `end` of what intervals have in common, with the bounds of the first; null if it is unbounded."""
    return _present(intervals, scope, _end(intervals, scope, side))


def duration(intervals: Sequence[IntervalRef], scope: Scope) -> Term:
    """Return the end minus the start of what intervals have in common; null if it is unbounded, or there is nothing."""
    start, end = (_end(intervals, scope, side) for side in ("start", "end"))
    empty = terms.compared("<", end, start)
    length = terms.arithmetic("-", end, start)
    return _present(intervals, scope, terms.chosen([(empty, Term("constant", length.kind, (), None))], length))


def _end(intervals: Sequence[IntervalRef], scope: Scope, side: str) -> Term:
    found = list[Term]()
    for ref in intervals:
        declared, first = scope.declared(ref), scope.declared(intervals[0])
        column = ColumnRef(ref.alias, getattr(declared, f"{side}_column"))
        term = Term("column", scope.describe(column).kind, (), column)
        moved = int(getattr(declared, f"{side}_open")) - int(getattr(first, f"{side}_open"))
        if moved:
            if term.kind not in ("int64", "date", "timestamp"):
                raise unsupported(f"{ref} with {intervals[0]} in an expression", "their bounds differ: select it alone")
            one = Term("constant", "int64", (), moved if side == "start" else -moved)
            term = terms.arithmetic("+", term, one) if term.kind != "timestamp" else terms.moved(term, 0, one.value)
        found.append(term)
    return terms.coalesced(found, "greatest" if side == "start" else "least") if len(found) > 1 else found[0]


def _present(intervals: Sequence[IntervalRef], scope: Scope, of: Term) -> Term:
    """Return the term; null where an outer join has no row of one of the aliases, whose keys are null there alone."""
    keys = [ColumnRef(alias, scope.definition(alias).key[0]) for alias in dict.fromkeys(ref.alias for ref in intervals)]
    if len(keys) == 1:
        return of
    missing = [terms.tested("is_null", Term("column", scope.describe(key).kind, (), key)) for key in keys]
    return terms.chosen([(terms.logical("or", *missing), Term("constant", of.kind, (), None))], of)

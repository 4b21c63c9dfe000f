"""Conditions on the rows of one alias: OR in a normal form that does not depend on how it was written, expressions, and patterns of LIKE.

There is no NOT here: the readers of a definition push it inwards (`OPPOSITE`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from livejoin.wire.kinds import digits_of
from service.query.conditions import ColumnRef, Condition, Either, Filter, Holds, Term
from service.query.literals import BadLiteral

OPPOSITE = {
    "=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "is_null": "not_null", "not_null": "is_null", "like": "not_like",
    "not_like": "like",
}  # fmt: skip
"""A non-null value meets one iff it does not meet the other; null meets neither, except for the tests for null."""
LONGEST_PATTERN = 1000
"""Characters: matching takes up to the product of the lengths of text and pattern."""


def ordered(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return the conditions without duplicates, in an order that does not depend on how they were written."""
    return tuple(sorted(set(conditions), key=repr))


def comparing(column: ColumnRef, op: str, values: Sequence[Any]) -> Filter:
    """Return the filter `column op value`, `in` with several values. Without values nothing meets it, except for the tests for null, which
    take none."""
    if op in ("is_null", "not_null"):
        return Filter(column, op, None)
    some = tuple(sorted(set(values)))
    if len(some) == 1:
        return Filter(column, "=" if op == "in" else op, *some)
    return Filter(column, "in", some)


def either(cases: Iterable[Sequence[Condition]]) -> list[Condition]:
    """Return conditions that all hold iff those of at least one case do. At least one case is required; one without conditions always
    holds."""
    found = set[tuple[Condition, ...]]()
    values = dict[ColumnRef, set[Any]]()  # of cases that are a single equality: together they become IN
    pending = list(cases)
    while pending:
        case = ordered(pending.pop())
        (only,) = case if len(case) == 1 else (None,)
        if not case:
            return []
        if isinstance(only, Either):
            pending += only.cases
        elif isinstance(only, Filter) and only.op in ("=", "in"):
            values.setdefault(only.column, set()).update(only.value if only.op == "in" else (only.value,))
        else:
            found.add(case)
    found |= {(comparing(column, "in", list(some)),) for column, some in values.items()}
    if len(found) == 1:
        return list(*found)
    return [Either(tuple(sorted(found, key=repr)))]


def holds(term: Term) -> Holds:
    """Return the condition that an expression of kind bool is true."""
    known = on_nulls(term)
    return Holds(term, known is not None and known.value is not True)


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def on_nulls(term: Term) -> Term | None:
    """Return the constant that an expression is where all columns are null; None where that takes more than casts and comparisons of
    numbers."""
    if term.op in ("column", "constant"):
        return term if term.op == "constant" else Term("constant", term.kind)
    args = [on_nulls(one) for one in term.args]
    if term.op == "coalesce":
        return next((one for one in args if one is None or one.value is not None), args[-1])
    if term.op == "case":
        pairs = zip(args[:-1:2], args[1::2], strict=True)
        return next((value if condition else None for condition, value in pairs if condition is None or condition.value), args[-1])
    if term.op in ("and", "or"):
        return _connected(term.op == "or", args)
    if term.op in ("is_null", "not_null"):
        (of,) = args
        return None if of is None else _truth((of.value is None) == (term.op == "is_null"))
    nulls = [one is not None and one.value is None for one in args]
    if term.op in ("concat", "concat_ws", "greatest", "least"):
        is_null = nulls[0] if term.op == "concat_ws" else term.op != "concat" and all(nulls)
        return Term("constant", term.kind) if is_null else None
    if any(nulls[:1] if term.op == "nullif" else nulls):  # all others are null where an operand is
        return Term("constant", term.kind)
    known = [one for one in args if one is not None]
    return _computed(term, known) if len(known) == len(args) else None


def _truth(value: bool | None) -> Term:
    return Term("constant", "bool", (), value)


def _connected(decisive: bool, args: Sequence[Term | None]) -> Term | None:
    """`decisive`: the value that decides AND (false) or OR (true)."""
    if any(one is not None and one.value is decisive for one in args):
        return _truth(decisive)
    if None in args:
        return None
    return _truth(None if _truth(None) in args else not decisive)


def _computed(term: Term, args: Sequence[Term]) -> Term | None:
    """Return the result of an operation on constants, if it is one of those that conditions on missing rows usually have."""
    values = [one.value for one in args]
    if term.op == "not":
        return _truth(not values[0])
    if term.op in _COMPARED and not any(value != value for value in values):
        return _truth(_COMPARED[term.op](*values))
    given = args[0].kind if args else ""
    if term.op != "cast" or (given != "int64" and digits_of(given) is None):
        return None
    scale = (digits_of(given) or (0, 0))[1]
    if term.kind == "float64":
        return Term("constant", term.kind, (), values[0] / 10**scale)
    precision, wanted = digits_of(term.kind) or (0, 0)
    value = values[0] * 10 ** max(wanted - scale, 0)
    return Term("constant", term.kind, (), value) if wanted >= scale and abs(value) < 10**precision else None


def pattern(text: str, escape: str = "\\") -> str:
    """Return a pattern of LIKE in which a backslash escapes. `escape`: the escape character in `text`, or "" for none. `BadLiteral` for a
    pattern that ends with it, or is too long."""
    if len(text) > LONGEST_PATTERN:
        raise BadLiteral(f"the pattern has {len(text)} characters; at most {LONGEST_PATTERN} are allowed")
    if len(escape) > 1:
        raise BadLiteral(f"ESCAPE {escape!r}: write one character")
    made, characters = [], iter(text)
    for one in characters:
        if one == escape:
            one = next(characters, "")
            if not one:
                raise BadLiteral(f"the pattern {text!r} ends in its escape character {escape!r}: write it twice")
            made.append(f"\\{one}" if one in "%_\\" else one)
        else:
            made.append("\\\\" if one == "\\" else one)
    return "".join(made)

"""Conditions on the rows of one alias: OR in a normal form that does not depend on how it was written, and patterns of LIKE.

There is no NOT here: the readers of a definition push it inwards (`OPPOSITE`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from service.query.literals import BadLiteral
from service.query.model import ColumnRef, Condition, Either, Filter

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
    for column, some in values.items():
        found.add((Filter(column, "in", tuple(sorted(some))) if len(some) > 1 else Filter(column, "=", *some),))
    if len(found) == 1:
        return list(*found)
    return [Either(tuple(sorted(found, key=repr)))]


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

"""Conditions as a user would write them in SQL, for notes and messages."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from livejoin.wire.grammar import DAY, timestamp_text
from livejoin.wire.kinds import digits_of
from livejoin.wire.schema import Column
from service.query.conditions import ColumnRef, Condition, Either, Filter

Describe = Callable[[ColumnRef], Column]


def written(one: Condition, describe: Describe) -> str:
    """Return the condition. A case of OR that asks whether a column without nulls is null is left out."""
    if isinstance(one, Filter):
        return _filter(one, describe(one.column).kind)
    if isinstance(one, Either):
        texts = [" AND ".join(written(each, describe) for each in case) for case in possible(one, describe)]
        return f"({' OR '.join(texts)})"
    return str(one)


def possible(either: Either, describe: Describe) -> list[tuple[Condition, ...]]:
    """Return the cases that some row may meet."""

    def is_never(one: Condition) -> bool:
        return isinstance(one, Filter) and one.op == "is_null" and not describe(one.column).nullable

    return [case for case in either.cases if not any(map(is_never, case))]


def _filter(one: Filter, kind: str) -> str:
    if one.value is None:
        return str(one)
    op = "<>" if one.op == "!=" else one.op.replace("_", " ").upper()
    values = ", ".join(_constant(value, kind) for value in one.value) if one.op == "in" else _constant(one.value, kind)
    return f"{one.column} {op} {f'({values})' if one.op == 'in' else values}"


def _constant(value: Any, kind: str) -> str:
    if kind == "timestamp":
        return f"'{timestamp_text(value)}'"
    if kind == "date":
        return f"'{timestamp_text(value * DAY).partition('T')[0]}'"
    if kind == "time":
        return f"'{timestamp_text(value).partition('T')[2].rstrip('Z')}'"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    digits = digits_of(kind)
    return str(value).upper() if digits is None else str(Decimal(value).scaleb(-digits[1]))

"""Rows of livejoin and of DuckDB, compared."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tests.service.twin import Row


def alike(ours: Iterable[Row], theirs: Iterable[Row]) -> bool:
    """Compare approximately: DuckDB rounds a sum of floats at each step, and has a type beyond int64."""
    left, right = (sorted((tuple(map(_plain, row.values())) for row in rows), key=_order) for rows in (ours, theirs))
    return len(left) == len(right) and all(
        len(x) == len(y) and all(map(_is_alike, x, y)) for x, y in zip(left, right, strict=True)
    )  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | Decimal):
        return Fraction(value)
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, datetime):  # DuckDB truncates a date to a timestamp, without a zone
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.date().isoformat()
    return value.isoformat() if isinstance(value, date | time) else value


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    exact = [str(None if _is_beyond(value) else value) for value in row if not isinstance(value, float)]
    floats = [value for value in row if isinstance(value, float)]
    return (exact, [f"{value:.7g}" for value in floats], floats)


def _is_alike(mine: Any, its: Any) -> bool:
    if isinstance(mine, float) and isinstance(its, float):
        return mine == its or abs(mine - its) <= 1e-9 * max(1.0, abs(its))
    return _is_beyond(its) if mine is None and its is not None else bool(mine == its)


def _is_beyond(value: Any) -> bool:
    """Return whether livejoin has null in place of a sum."""
    return isinstance(value, Fraction) and (value.denominator == 1 and not -(2**63) <= value < 2**63 or abs(value) >= 10**36)

"""Naive twins of views with groups: dicts of lists, `Fraction` for sums."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from tests.naive.aggregate import nearest
from tests.service.twin import Row, TwinView, values

Of = Callable[..., Any]  # a function of the rows of the aliases


def exact_sum(numbers: Sequence[float]) -> float:
    """Return the exact sum, rounded once."""
    if special := _special(numbers):
        return special[0]
    return nearest(sum(map(Fraction, numbers), Fraction()))


def exact_mean(numbers: Sequence[float]) -> float:
    if special := _special(numbers):
        return special[0]
    return nearest(sum(map(Fraction, numbers), Fraction()) / len(numbers))


def _special(numbers: Sequence[float]) -> list[float]:
    odd = {one for one in numbers if math.isinf(one)}
    if any(math.isnan(one) for one in numbers) or len(odd) == 2:
        return [math.nan]
    return list(odd)


def int_sum(numbers: Sequence[int]) -> int | None:
    total = sum(numbers)
    return total if -(2**63) <= total < 2**63 else None


def order(value: Any) -> tuple[bool, Any]:
    """Return a sort key; NaN is the greatest value."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0 if is_nan else value


def one_value(value: Any) -> Any:
    """Return what represents all equal values: NaN equals NaN, and -0.0 equals 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def spread(found: Sequence[float], less: int, root: bool) -> float | None:
    """Return the exact variance, rounded once, or its root."""
    if len(found) <= less:
        return None
    if any(isinstance(one, float) and not math.isfinite(one) for one in found):
        return math.nan
    mean = sum(map(Fraction, found), Fraction()) / len(found)
    whole = nearest(sum(((Fraction(one) - mean) ** 2 for one in found), Fraction()) / (len(found) - less))
    return math.sqrt(whole) if root else whole


FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "count_distinct": lambda found: len({one_value(value) for value in found}),
    "sum": lambda found: exact_sum(found) if isinstance(found[0], float) else int_sum(found),
    "avg": lambda found: exact_mean(found),
    "var_pop": lambda found: spread(found, 0, False),
    "var_samp": lambda found: spread(found, 1, False),
    "stddev_pop": lambda found: spread(found, 0, True),
    "stddev_samp": lambda found: spread(found, 1, True),
    "min": lambda found: min(found, key=order) + (0.0 if isinstance(found[0], float) else type(found[0])()),
    "max": lambda found: max(found, key=order) + (0.0 if isinstance(found[0], float) else type(found[0])()),
}


def truncated(unit: str, micros: int) -> int:
    """Truncate naively, by the calendar."""
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    begins = {
        "hour": at.replace(minute=0, second=0, microsecond=0),
        "day": day,
        "week": day - datetime.timedelta(days=day.weekday()),
        "month": day.replace(day=1),
        "quarter": day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1),
        "year": day.replace(day=1, month=1),
    }
    return (begins[unit] - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


class GroupedView(TwinView):
    """`core`: the join; `group`: the grouping values; `aggregates`: (function, its argument, a function of the rows; None: the rows
    themselves)."""

    def __init__(
        self, core: TwinView, definition: dict[str, Any], group: Sequence[Of], aggregates: Sequence[tuple[str, Of | None]],
        having: Callable[[tuple[Any, ...]], bool] = lambda row: True,
    ) -> None:  # fmt: skip
        sources = {name: value for name, value in core.definition.items() if name != "select"}
        super().__init__(core.aliases, sources | definition, core.on, core.select, [])
        self.group, self.aggregates, self.having = group, aggregates, having

    def rows(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        groups: dict[tuple[Any, ...], list[tuple[Row, ...]]] = {} if self.group else {(None,): []}
        for rows in self.combinations(relations):
            groups.setdefault(tuple(one_value(of(*rows)) for of in self.group) or (None,), []).append(rows)
        found = {}
        for key, members in groups.items():
            emitted = [self._aggregate(function, of, members) for function, of in self.aggregates]
            row = values(dict(enumerate([*(key if self.group else ()), *emitted])))
            if self.having(row):
                found[key] = row
        return found

    @staticmethod
    def _aggregate(function: str, of: Of | None, members: list[tuple[Row, ...]]) -> Any:
        found = [1 for _ in members] if of is None else [value for rows in members if (value := of(*rows)) is not None]
        if not found and not function.startswith("count"):
            return None
        return FUNCTIONS[function](found)

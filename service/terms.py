"""The words of a view's definition, names resolved and values typed: what `query` makes and all else reads.

Plain immutable data. Two definitions ask for the same view iff their `Query` values are equal: the
order of conditions, the spelling of an overlap and SQL against JSON make no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

RETAIN = (1_000_000, 268_435_456)
"""What a view's feed keeps unless it says otherwise: rows, bytes."""


class ColumnRef(NamedTuple):
    """A column of an alias."""

    alias: str
    column: str

    def __str__(self) -> str:
        return f"{self.alias}.{self.column}"


class IntervalRef(NamedTuple):
    """A declared interval of an alias."""

    alias: str
    interval: str

    def __str__(self) -> str:
        return f"{self.alias}.{self.interval}"


class Filter(NamedTuple):
    """A condition on one column: `= != < <= > >= in is_null not_null`.

    `value` is in the column's physical form: microseconds for a timestamp, days for a date, else
    int, float, str or bool; a sorted tuple for `in`; None for the last two. Never None otherwise.
    """

    column: ColumnRef
    op: str
    value: Any


class Output(NamedTuple):
    """A column of the view's rows: `kind` is column, intersection_start, intersection_end or duration."""

    name: str
    kind: str
    column: ColumnRef | None
    intervals: tuple[IntervalRef, ...]


class Comparison(NamedTuple):
    """`left op right` between two aliases, op `<` or `<>`; null matches nothing."""

    left: ColumnRef
    op: str
    right: ColumnRef


@dataclass(frozen=True)
class Query:
    """What a view asks for. Hashable; equal queries are the same view.

    aliases     (alias, relation) in the order given
    equal       each oriented first alias, second alias; sorted
    overlaps    likewise
    less        (smaller, larger): in the order of the comparison, not of the aliases
    not_equal   first alias, second alias
    retain      (rows, bytes) of the feed, None when nobody may follow
    never       some condition can match nothing (x = NULL): the view is empty for ever
    """

    aliases: tuple[tuple[str, str], ...]
    equal: tuple[tuple[ColumnRef, ColumnRef], ...]
    overlaps: tuple[tuple[IntervalRef, IntervalRef], ...]
    less: tuple[tuple[ColumnRef, ColumnRef], ...]
    not_equal: tuple[tuple[ColumnRef, ColumnRef], ...]
    filters: tuple[Filter, ...]
    outputs: tuple[Output, ...]
    retain: tuple[int, int] | None
    algorithm: str
    guarantee: str
    never: bool

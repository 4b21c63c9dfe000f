"""Conditions between aliases as spans that share a point (`docs/design/data-model.md`): an overlap of declared intervals, a comparison as
two rays, a distance as a widened point. Other conditions (texts, bools, floats that may be NaN, `<>`) are checked row by row."""

from __future__ import annotations

from collections.abc import Mapping

from livejoin.wire.schema import RelationDefinition
from service.query.conditions import ColumnRef, IntervalRef
from service.query.model import Comparison, Meet, Query, Span

_ORDERED = ("int64", "decimal", "timestamp", "date", "time")

Relations = Mapping[str, RelationDefinition]


def span_of(ref: IntervalRef, definition: RelationDefinition) -> Span:
    """A declared interval."""
    interval = definition.intervals[ref.interval]
    return Span(ref.alias, interval.start_column, interval.end_column, interval.start_open, interval.end_open)


def meets_of(query: Query, relations: Relations) -> list[Meet]:
    """All interval conditions: those of `overlaps_of` first, then comparisons of columns that can be endpoints."""
    by_alias = {alias: relations[name] for alias, name in query.aliases}
    return overlaps_of(query, relations) + [_rays(comparison) for comparison in query.comparisons if is_meet(comparison, by_alias)]


def overlaps_of(query: Query, relations: Relations) -> list[Meet]:
    """Overlaps, then distances."""
    by_alias = {alias: relations[name] for alias, name in query.aliases}
    found = [Meet(span_of(x, by_alias[x.alias]), span_of(y, by_alias[y.alias]), f"overlaps({x}, {y})") for x, y in query.overlaps]
    for left, right, distance in query.within:
        around = Span(left.alias, left.column, left.column, widen=distance, declared=False)
        found.append(Meet(around, Span(right.alias, right.column, right.column, declared=False), f"abs({left} - {right}) <= {distance}"))
    return found


def residual_of(query: Query, relations: Relations) -> tuple[Comparison, ...]:
    """The comparisons that are not spans."""
    by_alias = {alias: relations[name] for alias, name in query.aliases}
    return tuple(comparison for comparison in query.comparisons if not is_meet(comparison, by_alias))


def is_natural(query: Query, relations: Relations) -> bool:
    """Whether it is a join on equality only."""
    return len(query.aliases) > 1 and query.as_of is None and not meets_of(query, relations) and not residual_of(query, relations)


def is_meet(comparison: Comparison, by_alias: Relations) -> bool:
    """Whether it compares columns that can be endpoints: of an ordered type, and floats that cannot be NaN."""
    if comparison.op == "<>":
        return False
    return all(can_be_endpoint(ref, by_alias[ref.alias]) for ref in (comparison.left, comparison.right))


def can_be_endpoint(ref: ColumnRef, definition: RelationDefinition) -> bool:
    ends = {end for interval in definition.intervals.values() for end in (interval.start_column, interval.end_column)}
    type_ = definition.column(ref.column).type
    return type_ in _ORDERED or (type_ == "float64" and (ref.column in ends or ref.column in definition.key))


def _rays(comparison: Comparison) -> Meet:
    left, op, right = comparison
    return Meet(
        Span(left.alias, left.column, None, start_open=op == "<", declared=False),
        Span(right.alias, None, right.column, declared=False),
        str(comparison),
    )

"""Conditions between aliases as spans that share a point (`docs/design/data-model.md`): an overlap of declared intervals, two comparisons
as a window, one as two rays. Other conditions (texts, bools, floats that may be NaN, `<>`) are checked row by row.

    window    `a.s + c <= b.t AND b.u <= a.e + d` says that [a.s + c, a.e + d] and [b.u, b.t] share a point, if one of the two is a point:
              then an empty one meets nothing, in either reading. Of sums, also if neither can be empty; of columns alone that is an overlap
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from livejoin.wire.schema import RelationDefinition
from service.query.conditions import ColumnRef, IntervalRef
from service.query.model import Comparison, Meet, Number, Query, Residual, Span

_ORDERED = ("int64", "decimal", "timestamp", "date", "time")

Relations = Mapping[str, RelationDefinition]


def span_of(ref: IntervalRef, definition: RelationDefinition) -> Span:
    """A declared interval."""
    interval = definition.intervals[ref.interval]
    return Span(ref.alias, interval.start_column, interval.end_column, interval.start_open, interval.end_open)


def meets_of(query: Query, relations: Relations) -> list[Meet]:
    """All interval conditions: those of `overlaps_of` first, then other comparisons of columns that can be endpoints, and of sums."""
    by_alias, found = {alias: relations[name] for alias, name in query.aliases}, overlaps_of(query, relations)
    taken = {one for meet in found for one in meet.comparisons}
    others = [one for one in query.comparisons if one not in taken]
    return found + [_rays(one) for one in others if one in query.shifted or is_meet(one, by_alias)]


def overlaps_of(query: Query, relations: Relations) -> list[Meet]:
    """Overlaps, then windows."""
    by_alias = {alias: relations[name] for alias, name in query.aliases}
    found = [Meet(span_of(x, by_alias[x.alias]), span_of(y, by_alias[y.alias]), f"overlaps({x}, {y})") for x, y in query.overlaps]
    return found + list(_windows(query, by_alias))


def half_lines_of(query: Query, relations: Relations) -> list[Meet]:
    """The same conditions with one span for each alias, in which a column that is compared is a half-line, a window or a point, as in Tao
    and Yi, section 1.1: `a.x <= b.y AND b.y <= c.z` are [a.x, ∞), [b.y, b.y] and (-∞, c.z]. [] if there are none."""
    by_alias = {alias: relations[name] for alias, name in query.aliases}
    exact = all(_type_of(ref, by_alias) != "float64" for one in query.comparisons for ref in one.columns)
    return _with_one_span(meets_of(query, relations), {}, exact) or []


def _with_one_span(meets: Sequence[Meet], spans: Mapping[str, Span], exact: bool) -> list[Meet] | None:
    if not meets:
        return []
    for left, right in _forms(meets[0], exact):
        known = spans.get(left.alias, left), spans.get(right.alias, right)
        if all(map(_is_same, known, (left, right))):
            rest = _with_one_span(meets[1:], {**spans, left.alias: known[0], right.alias: known[1]}, exact)
            if rest is not None:
                return [meets[0]._replace(left=known[0], right=known[1]), *rest]
    return None


def _is_same(one: Span, other: Span) -> bool:
    """A null point matches nothing, declared or not."""
    return one == other or (one.start == one.end and one._replace(declared=other.declared) == other)


def _forms(meet: Meet, exact: bool) -> Iterator[tuple[Span, Span]]:
    """The pairs of spans that say the same: a sum of exact numbers can be moved from one to the other."""
    left, right, *_ = meet
    yield left, right
    if len(meet.comparisons) == 1:
        if exact or not right.end_plus:
            yield left._replace(start_plus=left.start_plus - right.end_plus), right._replace(start=right.end, end_plus=0)
        if exact or not left.start_plus:
            ray = right._replace(end_plus=right.end_plus - left.start_plus, end_open=left.start_open)
            yield left._replace(end=left.start, start_open=False, start_plus=0), ray
    points = [Span(one.alias, one.start, one.start, declared=False) for one in (left, right)]
    if len(meet.comparisons) == 2 and exact and left.start == left.end and right == points[1]:
        window = right._replace(start_plus=-left.end_plus, end_plus=-left.start_plus)
        yield points[0], window._replace(start_open=left.end_open, end_open=left.start_open)


def residual_of(query: Query, relations: Relations) -> tuple[Residual, ...]:
    """The conditions that are not spans, besides equalities."""
    met = {one for meet in meets_of(query, relations) for one in meet.comparisons}
    return (*(one for one in query.comparisons if one not in met), *query.across)


def is_natural(query: Query, relations: Relations) -> bool:
    """Whether it is a join on equality only."""
    return len(query.aliases) > 1 and query.as_of is None and not query.overlaps and not query.compared


def is_meet(comparison: Comparison, by_alias: Relations) -> bool:
    """Whether it compares columns that can be endpoints: of an ordered type, and floats that cannot be NaN."""
    return comparison.op != "<>" and all(can_be_endpoint(ref, by_alias[ref.alias]) for ref in comparison.columns)


def can_be_endpoint(ref: ColumnRef, definition: RelationDefinition) -> bool:
    ends = {end for interval in definition.intervals.values() for end in (interval.start_column, interval.end_column)}
    type_ = definition.column(ref.column).type
    return type_ in _ORDERED or (type_ == "float64" and (ref.column in ends or ref.column in definition.key))


def _rays(one: Comparison) -> Meet:
    left = Span(one.left.alias, one.left.column, None, start_open=one.op == "<", start_plus=one.plus, declared=False)
    right = Span(one.right.alias, None, one.right.column, end_plus=one.right_plus, declared=False)
    return Meet(left, right, str(one), (one,))


def _windows(query: Query, by_alias: Relations) -> Iterator[Meet]:
    """The windows, each of two comparisons that are in no other one."""
    positions = {alias: position for position, (alias, _) in enumerate(query.aliases)}
    plain = [one for one in query.comparisons if one not in query.shifted and one.op != "<>"]
    left = [*query.shifted, *(one for one in plain if _type_of(one.left, by_alias) in (*_ORDERED, "float64"))]
    for one, other in combinations(left, 2):
        if one not in left or other not in left or (one.left.alias, one.right.alias) != (other.right.alias, other.left.alias):
            continue
        pair = (one, other) if positions[one.left.alias] < positions[one.right.alias] else (other, one)
        if (spans := _window(*pair, by_alias, one in query.shifted)) is not None:
            yield Meet(*spans, " AND ".join(map(str, pair)), pair)
            left = [each for each in left if each not in pair]


def _window(low: Comparison, high: Comparison, by_alias: Relations, is_sum: bool) -> tuple[Span, Span] | None:
    """The spans of two aliases of which `low` compares the start of the first with the end of the second, and `high` the start of the
    second with the end of the first; None if to share a point is another condition. `is_sum`: of at least one of them.

    Exact sums can be moved from one span to the other: a column alone is then a point. Moved nowhere, a sum of floats is a point if both
    comparisons have the same one.
    """
    exact = _type_of(low.left, by_alias) != "float64"
    mine, theirs = (low.left.alias, low.left.column, high.right.column), (low.right.alias, high.left.column, low.right.column)
    if exact:
        shift: tuple[Number, Number, Number, Number] = (low.plus, -high.plus, 0, 0)
        if theirs[1] != theirs[2] and mine[1] == mine[2]:
            shift = (0, 0, high.plus, -low.plus)
    else:
        shift = (low.plus, high.right_plus, high.plus, low.right_plus)
    one = Span(*mine, start_plus=shift[0], end_plus=shift[1], declared=False)
    other = Span(*theirs, start_plus=shift[2], end_plus=shift[3], declared=False)
    room = _room(one, by_alias, exact), _room(other, by_alias, exact)
    # An open end is that of either span.
    for first, second in product((True, False), repeat=2):
        opens = (low.op == "<" and first, high.op == "<" and second), (high.op == "<" and not second, low.op == "<" and not first)
        both = list(zip((one, other), opens, strict=True))
        points = [(span.start, span.start_plus) == (span.end, span.end_plus) and not any(at) for span, at in both]
        if any(points) or (is_sum and all(width is not None and width >= sum(at) for width, at in zip(room, opens, strict=True))):
            first_span, second_span = (span._replace(start_open=start, end_open=end) for span, (start, end) in both)
            return first_span, second_span
    return None


def _type_of(ref: ColumnRef, by_alias: Relations) -> str:
    return by_alias[ref.alias].column(ref.column).type


def _room(span: Span, by_alias: Relations, exact: bool) -> Number | None:
    """By how much the span's end is above its start, at least, in steps from one value to the next; None if it may be below it."""
    definition = by_alias[span.alias]
    declared = [one for one in definition.intervals.values() if (one.start_column, one.end_column) == (span.start, span.end)]
    least = max((one.start_open + one.end_open for one in declared), default=0 if span.start == span.end else None)
    if least is None or exact:
        return None if least is None else least + span.end_plus - span.start_plus
    if not (span.start_plus or span.end_plus):
        return least
    return 0 if span.start_plus <= span.end_plus else None  # rounding keeps the order of sums, but not their distance

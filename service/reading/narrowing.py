"""The part of a view or relation that conditions need, as far as a reader can start there: a look-up by key, a window.

This is only a hint: the conditions are tested for every row that is read. So more rows may be read than needed, never fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from livejoin.wire.schema import Interval, RelationDefinition
from service.query.literals import BadLiteral, from_text
from service.query.model import GROUP
from service.reading.lookups import Point
from service.reading.windows import Window
from service.views.live_view import LiveView
from service.views.stages.key_stretches import KeyStretches
from service.views.stages.table import GroupTable

_COMPARISONS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Comparison(NamedTuple):
    """A comparison of a column, by its name in the rows, with a constant."""

    column: str
    op: str
    value: exp.Expr


_NONE: tuple[Any, str | None] = (None, None)


def of_view(view: LiveView, conditions: Sequence[Comparison]) -> tuple[Window | None, Point | None]:
    """Return a part of the view that has all rows that meet the conditions, as in `open_rows`."""
    query = view.view.query
    if not conditions or query.branches or query.united or query.distinct or isinstance(view.shown, KeyStretches):
        return None, None
    if isinstance(view.shown, GroupTable):
        return None, _group(view, conditions)
    return _common_window(view, conditions), _row(view, conditions)


def of_relation(definition: RelationDefinition, conditions: Sequence[Comparison]) -> tuple[Window | None, Mapping[str, str] | None]:
    """Return the same for a relation: windows, and the key of the only row, as in `open_relation_rows`."""
    kinds = {column.name: column.kind for column in definition.columns}
    given = _equal(conditions, kinds)
    key = {name: given[name] for name in definition.key} if given.keys() >= set(definition.key) else None
    windows = {}
    for name, interval in definition.intervals.items():
        window = _window(conditions, interval.start_column, interval.end_column, interval, kinds[interval.start_column])
        if window is not None:
            windows[name] = window
    return windows or None, key


def comparisons(condition: exp.Expr) -> Iterator[tuple[exp.Column, str, exp.Expr]]:
    """Yield the comparisons of a column that all hold where a condition does."""
    for part in _conjuncts(condition):
        if (op := _COMPARISONS.get(type(part))) is not None:
            for column, constant, own in ((part.this, part.expression, op), (part.expression, part.this, _TURNED[op])):
                if isinstance(column, exp.Column):
                    yield column, own, constant


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    pending = [condition]
    while pending:
        node = pending.pop().unnest()
        if isinstance(node, exp.And):
            pending += [node.this, node.expression]
        elif isinstance(node, exp.Between):
            yield exp.GTE(this=node.this, expression=node.args["low"])
            yield exp.LTE(this=node.this, expression=node.args["high"])
        else:
            yield node


def _text(value: exp.Expr, kind: str) -> str | None:
    """Return a constant that DuckDB, too, certainly reads as this kind, as the text of a look-up; None: it may be of another kind."""
    if isinstance(value, exp.Cast) and value.to.this in (exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMPTZ):
        if (kind, value.to.this) not in (("date", exp.DataType.Type.DATE), ("timestamp", exp.DataType.Type.TIMESTAMPTZ)):
            return None
        value = value.this
    sign = "-" if isinstance(value, exp.Neg) and kind == "int64" else ""
    literal = value.this if sign else value
    if not isinstance(literal, exp.Literal) or literal.is_string != (kind != "int64"):
        return None
    text = sign + str(literal.this)
    try:
        if kind not in ("int64", "string", "date", "timestamp"):
            return None
        from_text(kind, text)
    except BadLiteral:
        return None
    return text


def _equal(conditions: Sequence[Comparison], kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that must equal a constant."""
    found: dict[str, str] = {}
    for one in conditions:
        text = _text(one.value, kinds[one.column]) if one.op == "=" and one.column in kinds else None
        if text is not None:
            found[one.column] = text
    return found


def _row(view: LiveView, conditions: Sequence[Comparison]) -> Point | None:
    """Return a look-up by the key of an alias, otherwise by its join key; None if there is none."""
    query = view.view.query
    columns = {output.name: output.column for output in query.outputs if output.column is not None}
    kinds = {name: view.definitions[dict(query.aliases)[ref.alias]].column(ref.column).kind for name, ref in columns.items()}
    given = _equal(conditions, kinds)
    found: list[Point] = []
    for input in view.inputs:
        mine = {ref.column: given[name] for name, ref in columns.items() if ref.alias == input.alias and name in given}
        for by in (input.relation.key, input.equal):
            if by and mine.keys() >= set(by):
                found.append((input.alias, {column: mine[column] for column in by}))
    return next(iter(found), None)


def _group(view: LiveView, conditions: Sequence[Comparison]) -> Point | None:
    table, groups = view.shown, view.view.query.groups
    assert isinstance(table, GroupTable) and groups is not None
    shown = {output.name: output.position for output in groups.outputs if output.kind == GROUP}
    given = _equal(conditions, {name: table.columns.kinds[index] for name, index in shown.items()})
    texts = {name: _quoted(text) if table.columns.kinds[shown[name]] == "string" else text for name, text in given.items()}
    by = {groups.columns[shown[name]].name: text for name, text in texts.items()}
    return (GROUP, by) if groups.columns and len(by) == len(groups.columns) else None


def _quoted(text: str) -> str:
    """Return a text as a CSV field, the form in which a group is looked up."""
    return '"' + text.replace('"', '""') + '"'


def _common_window(view: LiveView, conditions: Sequence[Comparison]) -> Window | None:
    """Return the window from conditions on the ends of the intersection of all joined intervals: if it meets a window, so does each of
    them. Or from conditions on the ends of a gap, or of a covered stretch."""
    query, aliases = view.view.query, dict(view.view.query.aliases)
    joined = {ref for pair in query.whole.overlaps for ref in pair if ref.alias in aliases}
    ends = {output.kind: output for output in query.outputs if joined and set(output.intervals) == joined}
    kind = "intersection" if query.stretches is None else query.stretches.function
    if not {f"{kind}_start", f"{kind}_end"} <= ends.keys():
        return None
    start, end = ends[f"{kind}_start"], ends[f"{kind}_end"]
    first = start.intervals[0]  # the intersection has its bounds
    definition = view.definitions[aliases[first.alias]]
    interval = definition.intervals[first.interval]
    if end.intervals[0] != first:
        return None
    window = _window(conditions, start.name, end.name, interval, definition.column(interval.start_column).kind)
    return None if window is None else {"": window}


def _window(
    conditions: Sequence[Comparison], start: str, end: str, interval: Interval, kind: str
) -> tuple[str | None, str | None] | None:  # fmt: skip
    """Return the window that an interval meets if these conditions hold for its start and end columns; None: they say nothing about it."""
    low = high = _NONE
    for one in conditions:
        text = _text(one.value, kind) if one.column in (start, end) else None
        if text is None:
            continue
        found = (from_text(kind, text), text)
        # An open end does not belong to the interval, so a comparison with `=` would not suffice.
        if one.column == start and one.op in (("<",) if interval.start_open else ("<", "<=", "=")):
            high = found
        if one.column == end and one.op in ((">",) if interval.end_open else (">", ">=", "=")):
            low = found
    if low is not _NONE and high is not _NONE and low > high:  # for intervals that start before the window and end after it
        low = _NONE
    return None if low is _NONE and high is _NONE else (low[1], high[1])

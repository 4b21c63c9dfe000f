"""What a reader asks for of a view or a relation: a part that structures find, in it the rows that meet a condition, and their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from livejoin.wire.kinds import is_wide, kept
from livejoin.wire.schema import Column, Interval, RelationDefinition
from service.engine.versions import Version, expired
from service.errors import bad_parameter
from service.query.conditions import ColumnRef, Condition
from service.query.definition import read_condition_on
from service.query.sql.names import fold
from service.reading import narrowing
from service.reading.lookups import Point, input_of, look_up
from service.reading.narrowing import Comparison, comparisons
from service.reading.parts import parts_of
from service.reading.readings import Delays, Reading, TableReading, ViewReading, require_columns
from service.reading.relation_rows import read_relation
from service.reading.windows import Mask, Window, bound_of, parameter_of
from service.settings import Settings
from service.tables.endpoints import endpoints
from service.tables.masks import select_mask, valid
from service.tables.relations import Relation
from service.views.live_view import LiveView
from service.views.stored_definition import kinds_of

R = TypeVar("R", bound=Reading)


class Asked(NamedTuple):
    """As in `open_rows`. `key`: of a relation; `point`: of a view. `where`: a condition in SQL on the columns of the rows."""

    window: Window | None = None
    point: Point | None = None
    key: Mapping[str, str] | None = None
    where: str | None = None
    columns: Sequence[str] | None = None


class RowCondition:
    """A condition on the columns of rows, with SQL's logic. `compared`: what must hold for it, as far as an index may know it."""

    def __init__(self, name: str, columns: Sequence[Column], text: str, settings: Settings) -> None:
        """Problem `bad-parameter`."""
        definition = RelationDefinition.model_construct(columns=list(columns), key=[], intervals={}, retain=None)
        found, tree = read_condition_on(name, definition, text, settings.max_conditions, settings.max_sql)
        self._conditions: Sequence[Condition] = found
        self._wide = {column.name for column in columns if is_wide(column.kind)}
        self.columns = list(dict.fromkeys(ref.column for one in found for ref in one.columns))
        self.compared = [Comparison(fold(column.this), op, value) for column, op, value in comparisons(tree)]

    def of_kept(self, rows: pa.RecordBatch) -> Mask:
        """bool[n]: where the condition is true. `rows`: as they are stored."""
        return select_mask(self._conditions, rows)

    def of_sent(self, rows: pa.RecordBatch) -> Mask:
        """The same of rows as they are sent."""
        columns = [rows.column(name) if name in self._wide else kept(rows.column(name)) for name in self.columns]
        return self.of_kept(pa.RecordBatch.from_arrays(columns, self.columns)) if columns else np.ones(rows.num_rows, np.bool_)


def of_view(view: LiveView, at: Version, asked: Asked, settings: Settings, delays: Delays, may_search: bool) -> ViewReading | None:
    """Return the requested rows of a live view at a pinned version; None as of `look_up`. Problem `bad-parameter`."""
    condition, window, point = _needed(view, asked, settings)
    reading = look_up(view, at, window, point, delays, may_search)
    return None if reading is None else _chosen(reading, condition, asked)


def parts_of_view(view: LiveView, at: Version, asked: Asked, settings: Settings, delays: Delays, most: int) -> Sequence[ViewReading]:
    """Return the same as parts; what a structure finds is one."""
    condition, window, point = _needed(view, asked, settings)
    found = look_up(view, at, window, point, delays, True) if window or point else None
    return [_chosen(one, condition, asked) for one in (parts_of(view, at, most, delays) if found is None else [found])]


def of_relation(relation: Relation, at: Version, asked: Asked, settings: Settings, may_search: bool) -> TableReading | None:
    """As `of_view`."""
    condition, key = _needed_of(relation, asked, settings)
    reading = read_relation(relation, at.number, rows_at(relation, at), asked.window, key, may_search)
    return None if reading is None else _chosen(reading, condition, asked)


def parts_of_relation(relation: Relation, at: Version, asked: Asked, settings: Settings, most: int) -> Sequence[TableReading]:
    """As `parts_of_view`; a part is a range of slots."""
    condition, key = _needed_of(relation, asked, settings)
    found = read_relation(relation, at.number, rows_at(relation, at), asked.window, key, True)
    assert found is not None
    return [_chosen(one, condition, asked) for one in ([found] if key else found.parts(most))]


def rows_at(relation: Relation, at: Version) -> int:
    """Return how many rows a version has. Problem `snapshot-expired`: it is older than the relation."""
    if relation.id not in at.counts:
        raise expired(at.number)
    return at.counts[relation.id]


class ChosenChanges:
    """Which rows of a view's changes a follower gets, and their columns."""

    def __init__(self, view: LiveView, asked: Asked, settings: Settings) -> None:
        """Problem `bad-parameter`."""
        self.asked = asked
        self._condition = None if asked.where is None else _condition_of(view, asked.where, settings)
        self._windows = list(_windows_of(view, asked.window or {}))
        require_columns(asked.columns, view.shown.schema)

    def of(self, keys: pa.RecordBatch, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        mask = np.ones(rows.num_rows, np.bool_) if self._condition is None else self._condition.of_sent(rows)
        for names, interval, low, high in self._windows:
            ends = pa.RecordBatch.from_arrays([kept(rows.column(name)) for name in names.values()], list(names))
            left, right = endpoints(ends, interval)
            mask &= (left <= high) & (right >= low) & (left <= right)
            if len(names) == 1:  # a null point meets nothing
                mask &= valid(ends.column(0))
        chosen = pa.array(mask)
        shown = rows if self.asked.columns is None else rows.select(list(self.asked.columns))
        return keys.filter(chosen), shown.filter(chosen)


def _needed(view: LiveView, asked: Asked, settings: Settings) -> tuple[RowCondition | None, Window | None, Point | None]:
    """Return the condition, and the part of the view that it needs: what the request itself says comes first."""
    if asked.where is None:
        return None, asked.window, asked.point
    condition = _condition_of(view, asked.where, settings)
    window, point = narrowing.of_view(view, condition.compared)
    return condition, asked.window or window, asked.point or point


def _needed_of(relation: Relation, asked: Asked, settings: Settings) -> tuple[RowCondition | None, Mapping[str, str] | None]:
    """The same of a relation, which has no index on its intervals."""
    if asked.where is None:
        return None, asked.key
    condition = RowCondition(relation.name, relation.definition.columns, asked.where, settings)
    return condition, asked.key or narrowing.of_relation(relation.definition, condition.compared)[1]


def _condition_of(view: LiveView, where: str, settings: Settings) -> RowCondition:
    """Read a condition on what a view shows, except lists."""
    fields = zip(kinds_of(view.view.query, view.definitions, view.shown.schema), view.shown.schema, strict=True)
    columns = [Column.of_kind(field.name, kind, True) for kind, field in fields if not pa.types.is_list(field.type)]
    return RowCondition(view.name, columns, where, settings)


def _chosen(reading: R, condition: RowCondition | None, asked: Asked) -> R:
    if condition is not None and condition.columns:
        reading.choose(condition.columns, condition.of_sent if isinstance(reading, ViewReading) else condition.of_kept)
    if asked.columns is not None:
        reading.show(asked.columns)
    return reading


def _windows_of(view: LiveView, window: Window) -> Iterator[tuple[Mapping[str, str], Interval, int, int]]:
    """Yield intervals whose ends are shown: the names of these in the rows, by those in the relation; the interval; and its window."""
    query = view.view.query
    is_plain = not (query.groups is not None or query.distinct or query.branches or query.united)
    outputs = {output.column: output.name for output in query.outputs if output.column is not None and is_plain}
    for name, ends in window.items():
        alias, _, interval = name.partition(".")
        if not interval:
            raise bad_parameter(parameter_of(name), "for changes, write overlaps.<alias>.<interval>=lo,hi, or a condition in where")
        input, parameter = input_of(view, alias, parameter_of(name)), parameter_of(name)
        definition = view.definitions[input.relation.name]
        _, low, high = bound_of(input.relation.name, definition, interval, ends, parameter)
        declared = definition.intervals[interval]
        columns = dict.fromkeys((declared.start_column, declared.end_column))
        names = {column: outputs.get(ColumnRef(alias, column)) for column in columns}
        found = {column: shown for column, shown in names.items() if shown is not None}
        if len(found) < len(names) or alias in query.optional:
            instead = f"select both ends of {alias}.{interval}, of an alias that no row lacks, or write a condition in where"
            raise bad_parameter(parameter, f"the rows of the view do not show this interval: {instead}")
        yield found, declared, low, high

"""Enumerations of a view: everything, a window, the rows of one row of an alias, or those of a join key."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.engine.versions import Version
from service.errors import Problem
from service.query.literals import BadLiteral, from_json, from_text
from service.query.model import GROUP, ColumnRef
from service.reading.readings import Delays, Matching, ViewReading
from service.tables.projection import one_zero
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Slots
from service.tables.sides import Side
from service.tables.store import PIECE_ROWS
from service.views.deltas import Combination
from service.views.joins.protocol import Bounds, Enumeration, Join
from service.views.live_view import LiveView
from service.views.shown import ROW, Distinct
from service.views.stages.table import GroupTable
from service.wire.kinds import KEPT_TYPES, sent
from structures.core.encoding import NEG_INF, POS_INF, encode_floats

Window = Mapping[str, tuple[str | None, str | None]]
"""By the interval's name, "" for all: (lo, hi), texts in the endpoints' type, None for no bound."""
Point = tuple[str, Mapping[str, str]]
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def look_up(
    view: LiveView, version: Version, window: Window | None, point: Point | None, delays: Delays, may_search: bool
) -> ViewReading | None:
    """The requested enumeration, at a pinned version. Problem `bad-parameter`.

    A key is found in O(1), unless its row has changed since the version: then it is searched among all rows of its relation if
    `may_search`, else None is returned.
    """
    join, root, _ = version.roots[view.id]
    root = _at(root, version.number)
    if isinstance(view.shown, GroupTable | Distinct):
        if window:
            raise Problem("bad-parameter", "overlaps: the rows of groups have no intervals; put the window into the view's WHERE")
        if point is None:
            return ViewReading(view, join.is_empty(root), join.rows(root, None), True, delays)
        if isinstance(view.shown, Distinct):
            cursor = _distinct(view, root, join, version.number, point, may_search)
        else:
            slots = _group(view.shown, view, version.number, point, may_search)
            cursor = None if slots is None else join.partners(root, 0, slots, None)
        return None if cursor is None else ViewReading(view, join.is_empty(root), cursor, False, delays)
    bounds = _bounds(view, window)
    if point is None:
        return ViewReading(view, join.is_empty(root), join.rows(root, bounds), bounds is None, delays)
    if view.view.query.branches:
        return ViewReading(view, join.is_empty(root), join.of_key(root, 0, _row(view, *point), bounds), False, delays)
    side = _side(view, point[0])
    given = point[1]
    if set(given) == set(side.relation.key):
        keys = parsed(side.relation, side.relation.key, given, f"where.{side.alias}")
        slots = side.relation.table.find_at(version.number, keys)
        if slots is None and not may_search:
            return None
        slots = search(side.relation, version.number, keys) if slots is None else slots
        return ViewReading(view, join.is_empty(root), join.partners(root, side.place, slots, bounds), False, delays)
    if side.equal and set(given) == set(side.equal):
        key = parsed(side.relation, side.equal, given, f"where.{side.alias}")
        return ViewReading(view, join.is_empty(root), join.of_key(root, side.place, key, bounds), False, delays)
    may = [f"the key ({', '.join(side.relation.key)})"]
    if side.equal and set(side.equal) != set(side.relation.key):
        may.append(f"the join key ({', '.join(side.equal)})")
    raise Problem("bad-parameter", f"where: a look-up by {side.alias} needs all of {' or '.join(may)}, not {', '.join(sorted(given))}")


def _at(root: Any, version: int) -> Any:
    """A root that is still the newest at this version, to be read there: what it scans are the tables as they are pinned, not as they were
    when the view was last asked."""
    if hasattr(root, "version"):
        return root._replace(version=version)
    return tuple(_at(one, version) for one in root) if type(root) is tuple else root  # of a product: its parts'


def search(relation: Relation, version: int, keys: pa.RecordBatch) -> Slots:
    """The slot of the row with this key at an older version, [] if there was none. Cost: O(rows of the relation)."""
    table, start = relation.table, 0
    while start >= 0:
        slots, start = table.scan(version, start, PIECE_ROWS)
        for some, rows in table.take_pieces(relation.key, slots):
            mask = np.ones(len(some), np.bool_)
            for column, key in zip(rows.columns, keys.columns, strict=True):
                mask &= np.asarray(pc.equal(column, key[0]))
            if mask.any():
                return some[mask]
    return NO_SLOTS


def _side(view: LiveView, alias: str) -> Side:
    for side in view.sides:
        if side.alias == alias:
            return side
    raise Problem("bad-parameter", f"where: the view has no alias {alias}, only {', '.join(side.alias for side in view.sides)}")


def _row(view: LiveView, alias: str, given: Mapping[str, str]) -> pa.RecordBatch:
    """The row of a view with UNION or EXCEPT that has these values."""
    query, names = view.view.query, view.shown.schema.names
    if alias != ROW or set(given) != set(names):
        all_of = ", ".join(f"where.{ROW}.{name}" for name in names)
        raise Problem("bad-parameter", f"where: a row of a view with UNION or EXCEPT is looked up by all of its columns: {all_of}")
    first = {name: view.definitions[relation] for name, relation in query.aliases}
    types = [first[ref.alias].column(ref.column).kind for ref in query.branches[0].columns]
    fields = zip(types, view.shown.schema, strict=True)
    columns = [_field(type_, field.nullable, f"where.{ROW}.{field.name}", given[field.name]) for type_, field in fields]
    return pa.RecordBatch.from_arrays(columns, names)


def _group(table: GroupTable, view: LiveView, version: int, point: Point, may_search: bool) -> Slots | None:
    """The slot of the row of the group with these values, [] if there is none; None: it has to be searched."""
    groups = view.view.query.groups
    assert groups is not None
    columns = [(column.name, table.type_of(at), table.columns.nullable[at]) for at, column in enumerate(groups.columns)]
    code, slots = table.find(version, _of_group(columns, point))
    return table.search(version, code) if slots is None and may_search else slots


def _distinct(view: LiveView, root: Any, join: Join, version: int, point: Point, may_search: bool) -> Enumeration | None:
    """The row with these values, found by the first of the keys that it holds; None: this has to be searched."""
    schema, refs = view.shown.schema, [output.column for output in view.view.query.outputs if output.column is not None]
    first = dict(view.view.query.aliases)
    kinds = [view.definitions[first[ref.alias]].column(ref.column).kind for ref in refs]
    values = _of_group([(field.name, kind, field.nullable) for field, kind in zip(schema, kinds, strict=True)], point)
    side = view.sides[0]
    keys = [values[refs.index(ColumnRef(side.alias, name))] for name in side.relation.key]
    key = pa.RecordBatch.from_arrays(keys, side.relation.key)
    slots = side.relation.table.find_at(version, key)
    if slots is None and not may_search:
        return None
    slots = search(side.relation, version, key) if slots is None else slots
    wanted = [one_zero(sent(value, type_)) for value, type_ in zip(values, schema.types, strict=True)]

    def has_values(rows: Combination) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(rows[0]), np.bool_)
        for column, value in zip(view.shown.rows(rows).columns, wanted, strict=True):
            mask &= np.asarray(pc.is_in(column, value_set=value))
        return mask

    return Matching(join.partners(root, side.place, slots, None), has_values)


def _of_group(columns: Sequence[tuple[str, str, bool]], point: Point) -> list[pa.Array]:
    """A value of each column of a group: its name, its kind, and whether it may be null."""
    alias, given = point
    names = [name for name, _, _ in columns]
    if alias != GROUP or not names:
        has = f"where.{GROUP}.<column>=value" if names else "nothing: it has one group"
        raise Problem("bad-parameter", f"where: a view with groups is looked up by {has}")
    known = {name: name for name in names}
    for name in names:  # without its alias, where that is clear
        short = name.partition(".")[2]
        if short and [other.partition(".")[2] or other for other in names].count(short) == 1:
            known.setdefault(short, name)
    values = {known.get(name, name): value for name, value in given.items()}
    if set(values) != set(names):
        all_of = ", ".join(f"where.{GROUP}.{name}" for name in names)
        raise Problem("bad-parameter", f"where: a group is looked up by all of its columns: {all_of}")
    return [_field(kind, nullable, f"where.{GROUP}.{name}", values[name]) for name, kind, nullable in columns]


def parsed(relation: Relation, names: list[str], given: Mapping[str, str], parameter: str) -> pa.RecordBatch:
    """One row of these columns from texts; `parameter`: what stands before their names in those of the request."""
    types, key = [relation.definition.column(name).kind for name in names], relation.key
    columns = [_value(type_, f"{parameter}.{name}", given[name], name in key) for type_, name in zip(types, names, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names)


def _field(type_: str, nullable: bool, parameter: str, text: str) -> pa.Array:
    """Of one value, written like a field of CSV: nothing is null where the column may be null, and a text may stand in double quotes."""
    if not text and nullable:
        return pa.nulls(1, KEPT_TYPES[type_])
    if type_ == "string" and text.startswith('"'):
        if not _QUOTED.fullmatch(text):
            raise Problem("bad-parameter", f'{parameter}: {text!r} is not quoted as in CSV: write "…", with "" for a double quote inside')
        text = text[1:-1].replace('""', '"')
    return _value(type_, parameter, text)


def _value(type_: str, parameter: str, text: str, is_key: bool = False) -> pa.Array:
    """Of one value. NaN equals NaN; no key has it."""
    try:
        read = from_json if type_ == "bytes" else from_text  # as they are sent, base64 among them
        value = math.nan if type_ == "float64" and text == "NaN" and not is_key else read(type_, text)
    except BadLiteral as error:
        raise Problem("bad-parameter", f"{parameter}: {error}") from None
    if type_ == "date":
        if not -(2**31) <= int(value) < 2**31:
            raise Problem("bad-parameter", f"{parameter}: {text!r} is out of range")
        return pa.array([value], pa.int32()).cast(KEPT_TYPES[type_])
    return pa.array([value], KEPT_TYPES[type_])


def _bounds(view: LiveView, window: Window | None) -> Bounds | None:
    """The window of each joined interval, encoded; None if it bounds nothing. Problem `bad-parameter`: also for two windows on one."""
    if not window:
        return None
    query, sides = view.view.query.whole, {side.alias: side for side in view.sides}
    dimensions = [set(pair) for pair in query.overlaps]  # intervals that are joined, directly or by way of others
    for one in list(dimensions):
        met = [other for other in dimensions if not other.isdisjoint(one)]
        dimensions = [other for other in dimensions if other not in met] + [set().union(*met)]
    shown = [{ref for ref in one if ref.alias in sides} for one in dimensions]  # a row lacks those of EXISTS and NOT EXISTS
    dimensions = [one for one in shown if one]
    if not dimensions:
        raise Problem("bad-parameter", "overlaps: the view does not join on intervals")
    bounds: Bounds = {}
    for name, ends in window.items():
        named = [one for one in dimensions if not name or any(ref.interval == name for ref in one)]
        if not named:
            there = ", ".join(sorted({ref.interval for one in dimensions for ref in one}))
            raise Problem("bad-parameter", f"overlaps.{name}: the view does not join on an interval {name}, only on {there}")
        for ref in set().union(*named):
            side = sides[ref.alias]
            span = side.spans[ref.interval]
            assert span.start is not None
            if span in bounds:
                joined = " and ".join(sorted({other.interval for other in set().union(*named)}))
                raise Problem("bad-parameter", f"overlaps: one window is allowed for {joined}, but two are given")
            try:
                bounds[span] = window_of(ends, side.relation.definition.column(span.start).kind)
            except Problem as problem:
                if name or len(named) == 1:
                    raise
                each = ", ".join(sorted(f"overlaps.{min(ref.interval for ref in one)}=lo,hi" for one in named))
                raise Problem(
                    "bad-parameter", f"{problem.detail}; the view joins several kinds of intervals; give a window for each: {each}"
                ) from None
    return None if all(ends == (NEG_INF, POS_INF) for ends in bounds.values()) else bounds


def window_of(window: tuple[str | None, str | None], type_: str) -> tuple[int, int]:
    """The encoded window of (lo, hi), texts in the endpoints' type; None is unbounded. Problem `bad-parameter`."""
    low, high = window
    left, right = _end_of(low, type_, NEG_INF), _end_of(high, type_, POS_INF)
    if left > right:
        raise Problem("bad-parameter", f"overlaps: the window is empty: {low} is after {high}")
    return left, right


def _end_of(text: str | None, type_: str, missing: int) -> int:
    if text is None:
        return missing
    try:
        value = from_text(type_, text)
    except BadLiteral as error:
        raise Problem("bad-parameter", f"overlaps: {error}") from None
    return int(encode_floats(np.array([value]), 0)[0]) if type_ == "float64" else int(value)

"""Enumerations of a view: everything, a window, the rows of one row of an alias, or those of a join key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.kinds import KEPT_TYPES, MOST_DIGITS, digits_of, sent
from service.engine.versions import Version
from service.errors import Problem, bad_parameter
from service.query.conditions import ColumnRef
from service.query.literals import BadLiteral, comparable, value_of
from service.query.model import GROUP, Stretches
from service.reading.readings import Delays, ViewReading
from service.reading.windows import BoundWindow, Window, bound_of, met, parameter_of, window_of
from service.tables.inputs import Input
from service.tables.projection import one_zero
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Slots
from service.views.deltas import Combination
from service.views.joins.outer_cursor import ChosenRows
from service.views.joins.protocol import Bounds, Enumeration, Join
from service.views.joins.slots_cursor import Filtered
from service.views.live_view import LiveView
from service.views.shown import ROW, Distinct
from service.views.stages.key_stretches import KeyStretches
from service.views.stages.table import GroupTable
from structures.core.encoding import NEG_INF, POS_INF

Point = tuple[str, Mapping[str, str]]
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def look_up(
    view: LiveView, version: Version, window: Window | None, point: Point | None, delays: Delays, may_search: bool
) -> ViewReading | None:
    """Return the requested enumeration, at a pinned version. Problem `bad-parameter`.

    A key is found in O(1), unless its row has changed since the version: then all rows of its relation are searched if `may_search`;
    otherwise the result is None.
    """
    join, root, *_ = version.roots[view.id]
    root = at_version(root, version.number)
    if isinstance(view.shown, KeyStretches):
        return _of_groups(view, view.shown, root, join, window, point, delays)
    if isinstance(view.shown, GroupTable | Distinct):
        if window:
            raise bad_parameter("overlaps", "the rows of groups have no intervals; put the window into the view's WHERE")
        if point is None:
            return ViewReading(view, join.is_empty(root), join.rows(root, None), True, delays)
        cursor: Enumeration | None
        if isinstance(view.shown, Distinct):
            cursor = _distinct(view, root, join, version.number, point, may_search)
        else:
            slots = _group(view.shown, version.number, point, may_search)
            cursor = None if slots is None else join.partners(root, 0, slots, None)
        return None if cursor is None else ViewReading(view, join.is_empty(root), cursor, False, delays)
    if view.view.query.united and window:
        raise bad_parameter(parameter_of(next(iter(window))), "the SELECTs of UNION ALL have intervals of their own")
    if view.view.query.stretches is not None:
        window = _of_stretches(view.view.query.stretches, window or {})
    named = {name: ends for name, ends in (window or {}).items() if "." in name}
    bounds = _bounds(view, {name: ends for name, ends in (window or {}).items() if name not in named})
    if view.view.query.branches and named:
        raise bad_parameter(parameter_of(next(iter(named))), "the rows of UNION and EXCEPT have no intervals")
    if point is not None and view.view.query.branches:
        return ViewReading(view, join.is_empty(root), join.of_key(root, 0, _row(view, *point), bounds), False, delays)
    within = _named_bounds(view, named)
    if point is not None:
        cursor = _of_point(view, version.number, join, root, input_of(view, point[0], "where"), point[1], bounds, may_search)
        if cursor is None:
            return None
    elif within:
        position = next((position for position in within if view.inputs[position].alias not in view.view.query.optional), None)
        if position is None:
            alias, instead = view.inputs[next(iter(within))].alias, "name an interval of another alias too"
            raise bad_parameter(parameter_of(next(iter(named))), f"rows without {alias} cannot be found by it; {instead}")
        relation, own = within[position]
        cursor = _chosen(view, version.number, join, root, position, lambda slots: slots[met(relation, own, slots)], bounds)
    else:
        cursor = join.rows(root, bounds)
    if within:
        cursor = Filtered(cursor, partial(_meets, within))
    return ViewReading(view, join.is_empty(root), cursor, point is None and not within and bounds is None, delays)


def _of_point(
    view: LiveView, version: int, join: Join, root: Any, input: Input, given: Mapping[str, str], bounds: Bounds | None, may_search: bool
) -> Enumeration | None:
    """Read the rows of one row of an alias, or of those with these values in its join columns; None: a search is necessary."""
    if set(given) == set(input.relation.key):
        keys = parsed(input.relation, input.relation.key, given, f"where.{input.alias}")
        slots = slot_of(input.relation, version, keys, may_search)
        return None if slots is None else join.partners(root, input.position, slots, bounds)
    if input.is_keyed and set(given) == set(input.equal):
        key = parsed(input.relation, input.equal, given, f"where.{input.alias}")
        return join.of_key(root, input.position, key, bounds)
    if given and given.keys() <= set(input.equal) and input.alias not in view.view.query.optional:
        key = parsed(input.relation, sorted(given), given, f"where.{input.alias}")
        return _chosen(view, version, join, root, input.position, lambda slots: _having(input.relation, key, slots), bounds)
    may = [f"all of the key ({', '.join(input.relation.key)})"]
    if input.equal and set(input.equal) != set(input.relation.key):
        may.append(f"columns that join it ({', '.join(input.equal)})")
    raise bad_parameter("where", f"a look-up by {input.alias} needs {' or '.join(may)}, not {', '.join(sorted(given))}")


def _chosen(
    view: LiveView, version: int, join: Join, root: Any, position: int, choose: Callable[[Slots], Slots], bounds: Bounds | None
) -> ChosenRows:
    """Read the view's rows that contain the chosen rows of an alias. Cost: O(rows of its relation), and a lookup of each chosen one."""

    def partners(slots: Slots) -> Enumeration:
        return join.partners(root, position, slots, bounds)

    return ChosenRows(view.inputs[position].relation.table, version, view.width, choose, partners)


def _of_groups(
    view: LiveView, shown: KeyStretches, root: Any, join: Join, window: Window | None, point: Point | None, delays: Delays
) -> ViewReading:
    """Read what groups cover: all groups, one, or within a window."""
    stretches = view.view.query.stretches
    assert stretches is not None
    asked = list(window.items()) if window else []
    if len(asked) > 1 or any(one not in ("", stretches.name, stretches.of.interval) for one, _ in asked):
        raise bad_parameter("overlaps", f"one window is allowed, overlaps=lo,hi or overlaps.{stretches.name}=lo,hi")
    bounds = _bounds(view, {"": asked[0][1]} if asked else None)
    if point is None:
        return ViewReading(view, join.is_empty(root), join.rows(root, bounds), bounds is None, delays)
    code = shown.columns.look_up(_of_group(shown.columns.fields, point))
    cursor = join.partners(root, 0, np.array([code] if code >= 0 else [], np.int32), bounds)
    return ViewReading(view, join.is_empty(root), cursor, False, delays)


def _of_stretches(stretches: Stretches, window: Window) -> Window:
    """Convert the windows of a view with gaps or coverage: a window on all intervals, or on the stretch by its name, is one on the stretch,
    which lies in the row's interval."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for name, ends in window.items():
        of = str(stretches.of) if name == stretches.of.interval != stretches.name else "" if name == stretches.name else name
        if of in found:
            raise bad_parameter("overlaps", f"one window is allowed for {name or stretches.name}, but two are given")
        found[of] = ends
    return found


def _meets(within: Mapping[int, tuple[Relation, Sequence[BoundWindow]]], rows: Combination) -> npt.NDArray[np.bool_]:
    """bool[n]: whether the aliases of the rows meet their windows."""
    meets: npt.NDArray[np.bool_] = np.logical_and.reduce(
        [met(relation, own, rows[position]) for position, (relation, own) in within.items()]
    )
    return meets


def _named_bounds(view: LiveView, named: Window) -> dict[int, tuple[Relation, list[BoundWindow]]]:
    """Return the windows of `overlaps.<alias>.<interval>`, by the number of the alias. The relation may have declared the interval after
    the view was registered."""
    found: dict[int, tuple[Relation, list[BoundWindow]]] = {}
    for name, ends in named.items():
        alias, _, interval = name.partition(".")
        parameter = parameter_of(name)
        input = input_of(view, alias, parameter)
        bound = bound_of(input.relation.name, view.definitions[input.relation.name], interval, ends, parameter)
        found.setdefault(input.position, (input.relation, []))[1].append(bound)
    return found


def _having(relation: Relation, key: pa.RecordBatch, slots: Slots) -> Slots:
    """Return the slots whose rows have these values (one row); NaN equals NaN."""
    pieces = [NO_SLOTS]
    for some, rows in relation.table.take_pieces(key.schema.names, slots):
        mask = np.ones(len(some), np.bool_)
        for column, value in zip(rows.columns, key.columns, strict=True):
            equal = pc.equal(column, value[0])
            if pa.types.is_floating(column.type) and pc.is_nan(value[0]).as_py():
                equal = pc.is_nan(column)
            mask &= np.asarray(pc.fill_null(equal, False))
        pieces.append(some[mask])
    return np.concatenate(pieces)


def at_version(root: Any, version: int) -> Any:
    """Return the root for reading at this version, at which it is still the newest one: scans then use the tables of the pinned version,
    not those of the view's last change."""
    if hasattr(root, "version"):
        return root._replace(version=version)
    return tuple(at_version(one, version) for one in root) if type(root) is tuple else root  # for a product, those of its parts


def slot_of(relation: Relation, version: int, key: pa.RecordBatch, may_search: bool) -> Slots | None:
    """Return the slot of the row with this key at a pinned version, [] if there is none; None: a search is necessary, but not allowed."""
    slots = relation.table.find_at(version, key)
    return _search(relation, version, key) if slots is None and may_search else slots


def _search(relation: Relation, version: int, keys: pa.RecordBatch) -> Slots:
    """Return the slot of the row with this key at an older version, [] if there was none. Cost: O(rows of the relation)."""
    every = (_having(relation, keys, slots) for slots in relation.table.scanned(version))
    return next((found for found in every if len(found)), NO_SLOTS)


def input_of(view: LiveView, alias: str, parameter: str) -> Input:
    for input in view.inputs:
        if input.alias == alias:
            return input
    raise bad_parameter(parameter, f"the view has no alias {alias}, only {', '.join(input.alias for input in view.inputs)}")


def _row(view: LiveView, alias: str, given: Mapping[str, str]) -> pa.RecordBatch:
    """Return the row of a view with UNION or EXCEPT that has these values."""
    query, names = view.view.query, view.shown.schema.names
    if alias != ROW or set(given) != set(names):
        all_of = ", ".join(f"where.{ROW}.{name}" for name in names)
        raise bad_parameter("where", f"a row of a view with UNION or EXCEPT is looked up by all of its columns: {all_of}")
    first = {name: view.definitions[relation] for name, relation in query.aliases}
    types = [first[ref.alias].column(ref.column).kind for ref in query.branches[0].columns]
    fields = zip(types, view.shown.schema, strict=True)
    columns = [_field(type_, field.nullable, f"where.{ROW}.{field.name}", given[field.name]) for type_, field in fields]
    return pa.RecordBatch.from_arrays(columns, names)


def _group(table: GroupTable, version: int, point: Point, may_search: bool) -> Slots | None:
    """Return the slot of the row of the group with these values, [] if there is none; None: a search is necessary."""
    code, slots = table.find(version, _of_group(table.columns.fields, point))
    return table.search(version, code) if slots is None and may_search else slots


def _distinct(view: LiveView, root: Any, join: Join, version: int, point: Point, may_search: bool) -> Enumeration | None:
    """Read the row with these values, found by the first key among them; None: a search is necessary."""
    schema, refs = view.shown.schema, [output.column for output in view.view.query.outputs if output.column is not None]
    first = dict(view.view.query.aliases)
    kinds = [view.definitions[first[ref.alias]].column(ref.column).kind for ref in refs]
    values = _of_group([(field.name, kind, field.nullable) for field, kind in zip(schema, kinds, strict=True)], point)
    input = view.inputs[0]
    keys = [values[refs.index(ColumnRef(input.alias, name))] for name in input.relation.key]
    key = pa.RecordBatch.from_arrays(keys, input.relation.key)
    slots = slot_of(input.relation, version, key, may_search)
    if slots is None:
        return None
    wanted = [one_zero(sent(value, type_)) for value, type_ in zip(values, schema.types, strict=True)]

    def has_values(rows: Combination) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(rows[0]), np.bool_)
        for column, value in zip(view.shown.rows(rows).columns, wanted, strict=True):
            mask &= np.asarray(pc.is_in(column, value_set=value))
        return mask

    return Filtered(join.partners(root, input.position, slots, None), has_values)


def _of_group(columns: Sequence[tuple[str, str, bool]], point: Point) -> list[pa.Array]:
    """Parse a value for each column of a group, given by name, kind, and whether it may be null."""
    alias, given = point
    names = [name for name, _, _ in columns]
    if alias != GROUP or not names:
        has = f"where.{GROUP}.<column>=value" if names else "nothing: it has one group"
        raise bad_parameter("where", f"a view with groups is looked up by {has}")
    if set(given) != set(names):
        all_of = ", ".join(f"where.{GROUP}.{name}" for name in names)
        raise bad_parameter("where", f"a group is looked up by all of its columns: {all_of}")
    return [_field(kind, nullable, f"where.{GROUP}.{name}", given[name]) for name, kind, nullable in columns]


def parsed(relation: Relation, names: list[str], given: Mapping[str, str], parameter: str) -> pa.RecordBatch:
    """Parse one row of these columns from texts; `parameter`: the prefix of their names in the request."""
    types, key = [relation.definition.column(name).kind for name in names], relation.key
    columns = [_value(type_, f"{parameter}.{name}", given[name], name in key) for type_, name in zip(types, names, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names)


def _field(type_: str, nullable: bool, parameter: str, text: str) -> pa.Array:
    """Parse one value, written like a field of CSV: the empty text is null where the column may be null, and texts and bytes may be in
    double quotes."""
    if not text and nullable:
        return pa.nulls(1, _type(type_))
    if type_ in ("string", "bytes") and text.startswith('"'):
        if not _QUOTED.fullmatch(text):
            raise bad_parameter(parameter, f'{text!r} is not quoted as in CSV: write "…", with "" for a double quote inside')
        text = text[1:-1].replace('""', '"')
    return _value(type_, parameter, text)


def _value(type_: str, parameter: str, text: str, is_key: bool = False) -> pa.Array:
    """Parse one value. NaN equals NaN; no key has it."""
    try:
        value = value_of(type_, text)
        if is_key:
            comparable(value)
    except BadLiteral as error:
        raise bad_parameter(parameter, str(error)) from None
    if type_ == "date":
        return pa.array([value], pa.int32()).cast(KEPT_TYPES[type_])
    return pa.array([value], _type(type_))


def _type(kind: str) -> pa.DataType:
    """Return the type of a value that is looked up; a decimal of more than 18 digits is that of an expression."""
    return pa.decimal128(38, 0) if (digits_of(kind) or (0, 0))[0] > MOST_DIGITS else KEPT_TYPES[kind]


def _bounds(view: LiveView, window: Window | None) -> Bounds | None:
    """Return the window of each joined interval, encoded; None if it bounds nothing. Problem `bad-parameter`, also for two windows on
    one."""
    if not window:
        return None
    query, inputs = view.view.query.whole, {input.alias: input for input in view.inputs}
    dimensions = [set(pair) for pair in query.overlaps]  # intervals that are joined, directly or through others
    for one in list(dimensions):
        met = [other for other in dimensions if not other.isdisjoint(one)]
        dimensions = [other for other in dimensions if other not in met] + [set().union(*met)]
    shown = [{ref for ref in one if ref.alias in inputs} for one in dimensions]  # rows do not have the aliases of EXISTS and NOT EXISTS
    dimensions = [one for one in shown if one]
    if not dimensions:
        raise bad_parameter("overlaps", "the view does not join on intervals; write overlaps.<alias>.<interval>=lo,hi")
    bounds: Bounds = {}
    for name, ends in window.items():
        named = [one for one in dimensions if not name or any(ref.interval == name for ref in one)]
        if not named:
            there = ", ".join(sorted({ref.interval for one in dimensions for ref in one}))
            raise bad_parameter(parameter_of(name), f"the view does not join on an interval {name}, only on {there}")
        for ref in set().union(*named):
            input = inputs[ref.alias]
            span = input.spans[ref.interval]
            assert span.start is not None
            if span in bounds:
                joined = " and ".join(sorted({other.interval for other in set().union(*named)}))
                raise bad_parameter("overlaps", f"one window is allowed for {joined}, but two are given")
            try:
                bounds[span] = window_of(ends, input.relation.definition.column(span.start).kind, parameter_of(name))
            except Problem as problem:
                if name or len(named) == 1:
                    raise
                each = ", ".join(sorted(f"overlaps.{min(ref.interval for ref in one)}=lo,hi" for one in named))
                remedy = f"the view joins several kinds of intervals; give a window for each: {each}"
                raise Problem("bad-parameter", f"{problem.detail}; {remedy}", **problem.extensions) from None
    return None if all(ends == (NEG_INF, POS_INF) for ends in bounds.values()) else bounds

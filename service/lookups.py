"""What a reader asks of a view: everything, a window, the rows of one row of an alias, or those of a join key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.deltas import Combination
from service.endpoints import parse_window
from service.errors import Problem
from service.literals import BadLiteral, from_text
from service.live_view import LiveView
from service.readings import Delays, ViewReading
from service.resolution import NO_SLOTS, Slots
from service.sides import NO_ENTRIES, Side
from service.store import PIECE_ROWS
from service.versions import Version
from structures.encoding import NEG_INF, POS_INF

Window = tuple[str | None, str | None]
Point = tuple[str, Mapping[str, str]]


def look_up(
    view: LiveView, version: Version, window: Window | None, point: Point | None, delays: Delays, at_rest: bool
) -> ViewReading:
    """The enumeration asked for, at a pinned version. Problem `bad-parameter`.

    `at_rest`: the caller is the writer's thread between two groups, and the version the newest; then a key is found in O(1), else
    it is looked for among all rows of its relation.
    """
    root = version.roots[view.id]
    bounds = _window(view, window)
    if point is None:
        return ViewReading(view, root, view.tree.rows(root, None, bounds), delays)
    place, side = _side(view, point[0])
    given = point[1]
    if set(given) == set(side.relation.key):
        return _partners(view, version, place, _parsed(side, side.relation.key, given), bounds, delays, at_rest)
    if side.join and set(given) == set(side.join):
        assert view.domain is not None
        code = int(view.domain.look_up(_parsed(side, side.join, given))[0])
        cursor = view.tree.rows(root, code, bounds) if code >= 0 else view.tree.partners(root, NO_ENTRIES)
        return ViewReading(view, root, cursor, delays)
    may = [f"the key ({', '.join(side.relation.key)})"] + ([f"the join key ({', '.join(side.join)})"] if side.join else [])
    raise Problem("bad-parameter", f"where: a look-up by {side.alias} takes {' or '.join(may)}, not {', '.join(sorted(given))}")


def _partners(
    view: LiveView, version: Version, place: int, keys: pa.RecordBatch, bounds: tuple[int, int] | None, delays: Delays, at_rest: bool
) -> ViewReading:
    """The rows in which the row with this key takes part as alias number `place`."""
    side, root = view.sides[place], version.roots[view.id]
    slots = side.relation.table.find(keys) if at_rest else _search(side, version.number, keys)
    slots = slots[slots >= 0]
    entries = NO_ENTRIES
    if len(slots) and not view.view.query.never:
        codes = view.domain.look_up if view.domain is not None else None
        entries = side.entries(slots, codes).entries
    cursor = view.tree.partners(root, entries, bounds)
    if view.shape.kind in ("pair", "list"):
        return ViewReading(view, root, cursor, delays)

    def keep(rows: Combination) -> Combination:  # one set under two aliases: the given row is to be this one
        mine = np.isin(rows[place], slots)
        return tuple(part[mine] for part in rows)

    return ViewReading(view, root, cursor, delays, keep)


def _search(side: Side, version: int, keys: pa.RecordBatch) -> Slots:
    """The slot of the row with this key at an older version, [] if there was none. Cost: O(rows of the relation)."""
    table, start = side.relation.table, 0
    while start >= 0:
        slots, start = table.scan(version, start, PIECE_ROWS)
        for some, rows in table.take_pieces(side.relation.key, slots):
            mask = np.ones(len(some), np.bool_)
            for column, key in zip(rows.columns, keys.columns, strict=True):
                mask &= np.asarray(pc.equal(column, key[0]))
            if mask.any():
                return some[mask]
    return NO_SLOTS


def _side(view: LiveView, alias: str) -> tuple[int, Side]:
    for place, side in enumerate(view.sides):
        if side.alias == alias:
            return place, side
    raise Problem("bad-parameter", f"where: the view has no alias {alias}, only {', '.join(side.alias for side in view.sides)}")


def _parsed(side: Side, names: list[str], given: Mapping[str, str]) -> pa.RecordBatch:
    """One row of these columns from texts."""
    columns = []
    for name in names:
        type_ = side.relation.definition.column(name).type
        try:
            value = from_text(type_, given[name])
        except BadLiteral as error:
            raise Problem("bad-parameter", f"where.{side.alias}.{name}: {error}") from None
        target = side.relation.schema.field(name).type
        if type_ == "date":
            if not -(2**31) <= int(value) < 2**31:
                raise Problem("bad-parameter", f"where.{side.alias}.{name}: {given[name]!r} is out of range")
            columns.append(pa.array([value], pa.int32()).cast(target))
        else:
            columns.append(pa.array([value], target))
    return pa.RecordBatch.from_arrays(columns, names)


def _window(view: LiveView, window: Window | None) -> tuple[int, int] | None:
    if window is None:
        return None
    interval, side = view.sides[0].interval, view.sides[0]
    if interval is None:
        raise Problem("bad-parameter", "overlaps: this view joins no intervals")
    bounds = parse_window(window, side.relation.definition.column(interval.start_column).type)
    return None if bounds == (NEG_INF, POS_INF) else bounds

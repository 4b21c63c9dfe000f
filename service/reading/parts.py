"""Divide a version of a view into parts that can be read concurrently, each row in exactly one of them.

    a range of the stored rows of one alias, and the view's rows that contain them. The alias: the first that no row of the view
    lacks; if each may be missing (FULL JOIN), all aliases, of the later ones the rows that lack those before
    a range of the groups, where rows are groups
    everything, where no stored row belongs to a row of the view: UNION, EXCEPT, and what groups cover

Nothing is read or counted beforehand: the ranges have equally many slots, however many rows of the view belong to them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.engine.versions import Version
from service.reading.lookups import at_version
from service.reading.readings import Delays, ViewReading
from service.tables.resolution import Slots
from service.tables.store import Table
from service.views.deltas import Combination
from service.views.joins.outer_cursor import ChosenRows, CursorChain
from service.views.joins.protocol import Enumeration, Join
from service.views.joins.slots_cursor import Filtered
from service.views.live_view import LiveView
from service.views.stages.key_stretches import KeyStretches
from service.views.stages.table import GroupTable


def parts_of(view: LiveView, version: Version, most: int, delays: Delays) -> list[ViewReading]:
    """Return one to `most` readings of a live view at a pinned version, which together have each row once. Cost: O(1) each."""
    join, root, *_ = version.roots[view.id]
    root = at_version(root, version.number)
    empty = join.is_empty(root)
    if empty or view.view.query.branches or isinstance(view.shown, KeyStretches):
        return [ViewReading(view, empty, join.rows(root, None), True, delays)]
    if isinstance(view.shown, GroupTable):
        tables = [_TableRange(0, view.shown.table, view.shown.table.used)]
    else:
        always = [input for input in view.inputs if input.alias not in view.view.query.optional]
        tables = [_TableRange(input.position, input.relation.table, input.relation.table.used) for input in always[:1] or view.inputs]
    count = max(1, min(most, max(used for _, _, used in tables)))
    return [ViewReading(view, empty, _part(view, version.number, join, root, tables, at, count), False, delays) for at in range(count)]


class _TableRange(NamedTuple):
    """The number of an alias, its table, and the slots that may have rows of the version: slots used later are of later versions."""

    position: int
    table: Table
    used: int


def _part(view: LiveView, version: int, join: Join, root: Any, tables: list[_TableRange], at: int, count: int) -> Enumeration:
    """Return part number `at`."""

    def of_alias(number: int) -> Enumeration:
        position, table, used = tables[number]
        within = used * at // count, used * (at + 1) // count
        chosen = ChosenRows(table, version, view.width, _all, lambda slots: join.partners(root, position, slots, None), within)
        before = [other.position for other in tables[:number]]
        return Filtered(chosen, partial(_lacking, before)) if before else chosen

    return of_alias(0) if len(tables) == 1 else CursorChain([partial(of_alias, number) for number in range(len(tables))], view.width)


def _all(slots: Slots) -> Slots:
    return slots


def _lacking(positions: list[int], rows: Combination) -> npt.NDArray[np.bool_]:
    """bool[n]: whether all of these aliases are missing in the rows."""
    missing: npt.NDArray[np.bool_] = np.logical_and.reduce([rows[position] < 0 for position in positions])
    return missing

"""Windows on intervals: as requested, as structures take them, and checked row by row."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from livejoin.wire.schema import RelationDefinition
from service.errors import bad_parameter
from service.planning.meets import span_of
from service.query.conditions import IntervalRef
from service.query.literals import BadLiteral, from_text
from service.query.model import Span
from service.tables.endpoints import stored_endpoints
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Slots
from service.tables.store import PIECE_ROWS, Table
from service.views.deltas import Combination
from service.views.joins.protocol import Enumeration
from service.views.read_counts import Counts
from structures.core.encoding import NEG_INF, POS_INF, encode_floats

Window = Mapping[str, tuple[str | None, str | None]]
"""By the interval's name, "" for all, or alias.interval: (lo, hi), texts in the endpoints' type, None for no bound."""
Mask = npt.NDArray[np.bool_]
_SPACE_FOR_PLUS = re.compile(r":[0-9.]+ [0-9]{2}(:?[0-9]{2})?$")
_CALL = 0.002  # seconds that a call may take, about
_LOOKED_UP = 256  # rows at once: some structures need 20 µs for each before they return the first partner


class BoundWindow(NamedTuple):
    """A window of one declared interval, encoded and closed."""

    span: Span
    low: int
    high: int


def bound_of(
    name: str, definition: RelationDefinition, interval: str, window: tuple[str | None, str | None], parameter: str
) -> BoundWindow:  # fmt: skip
    """Parse the window of an interval of the relation `name`, given as this parameter. Problem `bad-parameter`."""
    declared = definition.intervals
    if interval not in declared:
        raise bad_parameter(parameter, f"{name} has no interval {interval}; it declares {', '.join(declared) or 'none'}")
    type_ = definition.column(declared[interval].start_column).kind
    return BoundWindow(span_of(IntervalRef(name, interval), definition), *window_of(window, type_, parameter))


def parameter_of(name: str) -> str:
    """The parameter of a window: of the interval `name`, or, if it is empty, of all that the view joins on, or a relation's only one."""
    return f"overlaps.{name}" if name else "overlaps"


def window_of(window: tuple[str | None, str | None], type_: str, parameter: str) -> tuple[int, int]:
    """Return the encoded window of (lo, hi), texts in the endpoints' type; None is unbounded. Problem `bad-parameter`."""
    low, high = window
    try:
        left, right = _end_of(low, type_, NEG_INF), _end_of(high, type_, POS_INF)
    except BadLiteral as error:
        raise bad_parameter(parameter, f"{error}{_advice(window)}") from None
    if left > right:
        raise bad_parameter(parameter, f"the window is empty: {low} is after {high}")
    return left, right


def _advice(window: tuple[str | None, str | None]) -> str:
    """How to write an offset, if one was sent with a plus sign, which stands for a space in an address."""
    return "; in an address, write %2B for +" if any(end is not None and _SPACE_FOR_PLUS.search(end) for end in window) else ""


def _end_of(text: str | None, type_: str, missing: int) -> int:
    if text is None:
        return missing
    if type_ != "float64" and "infinity" in text.lower():
        raise BadLiteral(f"got {text!r}: leave this end empty if the window has no bound there")
    value = from_text(type_, text)
    return int(encode_floats(np.array([value]), 0)[0]) if type_ == "float64" else int(value)


def met(relation: Relation, bounds: Sequence[BoundWindow], slots: Slots) -> Mask:
    """bool[n]: whether the rows at these slots meet all windows. A null end is unbounded, a null point meets nothing; a row that is missing
    (slot -1) has no intervals that would have to meet them."""
    there = slots >= 0
    meets: Mask = np.ones(len(slots), np.bool_)
    some = slots if there.all() else slots[there]
    for span, low, high in bounds:
        left, right = stored_endpoints(relation.table, span, some)
        meets[there] &= (left <= high) & (right >= low) & (left <= right)
    return meets


class ChosenRows:
    """The view's rows that contain some rows of a table: the table is read in pieces, and the chosen rows are looked up. `choose`: returns
    the wanted slots; `partners`: returns the view's rows that contain them; `within`: the slots from one to another (excluded), None:
    all."""

    def __init__(
        self, table: Table, version: int, aliases: int, choose: Callable[[Slots], Slots], partners: Callable[[Slots], Enumeration],
        within: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        self._table, self._version, self._aliases = table, version, aliases
        self._choose, self._partners = choose, partners
        self._start, self._end = within or (0, table.used)  # slots used later are of later versions
        self._found = NO_SLOTS
        self._cursor: Enumeration | None = None
        self._steps = self._since = self._gap = 0  # total without the cursor's; since the last row; the most between two rows

    @property
    def done(self) -> bool:
        return self._cursor is None and not len(self._found) and self._start < 0

    @property
    def counts(self) -> Counts:
        return Counts(self._steps + (0 if self._cursor is None else self._cursor.counts.steps), self._gap)

    def fill(self, limit: int) -> Combination:
        parts, count, until = list[Combination](), 0, time.perf_counter() + _CALL
        while not self.done and count < limit and time.perf_counter() < until:
            if self._cursor is not None:
                some = self._cursor.fill(limit - count)
                if len(some[0]):
                    parts.append(tuple([np.array(slots) for slots in some]))
                    count += len(some[0])
                    self._gap, self._since = max(self._gap, self._since, self._cursor.counts.largest_gap), 0
                if self._cursor.done:
                    self._steps += self._cursor.counts.steps
                    self._cursor = None
            elif len(self._found):
                self._cursor, self._found = self._partners(self._found[:_LOOKED_UP]), self._found[_LOOKED_UP:]
            else:
                slots, following = self._table.scan(self._version, self._start, min(PIECE_ROWS, self._end - self._start))
                slots = slots[: np.searchsorted(slots, self._end)]
                self._start = following if following < self._end else -1
                self._found = self._choose(slots)
                self._steps += len(slots)
                self._since += len(slots)
        if not parts:
            return (NO_SLOTS,) * self._aliases
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(slots) for slots in zip(*parts, strict=True))

    def clone(self) -> Self:
        other = copy.copy(self)
        other._cursor = None if self._cursor is None else self._cursor.clone()
        return other

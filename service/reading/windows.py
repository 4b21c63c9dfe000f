"""Windows on intervals: as requested, as structures take them, and checked row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
from service.tables.resolution import Slots
from structures.core.encoding import NEG_INF, POS_INF, encode_floats

Window = Mapping[str, tuple[str | None, str | None]]
"""By the interval's name, "" for all, or alias.interval: (lo, hi), texts in the endpoints' type, None for no bound."""
Mask = npt.NDArray[np.bool_]
_SPACE_FOR_PLUS = re.compile(r":[0-9.]+ [0-9]{2}(:?[0-9]{2})?$")


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

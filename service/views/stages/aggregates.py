"""How an aggregate takes the values of a group's rows, what it stores, and what it returns: a table by function and type.

form     how a value is taken: RAW, its word (of a float its bits); ORDERED, a number in its order; CODED, a text's code
kept     kinds of accumulators (`structures.aggregate.layout`), the reported one first
emitted  what is reported of it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from livejoin.wire.kinds import digits_of
from service.query.model import Aggregate
from structures.aggregate import layout

RAW, ORDERED, CODED = range(3)


class Kind(NamedTuple):
    form: int
    kept: tuple[int, ...]
    emitted: int
    scale: int = 1


_COUNT = Kind(RAW, (layout.COUNT,), layout.OF_COUNT)
_INTS = ("int64", "timestamp", "date", "time", "bool")
_ANY = (*_INTS, "float64", "string", "bytes")

KINDS: Mapping[tuple[str, str], Kind] = {
    **{("count", type_): _COUNT for type_ in _ANY},
    **{("count_distinct", type_): Kind(ORDERED, (layout.VALUES,), layout.OF_COUNT) for type_ in (*_INTS, "float64")},
    **{("count_distinct", type_): Kind(CODED, (layout.VALUES,), layout.OF_COUNT) for type_ in ("string", "bytes")},
    ("sum", "int64"): Kind(RAW, (layout.INT_SUM, layout.COUNT), layout.OF_INT_SUM),
    ("avg", "int64"): Kind(RAW, (layout.INT_SUM, layout.COUNT), layout.OF_INT_MEAN),
    ("sum", "float64"): Kind(RAW, (layout.FLOAT_SUM, layout.COUNT), layout.OF_FLOAT_SUM),
    ("avg", "float64"): Kind(RAW, (layout.FLOAT_SUM, layout.COUNT), layout.OF_FLOAT_MEAN),
    **{("min", type_): Kind(ORDERED, (layout.VALUES,), layout.OF_LEAST) for type_ in _INTS},
    **{("max", type_): Kind(ORDERED, (layout.VALUES,), layout.OF_GREATEST) for type_ in _INTS},
    ("min", "float64"): Kind(ORDERED, (layout.VALUES,), layout.OF_LEAST_FLOAT),
    ("max", "float64"): Kind(ORDERED, (layout.VALUES,), layout.OF_GREATEST_FLOAT),
}


_OF_DECIMALS: Mapping[str, Callable[[int], Kind]] = {
    "count": lambda scale: _COUNT,
    "count_distinct": lambda scale: KINDS["count_distinct", "int64"],
    "sum": lambda scale: Kind(RAW, (layout.INT_SUM, layout.COUNT), layout.OF_WIDE_SUM),
    "avg": lambda scale: Kind(RAW, (layout.INT_SUM, layout.COUNT), layout.OF_INT_MEAN, 10**scale),
    "min": lambda scale: KINDS["min", "int64"],
    "max": lambda scale: KINDS["max", "int64"],
}


def kind_of(function: str, of: str) -> Kind:
    """`of`: the kind of the values, as in `wire.kinds`. Decimals are integers of their digits."""
    digits = digits_of(of)
    return KINDS[function, of] if digits is None else _OF_DECIMALS[function](digits[1])


def never_null(one: Aggregate, of_null: bool, grouped: bool) -> bool:
    """Whether the aggregate is null for no group; `of_null`: values may be null; `grouped`: every group has rows."""
    if one.function in ("count", "count_distinct"):
        return True
    return grouped and not of_null and not (one.function == "sum" and one.type != "float64")

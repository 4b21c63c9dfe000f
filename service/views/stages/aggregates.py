"""How an aggregate takes the values of a group's rows, what it stores, and what it returns: a table by function and type.

kept     kinds of accumulators (`structures.aggregate.layout`), the reported one first, and how each takes a value: RAW, its word (of a
         float its bits); ORDERED, a number in its order; CODED, a text's code; SORTED, the same in the order of texts; LOW and HIGH, the
         words of a decimal of more than 18 digits; SQUARE_LOW and SQUARE_HIGH, those of the square of a whole number; SQUARE and
         SQUARE_ERROR, of a float that of its product with itself, and what this lacks; LISTED, the code of an entry (`listing`)
emitted  what is reported of them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from livejoin.wire.kinds import MOST_DIGITS, digits_of
from service.query.model import LISTS, VARIANCES, Aggregate
from structures.aggregate import layout

RAW, ORDERED, CODED, SORTED, LOW, HIGH, SQUARE_LOW, SQUARE_HIGH, SQUARE, SQUARE_ERROR, LISTED = range(11)


class Kind(NamedTuple):
    kept: tuple[tuple[int, int], ...]
    emitted: int
    scale: int = 1


_COUNT = Kind(((layout.COUNT, RAW),), layout.OF_COUNT)
_IN_ORDER, _IN_CODES = ((layout.VALUES, ORDERED),), ((layout.VALUES, CODED),)
_INT_SUM = (layout.INT_SUM, RAW), (layout.COUNT, RAW)
_FLOAT_SUM = (layout.FLOAT_SUM, RAW), (layout.COUNT, RAW)
_WIDE_SUM = (layout.INT_SUM, LOW), (layout.INT_SUM, HIGH), (layout.COUNT, LOW)
_LISTED = Kind(((layout.COUNT, LISTED),), layout.OF_FILLED)
_TEXT_END = Kind(((layout.COUNT, SORTED),), layout.OF_FILLED)
_VARIANCE = (layout.INT_SUM, RAW), (layout.INT_SUM, SQUARE_LOW), (layout.INT_SUM, SQUARE_HIGH), (layout.COUNT, RAW)
_FLOAT_VARIANCE = (layout.FLOAT_SUM, RAW), (layout.FLOAT_SUM, SQUARE), (layout.FLOAT_SUM, SQUARE_ERROR), (layout.COUNT, RAW)
_INTS = ("int64", "timestamp", "date", "time", "bool")
_ANY = (*_INTS, "float64", "string", "bytes")

KINDS: Mapping[tuple[str, str], Kind] = {
    **{("count", type_): _COUNT for type_ in _ANY},
    **{("count_distinct", type_): Kind(_IN_ORDER, layout.OF_COUNT) for type_ in (*_INTS, "float64")},
    **{("count_distinct", type_): Kind(_IN_CODES, layout.OF_COUNT) for type_ in ("string", "bytes")},
    ("sum", "int64"): Kind(_INT_SUM, layout.OF_INT_SUM),
    ("avg", "int64"): Kind(_INT_SUM, layout.OF_INT_MEAN),
    ("sum", "float64"): Kind(_FLOAT_SUM, layout.OF_FLOAT_SUM),
    ("avg", "float64"): Kind(_FLOAT_SUM, layout.OF_FLOAT_MEAN),
    **{("min", type_): Kind(_IN_ORDER, layout.OF_LEAST) for type_ in _INTS},
    **{("max", type_): Kind(_IN_ORDER, layout.OF_GREATEST) for type_ in _INTS},
    **{(function, type_): _TEXT_END for function in ("min", "max") for type_ in ("string", "bytes")},
    **{(function, "int64"): Kind(_VARIANCE, layout.OF_FILLED) for function in VARIANCES},
    **{(function, "float64"): Kind(_FLOAT_VARIANCE, layout.OF_FILLED) for function in VARIANCES},
    ("min", "float64"): Kind(_IN_ORDER, layout.OF_LEAST_FLOAT),
    ("max", "float64"): Kind(_IN_ORDER, layout.OF_GREATEST_FLOAT),
}


_OF_DECIMALS: Mapping[str, Callable[[int], Kind]] = {
    "count": lambda scale: _COUNT,
    "count_distinct": lambda scale: KINDS["count_distinct", "int64"],
    "sum": lambda scale: Kind(_INT_SUM, layout.OF_WIDE_SUM),
    "avg": lambda scale: Kind(_INT_SUM, layout.OF_INT_MEAN, 10**scale),
    "min": lambda scale: KINDS["min", "int64"],
    "max": lambda scale: KINDS["max", "int64"],
    **dict.fromkeys(VARIANCES, lambda scale: Kind(_VARIANCE, layout.OF_FILLED, 10**scale)),
}
_OF_WIDE_DECIMALS: Mapping[str, Callable[[int], Kind]] = {
    "count": lambda scale: _COUNT,
    "count_distinct": lambda scale: KINDS["count_distinct", "bytes"],
    "sum": lambda scale: Kind(_WIDE_SUM, layout.OF_WIDER_SUM),
    "avg": lambda scale: Kind(_WIDE_SUM, layout.OF_WIDER_MEAN, 10**scale),
    "min": lambda scale: _TEXT_END,
    "max": lambda scale: _TEXT_END,
}


def kind_of(function: str, of: str) -> Kind:
    """`of`: the kind of the values, as in `wire.kinds`. Decimals of up to 18 digits are integers of their digits."""
    if function in LISTS:
        return _LISTED
    digits = digits_of(of)
    if digits is None:
        return KINDS[function, of]
    return (_OF_DECIMALS if digits[0] <= MOST_DIGITS else _OF_WIDE_DECIMALS)[function](digits[1])


def never_null(one: Aggregate, of_null: bool, grouped: bool) -> bool:
    """Whether the aggregate is null for no group; `of_null`: values may be null; `grouped`: every group has rows."""
    if one.function in ("count", "count_distinct"):
        return True
    return grouped and not of_null and one.function not in (*VARIANCES, *LISTS) and not (one.function == "sum" and one.type != "float64")

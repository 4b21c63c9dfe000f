"""Casts between types; null for what is not a value of the other type.

Costs: of texts, and to narrower decimals, about 1 µs a distinct value; else 1 to 50 ns a row.
"""

from __future__ import annotations

from decimal import Decimal
from string import whitespace
from typing import Any

import numpy as np
import pyarrow as pa

from livejoin.wire.grammar import DAY, date_texts, decimal_texts, time_texts, timestamp_texts
from livejoin.wire.kinds import SENT_TYPES, digits_of
from service.query.conditions import Term
from service.query.literals import NUMBER, BadLiteral, value_of
from service.query.terms import LOCAL
from service.tables.values.columns import INT64, Values, by_value, days_made, floats, ints, made, nulls
from service.tables.values.numbers import EXACT, quotient, rounded


def between_numbers(term: Term, of: Values) -> Values:
    """Of numbers, times and bools."""
    given, wanted = term.args[0].kind, term.kind
    if given == "float64":
        found = np.rint(floats(of))
        outside = ~((found >= -(2.0**63)) & (found < 2.0**63))
        return made(np.where(outside, 0, found).astype(np.int64), nulls(of) | outside)
    if given == "date":
        days = ints(of)
        outside = (days > INT64.max // DAY) | (days < -(INT64.max // DAY))
        return made(np.where(outside, 0, days) * DAY, nulls(of) | outside)
    if wanted == "date":
        return days_made(ints(of) // DAY, nulls(of))
    if wanted == "time":
        return Values(ints(of) % DAY, of.null)
    values: Any = of.values
    return Values(values.astype(np.float64 if wanted == "float64" else np.int64, copy=False), of.null)


def cast(term: Term, of: pa.Array) -> pa.Array:
    """From or to decimals and texts."""
    given, wanted = term.args[0].kind, term.kind
    if given == "string":
        return by_value(lambda text: _value(text, wanted), of, SENT_TYPES[wanted])
    if wanted == "string":
        return _texts(given, of)
    if digits_of(given) is not None and wanted == "float64":
        return quotient(of, pa.repeat(pa.scalar(Decimal(1), pa.decimal128(1, 0)), len(of)))
    if digits_of(given) is not None and wanted == "int64":
        return by_value(_as_int, of, pa.int64())
    return _as_decimal(of, wanted)


def _as_decimal(of: pa.Array, wanted: str) -> pa.Array:
    """Rounds if there are more digits after the point; null if there are too many before it. A float is its shortest text."""
    type_ = SENT_TYPES[wanted]
    most = Decimal(10) ** (type_.precision - type_.scale)
    if pa.types.is_floating(of.type):
        return by_value(lambda value: rounded(Decimal(repr(value)), type_.scale, most), of, type_)
    if pa.types.is_integer(of.type):
        of = of.cast(pa.decimal128(19, 0))
    try:
        if of.type.scale <= type_.scale:
            return of.cast(type_)
    except pa.ArrowInvalid:  # some have too many digits
        pass
    return by_value(lambda value: rounded(value, type_.scale, most), of, type_)


def _as_int(value: Decimal) -> int | None:
    found = int(value.quantize(Decimal(1), "ROUND_HALF_UP", EXACT))
    return found if INT64.min <= found <= INT64.max else None


def _value(text: str, kind: str) -> Any:
    """Convert a text to a value of a kind; None: it is not one."""
    digits = digits_of(kind)
    if digits is not None:
        number = text.strip(whitespace)
        return rounded(Decimal(number), digits[1], Decimal(10) ** (digits[0] - digits[1])) if NUMBER.fullmatch(number) else None
    try:
        return value_of(kind, text)
    except BadLiteral:
        return None


def _texts(given: str, of: pa.Array) -> pa.Array:
    """Convert to texts as in rows of JSON, without quotes."""
    if given == LOCAL:
        return pa.compute.utf8_rtrim(timestamp_texts(of), "Z")
    for kind, texts in (("timestamp", timestamp_texts), ("date", date_texts), ("time", time_texts)):
        if given == kind:
            return texts(of)
    if digits_of(given) is not None:
        return decimal_texts(of)
    return of.cast(pa.utf8())

"""Constants of a definition, a window or a look-up, in the physical form of a column's type.

int64 -> int, float64 -> float, timestamp -> microseconds since 1970 UTC, date -> days since 1970,
string -> str, bool -> bool. What does not fit raises `BadLiteral`, whose text says why.
"""

from __future__ import annotations

import math
import re
from typing import Any

from service.wire.grammar import DAY, JSON_READERS, parse_date, parse_timestamp, refusal

_DATE = re.compile(r"[+-]?\d{4,7}-\d\d-\d\d")
_INT = re.compile(r"[+-]?\d{1,40}")
_BLANK = re.compile(r"\s+(?=[+-]\d\d(:?\d\d)?$)")
_WITHOUT_OFFSET = re.compile(r".*[ T]\d\d(:?\d\d){0,2}(\.\d+)?", re.IGNORECASE)
_TRUTH = {"true": True, "t": True, "yes": True, "on": True, "1": True, "false": False, "f": False, "no": False, "off": False, "0": False}

Physical = int | float | str | bool


class BadLiteral(ValueError):
    """The constant is none of the column's type."""


def from_json(type_: str, value: Any) -> Physical:
    """A JSON value as the wire format has it: timestamps as ISO 8601 with offset or integer microseconds."""
    try:
        read: Physical = JSON_READERS[type_](value)
    except OverflowError:
        raise BadLiteral(f"{value} does not fit into a float64") from None
    except ValueError as error:
        raise BadLiteral(str(error)) from None
    return _comparable(read)


def from_number(type_: str, text: str) -> Physical:
    """A number in SQL: `3`, `-1.5e3`."""
    if type_ not in ("int64", "float64"):
        raise BadLiteral(f"the number {text} is no {type_}")
    return from_text(type_, text)


def from_text(type_: str, text: str) -> Physical:
    """A quoted constant, which takes the type of the column beside it, as PostgreSQL has it.

    A timestamp without an offset is UTC, a date alone is its midnight, a whole number are microseconds.
    """
    trimmed = text.strip()
    if type_ == "string":
        return text
    if type_ == "bool" and trimmed.lower() in _TRUTH:
        return _TRUTH[trimmed.lower()]
    if type_ in ("int64", "timestamp") and _INT.fullmatch(trimmed):
        return from_json(type_, int(trimmed))
    if type_ == "float64":
        return _float(trimmed)
    if type_ in ("date", "timestamp"):
        try:
            return parse_date(trimmed) if type_ == "date" else _timestamp(trimmed)
        except ValueError as error:
            raise BadLiteral(f"{error}{_infinity_hint(trimmed)}") from None
    raise BadLiteral(str(refusal(type_, text)))


def convert(value: Physical, given: str, wanted: str) -> Physical:
    """A constant with a type of its own (`DATE '2026-01-01'`) beside a column of type `wanted`."""
    if given == wanted:
        return value
    if (given, wanted) == ("date", "timestamp"):
        return int(value) * DAY
    if (given, wanted) == ("int64", "float64"):
        return float(value)
    raise BadLiteral(f"a constant of type {given} beside a column of type {wanted}: write a {wanted}")


def _float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadLiteral(str(refusal("float64", text))) from None
    if math.isinf(value) and "inf" not in text.lower():
        raise BadLiteral(f"{text} does not fit into a float64")
    return float(_comparable(value))


def _comparable(value: Physical) -> Physical:
    if isinstance(value, float) and math.isnan(value):
        raise BadLiteral("NaN is no value to compare with")
    return value


def _timestamp(text: str) -> int:
    text = _BLANK.sub("", text)
    if _DATE.fullmatch(text):
        return parse_date(text) * DAY
    if not _WITHOUT_OFFSET.fullmatch(text):
        return parse_timestamp(text)
    try:
        return parse_timestamp(text + "Z")
    except ValueError as error:
        raise ValueError(str(error).replace(f"{text}Z", text)) from None


def _infinity_hint(text: str) -> str:
    if "infinity" not in text.lower():
        return ""
    return "; an unbounded end is null here: write IS NULL or IS NOT NULL, or COALESCE(end, 'infinity') in an overlap"

"""Constants of a definition, a window or a look-up, in the physical form of a column's type.

int64 -> int, float64 -> float, timestamp -> microseconds since 1970 UTC, date -> days since 1970, string, uuid -> str, bool -> bool, time
-> microseconds since midnight, bytes -> bytes. Values that do not fit raise `BadLiteral`, whose text says why.
"""

from __future__ import annotations

import math
import re
from typing import Any

from service.wire.grammar import DAY, INT64_MAX, INT64_MIN, JSON_READERS, parse_date, parse_duration, parse_timestamp, refusal, shown
from service.wire.kinds import digits_of
from service.wire.values.texts import HEX

_DATE = re.compile(r"[+-]?\d{4,7}-\d\d-\d\d")
_INT = re.compile(r"[+-]?\d{1,40}")
_BLANK = re.compile(r"\s+(?=[+-]\d\d(:?\d\d)?$)")
_WITHOUT_OFFSET = re.compile(r".*[ T]\d\d(:?\d\d){0,2}(\.\d+)?", re.IGNORECASE)
_LONGEST = 100  # characters of a timestamp; the patterns above take quadratic time
_UNIT_MICROS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": DAY, "week": 7 * DAY,
}  # fmt: skip
_TRUTH = {"true": True, "t": True, "yes": True, "on": True, "1": True, "false": False, "f": False, "no": False, "off": False, "0": False}

Physical = int | float | str | bool | bytes


class BadLiteral(ValueError):
    """The constant is not a value of the column's type."""


def from_json(type_: str, value: Any) -> Physical:
    """Convert a JSON value in the wire format: timestamps as ISO 8601 with offset or integer microseconds."""
    try:
        read: Physical = JSON_READERS[type_](value)
    except OverflowError:
        raise BadLiteral(f"{value} does not fit into a float64") from None
    except ValueError as error:
        raise BadLiteral(str(error)) from None
    return _comparable(read)


def from_number(type_: str, text: str) -> Physical:
    """Convert a number in SQL: `3`, `-1.5e3`."""
    if digits_of(type_):
        return from_json(type_, text)
    if type_ not in ("int64", "float64") or (type_ == "int64" and not _INT.fullmatch(text)):
        raise BadLiteral(f"the number {text} is not a valid {type_}")
    return from_text(type_, text)


def from_text(type_: str, text: str) -> Physical:
    """Convert a quoted constant, which takes the type of the column it is compared with, as in PostgreSQL.

    A timestamp without an offset is UTC, a date alone is its midnight, an integer is microseconds.
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
    if digits_of(type_) or type_ in ("uuid", "time"):
        return from_json(type_, trimmed)
    if type_ == "bytes" and trimmed.startswith(HEX):
        return from_json(type_, trimmed)
    if type_ == "bytes":
        raise BadLiteral(f"got {shown(text)}: write bytes as hexadecimal digits, such as '\\x00ff'")
    if type_ in ("date", "timestamp"):
        try:
            return parse_date(trimmed) if type_ == "date" else _timestamp(trimmed)
        except ValueError as error:
            raise BadLiteral(f"{error}{_infinity_hint(trimmed)}") from None
    raise BadLiteral(str(refusal(type_, text)))


def distance_from_json(type_: str, value: Any) -> int | float:
    """Convert a distance between two columns of this type: non-negative, in their unit; for timestamps microseconds or an ISO 8601
    duration."""
    if type_ == "timestamp" and isinstance(value, str):
        return _duration(value)
    if digits_of(type_):
        read = from_json(type_, value)
        if isinstance(read, int) and read >= 0:
            return read
        raise BadLiteral(f"{value!r} is not a non-negative number")
    if type_ == "float64":
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise BadLiteral(f"{value!r} is not a non-negative number")
        return float(value)
    if type_ not in ("int64", "timestamp", "date"):
        raise BadLiteral(f"a distance needs columns of type int64, float64, decimal, timestamp or date, not {type_}")
    if type(value) is not int or not 0 <= value < 2**63:
        unit = {"timestamp": "microseconds or an ISO 8601 duration such as PT15M", "date": "days"}.get(type_, "the column's unit")
        raise BadLiteral(f"{value!r} is not a non-negative integer ({unit})")
    return value


def distance_from_text(type_: str, number: str, unit: str) -> int | float:
    """Convert the same from `INTERVAL '15 minutes'` in SQL: number and unit; "" for a plain number."""
    if not unit and digits_of(type_):
        return distance_from_json(type_, number)
    if not unit:
        whole = _INT.fullmatch(number)
        return distance_from_json(type_, int(number) if whole else _float(number))
    name = unit.lower().rstrip("s")
    if (calendar := next((word for word in ("month", "quarter", "year") if word in name), None)) is not None:
        raise BadLiteral(f"a {calendar} has no fixed length: write a number of days, such as INTERVAL '30 days'")
    if name not in _UNIT_MICROS or type_ not in ("timestamp", "date"):
        raise BadLiteral(f"INTERVAL '{number} {unit}' is not a distance between columns of type {type_}")
    micros = _rounded(_float(number) * _UNIT_MICROS[name], f"INTERVAL '{number} {unit}'")
    if type_ == "date" and micros % DAY:
        raise BadLiteral("a distance between dates is a whole number of days")
    return distance_from_json(type_, micros // DAY if type_ == "date" else micros)


def _duration(text: str) -> int:
    try:
        return int(distance_from_json("timestamp", parse_duration(text)))
    except ValueError as error:
        raise BadLiteral(str(error)) from None


def _rounded(micros: float, text: str) -> int:
    if not math.isfinite(micros):
        raise BadLiteral(f"{text[:60]} is out of range")
    return round(micros)


def convert(value: Physical, given: str, wanted: str) -> Physical:
    """Convert a constant with a type of its own (`DATE '2026-01-01'`), next to a column of type `wanted`."""
    if given == wanted:
        return value
    if (given, wanted) == ("date", "timestamp"):
        return _midnight(int(value))
    if (given, wanted) == ("int64", "float64"):
        return float(value)
    if given == "int64" and digits_of(wanted):
        return from_json(wanted, value)
    raise BadLiteral(f"a constant of type {given} compared with a column of type {wanted}: write a constant of that type")


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
        raise BadLiteral("NaN cannot be used in a comparison")
    return value


def _timestamp(text: str) -> int:
    if len(text) > _LONGEST:
        raise refusal("timestamp", text)
    text = _BLANK.sub("", text)
    if _DATE.fullmatch(text):
        return _midnight(parse_date(text))
    if not _WITHOUT_OFFSET.fullmatch(text):
        return parse_timestamp(text)
    try:
        return parse_timestamp(text + "Z")
    except ValueError as error:
        raise ValueError(str(error).replace(f"{text}Z", text)) from None


def _midnight(days: int) -> int:
    micros = days * DAY
    if not INT64_MIN <= micros <= INT64_MAX:
        raise BadLiteral(f"the date {days} days from 1970-01-01 is out of the range of timestamps")
    return micros


def _infinity_hint(text: str) -> str:
    if "infinity" not in text.lower():
        return ""
    return "; an unbounded end is null here: write IS NULL or IS NOT NULL, or COALESCE(end, 'infinity') in an overlap"

"""Constants of a definition, a window or a look-up, in the physical form of a column's type. All are read by the readers of rows.

int64 -> int, float64 -> float, timestamp -> microseconds since 1970 UTC, date -> days since 1970, string, uuid -> str, bool -> bool, time
-> microseconds since midnight, bytes -> bytes. Values that do not fit raise `BadLiteral`, whose text says why.
"""

from __future__ import annotations

import math
from string import ascii_letters
from typing import Any

from livejoin.wire.grammar import DAY, INT64_MAX, INT64_MIN, JSON_READERS, TEXT_READERS, Reader, parse_duration, parse_moment, shown
from livejoin.wire.kinds import ByKind, digits_of
from livejoin.wire.values.texts import HEX

_UNIT_MICROS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": DAY, "week": 7 * DAY,
}  # fmt: skip

_INFINITY = "; an unbounded end is null here: write IS NULL or IS NOT NULL, or COALESCE(end, 'infinity') in an overlap"

Physical = int | float | str | bool | bytes


class BadLiteral(ValueError):
    """The constant is not a value of the column's type."""


def from_json(type_: str, value: Any) -> Physical:
    """Convert a JSON value, in the form that it has in rows."""
    try:
        return comparable(_read(JSON_READERS, type_, value))
    except OverflowError:
        raise BadLiteral(f"{value} does not fit into a float64") from None


def from_number(type_: str, text: str) -> Physical:
    """Convert a number in SQL: `3`, `-1.5e3`."""
    if digits_of(type_):
        return value_of(type_, text)
    try:
        if type_ in ("int64", "float64"):
            return value_of(type_, text)
    except BadLiteral:
        pass
    raise BadLiteral(f"the number {text} is not a valid {type_}")


def from_text(type_: str, text: str) -> Physical:
    """Convert a quoted constant of SQL, which takes the type of the column it is compared with, as in PostgreSQL. Bytes are hexadecimal:
    PostgreSQL would not take others for base64."""
    if type_ == "bytes" and not text.startswith(HEX):
        raise BadLiteral(f"got {shown(text)}: write bytes as hexadecimal digits, such as '\\x00ff'")
    return comparable(value_of(type_, text))


def value_of(type_: str, text: str) -> Physical:
    """Convert a text that is one value, in the form that it has in CSV."""
    return _read(TEXT_READERS, type_, text)


def comparable(value: Physical) -> Physical:
    """Return the value, unless no comparison can have it: NaN."""
    if isinstance(value, float) and math.isnan(value):
        raise BadLiteral("NaN cannot be used in a comparison")
    return value


def _read(readers: ByKind[Reader], type_: str, value: Any) -> Physical:
    """Convert a constant by the readers of rows. A timestamp without an offset is UTC here, a date alone is its midnight."""
    try:
        read: Physical = parse_moment(value)[0] if type_ == "timestamp" and isinstance(value, str) else readers[type_](value)
    except ValueError as error:
        hint = _INFINITY if type_ in ("timestamp", "date") and isinstance(value, str) and "infinity" in value.lower() else ""
        raise BadLiteral(f"{error}{hint}") from None
    return read


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
        try:
            return distance_from_json(type_, int(value_of("int64", number)))
        except BadLiteral:
            return distance_from_json(type_, float(value_of("float64", number)))
    name = unit.lower().rstrip("s")
    if (calendar := next((word for word in ("month", "quarter", "year") if word in name), None)) is not None:
        raise BadLiteral(f"a {calendar} has no fixed length: write a number of days, such as INTERVAL '30 days'")
    if name not in _UNIT_MICROS or type_ not in ("timestamp", "date"):
        raise BadLiteral(f"INTERVAL '{number} {unit}' is not a distance between columns of type {type_}")
    micros = _rounded(float(value_of("float64", number)) * _UNIT_MICROS[name], f"INTERVAL '{number} {unit}'")
    if type_ == "date" and micros % DAY:
        raise BadLiteral("a distance between dates is a whole number of days")
    return distance_from_json(type_, micros // DAY if type_ == "date" else micros)


def interval_from_text(type_: str, text: str, unit: str) -> int | float:
    """Convert the same from the text of `INTERVAL`, which has the unit, or is before it."""
    number, _, own = text.strip().partition(" ")
    if not own:
        number, own = (digits := number.rstrip(ascii_letters)), number[len(digits) :]
    if not (own or unit):
        raise BadLiteral(f"INTERVAL '{text[:60]}' has no unit: write one, such as INTERVAL '15 minutes'")
    return distance_from_text(type_, number, own.strip() or unit)


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


def _midnight(days: int) -> int:
    micros = days * DAY
    if not INT64_MIN <= micros <= INT64_MAX:
        raise BadLiteral(f"the date {days} days from 1970-01-01 is out of the range of timestamps")
    return micros

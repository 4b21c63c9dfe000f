"""Constants of a definition, a window or a look-up, in the physical form of a column's type. All are read by the readers of rows.

int64 -> int, float64 -> float, timestamp -> microseconds since 1970 UTC, date -> days since 1970, string, uuid -> str, bool -> bool, time
-> microseconds since midnight, bytes -> bytes. Values that do not fit raise `BadLiteral`, whose text says why.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from livejoin.wire.grammar import DAY, INT64_MAX, INT64_MIN, JSON_READERS, TEXT_READERS, Reader, parse_duration, parse_moment, shown
from livejoin.wire.kinds import ByKind, digits_of
from livejoin.wire.values.texts import HEX

_UNIT_MICROS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": DAY, "week": 7 * DAY,
}  # fmt: skip
_SHORT_UNITS = {"sec": "second", "min": "minute", "hr": "hour", "h": "hour", "d": "day", "w": "week"}
_UNIT_MONTHS = {"month": 1, "mon": 1, "quarter": 3, "year": 12, "yr": 12, "y": 12}
_INTERVAL_PART = re.compile(
    r"\s*([+-]?)\s*(?:([0-9]{1,9}):([0-5]?[0-9])(?::([0-9]{1,2}(?:\.[0-9]*)?))?(?![0-9:a-z])"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*([a-z]+)?(?![0-9_.:]))",
    re.ASCII,
)

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_MOST_DIGITS = 400  # of a number, before and after the point; a float64 has fewer

_WITH_OFFSET = "a timestamp with an offset, such as 2026-01-01T12:00:00Z"  # of rows
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
        said = str(error).replace(_WITH_OFFSET, "a timestamp such as 2026-01-31 12:00, in UTC unless it has an offset")
        raise BadLiteral(f"{said}{hint}") from None
    return read


def number_from(value: Any) -> Fraction:
    """Convert a number, or its text, exactly."""
    text = value if isinstance(value, str) else repr(value)
    try:
        number = Decimal(text if text.isascii() else "")
    except InvalidOperation:
        raise BadLiteral(f"{shown(value)} is not a number") from None
    if not number.is_finite() or not -_MOST_DIGITS <= number.adjusted() <= _MOST_DIGITS:
        raise BadLiteral(f"{shown(value)} is out of range")
    return Fraction(number)


def difference(kind: str, number: Fraction, micros: int) -> Fraction:
    """Return the constant that is added to a column of this kind, in its unit: a number and an interval. A number is microseconds for a
    timestamp, days for a date."""
    digits = digits_of(kind)
    if digits is None and kind not in ("int64", "float64", "timestamp", "date"):
        raise BadLiteral(f"a sum with a constant needs columns of type int64, float64, decimal, timestamp or date, not {kind}")
    if kind not in ("timestamp", "date") and micros:
        raise BadLiteral(f"an INTERVAL is not added to columns of type {kind}")
    if kind in ("timestamp", "date") and number.denominator > 1:
        raise BadLiteral(f"{number} is not a whole number of {'days' if kind == 'date' else 'microseconds'}")
    if digits is not None:
        return number * Fraction(10) ** digits[1]
    return number + (Fraction(micros, DAY) if kind == "date" else micros)


def read_interval(text: str, unit: str = "") -> tuple[int, int]:
    """Return the months and the microseconds of an INTERVAL: `1 day 2 hours`, `-1:30`, `3 hours ago`, `PT15M`, or a number whose
    unit stands behind the text."""
    words = text.strip().lower()
    if words.startswith("p"):
        return 0, _duration(words.upper())
    words, ago = words.removesuffix("ago"), words.endswith("ago")
    months, micros, at = 0, 0, 0
    while not at or words[at:].strip():
        found = _INTERVAL_PART.match(words, at)
        if found is None:
            raise BadLiteral(f"INTERVAL '{text[:60]}': write numbers and units, such as INTERVAL '1 day 15 minutes'")
        sign, hours, minutes, seconds, number, own = found.groups()
        at, factor = found.end(), -1 if (sign == "-") != ago else 1
        if hours is not None:
            micros += factor * _rounded(int(hours) * 3.6e9 + int(minutes) * 6e7 + float(seconds or 0) * 1e6, text)
            continue
        name = (own or unit.lower() if own or not words[at:].strip() else "day" if ":" in words[at:] else "").removesuffix("s")
        if not name:
            raise BadLiteral(f"INTERVAL '{text[:60]}' has no unit: write one, such as INTERVAL '15 minutes'")
        if (some := _UNIT_MONTHS.get(name)) is not None:
            if not (count := float(number) * some).is_integer() or count > 1e6:
                raise BadLiteral(f"INTERVAL '{text[:60]}' is no whole number of months up to a million")
            months += factor * int(count)
        elif (size := _UNIT_MICROS.get(_SHORT_UNITS.get(name, name))) is not None:
            micros += factor * _rounded(float(number) * size, text)
        else:
            raise BadLiteral(f"INTERVAL '{text[:60]}': there is no unit {name[:20]}")
    if not -(2**63) < micros < 2**63:
        raise BadLiteral(f"INTERVAL '{text[:60]}' is out of range")
    return months, micros


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
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

"""Semantic types: what a number or text of a Debezium record means, according to its schema.

Settlers convert a received value to one that the readers of `grammar` accept (null stays null), or to an `Unreadable`. They are exact or
reject the value: only a Decimal in a float64 column is rounded, to the nearest value.

Source: Debezium's documents, "Data type mappings" of the connectors for PostgreSQL, MySQL, SQL Server and Oracle.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from livejoin.wire.grammar import DATE_MAX, DATE_MIN, DAY, INT64_MAX, INT64_MIN, Unreadable, parse_timestamp
from livejoin.wire.kinds import digits_of
from livejoin.wire.values.open_ends import EARLY, LATE


class SemanticType(NamedTuple):
    """A field's semantic type; `scale` is the number of decimals that the schema gives to a Decimal."""

    name: str
    scale: int | None


Semantics = Mapping[str, SemanticType | None]  # of all fields of a schema; empty without one
Settler = Callable[[Any], Any]

NO_SEMANTICS: Semantics = {}

_TIME = "io.debezium.time."
_CONNECT = "org.apache.kafka.connect.data."
# Microseconds per unit of the field's number; only Nano is finer.
_UNITS = {
    _TIME + "Timestamp": 1_000,
    _TIME + "MicroTimestamp": 1,
    _TIME + "Date": DAY,
    _CONNECT + "Timestamp": 1_000,
    _CONNECT + "Date": DAY,
}
_NANO = _TIME + "NanoTimestamp"
_NANO_OF_DAY = _TIME + "NanoTime"
_UNITS_OF_DAY = {_TIME + "Time": 1_000, _TIME + "MicroTime": 1, _CONNECT + "Time": 1_000}
_TEXTS_OF_DAY = (_TIME + "IsoTime", _TIME + "ZonedTime")
_TEXTS = (_TIME + "IsoDate", _TIME + "IsoTimestamp", _TIME + "ZonedTimestamp")
# What PostgreSQL's connector sends for infinity and -infinity: the ends of the number's type; those of `PGStatement` in the JDBC driver, as
# the connector's documents have them, and in milliseconds; and of dates some that have overflowed, a pair from the log and two from a
# snapshot, where Java's zone is UTC or west of it, or east. None of them is a date that PostgreSQL has.
_MICROS = {INT64_MAX: LATE, INT64_MIN: EARLY, 9223372036825200000: LATE, -9223372036832400000: EARLY}
_MILLIS = _MICROS | {micros // 1_000: word for micros, word in _MICROS.items()}
_DAYS = {DATE_MAX: LATE, DATE_MIN: EARLY, -2147472692: LATE, -2147472691: EARLY} | {
    -622191234: LATE, -622191233: LATE, -625821272: EARLY, -625821271: EARLY,
}  # fmt: skip
_OPEN_TEXTS = {
    "-5877611-06-21Z": LATE, "+292278994-08-16Z": LATE, "+292278994-08-17Z": LATE, "+294247-01-10T04:00:25.2Z": LATE,
    "-5877611-06-22Z": EARLY, "+292269055-12-02Z": EARLY, "+292269055-12-03Z": EARLY, "-290308-12-21T19:59:27.6Z": EARLY,
}  # fmt: skip
_OPEN_BY_UNIT: Mapping[int, Mapping[Any, str]] = {1_000: _MILLIS | _OPEN_TEXTS, 1: _MICROS | _OPEN_TEXTS, DAY: _DAYS | _OPEN_TEXTS}
_OPEN_ENDS = frozenset(value for values in _OPEN_BY_UNIT.values() for value in values)
_DECIMALS = (_CONNECT + "Decimal", "io.debezium.data.VariableScaleDecimal")
_MOST_DIGITS = 1_000  # of a Decimal: an external scale must not make us write a billion zeros


def structs_of(schema: Any) -> Mapping[str, Semantics]:
    """Return the semantics of `before` and `after`, from an envelope's schema; a single object if they are alike, as is usual."""
    structs: dict[str, Semantics] = {}
    for field in _fields(schema):
        if (name := field.get("field")) == "before" or name == "after":
            own = semantics_of(field)
            structs[name] = next((known for known in structs.values() if known == own), own)
    return structs


def semantics_of(struct: Any) -> Semantics:
    """Return the semantics of a struct's fields, from its schema."""
    found: dict[str, SemanticType | None] = {}
    for field in _fields(struct):
        name, semantic = field.get("field"), field.get("name")
        if type(name) is str:
            found[name] = SemanticType(semantic, _scale_of(field.get("parameters"))) if type(semantic) is str else None
    return found


def _fields(schema: Any) -> list[dict[str, Any]]:
    fields = schema.get("fields") if type(schema) is dict else None
    return [field for field in fields if type(field) is dict] if type(fields) is list else []


def _scale_of(parameters: Any) -> int | None:
    scale = parameters.get("scale") if type(parameters) is dict else None
    return int(scale) if type(scale) is str and len(scale) <= 5 and scale.removeprefix("-").isdecimal() else None


def has_open_ends(values: list[Any]) -> bool:
    """Return whether some of these may be infinite times."""
    try:
        return not _OPEN_ENDS.isdisjoint(values)
    except TypeError:  # a list or an object cannot be looked up
        return True


def settler(kind: str, semantic: SemanticType | None, open_ends: bool = False) -> Settler | None:
    """Return the function that converts values of a semantic type to those of a column's type; None: no conversion. `open_ends`: infinite
    times become `infinity` and `-infinity`."""
    settle = _settler(kind, semantic)
    words = _words_of(kind, semantic) if open_ends else None
    if not words:
        return settle

    def settle_open(value: Any) -> Any:
        word = words.get(value) if type(value) is int or type(value) is str else None
        return word or (settle(value) if settle else value)

    return settle_open


def _words_of(kind: str, semantic: SemanticType | None) -> Mapping[Any, str]:
    """Return the infinite times of a semantic type, for a column of times or dates."""
    name = semantic.name if semantic else ""
    if _is_no_date(name):
        return {}
    return _OPEN_BY_UNIT[_UNITS.get(name) or (1 if name == _NANO or kind == "timestamp" else DAY)]


def _is_no_date(name: str) -> bool:
    """Return whether the type is a time of day, a duration, a year: as a number, it would be read as microseconds or days."""
    if name == _NANO or name in _UNITS or name in _TEXTS:
        return False
    return name.startswith(_TIME) or name == _CONNECT + "Time"


def _settler(kind: str, semantic: SemanticType | None) -> Settler | None:
    if semantic is None:
        return None
    name = semantic.name
    if name in _DECIMALS:
        return lambda value: _settle_decimal(value, kind, semantic.scale)
    if kind == "time":
        return _settler_of_day(name)
    if kind not in ("timestamp", "date"):
        return None
    if name == _NANO:
        return lambda value: _scaled(value, kind, 1, 1_000)
    if unit := _UNITS.get(name):
        if kind == "timestamp":
            return None if unit == 1 else lambda value: value * unit if type(value) is int else value
        return None if unit == DAY else lambda value: _scaled(value, kind, unit, 1)
    if name in _TEXTS:
        return _date_of_text if kind == "date" else None
    return _refused(name, kind) if _is_no_date(name) else None


def _settler_of_day(name: str) -> Settler | None:
    """Like `settler`, for a time of day."""
    if name == _NANO_OF_DAY:
        return lambda value: _scaled(value, "time", 1, 1_000)
    if unit := _UNITS_OF_DAY.get(name):
        return None if unit == 1 else lambda value: value * unit if type(value) is int else value
    if name in _TEXTS_OF_DAY:  # these have an offset, which is UTC
        return lambda value: value.removesuffix("Z") if type(value) is str else value
    return _refused(name, "time") if name.startswith(_TIME) or name in _UNITS else None


def _refused(name: str, kind: str) -> Settler:
    refusal = Unreadable(f"got a {name}, expected a {kind}")
    return lambda value: None if value is None else refusal


def _scaled(value: Any, kind: str, times: int, by: int) -> Any:
    """Return a number in another unit, exactly or not at all."""
    if type(value) is not int:
        return value
    micros, rest = divmod(value * times, by)
    if rest:
        return Unreadable(f"{value} nanoseconds are not a whole number of microseconds")
    if kind != "date":
        return micros
    days, rest = divmod(micros, DAY)
    return Unreadable(f"{value} is not midnight") if rest else days


def _date_of_text(value: Any) -> Any:
    """Convert Debezium's ISO texts, in which dates have an offset too: `2026-01-01Z`."""
    if type(value) is not str:
        return value
    if "T" not in value:
        return value.removesuffix("Z")
    try:
        return _scaled(parse_timestamp(value), "date", 1, 1)
    except ValueError:
        return value


def _settle_decimal(value: Any, kind: str, scale: Any) -> Any:
    """Convert a Decimal: the bytes of an integer in base64 (big-endian, two's complement) and a scale; or a number, depending on the
    converter's decimal.format."""
    if type(value) is dict and type(value.get("value")) is str:  # VariableScaleDecimal: each value has its own scale
        value, scale = value.get("value"), value.get("scale")
    if type(value) is float and kind == "int64" and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if type(value) is not str:
        return value
    number = _decimal(value, scale)
    if number is None:
        return Unreadable("got a Decimal without its scale: set the connector's decimal.handling.mode to double, or send schemas")
    if digits_of(kind):
        return number
    if kind == "float64":
        return float(number) if math.isfinite(float(number)) else Unreadable(f"got {number:.9g}, which float64 cannot hold")
    if kind == "string":
        return format(number, "f")
    if kind == "int64":
        return int(number) if number == number.to_integral_value() else Unreadable(f"got {number:.9g}, expected a 64-bit integer")
    return Unreadable(f"got the number {number:.9g}, expected a {kind}")


def _decimal(text: str, scale: Any) -> Decimal | None:
    """Return the number of a Decimal's bytes; None if they are invalid, or far too long."""
    if type(scale) is not int or abs(scale) > _MOST_DIGITS or len(text) > _MOST_DIGITS:
        return None
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    if not raw:
        return None
    unscaled = int.from_bytes(raw, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

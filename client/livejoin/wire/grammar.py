"""The grammar of single values: timestamps and dates as text, and the values of each type in JSON and in texts.

A value has the same reader wherever it is sent: in a row of any format, and as a constant (`service/query/literals.py`). Readers take a
value that is not null, return the physical one (timestamps: microseconds since 1970 UTC, dates: days), and raise ValueError with a reason
for a human: the value received, and the one expected. They are the slow and exact path; `columns` converts whole columns where
it can, and uses these for the values that fail.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from string import whitespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import ByKind, decimal_kind
from livejoin.wire.values.json_texts import fault_of_json
from livejoin.wire.values.local_times import local_times
from livejoin.wire.values.texts import bytes_of, canonical_uuid

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
DATE_MIN, DATE_MAX = -(2**31), 2**31 - 1
DAY = 86_400_000_000  # microseconds
# The calendar repeats every 400 years, so that of any year is the one of a year from 2000 to 2399.
_ERA = 146_097  # days
_EPOCH, _OF_2000 = date(1970, 1, 1).toordinal(), date(2000, 1, 1).toordinal()

# Years 0000 to 9999 are written without a sign, all others with one, as in ISO 8601.
_PLAIN_DAYS = (-719_528, 2_932_896)


def _form(pattern: str) -> re.Pattern[str]:
    """Return the form of a value. As in PostgreSQL, white space around it is ignored."""
    return re.compile(rf"\s*(?:{pattern})\s*", re.ASCII)


# With or without hyphens; after a sign with them, as it would not be known where the year ends.
_DATE = r"([+-][0-9]{4,7}(?=-)|[0-9]{4})(-?)([0-9]{2})\2([0-9]{2})"
_DATE_FORM = _form(_DATE)
_TIME = r"([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2})(?:\.([0-9]+))?)?)? ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
_TIMESTAMP_FORM = _form(f"{_DATE}(?:[Tt ]{_TIME})?")
_TIME_FORM = _form(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?")
_INT_FORM = _form(r"[+-]?[0-9]+")
# Each text matches in one way only: with a second way, a long text that is not a number would take quadratic time.
_FLOAT_FORM = _form(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

_LONGEST_DECIMAL = 60  # characters
_FLOAT_DIGITS = 15  # of a decimal number that a float64 preserves

# In texts, in upper and lower case, as in PostgreSQL.
_TRUTH = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True), **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}  # fmt: skip
_FLOATS = {text: float(text) for text in ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")}
NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
WANTED: ByKind[str] = ByKind(
    {
        "int64": "a 64-bit integer",
        "float64": 'a number, "NaN", "Infinity" or "-Infinity"',
        "timestamp": "a timestamp with an offset, such as 2026-01-01T12:00:00Z, or in JSON an integer of microseconds since 1970 UTC",
        "date": "a date such as 2026-01-01",
        "string": "text",
        "bool": "true or false",
        "uuid": "a UUID such as 3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "time": "a time of day such as 12:00:00, before 24:00, or in JSON an integer of microseconds since midnight",
        "json": "JSON as text",
        "bytes": "bytes in base64, or hexadecimal digits after \\x",
    },
    lambda precision, scale: f"a decimal of at most {precision - scale} digits before the point and {scale} after it",
)

Reader = Callable[[Any], Any]


class Unreadable:
    """Stands for a value that is known to be bad before its type is examined (see `debezium`)."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def refusal(kind: str, value: object, why: str = "") -> ValueError:
    """Return the error for a value that is not a `kind`."""
    if isinstance(value, Unreadable):
        return ValueError(value.reason)
    return ValueError(f"got {shown(value)}{why}, expected {WANTED[kind]}")


def shown(value: object) -> str:
    """Return a value as shown in messages: as in JSON, shortened."""
    if isinstance(value, str):
        return f'the text "{value}"' if len(value) <= 60 else f'the text "{value[:60]}…"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)


def _days(kind: str, text: str, year: str, month: str, day: str) -> int:
    """Return the days since 1970-01-01 of a date, in a text, of the proleptic Gregorian calendar; ValueError if there is no such day."""
    era, of_era = divmod(int(year), 400)
    try:
        return (era - 5) * _ERA + date(2000 + of_era, int(month), int(day)).toordinal() - _EPOCH
    except ValueError:
        raise refusal(kind, text, " (no such day)") from None


def parse_date(text: str) -> int:
    """Return days since 1970-01-01; ValueError if the text is not a date."""
    match = _DATE_FORM.fullmatch(text)
    if match is None:
        raise refusal("date", text)
    days = _days("date", text, match[1], match[3], match[4])
    if not DATE_MIN <= days <= DATE_MAX:
        raise refusal("date", text, " (out of range)")
    return days


_DURATION = _form(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,6})?)S)?)?")


def parse_duration(text: str) -> int:
    """Return an ISO 8601 duration without months and years, in microseconds. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not an ISO 8601 duration of weeks, days, hours, minutes and seconds, such as PT15M or P1DT12H")
    seconds = sum(float(part) * size for part, size in zip(found.groups("0"), (604_800, 86_400, 3_600, 60), strict=False))
    if not math.isfinite(seconds):
        raise ValueError(f"{text[:60]} is out of range")
    return round(seconds * 1_000_000) + round(float(found[5] or 0) * 1_000_000)


def parse_timestamp(text: str) -> int:
    """Return microseconds since 1970 UTC; ValueError otherwise, also for times that microseconds cannot represent exactly."""
    micros, has_offset = parse_moment(text)
    if not has_offset:
        raise refusal("timestamp", text, ' (without an offset: write one, or give the column a "zone")')
    return micros


def parse_moment(text: str) -> tuple[int, bool]:
    """Return microseconds since 1970, and whether they are in UTC; otherwise the time is local. A date is its midnight."""
    match = _TIMESTAMP_FORM.fullmatch(text)
    if match is None:
        raise refusal("timestamp", text)
    year, _, month, day, hour, minute, second, fraction, offset = match.groups()
    days = _days("timestamp", text, year, month, day)
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    away = 0
    if offset is not None and offset not in "Zz":
        away = int(offset[1:3]) * 60 + int(offset[3:].lstrip(":") or 0)
        away = -away if offset[0] == "-" else away
    if h > 23 or m > 59 or s > 59 or abs(away) >= 24 * 60 or int(offset[-2:] if offset and len(offset) > 3 else 0) > 59:
        raise refusal("timestamp", text, " (no such time)")
    fraction = (fraction or "").ljust(6, "0")
    if fraction[6:].strip("0"):
        raise refusal("timestamp", text, " (finer than a microsecond)")
    micros = days * DAY + ((h * 60 + m - away) * 60 + s) * 1_000_000 + int(fraction[:6])
    if not INT64_MIN <= micros <= INT64_MAX:
        raise refusal("timestamp", text, " (out of range)")
    return micros, offset is not None


def parse_time(text: str) -> int:
    """Return microseconds since midnight; ValueError otherwise, also for times that microseconds cannot represent exactly."""
    match = _TIME_FORM.fullmatch(text)
    if match is None:
        raise refusal("time", text)
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise refusal("time", text, " (no such time)")
    fraction = (match[4] or "").ljust(6, "0")
    if fraction[6:].strip("0"):
        raise refusal("time", text, " (finer than a microsecond)")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction[:6])


def _read_int(value: Any) -> int:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise refusal("int64", value)
    return value


def _read_float(value: Any) -> float:
    if type(value) is float or type(value) is int:
        return float(value)
    if type(value) is str and value in NOT_FINITE:
        return NOT_FINITE[value]
    raise refusal("float64", value)


def _read_timestamp(value: Any) -> int:
    if type(value) is str:
        return parse_timestamp(value)
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise refusal("timestamp", value)
    return value


class ZonedReader:
    """Reads timestamps; those without an offset are local times of a zone; with `numbers`, so are integers."""

    def __init__(self, zone: str, read: Reader, numbers: bool = False) -> None:
        self.local = local_times(zone)
        self.numbers = numbers
        self._read = read

    def __call__(self, value: Any) -> int:
        if (micros := self._local(value)) is not None:
            try:
                return self.local.utc(micros)
            except ValueError as error:
                raise refusal("timestamp", value, f" ({error})") from None
        return int(self._read(value))

    def is_unclear(self, value: Any) -> bool:
        """Return whether a readable value is a local time that does not exist, or exists twice."""
        try:
            return (micros := self._local(value)) is not None and self.local.is_unclear(micros)
        except ValueError:
            return False

    def _local(self, value: Any) -> int | None:
        """Return the microseconds of a local time; None for other values."""
        if type(value) is int:
            return value if self.numbers and INT64_MIN <= value <= INT64_MAX else None
        if type(value) is not str:
            return None
        micros, has_offset = parse_moment(value)
        return None if has_offset else micros


def _read_date(value: Any) -> int:
    if type(value) is not str:
        raise refusal("date", value)
    return parse_date(value)


def read_day_number(value: Any) -> int:
    """Read a date as Debezium writes it: days since 1970-01-01, or text."""
    if type(value) is not int:
        return _read_date(value)
    if not DATE_MIN <= value <= DATE_MAX:
        raise refusal("date", value, " (as days, out of range)")
    return value


def _read_string(value: Any) -> str:
    if type(value) is not str:
        raise refusal("string", value)
    return value


def _read_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise refusal("bool", value)
    return value


def _read_uuid(value: Any) -> str:
    uuid = canonical_uuid(value.strip(whitespace)) if type(value) is str else None
    if uuid is None:
        raise refusal("uuid", value)
    return uuid


def _read_time(value: Any) -> int:
    if type(value) is str:
        return parse_time(value)
    if type(value) is not int or not 0 <= value < DAY:
        raise refusal("time", value)
    return value


def _read_json(value: Any) -> str:
    if type(value) is not str:
        raise refusal("json", value)
    if (fault := fault_of_json(value)) is not None:
        raise refusal("json", value, f" ({fault})")
    return value


def _read_bytes(value: Any) -> bytes:
    read = bytes_of(value) if type(value) is str else None
    if read is None:
        raise refusal("bytes", value)
    return read


def read_decimal(precision: int, scale: int) -> Reader:
    """Return the reader of decimals: texts and numbers -> the unscaled integer. Nothing is rounded: other digits are rejected."""
    kind = decimal_kind(precision, scale)

    def read(value: Any) -> int:
        if type(value) is str and len(value) <= _LONGEST_DECIMAL and _FLOAT_FORM.fullmatch(value):
            try:
                number = Decimal(value)
            except InvalidOperation:  # an exponent beyond the library's limits
                raise refusal(kind, value, " (out of range)") from None
        elif type(value) is int and abs(value) <= INT64_MAX:
            number = Decimal(value)
        elif type(value) is Decimal:
            number = value
        elif type(value) is float and value - value == 0.0:
            number = Decimal(repr(value))  # the shortest text of this float: as it was written, if it had up to 15 digits
            if len(number.as_tuple().digits) > _FLOAT_DIGITS:
                raise refusal(kind, value, f" (a number of more than {_FLOAT_DIGITS} digits may have lost some: send it as text)")
        else:
            raise refusal(kind, value)
        sign, digits, exponent = number.as_tuple()
        if not number:
            return 0
        if not isinstance(exponent, int) or number.adjusted() >= precision - scale:
            raise refusal(kind, _plain(value), " (out of range)")
        whole, up = int("".join(map(str, digits))), exponent + scale
        whole, rest = (whole * int(10**up), 0) if up >= 0 else divmod(whole, int(10 ** min(-up, _LONGEST_DECIMAL)))
        if rest:
            raise refusal(kind, _plain(value), " (finer than its scale)")
        return -whole if sign else whole

    return read


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


JSON_READERS: ByKind[Reader] = ByKind(
    {
        "int64": _read_int,
        "float64": _read_float,
        "timestamp": _read_timestamp,
        "date": _read_date,
        "string": _read_string,
        "bool": _read_bool,
        "uuid": _read_uuid,
        "time": _read_time,
        "json": _read_json,
        "bytes": _read_bytes,
    },
    read_decimal,
    lambda zone: ZonedReader(zone, _read_timestamp),
)


def _text_int(text: str) -> int:
    # The length is checked first: int() of a very long text is slow.
    if len(text) > 40 or not _INT_FORM.fullmatch(text) or not INT64_MIN <= int(text) <= INT64_MAX:
        raise refusal("int64", text)
    return int(text)


def _text_float(text: str) -> float:
    if (word := _FLOATS.get(text.strip(whitespace).lower())) is not None:
        return word
    if not _FLOAT_FORM.fullmatch(text) or math.isinf(read := float(text)):
        raise refusal("float64", text)
    return read


def _text_bool(text: str) -> bool:
    read = _TRUTH.get(text.strip(whitespace).lower())
    if read is None:
        raise refusal("bool", text)
    return read


# Where all values are texts: CSV, SQL, parameters. Numbers and truth values are texts only there.
TEXT_READERS: ByKind[Reader] = ByKind(
    {**JSON_READERS, "int64": _text_int, "float64": _text_float, "bool": _text_bool},
    read_decimal,
    lambda zone: ZonedReader(zone, _read_timestamp),
)


def _date_text(days: int) -> str:
    """Return any day as text: the inverse of `_days`."""
    eras, of_era = divmod(days + _EPOCH - _OF_2000, _ERA)
    one = date.fromordinal(_OF_2000 + of_era)
    year, rest = one.year + 400 * eras, one.isoformat()[4:]
    return f"{year:04d}{rest}" if 0 <= year <= 9999 else f"{year:+07d}{rest}"


def timestamp_text(micros: int) -> str:
    """Return a timestamp, any int64, as text: `2026-01-01T12:00:00Z`, with six decimals if the fraction is not zero."""
    days, rest = divmod(micros, DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    tail = f".{fraction:06d}Z" if fraction else "Z"
    return f"{_date_text(days)}T{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}{tail}"


def _physical(array: pa.Array, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return the numbers of a fixed-width column without nulls, without a copy."""
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def date_texts(array: pa.Array) -> pa.Array:
    """Convert a date32 column to text."""
    days = _physical(array.fill_null(0), np.int32)
    if not len(days) or (days.min() >= _PLAIN_DAYS[0] and days.max() <= _PLAIN_DAYS[1]):
        return array.cast(pa.utf8())
    return pa.array([None if day is None else _date_text(day) for day in array.cast(pa.int32()).to_pylist()], pa.utf8())


def time_texts(array: pa.Array) -> pa.Array:
    """Convert a time64[us] column to text, with six decimals if the fraction is not zero."""
    texts = array.cast(pa.utf8())  # always with six decimals
    if not len(array):
        return texts
    broken = _physical(array.fill_null(0), np.int64) % 1_000_000 != 0
    if broken.all():
        return texts
    short = pa.compute.utf8_slice_codeunits(texts, 0, 8)
    return pa.compute.if_else(pa.array(broken), texts, short) if broken.any() else short


def timestamp_texts(array: pa.Array) -> pa.Array:
    """Convert a timestamp[us, UTC] column to text."""
    if not len(array):
        return pa.array([], pa.utf8())
    full = array.fill_null(0)
    micros = _physical(full, np.int64)
    if micros.min() < _PLAIN_DAYS[0] * DAY or micros.max() >= (_PLAIN_DAYS[1] + 1) * DAY:
        return pa.array([None if m is None else timestamp_text(m) for m in array.cast(pa.int64()).to_pylist()], pa.utf8())
    broken = (micros % 1_000_000) != 0
    if not broken.any():
        texts = _iso(full, "s", 20)
    elif broken.all():
        texts = _iso(full, "us", 27)
    else:
        texts = pa.compute.if_else(pa.array(broken), _iso(full, "us", 27), _iso(full, "s", 20))
    return texts if array.null_count == 0 else pa.compute.if_else(array.is_valid(), texts, None)


def decimal_texts(array: pa.Array) -> pa.Array:
    """Convert a decimal128 column to text, with all digits of the scale. Arrow would write 0.00000001 as 1E-8."""
    scale = array.type.scale
    if array.type.precision > 19:  # more than an int64 holds
        return _wide_decimal_texts(array)
    digits = array.view(pa.decimal128(38, 0)).cast(pa.int64())
    if scale == 0:
        return digits.cast(pa.utf8())
    numbers = np.asarray(digits.fill_null(0))
    size = np.abs(numbers).astype(np.uint64)
    whole, rest = (pa.array(part).cast(pa.utf8()) for part in np.divmod(size, np.uint64(10**scale)))
    sign = pa.array(np.where(numbers < 0, "-", ""))
    texts = pa.compute.binary_join_element_wise(sign, whole, ".", pa.compute.utf8_lpad(rest, scale, "0"), "")
    # The last argument is the separator between the parts, the empty text.
    return texts if array.null_count == 0 else pa.compute.if_else(array.is_valid(), texts, None)


def _wide_decimal_texts(array: pa.Array) -> pa.Array:
    scale, compute = array.type.scale, pa.compute
    digits = array.view(pa.decimal128(38, 0)).cast(pa.utf8())
    if scale == 0:
        return digits
    sign = compute.if_else(compute.starts_with(digits, "-"), "-", "")
    size = compute.utf8_lpad(compute.utf8_ltrim(digits, "-"), scale + 1, "0")
    whole, rest = compute.utf8_slice_codeunits(size, 0, -scale), compute.utf8_slice_codeunits(size, -scale)
    return compute.binary_join_element_wise(sign, whole, ".", rest, "")


def _iso(array: pa.Array, unit: str, width: int) -> pa.Array:
    """Convert timestamps to ISO 8601. Arrow writes those without a zone quickly (30 times as fast as with one), but with a blank before the
    time.

    Every text has the same width, so T and Z are written into a matrix of bytes.
    """
    texts = array.view(pa.timestamp("us")).cast(pa.timestamp(unit), safe=False).cast(pa.utf8())
    matrix = np.empty((len(array), width), np.uint8)
    matrix[:, :-1] = np.frombuffer(texts.buffers()[2], np.uint8, len(array) * (width - 1)).reshape(-1, width - 1)
    matrix[:, 10] = ord("T")
    matrix[:, -1] = ord("Z")
    offsets = np.arange(0, (len(array) + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(array), pa.py_buffer(offsets), pa.py_buffer(matrix))

"""CAST: every pair of types over the values at their edges, and quotients of decimals, against exact arithmetic."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.views.parse import parse_view
from tests.service.definitions import evaluate

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
EXACT = Context(prec=500)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DIGITS = {"e": (18, 0), "c": (12, 2), "g": (18, 18)}
COLUMNS = {
    "i": "int64", "f": "float64", "t": "string", "b": "bool", "w": "timestamp", "d": "date", "h": "time", "u": "uuid", "j": "json",
    "x": "bytes",
}  # fmt: skip
T = parse_relation(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            *({"name": name, "type": type_, "nullable": True} for name, type_ in COLUMNS.items()),
            *({"name": name, "type": "decimal", "precision": p, "scale": s, "nullable": True} for name, (p, s) in DIGITS.items()),
        ],
        "key": ["id"],
    }
)
KINDS = COLUMNS | {name: f"decimal({p},{s})" for name, (p, s) in DIGITS.items()}
WIDE = "(e::decimal(19, 0) * 12345678901234567)"  # 37 digits
TARGETS = {
    "bigint": "int64", "double precision": "float64", "text": "string", "boolean": "bool", "timestamptz": "timestamp", "date": "date",
    "decimal(38, 0)": "decimal", "decimal(38, 20)": "decimal", "decimal(4, 1)": "decimal", "decimal(1, 1)": "decimal",
    "time": "time", "uuid": "uuid", "json": "json", "bytea": "bytes",
}  # fmt: skip
POSSIBLE = {
    ("int64", "int64"), ("int64", "float64"), ("int64", "decimal"), ("int64", "string"),
    ("float64", "int64"), ("float64", "float64"), ("float64", "decimal"),
    ("decimal", "int64"), ("decimal", "float64"), ("decimal", "decimal"), ("decimal", "string"),
    ("string", "int64"), ("string", "float64"), ("string", "decimal"), ("string", "timestamp"), ("string", "date"), ("string", "bool"),
    ("string", "string"), ("timestamp", "timestamp"), ("timestamp", "date"), ("timestamp", "string"),
    ("date", "date"), ("date", "timestamp"), ("date", "string"), ("bool", "bool"), ("bool", "int64"), ("bool", "string"),
    ("json", "string"), ("timestamp", "time"), ("time", "time"), ("time", "string"), ("uuid", "string"), ("uuid", "uuid"),
    ("bytes", "bytes"),
}  # fmt: skip
"""As docs/reference/sql.md says."""

TEXTS = (
    "", " ", "1", "+1", "-0", " 12 ", "\t7\n", "1_000", "٣", "１２", "\u00a012", "1\u200b", "12:00", "0x10", "1e3", "1.", ".5", "1.05",
    "-0.25", "0.95", "1e400", "1e-400", "NaN", "-nan", "Infinity", "-inf", "infinit", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "9" * 38, "9" * 39, "1" * 5000,
    "true", "T", "yes", "no", "0", "on", "tru", "20240101", "2024-01-01",
    "2024-02-30", "2024-1-1", "2024-01-01T00:00:00Z", "2024-01-01 12:30+02", "2024-01-01 12:30", "٢٠٢٤-٠١-٠١", "+1-01-01",
    "infinity", "soon",
)  # fmt: skip
_BLANK, _NUMBER = r"[ \t\n\r\f\v]*", r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?"


def half_away(value: Fraction, scale: int) -> Decimal:
    times = value * 10**scale
    whole = math.floor(abs(times) + Fraction(1, 2))
    return Decimal(-whole if times < 0 else whole).scaleb(-scale, EXACT)


def in_int64(number: int) -> int | None:
    return number if INT64_MIN <= number <= INT64_MAX else None


def number_to(value: int | float | Decimal, target: str) -> Any:
    """What a number is in another type: `target` as in TARGETS."""
    finite = not isinstance(value, float) or math.isfinite(value)
    if target == "double precision":
        return value if isinstance(value, float) else float(Fraction(value))
    if not finite:
        return None
    if target == "bigint":
        return in_int64(round(Fraction(value)) if isinstance(value, float) else int(half_away(Fraction(value), 0)))
    p, s = map(int, re.findall(r"[0-9]+", target))
    made = half_away(Fraction(repr(value)) if isinstance(value, float) else Fraction(value), s)
    return made if made.copy_abs() < Decimal(10) ** (p - s) else None


def text_to(text: str, target: str) -> Any:
    """What PostgreSQL reads, or null: ASCII alone, with white space around; fractions are not rounded to whole numbers."""
    found = re.fullmatch(f"{_BLANK}(.*?){_BLANK}", text, re.DOTALL)
    assert found is not None
    trimmed = found[1]
    number = re.fullmatch(_NUMBER, trimmed, re.IGNORECASE)
    if target == "text":
        return text
    if target == "bigint":
        return in_int64(int(trimmed)) if len(trimmed) < 100 and re.fullmatch("[+-]?[0-9]+", trimmed) else None
    if target == "double precision":
        if re.fullmatch("nan|[+-]?inf(inity)?", trimmed, re.IGNORECASE):
            return float(trimmed)
        return float(trimmed) if number and math.isfinite(float(trimmed)) else None
    if target.startswith("decimal"):
        p, s = map(int, re.findall(r"[0-9]+", target))
        if not number or len(trimmed) > 60:
            return None
        made = half_away(Fraction(trimmed), s)
        return made if made.copy_abs() < Decimal(10) ** (p - s) else None
    if target == "boolean":
        words = {True: ("true", "t", "yes", "y", "on", "1"), False: ("false", "f", "no", "n", "off", "0")}
        return next((value for value, some in words.items() if trimmed.lower() in some), None)
    days = {"20240101": "2024-01-01", "2024-01-01": "2024-01-01"}
    moments = {"2024-01-01T00:00:00Z": 0, "2024-01-01 12:30+02": 630, "2024-01-01 12:30": 750}
    if target == "date":
        return date.fromisoformat(days[trimmed]) if trimmed in days else None
    minutes = 0 if trimmed in days else moments.get(trimmed)
    return None if minutes is None else datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)


VALUES: dict[str, tuple[Any, ...]] = {
    "i": (0, 1, -1, 5, 95, -95, 999, 1000, 2**53 + 1, -(2**53) - 1, INT64_MAX, INT64_MIN),
    "f": (
        0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.05, 0.15, 0.25, -0.25, 0.145, 0.94, 0.95, 999.94, 999.95, -999.95, 1e15, 2.0**53,
        2.0**63, -(2.0**63), 9.3e18, 1e37, 1e38, 1.7e308, 5e-324, 1e-20, 5e-21, 4e-21, 0.1, 1 / 3, math.nan, math.inf, -math.inf,
    ),
    "e": (0, 1, -1, 5, 999, 1000, 10**18 - 1, -(10**18) + 1, 2**53 + 1, 747),
    "c": tuple(map(Decimal, ("0", "0.5", "-0.5", "0.49", "1.5", "2.5", "-2.5", "0.95", "999.94", "999.95", "-99999.90", "9999999999.99"))),
    "g": tuple(map(Decimal, ("0.5", "-0.5", "0.499999999999999999", "0.05", "0.95", "0.949999999999999999", "0.1", "1e-18"))),
    "t": TEXTS,
    "b": (True, False),
    "w": tuple(
        EPOCH + timedelta(microseconds=micros) for micros in (0, -1, 86_399_999_999, 86_400_000_000, -86_400_000_001, 1_234_567_890_123_456)
    ),
    "d": (date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)),
    "h": (time(1, 2, 3),),
    "u": ("3f2504e0-4f89-41d3-9a0c-0305e82c3301",),
    "j": ('{"a": 1.10}', " 1e400 "),
    "x": (b"\x00\xff",),
}  # fmt: skip


def converted(kind: str, value: Any, target: str) -> Any:
    if kind in ("int64", "float64") or kind.startswith("decimal"):
        if target != "text":
            return number_to(value, target)
        return str(value) if kind == "int64" else f"{Decimal(value):.{kind[:-1].split(',')[1]}f}"
    if kind == "string":
        return text_to(value, target)
    if target == "text":
        texts: dict[str, Callable[[Any], str]] = {
            "bool": lambda one: str(one).lower(), "date": date.isoformat, "json": str, "uuid": str, "time": time.isoformat,
            "timestamp": lambda one: one.isoformat(timespec="microseconds" if one.microsecond else "seconds").replace("+00:00", "Z"),
        }  # fmt: skip
        return texts[kind](value)
    if kind == "timestamp" and target in ("date", "time"):
        return value.date() if target == "date" else value.time()
    if (kind, target) == ("date", "timestamptz"):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return int(value) if (kind, target) == ("bool", "bigint") else value


def stored(name: str, value: Any) -> Any:
    return int(Decimal(value).scaleb(DIGITS[name][1], EXACT)) if name in DIGITS and value is not None else value


def cast_of(values: dict[str, tuple[Any, ...]], expression: str) -> list[Any]:
    """The values of an expression over rows with these columns, the others null."""
    count = len(next(iter(values.values())))
    rows = [{name: stored(name, some[at]) for name, some in values.items()} | {"id": at} for at in range(count)]
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(T.arrow_schema().names) | row for row in rows], schema=T.arrow_schema())
    view = parse_view("v", {"sql": f"SELECT id, {expression} AS x FROM t"}, {"t": T})
    return [x for _, x in evaluate(view, {"t": T}, {"t": batch})]


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return found == wanted or (math.isnan(found) and math.isnan(wanted))
    return type(found) is type(wanted) and bool(found == wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KINDS)
def test_every_pair(name: str, target: str) -> None:
    kind = KINDS[name]
    if (kind.partition("(")[0], TARGETS[target]) not in POSSIBLE:
        with pytest.raises(Problem) as caught:
            cast_of({name: (None,)}, f"CAST({name} AS {target})")
        assert caught.value.type == "unsupported-query" and "cast" in str(caught.value.detail)
        return
    values = (*VALUES[name], None)
    found = cast_of({name: values}, f"CAST({name} AS {target})")
    expected = [None if value is None else converted(kind, value, target) for value in values]
    wrong = [(value, x, y) for value, x, y in zip(values, found, expected, strict=True) if not same(x, y)]
    assert not wrong, f"(value, found, expected) of {name}::{target}: {wrong}"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("i", (-(2**15) - 1, -(2**15), 0, 2**15 - 1, 2**15, INT64_MIN, None)),
        ("f", (-32768.5, -32768.51, 32767.49, 32767.5, math.nan, None)),
        ("t", ("32767", "32768", " -32768", "-32769", "x", None)),
    ],
)
def test_smallint(name: str, values: tuple[Any, ...]) -> None:
    """The value is an int64, and null where PostgreSQL raises an error."""
    whole = cast_of({name: values}, f"{name}::bigint")
    expected = [one if one is not None and -(2**15) <= one < 2**15 else None for one in whole]
    assert cast_of({name: values}, f"{name}::smallint") == expected and len({*expected} - {None}) > 1
    assert cast_of({"i": (1,)}, "'7'::smallint + NULL::smallint") == [None]
    assert cast_of({"i": (1,)}, "'7'::smallint + (-32768)::int2") == [7 - 2**15]


def test_smallint_beside_a_column() -> None:
    made = [parse_view("v", {"sql": f"SELECT id FROM t WHERE i = {one}"}, {"t": T}).query for one in ("5", "5::smallint", "'5'::smallint")]
    assert made[0] == made[1] == made[2]
    with pytest.raises(Problem, match="40000 is outside the range of smallint"):
        parse_view("v", {"sql": "SELECT id FROM t WHERE i = 40000::smallint"}, {"t": T})


@pytest.mark.parametrize("target", ["bigint", "double precision", "decimal(38, 0)", "decimal(38, 1)", "text"])
def test_decimals_of_many_digits(target: str) -> None:
    expected = [converted("decimal(37,0)", Decimal(value * 12345678901234567), target) for value in VALUES["e"]]
    assert cast_of({"e": VALUES["e"]}, f"CAST({WIDE} AS {target})") == expected


@pytest.mark.parametrize("text", ["1_000", "٣", "1\u200b", ""])
def test_constants_of_texts_that_no_type_has(text: str) -> None:
    for target in ("bigint", "double precision", "timestamptz", "date", "boolean"):
        with pytest.raises(Problem) as caught:
            cast_of({"i": (1,)}, f"CAST('{text}' AS {target})")
        assert caught.value.status == 422
    assert cast_of({"i": (1,)}, f"CAST('{text}' AS decimal(4, 1))") == [None]
    with pytest.raises(Problem, match="got"):
        parse_view("v", {"sql": f"SELECT id FROM t WHERE i = '{text}'"}, {"t": T})


@pytest.mark.parametrize(
    "expression", ["f + 1e400", "i + 1e400", "i * -1e999", f"i + 1{'0' * 400}", "i::decimal(²)", "i::decimal(3_0, 1)", "i::decimal(٣, 1)"]
)
def test_numbers_that_are_none(expression: str) -> None:
    with pytest.raises(Problem) as caught:
        cast_of({"i": (1,)}, expression)
    assert caught.value.status == 422


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("'.5 hours'", 30), ("'1.5 hours'", 90), ("'-.5 hours'", -30), ("'+2 hours'", 120), ("' 2hours '", 120), ("'1e1 minutes'", 10),
        ("'2' hours", 120), ("'.5' hour", 30), ("'-2' hour", -120), ("'1_0 days'", None), ("'1 0 days'", None), ("'1_0' days", None),
        ("'1٣ days'", None), ("'2 days 3 hours'", 3060), ("'in 3 hours'", None), ("'3 hours ago'", -180), ("'- 2 hours'", -120),
        ("'--2 days'", None), ("'days'", None), ("''", None), ("'2'", None), ("'1 day 02:30'", 1590), ("'-1:30'", -90),
        ("'00:00:30.5' ", 30.5 / 60),
        ("'PT1H30M'", 90), ("'2 02:00'", 3000), ("'1 h 3 min'", 63), ("'1 day -2 hours'", 1320), ("'1:30 hours'", None), ("'ago'", None),
        ("'1 fortnight'", None), ("'1e400 days'", None), ("'9999999999 days'", None), ("'1.5:30'", None),
    ],
)  # fmt: skip
def test_intervals(text: str, minutes: float | None) -> None:
    """In an expression, and, where it is not negative, as a distance."""
    joined = f"SELECT x.id FROM t x JOIN t y ON abs(x.w - y.w) <= INTERVAL {text}"
    if minutes is None:
        for query in (f"SELECT w + INTERVAL {text} AS x FROM t", joined):
            with pytest.raises(Problem) as caught:
                parse_view("v", {"sql": query}, {"t": T})
            assert caught.value.status == 422
        return
    assert cast_of({"w": (EPOCH,)}, f"w + INTERVAL {text}") == [EPOCH + timedelta(seconds=round(minutes * 60, 1))]
    if minutes > 0 and "+" not in text:
        assert parse_view("v", {"sql": joined}, {"t": T}).query.shifted[0].plus == -round(minutes * 60, 1) * 1_000_000


def test_constants_of_many_digits() -> None:
    text = "1234567890123456789012345678.901234567"
    assert cast_of({"i": (1,)}, f"{text} + 0") == [Decimal(text)]
    assert cast_of({"t": (text,)}, "CAST(t AS decimal(37, 9))") == [Decimal(text)]


def quotient(x: int | Decimal, y: int | Decimal) -> float | None:
    return None if y == 0 else float(Fraction(x) / Fraction(y))


@pytest.mark.parametrize(
    "expression", ["c / e", "c / i", "i / c", "c / g", "g / c", "e / g", f"{WIDE} / g", f"{WIDE} / e", "c / 3", "1 / c", "c / 0.7"]
)
def test_quotients_of_decimals_are_rounded_once(expression: str) -> None:
    rng = random.Random(expression)
    columns: dict[str, list[Any]] = {name: [] for name in ("i", "e", "c", "g")}
    for _ in range(400):
        for name, own in columns.items():
            p, s = DIGITS.get(name, (18, 0))
            drawn = Decimal(rng.randrange(-(10 ** rng.randrange(1, p + 1)) + 1, 10 ** rng.randrange(1, p + 1))).scaleb(-s, EXACT)
            value = rng.choice((drawn, *VALUES[name]))
            own.append(None if rng.random() < 0.05 else int(value) if name == "i" else Decimal(value))
    found = cast_of({name: tuple(own) for name, own in columns.items()}, expression)
    inputs = expression.split(" / ")
    for at, one in enumerate(found):
        x, y = (
            None if (of := columns.get(input, columns["e"])[at]) is None and input in (*columns, WIDE)
            else Decimal(input) if re.fullmatch(r"[0-9.]+", input) else Decimal(int(of) * 12345678901234567) if input == WIDE else of
            for input in inputs
        )  # fmt: skip
        wanted = None if x is None or y is None else quotient(x, y)
        assert repr(one) == repr(None if wanted is None else wanted + 0.0), (expression, x, y)


def test_the_quotient_of_the_report() -> None:
    assert cast_of({"c": (Decimal("-99999.9"),)}, "c / 3") == [-33333.3]

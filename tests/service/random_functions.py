"""Random expressions over one row with every operator and function, as trees whose steps a judge can evaluate one by one.

Each entry of `STEPS` is a form of livejoin's SQL, and what PostgreSQL has to be asked instead where the two differ on purpose; the reasons
are in docs/reference/sql.md.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

from livejoin.wire.schema import RelationDefinition, parse_relation

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
COLUMNS = {
    "i": "int64", "k": "int64", "f": "float64", "t": "string", "s": "string", "b": "bool", "w": "timestamp", "x": "timestamp", "d": "date",
    "j": "json", "y": "bytes", "h": "time",
}  # fmt: skip
DECIMALS = {"c": (9, 2), "e": (5, 0), "g": (6, 5)}
T: RelationDefinition = parse_relation(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            *({"name": name, "type": type_, "nullable": True} for name, type_ in COLUMNS.items()),
            *({"name": name, "type": "decimal", "precision": p, "scale": s, "nullable": True} for name, (p, s) in DECIMALS.items()),
        ],
        "key": ["id"],
    }
)
IN_POSTGRES = {
    "int": "bigint", "decimal": "numeric", "float": "double precision", "text": "text", "bool": "boolean", "time": "timestamptz",
    "local": "timestamp", "day": "date", "json": "json", "bytes": "bytea", "clock": "time",
}  # fmt: skip
_KINDS = {
    "int64": "int", "float64": "float", "string": "text", "bool": "bool", "timestamp": "time", "date": "day", "json": "json",
    "bytes": "bytes", "time": "clock",
}  # fmt: skip
KIND_OF = {name: _KINDS[type_] for name, type_ in COLUMNS.items()} | dict.fromkeys(DECIMALS, "decimal")

class Step(NamedTuple):
    """`judge`: what PostgreSQL is asked, "" if the same."""

    kind: str
    form: str
    takes: tuple[str, ...]
    judge: str = ""


def step(kind: str, form: str, *takes: str, judge: str = "") -> Step:
    return Step(kind, form, takes, judge)


int_, dec, flt, txt, boo, tim, loc, day = "int", "decimal", "float", "text", "bool", "time", "local", "day"


def _of_numbers() -> Iterator[Step]:
    for op in "+-*/%":
        yield step(int_, f"({{0}} {op} {{1}})", int_, int_)
    for op in "+-*%":
        yield step(dec, f"({{0}} {op} {{1}})", dec, dec)
        yield step(dec, f"({{0}} {op} {{1}})", dec, int_)
    yield step(flt, "({0} / {1})", dec, dec, judge="livejoin_quotient({0}, {1})")
    for op in "+-*/":
        yield step(flt, f"({{0}} {op} {{1}})", flt, flt, judge=f"far({{0}}, {{1}}, '{op}')")
    yield step(flt, "({0} + {1})", flt, int_, judge="far({0}, {1}::float8, '+')")
    for kind in (int_, dec, flt):
        yield step(kind, "(- {0})", kind)
        yield step(kind, "abs({0})", kind)
    for name in ("round", "trunc", "floor", "ceil", "sign"):
        yield step(flt, f"{name}({{0}})", flt)
        yield step(flt, f"{name}({{0}})", int_)
        yield step(dec, f"{name}({{0}})", dec)
    for digits in (-3, -1, 0, 1, 2, 4):
        yield step(dec, f"round({{0}}, {digits})", dec)
        yield step(dec, f"trunc({{0}}, {digits})", dec)
    yield step(dec, "round({0}, -2)", int_, judge="round({0}::numeric, -2)")
    yield step(flt, "sqrt({0})", flt)
    yield step(flt, "sqrt({0})", int_)
    yield step(flt, "sqrt({0})", dec, judge="sqrt({0}::float8)")
    yield step(flt, "power({0}, {1})", flt, flt)
    yield step(flt, "({0} ^ {1})", int_, flt)
    yield step(flt, "power({0}, {1})", dec, int_, judge="power({0}::float8, {1}::float8)")
    yield step(int_, "mod({0}, {1})", int_, int_)
    yield step(dec, "mod({0}, {1})", dec, dec)
    yield step(flt, "{0}::double precision", int_)
    yield step(flt, "{0}::double precision", dec)
    yield step(int_, "{0}::bigint", dec)
    yield step(int_, "{0}::bigint", flt)
    yield step(dec, "{0}::decimal(12, 2)", dec)
    yield step(dec, "{0}::decimal(14, 1)", int_)
    yield step(int_, "{0}::bigint", boo, judge="{0}::int::bigint")


def _of_texts() -> Iterator[Step]:
    yield step(int_, "length({0})", txt)
    yield step(int_, "char_length({0})", txt)
    yield step(int_, "octet_length({0})", txt)
    yield step(int_, "length({0})", "bytes")
    yield step(txt, "md5({0})", txt)
    for name in ("lower", "upper", "trim", "ltrim", "rtrim", "btrim"):
        yield step(txt, f"{name}({{0}})", txt)
    for name in ("ltrim", "rtrim", "btrim"):
        yield step(txt, f"{name}({{0}}, 'xa ')", txt)
        yield step(txt, f"{name}({{0}}, {{1}})", txt, txt)
    yield step(txt, "trim(BOTH 'É ' FROM {0})", txt)
    yield step(txt, "trim(LEADING {1} FROM {0})", txt, txt)
    for name in ("left", "right"):
        for count in (-2, 0, 1, 3, 99):
            yield step(txt, f"{name}({{0}}, {count})", txt)
        yield step(txt, f"{name}({{0}}, {{1}})", txt, int_, judge=f"{name}({{0}}, near({{1}}))")
    yield step(txt, "substr({0}, 2)", txt)
    yield step(txt, "substring({0} FROM 2 FOR 3)", txt)
    yield step(txt, "substring({0}, -1, 3)", txt)
    yield step(txt, "substring({0}, -5, 3)", txt)
    yield step(txt, "substr({0}, 1, -1)", txt)
    yield step(txt, "substr({0}, {1})", txt, int_, judge="substr({0}, near({1}))")
    yield step(txt, "substr({0}, {1}, {2})", txt, int_, int_, judge="substr({0}, near({1}), near({2}))")
    yield step(int_, "strpos({0}, {1})", txt, txt)
    yield step(int_, "position('a' IN {0})", txt)
    yield step(txt, "replace({0}, 'a', 'bc')", txt)
    yield step(txt, "replace({0}, 'x', '')", txt)
    yield step(txt, "replace({0}, {1}, {2})", txt, txt, txt)
    for number in (-1, 1, 2, 0, 9):
        yield step(txt, f"split_part({{0}}, ',', {number})", txt)
    yield step(txt, "split_part({0}, {1}, {2})", txt, txt, int_, judge="split_part({0}, {1}, near({2}))")
    yield step(txt, "({0} || {1})", txt, txt)
    yield step(txt, "({0} || {1})", txt, int_)
    yield step(txt, "({0} || {1} || '-')", boo, txt)
    yield step(txt, "concat({0}, '-', {1}, NULL)", txt, txt)
    yield step(txt, "concat({0}, {1})", int_, txt)
    yield step(txt, "concat_ws(', ', {0}, {1}, NULL, {2})", txt, int_, txt)
    yield step(txt, "concat_ws({0}, {1}, {2})", txt, txt, txt)
    yield step(txt, "{0}::text", int_)
    yield step(txt, "{0}::text", boo)
    yield step(int_, "({0} || '')::bigint", txt, judge="CASE WHEN {0} ~ '^[ \\t\\n]*[-+]?[0-9]+[ \\t\\n]*$' THEN {0}::bigint END")


def _of_patterns() -> Iterator[Step]:
    for pattern in ("%a%", "_", "A%", "", "%\\\\%%", "é_"):
        yield step(boo, f"({{0}} LIKE '{pattern}')".replace("\\\\", "\\"), txt)
        yield step(boo, f"({{0}} NOT ILIKE '{pattern}')".replace("\\\\", "\\"), txt)
    for pattern in (
        "a", "^a", "b$", "^[a-c]+$", "x|y", "\\d", "^\\w+$", "\\s", "a.b", "[[:alpha:]]{2,2}", "^.{3,3}$", "(xy)+$", "[^a-z]",
        "é", "^\\S*$", "\\.",
        "[]a]", "", "a*?b", "^(?:A|é)", "[[:upper:]]", "\\W", "\\Ax", "y\\Z", "[\\d,]",
    ):  # fmt: skip
        for op in ("~", "~*", "!~", "!~*"):
            yield step(boo, f"({{0}} {op} '{pattern}')", txt)


def _of_json() -> Iterator[Step]:
    for path in ("-> 'a'", "->> 't'", "-> 'a' ->> 1", "->> 'missing'", "#>> '{a,2,z}'", "#> '{k}'", "#>> '{a,-1}'", "#>> '{}'"):
        yield step(txt, f"({{0}} {path})", "json", judge=f"({{0}} {path})::text")
    yield step(int_, "json_array_length({0})", "json")
    yield step(int_, "json_array_length({0} -> 'a')", "json")


def _of_times() -> Iterator[Step]:
    for field in ("year", "month", "day", "hour", "minute", "second", "milliseconds", "microseconds", "dow", "isodow", "doy", "week",
                  "isoyear", "quarter", "decade", "century", "millennium", "epoch"):  # fmt: skip
        for kind in (tim, loc):
            yield step(dec, f"EXTRACT({field} FROM {{0}})", kind)
        yield step(flt, f"date_part('{field}', {{0}})", tim)
        if field not in ("hour", "minute", "second", "milliseconds", "microseconds"):
            yield step(dec, f"EXTRACT({field} FROM {{0}})", day)
        if field in ("hour", "minute", "second", "milliseconds", "microseconds", "epoch"):
            yield step(dec, f"EXTRACT({field} FROM {{0}})", "clock")
            yield step(dec, f"EXTRACT({field} FROM {{0}} - {{1}})", tim, tim)
    yield step(dec, "EXTRACT(day FROM {0} - {1})", tim, tim)
    for unit in ("microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade", "century",
                 "millennium"):  # fmt: skip
        yield step(tim, f"date_trunc('{unit}', {{0}})", tim)
        yield step(loc, f"date_trunc('{unit}', {{0}})", loc)
        for zone in ("Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"):
            yield step(tim, f"date_trunc('{unit}', {{0}}, '{zone}')", tim)
    for unit in ("day", "week", "month", "year", "century"):
        yield step(day, f"date_trunc('{unit}', {{0}})", day, judge=f"date_trunc('{unit}', {{0}})::date")


def _of_zones() -> Iterator[Step]:
    for zone in ("Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC", "Africa/Casablanca"):
        yield step(loc, f"({{0}} AT TIME ZONE '{zone}')", tim)
        yield step(tim, f"({{0}} AT TIME ZONE '{zone}')", loc)
        yield step(tim, f"timezone('{zone}', {{0}})", loc)
    for length in ("15 minutes", "1 day", "7 hours 13 minutes"):
        yield step(tim, f"date_bin('{length}', {{0}}, TIMESTAMPTZ '2001-02-03 04:05:06.000007Z')", tim)
        yield step(loc, f"date_bin(INTERVAL '{length}', {{0}}, {{1}})", loc, loc)
        yield step(tim, f"({{0}} + INTERVAL '{length}')", tim)
        yield step(loc, f"({{0}} - INTERVAL '{length}')", day)
        yield step(boo, f"({{0}} - {{1}} > INTERVAL '{length}')", tim, tim)
    for length in ("1 month", "1 year 2 months -3 days", "3 mons ago"):
        yield step(tim, f"({{0}} + INTERVAL '{length}')", tim)
        yield step(loc, f"({{0}} - INTERVAL '{length}')", loc)
    yield step(int_, "({0} - {1})", day, day, judge="({0} - {1})::bigint")
    yield step(day, "({0} + {1} % 100000)", day, int_, judge="({0} + ({1} % 100000)::int)")
    yield step(day, "{0}::date", tim)
    yield step(day, "{0}::date", loc)
    yield step(tim, "{0}::timestamptz", day)
    yield step(loc, "{0}::timestamp", tim)
    yield step("clock", "{0}::time", tim)
    yield step(day, "make_date({0} % 4000, {1}, {2})", int_, int_, int_, judge="make_date(({0} % 4000)::int, {1}::int, {2}::int)")
    for pattern in ("YYYY-MM-DD HH24:MI:SS.MS", "FMDay, DD. Mon YYYY", "IYYY-IW-ID", "HH12:MI am", "Month|DAY|dy|US|Q|WW|DDD|D",
                    "FMMM/FMDD \"of\" yyyy"):  # fmt: skip
        for kind in (tim, loc, day):
            yield step(txt, f"to_char({{0}}, '{pattern}')", kind)


def _of_all() -> Iterator[Step]:
    for kind in (int_, dec, flt, txt, tim, loc, day, "clock"):
        for op in ("=", "<>", "<", "<=", ">", ">="):
            yield step(boo, f"({{0}} {op} {{1}})", kind, kind, judge=f"({{0}} {op} {{1}} COLLATE \"C\")" if kind == txt else "")
        yield step(boo, "({0} BETWEEN {1} AND {2})", *([kind] * 3), judge="({0} COLLATE \"C\" BETWEEN {1} AND {2})" if kind == txt else "")
        yield step(kind, "greatest({0}, {1}, {2})", *([kind] * 3), judge="greatest({0} COLLATE \"C\", {1}, {2})" if kind == txt else "")
        yield step(kind, "least({0}, {1})", kind, kind, judge="least({0} COLLATE \"C\", {1})" if kind == txt else "")
        yield step(kind, "nullif({0}, {1})", kind, kind)
        yield step(kind, "coalesce({0}, {1})", kind, kind)
        yield step(kind, "CASE WHEN {0} THEN {1} ELSE {2} END", boo, kind, kind)
        yield step(kind, "CASE {0} WHEN {1} THEN {2} END", int_, int_, kind)
        yield step(boo, "({0} IS NULL)", kind)
        yield step(boo, "({0} IN ({1}, {2}))", kind, kind, kind)
        yield step(kind, "greatest(NULL, {0})", kind)
    yield step(boo, "({0} < {1})", day, tim)
    yield step(boo, "({0} >= {1})", loc, tim)
    yield step(boo, "({0} < {1})", int_, dec)
    yield step(dec, "greatest({0}, {1})", int_, dec)
    for op in ("AND", "OR"):
        yield step(boo, f"({{0}} {op} {{1}})", boo, boo)
    yield step(boo, "(NOT {0})", boo)
    yield step(boo, "({0} IS NOT TRUE)", boo)


HELPERS = """
CREATE FUNCTION near(x bigint) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT greatest(least(x, 99999999), -99999999)::int';
CREATE FUNCTION far(x float8, y float8, op text) RETURNS float8 LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE up bool := (x < 0) = (y < 0);
BEGIN
    IF op = '+' THEN RETURN x + y; ELSIF op = '-' THEN RETURN x - y; ELSIF op = '*' THEN RETURN x * y; ELSE RETURN x / y; END IF;
EXCEPTION WHEN numeric_value_out_of_range THEN
    IF op IN ('+', '-') THEN RETURN CASE WHEN x > 0 THEN 'Infinity' ELSE '-Infinity' END; END IF;
    IF (op = '*') = (abs(x) > 1 AND abs(y) > 1 OR abs(x) + abs(y) > 1e100 AND op = '*') THEN
        RETURN CASE WHEN up THEN 'Infinity' ELSE '-Infinity' END;
    END IF;
    RETURN 0;
END $$;
CREATE FUNCTION livejoin_quotient(x numeric, y numeric) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT AS
$$ SELECT CASE WHEN y = 0 THEN NULL WHEN x = 0 THEN 0 ELSE (round(x, 60) / round(y, 60))::float8 END $$;
"""
STEPS = tuple(chain(_of_numbers(), _of_texts(), _of_patterns(), _of_json(), _of_times(), _of_zones(), _of_all()))
_BY_KIND = {kind: [step for step in STEPS if step.kind == kind] for kind in IN_POSTGRES}
_NOT_IN_DUCKDB = {
    r"octet_length|length\(.*bytes|btrim|date_bin|to_char|#>|date_trunc\(.*, '|timezone": "DuckDB has none, or none of these arguments",
    r"float: round": "halves of floats are rounded to even (9.3), in DuckDB away from zero",
    r"trunc\(\{0\}, |round\(\{0\}, -": "of null, DuckDB's is 0",
    r"sqrt|power|\^ \{1\}": "what is no real number, or out of range, is an error (9.3), in DuckDB NaN or infinite",
    r"subs?tr|split_part|left|right": "characters are counted from 1, also before the first (9.4); 0 is none of DuckDB's positions",
    r"LIKE '%.%%'": "the backslash escapes (9.7.1), in DuckDB only with ESCAPE",
    r"bool: \(\{0\} !?~": "~ finds a part of the text (9.7.3), in DuckDB it is all of it",
    r"->|json": "numbers stay as they are written (8.14), and a length is one of arrays (9.16)",
    r"second|epoch|EXTRACT\(.*\{1\}": "fractions belong to seconds (9.9.1), and 24 hours between timestamps are a day",
    r"make_date": "the year before 1 is -1 (9.9), in DuckDB 0",
    r"century|millennium": "they begin in a year 1 (9.9.1)",
    r"date_trunc\(.*day$|\+ \{1\} % 100000|::time time|AT TIME ZONE 'Africa": "other types there, and rules of another year for Casablanca",
    r"%|decimal: .*\*|int: .*/|mod": "decimals have fewer digits there; quotients and remainders of int64 are in test_terms",
    r"::decimal|::bigint": "test_casts has these",
    r"\(\{0\} / \{1\}\)": "a division by zero",
}
"""Forms for which DuckDB is no judge, with the reason or PostgreSQL's manual."""
IN_DUCKDB = {
    kind: [
        step for step in some
        if not any(re.search(one, f"{step.kind}: {step.form} {' '.join(step.takes)}") for one in _NOT_IN_DUCKDB)
    ] for kind, some in _BY_KIND.items()
}  # fmt: skip
_LEAVES = {kind: [name for name, own in KIND_OF.items() if own == kind] for kind in IN_POSTGRES}
_CONSTANTS = {
    "int": ("(3::bigint)", "(-2)::bigint", "(0::bigint)"), "float": ("(1.5::double precision)",), "decimal": ("2.25", "100.0", "0.5"),
    "text": ("'q'", "''", "'a,b'"), "bool": ("TRUE", "FALSE"), "time": ("(TIMESTAMPTZ '2026-03-29 01:30:00Z')",),
    "local": ("(TIMESTAMP '2026-10-25 02:30:00')", "(TIMESTAMP '2026-03-29 02:30:00')"), "day": ("(DATE '2026-02-28')",),
    "clock": ("(TIME '12:30')",),
}  # fmt: skip


class Node(NamedTuple):
    step: Step
    args: tuple[Node, ...]

    @property
    def sql(self) -> str:
        return filled(self.step.form, [arg.sql for arg in self.args])

    def nodes(self) -> Iterator[Node]:
        for arg in self.args:
            yield from arg.nodes()
        yield self


def filled(form: str, args: Sequence[str]) -> str:
    return re.sub(r"\{([0-2])\}", lambda found: args[int(found[1])], form)


def drawn(rng: random.Random, kind: str, depth: int, among: Mapping[str, Sequence[Step]] = _BY_KIND) -> Node:
    leaves, constants = _LEAVES[kind], _CONSTANTS.get(kind, ())
    if kind in ("json", "bytes") or ((depth == 0 or rng.random() < 0.15) and leaves):
        return Node(Step(kind, rng.choice(constants if constants and rng.random() < 0.15 else leaves), ()), ())
    if depth == 0:
        return Node(Step(kind, rng.choice(constants), ()), ())
    return rooted(rng, rng.choice(among[kind]), depth, among)


def rooted(rng: random.Random, step: Step, depth: int, among: Mapping[str, Sequence[Step]] = _BY_KIND) -> Node:
    """An expression whose last step is this one."""
    return Node(step, tuple(drawn(rng, one, rng.randrange(depth), among) for one in step.takes))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = (
    "", "a", "Ab", "ÉÑ", "x y", "12", " -7 ", "  pad ", "a,b,,c", ",", "2026-01-05", "a\nb", "%_", "10%", "日本語", "xyxy", "é", "A.B",
    "😀 a", "éx", "x",
)  # fmt: skip
JSON = (
    '{"k":1,"t":"a","a":[1,"x",{"z":true}]}', '{"k":-2.5,"t":null,"a":[]}', '{"k":{"t":"é"},"t":"b\\"c"}', "[]", "null", '"a"', "[1,2,3]",
    '{"a":{"2":{"z":0},"-1":7}}', "3", '{"t":1.10,"a":[[1]]}',
)  # fmt: skip


def rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows as Arrow has them, decimals unscaled."""

    def moment() -> datetime:
        if rng.random() < 0.3:
            return rng.choice(_MOMENTS)
        of_day = rng.choice((0, 1, 5 * 10**9, 86_399_999_999, rng.randrange(86_400_000_000)))
        return _EPOCH + timedelta(days=rng.randrange(-40000, 60000), microseconds=of_day)

    def one(number: int) -> dict[str, Any]:
        row = {
            "i": rng.choice((0, 1, -1, 7, -7, 2026, INT64_MAX, INT64_MIN, 2**32, -(2**31) - 1, 2**53 + 1)), "k": rng.randrange(-3, 13),
            "f": rng.choice((0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e300, -1e-300, 0.1, 1e15, *map(float, ("nan", "inf", "-inf")))),
            "t": rng.choice(TEXTS), "s": rng.choice(TEXTS), "b": rng.random() < 0.5, "w": moment(), "x": moment(),
            "d": rng.choice((date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(2000, 1, 1), date(2001, 1, 1),
                             date(2026, 1, 1) + timedelta(days=rng.randrange(-4000, 4000)))),
            "j": rng.choice(JSON), "y": rng.choice((b"", b"a", b"\0\xff")),
            "h": (_EPOCH + timedelta(microseconds=rng.randrange(86_400_000_000))).time(),
            "c": rng.choice((0, 1, -1, 50, 150, -250, 1250, -99, 10**9 - 1, 1 - 10**9)), "e": rng.choice((0, 5, -5, 15, 99_999, -99_999)),
            "g": rng.choice((0, 1, -1, 50_000, -50_000, 999_999, 149_999)),
        }  # fmt: skip
        return {"id": number} | {name: None if rng.random() < 0.12 else value for name, value in row.items()}

    return [one(number) for number in range(count)]


_MOMENTS = tuple(
    datetime.fromisoformat(f"{text}+00:00")
    for text in (
        "2026-03-29 00:59:59.999999", "2026-03-29 01:00:00", "2026-10-25 00:30:00", "2026-10-25 01:00:00", "2026-10-25 01:30:00",
        "1900-01-01 00:00:00", "1883-11-18 12:00:00", "0001-01-01 00:00:00", "9998-12-31 23:59:59.999999", "2040-07-01 12:00:00",
        "2100-03-31 23:30:00", "2000-02-29 12:00:00", "2020-12-31 23:59:59", "2021-01-03 23:00:00", "1969-12-31 23:59:59.999999",
    )
)  # fmt: skip


def literal(name: str, value: Any) -> str:
    """A value of a row in PostgreSQL's SQL."""
    if value is None:
        return "NULL"
    if name in DECIMALS:
        return str(Decimal(value).scaleb(-DECIMALS[name][1]))
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return "'" + str(value).replace("'", "''") + "'"

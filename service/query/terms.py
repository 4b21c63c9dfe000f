"""The expressions over a row, with the typing rules of SELECT.

Numbers: int64 with int64 stays int64; a decimal with a decimal or an int64 is an exact decimal of up to 38 digits, but their quotient is
the float64 next to the exact one, and any operation with a float64 is float64. An undefined result is null, never an error: a result out of
range, of more than 38 digits too, a division by zero, a text that is not a value of the type to which it is cast. A comparison with null is
null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, get_args

from livejoin.wire.kinds import decimal_kind, digits_of
from livejoin.wire.values.json_texts import Key
from service.errors import unsupported
from service.query.conditions import ColumnRef, Term

COMPUTED_DIGITS = 38
_MOST_CUT = 76
"""Digits of a result that is null where it has more than 38; Arrow computes no more."""
LONGEST_TEXT = 1 << 24
"""Bytes; a longer one that a function would make is null."""
_DIGITS_OF_INT64 = 19
LOCAL = "local time"
"""The kind of a timestamp that clocks show, without a zone, within an expression: elsewhere it is a timestamp, in UTC."""
LEAST_SMALL, MOST_SMALL = -(2**15), 2**15 - 1  # PostgreSQL's smallint
_TIMES = ("date", LOCAL, "timestamp")
Unit = Literal[
    "microseconds", "milliseconds", "second", "minute", "hour",
    "day", "week", "month", "quarter", "year", "decade", "century", "millennium",
]  # fmt: skip
UNITS: tuple[Unit, ...] = get_args(Unit)
OF_DAYS = UNITS[UNITS.index("day") :]  # a day or longer
_CASTS = {
    "int64": ("float64", "string", "decimal"),
    "float64": ("int64", "decimal"),
    "decimal": ("int64", "float64", "string", "decimal"),
    "timestamp": ("date", "time", LOCAL, "string"),
    LOCAL: ("date", "time", "timestamp", "string"),
    "time": ("string",),
    "uuid": ("string",),
    "date": ("timestamp", LOCAL, "string"),
    "bool": ("string", "int64"),
    "string": ("int64", "float64", "decimal", "timestamp", "date", "bool"),
    "json": ("string",),
}
_NEVER_NULL = ("is_null", "not_null")
_MAY_BE_NULL = (
    "->", "->>", "/", "%", "||", "concat", "concat_ws", "nullif", "sqrt", "power", "substr", "replace", "split_part", "make_date",
    "date_bin", "to_local", "from_local", "months_later", "date_trunc_there", "json_array_length",
)  # fmt: skip
_OVERFLOWS = ("+", "-", "*", "negative", "abs")
_PARTS = ("left", "right", "substr", "btrim", "ltrim", "rtrim", "split_part", "nullif")
_IF_ALL = ("coalesce", "greatest", "least")


def _family(kind: str) -> str:
    return "decimal" if digits_of(kind) is not None else kind


def is_plain(kind: str) -> bool:
    """Return whether values of this kind can be compared here, and have constants."""
    return _family(kind) != "json"


def named(kind: str) -> str:
    """Return how messages call a kind."""
    return "timestamp without a zone" if kind == LOCAL else kind


def is_number(kind: str) -> bool:
    return _family(kind) in ("int64", "float64", "decimal")


def _digits(kind: str) -> tuple[int, int]:
    return digits_of(kind) or (_DIGITS_OF_INT64, 0)


def arithmetic(op: str, left: Term, right: Term) -> Term:
    """Return `+ - * / %` of numbers, `-` of two timestamps (microseconds) or dates (days), or `+ -` of a date and days."""
    kinds = left.kind, right.kind
    if op == "-" and kinds == ("date", "date"):
        return Term("-", "int64", (left, right))
    if op == "-" and set(kinds) <= set(_TIMES):
        return Term("-", "int64", tuple(alike("-", (left, right))))
    if op in ("+", "-") and kinds == ("date", "int64"):
        return Term(op, "date", (left, right))
    if op == "+" and kinds == ("int64", "date"):
        return Term(op, "date", (right, left))
    if not all(map(is_number, kinds)):
        instead = "numbers are computed with numbers; timestamps and dates may be subtracted, and take INTERVAL '15 minutes' or days"
        raise unsupported(f"{named(kinds[0])} {op} {named(kinds[1])}", instead)
    if "float64" in kinds:
        return Term(op, "float64", (cast(left, "float64"), cast(right, "float64")))
    if kinds == ("int64", "int64"):
        return Term(op, "int64", (left, right))
    if op == "/":
        return Term(op, "float64", (_decimal(left), _decimal(right)))
    made = Term(op, "decimal", (_decimal(left), _decimal(right)))
    precision, scale = _digits_of_result(made)
    if scale > COMPUTED_DIGITS or precision > (COMPUTED_DIGITS if op == "%" else _MOST_CUT):
        said = f"it would need {precision} digits, and a decimal has at most {COMPUTED_DIGITS}: cast one side to fewer, or to float64"
        raise unsupported(f"{kinds[0]} {op} {kinds[1]}", said)
    return made._replace(kind=decimal_kind(min(precision, COMPUTED_DIGITS), scale))


def _digits_of_result(term: Term) -> tuple[int, int]:
    """Return how many digits a sum, difference, product or remainder of decimals may need, and how many of them follow the point."""
    (p, s), (q, t) = (_digits(one.kind) for one in term.args)
    scale = s + t if term.op == "*" else max(s, t)
    return p + q + 1 if term.op == "*" else min(p - s, q - t) + scale if term.op == "%" else max(p - s, q - t) + scale + 1, scale


def may_need_more(term: Term) -> bool:
    """Return whether a sum, difference or product of decimals may have more digits than its kind, and is null then."""
    return _family(term.kind) == "decimal" and term.op in _OVERFLOWS[:3] and _digits_of_result(term)[0] > COMPUTED_DIGITS


def _decimal(term: Term) -> Term:
    return cast(term, decimal_kind(_DIGITS_OF_INT64, 0)) if term.kind == "int64" else term


def moved(term: Term, months: int, micros: int) -> Term:
    """Return a time plus a number of months, then a fixed time. Of a date it is a local time."""
    if term.kind not in _TIMES:
        raise unsupported(f"INTERVAL beside {named(term.kind)}", "a timestamp or a date takes an INTERVAL")
    of = cast(term, LOCAL) if term.kind == "date" else term
    if months:
        of = Term("months_later", of.kind, (of,), months)
    return Term("+", of.kind, (of, Term("constant", "int64", (), micros))) if micros or not months else of


def is_elapsed(term: Term) -> bool:
    """Return whether the term is a difference of timestamps, which PostgreSQL has as an interval."""
    if term.op == "case":
        return all(one == Term("constant", "int64", (), None) or is_elapsed(one) for one in (*term.args[1::2], term.args[-1]))
    return term.op == "-" and term.kind == "int64" and term.args[0].kind in ("timestamp", LOCAL)


def negative(term: Term) -> Term:
    if not is_number(term.kind):
        raise unsupported(f"- of {term.kind}", "write it before a number")
    return Term("negative", term.kind, (term,))


def extracted(doc: Term, path: Sequence[Key], as_text: bool) -> Term:
    """Return the part of JSON at a path: `doc ->> key`, `doc -> key`, `doc #>> path`."""
    if doc.kind not in ("string", "json"):
        raise unsupported(f"{'->>' if as_text else '->'} of {doc.kind}", "it takes JSON, in a column of texts")
    if doc.op == "->":  # a path, read in one step
        (whole,) = doc.args
        return Term("->>" if as_text else "->", "string", (whole,), (*doc.value, *path))
    return Term("->>" if as_text else "->", "string", (doc,), tuple(path))


def truncated(unit: str, of: Term) -> Term:
    if of.kind not in _TIMES:
        raise unsupported(f"date_trunc of {named(of.kind)}", "it takes a timestamp or a date")
    units = OF_DAYS if of.kind == "date" else UNITS
    if unit not in units:
        raise unsupported(f"date_trunc by {unit} of {named(of.kind)}", f"its units are {', '.join(units)}")
    return Term("date_trunc", of.kind, (of,), unit)


def alike(what: str, terms: Sequence[Term]) -> list[Term]:
    """Return the terms cast to the one kind that represents all of them, without loss except for float64."""
    kinds = dict.fromkeys(term.kind for term in terms)
    if len(kinds) == 1:
        return list(terms)
    if kinds.keys() <= set(_TIMES):
        return [cast(term, "timestamp" if "timestamp" in kinds else LOCAL) for term in terms]
    if not all(map(is_number, kinds)):
        raise unsupported(f"{what} of {' and '.join(map(named, kinds))}", "use the same type for all: write CAST(… AS …)")
    if "float64" in kinds:
        return [cast(term, "float64") for term in terms]
    scale = max(_digits(kind)[1] for kind in kinds)
    precision = max(p - s for p, s in map(_digits, kinds)) + scale
    if precision > COMPUTED_DIGITS:
        raise unsupported(f"{what} of {' and '.join(kinds)}", f"a decimal has at most {COMPUTED_DIGITS} digits, and they need {precision}")
    return [cast(term, decimal_kind(precision, scale)) for term in terms]


def compared(op: str, left: Term, right: Term) -> Term:
    left, right = alike(f"the comparison {op}", (left, right))
    if not is_plain(left.kind) or (left.kind == "bool" and op not in ("=", "!=")):
        raise unsupported(f"the comparison {op} of {left.kind}", "compare other columns")
    return Term(op, "bool", (left, right))


def logical(op: str, *parts: Term) -> Term:
    """Return `and`, `or` or `not`."""
    for part in parts:
        if part.kind != "bool":
            raise unsupported(f"{op.upper()} of {part.kind}", "write conditions there")
    return Term(op, "bool", parts)


def tested(op: str, of: Term) -> Term:
    """Return `is_null` or `not_null`."""
    return Term(op, "bool", (of,))


def matched(op: str, of: Term, pattern: str) -> Term:
    """Return `like` or `ilike` with a pattern of `filters.pattern`, or `matches` with one of `functions.patterns`."""
    if of.kind != "string":
        raise unsupported(f"{'~' if op == 'matches' else op.upper()} of {named(of.kind)}", "it takes a text")
    return Term(op, "bool", (of,), pattern)


def coalesced(parts: Sequence[Term], op: str = "coalesce") -> Term:
    """Return `coalesce`, `greatest` or `least`."""
    made = alike(op.upper(), parts)
    if op != "coalesce" and not is_plain(made[0].kind):
        raise unsupported(f"{op.upper()} of {made[0].kind}", "use other columns")
    return Term(op, made[0].kind, tuple(made))


def null_if(left: Term, right: Term) -> Term:
    equal = compared("=", left, right)
    return Term("nullif", equal.args[0].kind, equal.args)


def chosen(cases: Sequence[tuple[Term, Term]], otherwise: Term | None) -> Term:
    """Return CASE: the value of the first condition that holds; otherwise `otherwise`, or null."""
    for condition, _ in cases:
        if condition.kind != "bool":
            raise unsupported(f"{named(condition.kind)} as a condition", "write a comparison, such as x = 1")
    values = alike("CASE", [value for _, value in cases] + ([otherwise] if otherwise is not None else []))
    kind = values[0].kind
    last = values[-1] if otherwise is not None else Term("constant", kind, (), None)
    pairs = [term for (condition, _), value in zip(cases, values, strict=False) for term in (condition, value)]
    return Term("case", kind, (*pairs, last))


def cast(term: Term, kind: str) -> Term:
    if term.kind == kind:
        return term
    if term.op == "constant" and (term.value is None or {term.kind, kind} == {"timestamp", LOCAL}):
        return term._replace(kind=kind)
    if _family(kind) not in _CASTS.get(_family(term.kind), ()):
        possible = ", ".join(one for one in _CASTS.get(_family(term.kind), ()) if one != LOCAL) or "nothing"
        raise unsupported(f"a cast of {named(term.kind)} to {named(kind)}", f"it can be cast to {possible}")
    return Term("cast", kind, (term,))


def small(of: Term) -> Term:
    """Return an int64, null outside the range of PostgreSQL's smallint."""
    low, high = (Term("constant", "int64", (), end) for end in (LEAST_SMALL, MOST_SMALL))
    return chosen([(logical("and", compared(">=", of, low), compared("<=", of, high)), of)], None)


def is_nullable(term: Term, column: Callable[[ColumnRef], bool]) -> bool:
    """Return whether the term may be null; `column`: whether a column may."""
    if term.op == "column":
        return column(term.value)
    if term.op == "constant":
        return term.value is None
    if term.op in _NEVER_NULL:
        return False
    args = [is_nullable(one, column) for one in term.args]
    if term.op in _IF_ALL:
        return all(args)
    if term.op == "case":
        return any(args[1::2]) or args[-1]
    if term.op in _MAY_BE_NULL or (term.op in _OVERFLOWS and term.kind in ("int64", *_TIMES)) or may_need_more(term):
        return True
    return any(args) or (term.op == "cast" and not _is_whole(term.args[0].kind, term.kind))


def _is_whole(given: str, wanted: str) -> bool:
    """Return whether each value of a kind is also one of another."""
    if _family(wanted) == "decimal" and is_number(given) and given != "float64":
        (p, s), (q, t) = _digits(given), _digits(wanted)
        return p - s <= q - t and s <= t
    if wanted == "int64" and _family(given) == "decimal":
        p, s = _digits(given)
        return p - s < _DIGITS_OF_INT64
    if given in ("timestamp", LOCAL):
        return True
    return wanted in ("string", "float64") and given != "string" or (given, wanted) == ("bool", "int64")


def growth(term: Term, texts: Collection[str] = ("string", "json", "uuid", "bytes")) -> tuple[int, int]:
    """Return bounds (times, more) on the text of the value: at most `times` times the bytes of the row's text, plus `more` bytes."""
    if term.kind not in texts:
        return 0, 0
    if term.op == "constant":
        return 0, 0 if term.value is None else len(term.value if isinstance(term.value, bytes) else term.value.encode())
    if term.op == "column":
        return 1, 0
    if term.op == "cast":
        return growth(term.args[0])[0] or 1, 64
    parts = [growth(one) for one in term.args]
    times, more = sum(one[0] for one in parts), sum(one[1] for one in parts)
    if term.op in ("||", "concat", "case", *_IF_ALL):
        return times, more
    if term.op == "concat_ws":
        between = len(parts) - 2
        return times + between * parts[0][0], more + between * parts[0][1]
    if term.op in _PARTS:
        return parts[0]
    if term.op in ("md5", "to_char"):
        return 0, 32 if term.op == "md5" else 16 * sum(len(one) for one in term.value)
    if term.op == "replace":
        new = term.args[2]
        return (parts[0][0] * (1 + parts[2][1]), parts[0][1] * (1 + parts[2][1])) if new.op == "constant" else (0, LONGEST_TEXT)
    return 8 * times, 8 * more

"""The expressions over a row, with the typing rules of SELECT.

Numbers: int64 with int64 stays int64; a decimal with a decimal or an int64 is an exact decimal of up to 38 digits, but their quotient is
the float64 next to the exact one, and any operation with a float64 is float64. An undefined result is null, never an error: a result out of
range, a division by zero, a text that is not a value of the type to which it is cast. A comparison with null is null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from livejoin.wire.kinds import decimal_kind, digits_of
from service.errors import Problem
from service.query.conditions import ColumnRef, Term

MOST_DIGITS = 38
_DIGITS_OF_INT64 = 19
UNITS = ("hour", "day", "week", "month", "quarter", "year")
_CASTS = {
    "int64": ("float64", "string", "decimal"),
    "float64": ("int64", "decimal"),
    "decimal": ("int64", "float64", "string", "decimal"),
    "timestamp": ("date", "string"),
    "date": ("timestamp", "string"),
    "bool": ("string", "int64"),
    "string": ("int64", "float64", "decimal", "timestamp", "date", "bool"),
    "json": ("string",),
}
_NEVER_NULL = ("is_null", "not_null")
_MAY_BE_NULL = ("->>", "/", "%")


def _refused(what: str, instead: str) -> Problem:
    return Problem("unsupported-query", f"{what} is not supported: {instead}")


def _family(kind: str) -> str:
    return "decimal" if digits_of(kind) is not None else kind


def is_plain(kind: str) -> bool:
    """Return whether values of this kind can be compared here, and have constants."""
    return _family(kind) in ("int64", "float64", "decimal", "timestamp", "date", "string", "bool")


def _is_number(kind: str) -> bool:
    return _family(kind) in ("int64", "float64", "decimal")


def _digits(kind: str) -> tuple[int, int]:
    return digits_of(kind) or (_DIGITS_OF_INT64, 0)


def arithmetic(op: str, left: Term, right: Term) -> Term:
    """Return `+ - * / %` of numbers, `-` of two timestamps (microseconds) or dates (days), or `+ -` of a date and days."""
    kinds = left.kind, right.kind
    if op == "-" and kinds in (("timestamp", "timestamp"), ("date", "date")):
        return Term("-", "int64", (left, right))
    if op in ("+", "-") and kinds == ("date", "int64"):
        return Term(op, "date", (left, right))
    if op == "+" and kinds == ("int64", "date"):
        return Term(op, "date", (right, left))
    if not all(map(_is_number, kinds)):
        instead = "numbers are computed with numbers; timestamps and dates may be subtracted, and take INTERVAL '15 minutes' or days"
        raise _refused(f"{kinds[0]} {op} {kinds[1]}", instead)
    if "float64" in kinds:
        return Term(op, "float64", (cast(left, "float64"), cast(right, "float64")))
    if kinds == ("int64", "int64"):
        return Term(op, "int64", (left, right))
    if op == "/":
        return Term(op, "float64", (_decimal(left), _decimal(right)))
    if op == "%":
        raise _refused(f"{kinds[0]} % {kinds[1]}", "the remainder is of int64 and float64")
    (p, s), (q, t) = map(_digits, kinds)
    scale = s + t if op == "*" else max(s, t)
    precision = p + q + 1 if op == "*" else max(p - s, q - t) + scale + 1
    if precision > MOST_DIGITS:
        said = f"it would need {precision} digits, and a decimal has at most {MOST_DIGITS}: cast one side to fewer digits, or to float64"
        raise _refused(f"{kinds[0]} {op} {kinds[1]}", said)
    return Term(op, decimal_kind(precision, scale), (_decimal(left), _decimal(right)))


def _decimal(term: Term) -> Term:
    return cast(term, decimal_kind(_DIGITS_OF_INT64, 0)) if term.kind == "int64" else term


def moved(term: Term, micros: int) -> Term:
    """Return a timestamp plus a fixed time."""
    if term.kind != "timestamp":
        raise _refused(f"INTERVAL beside {term.kind}", "a timestamp takes an INTERVAL, a date a number of days")
    return Term("+", "timestamp", (term, Term("constant", "int64", (), micros)))


def negative(term: Term) -> Term:
    if not _is_number(term.kind):
        raise _refused(f"- of {term.kind}", "write it before a number")
    return Term("negative", term.kind, (term,))


def texts(op: str, *parts: Term) -> Term:
    """Return `||`, `lower` or `upper`."""
    for part in parts:
        if part.kind != "string":
            raise _refused(f"{op} of {part.kind}", "it takes texts: write CAST(… AS text)")
    return Term(op, "string", parts)


def extracted(doc: Term, key: str | int, as_text: bool) -> Term:
    """Return `doc ->> key` or `doc -> key`."""
    if doc.kind not in ("string", "json"):
        raise _refused(f"{'->>' if as_text else '->'} of {doc.kind}", "it takes JSON, in a column of texts")
    if doc.op == "->":  # a path, read in one step
        (whole,) = doc.args
        return Term("->>" if as_text else "->", "string", (whole,), (*doc.value, key))
    return Term("->>" if as_text else "->", "string", (doc,), (key,))


def truncated(unit: str, of: Term) -> Term:
    if of.kind not in ("timestamp", "date"):
        raise _refused(f"date_trunc of {of.kind}", "it takes a timestamp or a date")
    if unit not in UNITS or (unit == "hour" and of.kind == "date"):
        raise _refused(f"date_trunc by {unit} of {of.kind}", f"its units are {', '.join(UNITS)}; a date has no hours")
    return Term("date_trunc", of.kind, (of,), unit)


def alike(what: str, terms: Sequence[Term]) -> list[Term]:
    """Return the terms cast to the one kind that represents all of them, without loss except for float64."""
    kinds = dict.fromkeys(term.kind for term in terms)
    if len(kinds) == 1:
        return list(terms)
    if not all(map(_is_number, kinds)):
        raise _refused(f"{what} of {' and '.join(kinds)}", "use the same type for all: write CAST(… AS …)")
    if "float64" in kinds:
        return [cast(term, "float64") for term in terms]
    scale = max(_digits(kind)[1] for kind in kinds)
    precision = max(p - s for p, s in map(_digits, kinds)) + scale
    if precision > MOST_DIGITS:
        raise _refused(f"{what} of {' and '.join(kinds)}", f"a decimal has at most {MOST_DIGITS} digits, and they need {precision}")
    return [cast(term, decimal_kind(precision, scale)) for term in terms]


def compared(op: str, left: Term, right: Term) -> Term:
    left, right = alike(f"the comparison {op}", (left, right))
    if not is_plain(left.kind) or (left.kind == "bool" and op not in ("=", "!=")):
        raise _refused(f"the comparison {op} of {left.kind}", "compare other columns")
    return Term(op, "bool", (left, right))


def logical(op: str, *parts: Term) -> Term:
    """Return `and`, `or` or `not`."""
    for part in parts:
        if part.kind != "bool":
            raise _refused(f"{op.upper()} of {part.kind}", "write conditions there")
    return Term(op, "bool", parts)


def tested(op: str, of: Term) -> Term:
    """Return `is_null` or `not_null`."""
    return Term(op, "bool", (of,))


def like(of: Term, pattern: str) -> Term:
    """`pattern`: as returned by `filters.pattern`."""
    if of.kind != "string":
        raise _refused(f"LIKE of {of.kind}", "it takes a text")
    return Term("like", "bool", (of,), pattern)


def coalesced(parts: Sequence[Term]) -> Term:
    made = alike("COALESCE", parts)
    return Term("coalesce", made[0].kind, tuple(made))


def chosen(cases: Sequence[tuple[Term, Term]], otherwise: Term | None) -> Term:
    """Return CASE: the value of the first condition that holds; otherwise `otherwise`, or null."""
    for condition, _ in cases:
        logical("and", condition)
    values = alike("CASE", [value for _, value in cases] + ([otherwise] if otherwise is not None else []))
    kind = values[0].kind
    last = values[-1] if otherwise is not None else Term("constant", kind, (), None)
    pairs = [term for (condition, _), value in zip(cases, values, strict=False) for term in (condition, value)]
    return Term("case", kind, (*pairs, last))


def cast(term: Term, kind: str) -> Term:
    if term.kind == kind:
        return term
    if _family(kind) not in _CASTS.get(_family(term.kind), ()):
        possible = ", ".join(_CASTS.get(_family(term.kind), ())) or "nothing"
        raise _refused(f"a cast of {term.kind} to {kind}", f"it can be cast to {possible}")
    return Term("cast", kind, (term,))


def is_nullable(term: Term, column: Callable[[ColumnRef], bool]) -> bool:
    """Return whether the term may be null; `column`: whether a column may."""
    if term.op == "column":
        return column(term.value)
    if term.op == "constant":
        return term.value is None
    if term.op in _NEVER_NULL:
        return False
    args = [is_nullable(one, column) for one in term.args]
    if term.op == "coalesce":
        return all(args)
    if term.op == "case":
        return any(args[1::2]) or args[-1]
    if term.op in _MAY_BE_NULL or (term.op in ("+", "-", "*", "negative") and term.kind in ("int64", "date", "timestamp")):
        return True
    if term.op == "||":  # null beyond the longest text
        return True
    return any(args) or (term.op == "cast" and not _is_whole(term.args[0].kind, term.kind))


def _is_whole(given: str, wanted: str) -> bool:
    """Return whether each value of a kind is also one of another."""
    if _family(wanted) == "decimal" and _is_number(given) and given != "float64":
        (p, s), (q, t) = _digits(given), _digits(wanted)
        return p - s <= q - t and s <= t
    if wanted == "int64" and _family(given) == "decimal":
        p, s = _digits(given)
        return p - s < _DIGITS_OF_INT64
    return wanted in ("string", "float64") and given != "string" or (given, wanted) == ("bool", "int64")


def growth(term: Term, texts: Collection[str] = ("string", "json", "uuid", "bytes")) -> tuple[int, int]:
    """Return bounds (times, more) on the text of the value: at most `times` times the bytes of the row's text, plus `more` bytes."""
    if term.kind not in texts:
        return 0, 0
    if term.op == "constant":
        return 0, 0 if term.value is None else len(term.value.encode())
    if term.op == "column":
        return 1, 0
    if term.op == "cast":
        return growth(term.args[0])[0] or 1, 64
    parts = [growth(one) for one in term.args]
    times, more = sum(one[0] for one in parts), sum(one[1] for one in parts)
    return (times if term.op in ("||", "coalesce", "case") else 8 * times), 8 * more

"""Comparisons between aliases of values of several kinds: what is compared instead, two values of one kind.

int64 and decimals are compared exactly, with as many digits after the point as the side that has fewer: for an x with one, x = 1.50 is
x = 1.5, x = 1.25 is met by none, and x <= 1.25 is x <= 1.2. With a float64 both sides are float64, as in PostgreSQL: several int64 may then
equal one number.
"""

from __future__ import annotations

from livejoin.wire.grammar import INT64_MAX, INT64_MIN
from livejoin.wire.kinds import MOST_DIGITS, decimal_kind, digits_of
from service.errors import unsupported
from service.query import terms
from service.query.conditions import Term
from service.query.functions.calls import rounded

_DIGITS_OF_INT64 = 19
_LIMITS = {"int64": (INT64_MIN, INT64_MAX), "timestamp": (INT64_MIN, INT64_MAX), "date": (-(2**31), 2**31 - 1)}
_ZEROS = {"string": "", "uuid": "", "bytes": b"", "bool": False, "float64": 0.0}


def common(op: str, left: Term, right: Term) -> tuple[Term, Term]:
    """Return what to compare by `= != < <=` instead of two expressions, each over one alias. Problem `unsupported-query`."""
    if left.kind == right.kind:
        return left, right
    digits, its_digits = _digits(left.kind), _digits(right.kind)
    if digits is None or its_digits is None:
        one, other = terms.compared(op, left, right).args
        return one, other
    scale = min(digits[1], its_digits[1])
    if op == "!=" and digits[1] != its_digits[1]:
        said = "cast one side, so that both have as many digits after the point"
        raise unsupported(f"{left} <> {right} of {left.kind} and {right.kind}", said)
    kind = "int64" if "int64" in (left.kind, right.kind) and scale == 0 else decimal_kind(MOST_DIGITS, scale)
    beyond = [p - s + scale > MOST_DIGITS + (kind == "int64") for p, s in (digits, its_digits)]
    if (op == "=" and all(beyond)) or (op == "!=" and any(beyond)):
        said = f"of values of up to {MOST_DIGITS} digits: cast longer ones to a decimal of fewer"
        raise unsupported(f"the comparison of {left} with {right}", f"aliases are compared by = and <> {said}")
    # x < 1.25 is x < 1.3 and x <= 1.2; 1.25 < x is 1.2 < x, and 1.25 <= x is 1.3 <= x.
    ways = ("floor", "ceil") if op == "<" else ("ceil", "floor")
    one, other = (_rounded(op, term, kind, scale, way) for term, way in zip((left, right), ways, strict=True))
    return one, other


def limited(op: str, low: Term, high: Term, unbounded: tuple[bool, bool]) -> tuple[str, Term, Term]:
    """Return a comparison by `<` or `<=` in which a null on a side that is `unbounded` is beyond all values of the other one. Exact,
    except that 18 nines, as a decimal of 18 digits, are not below an unbounded end."""
    low, high = common(op, low, high)
    digits = digits_of(low.kind)
    if digits is None and low.kind not in _LIMITS:
        raise unsupported(f"{low} {op} {high} with nulls as unbounded, of {low.kind}", "it takes int64, decimal, timestamp or date")
    ends = low, high
    if digits is None and op == "<":
        op, ends = "<=", (low, following(high, -1))
    given = zip((low, high), ends, unbounded, strict=True)
    low, high = (
        terms.chosen([(terms.tested("is_null", one), _limit(one.kind, at))], end) if is_unbounded else end
        for at, (one, end, is_unbounded) in enumerate(given)
    )
    return op, low, high


def following(term: Term, step: int) -> Term:
    """Return the value after (1), or before (-1), one of a type whose values follow each other."""
    by = Term("constant", "int64", (), step)
    return Term("+", "timestamp", (term, by)) if term.kind == "timestamp" else terms.arithmetic("+", term, by)


def _limit(kind: str, is_high: int) -> Term:
    """Return the least or the greatest value of a kind, of a decimal one beyond it, if there is one of at most 18 digits."""
    digits = digits_of(kind)
    if digits is None:
        return Term("constant", kind, (), _LIMITS[kind][is_high])
    precision, scale = digits
    most = 10**precision if precision < MOST_DIGITS else 10**MOST_DIGITS - 1
    return Term("constant", decimal_kind(min(precision + 1, MOST_DIGITS), scale), (), most if is_high else -most)


def zero_of(kind: str) -> Term:
    """Return some value of a kind."""
    return Term("constant", kind, (), _ZEROS.get(kind, 0))


def _digits(kind: str) -> tuple[int, int] | None:
    return (_DIGITS_OF_INT64, 0) if kind == "int64" else digits_of(kind)


def _rounded(op: str, term: Term, kind: str, scale: int, way: str) -> Term:
    """Return a number with `scale` digits after the point, of `kind` or a decimal of fewer digits: for an equality null where there is no
    such one, otherwise the next one in that way."""
    precision, its_scale = _digits(term.kind) or (0, 0)
    if its_scale == scale and (term.kind == kind or (kind != "int64" and precision <= MOST_DIGITS)):
        return term
    if op in ("=", "!="):
        made = terms.cast(term, kind)
        return made if its_scale == scale else terms.chosen([(terms.compared("=", made, term), made)], None)
    if precision - its_scale + scale >= MOST_DIGITS + (kind == "int64"):
        said = f"it may have more than {MOST_DIGITS} digits: cast it to a decimal of fewer"
        raise unsupported(f"the comparison of {term} with another alias", said)
    return terms.cast(rounded(way, term, scale) if its_scale > scale else term, kind)

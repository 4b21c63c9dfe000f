"""Arithmetic, rounding and the functions of numbers; null where PostgreSQL raises an error.

Costs: 1 to 10 ns a row; a remainder of decimals, and a quotient of decimals of more digits than a float has, about 1 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.query.conditions import ColumnRef, Term
from service.query.terms import COMPUTED_DIGITS, may_need_more
from service.tables.arrow import writable
from service.tables.values.columns import (
    INT64,
    Floats,
    Mask,
    Values,
    by_row,
    days_made,
    floats,
    has_values,
    ints,
    made,
    nulls,
    repeated,
    type_of,
    words,
)
from structures.core.kernel import compiled
from structures.expression import steps

EXACT = Context(prec=80)
_OPERATIONS = {"+": steps.ADD, "-": steps.SUBTRACT, "*": steps.MULTIPLY, "/": steps.DIVIDE, "%": steps.REMAINDER}
_TO_WHOLE: dict[str, Callable[[Floats], Floats]] = {"round": np.rint, "trunc": np.trunc, "floor": np.floor, "ceil": np.ceil}
_MODES = {"round": "half_towards_infinity", "trunc": "towards_zero", "floor": "down", "ceil": "up"}


def _of_decimals(term: Term, left: pa.Array, right: pa.Array) -> pa.Array:
    if term.op == "/":
        return quotient(left, right)
    if term.op == "%":
        return by_row(lambda x, y: EXACT.remainder(x, y) if y else None, type_of(term.kind), left, right)
    compute = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[term.op]
    if may_need_more(term):
        wide = compute(*(one.cast(pa.decimal256(one.type.precision, one.type.scale)) for one in (left, right)))
        least = pa.scalar(Decimal(10 ** (COMPUTED_DIGITS - wide.type.scale)), wide.type)
        return pc.if_else(pc.less(pc.abs(wide), least), wide, None).cast(type_of(term.kind))
    return compute(left, right).cast(type_of(term.kind))


def _arithmetic(term: Term, left: Values, right: Values) -> Values:
    operation = _OPERATIONS[term.op] + (steps.FLOATS if term.kind == "float64" else 0)
    x, y = (writable(one.values.view(np.int64), np.int64) for one in (left, right))
    found, null = np.empty(len(x), np.int64), np.empty(len(x), np.bool_)
    compiled(steps.results)(operation, x, y, found, null)
    if term.kind == "date":
        return days_made(np.where(null, 0, found), nulls(left, right) | null)
    return made(found.view(np.float64) if term.kind == "float64" else found, null, left.null, right.null)


def is_arithmetic(term: Term) -> bool:
    """Whether the expression can be computed by steps alone."""
    if not has_values(term.kind) or term.kind == "bool":
        return False
    if term.op in ("column", "constant"):
        return True
    steps_only = term.op in _OPERATIONS and term.kind != "date" or (term.op, term.kind, term.args[0].kind) == ("cast", "float64", "int64")
    return steps_only and all(map(is_arithmetic, term.args))


def add_steps(found: list[tuple[int, int, int]], term: Term, first: int, place: Callable[[ColumnRef], int]) -> int:
    """Add the steps of such an expression to those whose results are the registers from `first` on; return the register of its value.
    `place`: the number of a column in its table."""
    if term.op == "column":
        step = steps.LOAD, place(term.value), 0
    elif term.op == "constant":
        (word,) = repeated(term.value, term.kind, 1).values.view(np.int64).tolist()
        step = steps.CONSTANT, word, int(term.value is None)
    else:
        a, *other = (add_steps(found, one, first, place) for one in term.args)
        operation = steps.FROM_INT if term.op == "cast" else _OPERATIONS[term.op] + (steps.FLOATS if term.kind == "float64" else 0)
        step = operation, a, *(other or (0,))
    found.append(step)
    return first + len(found) - 1


def quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return the floats next to the exact quotients of decimals; null for a division by zero."""
    more = right.type.scale - left.type.scale
    (x, x_exact), (y, y_exact) = _exact(left, 10 ** max(more, 0)), _exact(right, 10 ** max(-more, 0))
    null = np.asarray(left.is_null()) | np.asarray(right.is_null()) | ((y == 0) & y_exact)
    exact = x_exact & y_exact
    with np.errstate(all="ignore"):
        found = x / y
    for at in np.flatnonzero(~exact & ~null).tolist():
        found[at] = Fraction(left[at].as_py()) / Fraction(right[at].as_py())
    return pa.array(found + 0.0, mask=null)  # no -0.0


def _exact(decimals: pa.Array, factor: int) -> tuple[Floats, Mask]:
    """Return the unscaled values times the factor, 0 for null, and which of them are exact."""
    low, high = words(pc.fill_null(decimals, pa.scalar(Decimal(0), decimals.type)))
    most = (1 << 53) // factor
    return low.astype(np.float64) * float(factor), (high == low >> 63) & (low >= -most) & (low <= most)


def _signed(term: Term, of: Values) -> Values:
    """`negative` or `abs`; null where it is outside of int64."""
    change: Callable[[Any], Any] = np.negative if term.op == "negative" else np.abs
    if term.kind == "float64":
        return Values(change(of.values), of.null)
    values = ints(of)
    outside = values == INT64.min
    return made(change(np.where(outside, 0, values)), outside, of.null)


def _sign(term: Term, of: Values) -> Values:
    """Of NaN 0, as in PostgreSQL."""
    values = floats(of)
    return Values(np.where(np.isnan(values), 0.0, np.sign(values)), of.null)


def _rounded(term: Term, of: Values) -> Values:
    """`round`, `trunc`, `floor` or `ceil`."""
    return Values(_TO_WHOLE[term.op](floats(of)), of.null)


def _rounded_decimal(term: Term, of: pa.Array) -> pa.Array:
    """The same to `term.value` digits."""
    precision, scale = of.type.precision, of.type.scale
    if term.value >= scale:
        return of.cast(type_of(term.kind))
    if -term.value > precision - scale:  # less than half of the unit
        return pc.if_else(of.is_valid(), pa.scalar(Decimal(0), type_of(term.kind)), None)
    wide = of.cast(pa.decimal256(precision + 1, scale))
    return pc.round(wide, term.value, round_mode=_MODES[term.op]).cast(type_of(term.kind))


def _root(term: Term, of: Values) -> Values:
    values = floats(of)
    bad = values < 0
    return made(np.sqrt(np.where(bad, 0.0, values)), bad, of.null)


def _power(term: Term, left: Values, right: Values) -> Values:
    """Null for what is no real number, and for a result out of range."""
    x, y = floats(left), floats(right)
    with np.errstate(all="ignore"):
        found = np.power(x, y)
        bad = ((x == 0) & (y < 0)) | ((x < 0) & (np.floor(y) != y) & ~np.isnan(y))
        finite = np.isfinite(x) & np.isfinite(y)
        bad |= finite & (np.isinf(found) | ((found == 0) & (x != 0)))
    return made(found, bad, left.null, right.null)


RULES: dict[str, Callable[..., Values]] = {
    **dict.fromkeys("+-*/%", _arithmetic),
    **dict.fromkeys(("round", "trunc", "floor", "ceil"), _rounded),
    **dict.fromkeys(("negative", "abs"), _signed),
    "sign": _sign,
    "sqrt": _root,
    "power": _power,
}
OF_DECIMALS: dict[str, Callable[..., pa.Array]] = {
    **dict.fromkeys("+-*/%", _of_decimals),
    **dict.fromkeys(("round", "trunc", "floor", "ceil"), _rounded_decimal),
    "negative": lambda term, of: pc.negate(of).cast(of.type),
    "abs": lambda term, of: pc.abs(of).cast(of.type),
    "sign": lambda term, of: pc.sign(of).cast(pa.decimal128(19, 0)).cast(type_of(term.kind)),
}


def rounded(value: Decimal, scale: int, most: Decimal | int) -> Decimal | None:
    """Return the value with this scale, half away from zero; None if it is not below `most`."""
    if not value.is_finite() or value.copy_abs() > most:
        return None
    found = value.quantize(Decimal(1).scaleb(-scale), "ROUND_HALF_UP", EXACT)
    return found if found.copy_abs() < most else None


def unscaled(value: Any, scale: int) -> Decimal:
    """Return the decimal of an integer in units of its last digit."""
    return Decimal(value).scaleb(-scale, EXACT)

"""Evaluate `query.terms` on rows, a column at a time: null where there is no value, never an error. NumPy computes numbers, times and
bools, Arrow decimals and texts.

Costs: some 5 µs a step and call for numbers, 10 µs for others, plus 1 to 10 ns (numbers) or 10 to 50 ns (texts) a row; what Arrow lacks,
JSON, and casts of texts, about 1 µs a distinct value, a part of JSON with a fraction in it more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.kinds import SENT_TYPES, digits_of, kept, sent
from service.query.conditions import ColumnRef, Term, columns_of
from service.query.terms import growth
from service.tables.arrow import any_null
from service.tables.values import numbers, texts, times
from service.tables.values.casts import between_numbers, cast
from service.tables.values.columns import Column, Mask, Values, arrow, has_values, repeated, type_of, values_of

COMPARED = {"=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


Columns = Callable[[ColumnRef], Column]
_MOST_BYTES = 1 << 28  # of the texts of a step: an array of texts has less than 1 << 31


def evaluated(term: Term, column: Columns, count: int) -> pa.Array:
    """Return `count` values, of the Arrow type in which this kind is sent. `column`: returns the column of a reference, `Values` or in the
    type in which it is sent."""
    return arrow(computed(term, column, count), term.kind)


def holds(condition: Term, column: Columns, count: int) -> Mask:
    """bool[count], writable: where the condition is true."""
    found = computed(condition, column, count)
    assert isinstance(found, Values)
    return _true(found)


def computed(term: Term, column: Columns, count: int) -> Column:
    """The same as `Values`, if it is of such a kind. Rows whose texts might become too long are evaluated in parts."""
    times, more = _growth(term)
    if count > 1 and (more * count > _MOST_BYTES or times > 1):
        size = times * sum(arrow(column(ref), kind).nbytes for ref, kind in columns_of(term).items()) + more * count
        if size > _MOST_BYTES:
            parts, middle = columns_of(term), count // 2

            def part(ref: ColumnRef, rows: slice) -> pa.Array:
                return arrow(column(ref), parts[ref])[rows]

            first = evaluated(term, lambda ref: part(ref, slice(0, middle)), middle)
            second = evaluated(term, lambda ref: part(ref, slice(middle, count)), count - middle)
            return values_of(pa.concat_arrays([first, second]), term.kind)
    return _computed(term, column, count)


def stored(term: Term, rows: pa.RecordBatch) -> pa.Array:
    """Return the values for stored rows of one relation, as they would be stored."""
    kinds = columns_of(term)
    return kept(evaluated(term, lambda ref: sent(rows.column(ref.column), SENT_TYPES[kinds[ref]]), rows.num_rows))


@lru_cache(1 << 10)
def _growth(term: Term) -> tuple[int, int]:
    """Return bounds on the texts of each step, as `growth` does."""
    steps = [growth(term), *map(_growth, term.args)]
    return max(times for times, _ in steps), max(more for _, more in steps)


def _computed(term: Term, column: Columns, count: int) -> Column:
    if term.op == "column":
        return values_of(column(term.value), term.kind)
    if term.op == "constant":
        return repeated(term.value, term.kind, count) if has_values(term.kind) else pa.repeat(_scalar(term), count)
    args = [_computed(one, column, count) for one in term.args]
    if has_values(term.kind) and term.op in _RULES and all(isinstance(arg, Values) for arg in args):
        return _RULES[term.op](term, *args)
    given = [arrow(arg, one.kind) for arg, one in zip(args, term.args, strict=True)]
    return values_of(_OF_ARROW[term.op](term, *given), term.kind)


def _scalar(term: Term) -> pa.Scalar:
    type_, digits = type_of(term.kind), digits_of(term.kind)
    if digits is not None and term.value is not None:
        return pa.scalar(numbers.unscaled(term.value, digits[1]), type_)
    return pa.scalar(term.value, type_)


def _compare(term: Term, left: Values, right: Values) -> Values:
    return Values(_compared(term.op, left, right), any_null((left.null, right.null)))


def _compared(op: str, left: Values, right: Values) -> Mask:
    """NaN is the greatest value, and equal to itself."""
    x: Any = left.values
    y: Any = right.values
    if x.dtype != np.float64:
        found: Mask = _OPERATORS[op](x, y)
        return found
    less: Mask = (x < y) | (np.isnan(y) & ~np.isnan(x))
    equal: Mask = (x == y) | (np.isnan(x) & np.isnan(y))
    return {"=": equal, "!=": ~equal, "<": less, "<=": less | equal, ">": ~(less | equal), ">=": ~less}[op]


def _true(condition: Values) -> Mask:
    values: Mask = condition.values  # type: ignore[assignment]
    return values if condition.null is None else values & ~condition.null


def _either(take: Mask, one: Values, other: Values) -> Values:
    """Return the values of one column, elsewhere those of the other one."""
    null = None
    if one.null is not None or other.null is not None:
        null = np.where(take, False if one.null is None else one.null, False if other.null is None else other.null)
    return Values(np.where(take, one.values, other.values), null)


def _case(term: Term, *args: Values) -> Values:
    made = args[-1]
    for at in range(len(args) - 3, -1, -2):
        made = _either(_true(args[at]), args[at + 1], made)
    return made


def _arrow_case(term: Term, *args: pa.Array) -> pa.Array:
    made = args[-1]
    for at in range(len(args) - 3, -1, -2):
        made = pc.if_else(pc.fill_null(args[at], False), args[at + 1], made)
    return made


def _folded(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def fold(term: Term, *args: Any) -> Any:
        made = args[0]
        for one in args[1:]:
            made = combine(made, one)
        return made

    return fold


def _first(x: Values, y: Values) -> Values:
    return x if x.null is None else _either(~x.null, x, y)


def _extreme(op: str) -> Callable[..., Values]:
    """Of two values the one that compares so with the other, or that which is not null."""

    def of_both(x: Values, y: Values) -> Values:
        take = _compared(op, x, y)
        take = take if y.null is None else take | y.null
        return _either(take if x.null is None else take & ~x.null, x, y)

    return _folded(of_both)


def _arrow_extreme(op: str) -> Callable[..., pa.Array]:
    return _folded(lambda x, y: pc.if_else(pc.fill_null(COMPARED[op](x, y), y.is_null()), x, y))


def _null_if(term: Term, x: Values, y: Values) -> Values:
    equal = Values(_compared("=", x, y), any_null((x.null, y.null)))
    return Values(x.values, any_null((x.null, _true(equal))))


def _and(x: Values, y: Values) -> Values:
    """False if one of them is false."""
    null = any_null((x.null, y.null))
    return Values(_true(x) & _true(y), None if null is None else null & ~_true(_not(x)) & ~_true(_not(y)))


def _not(x: Values) -> Values:
    return Values(np.logical_not(x.values), x.null)


def _is_null(term: Term, of: Values) -> Values:
    return Values(np.zeros(len(of.values), np.bool_) if of.null is None else of.null, None)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip
_RULES: dict[str, Callable[..., Values]] = {
    **numbers.RULES,
    **times.RULES,
    **dict.fromkeys(COMPARED, _compare),
    "cast": between_numbers,
    "coalesce": _folded(_first),
    "case": _case,
    "greatest": _extreme(">="),
    "least": _extreme("<="),
    "nullif": _null_if,
    "and": _folded(_and),
    "or": _folded(lambda x, y: _not(_and(_not(x), _not(y)))),
    "not": lambda term, of: _not(of),
    "is_null": _is_null,
    "not_null": lambda term, of: _not(_is_null(term, of)),
}
_OF_ARROW: dict[str, Callable[..., pa.Array]] = {
    **numbers.OF_DECIMALS,
    **texts.RULES,
    **times.TO_ARROW,
    **{op: lambda term, x, y, compare=compare: compare(x, y) for op, compare in COMPARED.items()},
    "cast": cast,
    "coalesce": lambda term, *args: pc.coalesce(*args),
    "case": _arrow_case,
    "greatest": _arrow_extreme(">="),
    "least": _arrow_extreme("<="),
    "nullif": lambda term, x, y: pc.if_else(pc.fill_null(pc.equal(x, y), False), pa.scalar(None, x.type), x),
    "is_null": lambda term, of: of.is_null(),
    "not_null": lambda term, of: of.is_valid(),
}
"""For decimals and texts, and what is made of them."""

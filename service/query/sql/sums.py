"""Comparisons of two columns of which at least one is in a sum with constants: `m.at - b.s <= INTERVAL '4' HOUR`, `a.n + 5 < b.n`,
`abs(a.x - b.x) <= 0.5`.

For whole numbers, decimals and times, the sums are exact, whatever the constants: `a.n + 0.5 < b.n` is `a.n + 1 <= b.n`. For floats, a
constant stays on its side, where the sum is rounded; that of a difference is added to the column from which the other one is subtracted.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import NamedTuple

from sqlglot import exp

from service.errors import unsupported
from service.query.assembly import Inequality
from service.query.conditions import ColumnRef
from service.query.literals import BadLiteral, difference, number_from, read_interval
from service.query.sql.filters import MIRRORED
from service.query.sql.functions import interval_of
from service.query.sql.names import Names, sql_of
from service.query.sql.terms import MOST_STEPS

_CONSTANT = (exp.Literal, exp.Interval, exp.Var, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Cast, exp.DataType)
_DURATIONS = ("P", "-P")  # in JSON, where other texts are decimals
_MOST = 10**320


class _Side(NamedTuple):
    """Columns that are added, columns that are subtracted, and constants with their signs."""

    added: list[exp.Column]
    subtracted: list[exp.Column]
    constants: list[tuple[exp.Expr, int]]

    def constant(self, kind: str) -> Fraction:
        """Return the sum of the constants beside a column of this kind, in its unit."""
        number, micros = Fraction(0), 0
        for node, sign in self.constants:
            more, length = _constant(node)
            number, micros = number + sign * more, micros + sign * length
        return difference(kind, number, micros)


class _Comparison(NamedTuple):
    """`low + plus op high + high_plus`"""

    op: str
    low: ColumnRef
    plus: Fraction
    high: ColumnRef
    high_plus: Fraction = Fraction(0)

    def inequality(self, kind: str) -> Inequality:
        if self.op in (">", ">="):
            return _Comparison(MIRRORED[self.op], self.high, self.high_plus, self.low, self.plus).inequality(kind)
        strict, plus = self.op == "<", self.plus - self.high_plus
        if kind == "float64":
            return Inequality(self.low, self.high, strict, plus=(_rounded(self.plus), _rounded(self.high_plus)))
        return Inequality(self.low, self.high, strict and plus.denominator == 1, plus=(ceil(plus), 0))


def read_sums(op: str, left: exp.Expr, right: exp.Expr, names: Names) -> list[Inequality] | None:
    """Return what a comparison over two aliases means that has sums or differences; None if it has none, or more than two columns.
    Problems `unsupported-query`, `unknown-column`; `bad-query` with `position`."""
    sides = [_side(one.this if isinstance(one := node.unnest(), exp.Abs) else one) for node in (left, right)]
    first, second = sides
    if first is None or second is None or not (left.find(exp.Add, exp.Sub, exp.Neg) or right.find(exp.Add, exp.Sub, exp.Neg)):
        return None
    if not (first.added or first.subtracted):
        return read_sums(MIRRORED[op], right, left, names) if second.added or second.subtracted else None
    added, subtracted = first.added + second.subtracted, first.subtracted + second.added
    if len(added) != 1 or len(subtracted) != 1:
        return None
    x, y = names.column(added[0]), names.column(subtracted[0])
    if names.scope.describe(x).comparable != names.scope.describe(y).comparable:
        return None
    kind, words = names.scope.describe(x).kind, f"{sql_of(left)} {op} {sql_of(right)}"
    try:
        plus, limit = first.constant(kind), second.constant(kind)
        if isinstance(right.unnest(), exp.Abs) or (isinstance(left.unnest(), exp.Abs) and (op not in ("<", "<=") or second.added)):
            raise unsupported(words, "a distance is compared with a constant by < or <=: write abs(a.t - b.t) <= c")
        if op == "!=":
            raise unsupported(words, "sums are compared by =, <, <=, > and >=: define a view for each side")
        if isinstance(left.unnest(), exp.Abs):
            if limit < 0:
                raise BadLiteral("the distance is negative")
            made = [_Comparison(op, x, plus - limit, y), _Comparison(MIRRORED[op], x, plus + limit, y)]
        else:
            apart = (plus, y, limit) if first.added and second.added else (plus - limit, y, Fraction(0))
            made = [_Comparison(each, x, *apart) for each in (("<=", ">=") if op == "=" else (op,))]
        return [one.inequality(kind) for one in made]
    except BadLiteral as error:
        raise names.bad(left, f"the distance of {x} and {y}: {error}") from None


def _side(node: exp.Expr) -> _Side | None:
    """Return the operands of a sum; None if one is neither a column nor a constant."""
    side, pending = _Side([], [], []), [(node, 1)]
    while pending:
        one, sign = pending.pop()
        one = one.unnest()
        if isinstance(one, exp.Add | exp.Sub):
            pending += [(one.right, -sign if isinstance(one, exp.Sub) else sign), (one.left, sign)]
        elif isinstance(one, exp.Neg):
            pending.append((one.this, -sign))
        elif isinstance(one, exp.Column):
            (side.added if sign > 0 else side.subtracted).append(one)
        elif _is_addend(one):
            side.constants.append((one, sign))
        else:
            return None
    return side


def _is_addend(node: exp.Expr) -> bool:
    return all(isinstance(one, _CONSTANT) for one in node.walk()) and sum(1 for _ in node.walk()) <= MOST_STEPS


def _constant(node: exp.Expr) -> tuple[Fraction, int]:
    """Return a number and the microseconds of an interval, one of which is 0."""
    node = node.unnest()
    if (interval := interval_of(node)) is not None:
        return Fraction(0), _micros(interval)
    if isinstance(node, exp.Neg):
        number, micros = _constant(node.this)
        return -number, -micros
    if isinstance(node, exp.Mul | exp.Div):
        (number, micros), (factor, others) = _constant(node.left), _constant(node.right)
        if isinstance(node, exp.Mul) and others:
            number, micros, factor, others = factor, others, number, micros
        if others or (isinstance(node, exp.Div) and not factor) or max(abs(number), abs(factor)) > _MOST:
            raise BadLiteral(f"{sql_of(node)} is neither a number nor an INTERVAL")
        factor = 1 / factor if isinstance(node, exp.Div) else factor
        return number * factor, round(micros * factor)
    if not isinstance(node, exp.Literal):
        raise BadLiteral(f"{sql_of(node)} is neither a number nor an INTERVAL")
    value = node.meta.get("value", node.name)
    if not node.is_string or ("value" in node.meta and not value.upper().startswith(_DURATIONS)):
        return number_from(value), 0
    minus = "value" in node.meta and value.startswith("-")
    return Fraction(0), (-1 if minus else 1) * _micros(read_interval(value[minus:]))


def _micros(interval: tuple[int, int]) -> int:
    months, micros = interval
    if months:
        raise BadLiteral("a month has no fixed length: write a number of days, such as INTERVAL '30 days'")
    return micros


def _rounded(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        raise BadLiteral("a constant is out of the range of float64") from None

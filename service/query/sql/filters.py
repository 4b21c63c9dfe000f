"""Reads conditions on the columns of one alias: filters where a column is compared with constants, and otherwise expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import NamedTuple

from sqlglot import exp

from livejoin.wire.grammar import INT64_MAX, INT64_MIN
from livejoin.wire.kinds import MOST_DIGITS, digits_of, is_wide
from service.errors import Problem, unsupported
from service.query import terms
from service.query.assembly import Draft
from service.query.conditions import ColumnRef, Term, columns_of
from service.query.filters import holds, on_nulls
from service.query.literals import NUMBER, BadLiteral, Physical, value_of
from service.query.sql.constants import CASTS, is_constant, is_nan, is_null, read_like, read_value, require_text, text_of
from service.query.sql.names import Names, sql_of
from service.query.sql.terms import COMPARED, is_clock, read_term

MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
WRITTEN = {op: kind for kind, op in COMPARED.items()}
_WHOLE_INFINITIES = {str(2**63 - 1): "high", str(-(2**63)): "low"}  # the bounds of bigint, which no endpoint reaches
_INFINITIES = {"infinity": "high", "+infinity": "high", "inf": "high", "-infinity": "low", "-inf": "low"}
_BY_COLUMN: dict[type, str] = {
    exp.EQ: "compare column by column, joined by AND",
    exp.NEQ: "compare column by column, joined by OR: a <> 1 OR b <> 2",
    exp.In: "write a = 1 AND b = 2 for each of the values, joined by OR",
}
_WIDER = {("date", "timestamp"), ("int64", "float64"), ("int64", "decimal"), ("decimal", "float64")}
_IN_ORDER = "compare the later columns only where the first are equal: a < 1 OR (a = 1 AND b < 2)"


class RowConditions:
    """Reads conditions that name columns of at most one alias into a draft whose names are known."""

    def __init__(self, draft: Draft, names: Names) -> None:
        self._draft = draft
        self._names = names

    def add(self, node: exp.Expr, negated: bool) -> None:
        """Add a condition that must hold, or (`negated`) must be false; not a comparison, nor one that NOT, AND or OR makes."""
        column = self._column(node.this) if isinstance(node.this, exp.Expr) else None
        if isinstance(node, exp.Column):
            self._bool(self._names.column(node), not negated, node)
        elif isinstance(node, exp.In) and is_empty(node):
            raise unsupported(sql_of(node), "write IN (…) over constants, or IN (SELECT …)")
        elif isinstance(node, exp.In) and column is not None and all(self._is_value(one, column) for one in node.expressions):
            self._among(column, node, negated)
        elif isinstance(node, exp.Is) and column is not None:
            self._is(column, node, bool(node.args.get("negate")) != negated)
        elif isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            self._distinct(node, isinstance(node, exp.NullSafeNEQ) != negated)
        elif (like := read_like(self._names, node, negated)) is not None and isinstance(like[0], exp.Column):
            ref = self._names.column(like[0])
            require_text(self._names, node, self._kind(ref))
            self._draft.restrict(ref, *like[1:])
        else:
            self._holds(node, negated)

    def compare(self, op: str, left: exp.Expr, right: exp.Expr) -> None:
        """Add `left op right`."""
        for op_of, of, with_ in ((op, left, right), (MIRRORED[op], right, left)):
            if not is_constant(with_.unnest()):
                continue
            if (column := self._column(of)) is not None and self._is_value(with_, column):
                return self._restrict(self._draft, column, op_of, with_, of)
            if (end := end_of(of, self._names)) is not None and not (self._kind(end[0]) == "int64" or is_wide(self._kind(end[0]))):
                return self._end(*end, op_of, with_, of)
        if isinstance(left.unnest(), exp.Null) or isinstance(right.unnest(), exp.Null):
            self._draft.never = True
        elif not is_constant(left.unnest()) or not is_constant(right.unnest()):
            self._holds(WRITTEN[op](this=left.copy(), expression=right.copy()), False)
        elif left != right or op not in ("=", "<=", ">="):
            raise unsupported(f"{sql_of(left)} {op} {sql_of(right)}", "a comparison of constants: write TRUE or FALSE, or leave it out")

    def order(self, kind: type[exp.Binary], low: exp.Expr, high: exp.Expr, unbounded: Sequence[exp.Expr]) -> None:
        """Add a comparison that is also met where one of `unbounded` is null."""
        if any(isinstance(one, exp.Null) for one in unbounded):
            return
        node = kind(this=low.copy(), expression=high.copy())
        if is_constant(low) and is_constant(high):
            known = on_nulls(read_term(node, self._names))
            if known is None:
                raise unsupported(sql_of(node), "write numbers, or timestamps and dates with their type, as in DATE '2026-01-31'")
            self._draft.never = self._draft.never or known.value is not True
            return
        cases = [RowConditions(Draft(self._draft.scope), self._names)]
        cases[0].compare(COMPARED[kind], low, high)
        for one in unbounded:
            if not is_constant(one):
                cases.append(RowConditions(Draft(self._draft.scope), self._names))
                cases[-1].add(exp.Is(this=one.copy(), expression=exp.Null()), False)
        self._draft.choose([case._draft for case in cases], sql_of(node))

    def _is_value(self, node: exp.Expr, ref: ColumnRef) -> bool:
        return not is_wide(kind := self._kind(ref)) and is_value(node, kind)

    def _kind(self, ref: ColumnRef) -> str:
        return self._draft.scope.describe(ref).kind

    def _column(self, node: exp.Expr) -> ColumnRef | None:
        node = node.unnest()
        return self._names.column(node) if isinstance(node, exp.Column) else None

    def _holds(self, node: exp.Expr, negated: bool) -> None:
        """Add an expression that must be true, or (`negated`) must be false."""
        self._draft.filters.append(holds(read_condition(node, negated, self._names)))

    def _bool(self, ref: ColumnRef, value: bool, node: exp.Expr) -> None:
        """Add a bool column that must have a value."""
        if (type_ := self._kind(ref)) != "bool":
            raise self._names.bad(node, f"{ref} is {type_}, not a condition")
        self._draft.restrict(ref, "=", [value])

    def _among(self, ref: ColumnRef, node: exp.In, negated: bool) -> None:
        if not negated:
            values = [value for one in node.expressions for value in self._values(ref, one, node.this)]
            self._draft.restrict(ref, "in", values)
            return
        for one in node.expressions:
            self._restrict(self._draft, ref, "!=", one, node.this)

    def _is(self, ref: ColumnRef, node: exp.Is, negated: bool) -> None:
        value = node.expression
        if isinstance(value, exp.Null):
            self._draft.restrict(ref, "not_null" if negated else "is_null", [])
        elif not isinstance(value, exp.Boolean):
            raise unsupported(sql_of(node), "write IS NULL, IS NOT NULL, IS [NOT] TRUE, IS [NOT] FALSE")
        elif negated:
            other = RowConditions(Draft(self._draft.scope), self._names)
            other._bool(ref, not value.this, node)
            self._or_null(other._draft, ref, node)
        else:
            self._bool(ref, value.this, node)

    def _distinct(self, node: exp.NullSafeEQ | exp.NullSafeNEQ, distinct: bool) -> None:
        """Read `IS [NOT] DISTINCT FROM`: null is a value like any other."""
        for of, constant in ((node.this, node.expression), (node.expression, node.this)):
            if (ref := self._column(of)) is None or not self._is_value(constant, ref):
                continue
            if is_null(constant):
                self._draft.restrict(ref, "not_null" if distinct else "is_null", [])
            elif distinct:
                other = Draft(self._draft.scope)
                self._restrict(other, ref, "!=", constant, of)
                self._or_null(other, ref, node)
            else:
                self._restrict(self._draft, ref, "=", constant, of)
            return
        self._holds(node, (isinstance(node, exp.NullSafeNEQ)) != distinct)

    def _end(self, ref: ColumnRef, infinity: str, op: str, constant: exp.Expr, of: exp.Expr) -> None:
        """Read a comparison of `COALESCE(end, 'infinity')` with a constant."""
        other = Draft(self._draft.scope)
        self._restrict(other, ref, op, constant, of)
        if op in (("<", "<=", "!=") if infinity == "low" else (">", ">=", "!=")):
            self._or_null(other, ref, of)
        else:
            self._draft.choose([other], sql_of(of))

    def _or_null(self, other: Draft, ref: ColumnRef, node: exp.Expr) -> None:
        null = Draft(self._draft.scope)
        null.restrict(ref, "is_null", [])
        self._draft.choose([other, null], sql_of(node))

    def _restrict(self, draft: Draft, ref: ColumnRef, op: str, constant: exp.Expr, of: exp.Expr) -> None:
        """Add the comparison of a column, written as `of`, with a constant, which may have more digits than the values of the column."""
        self._draft.scope.require_comparable(ref)
        draft.restrict(ref, *against(self._names, self._kind(ref), op, constant, sql_of(of)))

    def _values(self, ref: ColumnRef, constant: exp.Expr, of: exp.Expr) -> list[Physical]:
        self._draft.scope.require_comparable(ref)
        return values_of(self._names, self._kind(ref), constant, sql_of(of))


def is_value(node: exp.Expr, kind: str) -> bool:
    """Return whether it is a constant that is compared with values of a kind as one of them: not where both sides are compared as floats,
    nor one that a cast may change, nor NaN."""
    node = node.unnest()
    inner = node.this.unnest() if isinstance(node, exp.Neg) else node
    if not is_constant(node) or (_is_exact(kind) and _cast_kind(inner) == "float64") or (kind == "float64" and is_nan(node)):
        return False
    return all(_keeps(cast, kind) for cast in node.find_all(exp.Cast))


def _keeps(cast: exp.Cast, kind: str) -> bool:
    """Return whether a constant that is cast is read as one of a kind, and its value is that without the cast."""
    of, given, digits = cast.this.unnest(), _cast_kind(cast), digits_of(kind)
    of = of.this.unnest() if isinstance(of, exp.Neg) else of
    if isinstance(of, exp.Null):
        return True
    if not isinstance(of, exp.Literal):
        return False
    if not of.is_string and given not in ("float64", "decimal") and not (given == "int64" and of.name.isdecimal()):
        return False
    if given is None and digits is not None and [one.name for one in cast.to.expressions] == list(map(str, digits)):
        with suppress(BadLiteral):
            value_of(kind, of.name)
            return True
        return False
    wanted = kind if digits is None else "decimal"
    return given == wanted or (given, wanted) in _WIDER or (not of.is_string and given == "decimal" and wanted == "int64")


def against(names: Names, kind: str, op: str, constant: exp.Expr, of: str) -> tuple[str, list[Physical]]:
    """Return the comparison of a column of a kind with a constant, which may have more digits than its values. `of`: what is compared, for
    messages."""
    number = _number(constant, kind)
    if number is None or number.is_exact:
        return op, values_of(names, kind, constant, of)
    return _decided(op, number.floor, kind)


def values_of(names: Names, kind: str, constant: exp.Expr, of: str) -> list[Physical]:
    """Return a constant in the physical form of a kind; nothing for NULL, and for a number that no value equals."""
    number = _number(constant, kind)
    if number is not None:
        return [number.floor] if number.is_exact else []
    try:
        value = read_value(constant.unnest(), kind)
    except BadLiteral as error:
        raise names.bad(constant, f"{of}: {error}") from None
    return [] if value is None else [value]


class _Number(NamedTuple):
    """A number in the unit of a column, rounded down. `is_exact`: it may be a value of the column."""

    floor: int
    is_exact: bool


def _number(node: exp.Expr, kind: str) -> _Number | None:
    """Return a number that SQL compares with an int64 or a decimal column; None for anything else. One in JSON is read as in rows."""
    node = node.unnest()
    while _cast_kind(node) == "decimal":
        node = node.this.unnest()
    if not _is_exact(kind) or not isinstance(node, exp.Literal | exp.Neg) or node.is_string or "value" in node.meta:
        return None
    text = text_of(node)
    if not NUMBER.fullmatch(text):
        return None
    value, unit = Decimal(text), 10 ** (digits_of(kind) or (0, 0))[1]
    if value and not -50 < value.adjusted() < 50:
        return _Number((1 if value > 0 else -1) * 10**50 if value.adjusted() > 0 else -1 if value < 0 else 0, False)
    scaled = Fraction(value) * unit
    least, most = _bounds(kind)
    return _Number(floor(scaled), scaled.denominator == 1 and least <= scaled <= most)


def _bounds(kind: str) -> tuple[int, int]:
    """Return the least and the greatest value of an int64 or decimal column, or ones beyond them."""
    digits = digits_of(kind)
    return (INT64_MIN, INT64_MAX) if digits is None or digits[0] <= MOST_DIGITS else (1 - 10 ** digits[0], 10 ** digits[0] - 1)


def _is_exact(kind: str) -> bool:
    return kind == "int64" or digits_of(kind) is not None


def _cast_kind(node: exp.Expr) -> str | None:
    """Return the kind to which a constant is cast; `decimal` without digits; None if it is no cast, or one with parameters."""
    if not isinstance(node, exp.Cast) or node.to.expressions:
        return None
    name = node.to.this.name if isinstance(node.to.this, exp.DType) else str(node.to)
    return "decimal" if name == "DECIMAL" else CASTS.get(name)


def _decided(op: str, below: int, kind: str) -> tuple[str, list[Physical]]:
    """Return the comparison with a number that no value of a column equals; `below` is the number rounded down."""
    least, most = _bounds(kind)
    if op in ("<", "<=", ">", ">=") and least <= below <= most:
        return ("<=" if op in ("<", "<=") else ">"), [below]
    always = "!=", *(("<", "<=") if below > 0 else (">", ">="))
    return ("not_null" if op in always else "in"), []


def read_condition(node: exp.Expr, negated: bool, names: Names) -> Term:
    """Return an expression that must be true, or (`negated`) must be false, as one that must be true."""
    refuse(node)
    term = read_term(node, names)
    if term.kind != "bool":
        raise names.bad(node, f"{sql_of(node)} is {term.kind}, not a condition")
    if not columns_of(term):
        raise unsupported(sql_of(node), "write a constant; a view changes only when its relations do")
    return terms.logical("not", term) if negated else term


def end_of(node: exp.Expr, names: Names) -> tuple[ColumnRef, str] | None:
    """Return the column and `low` or `high` of `COALESCE(end, 'infinity')`; None for anything else."""
    node = node.unnest()
    if not isinstance(node, exp.Coalesce) or not isinstance(node.this.unnest(), exp.Column) or len(node.expressions) != 1:
        return None
    ref, text = names.column(node.this.unnest()), text_of(node.expressions[0]).lower()
    infinity = _INFINITIES.get(text) or (_WHOLE_INFINITIES.get(text) if names.scope.describe(ref).kind == "int64" else None)
    return None if infinity is None else (ref, infinity)


def is_empty(node: exp.In) -> bool:
    """Return whether IN has no list of values. In JSON the list may be empty: then no value is in it."""
    return not node.expressions and "path" not in node.meta


def note_within(node: exp.Expr, names: Names, problem: Problem) -> bool:
    """If the problem with an expression is that of one of its operands, note those of all its operands, and return true."""
    found = list[tuple[exp.Expr, Problem]]()
    for child in _operands(node):
        try:
            if end_of(child, names) is None:
                read_term(child, names)
        except Problem as inner:
            found.append((child, inner))
    if not any(its.detail == problem.detail for _, its in found):
        return False
    for child, its in found:
        if not note_within(child, names, its):
            with names.complaints.noting(child):
                raise its
    return True


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the calls and operators of which an expression consists directly."""
    for one in node.iter_expressions():
        child = one.unnest()
        if isinstance(child, exp.If):
            yield from _operands(child)
        elif isinstance(child, exp.Func | exp.Binary | exp.Unary) and child.find(exp.Query, exp.AggFunc, exp.Window, exp.Interval) is None:
            yield child


def refuse(node: exp.Expr) -> None:
    """Refuse an operand that no condition can have, wherever it is in one. Problem `unsupported-query`."""
    for one in node.walk():
        if isinstance(one, exp.Any) and isinstance(one.parent, exp.Like | exp.ILike):
            raise unsupported(sql_of(node), "write one pattern in quotes after LIKE, and OR between several")
        if isinstance(one, exp.Any) and not isinstance(one.this.unnest(), exp.Query):
            raise unsupported(sql_of(one), "list the values: IN (1, 2)")
        if isinstance(one, exp.Query | exp.Any | exp.All):
            raise unsupported("a subquery in a condition", "put its relation into FROM and its condition into WHERE")
        if isinstance(one, exp.AggFunc):
            raise unsupported(f"{sql_of(one)} in a condition on rows", "write conditions on aggregates in HAVING")
        if isinstance(one, exp.Window):
            raise unsupported(sql_of(one), "compare columns; compute window functions when you read the rows")
        if isinstance(one, exp.Tuple):
            raise unsupported(f"the comparison of {sql_of(one)}", _BY_COLUMN.get(type(one.parent), _IN_ORDER))
        if is_clock(one):
            instead = 'a view changes only when its relations do: delete old rows ("retain"), or read it with a window or a constant'
            raise unsupported(f"{sql_of(one)} in a condition", instead)


def operands(node: exp.Expr, negated: bool, joined: type[exp.Connector]) -> list[tuple[exp.Expr, bool]]:
    """Return the operands of AND or OR (`joined`) in a condition, each perhaps negated, in their order."""
    opposite = exp.And if joined is exp.Or else exp.Or
    found, pending = list[tuple[exp.Expr, bool]](), [(node, negated)]
    while pending:
        one, negative = pending.pop()
        one = one.unnest()
        if isinstance(one, exp.Not):
            pending.append((one.this, not negative))
        elif isinstance(one, opposite if negative else joined):
            pending += [(one.right, negative), (one.left, negative)]
        else:
            found.append((one, negative))
    return found


def factored(node: exp.Expr, negated: bool) -> list[tuple[exp.Expr, bool]]:
    """Return conditions, each perhaps negated, that together mean the given one: of an OR, those that all of its cases have, and the OR of
    what the cases have besides."""
    cases = [operands(*case, exp.And) for case in operands(node, negated, exp.Or)]
    found = [one for one in cases[0] if all(one in case for case in cases[1:])] if len(cases) > 1 else []
    if not found:
        return [(node, negated)]
    others = [[exp.not_(one) if negative else one for one, negative in case if (one, negative) not in found] for case in cases]
    return [*found, (exp.or_(*(exp.and_(*case) for case in others)), False)] if all(others) else found

"""Columns, expressions over a row, and conditions on the rows of one alias: plain immutable data."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from livejoin.wire.kinds import digits_of


class ColumnRef(NamedTuple):
    """A column of an alias, or one that is computed of its columns (`computed`)."""

    alias: str
    column: str

    @property
    def is_computed(self) -> bool:
        return "." in self.column and self.column[-17:-16] == "#"  # no column of a relation has a dot, but parts of stored keys have

    @property
    def words(self) -> str:
        """What it is called beside the name of its alias."""
        return str(self) if self.is_computed else self.column

    def __str__(self) -> str:
        if self.is_computed:
            return self.column.rpartition("#")[0].replace("..", f"{self.alias}.")
        return f"{self.alias}.{self.column}"


class IntervalRef(NamedTuple):
    """A declared interval of an alias."""

    alias: str
    interval: str

    def __str__(self) -> str:
        return f"{self.alias}.{self.interval}"


class Term(NamedTuple):
    """An expression over a row, made by `terms`, which has the typing rules. `kind`: of its values, as in `wire.kinds`.

    op     column (value: the ColumnRef), constant (value in physical form, None for null), + - * / % negative || cast coalesce greatest
           least nullif, case (args: condition, value, …, else), ->> -> (value: the path), = != < <= > >= and or not is_null not_null,
           like ilike matches (value: the pattern), date_trunc extract date_bin to_char to_local from_local months_later round trunc
           floor ceil (value: what is constant), and the functions of `functions.calls`
    """

    op: str
    kind: str
    args: tuple[Term, ...] = ()
    value: Any = None

    def __str__(self) -> str:
        words = [*map(str, self.args), *([repr(self.value)] if self.value is not None else [])]
        match self.op:
            case "column":
                return str(self.value)
            case "constant" if self.value is None:
                return "NULL"
            case "constant":
                digits = digits_of(self.kind)
                return repr(self.value) if digits is None else str(Decimal(self.value).scaleb(-digits[1]))
            case "cast":
                return f"CAST({self.args[0]} AS {self.kind})"
            case "and" | "or" | "like" | "ilike":
                return "(" + f" {self.op.upper()} ".join(words) + ")"
            case "is_null" | "not_null":
                return f"({self.args[0]} IS {'NOT ' if self.op == 'not_null' else ''}NULL)"
            case _ if len(self.args) == 2 and not self.op.isidentifier():
                return f"({self.args[0]} {self.op} {self.args[1]})"
        return f"{self.op}({', '.join(words)})"


def columns_of(term: Term) -> dict[ColumnRef, str]:
    """Return the columns that an expression reads, with their kinds."""
    found, pending = dict[ColumnRef, str](), [term]
    while pending:
        one = pending.pop()
        if one.op == "column":
            found[one.value] = one.kind
        pending += one.args
    return found


RowValue = ColumnRef | Term
"""A value of a row; an expression that is a column is never a Term."""


def refs_of(value: RowValue) -> tuple[ColumnRef, ...]:
    """Return the columns that a value reads."""
    return (value,) if isinstance(value, ColumnRef) else tuple(columns_of(value))


def replaced(term: Term, column: Callable[[ColumnRef], ColumnRef]) -> Term:
    """Return the expression with other columns of the same kinds."""
    if term.op == "column":
        return term._replace(value=column(term.value))
    return term._replace(args=tuple(replaced(one, column) for one in term.args))


class Filter(NamedTuple):
    """A condition on one column: `= != < <= > >= in is_null not_null like not_like`.

    `value` is in the column's physical form: microseconds for a timestamp, days for a date, otherwise int, float, str or bool; a sorted
    tuple for `in`; None for `is_null` and `not_null`; a pattern for the last two, in which a backslash escapes the next character.
    Otherwise never None.
    """

    column: ColumnRef
    op: str
    value: Any

    @property
    def alias(self) -> str:
        return self.column.alias

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        """The columns that the condition reads."""
        return (self.column,)

    @property
    def rejects_null(self) -> bool:
        """Whether a row of nulls fails the condition."""
        return self.op != "is_null"

    @property
    def size(self) -> int:
        """The number of comparisons."""
        return 1

    def of(self, alias: str) -> Filter:
        """Return the same condition on another alias."""
        return self._replace(column=self.column._replace(alias=alias))

    def __str__(self) -> str:
        if self.op in ("is_null", "not_null"):
            return f"{self.column} IS {'NOT ' if self.op == 'not_null' else ''}NULL"
        return f"{self.column} {self.op.replace('_', ' ').upper()} {self.value!r}"


class Either(NamedTuple):
    """OR over conditions on one alias: a case is met if all of its conditions are. Made by `filters.either`, which normalises it.

    There is no NOT: it is pushed inwards to the operators, each of which has an opposite. Neither is then met where SQL's result is
    unknown, so that two truth values suffice.
    """

    cases: tuple[tuple[Condition, ...], ...]

    @property
    def alias(self) -> str:
        return self.cases[0][0].alias

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        return tuple(dict.fromkeys(ref for case in self.cases for one in case for ref in one.columns))

    @property
    def rejects_null(self) -> bool:
        return all(any(one.rejects_null for one in case) for case in self.cases)

    @property
    def size(self) -> int:
        return sum(one.size for case in self.cases for one in case)

    def of(self, alias: str) -> Either:
        return Either(tuple(tuple(one.of(alias) for one in case) for case in self.cases))

    def __str__(self) -> str:
        return "(" + " OR ".join(" AND ".join(map(str, case)) for case in self.cases) + ")"


class Holds(NamedTuple):
    """A condition that is an expression over one alias, made by `filters.holds`: it is met where the expression is true, and so neither
    where it is false nor where it is null. `rejects_null`: as for `Filter`."""

    term: Term
    rejects_null: bool

    @property
    def alias(self) -> str:
        return self.columns[0].alias

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        return tuple(columns_of(self.term))

    @property
    def size(self) -> int:
        return 1

    def of(self, alias: str) -> Holds:
        return self._replace(term=replaced(self.term, lambda column: column._replace(alias=alias)))

    def __str__(self) -> str:
        return str(self.term)


Condition = Filter | Either | Holds

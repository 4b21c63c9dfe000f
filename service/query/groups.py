"""Groups of a definition: which functions take which types, and the resulting rows of the view.

Null is a group, and so is NaN; -0.0 is 0.0. Aggregates ignore nulls. A column, or an expression, is read from the join only once, for all
groups and aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from livejoin.wire.kinds import MOST_DIGITS, decimal_kind, digits_of
from service.errors import unsupported
from service.query.conditions import ColumnRef, Condition, Filter, IntervalRef, Term
from service.query.filters import comparing, either, ordered
from service.query.literals import Physical
from service.query.model import (
    AGGREGATE,
    GROUP,
    STRETCH_END,
    VARIANCES,
    Aggregate,
    GroupColumn,
    Grouping,
    GroupOutput,
    Listing,
    Output,
    SortKey,
    TruncUnit,
    is_stretch,
)
from service.query.naming import told_apart
from service.query.scope import Scope
from service.query.terms import cast

_ORDERED = ("int64", "float64", "timestamp", "date", "time", "bool")
_COMPARED = (*_ORDERED, "string", "uuid", "bytes")
_SAME: Mapping[str, str] = {type_: type_ for type_ in _COMPARED}
LONGEST_DIFFERENCE = 19  # digits of the difference of two decimals
DIGITS_OF_SUM = 38
_DIGITS_OF_MANY = 12
"""What a sum of decimals has more digits than its values, where an expression computes with it: with 38 none could be added or
multiplied."""
_Results = tuple[Mapping[str, str], Callable[[int, int], str | None]]
RESULTS: Mapping[str, _Results] = {
    "count": (dict.fromkeys((*_COMPARED, "json"), "int64"), lambda precision, scale: "int64"),
    "count_distinct": (dict.fromkeys(_COMPARED, "int64"), lambda precision, scale: "int64"),
    "sum": ({"int64": "int64", "float64": "float64"}, lambda precision, scale: decimal_kind(DIGITS_OF_SUM, scale)),
    "avg": ({"int64": "float64", "float64": "float64"}, lambda precision, scale: "float64"),
    "min": (_SAME, decimal_kind),
    "max": (_SAME, decimal_kind),
    **dict.fromkeys(VARIANCES, ({"int64": "float64", "float64": "float64"}, lambda precision, scale: "float64")),
    "string_agg": ({"string": "string"}, lambda precision, scale: None),
    "array_agg": (dict.fromkeys((*_COMPARED, "json"), "json"), lambda precision, scale: "json"),
}
"""The kinds of values that each function takes, with the kind of its result; then the kind of its result for decimals."""


def result_of(function: str, kind: str) -> str | None:
    """Return the kind of the result; None: the function does not take such values."""
    plain, decimal = RESULTS[function]
    digits = digits_of(kind)
    if digits is None:
        return plain.get(kind)
    most = {"avg": digits[1], **dict.fromkeys(VARIANCES, digits[0])}.get(function, 0)  # a divisor, or squares, of 64 bits
    return decimal(*digits) if most <= MOST_DIGITS else None


WORDS = {"count_distinct": "COUNT(DISTINCT …)"}  # for the others, the name in capitals
UNITS: tuple[TruncUnit, ...] = get_args(TruncUnit)
"""Those of `GroupColumn.trunc`; other units are expressions."""
_SUMS = "sums and averages are of int64, float64, decimals and duration(…)"
_FEWER = "it is of int64, float64 and decimals of up to 18 digits: cast it to double precision"
_INSTEAD = {
    "sum": _SUMS, "avg": f"{_SUMS}; cast a decimal of more than 18 digits to double precision", **dict.fromkeys(VARIANCES, _FEWER),
    "string_agg": "it joins texts: cast the values, as in x::text",
}  # fmt: skip


@dataclass
class GroupsDraft:
    """The groups of a definition as far as it has been read. `reads`: what the groups read from the join."""

    scope: Scope
    reads: list[Output] = field(default_factory=list)
    columns: list[GroupColumn] = field(default_factory=list)
    aggregates: list[Aggregate] = field(default_factory=list)
    outputs: list[GroupOutput] = field(default_factory=list)
    having: list[Condition] = field(default_factory=list)
    covered: tuple[str, IntervalRef] | None = None  # the name, and the interval that is covered
    is_case: bool = False  # of OR

    def read(self, output: Output) -> int:
        """Return the position of this output in `reads`; append it if it is new."""
        unnamed = output._replace(name="")
        for position, known in enumerate(self.reads):
            if known._replace(name="") == unnamed:
                return position
        self.reads.append(output._replace(name=str(len(self.reads))))
        return len(self.reads) - 1

    def type_of(self, output: Output) -> str:
        """Return the kind of the output's values (`wire.kinds`)."""
        if output.column is not None:
            return self.scope.describe(output.column).kind
        if output.term is not None:
            return output.term.kind
        start = self.scope.declared(output.intervals[0]).start_column
        ends = self.scope.describe(ColumnRef(output.intervals[0].alias, start)).kind
        if output.kind != "duration" or ends == "float64":
            return ends
        digits = digits_of(ends)
        return "int64" if digits is None else decimal_kind(LONGEST_DIFFERENCE, digits[1])

    def find(self, output: Output, trunc: str | None) -> int | None:
        """Return the position of the group column that is this output; None if there is none."""
        unnamed = output._replace(name="")
        for position, column in enumerate(self.columns):
            if self.reads[column.of]._replace(name="") == unnamed and column.trunc == trunc:
                return position
        return None

    def place(self, name: str, output: Output, trunc: str | None) -> int | None:
        """As `find`. What depends on the whole key of an alias, by which rows are grouped, becomes a group column, too."""
        position = self.find(output, trunc)
        aliases = {output.column.alias} if output.column is not None else {interval.alias for interval in output.intervals}
        keys = {ColumnRef(alias, name) for alias in aliases for name in self.scope.definition(alias).key}
        grouped = {self.reads[column.of].column for column in self.columns if column.trunc is None}
        return self.group(name, output) if position is None and trunc is None and keys and keys <= grouped else position

    def group(self, name: str, output: Output, trunc: str | None = None) -> int:
        """Group by this output; return the position of the group column."""
        if output.column is not None:
            self.scope.require_comparable(output.column, "GROUP BY or DISTINCT of")
        elif self.type_of(output) == "json":
            raise unsupported(f"GROUP BY or DISTINCT of the expression {name}, which is json,", "extract texts from it: doc ->> 'key'")
        known = self.find(output, trunc)
        if known is not None:
            return known
        self.columns.append(GroupColumn(name, self.read(output), trunc))
        return len(self.columns) - 1

    def aggregate(self, function: str, output: Output | None, of: str = "", listing: Listing | None = None) -> int:
        """Return the position of the aggregate; add it if new. `of`: what it is an aggregate of, for messages; listing: of `LISTS`"""
        if output is None:
            made = Aggregate("count", None, "int64")
        else:
            type_ = self.type_of(output)
            words = WORDS.get(function, function.upper())
            result = result_of(function, type_)
            if result is None:
                raise unsupported(f"{words} of {output.column or of} ({type_})", _INSTEAD.get(function, "use another column"))
            made = Aggregate(function, self.read(output), result, listing)
        if made not in self.aggregates:
            self.aggregates.append(made)
        return self.aggregates.index(made)

    def identify(self, aliases: Iterable[str]) -> None:
        """List values of equal order by the keys of these aliases: those that the rows of the join have."""
        refs = [ColumnRef(alias, name) for alias in aliases for name in self.scope.definition(alias).key]
        for at, one in enumerate(self.aggregates):
            if one.listing is not None and not one.listing.distinct:
                known = {key.of for key in one.listing.order}
                keys = [SortKey(self.read(Output("", "column", ref, ())), False, False) for ref in refs]
                order = (*one.listing.order, *(key for key in keys if key.of not in known))
                self.aggregates[at] = one._replace(listing=one.listing._replace(order=order))

    def value(self, one: GroupOutput) -> Term:
        """Return a column of the groups as a part of an expression."""
        if one.term is not None:
            return one.term
        term = Term("column", self.result_type(one), (), ColumnRef(one.kind, str(one.position)))
        of = self.aggregates[one.position].of if one.kind == AGGREGATE and self.aggregates[one.position].function == "sum" else None
        digits = None if of is None else digits_of(self.type_of(self.reads[of]))
        return term if digits is None else cast(term, decimal_kind(min(digits[0] + _DIGITS_OF_MANY, DIGITS_OF_SUM), digits[1]))

    def show(self, name: str, kind: str, position: int, term: Term | None = None) -> None:
        """Add a column to the view's rows."""
        self.outputs.append(GroupOutput(name, kind, position, term))

    def cover(self, name: str, of: IntervalRef) -> None:
        """Add to the view's rows what the intervals of a group's rows cover."""
        if self.covered is not None:
            raise unsupported("coverage(…) twice in a view", "define a view for each")
        self.covered = name, of
        for index, end in enumerate(("start", "end")):
            self.show(f"{name}_{end}", STRETCH_END, index)

    def settle_names(self, names: Sequence[str]) -> None:
        """Name the columns of the view's rows; a group column is called as it is shown first, and otherwise what it is."""
        self.outputs = [output._replace(name=name) for output, name in zip(self.outputs, names, strict=True)]
        shown = {output.position: output.name for output in reversed(self.outputs) if output.kind == GROUP}
        own = [(shown.get(position, column.name), position in shown) for position, column in enumerate(self.columns)]
        self.columns = [column._replace(name=name) for column, name in zip(self.columns, told_apart(own), strict=True)]

    @property
    def hidden(self) -> list[str]:
        """The group columns that no row of the view has."""
        shown = {output.position for output in self.outputs if output.kind == GROUP}
        return [column.name for position, column in enumerate(self.columns) if position not in shown]

    def named(self, name: str) -> GroupOutput | None:
        """Return the column of the view's rows with this name, or else the group column."""
        for output in self.outputs:
            if output.name == name and output.kind != STRETCH_END:  # conditions on these are not possible
                return output
        for position, column in enumerate(self.columns):
            if column.name == name:
                return GroupOutput(name, GROUP, position)
        return None

    def result_type(self, one: GroupOutput) -> str:
        if one.kind == AGGREGATE:
            return self.aggregates[one.position].type
        return self.type_of(self.reads[self.columns[one.position].of])

    def filtered(self, one: GroupOutput) -> ColumnRef | None:
        """Return the column of an alias that a condition on this output means: then it becomes a filter of rows."""
        if self.is_case or one.kind == AGGREGATE or self.columns[one.position].trunc is not None:
            return None
        return self.reads[self.columns[one.position].of].column

    def restrict(self, one: GroupOutput, op: str, values: Sequence[Physical]) -> None:
        """Add a condition on groups, as `filters.comparing`; nulls are removed before."""
        self.having.append(comparing(ColumnRef(one.kind, str(one.position)), op, values))

    def case(self) -> GroupsDraft:
        """Return the draft for the conditions of one case of OR; everything else is shared."""
        return replace(self, having=[], is_case=True)

    def choose(self, cases: Sequence[GroupsDraft]) -> None:
        """Add the condition that all conditions of at least one case hold."""
        possible = [case.having for case in cases if not any(isinstance(one, Filter) and one.value == () for one in case.having)]
        self.having += either(possible) if possible else cases[0].having

    def finish(self, most: int) -> Grouping:
        """`most`: the maximum number of groups."""
        return Grouping(tuple(self.columns), tuple(self.aggregates), tuple(self.outputs), ordered(self.having), most)


def refuse_stretch(output: Output) -> None:
    """Reject gaps and coverage with groups."""
    if is_stretch(output):
        function = output.kind.partition("_")[0]
        instead = f"define a view of {function}(…), and group its rows where they are read"
        raise unsupported(f"{function}(…) with groups or DISTINCT", instead)


def distinct_of(scope: Scope, outputs: Sequence[Output]) -> GroupsDraft:
    """Return the groups of SELECT DISTINCT."""
    groups = GroupsDraft(scope)
    for output in outputs:
        known = groups.find(output, None)
        position = groups.group(output.name, output) if known is None else known
        groups.show(output.name, GROUP, position)
    return groups

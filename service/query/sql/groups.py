"""GROUP BY, aggregates, HAVING and DISTINCT in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from service.errors import Problem, unsupported
from service.query.assembly import Draft, column_output
from service.query.conditions import Term
from service.query.filters import OPPOSITE, holds
from service.query.groups import UNITS, GroupsDraft, distinct_of, refuse_stretch
from service.query.model import AGGREGATE, COMPUTED, GROUP, STRETCHES, GroupOutput, Listing, Output, SortKey
from service.query.sql.columns import is_star
from service.query.sql.constants import is_constant, read_like, require_text
from service.query.sql.filters import MIRRORED, against, is_empty, is_value, operands, values_of
from service.query.sql.lists import is_list, read_list, require_ordered
from service.query.sql.names import Names, fold
from service.query.sql.output_names import given_name, name_of, told_apart
from service.query.sql.over_groups import read_over
from service.query.sql.terms import COMPARED, read_term
from service.query.terms import chosen, logical

_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max", exp.LogicalAnd: "min", exp.LogicalOr: "max",
    exp.Variance: "var_samp", exp.VariancePop: "var_pop", exp.Stddev: "stddev_samp", exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
}  # fmt: skip
_ALL = (
    "the aggregates are COUNT, SUM, AVG, MIN, MAX, BOOL_AND, BOOL_OR, VAR_SAMP, VAR_POP, STDDEV_SAMP, STDDEV_POP, STRING_AGG and ARRAY_AGG"
)
_SQL = "postgres"
_IN_HAVING = "in HAVING is not in GROUP BY: write the condition in WHERE"
_IN_SELECT = "must be in GROUP BY, or in an aggregate: a group may have several values of it"
_OF_INTERVALS = ("duration", "intersection", *STRETCHES)
ReadOutput = Callable[[exp.Expr, Names], list[Output]]
ReadOutputs = Callable[[exp.Select, Names], list[Output]]


def is_grouped(select: exp.Select) -> bool:
    """Return whether the rows of the SELECT are groups of rows."""
    distinct = select.args.get("distinct")
    if select.args.get("group") or select.args.get("having") or (distinct is not None and not distinct.args.get("on")):
        return True
    if any(_covered(expression.unalias()) is not None for expression in select.expressions):
        return True
    return any(map(_has_aggregate, select.expressions))


def read_groups(
    select: exp.Select, names: Names, draft: Draft, read_output: ReadOutput, read_outputs: ReadOutputs
) -> GroupsDraft:  # fmt: skip
    """Read the groups. `read_output` reads an expression of SELECT without aggregates, `read_outputs` all of them. Problems
    `unsupported-query`, `bad-query`, `bad-definition`."""
    distinct = select.args.get("distinct") is not None
    if distinct and not select.args.get("group") and not any(map(_has_aggregate, select.expressions)):
        if select.args.get("having"):
            raise unsupported("HAVING with DISTINCT", "write the condition in WHERE")
        return distinct_of(names.scope, read_outputs(select, names))
    groups = _Groups(select, names, draft, read_output).read()
    if distinct and (hidden := groups.hidden):  # otherwise each group is another row
        raise unsupported("DISTINCT of groups that differ only in what SELECT leaves out", f"select {', '.join(hidden)}, too")
    return groups


class _Groups:
    """One SELECT with GROUP BY or aggregates."""

    def __init__(self, select: exp.Select, names: Names, draft: Draft, read_output: ReadOutput) -> None:
        self._select, self._names, self._draft, self._read_output = select, names, draft, read_output
        self._groups = GroupsDraft(names.scope)
        self._reads_having = False
        self._named = {_name_of(one): one.unalias() for one in reversed(select.expressions)}  # expressions of SELECT by their names
        self._origins: list[exp.Expr] = []  # the expressions of SELECT that the outputs are of

    def read(self) -> GroupsDraft:
        group, complaints, having = self._select.args.get("group"), self._names.complaints, self._select.args.get("having")
        known = complaints.count
        if group is not None:
            for name, value in group.args.items():
                if value and name not in ("expressions", "all"):
                    with complaints.noting():
                        raise unsupported(name.replace("_", " ").upper(), "name the columns; define a view for each grouping")
            for expression in group.expressions:
                with complaints.noting(expression):
                    self._group_by(expression)
            if group.args.get("all"):
                self._group_by_all()
        if complaints.count > known:
            self._check_aggregates(*self._select.expressions)
        else:
            for expression in self._select.expressions:
                with complaints.noting(expression):
                    self._show(expression)
        if complaints.count > known and having is not None:
            self._check_aggregates(having)
        complaints.require_no_more(known)
        shown = [(output.name, origin) for output, origin in zip(self._groups.outputs, self._origins, strict=True)]
        self._groups.settle_names(told_apart(self._names, shown))
        self._reads_having = True
        for part, negated in operands(having.this, False, exp.And) if having is not None else ():
            with complaints.noting(part):
                self._having(self._groups, part, negated)
        return self._groups

    def _check_aggregates(self, *within: exp.Expr) -> None:
        """Note complaints about the aggregates in expressions: what else these have depends on GROUP BY, and on SELECT."""
        for node in (one for part in within for one in part.find_all(exp.AggFunc)):
            with self._names.complaints.noting(node):
                self._aggregate(node)

    def _group_by(self, node: exp.Expr) -> None:
        node = node.unnest()
        if isinstance(node, exp.Literal) and not node.is_string:
            node = self._by_position(node)
        elif isinstance(node, exp.Column) and not node.args.get("table") and not self._names.is_column(node):
            node = self._named.get(fold(node.this), node)
        output, trunc = self._grouped(node.unnest())
        self._groups.group(name_of(node), output, trunc)

    def _group_by_all(self) -> None:
        for expression in self._select.expressions:
            node = expression.unalias()
            if is_star(node):
                for output in self._read_output(node, self._names):
                    self._groups.group(output.name, output)
            elif not _has_aggregate(node):
                with self._names.complaints.noting(expression):
                    self._group_by(node)

    def _by_position(self, node: exp.Expr) -> exp.Expr:
        """Resolve the position in GROUP BY 2."""
        expressions = self._select.expressions
        position = int(node.name) if node.name.isdigit() else 0
        if not 1 <= position <= len(expressions):
            raise self._names.bad(node, f"there is no column {node.name} for GROUP BY: SELECT has {len(expressions)}")
        chosen: exp.Expr = expressions[position - 1]
        return chosen.unalias()

    def _grouped(self, node: exp.Expr) -> tuple[Output, str | None]:
        """Return what an expression of GROUP BY reads, and the unit to which that is truncated."""
        of = node.this.unnest() if isinstance(node, exp.TimestampTrunc | exp.DateTrunc) and not node.args.get("zone") else None
        if isinstance(of, exp.Column) and (unit := node.args["unit"].name.lower()) in UNITS:
            read_term(node, self._names)  # refuses another type, or unit of a date
            return column_output(self._names.column(of)), unit
        if isinstance(node, exp.Column):
            return column_output(self._names.column(node)), None
        if _has_aggregate(node):
            raise self._names.bad(node, "aggregates cannot be used in GROUP BY")
        if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise unsupported(f"{node.sql(_SQL)} in GROUP BY", "group by columns and expressions; define a view for each grouping")
        return self._computed(node), None

    def _computed(self, node: exp.Expr) -> Output:
        """Read an expression over a row of the join, or `duration(…)`."""
        if isinstance(node, exp.Anonymous) and node.name.lower() == "duration":
            (output,) = self._read_output(node, self._names)
            return output
        return Output("", "term", None, (), read_term(node, self._names))

    def _find(self, node: exp.Expr) -> tuple[Output, str | None] | None:
        """Return what an expression reads, as `_grouped` but unnamed; None if it is none that GROUP BY can have."""
        try:
            output, trunc = self._grouped(node)
        except Problem:
            return None
        return output._replace(name=""), trunc

    def _show(self, expression: exp.Expr) -> None:
        name = given_name(expression, self._names)
        node = expression.unalias().unnest()
        if (interval := _covered(node)) is not None:
            self._groups.cover(name or "coverage", self._names.interval(interval))
            self._origins += [expression] * 2
        elif is_star(node) or isinstance(node, exp.Column) or (isinstance(node, exp.Anonymous) and node.name.lower() in _OF_INTERVALS):
            for output in self._read_output(expression, self._names):
                refuse_stretch(output)
                self._show_group(expression, output)
        elif (one := self._input(node)) is not None:
            self._add(expression, name or name_of(node), one.kind, one.position)
        else:
            term = read_over(node, self._names, self._value)
            self._add(expression, name or name_of(node), COMPUTED, 0, term)

    def _show_group(self, expression: exp.Expr, output: Output) -> None:
        position = self._groups.place(output.name, output, None)
        if position is None:
            raise self._names.bad(expression, f"{expression.sql(_SQL)} {_IN_SELECT}")
        self._add(expression, output.name, GROUP, position)

    def _add(self, expression: exp.Expr, name: str, kind: str, position: int, term: Term | None = None) -> None:
        self._groups.show(name, kind, position, term)
        self._origins.append(expression)

    def _aggregate(self, node: exp.Expr) -> int:
        """Return the position of an aggregate. Rejects unsupported ones."""
        said, condition = node.sql(_SQL), None
        if isinstance(node, exp.Filter):
            node, condition = node.this, node.expression.this
        if isinstance(node, exp.Anonymous):  # EVERY
            node = exp.LogicalAnd(this=node.expressions[0], expressions=node.expressions[1:])
        if is_list(node):
            return self._listed(node, condition, said)
        function = _FUNCTIONS.get(type(node))
        if function is None:
            raise unsupported(said, _ALL)
        of = node.this.unnest() if node.this is not None else None
        if node.args.get("expressions"):
            raise unsupported(said, "an aggregate takes one value")
        if isinstance(of, exp.Distinct):
            if function != "count":
                raise unsupported(said, "DISTINCT is only supported in COUNT")
            if len(of.expressions) != 1 or isinstance(of.expressions[0].unnest(), exp.Tuple):
                raise unsupported(said, "count one value")
            function, of = "count_distinct", of.expressions[0].unnest()
        self._refuse_inner(said, of, condition)
        is_rows = function == "count" and (of is None or isinstance(of, exp.Literal) or of == exp.Star())
        if of is None or (is_star(of) and not is_rows):
            raise unsupported(said, "an aggregate takes one value")
        if condition is None:
            output = None if is_rows else self._value_of(of)
        else:  # null where it does not hold
            value = Term("constant", "int64", (), 1) if is_rows else read_term(of, self._names)
            output = Output("", "term", None, (), chosen([(read_term(condition, self._names), value)], None))
        if isinstance(node, exp.LogicalAnd | exp.LogicalOr) and (output is None or self._groups.type_of(output) != "bool"):
            raise unsupported(said, "it takes conditions and columns of type bool")
        return self._groups.aggregate(function, output, of.sql(_SQL))

    def _refuse_inner(self, said: str, *parts: exp.Expr | None) -> None:
        inner = next((one for part in parts if part is not None for one in part.walk() if is_aggregate(one)), None)
        if inner is not None:
            raise self._names.bad(inner, f"{inner.sql(_SQL)} cannot be within {said}: an aggregate takes values of rows")

    def _value_of(self, node: exp.Expr) -> Output:
        """Return what an aggregate takes of a row."""
        node = node.unnest()
        return self._grouped(node)[0] if isinstance(node, exp.Column) else self._computed(node)

    def _listed(self, node: exp.Expr, condition: exp.Expr | None, said: str) -> int:
        """Return the position of STRING_AGG or ARRAY_AGG."""
        call = read_list(node, said)
        self._refuse_inner(said, call.of, condition, *(one.this for one in call.order))
        of = self._value_of(call.of)
        keys = dict[int, SortKey]()
        for one in call.order:
            key = self._value_of(one.this)
            require_ordered(one.this, self._groups.type_of(key))
            if call.distinct and key != of:
                raise unsupported(f"{said}, ordered by a value other than the distinct ones,", f"write ORDER BY {call.of.sql(_SQL)}")
            position = self._groups.read(key)
            keys.setdefault(position, SortKey(position, bool(one.args.get("desc")), bool(one.args.get("nulls_first"))))
        where = None
        if condition is not None:
            term = read_term(condition, self._names)
            logical("not", term)  # refuses what is no condition
            where = self._groups.read(Output("", "term", None, (), term))
        listing = Listing(tuple(keys.values()), call.separator, call.distinct, where, self._groups.type_of(of) == "json")
        return self._groups.aggregate(call.function, of, call.of.sql(_SQL), listing)

    def _having(self, into: GroupsDraft, node: exp.Expr, negated: bool = False) -> None:
        """Read conditions that must hold, or (`negated`) must be false. `into`: the groups, or a case of OR."""
        for part, negative in operands(node, negated, exp.And):
            cases = operands(part, negative, exp.Or)
            if len(cases) > 1:
                self._any(into, cases)
            else:
                self._one(into, part, negative)

    def _any(self, into: GroupsDraft, conditions: Sequence[tuple[exp.Expr, bool]]) -> None:
        """Read conditions of which at least one must hold, each perhaps negated."""
        cases = []
        for node, negated in conditions:
            cases.append(into.case())
            self._having(cases[-1], node, negated)
        into.choose(cases)

    def _one(self, into: GroupsDraft, node: exp.Expr, negated: bool) -> None:
        if self._compares(into, node, negated):
            return
        if node.find(exp.Query) is not None:
            raise unsupported(f"{node.sql(_SQL)} in HAVING", "compare aggregates and columns of the group, joined by AND and OR")
        term = read_over(node, self._names, self._value)
        opposite = logical("not", term)  # refuses what is no condition
        into.having.append(holds(opposite if negated else term))

    def _compares(self, into: GroupsDraft, node: exp.Expr, negated: bool) -> bool:
        """Read a condition that compares an aggregate or a group column with constants; return whether it is one."""
        op = COMPARED.get(type(node))
        if op is not None:
            left, right = node.this.unnest(), node.expression.unnest()
            if is_constant(left):
                left, right, op = right, left, MIRRORED[op]
            if not is_constant(right) or (one := self._compared(left)) is None or not self._is_value(one, right):
                return False
            self._restrict(into, one, OPPOSITE[op] if negated else op, right)
        elif isinstance(node, exp.Is) and isinstance(node.expression.unnest(), exp.Null):
            if (one := self._compared(node.this.unnest())) is None:
                return False
            self._draft.having(into, one, "not_null" if negated != bool(node.args.get("negate")) else "is_null", [])
        elif isinstance(node, exp.In) and not is_empty(node) and all(map(is_constant, node.expressions)):
            one = self._compared(node.this.unnest())
            if one is None or not all(self._is_value(one, constant) for constant in node.expressions):
                return False
            if negated:
                for constant in node.expressions:
                    self._restrict(into, one, "!=", constant)
            else:
                kind = self._groups.result_type(one)
                values = [value for each in node.expressions for value in values_of(self._names, kind, each, "HAVING")]
                self._draft.having(into, one, "in", values)
        elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low, high = exp.GTE(this=node.this, expression=node.args["low"]), exp.LTE(this=node.this, expression=node.args["high"])
            if negated:
                self._any(into, [(low, True), (high, True)])
            else:
                self._one(into, low, False)
                self._one(into, high, False)
        elif (like := read_like(self._names, node, negated)) is not None:
            if (one := self._compared(like[0])) is None:
                return False
            require_text(self._names, node, self._groups.result_type(one))
            self._draft.having(into, one, *like[1:])
        else:
            return False
        return True

    def _compared(self, node: exp.Expr) -> GroupOutput | None:
        """As `_input`, without expressions over groups."""
        one = self._input(node)
        return None if one is None or one.term is not None else one

    def _is_value(self, one: GroupOutput, constant: exp.Expr) -> bool:
        return is_value(constant, self._groups.result_type(one))

    def _restrict(self, into: GroupsDraft, one: GroupOutput, op: str, constant: exp.Expr) -> None:
        self._draft.having(into, one, *against(self._names, self._groups.result_type(one), op, constant, "HAVING"))

    def _input(self, node: exp.Expr) -> GroupOutput | None:
        """Return the aggregate or group column that an expression is; None if it is neither."""
        if is_aggregate(node):
            return GroupOutput("", AGGREGATE, self._aggregate(node))
        if isinstance(node, exp.Column):
            if not node.args.get("table") and not self._names.is_column(node) and (one := self._groups.named(fold(node.this))):
                return one
            position = self._groups.place(name_of(node), column_output(self._names.column(node)), None)
            if position is None:
                raise self._names.bad(node, f"{node.sql(_SQL)} {_IN_HAVING if self._reads_having else _IN_SELECT}")
            return GroupOutput("", GROUP, position)
        has_column = any(isinstance(part, exp.Column) for part in node.walk())
        found = self._find(node) if has_column and not _has_aggregate(node) else None
        position = None if found is None else self._groups.place(name_of(node), *found)
        return None if position is None else GroupOutput("", GROUP, position)

    def _value(self, node: exp.Expr) -> Term | None:
        """Return an aggregate, or a group column, as a part of an expression; None if it is neither."""
        one = self._input(node)
        return None if one is None else self._groups.value(one)


def _name_of(expression: exp.Expr) -> str:
    return fold(expression.args["alias"]) if isinstance(expression, exp.Alias) else name_of(expression)


def _covered(node: exp.Expr) -> exp.Expr | None:
    """Return the argument of `coverage(…)` with one interval."""
    node = node.unnest()
    if isinstance(node, exp.Anonymous) and node.name.lower() == "coverage" and len(node.expressions) == 1:
        interval: exp.Expr = node.expressions[0]
        return interval
    return None


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether it is an aggregate of a group, not one of a window."""
    within = node.parent.parent if isinstance(node.parent, exp.Filter) else node.parent
    if isinstance(within, exp.Window):
        return False
    every = isinstance(node, exp.Anonymous) and node.name.lower() == "every" and len(node.expressions) > 0
    return every or isinstance(node, exp.AggFunc | exp.Filter)


def _has_aggregate(node: exp.Expr) -> bool:
    return any(map(is_aggregate, node.walk()))

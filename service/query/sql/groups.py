"""GROUP BY, aggregates, HAVING and DISTINCT in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from service.errors import Problem
from service.query.assembly import Draft, check_output_name, column_output, unsupported
from service.query.filters import OPPOSITE
from service.query.groups import GroupsDraft, distinct_of, refuse_stretch, refuse_term
from service.query.literals import Physical
from service.query.model import AGGREGATE, GROUP, GroupOutput, Output
from service.query.sql.conditions import operands
from service.query.sql.filters import MIRRORED, is_empty
from service.query.sql.names import Names, fold
from service.query.sql.terms import COMPARED, read_constant, read_like, require_text

_FUNCTIONS: dict[type[exp.Expr], str] = {exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max"}
_SQL = "postgres"
_COLUMNS_ONLY = "take columns or duration(…), and compute the rest when you read the rows"
ReadOutput = Callable[[exp.Expr, Names], list[Output]]


def is_grouped(select: exp.Select) -> bool:
    """Return whether the rows of the SELECT are groups of rows."""
    distinct = select.args.get("distinct")
    if select.args.get("group") or select.args.get("having") or (distinct is not None and not distinct.args.get("on")):
        return True
    if any(_covered(expression.unalias()) is not None for expression in select.expressions):
        return True
    return any(isinstance(node, exp.AggFunc) for part in select.expressions for node in part.walk())


def read_groups(select: exp.Select, names: Names, draft: Draft, read_output: ReadOutput) -> GroupsDraft:
    """Read the groups. `read_output` reads an expression of SELECT without aggregates. Problems `unsupported-query`, `bad-query`,
    `bad-definition`."""
    distinct = select.args.get("distinct")
    if distinct is not None:
        return _read_distinct(select, names, distinct, read_output)
    return _Groups(select, names, draft, read_output).read()


def _read_distinct(select: exp.Select, names: Names, distinct: exp.Expr, read_output: ReadOutput) -> GroupsDraft:
    if select.args.get("group") or any(isinstance(node, exp.AggFunc) for part in select.expressions for node in part.walk()):
        raise unsupported("DISTINCT with GROUP BY or aggregates", "omit it; each group is one row")
    if select.args.get("having"):
        raise unsupported("HAVING with DISTINCT", "write the condition in WHERE")
    outputs = [output for expression in select.expressions for output in read_output(expression, names)]
    for output in outputs:
        refuse_term(output)
    return distinct_of(names.scope, outputs)


class _Groups:
    """One SELECT with GROUP BY or aggregates."""

    def __init__(self, select: exp.Select, names: Names, draft: Draft, read_output: ReadOutput) -> None:
        self._select, self._names, self._draft, self._read_output = select, names, draft, read_output
        self._groups = GroupsDraft(names.scope)
        self._named: dict[str, exp.Expr] = {}  # expressions of SELECT by their names given with AS
        for expression in select.expressions:
            if isinstance(expression, exp.Alias):
                self._named[fold(expression.args["alias"])] = expression.this

    def read(self) -> GroupsDraft:
        group = self._select.args.get("group")
        if group is not None:
            for name, value in group.args.items():
                if value and name != "expressions":
                    what = "GROUP BY ALL" if name == "all" else name.replace("_", " ").upper()
                    raise unsupported(what, "name the columns; define a view for each grouping")
            for expression in group.expressions:
                self._group_by(expression)
        for expression in self._select.expressions:
            self._show(expression)
        having = self._select.args.get("having")
        if having is not None:
            self._having(self._groups, having.this)
        return self._groups

    def _group_by(self, node: exp.Expr) -> None:
        node = node.unnest()
        if isinstance(node, exp.Literal) and not node.is_string:
            node = self._by_position(node)
        elif isinstance(node, exp.Column) and not node.args.get("table") and fold(node.this) in self._named and not self._is_column(node):
            node = self._named[fold(node.this)]
        output, trunc = self._grouped(node.unnest())
        self._groups.group(self._name_of(output, trunc), output, trunc)

    def _by_position(self, node: exp.Expr) -> exp.Expr:
        """Resolve the position in GROUP BY 2."""
        expressions = self._select.expressions
        number = int(node.name) if node.name.isdigit() else 0
        if not 1 <= number <= len(expressions):
            raise self._names.bad(node, f"GROUP BY {node.name}: SELECT has {len(expressions)} columns")
        chosen: exp.Expr = expressions[number - 1]
        return chosen.unalias()

    def _is_column(self, node: exp.Column) -> bool:
        try:
            self._names.column(node)
        except Problem:
            return False
        return True

    def _grouped(self, node: exp.Expr) -> tuple[Output, str | None]:
        if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
            unit, of = node.args["unit"], node.this.unnest()
            if node.args.get("zone"):
                raise unsupported("date_trunc with a time zone", "units are truncated in UTC")
            if not isinstance(of, exp.Column):
                raise unsupported(f"{node.sql(_SQL)}", "date_trunc takes a unit and a column")
            return column_output(self._names.column(of)), unit.name.lower()
        if isinstance(node, exp.Column):
            return column_output(self._names.column(node)), None
        if any(isinstance(part, exp.AggFunc) for part in node.walk()):
            raise self._names.bad(node, "aggregates cannot be used in GROUP BY")
        raise unsupported(f"the expression {node.sql(_SQL)} in GROUP BY", "group by columns, and by date_trunc(unit, column)")

    def _name_of(self, output: Output, trunc: str | None) -> str:
        """Return the name of a group column in the view: as in SELECT, if it is there."""
        for expression in self._select.expressions:
            shown = expression.this if isinstance(expression, exp.Alias) else expression
            node = shown.unnest()
            if not isinstance(node, exp.Column | exp.TimestampTrunc | exp.DateTrunc) or isinstance(node.this, exp.Star):
                continue
            if self._grouped(node) == (output, trunc):
                return self._output_name(expression) if isinstance(expression, exp.Alias) else trunc or output.name
        return trunc or output.name

    def _output_name(self, expression: exp.Alias) -> str:
        try:
            return check_output_name(fold(expression.args["alias"]))
        except Problem as problem:
            raise self._names.bad(expression.args["alias"], str(problem.detail)) from None

    def _show(self, expression: exp.Expr) -> None:
        name = self._output_name(expression) if isinstance(expression, exp.Alias) else None
        node = (expression.this if isinstance(expression, exp.Alias) else expression).unnest()
        if _is_aggregate(node):
            if name is None:
                raise self._names.bad(node, f"{node.sql(_SQL)} needs a name: write {node.sql(_SQL)} AS …")
            self._add(expression, name, AGGREGATE, self._aggregate(node))
            return
        if any(isinstance(part, exp.AggFunc) for part in node.walk()):
            instead = "select the aggregates alone, and compute the rest when you read the rows"
            raise unsupported(f"the expression {node.sql(_SQL)}", instead)
        if (interval := _covered(node)) is not None:
            self._groups.cover(name or "coverage", self._names.interval(interval))
            return
        if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
            output, trunc = self._grouped(node)
            self._show_group(expression, name or trunc or "", output, trunc)
            return
        for output in self._read_output(expression, self._names):
            refuse_term(output)
            refuse_stretch(output)
            self._show_group(expression, output.name, output, None)

    def _show_group(self, expression: exp.Expr, name: str, output: Output, trunc: str | None) -> None:
        number = self._groups.find(output, trunc)
        if number is None:
            what = expression.sql(_SQL)
            raise self._names.bad(expression, f"{what} must be in GROUP BY, or in an aggregate: a group has several values of it")
        self._add(expression, name, GROUP, number)

    def _add(self, expression: exp.Expr, name: str, kind: str, number: int) -> None:
        if any(output.name == name for output in self._groups.outputs):
            raise self._names.bad(expression, f"the view has two columns named {name}: rename one of them with AS")
        self._groups.show(name, kind, number)

    def _aggregate(self, node: exp.Expr) -> int:
        """Return the number of an aggregate. Rejects unsupported ones."""
        if isinstance(node, exp.Filter):
            raise unsupported(f"{node.sql(_SQL)}", "write a view with the condition in WHERE")
        function = _FUNCTIONS.get(type(node))
        if function is None:
            raise unsupported(f"{node.sql(_SQL)}", "the aggregates are COUNT, SUM, AVG, MIN and MAX")
        of = node.this.unnest() if node.this is not None else None
        if node.args.get("expressions"):
            raise unsupported(f"{node.sql(_SQL)}", _COLUMNS_ONLY)
        if isinstance(of, exp.Distinct):
            if function != "count":
                raise unsupported(f"{node.sql(_SQL)}", "DISTINCT is only supported in COUNT")
            if len(of.expressions) != 1:
                raise unsupported(f"{node.sql(_SQL)}", "count one column")
            function, of = "count_distinct", of.expressions[0].unnest()
        if function == "count" and (of is None or isinstance(of, exp.Literal) or of == exp.Star()):
            return self._groups.aggregate("count", None)
        if isinstance(of, exp.Column) and not isinstance(of.this, exp.Star):
            return self._groups.aggregate(function, column_output(self._names.column(of)))
        if isinstance(of, exp.Anonymous) and of.name.lower() == "duration":
            return self._groups.aggregate(function, self._read_output(of, self._names)[0])
        raise unsupported(f"{node.sql(_SQL)}", _COLUMNS_ONLY)

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
        op = COMPARED.get(type(node))
        if op is not None:
            left, right = node.this.unnest(), node.expression.unnest()
            one = self._input(left)
            if one is None:
                left, right, op, one = right, left, MIRRORED[op], self._input(right)
            if one is not None:
                self._restrict(into, one, OPPOSITE[op] if negated else op, [self._constant(one, right)])
                return
        elif isinstance(node, exp.Is) and isinstance(node.expression.unnest(), exp.Null) and (one := self._input(node.this.unnest())):
            self._restrict(into, one, "not_null" if negated != bool(node.args.get("negate")) else "is_null", [])
            return
        elif isinstance(node, exp.In) and not is_empty(node) and (one := self._input(node.this.unnest())):
            values = [self._constant(one, value) for value in node.expressions]
            for op, some in [("!=", [value]) for value in values] if negated else [("in", values)]:
                self._restrict(into, one, op, some)
            return
        elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low, high = exp.GTE(this=node.this, expression=node.args["low"]), exp.LTE(this=node.this, expression=node.args["high"])
            if negated:
                self._any(into, [(low, True), (high, True)])
            else:
                self._one(into, low, False)
                self._one(into, high, False)
            return
        elif isinstance(node, exp.Like | exp.Escape):
            of, operator, pattern = read_like(self._names, node, negated)
            if one := self._input(of):
                require_text(self._names, node, self._groups.result_type(one))
                self._draft.having(into, one, operator, pattern)
                return
        part = ("NOT " if negated else "") + node.sql(_SQL)
        raise unsupported(f"{part} in HAVING", "compare an aggregate or a group column with a constant, join conditions by AND and OR")

    def _restrict(self, into: GroupsDraft, one: GroupOutput, op: str, values: list[Physical | None]) -> None:
        self._draft.having(into, one, op, [value for value in values if value is not None])

    def _input(self, node: exp.Expr) -> GroupOutput | None:
        """Return the aggregate or group column in an expression."""
        if _is_aggregate(node):
            return GroupOutput("", AGGREGATE, self._aggregate(node))
        if isinstance(node, exp.Column):
            if not node.args.get("table") and not self._is_column(node) and (one := self._groups.named(fold(node.this))):
                return one
            number = self._groups.find(column_output(self._names.column(node)), None)
        elif isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
            number = self._groups.find(*self._grouped(node))
        else:
            return None
        if number is None:
            raise self._names.bad(node, f"{node.sql(_SQL)} in HAVING is not in GROUP BY: write the condition in WHERE")
        return GroupOutput("", GROUP, number)

    def _constant(self, one: GroupOutput, node: exp.Expr) -> Physical | None:
        return read_constant(self._names, node, self._groups.result_type(one), "HAVING")


def _covered(node: exp.Expr) -> exp.Expr | None:
    """Return the argument of `coverage(…)` with one interval."""
    node = node.unnest()
    if isinstance(node, exp.Anonymous) and node.name.lower() == "coverage" and len(node.expressions) == 1:
        interval: exp.Expr = node.expressions[0]
        return interval
    return None


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc | exp.Filter)

"""Reads ON and WHERE, conditions joined by AND, into a draft.

NOT is pushed inwards (`NOT (a OR b)` is two conditions). OR combines conditions that compare columns of one alias with constants; between
aliases, it can take a null end as unbounded: `b.e IS NULL OR a.s < b.e`; `COALESCE(b.e, 'infinity')` means the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlglot import exp

from service.errors import Problem
from service.query.assembly import Draft, Inequality, SubqueryDraft, unsupported
from service.query.conditions import ColumnRef, Filter
from service.query.filters import OPPOSITE
from service.query.literals import BadLiteral, Physical, distance_from_json, distance_from_text, interval_from_text
from service.query.model import Within
from service.query.scope import Scope
from service.query.sql.names import Names, meant
from service.query.sql.terms import COMPARED, is_clock, is_constant, read_like, read_value, require_text, text_of

MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_WHOLE_INFINITIES = {str(2**63 - 1): "high", str(-(2**63)): "low"}  # the bounds of bigint, which no endpoint reaches
_INFINITIES = {
    "infinity": "high",
    "+infinity": "high",
    "inf": "high",
    "-infinity": "low",
    "-inf": "low",
    **_WHOLE_INFINITIES,
}
_NOT_MAINTAINED: dict[type[exp.Expr], str] = {
    exp.ILike: "write LIKE, once for each spelling, joined by OR",
}
ReadSubquery = Callable[[exp.Expr, str, Scope], Draft]
"""Reads the SELECT of EXISTS, NOT EXISTS or IN, given its words and the names around it."""


class _Input(NamedTuple):
    """A column in a comparison; `infinity` is "low" or "high" if COALESCE replaces null by it."""

    ref: ColumnRef
    infinity: str | None = None


class Conditions:
    """Reads conditions into a draft whose names are known. `read_subquery`: None where no part is allowed. `within`: the part that contains
    the conditions, in words."""

    def __init__(self, draft: Draft, names: Names, read_subquery: ReadSubquery | None, within: str = "") -> None:
        self._draft = draft
        self._names = names
        self._read_subquery = read_subquery
        self._within = within

    def add(self, node: exp.Expr, negated: bool = False) -> None:
        """Add a condition that must hold, or (`negated`) must be false."""
        for part, negative in operands(node, negated, exp.And):
            try:
                if isinstance(part, exp.Connector):
                    self._either(part, negative)
                else:
                    self._one(part, negative)
            except Problem as problem:
                raise self._names.placed(problem, part) from None

    def _one(self, node: exp.Expr, negated: bool) -> None:
        draft = self._draft
        if isinstance(node, exp.Boolean | exp.Null):
            if isinstance(node, exp.Null) or node.this == negated:
                draft.never = True
        elif type(node) in COMPARED:
            op = COMPARED[type(node)]
            self._compare(OPPOSITE[op] if negated else op, node.this, node.args["expression"])
        elif isinstance(node, exp.Overlaps) or (isinstance(node, exp.Anonymous) and node.name.lower() == "overlaps"):
            self._overlaps(node, negated)
        elif "product" in node.meta:
            self._product(*node.expressions)
        elif isinstance(node, exp.Between):
            self._between(node, negated)
        elif isinstance(node, exp.In):
            self._in(node, negated)
        elif isinstance(node, exp.Like | exp.Escape):
            self._like(node, negated)
        elif isinstance(node, exp.Is):
            self._is(node, bool(node.args.get("negate")) != negated)
        elif isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            self._distinct(node, isinstance(node, exp.NullSafeNEQ) != negated)
        elif isinstance(node, exp.Column):
            self._filter(self._names.column(node), "=", [not negated], node)
        elif isinstance(node, exp.Exists):
            group = self._read(node.this.unnest(), "NOT EXISTS" if negated else "EXISTS")
            if negated:
                draft.absent.append(group)
            else:
                draft.subqueries.append(SubqueryDraft("exists", group))
        else:
            part = ("NOT " if negated else "") + _sql(node)
            instead = "write overlaps(x, y), comparisons, IN, LIKE, IS NULL and BETWEEN, joined by AND"
            raise unsupported(part, meant(node) or _NOT_MAINTAINED.get(type(node), instead))

    def _branch(self) -> Conditions:
        """Return a reader for one case of OR, with conditions of its own."""
        return Conditions(Draft(self._draft.scope), self._names, None, "OR")

    def _choose(self, branches: Sequence[Conditions], node: exp.Expr) -> None:
        self._draft.choose([branch._draft for branch in branches], _sql(node))

    def _read(self, query: exp.Expr, words: str) -> Draft:
        """Return the SELECT in EXISTS (…), NOT EXISTS (…) or IN (…)."""
        if self._read_subquery is None:
            instead = f"define a view with a single level of {words}" if words == self._within else "write it in WHERE"
            raise unsupported(f"{words} within {self._within}", instead)
        return self._read_subquery(query, words, self._names.scope)

    def _overlaps(self, node: exp.Expr, negated: bool) -> None:
        if negated:
            raise unsupported(f"NOT {_sql(node)}", "write overlaps(x, y); joins on intervals that do not overlap are not available")
        inputs = [node.left, node.right] if isinstance(node, exp.Overlaps) else node.expressions
        if len(inputs) != 2:
            raise self._names.bad(node, "overlaps takes two intervals")
        self._draft.overlaps.append((self._names.interval(inputs[0]), self._names.interval(inputs[1])))

    def _product(self, left: exp.Identifier, right: exp.Identifier) -> None:
        """Read a requested product of two aliases, which only JSON writes among the conditions."""
        for alias in (left, right):
            self._draft.scope.definition(alias.name)
        if left.name == right.name:
            raise self._names.bad(left, f"the product of {left.name} with itself: give the relation a second alias")
        self._draft.cross.append((left.name, right.name))

    def _between(self, node: exp.Between, negated: bool) -> None:
        if node.args.get("symmetric"):
            raise unsupported("BETWEEN SYMMETRIC", "write BETWEEN with the smaller end first")
        if negated:
            below, above = self._branch(), self._branch()
            below._compare("<", node.this, node.args["low"])
            above._compare(">", node.this, node.args["high"])
            if not (below._draft.has_filters_only and above._draft.has_filters_only):
                instead = "NOT BETWEEN compares a column with constants: define a view for each side of the range"
                raise unsupported(f"NOT {_sql(node)}", instead)
            self._choose((below, above), node)
            return
        if self._around(node):
            return
        self._compare(">=", node.this, node.args["low"])
        self._compare("<=", node.this, node.args["high"])

    def _around(self, node: exp.Between) -> bool:
        """Read `b.t BETWEEN a.t - c AND a.t + c`; return whether the condition has this form."""
        point, low, high = (part.unnest() for part in (node.this, node.args["low"], node.args["high"]))
        if not (isinstance(point, exp.Column) and isinstance(low, exp.Sub) and isinstance(high, exp.Add)):
            return False
        center = low.left.unnest()
        if not isinstance(center, exp.Column) or center != high.left.unnest():
            return False
        if low.right.unnest() != high.right.unnest():
            raise unsupported(_sql(node), "the distance must be the same on both sides: write BETWEEN a.t - c AND a.t + c")
        self._distance(center, point, low.right.unnest(), node)
        return True

    def _apart(self, op: str, left: exp.Expr, right: exp.Expr) -> bool:
        """Read `abs(a.t - b.t) <= c`; return whether the condition has this form."""
        inner = left.this.unnest() if isinstance(left, exp.Abs) else None
        if not isinstance(inner, exp.Sub):
            return False
        x, y = inner.left.unnest(), inner.right.unnest()
        if not isinstance(x, exp.Column) or not isinstance(y, exp.Column):
            return False
        if op != "<=":
            raise unsupported(f"{_sql(left)} {op} {_sql(right)}", "a distance is compared with <=: write abs(a.t - b.t) <= c")
        self._distance(x, y, right, left)
        return True

    def _distance(self, x: exp.Column, y: exp.Column, distance: exp.Expr, node: exp.Expr) -> None:
        left, right = self._names.column(x), self._names.column(y)
        type_ = self._draft.scope.describe(left).kind
        try:
            value: int | float
            if "value" in distance.meta:
                value = distance_from_json(type_, distance.meta["value"])
            elif isinstance(distance, exp.Interval):
                value = interval_from_text(type_, text_of(distance.this), distance.text("unit"))
            elif isinstance(distance, exp.Literal) and not distance.is_string:
                value = distance_from_text(type_, distance.name, "")
            else:
                raise unsupported(_sql(distance), "write the distance as a number or INTERVAL '15 minutes'")
        except BadLiteral as error:
            raise self._names.bad(node, f"the distance of {left} and {right}: {error}") from None
        self._draft.within.append(Within(left, right, value))

    def _in(self, node: exp.In, negated: bool) -> None:
        if node.args.get("query") is not None:
            return self._in_query(node, negated)
        if is_empty(node) or any(isinstance(value, exp.Query) for value in node.expressions):
            raise unsupported(_sql(node), "write IN (…) over constants, or IN (SELECT …)")
        side = self._input(node.this)
        if not isinstance(side, _Input) or side.infinity:
            raise unsupported(_sql(node), "write a column before IN")
        values = [self._value(side.ref, value) for value in node.expressions]
        if not negated:
            self._draft.restrict(side.ref, "in", [value for value in values if value is not None])
            return
        for value in values:
            self._draft.restrict(side.ref, "!=", [] if value is None else [value])

    def _like(self, node: exp.Expr, negated: bool) -> None:
        column, op, values = read_like(self._names, node, negated)
        if not isinstance(column, exp.Column):
            raise unsupported(_sql(node), "write a column before LIKE, and one pattern in quotes after it")
        ref = self._names.column(column)
        require_text(self._names, node, self._draft.scope.describe(ref).kind)
        self._draft.restrict(ref, op, values)

    def _in_query(self, node: exp.In, negated: bool) -> None:
        """Read `a.k IN (SELECT b.k …)` as EXISTS with an equality."""
        if negated:
            raise unsupported("NOT IN over a subquery", "a single null in it excludes every row: write NOT EXISTS (SELECT … WHERE …)")
        left = node.this.unnest()
        columns = [one.unnest() for one in (left.expressions if isinstance(left, exp.Tuple) else [left])]
        part = self._read(node.args["query"].unnest(), "IN")
        selected, part.outputs = part.outputs, []
        if len(selected) != len(columns):
            raise self._names.bad(node, f"IN compares {len(columns)} columns with {len(selected)}")
        for column, output in zip(columns, selected, strict=True):
            if not isinstance(column, exp.Column) or output.column is None:
                raise unsupported(_sql(node), "write columns before IN, and in the SELECT")
            ref = self._names.column(column)
            if ref.alias in part.scope.aliases:
                raise unsupported(f"the alias {ref.alias} in IN and outside of it", "rename one of the two")
            part.equal.append((ref, output.column))
        self._draft.subqueries.append(SubqueryDraft("exists", part))

    def _is(self, node: exp.Is, negated: bool) -> None:
        side = self._input(node.this)
        if not isinstance(side, _Input) or side.infinity:
            raise unsupported(_sql(node), "write a column before IS")
        value = node.expression
        if isinstance(value, exp.Null):
            self._draft.filters.append(Filter(side.ref, "not_null" if negated else "is_null", None))
        elif isinstance(value, exp.Boolean) and not negated:
            self._filter(side.ref, "=", [value.this], node)
        elif isinstance(value, exp.Boolean):
            other, null = self._branch(), self._branch()
            other._filter(side.ref, "=", [not value.this], node)
            null._draft.filters.append(Filter(side.ref, "is_null", None))
            self._choose((other, null), node)
        else:
            raise unsupported(_sql(node), "write IS NULL, IS NOT NULL, IS [NOT] TRUE, IS [NOT] FALSE")

    def _distinct(self, node: exp.NullSafeEQ | exp.NullSafeNEQ, distinct: bool) -> None:
        """Read `IS [NOT] DISTINCT FROM` a constant: null is a value like any other."""
        x, y = self._input(node.this), self._input(node.expression)
        side, constant = (x, node.expression) if x is not None else (y, node.this)
        if side is None or side.infinity or (x is not None and y is not None):
            instead = "it compares a column with a constant; between relations = and <> leave out nulls: store a value in their place"
            raise unsupported(_sql(node), instead)
        value = self._value(side.ref, constant)
        if value is None:
            self._draft.filters.append(Filter(side.ref, "not_null" if distinct else "is_null", None))
        elif distinct:
            other, null = self._branch(), self._branch()
            other._draft.restrict(side.ref, "!=", [value])
            null._draft.filters.append(Filter(side.ref, "is_null", None))
            self._choose((other, null), node)
        else:
            self._draft.restrict(side.ref, "=", [value])

    def _compare(self, op: str, left: exp.Expr, right: exp.Expr) -> None:
        if self._apart(op, left.unnest(), right.unnest()) or self._apart(MIRRORED[op], right.unnest(), left.unnest()):
            return
        x, y = self._input(left), self._input(right)
        if isinstance(x, _Input) and isinstance(y, _Input):
            if op in ("=", "!="):
                if x.infinity or y.infinity:
                    raise unsupported(
                        f"{_sql(left)} {op} {_sql(right)}", "use COALESCE with an infinity around the ends of an interval in < and <="
                    )
                (self._draft.equal if op == "=" else self._draft.not_equal).append((x.ref, y.ref))
            else:
                self._draft.inequalities.append(self._inequality(op, x, y))
        elif isinstance(x, _Input):
            self._constant(op, x, left, right)
        elif isinstance(y, _Input):
            self._constant(MIRRORED[op], y, right, left)
        elif isinstance(left.unnest(), exp.Null) or isinstance(right.unnest(), exp.Null):
            self._draft.never = True
        elif left != right or op not in ("=", "<=", ">="):
            raise unsupported(f"{_sql(left)} {op} {_sql(right)}", "a comparison of constants: write TRUE or FALSE, or leave it out")

    def _inequality(self, op: str, x: _Input, y: _Input) -> Inequality:
        low, high = (x, y) if op in ("<", "<=") else (y, x)
        for side, wanted in ((low, "low"), (high, "high")):
            if side.infinity not in (None, wanted):
                sign = "-" if wanted == "low" else ""
                raise unsupported(
                    f"COALESCE({side.ref}, …) on the {'smaller' if wanted == 'low' else 'greater'} side",
                    f"write COALESCE({side.ref}, '{sign}infinity') there",
                )
        return Inequality(low.ref, high.ref, op in ("<", ">"), bool(low.infinity), bool(high.infinity))

    def _either(self, node: exp.Expr, negated: bool) -> None:
        """Read OR of conditions on one alias, or one that takes null ends as unbounded."""
        instead = "OR combines comparisons of the columns of one alias with constants: define a view for each case"
        if isinstance(node, exp.Xor) or node.find(exp.Query) is not None:
            raise unsupported(f"OR in {_sql(node)}" if not isinstance(node, exp.Xor) else _sql(node), instead)
        cases = operands(node, negated, exp.Or)
        branches = [self._branch() for _ in cases]
        for branch, (part, negative) in zip(branches, cases, strict=True):
            branch.add(part, negative)
        if all(branch._draft.has_filters_only for branch in branches):
            self._choose(branches, node)
        else:
            self._unbounded(cases, node, instead)

    def _unbounded(self, cases: Sequence[tuple[exp.Expr, bool]], node: exp.Expr, instead: str) -> None:
        """Read `end IS NULL OR start < end`, a comparison in which null ends are unbounded. `cases`: the operands of OR, each perhaps
        negated."""
        guards: list[ColumnRef] = []
        comparisons: list[tuple[str, exp.Expr]] = []
        for part, negative in cases:
            if isinstance(part, exp.Is) and isinstance(part.expression, exp.Null) and isinstance(part.this.unnest(), exp.Column):
                if bool(part.args.get("negate")) == negative:
                    guards.append(self._names.column(part.this.unnest()))
                    continue
                raise unsupported(f"OR in {_sql(node)}", instead)
            elif type(part) in COMPARED:
                op = COMPARED[type(part)]
                comparisons.append((OPPOSITE[op] if negative else op, part))
            else:
                raise unsupported(f"OR in {_sql(node)}", instead)
        if not guards or len(comparisons) != 1 or comparisons[0][0] in ("=", "!="):
            raise unsupported(f"OR in {_sql(node)}", instead)
        op, part = comparisons[0]
        x, y = self._input(part.this), self._input(part.args["expression"])
        if not isinstance(x, _Input) or not isinstance(y, _Input):
            raise unsupported(f"OR in {_sql(node)}", instead)
        self._draft.inequalities.append(self._guarded(self._inequality(op, x, y), guards, node))

    def _guarded(self, bare: Inequality, guards: list[ColumnRef], node: exp.Expr) -> Inequality:
        """Return the comparison with guards. A null in a guard's column matches every value, so a null on the other side would have to
        match as well."""
        scope = self._draft.scope
        if not set(guards) <= {bare.low, bare.high}:
            raise unsupported(f"OR in {_sql(node)}", f"IS NULL can be combined with {bare} only for {bare.low} or {bare.high}")
        guarded = bare._replace(
            low_unbounded=bare.low_unbounded or bare.low in guards, high_unbounded=bare.high_unbounded or bare.high in guards
        )
        for ref, unbounded in ((bare.low, guarded.low_unbounded), (bare.high, guarded.high_unbounded)):
            if not unbounded and scope.describe(ref).nullable and any(scope.describe(guard).nullable for guard in guards):
                raise unsupported(
                    f"OR in {_sql(node)}",
                    f"{ref} may be null too: add OR {ref} IS NULL, or write overlaps(x, y), which treats null ends as unbounded",
                )
        return guarded

    def _constant(self, op: str, side: _Input, column: exp.Expr, constant: exp.Expr) -> None:
        if side.infinity:
            raise unsupported(
                f"comparing {_sql(column)} with the constant {_sql(constant)}",
                f"write {side.ref} without COALESCE; for nulls, register another view with IS NULL",
            )
        value = self._value(side.ref, constant)
        self._draft.restrict(side.ref, op, [] if value is None else [value])

    def _filter(self, ref: ColumnRef, op: str, values: list[Physical], node: exp.Expr) -> None:
        """Read a condition that is a bool column alone, or IS TRUE."""
        type_ = self._draft.scope.describe(ref).kind
        if type_ != "bool":
            raise self._names.bad(node, f"{ref} is {type_}, not a condition")
        self._draft.restrict(ref, op, values)

    def _input(self, node: exp.Expr) -> _Input | None:
        """Return a column, plain or in COALESCE with an infinity; None for a constant."""
        node = node.unnest()
        if isinstance(node, exp.Column):
            return _Input(self._names.column(node))
        if isinstance(node, exp.Coalesce) and isinstance(node.this.unnest(), exp.Column) and len(node.expressions) == 1:
            ref = self._names.column(node.this.unnest())
            text = text_of(node.expressions[0]).lower()
            infinity = _INFINITIES.get(text)
            whole = self._draft.scope.describe(ref).kind == "int64"
            if infinity is None or (text in _WHOLE_INFINITIES and not whole):
                raise unsupported(_sql(node), f"write COALESCE({ref}, 'infinity') for an end, '-infinity' for a start")
            return _Input(ref, infinity)
        if is_constant(node):
            return None
        if isinstance(node, exp.Any) and not isinstance(node.this.unnest(), exp.Query):
            raise unsupported(_sql(node), "list the values: IN (1, 2)")
        if isinstance(node, exp.Query | exp.Any | exp.All):
            raise unsupported("a subquery in a condition", "put its relation into FROM and its condition into WHERE")
        if isinstance(node, exp.AggFunc | exp.Window):
            raise unsupported(_sql(node), "compare columns; compute aggregates and window functions when you read the rows")
        if isinstance(node, exp.Tuple):
            raise unsupported(f"the comparison of {_sql(node)}", "compare column by column, joined by AND")
        if any(map(is_clock, node.walk())):
            instead = 'a view changes only when its relations do: delete old rows ("retain" of the relation), or read a window of the view'
            raise unsupported(f"{_sql(node)} in a condition", instead)
        if not any(True for _ in node.find_all(exp.Column)):
            raise unsupported(_sql(node), "write a constant; a view changes only when its relations do")
        raise unsupported(
            f"the expression {_sql(node)}",
            "compare columns with columns or constants; a distance is abs(a.t - b.t) <= c, or b.t BETWEEN a.t - c AND a.t + c",
        )

    def _value(self, ref: ColumnRef, node: exp.Expr) -> Physical | None:
        """Return a constant in the physical form of the column's type; None for NULL."""
        if not is_constant(node.unnest()):
            raise unsupported(_sql(node), f"compare {ref} with constants")
        self._draft.scope.require_comparable(ref)
        try:
            return read_value(node.unnest(), self._draft.scope.describe(ref).kind)
        except BadLiteral as error:
            raise self._names.bad(node, f"{ref}: {error}") from None


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


def is_empty(node: exp.In) -> bool:
    """Return whether IN has no list of values. In JSON the list may be empty: then no value is in it."""
    return not node.expressions and "path" not in node.meta


def _sql(node: exp.Expr) -> str:
    return node.sql("postgres")

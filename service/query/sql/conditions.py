"""Reads ON and WHERE, conditions joined by AND, into a draft.

NOT is pushed inwards (`NOT (a OR b)` is two conditions). OR combines conditions on the columns of one alias, which `filters` reads; between
aliases, it can take a null end as unbounded: `b.e IS NULL OR a.s < b.e`; `COALESCE(b.e, 'infinity')` means the same. Of the aliases of an
inner join, any other expression is read as it stands, to be checked row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from typing import Any, NamedTuple

from sqlglot import exp

from livejoin.wire.kinds import MOST_DIGITS, digits_of
from service.errors import Problem, unsupported
from service.query.assembly import Draft, Inequality, SubqueryDraft
from service.query.comparisons import common, following, limited, zero_of
from service.query.conditions import ColumnRef, IntervalRef, Term
from service.query.filters import OPPOSITE, holds
from service.query.scope import Scope
from service.query.sql.complaints import Noted
from service.query.sql.constants import is_constant, text_of
from service.query.sql.filters import MIRRORED, WRITTEN, RowConditions, end_of, factored, note_within, operands, read_condition, refuse
from service.query.sql.names import Names, sql_of
from service.query.sql.output_names import MERGED
from service.query.sql.over_groups import is_of_stretches, read_of_stretches
from service.query.sql.ranges import DISCRETE, OPERATORS, End, Range, range_of, range_with
from service.query.sql.sums import read_sums
from service.query.sql.terms import COMPARED, read_term
from service.query.terms import chosen, coalesced, logical, tested

ReadSubquery = Callable[[exp.Expr, str, Scope], Draft]
"""Reads the SELECT of EXISTS, NOT EXISTS or IN, given its words and the names around it."""


class _Input(NamedTuple):
    """A column in a comparison; `infinity` is "low" or "high" if COALESCE replaces null by it."""

    ref: ColumnRef
    infinity: str | None = None


class Conditions:
    """Reads conditions into a draft whose names are known. `read_subquery`: None where no part is allowed. `within`: the part that contains
    the conditions, in words. `notes`: whether a refused condition is noted, and those behind it are read."""

    def __init__(self, draft: Draft, names: Names, read_subquery: ReadSubquery | None, within: str = "", notes: bool = False) -> None:
        self._draft = draft
        self._names = names
        self._read_subquery = read_subquery
        self._within, self._notes = within, notes
        self._rows = RowConditions(draft, names)
        self._lists: tuple[list[Any], ...] = draft.equal, draft.not_equal, draft.overlaps, draft.inequalities, draft.filters
        self._known = [len(one) for one in self._lists]

    def add(self, node: exp.Expr, negated: bool = False) -> None:
        """Add a condition that must hold, or (`negated`) must be false."""
        for part, negative in chain.from_iterable(factored(*one) for one in operands(node, negated, exp.And)):
            with self._names.complaints.noting(part) if self._notes else nullcontext():
                try:
                    if self._within == "" and is_of_stretches(part):
                        self._draft.of_stretches.append(read_of_stretches(part, negative, self._names))
                    elif self._is_of_pairs(part):
                        term = read_term(part, self._names)
                        opposite = logical("not", term)  # refuses what is no condition
                        self._draft.of_pairs.append(holds(opposite if negative else term))
                    elif any(MERGED in one.meta for one in part.find_all(exp.Coalesce)):
                        self._merged(part, negative)
                    elif isinstance(part, exp.Connector):
                        self._either(part, negative)
                    else:
                        self._one(part, negative)
                    self._judge(part)
                except Problem as problem:
                    if self._notes and note_within(part, self._names, problem):
                        raise Noted from None
                    raise self._names.placed(problem, part) from None

    def _is_of_pairs(self, node: exp.Expr) -> bool:
        """Return whether a condition is one of both relations of an as-of join in WHERE."""
        return self._draft.as_of is not None and node.find(exp.Query) is None and len(self._aliases(node)) > 1

    def _judge(self, part: exp.Expr) -> None:
        """Check the types of what the condition just read compares, and keep where it is written."""
        for at, found in enumerate(self._lists):
            new, self._known[at] = found[self._known[at] :], len(found)
            for one in new:
                self._draft.places.setdefault(one, part)
                if isinstance(one, Inequality):
                    if not (one.low_unbounded or one.high_unbounded):
                        self._draft.scope.require_alike(one.low, one.high)
                elif found is self._draft.overlaps:
                    self._draft.scope.require_to_meet(*one)
                elif found is not self._draft.filters:
                    self._draft.scope.require_alike(*one)

    def _one(self, node: exp.Expr, negated: bool) -> None:
        draft = self._draft
        if isinstance(node, exp.Boolean | exp.Null):
            if isinstance(node, exp.Null) or node.this == negated:
                draft.never = True
        elif isinstance(node, exp.Overlaps) or (isinstance(node, exp.Anonymous) and node.name.lower() == "overlaps"):
            self._overlaps(node, negated)
        elif "product" in node.meta:
            self._product(*node.expressions)
        elif isinstance(node, OPERATORS):
            self._ranges(node, negated)
        elif isinstance(node, exp.Exists):
            group = self._read(node.this.unnest(), "NOT EXISTS" if negated else "EXISTS")
            if negated:
                draft.absent.append(group)
            else:
                draft.subqueries.append(SubqueryDraft("exists", group))
        elif isinstance(node, exp.Between):
            self._between(node, negated)
        elif isinstance(node, exp.In) and node.args.get("query") is not None:
            self._in_query(node, negated)
        elif type(node) in COMPARED:
            op = COMPARED[type(node)]
            self._compare(OPPOSITE[op] if negated else op, node.this, node.args["expression"])
        elif len(aliases := self._aliases(node)) < 2:
            self._rows.add(node, negated)
        elif isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            self._distinct(node, isinstance(node, exp.NullSafeNEQ) != negated)
        else:
            self._add_across(node, negated, aliases)

    def _add_across(self, node: exp.Expr, negated: bool, aliases: Sequence[str]) -> None:
        """Add an expression over several aliases of an inner join."""
        if self._read_subquery is None:
            raise self._over_several(sql_of(node), aliases)
        self._draft.across.append(read_condition(node, negated, self._names))

    def _merged(self, node: exp.Expr, negated: bool) -> None:
        """Read a condition on columns of both sides of a FULL JOIN, which are equal where a row has both: each side that is there meets
        it."""
        for side in range(2):
            of_side = exp.Paren(this=node.copy())
            for one in [one for one in of_side.find_all(exp.Coalesce) if MERGED in one.meta]:
                one.replace([one.this, *one.expressions][side])
            if of_side.find(exp.Query) or len(self._aliases(of_side)) > 1:
                instead = "after FULL JOIN, a condition is over the columns of USING, or over those of one alias"
                raise unsupported(sql_of(node), f"{instead}: define a view for each case")
            branch = self._branch()
            branch.add(of_side, negated)
            self._draft.never = self._draft.never or branch._draft.never
            self._draft.outer_filters += branch._draft.filters

    def _aliases(self, *nodes: exp.Expr) -> list[str]:
        """Return the aliases whose columns, or intervals, the nodes name."""
        found = dict[str, None]()
        for column in (one for node in nodes for one in node.walk(bfs=False, prune=lambda one: isinstance(one, exp.Query))):
            if not isinstance(column, exp.Column):
                continue
            try:
                found[self._names.column(column).alias] = None
            except Problem:
                if not isinstance(column.parent, exp.Anonymous):
                    raise
                found[self._names.interval(column).alias] = None
        return list(found)

    @staticmethod
    def _over_several(words: str, aliases: Sequence[str]) -> Problem:
        instead = (
            "an expression in such a condition reads the columns of one alias; between aliases, compare two expressions; a distance is "
            "abs(a.t - b.t) <= c"
        )
        return unsupported(f"the expression {words} over {' and '.join(aliases)}", instead)

    def _branch(self) -> Conditions:
        """Return a reader for one case of OR, with conditions of its own."""
        return Conditions(Draft(self._draft.scope), self._names, None, "OR", self._notes)

    def _choose(self, branches: Sequence[Conditions], node: exp.Expr) -> None:
        self._draft.choose([branch._draft for branch in branches], sql_of(node))

    def _read(self, query: exp.Expr, words: str) -> Draft:
        """Return the SELECT in EXISTS (…), NOT EXISTS (…) or IN (…)."""
        if self._read_subquery is None:
            instead = "join a subquery that has it in its WHERE" if self._within.endswith("JOIN") else "write it in WHERE"
            raise unsupported(f"{words} within {self._within}", instead)
        return self._read_subquery(query, words, self._names.scope)

    def _overlaps(self, node: exp.Expr, negated: bool) -> None:
        if negated:
            raise unsupported(f"NOT {sql_of(node)}", "write overlaps(x, y); joins on intervals that do not overlap are not available")
        inputs = [node.left, node.right] if isinstance(node, exp.Overlaps) else node.expressions
        if len(inputs) != 2:
            raise self._names.bad(node, "overlaps takes two intervals")
        for one, other in (inputs, inputs[::-1]):
            if isinstance(one := one.unnest(), exp.Tuple) and all(is_constant(end.unnest()) for end in one.expressions):
                raise self._with_constants(node, one, self._names.interval(other))
        self._draft.overlaps.append((self._names.interval(inputs[0]), self._names.interval(inputs[1])))

    def _with_constants(self, node: exp.Expr, constants: exp.Tuple, of: IntervalRef) -> Problem:
        """Return the problem for an overlap with a constant period."""
        declared, name = self._names.scope.declared(of), range_with(self._names.scope.endpoint_type(of))
        columns = f"{of.alias}.{declared.start_column}, {of.alias}.{declared.end_column}"
        texts = [f"'{text_of(end)}'" if "'" in sql_of(end) else sql_of(end) for end in constants.expressions]
        return unsupported(sql_of(node), f"write {name}({columns}) && {name}({', '.join(texts)})")

    def _ranges(self, node: exp.Binary, negated: bool) -> None:
        """Read `tstzrange(a.s, a.e) && tstzrange(b.s, b.e)`, and `@>` or `<@` with a point, as comparisons of ends."""
        first, second = (node.right, node.left) if isinstance(node, exp.ArrayContainedBy) else (node.left, node.right)
        left, right = range_of(first, self._names), range_of(second, self._names)
        if negated or left is None or (right is None) == isinstance(node, exp.ArrayOverlaps):
            what = f"{'NOT ' * negated}{sql_of(node)}"
            raise unsupported(what, "write tstzrange(a.s, a.e) && tstzrange(b.s, b.e), or tstzrange(a.s, a.e) @> b.t")
        if right is None:
            point = End(second.unnest(), unbounded=False)
            if not self._declared(left.interval(self._names), self._point(point)):
                self._order(left.start, point, left.kind)
                self._order(point, left.end, left.kind)
        elif not self._declared(left.interval(self._names), right.interval(self._names)):
            one, other = map(self._require_not_empty, (left, right))
            self._order(left.start, right.end, left.kind, one, other)
            self._order(right.start, left.end, left.kind, other, one)

    def _declared(self, one: IntervalRef | None, other: IntervalRef | None) -> bool:
        """Add the overlap of two declared intervals, if that is what two ranges, or a range and a point, are."""
        if one is None or other is None or one.alias == other.alias or self._names.scope.strictness(one, other) is None:
            return False
        self._draft.overlaps.append((one, other))
        return True

    def _point(self, point: End) -> IntervalRef | None:
        ref = self._names.column(point.node) if isinstance(point.node, exp.Column) else None
        return None if ref is None else next(self._names.scope.intervals_over(ref, ref), None)

    def _require_not_empty(self, one: Range) -> Term | None:
        """Add the condition that something is in a range; return it if it is of an alias outside of a subquery, whose rows stay."""
        if one.is_never_empty(self._names):
            return None
        if not set(self._aliases(one.start.node, one.end.node)) <= self._draft.scope.aliases.keys():
            return one.is_not_empty(self._names)
        self._order(one.start, one.end, one.kind)
        return None

    def _order(self, low: End, high: End, kind: str, low_if: Term | None = None, high_if: Term | None = None) -> None:
        """Add the condition that a value is between a start and an end, one of which may be a point. `low_if`: where it is not true,
        nothing is."""
        aliases, is_apart = self._aliases(low.node, high.node), low.is_open and high.is_open and kind in DISCRETE
        op = "<" if low.is_open or high.is_open else "<="
        if len(aliases) < 2:
            start = exp.Add(this=exp.Paren(this=low.node.copy()), expression=exp.Literal.number(1)) if is_apart else low.node
            self._rows.order(exp.LT if op == "<" else exp.LTE, start, high.node, [one.node for one in (low, high) if one.unbounded])
            return
        for one in (low, high):
            if len(self._aliases(one.node)) > 1:
                raise self._over_several(sql_of(one.node), aliases)
        scope, conditions = self._draft.scope, (low_if, high_if)
        first, last = read_term(low.node, self._names), read_term(high.node, self._names)
        if first.op == last.op == "column" and not is_apart and conditions == (None, None) and first.kind == last.kind:
            is_low, is_high = (one.unbounded and scope.describe(term.value).nullable for one, term in ((low, first), (high, last)))
            self._draft.inequalities.append(Inequality(first.value, last.value, op == "<", is_low, is_high))
            return
        op, *ends = limited(op, following(first, 1) if is_apart else first, last, (low.unbounded, high.unbounded))
        x, y = (scope.compute(end if where is None else chosen([(where, end)], None)) for end, where in zip(ends, conditions, strict=True))
        self._draft.inequalities.append(Inequality(x, y, op == "<"))

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
                instead = "NOT BETWEEN is over the columns of one alias: define a view for each side of the range"
                raise unsupported(f"NOT {sql_of(node)}", instead)
            self._choose((below, above), node)
            return
        self._compare(">=", node.this, node.args["low"])
        self._compare("<=", node.this, node.args["high"])

    def _in_query(self, node: exp.In, negated: bool) -> None:
        """Read `a.k IN (SELECT b.k …)` as EXISTS with an equality, and NOT IN as NOT EXISTS: none of the columns is null
        (`composition.unnesting`)."""
        left = node.this.unnest()
        columns = [one.unnest() for one in (left.expressions if isinstance(left, exp.Tuple) else [left])]
        part = self._read(node.args["query"].unnest(), "IN")
        selected, part.outputs = part.outputs, []
        if len(selected) != len(columns):
            raise self._names.bad(node, f"the columns before IN are {len(columns)}, those of the subquery {len(selected)}")
        for column, output in zip(columns, selected, strict=True):
            if not isinstance(column, exp.Column) or output.column is None:
                raise unsupported(sql_of(node), "write columns before IN, and in the SELECT")
            ref = self._names.column(column)
            if ref.alias in part.scope.aliases:
                raise unsupported(f"the alias {ref.alias} in IN and outside of it", "rename one of the two")
            part.equal.append(part.scope.equated(ref, output.column))
        if negated:
            self._draft.absent.append(part)
        else:
            self._draft.subqueries.append(SubqueryDraft("exists", part))

    def _compare(self, op: str, left: exp.Expr, right: exp.Expr) -> None:
        aliases = self._aliases(left, right)
        if len(aliases) < 2:
            return self._rows.compare(op, left, right)
        if (sums := read_sums(op, left, right, self._names)) is not None:
            self._draft.inequalities += sums
            return None
        is_joined = self._draft.equal or self._draft.overlaps or self._draft.inequalities or self._draft.cross
        if any(len(self._aliases(one)) > 1 for one in (left, right)) or (is_joined and self._is_wide(op, left, right)):
            return self._add_across(WRITTEN[op](this=left.copy(), expression=right.copy()), False, aliases)
        if end_of(left, self._names) is None and end_of(right, self._names) is None:
            return self._between_aliases(op, left, right, f"{sql_of(left)} {op} {sql_of(right)}")
        x, y = self._input(left), self._input(right)
        if x is None or y is None:
            return self._add_across(WRITTEN[op](this=left.copy(), expression=right.copy()), False, aliases)
        if op in ("=", "!="):
            instead = "use COALESCE with an infinity around the ends of an interval in < and <="
            raise unsupported(f"{sql_of(left)} {op} {sql_of(right)}", instead)
        self._draft.inequalities.append(self._inequality(op, x, y))
        return None

    def _is_wide(self, op: str, left: exp.Expr, right: exp.Expr) -> bool:
        """Return whether decimals are compared that may have more digits than columns have."""
        digits = list[tuple[int, int] | None]()
        with suppress(Problem):
            terms = [read_term(left, self._names), read_term(right, self._names)]
            digits += [digits_of(one.kind) for one in terms]
            digits += [digits_of(one.kind) for one in common(op, *terms)]
        return any(one is not None and one[0] > MOST_DIGITS for one in digits)

    def _between_aliases(self, op: str, left: exp.Expr, right: exp.Expr, words: str) -> None:
        """Add a comparison of two expressions, each over one alias."""
        if op in (">", ">="):
            op, left, right = MIRRORED[op], right, left
        pair = self._pair(op, left, right, words)
        if op in ("=", "!="):
            (self._draft.equal if op == "=" else self._draft.not_equal).append(pair)
        else:
            self._draft.inequalities.append(Inequality(*pair, op == "<"))

    def _pair(self, op: str, left: exp.Expr, right: exp.Expr, words: str) -> tuple[ColumnRef, ColumnRef]:
        """Return the columns, of two aliases, that are compared instead of two expressions."""
        aliases = [self._aliases(left), self._aliases(right)]
        if any(len(one) != 1 for one in aliases):
            raise self._over_several(words, list(dict.fromkeys(chain(*aliases))))
        for one in (left, right):
            refuse(one)
        x, y = common(op, read_term(left, self._names), read_term(right, self._names))
        return self._draft.scope.compute(x), self._draft.scope.compute(y)

    @property
    def _missing(self) -> set[str]:
        """The aliases that a row may lack, by the outer joins that have been read."""
        draft = self._draft
        missing = {alias for one in draft.subqueries if one.kind == "optional" for alias in one.draft.scope.aliases}
        missing |= {draft.as_of.of.alias} if draft.as_of is not None and draft.as_of.optional else set()
        return missing | {alias for one in draft.subqueries if one.kind == "full" for alias in draft.scope.aliases}

    def _distinct(self, node: exp.Binary, distinct: bool) -> None:
        """Read `IS [NOT] DISTINCT FROM` between two aliases: `=` or `<>` where that means the same. Otherwise, for null to equal null, two
        values are equal that are not null, and whether they stand for a null is, too, as well as whether one was null before it was made
        comparable."""
        pair, draft = self._pair("=", node.left, node.right, sql_of(node)), self._draft
        missing = self._missing
        known = [ref for ref in pair if not draft.scope.describe(ref).nullable and ref.alias in {*draft.scope.aliases} - missing]
        if distinct:
            if len(known) < len(pair):
                instead = "both sides must be declared without nulls: store a value in their place, or define a view for each case"
                raise unsupported(sql_of(node), instead)
            draft.not_equal.append(pair)
        elif known:
            draft.equal.append(pair)
        else:
            scope, given = draft.scope, [draft.scope.term_of(ref) for ref in pair]
            written = [read_term(one, self._names) for one in (node.left, node.right)]
            equal = [[coalesced((one, zero_of(one.kind))) for one in given], [tested("is_null", one) for one in given]]
            for made in [*equal, *([[tested("is_null", one) for one in written]] if written != given else [])]:
                x, y = map(scope.compute, made)
                draft.equal.append((x, y))

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
        """Read OR of conditions on one alias, one that takes null ends as unbounded, or any over several aliases of an inner join."""
        instead = "OR combines conditions on the columns of one alias: define a view for each case"
        if isinstance(node, exp.Xor) or node.find(exp.Query) is not None:
            raise unsupported(f"OR in {sql_of(node)}" if not isinstance(node, exp.Xor) else sql_of(node), instead)
        cases = operands(node, negated, exp.Or)
        functions = {one.name.lower() for one in node.find_all(exp.Anonymous)}
        is_overlap = node.find(exp.Overlaps) is not None or "overlaps" in functions
        if self._read_subquery is not None and not is_overlap and len(aliases := self._aliases(node)) > 1:
            try:
                self._unbounded(cases, node, instead)
            except Problem:
                self._add_across(node, negated, aliases)
            return
        branches, known = [self._branch() for _ in cases], self._names.complaints.count
        for branch, (part, negative) in zip(branches, cases, strict=True):
            branch.add(part, negative)
        self._names.complaints.require_no_more(known)
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
                if bool(part.args.get("negate")) != negative:
                    raise unsupported(f"OR in {sql_of(node)}", instead)
                guards.append(self._names.column(part.this.unnest()))
            elif type(part) in COMPARED:
                op = COMPARED[type(part)]
                comparisons.append((OPPOSITE[op] if negative else op, part))
            else:
                raise unsupported(f"OR in {sql_of(node)}", instead)
        if not guards or len(comparisons) != 1 or comparisons[0][0] in ("=", "!="):
            raise unsupported(f"OR in {sql_of(node)}", instead)
        op, part = comparisons[0]
        x, y = self._input(part.this), self._input(part.args["expression"])
        if not isinstance(x, _Input) or not isinstance(y, _Input):
            raise unsupported(f"OR in {sql_of(node)}", instead)
        self._draft.inequalities.append(self._guarded(self._inequality(op, x, y), guards, node))

    def _guarded(self, bare: Inequality, guards: list[ColumnRef], node: exp.Expr) -> Inequality:
        """Return the comparison with guards. A null in a guard's column matches every value, so a null on the other side would have to
        match as well."""
        scope = self._draft.scope
        if not set(guards) <= {bare.low, bare.high}:
            raise unsupported(f"OR in {sql_of(node)}", f"IS NULL can be combined with {bare} only for {bare.low} or {bare.high}")
        guarded = bare._replace(
            low_unbounded=bare.low_unbounded or bare.low in guards, high_unbounded=bare.high_unbounded or bare.high in guards
        )
        for ref, unbounded in ((bare.low, guarded.low_unbounded), (bare.high, guarded.high_unbounded)):
            if not unbounded and scope.describe(ref).nullable and any(scope.describe(guard).nullable for guard in guards):
                raise unsupported(
                    f"OR in {sql_of(node)}",
                    f"{ref} may be null too: add OR {ref} IS NULL, or write overlaps(x, y), which treats null ends as unbounded",
                )
        return guarded

    def _input(self, node: exp.Expr) -> _Input | None:
        """Return a column, plain or in COALESCE with an infinity; None for anything else."""
        node = node.unnest()
        if isinstance(node, exp.Column):
            return _Input(self._names.column(node))
        if (end := end_of(node, self._names)) is not None:
            return _Input(*end)
        if isinstance(node, exp.Coalesce) and isinstance(node.this.unnest(), exp.Column):
            raise unsupported(sql_of(node), f"write COALESCE({sql_of(node.this)}, 'infinity') for an end, '-infinity' for a start")
        refuse(node)
        return None

"""From a `Draft`, into which a definition is read, to a `Query`: classifies the conditions and rejects unsupported ones.

Two inequalities over declared intervals, with the strictness of their bounds, become an overlap: for x of alias a and y of alias b,
`a.x_start ? b.y_end` and `b.y_start ? a.x_end`, each `<` if exactly one of its two ends is open, and `<=` if none is. If both are, the
overlap requires a value between them, which no comparison can express: then two inequalities remain two comparisons. Columns in ordinary
comparisons get a `not_null` filter, because null matches nothing in a comparison, and so do points, while an overlap takes a null end as
unbounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain, combinations, count
from typing import Any, NamedTuple, TypeVar

from sqlglot import exp

from livejoin.wire.schema import MAX_NAME, OP_COLUMN
from service.errors import Problem, unsupported
from service.query.comparisons import limited
from service.query.conditions import ColumnRef, Condition, Filter, IntervalRef, RowValue, Term
from service.query.filters import comparing, either, ordered
from service.query.groups import GroupsDraft
from service.query.literals import Physical
from service.query.model import (
    MAX_ALIASES,
    MOST_GROUPS,
    Across,
    AntiJoin,
    AsOf,
    Comparison,
    GroupOutput,
    Latest,
    Number,
    Output,
    Query,
    SubqueryKind,
)
from service.query.scope import Scope
from service.query.sql.complaints import Complaints

Ref = TypeVar("Ref", ColumnRef, IntervalRef)


class Inequality(NamedTuple):
    """`low < high` (strict) or `low <= high` between two columns; an unbounded side takes null as its infinity. `plus`: if it is between
    sums, what is added to each of the two."""

    low: ColumnRef
    high: ColumnRef
    strict: bool
    low_unbounded: bool = False
    high_unbounded: bool = False
    plus: tuple[Number, Number] | None = None

    def __str__(self) -> str:
        return str(self.comparison)

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.low, "<" if self.strict else "<=", self.high, *(self.plus or ()))


class Limits(NamedTuple):
    """Limits on the size of a view that is being defined; existing views were within the limits of their time. `sql`: in bytes."""

    aliases: int
    conditions: int
    columns: int
    sql: int


class Options(NamedTuple):
    """The options of a definition."""

    algorithm: str
    guarantee: str
    retain: tuple[int, int] | None
    groups: int = MOST_GROUPS


@dataclass
class Draft:
    """A definition with its names resolved and its conditions not yet checked."""

    scope: Scope
    equal: list[tuple[ColumnRef, ColumnRef]] = field(default_factory=list)
    overlaps: list[tuple[IntervalRef, IntervalRef]] = field(default_factory=list)
    inequalities: list[Inequality] = field(default_factory=list)
    not_equal: list[tuple[ColumnRef, ColumnRef]] = field(default_factory=list)
    cross: list[tuple[str, str]] = field(default_factory=list)
    across: list[Term] = field(default_factory=list)  # conditions over several aliases
    filters: list[Condition] = field(default_factory=list)
    outer_filters: list[Condition] = field(default_factory=list)  # of rows that have their alias
    outputs: list[Output] = field(default_factory=list)
    never: bool = False
    absent: list[Draft] = field(default_factory=list)  # NOT EXISTS
    subqueries: list[SubqueryDraft] = field(default_factory=list)
    groups: GroupsDraft | None = None  # what is selected, if rows are grouped
    latest: Latest | None = None
    as_of: AsOf | None = None
    of_pairs: list[Condition] = field(default_factory=list)  # conditions on the rows of an as-of join
    of_stretches: list[tuple[str, tuple[IntervalRef, ...], Condition]] = field(default_factory=list)  # the function, of what
    ordered: bool = False  # by ORDER BY, which a view ignores
    complaints: Complaints | None = None
    places: dict[Any, exp.Expr] = field(default_factory=dict)  # where aliases, conditions and outputs are written; "": the SELECT

    def beside(self, scope: Scope) -> Draft:
        """Return an empty draft of the same definition."""
        return Draft(scope, complaints=self.complaints, places=self.places)

    def noting(self, of: Any = None) -> AbstractContextManager[None]:
        """Note a problem with a part of the definition at its place, and go on."""
        return nullcontext() if self.complaints is None else self.complaints.noting(self.places.get(of))

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Raise `Noted` at the end if there are more complaints than before."""
        known = 0 if self.complaints is None else self.complaints.count
        yield
        if self.complaints is not None:
            self.complaints.require_no_more(known)

    def restrict(self, ref: ColumnRef, op: str, values: Sequence[Physical]) -> None:
        """Add the filter `ref op value`, as `filters.comparing`; nulls are removed before."""
        if values or op in ("is_null", "not_null"):
            self.filters.append(comparing(ref, op, values))
        else:
            self.never = True

    def choose(self, cases: Sequence[Draft], words: str) -> None:
        """Add the condition that all filters of at least one case hold; a case contains nothing else (`has_filters_only`). `words`: as
        written. Problem `unsupported-query` for cases about several aliases."""
        aliases = list(dict.fromkeys(one.alias for case in cases for one in case.filters))
        if len(aliases) > 1:
            instead = "the conditions that OR combines are on one alias: define a view for each case"
            raise unsupported(f"OR over {' and '.join(aliases)} ({words})", instead)
        possible = [case.filters for case in cases if not case.never]
        if possible:
            self.filters += either(possible)
        else:
            self.never = True

    @property
    def has_filters_only(self) -> bool:
        """Whether the draft has conditions on the rows of single aliases, and nothing else."""
        others = (
            self.equal, self.overlaps, self.inequalities, self.not_equal, self.cross, self.across, self.absent, self.subqueries,
            self.outer_filters,
        )  # fmt: skip
        return not any(others)

    @property
    def reads(self) -> list[Output]:
        """What is selected, or what the groups read."""
        return self.outputs if self.groups is None else self.groups.reads

    def having(self, groups: GroupsDraft, one: GroupOutput, op: str, values: list[Physical]) -> None:
        """Add a condition of HAVING, or of a case of OR in it. A condition on a group column becomes a filter of rows, except in a case."""
        ref = groups.filtered(one)
        if ref is None:
            groups.restrict(one, op, values)
        else:
            self.restrict(ref, op, values)


class SubqueryDraft(NamedTuple):
    """EXISTS, LEFT JOIN …: its conditions, including those with aliases outside of it."""

    kind: SubqueryKind
    draft: Draft


def column_output(ref: ColumnRef, name: str | None = None) -> Output:
    return Output(name or ref.column, "column", ref, ())


def value_output(value: RowValue, name: str) -> Output:
    return column_output(value, name) if isinstance(value, ColumnRef) else Output(name, "term", None, (), value)


def computed_outputs(function: str, intervals: tuple[IntervalRef, ...], name: str | None) -> list[Output]:
    """Return the columns of `intersection(...)`, `duration(...)`, `gaps(...)` or `coverage(...)`."""
    name = name or function
    if function == "duration":
        return [Output(name, "duration", None, intervals)]
    return [Output(f"{name}_{side}", f"{function}_{side}", None, intervals) for side in ("start", "end")]


def check_size(drafts: Sequence[Draft], limits: Limits) -> None:
    """Raise Problem `unsupported-query` for a definition, of one SELECT or several, that exceeds the limits."""
    joins = [one for draft in drafts for one in (draft, *draft.absent, *(subquery.draft for subquery in draft.subqueries))]
    conditions = sum(
        len(one.equal) + len(one.overlaps) + len(one.inequalities) + len(one.not_equal) + len(one.cross) + len(one.across)
        + sum(each.size for each in (*one.filters, *one.outer_filters, *(one.groups.having if one.groups else ()))) for one in joins
    )  # fmt: skip
    for what, found, most in (
        ("aliases", max(len(one.scope.aliases) for one in joins), limits.aliases),
        ("conditions", conditions + sum(len(draft.absent) + len(draft.subqueries) for draft in drafts), limits.conditions),
        ("columns", max(len(draft.groups.outputs if draft.groups else draft.outputs) for draft in drafts), limits.columns),
    ):
        if found > most:
            raise too_many(found, what, most)


def too_many(found: int, what: str, most: int) -> Problem:
    return unsupported(f"a view with {found} {what}", f"at most {most} are allowed (--max-{what}); split it into several views")


def assemble(draft: Draft, options: Options, shown: Sequence[str] = ()) -> Query:
    """Check and classify the conditions. shown: further aliases in its rows. Raises `unsupported-query` for unsupported ones."""
    scope = draft.scope
    if len(scope.aliases) > MAX_ALIASES:
        raise unsupported(f"a join of {len(scope.aliases)} relations", f"a view joins at most {MAX_ALIASES}")
    overlaps, filters, left = _match(draft)
    with draft.judging():
        left = list(_bounded(draft, left))
    less, at_most = ([(one.low, one.high) for one in left if one.plus is None and one.strict == strict] for strict in (True, False))
    shifted = [one.comparison for one in left if one.plus is not None]
    equal = [_oriented(scope, pair) for pair in draft.equal]
    not_equal = {_oriented(scope, pair) for pair in draft.not_equal}
    not_equal = {(x, y) for x, y in not_equal if (x, y) not in less and (y, x) not in less}
    oriented = sorted({_oriented(scope, pair) for pair in overlaps}, reverse=True)
    overlaps = sorted({_met(scope, pair): pair for pair in oriented}.values())
    compared = [*less, *at_most, *not_equal, *((one.left, one.right) for one in shifted)]
    points = [] if draft.as_of is None else [(draft.as_of.of, draft.as_of.point)]
    with draft.judging():
        cross = _products(draft, [*equal, *less, *at_most, *points, *((one.left, one.right) for one in shifted)], overlaps)
        check_outputs(draft, scope, overlaps)
        absent = _absent(draft, {*scope.aliases, *shown})
    met = [ref for pair in overlaps for one in pair if (ref := _point(scope, one)) is not None]
    more = [Filter(ref, "not_null", None) for ref in (*chain(*compared), *met) if scope.describe(ref).nullable]
    kept = {*draft.filters, *filters, *more}
    return Query(
        aliases=tuple(scope.aliases.items()),
        equal=tuple(sorted(set(equal))),
        overlaps=tuple(overlaps),
        less=tuple(sorted(set(less))),
        at_most=tuple(sorted(set(at_most))),
        not_equal=tuple(sorted(not_equal)),
        shifted=tuple(sorted(set(shifted))),
        cross=cross,
        filters=ordered(kept),
        outputs=tuple(draft.reads),
        retain=options.retain,
        algorithm=options.algorithm,
        guarantee=options.guarantee,
        never=draft.never,
        absent=absent,
        groups=None if draft.groups is None else draft.groups.finish(options.groups),
        latest=draft.latest,
        as_of=draft.as_of,
        across=tuple(sorted({Across(one) for one in draft.across}, key=str)),
        named=tuple(sorted({name for one in (draft, *draft.absent) for name in one.scope.aliases.values()})),
        computed=scope.computed,
    )


def _absent(draft: Draft, taken: set[str]) -> tuple[AntiJoin, ...]:
    """Return the NOT EXISTS groups that can have rows, without duplicates, in an order that does not depend on the text, with aliases that
    occur nowhere else in the query. taken: those that do."""
    found = dict[_Group, list[str]]()  # the aliases of each, by position
    with draft.judging():
        for group in draft.absent:
            _check_group(group)
    for group in draft.absent:
        if not group.never:
            own = sorted(group.scope.aliases, key=group.scope.aliases.__getitem__)
            found.setdefault(_canonical(group, own), own)
    named = list[AntiJoin]()
    for one, own in sorted(found.items(), key=repr):
        names = list[str]()
        for alias in own:
            names.append(unused(alias, taken))
        pairs = [(outer, inner._replace(alias=names[int(inner.alias)])) for outer, inner in one.outer]
        pairs += [(x._replace(alias=names[int(x.alias)]), y._replace(alias=names[int(y.alias)])) for x, y in one.inner]
        filters = ordered(f.of(names[int(f.alias)]) for f in one.filters)
        named.append(AntiJoin(tuple(zip(names, one.relations, strict=True)), tuple(sorted(pairs)), filters))
    return tuple(named)


def unused(alias: str, taken: set[str]) -> str:
    """Return an alias similar to this one that is not taken yet, and add it to `taken`."""
    name = next(name for name in chain([alias], (f"{alias}_{i}" for i in count(2))) if name not in taken)
    taken.add(name)
    return name


class _Group(NamedTuple):
    """A NOT EXISTS group whose aliases are positions; its equalities with the outside, and those within."""

    relations: tuple[str, ...]
    outer: tuple[tuple[ColumnRef, ColumnRef], ...]
    inner: tuple[tuple[ColumnRef, ColumnRef], ...]
    filters: tuple[Condition, ...]


def _canonical(group: Draft, own: Sequence[str]) -> _Group:
    positions = {alias: str(position) for position, alias in enumerate(own)}
    outer, inner = set[tuple[ColumnRef, ColumnRef]](), set[tuple[ColumnRef, ColumnRef]]()
    for x, y in group.equal:
        if x.alias in positions and y.alias in positions:
            x, y = x._replace(alias=positions[x.alias]), y._replace(alias=positions[y.alias])
            inner.add((x, y) if int(x.alias) < int(y.alias) else (y, x))
        else:
            x, y = (x, y) if y.alias in positions else (y, x)
            outer.add((x, y._replace(alias=positions[y.alias])))
    filters = ordered(one.of(positions[one.alias]) for one in group.filters)
    return _Group(tuple(group.scope.aliases[alias] for alias in own), tuple(sorted(outer)), tuple(sorted(inner)), filters)


def _check_group(group: Draft) -> None:
    """Reject conditions that a NOT EXISTS group may not have."""
    own = group.scope.aliases
    for x, y in group.equal:
        with group.noting((x, y)):
            if x.alias not in own and y.alias not in own:
                instead = f"a condition in it must refer to {' or '.join(own)}; move this one to the outer WHERE"
                raise unsupported(f"{x} = {y} in NOT EXISTS", instead)
    for one in group.filters:
        with group.noting(one):
            if one.alias not in own:
                instead = f"filter {' or '.join(own)} there; for a condition on {one.alias} alone write a UNION of two SELECTs"
                raise unsupported(f"the filter on {one.columns[0]} in NOT EXISTS", instead)


def _oriented(scope: Scope, pair: tuple[Ref, Ref]) -> tuple[Ref, Ref]:
    """Return the pair in the order of the aliases."""
    aliases = list(scope.aliases)
    return pair if aliases.index(pair[0].alias) < aliases.index(pair[1].alias) else (pair[1], pair[0])


def _point(scope: Scope, ref: IntervalRef) -> ColumnRef | None:
    """Return the column of a point; None for other intervals."""
    declared = scope.declared(ref)
    return ColumnRef(ref.alias, declared.start_column) if declared.start_column == declared.end_column else None


def _match(draft: Draft) -> tuple[list[tuple[IntervalRef, IntervalRef]], list[Filter], list[Inequality]]:
    """Return all overlaps, the filters implied by those written as inequalities, and the remaining inequalities."""
    scope = draft.scope
    overlaps, filters = list(draft.overlaps), []
    left = list(dict.fromkeys(draft.inequalities))
    for p, q in combinations([one for one in draft.inequalities if one.plus is None], 2):
        if p not in left or q not in left or p == q:
            continue
        pair = next((pair for pair, fits in _over_intervals(scope, p, q) if fits), None)
        if pair is not None:
            overlaps.append(pair)
            filters += _not_null(scope, p) + _not_null(scope, q)
            left = [inequality for inequality in left if inequality not in (p, q)]
    return overlaps, filters, left


def _over_intervals(scope: Scope, p: Inequality, q: Inequality) -> Iterator[tuple[tuple[IntervalRef, IntervalRef], bool]]:
    """Yield the pairs of declared intervals whose ends `p` and `q` compare, and whether the strictness is that of their bounds."""
    for x in scope.intervals_over(p.low, q.high):
        for y in scope.intervals_over(q.low, p.high):
            yield (x, y), (p.strict, q.strict) == scope.strictness(x, y)


def _not_null(scope: Scope, inequality: Inequality) -> list[Filter]:
    inputs = ((inequality.low, inequality.low_unbounded), (inequality.high, inequality.high_unbounded))
    return [Filter(ref, "not_null", None) for ref, unbounded in inputs if not unbounded and scope.describe(ref).nullable]


def _bounded(draft: Draft, left: list[Inequality]) -> Iterator[Inequality]:
    """Yield comparisons that are not part of an overlap as ones that take no null as unbounded: limits stand for it."""
    for one in left:
        with draft.noting(one):
            yield _limited(draft.scope, one) if one.low_unbounded or one.high_unbounded else one


def _limited(scope: Scope, one: Inequality) -> Inequality:
    """Return a comparison that takes null as unbounded as one that does not."""
    for ref in (one.low, one.high):
        scope.require_comparable(ref)
    ends = scope.term_of(one.low), scope.term_of(one.high)
    op, low, high = limited("<" if one.strict else "<=", *ends, (one.low_unbounded, one.high_unbounded))
    return Inequality(scope.compute(low), scope.compute(high), op == "<")


def _products(
    draft: Draft, pairs: list[tuple[ColumnRef, ColumnRef]], overlaps: list[tuple[IntervalRef, IntervalRef]]
) -> tuple[tuple[str, str], ...]:
    """Return the requested products that no condition makes unnecessary. Rejects a product that was not requested."""
    aliases = list(draft.scope.aliases)
    component = {alias: alias for alias in aliases}

    def join(x: str, y: str) -> bool:
        old, new = component[y], component[x]
        component.update({alias: new for alias in aliases if component[alias] == old})
        return old != new

    for left, right in pairs:
        join(left.alias, right.alias)
    for x, y in overlaps:
        join(x.alias, y.alias)
    cross = [(x, y) if aliases.index(x) < aliases.index(y) else (y, x) for x, y in draft.cross]
    needed = tuple(pair for pair in sorted(set(cross)) if join(*pair))
    one = aliases[0]
    for other in aliases:
        with draft.noting(other):
            if join(one, other):
                raise unsupported(
                    f"a join without a condition between {one} and {other}",
                    f"add one, such as {one}.column = {other}.column or overlaps({one}.interval, {other}.interval) "
                    "(<> alone is not sufficient), "
                    f'or request the product: CROSS JOIN in SQL, {{"cross": ["{one}", "{other}"]}} in JSON',
                )
    return needed


def _met(scope: Scope, pair: tuple[IntervalRef, IntervalRef]) -> frozenset[tuple[str, str, str, str]]:
    """Return the meaning of an overlap regardless of interval names: two intervals may be declared over the same columns."""
    declared = [(ref.alias, scope.declared(ref)) for ref in pair]
    return frozenset((alias, interval.start_column, interval.end_column, interval.bounds) for alias, interval in declared)


def check_outputs(draft: Draft, scope: Scope, overlaps: list[tuple[IntervalRef, IntervalRef]]) -> None:
    """Reject outputs of a draft that are over intervals which the view does not join. `scope`: of all aliases."""
    met = {_met(scope, pair) for pair in overlaps}
    for output in draft.reads:
        for x, y in combinations(dict.fromkeys(output.intervals), 2) if output.kind != "column" else ():
            with draft.noting(output):
                ends = scope.endpoint_type(x), scope.endpoint_type(y)
                if ends[0] != ends[1]:
                    differ = f"their endpoints' types differ, {ends[0]} and {ends[1]}: use the same type for both"
                    raise unsupported(f"the common interval of {x} and {y}", differ)
                if _met(scope, (x, y)) not in met:
                    raise unsupported(f"the common interval of {x} and {y}", f"the view does not join on it: add overlaps({x}, {y})")


def check_output_name(name: str) -> str:
    """Check a name given with AS, by the rules for columns of relations. Problem `bad-definition`."""
    if not 1 <= len(name) <= MAX_NAME or any(ord(c) < 32 or ord(c) == 127 or c in '".' for c in name):
        limits = f"1 to {MAX_NAME} characters, without dots, double quotes and control characters"
        raise Problem("bad-definition", f"{name!r} is not a valid column name: use {limits}")
    if name == OP_COLUMN:
        raise Problem("bad-definition", f"{OP_COLUMN} is not a valid column name: it is reserved for the operation of a change")
    return name

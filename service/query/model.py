"""A view's definition with names resolved and values typed: made by `views.parse`, used everywhere else.

Plain immutable data. Two definitions define the same view iff their `Query` values are equal: the order of conditions, the spelling of an
overlap, and SQL or JSON make no difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

from livejoin.wire.schema import RelationDefinition
from service.query.computed import ComputedColumn, with_computed
from service.query.conditions import ColumnRef, Condition, IntervalRef, RowValue, Term, columns_of, refs_of

Guarantee = Literal["best-effort", "delay", "strict"]
GUARANTEES: tuple[Guarantee, ...] = get_args(Guarantee)
"""Each implies the previous ones."""

SubqueryKind = Literal["exists", "absent", "optional", "full", "gaps", "coverage"]

Algorithm = Literal[
    "interval-tree", "ij-heap", "box-tree", "view-tree", "join-tree", "qdag", "nested-loop",
    "tree-tracker", "minesweeper", "intersect", "bow-tie", "elimination", "lqdag", "match-tree", "event-tree",
]  # fmt: skip
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
"""The algorithms that a definition may name; the planner knows what each supports."""

MAX_ALIASES = 8
MOST_LATEST = 10_000  # rows of each key in a view of the latest ones: a change reads as many
MOST_GROUPS = 10_000_000  # the default of a view
MAX_SQL = 65_536  # the default of `Limits.sql`

RETAIN = (1_000_000, 268_435_456)
"""The default retention of a view's feed: rows, bytes."""


class Output(NamedTuple):
    """A column of the view's rows: `kind` is column, intersection_start, intersection_end, duration, term, or, for `Stretches`, gaps_start,
    gaps_end, coverage_start or coverage_end."""

    name: str
    kind: str
    column: ColumnRef | None
    intervals: tuple[IntervalRef, ...]
    term: Term | None = None

    @property
    def refs(self) -> tuple[ColumnRef | IntervalRef, ...]:
        """What the output reads."""
        if self.term is not None:
            return tuple(columns_of(self.term))
        return (self.column,) if self.column is not None else self.intervals


STRETCHES = ("gaps", "coverage")
OF_STRETCH = "(stretch)"


def is_stretch(output: Output) -> bool:
    """Return whether the output is an end of a stretch of a row's interval that its partners leave or cover."""
    return output.kind.partition("_")[0] in STRETCHES


Number = int | float
"""In the unit of a column, a float for floats alone."""


class Comparison(NamedTuple):
    """`left + plus op right + right_plus` between two aliases, op `<`, `<=` or `<>`; null matches nothing. Sums are exact, of any size; of
    floats they are rounded, and only floats have one on the right."""

    left: ColumnRef
    op: str
    right: ColumnRef
    plus: Number = 0
    right_plus: Number = 0

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        return self.left, self.right

    def __str__(self) -> str:
        exact = self.plus < 0 and isinstance(self.plus, int)
        plus, right_plus = (0, -self.plus) if exact else (self.plus, self.right_plus)
        return f"{_sum(self.left, plus)} {self.op} {_sum(self.right, right_plus)}"


def _sum(ref: ColumnRef, plus: Number) -> str:
    return f"{ref} {'-' if plus < 0 else '+'} {abs(plus)}" if plus else str(ref)


class Across(NamedTuple):
    """A condition that is an expression over several aliases: it is met where the expression is true. Always checked row by row."""

    term: Term

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        return tuple(columns_of(self.term))

    def __str__(self) -> str:
        return str(self.term)


Residual = Comparison | Across
"""What may be checked row by row."""


class Span(NamedTuple):
    """The interval of an alias in an interval condition: from one of its columns plus a constant to another plus a constant. Without a
    column, that side is unbounded. `declared`: it is an interval of the relation, so none is empty, and a null is unbounded, except that of
    a point; otherwise it may be empty, and null matches nothing."""

    alias: str
    start: str | None
    end: str | None
    start_open: bool = False
    end_open: bool = False
    start_plus: Number = 0
    end_plus: Number = 0
    declared: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        if self.start is not None and self.end is not None and self.start != self.end:
            return self.start, self.end
        name = self.start or self.end
        return () if name is None else (name,)


class Meet(NamedTuple):
    """The condition that two spans share a point; `words` is the condition as written, `comparisons` those that it consists of."""

    left: Span
    right: Span
    words: str
    comparisons: tuple[Comparison, ...] = ()

    def of(self, alias: str) -> Span:
        return self.left if self.left.alias == alias else self.right


class AntiJoin(NamedTuple):
    """A NOT EXISTS group, or the right side of an EXCEPT: it excludes a row if matching rows of these aliases, one of each, exist.

    aliases  (alias, relation); none occurs elsewhere in the query
    equal    columns of these aliases with each other's, or with the query's; oriented and sorted as there
    filters  on these aliases
    columns  what a right side selects: must equal the row, where null equals null; () of a NOT EXISTS group
    """

    aliases: tuple[tuple[str, str], ...]
    equal: tuple[tuple[ColumnRef, ColumnRef], ...]
    filters: tuple[Condition, ...]
    columns: tuple[ColumnRef, ...] = ()


class Branch(NamedTuple):
    """A SELECT of a view with UNION or EXCEPT.

    aliases  the number of aliases of the query that belong to it: they are contiguous
    columns  what it selects, one column for each of the view
    absent   the indices of the groups that exclude its rows
    """

    aliases: int
    columns: tuple[ColumnRef, ...]
    absent: tuple[int, ...]


AggregateFunction = Literal[
    "count", "count_distinct", "sum", "avg", "min", "max", "var_samp", "var_pop", "stddev_samp", "stddev_pop"
]  # fmt: skip
VARIANCES = ("var_samp", "var_pop", "stddev_samp", "stddev_pop")
LISTS = ("string_agg", "array_agg")
MOST_LISTED = 1 << 16  # bytes of a list of values, and values in it
AGGREGATE_FUNCTIONS: tuple[AggregateFunction, ...] = get_args(AggregateFunction)
TruncUnit = Literal["hour", "day", "week", "month", "quarter", "year"]
PAIRS = ("equal", "overlaps", "less", "at_most", "not_equal", "shifted")  # the fields of `Query` that compare two aliases
GROUP, AGGREGATE, COMPUTED, STRETCH_END = "group", "aggregate", "computed", "stretch"


class GroupColumn(NamedTuple):
    """A column by which rows are grouped: output `of`, truncated to a unit of time if there is one."""

    name: str
    of: int
    trunc: str | None


class SortKey(NamedTuple):
    """What values are ordered by: output `of`."""

    of: int
    descending: bool
    nulls_first: bool


class Listing(NamedTuple):
    """How a function of `LISTS` lists values: in which order (without `distinct`, the keys of the rows come last), separated by what, and
    the position of the output that must be true of a row (None: all rows). of_json: the values are JSON."""

    order: tuple[SortKey, ...]
    separator: str
    distinct: bool
    where: int | None
    of_json: bool


class Aggregate(NamedTuple):
    """A function over the rows of a group: over the values of output `of` (None: the rows themselves). `type`: of the result, as in
    relations."""

    function: str
    of: int | None
    type: str
    listing: Listing | None = None


class GroupOutput(NamedTuple):
    """A column of the view's rows: GROUP or AGGREGATE, and its position; COMPUTED, by `term` over columns as in `Grouping.having`; or
    STRETCH_END, and 0 for the start, 1 for the end."""

    name: str
    kind: str
    position: int
    term: Term | None = None


class Grouping(NamedTuple):
    """Groups the rows of a join: the view has one row per group. The query's outputs are then what this reads from the join.

    columns     by which rows are grouped; without any there is always one group
    aggregates  those of the rows, then those that only `having` reads
    outputs     the columns of the view's rows
    having      conditions on a group: their columns are (GROUP or AGGREGATE, the position)
    most        the maximum number of groups; with more, the view fails
    """

    columns: tuple[GroupColumn, ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[GroupOutput, ...]
    having: tuple[Condition, ...]
    most: int


class Stretches(NamedTuple):
    """The view has one row for each stretch of a row's interval that partners leave (gaps), or cover (coverage). `name`: of the stretch;
    the partners are a subquery. With groups: for each stretch that the intervals of a group's rows cover; then the interval overlaps itself
    in the query, and there is no subquery. Of these rows, the view has those that meet `conditions`, on the row and the columns start and
    end of the alias OF_STRETCH."""

    function: str
    name: str
    of: IntervalRef
    conditions: tuple[Condition, ...] = ()


class Ordering(NamedTuple):
    """An entry of ORDER BY."""

    value: RowValue
    descending: bool = False
    nulls_first: bool = False


class Latest(NamedTuple):
    """The first `rows` rows, in an order, of the rows of a relation with equal `by`, nulls included; ties go to the greater primary key."""

    by: tuple[RowValue, ...]
    order: tuple[Ordering, ...]
    rows: int

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        """What is read."""
        return tuple(ref for value in (*self.by, *(key.value for key in self.order)) for ref in refs_of(value))


class AsOf(NamedTuple):
    """`of op point`: for each row of the point's alias, the next row of the other (the greatest primary key, if equal) among those with
    equal join columns. Null matches nothing. `optional`: a row without one is kept, with nulls. Of the resulting rows, the view has those
    that meet `conditions`, which read both aliases, or are on the optional one and perhaps true of nulls."""

    of: ColumnRef
    op: str
    point: ColumnRef
    optional: bool
    conditions: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        return self.of, self.point


@dataclass(frozen=True)
class Subquery:
    """A subquery of a view's join (EXISTS, NOT EXISTS, LEFT and FULL JOIN), attached to one of its aliases, and its effect on the rows.

    kind  exists: keeps rows with a partner. absent: those without one. optional: rows are joined with their partners, or with nulls.
          full: so are the subquery's own rows. gaps, coverage: partners leave or cover stretches of the row (`Stretches`)
    join  the inner join of that alias, the first one, with the subquery's own; it selects nothing
    """

    kind: SubqueryKind
    join: Query

    @property
    def on(self) -> str:
        """The alias that the subquery is attached to."""
        return self.join.aliases[0][0]

    @property
    def own(self) -> tuple[tuple[str, str], ...]:
        """(alias, relation)"""
        return self.join.aliases[1:]

    @property
    def is_shown(self) -> bool:
        """Whether the subquery's own aliases appear in the view's rows."""
        return self.kind in ("optional", "full")

    @property
    def filters(self) -> tuple[Condition, ...]:
        """The filters on the subquery's own aliases."""
        return tuple(one for one in self.join.filters if one.alias != self.on)


@dataclass(frozen=True)
class Query:
    """The definition of a view. Hashable; equal queries are the same view.

    aliases     (alias, relation) in the order given; those in the rows, including those of LEFT and FULL JOIN
    equal       pairs, each in the order of the aliases; sorted
    overlaps    likewise
    less        `<` as (smaller, larger): in the order of the comparison, not of the aliases
    at_most     `<=` likewise
    not_equal   in the order of the aliases
    shifted     `<` and `<=` between columns of which at least one is in a sum with a constant
    cross       pairs of aliases whose product is requested
    retain      (rows, bytes) of the feed, None if the view cannot be followed
    never       some condition is never true (x = NULL): the view is always empty
    absent      the NOT EXISTS groups and the right sides of EXCEPT, whose aliases are not among the others
    branches    with UNION or EXCEPT, the SELECTs except right sides: a row is one that some of them select, without duplicates
    united      with UNION ALL, the SELECTs, over aliases of their own: a row is one of any of them. The conditions are theirs, and the
                outputs are those of all of them
    subqueries       EXISTS, LEFT and FULL JOIN, and NOT EXISTS with conditions other than equality; one may be attached to an earlier
                optional one. The conditions and filters of a subquery are its own: those above are on the other aliases
    groups      the grouping of the rows
    latest      the choice among the rows
    as_of       the choice of one alias's rows by an ASOF JOIN; filters apply to the rows that are found
    distinct    the rows are groups of one row each, identified by all of their columns
    outer_filters  conditions on aliases that a row may lack: they exclude only rows that have the alias, after the outer join
    stretches   the stretches of the rows by their partners, the only subquery
    across      conditions over several aliases of an inner join that are neither an equality nor a comparison of one alias with another.
                A query with subqueries or absent groups has none, nor have these
    named       all relations that the definition names, even those that cannot matter: it is read again at each start
    computed    columns that the conditions between aliases compare, which are no columns of the relations
    """

    aliases: tuple[tuple[str, str], ...]
    equal: tuple[tuple[ColumnRef, ColumnRef], ...]
    overlaps: tuple[tuple[IntervalRef, IntervalRef], ...]
    less: tuple[tuple[ColumnRef, ColumnRef], ...]
    at_most: tuple[tuple[ColumnRef, ColumnRef], ...]
    not_equal: tuple[tuple[ColumnRef, ColumnRef], ...]
    shifted: tuple[Comparison, ...]
    cross: tuple[tuple[str, str], ...]
    filters: tuple[Condition, ...]
    outputs: tuple[Output, ...]
    retain: tuple[int, int] | None
    algorithm: str
    guarantee: str
    never: bool
    absent: tuple[AntiJoin, ...] = ()
    branches: tuple[Branch, ...] = ()
    subqueries: tuple[Subquery, ...] = ()
    groups: Grouping | None = None
    latest: Latest | None = None
    as_of: AsOf | None = None
    distinct: bool = False
    stretches: Stretches | None = None
    named: tuple[str, ...] = ()
    computed: tuple[ComputedColumn, ...] = ()
    outer_filters: tuple[Condition, ...] = ()
    across: tuple[Across, ...] = ()
    united: tuple[Query, ...] = ()

    @property
    def values(self) -> tuple[ColumnRef, ...]:
        """The columns whose values form the rows of a view with UNION or EXCEPT."""
        selects = [one.columns for one in self.branches] + [one.columns for one in self.absent]
        return tuple(ref for columns in selects for ref in columns)

    @property
    def choosing(self) -> tuple[ColumnRef, ...]:
        """The columns by which rows are chosen among others, in an order, and those of conditions on the rows of an as-of join or on
        stretches."""
        conditions = [one for some in (self.as_of, self.stretches) if some is not None for one in some.conditions]
        of_conditions = [ref for one in conditions for ref in one.columns]
        return (*(ref for one in (self.latest, self.as_of) if one is not None for ref in one.columns), *of_conditions)

    def of_branch(self, index: int) -> Query:
        """Return a branch as a view of its own, ignoring EXCEPT."""
        first, branch = sum(one.aliases for one in self.branches[:index]), self.branches[index]
        aliases = self.aliases[first : first + branch.aliases]
        names = {alias for alias, _ in aliases}
        groups = tuple(self.absent[at] for at in branch.absent if not self.absent[at].columns)
        equal = tuple(pair for pair in self.equal if pair[0].alias in names)
        filters = tuple(one for one in self.filters if one.alias in names)
        return self._of(aliases, equal, filters, branch.columns, groups)

    def of_right_side(self, index: int) -> Query:
        """Return a right side of EXCEPT as a view of its own, by its index among the groups."""
        group = self.absent[index]
        return self._of(group.aliases, group.equal, group.filters, group.columns, ())

    def _of(
        self, aliases: tuple[tuple[str, str], ...], equal: tuple[tuple[ColumnRef, ColumnRef], ...], filters: tuple[Condition, ...],
        columns: tuple[ColumnRef, ...], absent: tuple[AntiJoin, ...],
    ) -> Query:  # fmt: skip
        outputs = tuple(one._replace(column=ref) for one, ref in zip(self.outputs, columns, strict=True))
        return replace(self, aliases=aliases, equal=equal, filters=filters, outputs=outputs, absent=absent, branches=())

    @property
    def optional(self) -> frozenset[str]:
        """The aliases that a row may lack."""
        if self.united:
            return frozenset(alias for alias, _ in self.aliases)
        found = {alias for subquery in self.subqueries if subquery.is_shown for alias, _ in subquery.own}
        found |= {self.as_of.of.alias} if self.as_of is not None and self.as_of.optional else set()
        return frozenset(found | {subquery.on for subquery in self.subqueries if subquery.kind == "full"})

    @property
    def core(self) -> Query:
        """The inner join alone, without the subqueries."""
        shown = {alias for subquery in self.subqueries if subquery.is_shown for alias, _ in subquery.own}
        aliases = tuple(one for one in self.aliases if one[0] not in shown)
        return replace(self, aliases=aliases, subqueries=(), absent=(), outer_filters=())

    @property
    def whole(self) -> Query:
        """What the view reads: the aliases of groups and subqueries after its own, and their conditions among its own."""
        if self.united:
            wholes = [one.whole for one in self.united]
            more = tuple(alias for one, own in zip(wholes, self.united, strict=True) for alias in one.aliases[len(own.aliases) :])
            kinds = ("equal", "overlaps", "less", "at_most", "not_equal", "shifted", "filters", "outer_filters", "across")
            conditions: dict[str, Any] = {kind: tuple(chain(*(getattr(one, kind) for one in wholes))) for kind in kinds}
            return replace(self, aliases=self.aliases + more, **conditions)
        joins = [subquery.join for subquery in self.subqueries]
        return replace(
            self,
            aliases=self.aliases
            + tuple(alias for group in self.absent for alias in group.aliases)
            + tuple(alias for subquery in self.subqueries if not subquery.is_shown for alias in subquery.own),
            equal=self.equal
            + tuple(pair for group in self.absent for pair in group.equal)
            + tuple(pair for join in joins for pair in join.equal),
            overlaps=self.overlaps + tuple(pair for join in joins for pair in join.overlaps),
            less=self.less + tuple(pair for join in joins for pair in join.less),
            at_most=self.at_most + tuple(pair for join in joins for pair in join.at_most),
            not_equal=self.not_equal + tuple(pair for join in joins for pair in join.not_equal),
            shifted=self.shifted + tuple(one for join in joins for one in join.shifted),
            filters=self.filters
            + tuple(one for group in self.absent for one in group.filters)
            + tuple(one for subquery in self.subqueries if subquery.kind != "full" for one in subquery.filters),  # all rows of those matter
            subqueries=(),
        )

    def defined(self, relations: Mapping[str, RelationDefinition]) -> Mapping[str, RelationDefinition]:
        """Return the definitions of its relations, with the computed columns, if there are any."""
        if not self.computed:
            return relations
        return {name: with_computed(relations[name], self.computed) for _, name in self.whole.aliases}

    @property
    def compared(self) -> tuple[Residual, ...]:
        """The conditions between the aliases besides equalities and overlaps."""
        return (*self.comparisons, *self.across)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """`<`, `<=` and `<>` between the aliases."""
        lists = (("<", self.less), ("<=", self.at_most), ("<>", self.not_equal))
        return (*(Comparison(left, op, right) for op, pairs in lists for left, right in pairs), *self.shifted)

"""The form of a view's definition in JSON: fields, types, bounds and choices, each declared once. `definition.py` reads validated
definitions; the OpenAPI document shows the schemas of the same models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Tag, model_validator

from livejoin.wire.errors import cut
from livejoin.wire.schema import NAME
from service.query.form_checks import COMPARISON, KINDS, Form, as_json, bad, by_field, checked, one_of
from service.query.model import (
    AGGREGATE_FUNCTIONS,
    MAX_ALIASES,
    MAX_SQL,
    MOST_GROUPS,
    MOST_LATEST,
    RETAIN,
    Algorithm,
    Guarantee,
)
from service.query.terms import Unit

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "is_null", "not_null", "like"]


Pair = Annotated[list[str], Field(min_length=2, max_length=2)]


class Sum(Form):
    """A column plus a constant."""

    what = "a sum"
    column: str = Field(description="`alias.column`")
    plus: Any = Field(  # validated by the column's type
        json_schema_extra={"type": ["number", "string"]},
        description="microseconds or an ISO 8601 duration, perhaps with a minus sign, for timestamps, days for dates, a number otherwise",
    )


Sums = Annotated[
    list[
        Annotated[
            Annotated[str, Tag("column")] | Annotated[Sum, Tag("plus")],
            one_of(
                lambda data: "column" if isinstance(data, str) else by_field("plus")(data),
                'a comparison has columns, as "alias.column", and sums, as {"column": "alias.column", "plus": 5}',
            ),
        ]
    ],
    Field(min_length=2, max_length=2),
]


class Equal(Form):
    """`[x, y]`: x = y. Null is not equal to anything."""

    what = 'the entry "equal" of join'
    equal: Pair = Field(description="two columns, as `alias.column`")


class Overlaps(Form):
    """`[x, y]`: the intervals x and y overlap. A null end is unbounded."""

    what = 'the entry "overlaps" of join'
    overlaps: Pair = Field(description="two intervals, as `alias.interval`")


class AtMost(Form):
    """`[x, y]`: x <= y."""

    what = 'the entry "at_most" of join'
    at_most: Sums = Field(description="two columns, as `alias.column`, or sums: the first is at most the second")


class Less(Form):
    """`[x, y]`: x < y."""

    what = 'the entry "less" of join'
    less: Sums = Field(description="two columns, as `alias.column`, or sums: the first is less than the second")


class NotEqual(Form):
    """`[x, y]`: x != y, and neither is null."""

    what = 'the entry "not_equal" of join'
    not_equal: Pair = Field(description="two columns, as `alias.column`")


class Within(Form):
    """The difference of two columns is at most the distance: in the unit of the columns (days, microseconds), or an ISO 8601 duration."""

    what = 'the entry "within" of join'
    within: Pair = Field(description="two columns, as `alias.column`")
    distance: Any = Field(  # validated by the columns' type
        json_schema_extra={"type": ["number", "string"]},
        description="the largest difference: microseconds or an ISO 8601 duration for timestamps, days for dates, a number otherwise",
    )


class Cross(Form):
    """The product of two aliases, which is refused unless it is requested in this way."""

    what = 'the entry "cross" of join'
    cross: Pair = Field(description="two aliases")


class IsAsOf(Form):
    """`[of, op, point]`, two columns and a comparison: each row of the alias of `point` is joined with the one row of the alias of `of`
    that meets the comparison and whose `of` is nearest to `point`."""

    what = 'the entry "as_of" of join'
    as_of: list[str] = Field(min_length=3, max_length=3, description="a column, `<`, `<=`, `>` or `>=`, a column of the other alias")


Condition = Annotated[
    Annotated[Equal, Tag("equal")] | Annotated[Overlaps, Tag("overlaps")] | Annotated[AtMost, Tag("at_most")]
    | Annotated[Less, Tag("less")] | Annotated[NotEqual, Tag("not_equal")] | Annotated[Within, Tag("within")]
    | Annotated[Cross, Tag("cross")] | Annotated[IsAsOf, Tag("as_of")],
    one_of(by_field(*KINDS), f"an entry of join has one of {', '.join(KINDS)}"),
]


class Where(Form):
    """A filter. `is_null` and `not_null` take no value; all other operators require one, which must be valid for the column's type."""

    what = "an entry of where"
    column: str = Field(description="`alias.column`; in `having` the name of a column of the view, in a delete of one of the relation")
    op: Operator = Field(description="the operator; `in` takes a list, `like` a pattern in which `%` is any text and `_` any character")
    value: Any = Field(None, description="what to compare with, in the form that the type of the column has in rows")


class Or(Form):
    """Holds if at least one of the entries does. In a view, all of them must refer to the same alias."""

    what = 'the entry "or" of where'
    cases: list[Entry] = Field(alias="or", min_length=1, description="the entries, at least one")


class And(Form):
    """Holds if all entries do."""

    what = 'the entry "and" of where'
    cases: list[Entry] = Field(alias="and", min_length=1, description="the entries, at least one")


class Not(Form):
    """Holds if the entry is false. If the entry is unknown because of a null, so is its negation."""

    what = 'the entry "not" of where'
    entry: Entry = Field(alias="not", description="the entry")


class Holding(Form):
    """Holds where a condition in SQL over the columns of one alias is true."""

    what = 'the entry "expression" of where'
    expression: str = Field(min_length=1, max_length=MAX_SQL, description="a condition in SQL, such as `b.price * b.nights > 100`")


def _entry(data: Any) -> str | None:
    if isinstance(data, dict) and not {"expression", "or", "and", "not"} & data.keys():
        return COMPARISON
    return by_field("column", "expression", "or", "and", "not")(data)


Entry = Annotated[
    Annotated[Where, Tag(COMPARISON)] | Annotated[Holding, Tag("expression")]
    | Annotated[Or, Tag("or")] | Annotated[And, Tag("and")] | Annotated[Not, Tag("not")],
    one_of(_entry, 'an entry of where has "column", "expression", "or", "and", or "not"'),
]


_INTERVALS: Any = Field(min_length=1, description="the intervals, as `alias.interval`; if there are several, they overlap pairwise")
_BEGINNING = "the beginning of the names of the columns, `<as>_start` and `<as>_end`"
_COLUMN = "the name of the column"
_NAME = f"{_COLUMN}; if absent, that of a column, or of the function that is called, else `column`; repeated names are numbered"


class Intersection(Form):
    """The intersection of intervals that all overlap, as two columns, `<as>_start` and `<as>_end`; null where it is unbounded."""

    what = 'the entry "intersection" of select'
    intersection: list[str] = _INTERVALS
    name: str | None = Field(None, alias="as", description=f"{_BEGINNING}; `intersection` if absent")


class Duration(Form):
    """The length of the intersection of intervals, in the unit of their type (days, microseconds); null if it is unbounded."""

    what = 'the entry "duration" of select'
    duration: list[str] = _INTERVALS
    name: str | None = Field(None, alias="as", description=f"{_COLUMN}; `duration` if absent")


class Gaps(Form):
    """The parts of the first interval that the second one does not cover. The relation of the second interval must be in "left"."""

    what = 'the entry "gaps" of select'
    gaps: Pair = Field(description="two intervals, as `alias.interval`")
    name: str | None = Field(None, alias="as", description=f"{_BEGINNING}; `gaps` if absent")


class Coverage(Form):
    """The parts of the first interval that the second one covers. With groups, there is only one interval: the result is what the rows of a
    group cover with it."""

    what = 'the entry "coverage" of select'
    coverage: list[str] = Field(min_length=1, max_length=2, description="two intervals, as `alias.interval`; one with groups")
    name: str | None = Field(None, alias="as", description=f"{_BEGINNING}; `coverage` if absent")


class Computed(Form):
    """A SQL expression over the columns of a row."""

    what = 'the entry "expression" of select'
    expression: str = Field(min_length=1, max_length=MAX_SQL, description="SQL over the columns of a row, such as `b.price * b.nights`")
    name: str | None = Field(None, alias="as", description=_NAME)


_COMPUTED = ("intersection", "duration", "expression", "gaps", "coverage")


def _selected(data: Any) -> str | None:
    return "column" if isinstance(data, str) else by_field(*_COMPUTED)(data)


Selected = Annotated[
    Annotated[str, Tag("column")]
    | Annotated[Intersection, Tag("intersection")]
    | Annotated[Duration, Tag("duration")]
    | Annotated[Computed, Tag("expression")]
    | Annotated[Gaps, Tag("gaps")]
    | Annotated[Coverage, Tag("coverage")],
    one_of(_selected, f'an entry of select is "alias.column", "alias.column as name", or has one of {", ".join(_COMPUTED)}'),
]


class Trunc(Form):
    """Groups by a date or timestamp, truncated to the start of this unit, in UTC."""

    what = 'the entry "trunc" of group'
    trunc: Unit = Field(description="the unit; weeks begin on Monday")
    of: str = Field(description="a column of type timestamp or date, as `alias.column`")
    name: str | None = Field(None, alias="as", description=_NAME)


class GroupedBy(Form):
    """Groups by a SQL expression over the columns of a row."""

    what = 'the entry "expression" of group'
    expression: str = Field(min_length=1, max_length=MAX_SQL, description="SQL over the columns of a row, such as `lower(b.guest)`")
    name: str | None = Field(None, alias="as", description=_NAME)


Grouped = Annotated[
    Annotated[str, Tag("column")] | Annotated[Trunc, Tag("trunc")] | Annotated[GroupedBy, Tag("expression")],
    one_of(
        lambda data: "column" if isinstance(data, str) else by_field("trunc", "expression")(data),
        'an entry of group is "alias.column", "alias.column as name", or has "trunc" or "expression"',
    ),
]


class OfDuration(Form):
    """The length of the intersection of intervals, as the argument of an aggregate function."""

    what = 'the entry "duration" of an aggregate'
    duration: list[str] = _INTERVALS


class OfExpression(Form):
    """A SQL expression over the columns of a row, in place of a column."""

    what = 'the entry "expression"'
    expression: str = Field(min_length=1, max_length=MAX_SQL, description="SQL over the columns of a row, such as `b.price * b.nights`")


Of = str | OfDuration | OfExpression


class Aggregated(Form):
    """One aggregate function of a column, an expression, a duration, or (`count` only) "*"; or a SQL expression over aggregates and the
    columns of the groups."""

    what = "an entry of aggregate"
    count: Of | None = Field(None, description="the number of rows (`*`), or of values that are not null")
    count_distinct: Of | None = Field(None, description="the number of different values that are not null")
    sum: Of | None = Field(None, description="the sum of the values; null if there are none, or if it does not fit its type")
    avg: Of | None = Field(None, description="the mean of the values; null if there are none")
    min: Of | None = Field(None, description="the least value; null if there are none")
    max: Of | None = Field(None, description="the greatest value; null if there are none")
    var_samp: Of | None = Field(None, description="the variance of the values as a sample; null if there are less than two")
    var_pop: Of | None = Field(None, description="the variance of the values; null if there are none")
    stddev_samp: Of | None = Field(None, description="the standard deviation of the values as a sample: the root of `var_samp`")
    stddev_pop: Of | None = Field(None, description="the standard deviation of the values: the root of `var_pop`")
    expression: str | None = Field(
        None, min_length=1, max_length=MAX_SQL, description="SQL over aggregates and columns of groups, such as `sum(b.price) / count(*)`"
    )
    filter: list[Entry] = Field([], description="filters of the rows that the function takes, all of which must hold")
    name: str | None = Field(None, alias="as", description=_NAME)

    @model_validator(mode="after")
    def _check_function(self) -> Aggregated:
        of = self.model_fields_set - {"name", "filter"}
        if len(of) != 1 or (self.filter and "expression" in of):
            raise ValueError(
                f"an entry of aggregate has one of {', '.join(AGGREGATE_FUNCTIONS)}, "
                'optionally with "filter", or "expression"; and optionally "as"'
            )
        return self


class LatestRows(Form):
    """Keeps only the first `rows` rows of each combination of values of the columns in `by`. Rows are ordered by the column `order`, nulls
    last, or by what SQL has behind ORDER BY."""

    what = "latest"
    by: list[str | OfExpression] = Field(description="columns, as `alias.column`, or expressions: each combination keeps `rows` rows")
    order: str | OfExpression = Field(description="a column, as `alias.column`, or expressions, such as `r.due DESC NULLS LAST, r.id`")
    descending: bool = Field(False, description="whether the greatest values come first, unless the order says so")
    rows: int = Field(1, gt=0, le=MOST_LATEST, description="how many rows to keep of each combination")


class Retain(Form):
    """The maximum number and size of changes that are kept for the followers of a view."""

    what = "changes"
    retain_rows: int = Field(default=RETAIN[0], gt=0, lt=2**63, description="the most rows of changes to keep; older ones go first")
    retain_bytes: int = Field(default=RETAIN[1], gt=0, lt=2**63, description="the most memory for them, in bytes")


def _kept(data: Any) -> str | None:
    return "none" if data is False else "changes" if isinstance(data, dict) else None


class _Options(Form):
    algorithm: Literal["auto", Algorithm] = Field(
        "auto", description="`auto`: the one with the best guarantee. POST /v1/explain lists those that are correct for the view"
    )
    groups: int = Field(MOST_GROUPS, gt=0, le=2**30, description="the most groups that the view may have before it fails")
    guarantee: Guarantee = Field(
        "best-effort", description="the least: `strict` bounds the time of a change and the delay between rows, `delay` only the latter"
    )
    changes: Annotated[
        Annotated[Literal[False], Tag("none")] | Annotated[Retain, Tag("changes")],
        one_of(_kept, 'must be false, or an object with "retain_rows" and "retain_bytes"'),
    ] = Field(Retain(), description="the most changes to keep for followers; false: none, and the view cannot be followed")


class SqlView(_Options):
    """A view that is defined by a SQL query."""

    what = "a view's definition in SQL"
    # A longer one is rejected as SQL, with its position.
    sql: str = Field(json_schema_extra={"maxLength": MAX_SQL}, description="SQL in PostgreSQL's dialect, with `overlaps(x, y)` and others")


def _alias(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"the alias {as_json(name)} does not match {NAME.pattern}")
    return name


_Name = Annotated[str, AfterValidator(_alias)]
_NAMES: Any = {"propertyNames": {"pattern": f"^{NAME.pattern}$"}}
_FROM: Any = Field(
    alias="from", min_length=1, max_length=MAX_ALIASES, json_schema_extra=_NAMES, description="relations, views and queries, by alias"
)
Filters = Annotated[list[Entry], Field(description="the filters of single aliases, all of which must hold")]


class SubqueryForm(Form):
    """A subquery of a view: relations and conditions. The conditions may refer to aliases of the enclosing view."""

    what = "an entry of exists, not_exists or left, or full,"
    aliases: dict[_Name, _Source] = _FROM
    join: list[Condition] = Field([], description="the conditions between its aliases, and with those outside it; all must hold")
    where: Filters = []


class _Query(Form):
    with_: dict[_Name, Query] = Field(
        {}, alias="with", json_schema_extra=_NAMES, description="queries that this one reads by name; each may read those before it"
    )


class Select(_Query):
    """A join of relations, its filters and its columns, or the groups of its rows."""

    what = "a query"
    aliases: dict[_Name, _Source] = _FROM
    join: list[Condition] = Field([], description="the conditions between aliases, all of which must hold")
    where: Filters = []
    exists: list[SubqueryForm] = Field([], description="subqueries that must have a row that meets their conditions")
    not_exists: list[SubqueryForm] = Field([], description="subqueries that must have no such row")
    left: list[SubqueryForm] = Field([], description="outer subqueries: their columns are null where no row meets their conditions")
    full: SubqueryForm | None = Field(None, description="a relation whose rows are in the view without partner too, with nulls")
    select: list[Selected] = Field(
        default_factory=list, min_length=1, description="`alias.column`, `alias.column as name`, or what is computed. Absent: all columns"
    )
    group: list[Grouped] = Field([], description="`alias.column`, `alias.column as name`, or computed: each combination is a row")
    aggregate: list[Aggregated] = Field([], description="the aggregates of each group; without `group`, those of all rows")
    having: list[Entry] = Field([], description="filters of groups by the columns of the view, all of which must hold")
    distinct: bool = Field(False, description="whether rows that are equal in all columns appear once")
    latest: LatestRows | None = Field(None, description="keep only the latest rows, of a view of one relation; null: all")


class Union(_Query):
    """The distinct rows of all operands."""

    what = 'a query with "union"'
    union: list[Query] = Field(min_length=2, max_length=MAX_ALIASES, description="2 to 8 operands, with equal numbers and types of columns")


class UnionAll(_Query):
    """The rows of all operands side by side."""

    what = 'a query with "union_all"'
    union_all: list[Query] = Field(min_length=2, max_length=64, description="2 to 64 operands, with equal numbers and types of columns")


class Intersect(_Query):
    """The distinct rows that all operands have."""

    what = 'a query with "intersect"'
    intersect: list[Query] = Field(min_length=2, max_length=MAX_ALIASES, description="2 to 8 operands, with equal numbers of columns")


class Except(_Query):
    """The distinct rows of the first operand that the second one does not have."""

    what = 'a query with "except"'
    both: list[Query] = Field(alias="except", min_length=2, max_length=2, description="2 operands, with equal numbers and types of columns")


_QUERIES = ("from", "union", "union_all", "intersect", "except")
_HAS = f"a query has one of {', '.join(_QUERIES)}"


def _read(data: Any) -> str | None:
    return COMPARISON if (kind := by_field(*_QUERIES)(data)) == "from" else kind


def _source(data: Any) -> str | None:
    return "name" if isinstance(data, str) else _read(data)


_Any = (
    Annotated[Select, Tag(COMPARISON)] | Annotated[Union, Tag("union")] | Annotated[UnionAll, Tag("union_all")]
    | Annotated[Intersect, Tag("intersect")] | Annotated[Except, Tag("except")]
)  # fmt: skip
Query = Annotated[_Any, one_of(_read, _HAS)]
_Source = Annotated[Annotated[str, Tag("name")] | _Any, one_of(_source, f"it names a relation or a view, or is a query; {_HAS}")]


class JsonView(Select, _Options):
    """A view that is defined by its relations, conditions and columns, as in `SELECT … FROM … WHERE …`."""

    what = "a view's definition"


class UnionView(Union, _Options):
    """A view that has the distinct rows of all operands."""

    what = 'a view\'s definition with "union"'


class UnionAllView(UnionAll, _Options):
    """A view that has the rows of all operands side by side."""

    what = 'a view\'s definition with "union_all"'


class IntersectView(Intersect, _Options):
    """A view that has the distinct rows that all operands have."""

    what = 'a view\'s definition with "intersect"'


class ExceptView(Except, _Options):
    """A view that has the distinct rows of the first operand that the second one does not have."""

    what = 'a view\'s definition with "except"'


JsonForm = JsonView | UnionView | UnionAllView | IntersectView | ExceptView


def check_form(data: dict[str, Any]) -> SqlView | JsonForm:
    """Return the definition, validated. Problem `bad-definition`, as in `checked`."""
    forms: dict[str, type[SqlView | JsonForm]] = {
        "sql": SqlView, "union": UnionView, "union_all": UnionAllView, "intersect": IntersectView, "except": ExceptView
    }
    form = next((form for field, form in forms.items() if field in data), JsonView)
    if form is JsonView and "from" not in data:
        has = f"this one has {cut(', '.join(data))}" if data else "this one is empty"
        raise bad(f'a view\'s definition has sql, a SELECT, or from, an object of aliases and relations, as {{"b": "bookings"}}; {has}')
    return checked(form, data)

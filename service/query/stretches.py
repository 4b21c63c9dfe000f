"""`gaps(s.hours, b.stay)` and `coverage(s.hours, b.stay)` in SELECT: each row of s becomes one row for each stretch of its interval that
the rows of b leave, or cover.

Gaps require LEFT JOIN, as a row without partners is one gap; coverage requires JOIN. In both cases the rows contain nothing of b: it
becomes a part of the query, which determines the partners.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from livejoin.wire.schema import NAME
from service.errors import Problem, unsupported
from service.query.assembly import Draft, SubqueryDraft
from service.query.conditions import ColumnRef, Condition, Filter, IntervalRef
from service.query.filters import ordered
from service.query.groups import GroupsDraft, refuse_stretch
from service.query.model import OF_STRETCH, Query, Stretches, is_stretch
from service.query.scope import Scope

_INSTEAD = {
    "gaps": "FROM {a} LEFT JOIN {b} ON … AND overlaps({of}, {by})",
    "coverage": "FROM {a} JOIN {b} ON … AND overlaps({of}, {by})",
}
_WHERE = {"gaps": "LEFT JOIN", "coverage": "JOIN"}


def take(draft: Draft) -> tuple[Draft, Stretches | None]:
    """Return the draft with the partners as a subquery of it, and its stretches; the same draft and None if it has none. Problems
    `unsupported-query`, `bad-definition`."""
    mine = [output for output in draft.reads if is_stretch(output)]
    if not mine:
        for function, intervals, _ in draft.of_stretches:
            words = f"{function}({', '.join(map(str, intervals))})"
            if draft.groups is not None:
                raise unsupported(f"a condition on {words} with groups", "leave it out, and compare when you read the rows")
            raise unsupported(f"a condition on {words}, which is not in SELECT,", f"select {words} AS a name")
        return draft, None
    first = mine[0]
    function, name = first.kind.partition("_")[0], first.name.removesuffix("_start")
    words = f"{function}({', '.join(map(str, first.intervals))})"
    if draft.groups is not None:
        refuse_stretch(first)
    if len(mine) > 2:
        raise unsupported("gaps(…) and coverage(…) twice in a view", "define a view for each")
    if draft.as_of is not None:
        raise unsupported(f"{words} over ASOF JOIN", f"{function} takes the intervals of all partners: write JOIN, or LEFT JOIN")
    if len(first.intervals) != 2:
        raise unsupported(words, f"{function} takes two intervals, as in {function}(s.hours, b.stay)")
    _require_name(name, words, draft.scope.aliases)
    of, by = first.intervals
    subquery = _partners(draft, function, words, of, by)
    rows = draft.scope.of([of.alias])
    outputs = [one._replace(intervals=(of,)) if is_stretch(one) else one for one in draft.outputs]
    _require_columns([ref for output in outputs for ref in output.refs], of.alias, words)
    conditions = list[Condition]()
    for its, intervals, condition in draft.of_stretches:
        if (its, intervals) != (function, first.intervals):
            raise unsupported(f"a condition on {its}({', '.join(map(str, intervals))}) beside {words}", "define a view for each")
        _require_columns([ref for ref in condition.columns if ref.alias != OF_STRETCH], of.alias, words)
        conditions.append(condition)
    kept = replace(draft, scope=rows, outputs=outputs, subqueries=[subquery])
    if function == "coverage":
        kept = _without(kept, by.alias)
    return kept, Stretches(function, name, of, ordered(conditions))


def of_groups(query: Query, draft: GroupsDraft) -> Query:
    """Return the query whose rows are the stretches that the intervals of each group cover. Problems `unsupported-query`,
    `bad-definition`."""
    assert draft.covered is not None
    name, of = draft.covered
    words, aliases = f"coverage({of})", [alias for alias, _ in query.aliases]
    if len(query.aliases) > 1 or query.subqueries or query.absent:
        raise unsupported(f"{words} of a join", "group the rows of one relation, or write coverage(x, y) of two intervals that overlap")
    if draft.aggregates or draft.having:
        raise unsupported(f"{words} with aggregates, or with HAVING on them,", "define a view for each")
    _require_name(name, words, aliases)
    if any(column.name == name for column in draft.columns):
        raise Problem("bad-definition", f"{name} names {words} and a column by which its rows are grouped: rename one of them with AS")
    return replace(_of_points(query, draft.scope, of), stretches=Stretches("coverage", name, of), overlaps=((of, of),))


def _require_name(name: str, words: str, aliases: Iterable[str]) -> None:
    if not NAME.fullmatch(name) or name in (*aliases, "group", "row"):
        instead = f"use a name that matches {NAME.pattern} and is no alias, nor group or row"
        raise Problem("bad-definition", f"{name!r} cannot name {words}: {instead}")


def _partners(draft: Draft, function: str, words: str, of: IntervalRef, by: IntervalRef) -> SubqueryDraft:
    a, b = (f"{draft.scope.aliases.get(ref.alias, '…')} {ref.alias}" for ref in (of, by))
    instead = f"write {_INSTEAD[function].format(a=a, b=b, of=of, by=by)}"
    if of.alias == by.alias or {*draft.scope.aliases} != {of.alias, by.alias} or draft.absent or len(draft.subqueries) > 1:
        raise unsupported(f"{words} over relations other than these two, or with EXISTS,", f"{instead}, and define a view for the rest")
    if function == "gaps":
        if not draft.subqueries or draft.subqueries[0].kind != "optional" or {*draft.subqueries[0].draft.scope.aliases} != {by.alias}:
            raise unsupported(f"{words} without LEFT JOIN of {by.alias}", instead)
        named = [ref for one in draft.filters for ref in one.columns] + _compared(draft)
        for ref in named:
            if ref.alias == by.alias:
                raise unsupported(f"{ref} in WHERE with {words}", f"no row has {by.alias}: write the condition in ON")
        return SubqueryDraft("gaps", draft.subqueries[0].draft)
    if draft.subqueries:
        raise unsupported(f"{words} with an outer join", instead)
    subquery = replace(
        draft, scope=draft.scope.of([by.alias]), outputs=[], filters=[one for one in draft.filters if one.alias == by.alias],
        never=draft.never,
    )  # fmt: skip
    return SubqueryDraft("coverage", subquery)


def _compared(draft: Draft) -> list[ColumnRef]:
    """Return the columns that the draft's conditions compare."""
    pairs = [*draft.equal, *draft.not_equal, *((one.low, one.high) for one in draft.inequalities)]
    return [ref for pair in pairs for ref in pair]


def _require_columns(refs: Iterable[ColumnRef | IntervalRef], alias: str, words: str) -> None:
    for ref in refs:
        if ref.alias != alias:
            raise unsupported(f"{ref} beside {words}", f"a row has {alias} and one stretch, and no single {ref.alias}: leave it out")


def _without(draft: Draft, partner: str) -> Draft:
    """Return the draft without the conditions that name a partner: they belong to the subquery."""
    return replace(
        draft, equal=[], overlaps=[], inequalities=[], not_equal=[], cross=[],
        filters=[one for one in draft.filters if one.alias != partner],
    )  # fmt: skip


def finish(query: Query, stretches: Stretches, scope: Scope) -> Query:
    """Complete the query that was assembled from the draft of `take`. `scope`: of all aliases. Problem `unsupported-query` for conditions
    other than one pair of intervals and equal columns."""
    (subquery,) = query.subqueries
    of, declared = stretches.of, scope.declared(stretches.of)
    join = subquery.join
    words = f"{stretches.function}({of}, …)"
    others = [*map(str, join.comparisons), *(f"overlaps({x}, {y})" for x, y in join.overlaps[1:])]
    if others or not join.overlaps:
        what = f"{words} with {others[0]}" if others else f"{words} without overlaps"
        raise unsupported(what, f"the ON of its {_WHERE[stretches.function]} takes overlaps(…) of the two intervals, and equal columns")
    ((first, _),) = join.overlaps
    if scope.declared(first) != declared:
        raise unsupported(f"{words} where {first} has to overlap", "name the intervals that overlap in ON")
    return replace(_of_points(query, scope, of), stretches=stretches)


def _of_points(query: Query, scope: Scope, of: IntervalRef) -> Query:
    """Return the query without rows whose point is null: no point, no stretch."""
    declared = scope.declared(of)
    if declared.start_column != declared.end_column or not scope.definition(of.alias).column(declared.start_column).nullable:
        return query
    there = Filter(ColumnRef(of.alias, declared.start_column), "not_null", None)
    return replace(query, filters=ordered({*query.filters, there}))

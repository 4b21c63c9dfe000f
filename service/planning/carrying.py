"""Carry filters over equalities: with `x.k = y.k` and `x.k = 5`, only rows with `y.k = 5` matter, so no others are stored, or followed.

The view's rows stay the same: filters go from an alias to those joined with it, and to subqueries attached to it, but never from a subquery
of LEFT JOIN, NOT EXISTS and the like to the rows that are kept without a partner. Equal columns have one type, and equal values meet the
same conditions, whatever the operator. IS NOT NULL follows from the equality itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from service.planning.classes import joined
from service.query.conditions import ColumnRef, Condition, Either, Holds, columns_of, replaced
from service.query.filters import either, ordered
from service.query.model import Query

_NEEDED = ("exists", "coverage")  # without a partner there is no row


class _KnownConditions(NamedTuple):
    """Conditions that hold together."""

    equal: tuple[tuple[ColumnRef, ColumnRef], ...]
    filters: tuple[Condition, ...]

    def of(self, aliases: Collection[str]) -> tuple[Condition, ...]:
        """Return the filters on columns of these aliases, including those that follow from equalities."""
        found = [one for one in self.filters if one.alias in aliases]
        alike = {ref: known for known in joined(self.equal) for ref in known}
        for one in self.filters:
            for column in one.columns:
                others = [ref for ref in alike.get(column, ()) if ref.alias in aliases and not ref.is_computed]
                found += [_on(ref, about) for about in _about(column, one) for ref in others]
        return ordered(found)


def carried(query: Query) -> Query:
    """Return the query with the filters that follow from its equalities."""
    if query.united:
        return replace(query, united=tuple(map(carried, query.united)))
    needed = [subquery.join for subquery in query.subqueries if subquery.kind in _NEEDED]
    core = _KnownConditions(
        query.equal + tuple(pair for join in needed for pair in join.equal),
        query.filters + tuple(one for join in needed for one in join.filters),
    )
    own = {alias for alias, _ in query.core.aliases}
    known = dict.fromkeys(own, core)
    subqueries = []
    for subquery in query.subqueries:
        mine = core if subquery.kind in _NEEDED else _both(known[subquery.on], _KnownConditions(subquery.join.equal, subquery.join.filters))
        aliases = {alias for alias, _ in subquery.own}
        known |= dict.fromkeys(aliases, mine)
        others = tuple(one for one in subquery.join.filters if one.alias == subquery.on)
        subqueries.append(replace(subquery, join=replace(subquery.join, filters=ordered((*others, *mine.of(aliases))))))
    absent = [
        group._replace(filters=_both(core, _KnownConditions(group.equal, group.filters)).of({alias for alias, _ in group.aliases}))
        for group in query.absent
    ]
    lacking = {query.as_of.of.alias} if query.as_of is not None and query.as_of.optional else set()  # its filters are those carried to it
    filters = ordered((*query.filters, *core.of(lacking or own)))
    return replace(query, filters=filters, subqueries=tuple(subqueries), absent=tuple(absent))


def _both(one: _KnownConditions, other: _KnownConditions) -> _KnownConditions:
    return _KnownConditions(one.equal + other.equal, one.filters + other.filters)


def _about(column: ColumnRef, one: Condition) -> list[Condition]:
    """Return what the condition requires of this column alone; nothing where equality requires it anyway."""
    if isinstance(one, Either):
        return either([each for each in case if each.columns == (column,) and not _may_tell_apart(each)] for case in one.cases)
    if isinstance(one, Holds):
        return [one] if one.columns == (column,) and not _may_tell_apart(one) else []
    return [one] if one.op != "not_null" else []


def _may_tell_apart(one: Condition) -> bool:
    """Return whether equal values may differ in the condition: an expression may show the sign of zero."""
    if isinstance(one, Either):
        return any(_may_tell_apart(each) for case in one.cases for each in case)
    return isinstance(one, Holds) and "float64" in columns_of(one.term).values()


def _on(ref: ColumnRef, one: Condition) -> Condition:
    """Return the condition, which is on one column, on another."""
    if isinstance(one, Either):
        return Either(tuple(tuple(_on(ref, each) for each in case) for case in one.cases))
    if isinstance(one, Holds):
        return one._replace(term=replaced(one.term, lambda column: ref))
    return one._replace(column=ref)

"""UNION, EXCEPT and UNION ALL: several SELECTs as one `Query`.

(A UNION B) EXCEPT C is (A EXCEPT C) UNION (B EXCEPT C): a union of branches, each minus some right sides. A row is what a branch selects,
without duplicates; null equals null there. The branches' aliases follow each other, renamed where they clash, and each alias keeps its own
conditions. The SELECTs of UNION ALL stay queries of their own: a row is identified by the keys of its SELECT's aliases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from service.errors import unsupported
from service.query.assembly import Draft, Options, unused
from service.query.computed import ComputedColumn
from service.query.conditions import ColumnRef, Filter, IntervalRef
from service.query.groups import GroupsDraft
from service.query.model import AntiJoin, Branch, Output, Query, Subquery, is_stretch
from service.query.subqueries import assemble_view, words_of

_MOST_ALIASES = 64  # of UNION ALL: a row of a delta has a slot for each


Operation = Literal["UNION", "EXCEPT", "UNION ALL"]


@dataclass
class SetOperation:
    left: Expression
    operation: Operation
    right: Expression
    ordered: bool = False


Expression = Draft | SetOperation


def drafts_of(expression: Expression) -> Iterator[Draft]:
    """Yield its SELECTs, from left to right."""
    if isinstance(expression, Draft):
        yield expression
    else:
        yield from drafts_of(expression.left)
        yield from drafts_of(expression.right)


def query_of(expression: Expression, options: Options) -> Query:
    """Check and classify. Raises as `assemble`, and `unsupported-query` for SELECTs that do not match, with all complaints."""
    first, made = next(drafts_of(expression)), list[Query]()
    with first.noting():
        if isinstance(expression, Draft):
            made.append(assemble_view(expression, options))
        else:
            operations = {one.operation for one in _operations_of(expression)}
            made.append((_united if "UNION ALL" in operations else _combined)(expression, options))
    if first.complaints is not None:
        first.complaints.finish()
    return made[0]


def _operations_of(expression: Expression) -> Iterator[SetOperation]:
    if isinstance(expression, SetOperation):
        yield from (expression, *_operations_of(expression.left), *_operations_of(expression.right))


class _Part(NamedTuple):
    """A branch, and the indices of the right sides to subtract from it."""

    select: _Select
    less: tuple[int, ...]


class _Select(NamedTuple):
    query: Query
    draft: Draft


def _combined(expression: SetOperation, options: Options) -> Query:
    rights: list[_Select] = []
    (top, *_) = drafts_of(expression)
    with top.judging():
        parts = _parts(expression, rights, options)
    selects = [*(part.select for part in parts), *rights]
    first = selects[0]
    _check_all_alike(selects, "UNION or EXCEPT")
    taken: set[str] = set()
    branches, absent = list[Branch](), list[AntiJoin]()
    renamed = [_apart(_possible(part.select.query), taken) for part in parts]
    right_sides = [
        AntiJoin(one.aliases, one.equal, one.filters, _columns(one)) for one in (_apart(_possible(right.query), taken) for right in rights)
    ]
    for one, part in zip(renamed, parts, strict=True):
        indices = range(len(right_sides) + len(absent), len(right_sides) + len(absent) + len(one.absent))
        absent += one.absent
        branches.append(Branch(len(one.aliases), _columns(one), (*part.less, *indices)))
    names = [output.name for output in first.query.outputs]
    return replace(
        renamed[0],
        aliases=tuple(alias for one in renamed for alias in one.aliases),
        equal=tuple(pair for one in renamed for pair in one.equal),
        filters=tuple(filter_ for one in renamed for filter_ in one.filters),
        outputs=tuple(Output(name, "column", ref, ()) for name, ref in zip(names, branches[0].columns, strict=True)),
        never=all(part.select.query.never for part in parts),
        absent=(*right_sides, *absent),
        branches=tuple(branches),
        named=_named([one.query for one in selects]),
        computed=_computed([one.query for one in selects]),
    )


def _named(queries: Sequence[Query]) -> tuple[str, ...]:
    return tuple(sorted({name for one in queries for name in one.named}))


def _computed(queries: Sequence[Query]) -> tuple[ComputedColumn, ...]:
    return tuple(sorted({column for one in queries for column in one.computed}, key=itemgetter(0)))


def _united(expression: SetOperation, options: Options) -> Query:
    others = {one.operation for one in _operations_of(expression)} - {"UNION ALL"}
    if others:
        raise unsupported(f"{min(others)} beside UNION ALL", "define a view for each")
    (top, *_), selects = drafts_of(expression), list[_Select]()
    with top.judging():
        for draft in drafts_of(expression):
            with draft.noting(""):
                _require_join(draft)
                selects.append(_Select(assemble_view(draft, options), draft))
    _check_all_alike(selects, "UNION ALL")
    taken, first = set[str](), selects[0].query
    queries = [_apart(one.query, taken) for one in selects]
    if len(taken) > _MOST_ALIASES:
        raise unsupported(f"UNION ALL over {len(taken)} aliases", f"at most {_MOST_ALIASES} are possible: define several views")
    computed = _computed(queries)
    outputs = [tuple(own._replace(name=name.name) for own, name in zip(one.outputs, first.outputs, strict=True)) for one in queries]
    return Query(
        tuple(alias for one in queries for alias in one.aliases), (), (), (), (), (), (), (), (), tuple(chain(*outputs)),
        options.retain, options.algorithm, options.guarantee, all(one.never for one in queries), named=_named(queries), computed=computed,
        united=tuple(
            replace(one, outputs=own, computed=computed, algorithm="auto", guarantee="best-effort")
            for one, own in zip(queries, outputs, strict=True)
        ),
    )  # fmt: skip


def _require_join(draft: Draft) -> None:
    if draft.groups is not None or draft.latest is not None or draft.as_of is not None or any(map(is_stretch, draft.outputs)):
        raise unsupported("anything but a join as this side of a set operation", "define a view of it")


def _parts(expression: Expression, rights: list[_Select], options: Options) -> list[_Part]:
    """Return the branches of an expression; append further right sides to `rights`."""
    if isinstance(expression, Draft):
        made = list[_Part]()
        with expression.noting(""):
            made.append(_Part(_selected(expression, options), ()))
        return made
    left = _parts(expression.left, rights, options)
    if expression.operation == "UNION":
        return left + _parts(expression.right, rights, options)
    known = len(rights)
    right = _parts(expression.right, rights, options)
    if len(rights) > known:
        instead = "write A EXCEPT (B EXCEPT C) as (A EXCEPT B) UNION (A joined with C on all columns)"
        raise unsupported("EXCEPT on the right side of EXCEPT", instead)
    if any(one.select.query.absent for one in right):
        instead = "write A EXCEPT (B without C) as (A EXCEPT B) UNION (A joined with B and C)"
        raise unsupported("NOT EXISTS on the right side of EXCEPT", instead)
    rights += [one.select for one in right]
    less = tuple(range(known, len(rights)))
    return [_Part(one.select, one.less + less) for one in left]


def _selected(draft: Draft, options: Options) -> _Select:
    _require_join(draft)
    query = assemble_view(draft, options)
    if query.subqueries:
        raise unsupported(f"{words_of(query.subqueries[0])} in UNION or EXCEPT", "define a separate view for each SELECT")
    with draft.judging():
        for output in draft.outputs:
            with draft.noting(output):
                if output.column is None:
                    raise unsupported(f"the computed column {output.name} in UNION or EXCEPT", "select columns of the relations")
                draft.scope.require_comparable(output.column, "UNION or EXCEPT of")
    others = [*(f"overlaps({x}, {y})" for x, y in query.overlaps), *map(str, query.compared)]
    if others:
        raise unsupported(f"{others[0]} in UNION or EXCEPT", "compare the columns of different aliases with = only")
    if query.cross:
        raise unsupported("a product (CROSS JOIN) in UNION or EXCEPT", "join the relations on equal columns")
    return _Select(query, draft)


def _check_all_alike(selects: Sequence[_Select], words: str) -> None:
    first = selects[0]
    with first.draft.judging():
        for other in selects[1:]:
            with other.draft.noting(""):
                _check_alike(first, other, words)


def _check_alike(first: _Select, other: _Select, words: str) -> None:
    mine, theirs = ([output.name for output in one.query.outputs] for one in (first, other))
    if len(mine) != len(theirs):
        what = f"{words} of SELECTs with different numbers of columns, {len(mine)} and {len(theirs)},"
        raise unsupported(what, "select the same number of columns")
    if mine != theirs and sorted(mine) == sorted(theirs):
        raise unsupported(
            f"{words} of the columns {', '.join(mine)} with {', '.join(theirs)}",
            "columns correspond by position, as in SQL: select them in the same order",
        )
    for x, y in zip(first.query.outputs, other.query.outputs, strict=True):
        types = tuple(GroupsDraft(select.draft.scope).type_of(one) for select, one in ((first, x), (other, y)))
        if types[0] != types[1]:
            same = "select columns of the same type" if words == "UNION or EXCEPT" else "cast one of them to the type of the other"
            differ = f"the types differ, {types[0]} and {types[1]}: {same}"
            raise unsupported(f"{words} of {x.column or x.name} with {y.column or y.name}", differ)


def _columns(query: Query) -> tuple[ColumnRef, ...]:
    return tuple(output.column for output in query.outputs if output.column is not None)


def _possible(query: Query) -> Query:
    """Return the query with a filter that no row meets in place of a condition that is never true."""
    return replace(query, filters=(*query.filters, Filter(_columns(query)[0], "in", ()))) if query.never else query


def _apart(query: Query, taken: set[str]) -> Query:
    """Return the query with aliases that are not taken yet."""
    names = {alias: unused(alias, taken) for alias, _ in query.whole.aliases}
    made: Query = _renamed(query, names)
    return made


def _renamed(part: Any, names: Mapping[str, str]) -> Any:
    """Return a query, or a part of one, with other aliases."""
    if isinstance(part, ColumnRef | IntervalRef):
        return part._replace(alias=names.get(part.alias, part.alias))  # those of computed columns have none
    if isinstance(part, Query | AntiJoin):
        aliases = tuple((names[alias], relation) for alias, relation in part.aliases)
        if isinstance(part, AntiJoin):
            return AntiJoin(aliases, *(_renamed(one, names) for one in part[1:]))
        others = {one.name: _renamed(getattr(part, one.name), names) for one in fields(part) if one.name not in ("aliases", "cross")}
        return Query(aliases=aliases, cross=tuple((names[x], names[y]) for x, y in part.cross), **others)
    if isinstance(part, Subquery):
        return Subquery(part.kind, _renamed(part.join, names))
    if isinstance(part, tuple):
        renamed = (_renamed(one, names) for one in part)
        return type(part)(*renamed) if hasattr(part, "_fields") else tuple(renamed)
    return part

"""UNION and EXCEPT: several SELECTs as one `Query`.

(A UNION B) EXCEPT C is (A EXCEPT C) UNION (B EXCEPT C): a union of branches, each minus some right sides. A row is what a branch selects,
without duplicates; null equals null there. The branches' aliases follow each other, renamed where they clash, and each alias keeps its own
conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Literal, NamedTuple

from service.errors import unsupported
from service.query.assembly import Draft, Options, unused
from service.query.conditions import ColumnRef, Condition, Filter
from service.query.model import AntiJoin, Branch, Output, Query
from service.query.subqueries import assemble_view, words_of


@dataclass
class SetOperation:
    left: Expression
    operation: Literal["UNION", "EXCEPT"]
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
        made.append(assemble_view(expression, options) if isinstance(expression, Draft) else _combined(expression, options))
    if first.complaints is not None:
        first.complaints.finish()
    return made[0]


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
    with top.judging():
        for other in selects[1:]:
            with other.draft.noting(""):
                _check_alike(first, other)
    taken: set[str] = set()
    branches, absent = list[Branch](), list[AntiJoin]()
    renamed = [_renamed(part.select.query, taken) for part in parts]
    right_sides = [
        AntiJoin(one.aliases, one.equal, one.filters, _columns(one)) for one in (_renamed(right.query, taken) for right in rights)
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
        named=tuple(sorted({name for one in selects for name in one.query.named})),
        computed=tuple(sorted({column for one in selects for column in one.query.computed}, key=itemgetter(0))),
    )


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
    if draft.groups is not None:
        raise unsupported("DISTINCT, GROUP BY or an aggregate in UNION or EXCEPT", "define a view for each SELECT")
    if draft.latest is not None:
        raise unsupported("DISTINCT ON or QUALIFY in UNION or EXCEPT", "define a view for each SELECT")
    if draft.as_of is not None:
        raise unsupported("ASOF JOIN in UNION or EXCEPT", "define a view of its own")
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


def _check_alike(first: _Select, other: _Select) -> None:
    mine, theirs = ([output.name for output in one.query.outputs] for one in (first, other))
    if len(mine) != len(theirs):
        what = f"UNION or EXCEPT of SELECTs with different numbers of columns, {len(mine)} and {len(theirs)},"
        raise unsupported(what, "select the same number of columns")
    if mine != theirs and sorted(mine) == sorted(theirs):
        raise unsupported(
            f"UNION or EXCEPT of the columns {', '.join(mine)} with {', '.join(theirs)}",
            "columns correspond by position, as in SQL: select them in the same order",
        )
    for x, y in zip(_columns(first.query), _columns(other.query), strict=True):
        types = first.draft.scope.describe(x).kind, other.draft.scope.describe(y).kind
        if types[0] != types[1]:
            differ = f"the types differ, {types[0]} and {types[1]}: select columns of the same type"
            raise unsupported(f"UNION or EXCEPT of {x} with {y}", differ)


def _columns(query: Query) -> tuple[ColumnRef, ...]:
    return tuple(output.column for output in query.outputs if output.column is not None)


def _renamed(query: Query, taken: set[str]) -> Query:
    """Return the query with aliases that are not taken yet; a condition that is never true becomes a filter that no row meets."""
    filters = (*query.filters, Filter(_columns(query)[0], "in", ())) if query.never else query.filters
    names = {alias: unused(alias, taken) for alias, _ in query.whole.aliases}
    renamed = _renaming(names)
    return replace(
        query,
        aliases=_aliases(query.aliases, names),
        equal=_pairs(query.equal, renamed),
        filters=_filters(filters, names),
        outputs=tuple(one._replace(column=renamed(one.column)) for one in query.outputs if one.column is not None),
        absent=tuple(
            AntiJoin(_aliases(one.aliases, names), _pairs(one.equal, renamed), _filters(one.filters, names)) for one in query.absent
        ),
    )


_Rename = Callable[[ColumnRef], ColumnRef]


def _renaming(names: Mapping[str, str]) -> _Rename:
    return lambda ref: ref._replace(alias=names[ref.alias])


def _aliases(aliases: tuple[tuple[str, str], ...], names: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((names[alias], relation) for alias, relation in aliases)


def _pairs(pairs: tuple[tuple[ColumnRef, ColumnRef], ...], renamed: _Rename) -> tuple[tuple[ColumnRef, ColumnRef], ...]:
    return tuple((renamed(x), renamed(y)) for x, y in pairs)


def _filters(filters: tuple[Condition, ...], names: Mapping[str, str]) -> tuple[Condition, ...]:
    return tuple(one.of(names[one.alias]) for one in filters)

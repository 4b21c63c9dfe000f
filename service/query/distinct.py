"""SELECT DISTINCT whose columns include the whole keys of some aliases, and no columns of the others: the rows of these aliases that have
partners.

Each such row occurs once anyway, so no group is stored. The other aliases become EXISTS subqueries, each attached to one of these aliases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from livejoin.wire.schema import RelationDefinition
from service.query.conditions import ColumnRef
from service.query.model import GROUP, PAIRS, Comparison, GroupOutput, Output, Query, Subquery
from service.query.subqueries import oriented


def as_exists(query: Query, relations: Mapping[str, RelationDefinition]) -> Query | None:
    """Return the same view without groups, with rows identified by their columns; None if the view is not of this kind."""
    outputs = _columns(query)
    if outputs is None or query.subqueries or query.absent or query.branches or query.as_of is not None or query.across:
        return None
    shown = {output.column.alias for output in outputs if output.column is not None}
    keys = {ColumnRef(alias, name) for alias, relation in query.aliases if alias in shown for name in relations[relation].key}
    if not keys <= {output.column for output in outputs}:
        return None
    others = [alias for alias, _ in query.aliases if alias not in shown]
    if len(list(_pieces(query, shown))) > 1 or any(alias in others for pair in query.cross for alias in pair):
        return None
    subqueries = []
    for piece in _pieces(query, others):
        outside = {alias for pair in _linked(query) if not piece.isdisjoint(pair) for alias in pair} - piece
        if len(outside) != 1:
            return None
        subqueries.append(Subquery("exists", _subquery(query, outside.pop(), piece)))
    made = _restricted(query, shown)
    return replace(made, outputs=outputs, groups=None, distinct=True, subqueries=tuple(sorted(subqueries, key=repr)))


def _columns(query: Query) -> tuple[Output, ...] | None:
    """Return the selected columns, if rows are grouped by all of them; None if the view has more, or fewer."""
    groups = query.groups
    if groups is None or groups.aggregates or groups.having or any(column.trunc for column in groups.columns):
        return None
    if groups.outputs != tuple(GroupOutput(column.name, GROUP, position) for position, column in enumerate(groups.columns)):
        return None
    outputs = tuple(query.outputs[column.of]._replace(name=column.name) for column in groups.columns)
    return outputs if all(output.kind == "column" for output in outputs) else None


def _linked(query: Query) -> Iterator[tuple[str, str]]:
    """Yield the pairs of aliases that a condition compares."""
    yield from (_aliases(one) for field in PAIRS for one in getattr(query, field))
    yield from query.cross


def _aliases(one: Any) -> tuple[str, str]:
    """Return the aliases of a comparison, or of a pair of columns or intervals."""
    left, right = (one.left, one.right) if isinstance(one, Comparison) else one
    return left.alias, right.alias


def _pieces(query: Query, aliases: Collection[str]) -> Iterator[set[str]]:
    """Yield the sets of these aliases that are connected by conditions among them."""
    links, left = [set(pair) for pair in _linked(query)], set(aliases)
    for alias, _ in query.aliases:
        if alias not in left:
            continue
        piece, before = {alias}, 0
        while len(piece) > before:
            before = len(piece)
            piece |= {other for link in links if not piece.isdisjoint(link) for other in link if other in aliases}
        left -= piece
        yield piece


def _restricted(query: Query, names: Collection[str]) -> Query:
    """Return the query restricted to these aliases and the conditions on them alone."""
    fields: dict[str, Any] = {
        field: tuple(one for one in getattr(query, field) if {*_aliases(one)} <= set(names)) for field in PAIRS
    }
    return replace(
        query,
        aliases=tuple(one for one in query.aliases if one[0] in names),
        cross=tuple(one for one in query.cross if set(one) <= set(names)),
        filters=tuple(one for one in query.filters if one.alias in names),
        **fields,
    )


def _subquery(query: Query, on: str, piece: set[str]) -> Query:
    """Return the join of these aliases with the one that they are attached to, which comes first."""
    made = _restricted(query, {on, *piece})
    return oriented(
        replace(
            made, aliases=tuple(sorted(made.aliases, key=lambda one: one[0] != on)), outputs=(), groups=None, retain=None, algorithm="auto",
            guarantee="best-effort", never=False, named=(),
        )
    )  # fmt: skip

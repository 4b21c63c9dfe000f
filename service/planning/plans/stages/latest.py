"""The first rows of each key of one relation, in an order: all of its rows in an ordered index, and a list of the first ones.

If the entries of the index contain the primary key, no two of them are equal, and a change visits no more rows than it may report.
Otherwise rows that tie are read one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from livejoin.wire.schema import RelationDefinition
from service.planning.meets import Relations
from service.planning.plans.plan import Plan, first_notes, names
from service.query.conditions import ColumnRef, RowValue, Term
from service.query.latest import is_ordered
from service.query.model import Latest, Query
from service.query.terms import is_nullable

TIES = "rows that tie in the order are read, to compare their primary keys"
_ANY_BITS = ("int64", "float64", "timestamp")
_MOST_COORDINATES = 8  # of an entry of an ordered index


def make(query: Query, relations: Relations) -> Plan:
    latest = query.latest
    assert latest is not None
    ((_, relation),) = query.aliases
    definition = relations[relation]
    known = {value.column for value in (*latest.by, latest.order) if isinstance(value, ColumnRef)}
    ties = ties_of(definition, known, 2 + has_null_apart(definition, latest.order))
    notes = [*first_notes(query, relations), "all rows that satisfy the filters are kept in order, and the first ones in a list"]
    order = latest.order if isinstance(latest.order, Term) else Term("column", "", (), latest.order)
    if is_nullable(order, lambda ref: definition.column(ref.column).nullable):
        notes.append(f"rows whose {latest.order} is null come {'first' if latest.nulls_first else 'last'}")
    if ties is None:
        notes.append(why_ties(definition))
    return Plan(
        f"{_words(latest)}, 1 relation", "interval-tree", None, "delay" if ties is None else "strict", _bounds(latest, ties is not None),
        tuple(notes), "latest", names(query), ties=ties,
    )  # fmt: skip


def has_null_apart(definition: RelationDefinition, order: RowValue) -> bool:
    """Whether a separate coordinate before the order says that it is null: needed if its values may be any 64 bits. Other values, and ends
    of intervals, leave room for null after the greatest of them and before the least, whether the column has nulls yet or not."""
    if isinstance(order, Term):
        return order.kind in _ANY_BITS
    bounded = {*definition.key} | {end for one in definition.intervals.values() for end in (one.start_column, one.end_column)}
    return order.column not in bounded and definition.column(order.column).kind in _ANY_BITS


def ties_of(definition: RelationDefinition, known: Collection[str], coordinates: int) -> tuple[str, ...] | None:
    """The columns of the primary key that distinguish rows that agree in the `known` ones, as coordinates after so many others; None: they
    are not numbers, or too many."""
    rest = tuple(name for name in definition.key if name not in known)
    are_numbers = all(is_ordered(definition.column(name).kind) for name in rest)
    return rest if are_numbers and coordinates + len(rest) <= _MOST_COORDINATES else None


def why_ties(definition: RelationDefinition) -> str:
    return f"the primary key ({', '.join(definition.key)}) is not made of a few numbers: {TIES}"


def _words(latest: Latest) -> str:
    of_each = f" of each {', '.join(map(str, latest.by))}" if latest.by else ""
    return f"{'latest row' if latest.rows == 1 else f'top {latest.rows} rows'}{of_each} by {latest.order}"


def _bounds(latest: Latest, exact: bool) -> Mapping[str, str]:
    update = "O(log n)" if latest.rows == 1 else f"O(log n), and a step for each of the {latest.rows} rows"
    return {"space": "O(n)", "update": update if exact else f"{update}, and one for each row that ties", "delay": "O(log n)"}

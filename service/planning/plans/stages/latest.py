"""The first rows of each key of one relation, in an order: all of its rows in an ordered index, and a list of the first ones.

An entry of the index has the values of the order, and then of the primary key, as words. If these are a few numbers, no two entries are
equal, and a change visits no more rows than it may report. Otherwise it has the first of the words, and rows that tie are read one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from livejoin.wire.schema import RelationDefinition
from service.planning.meets import Relations
from service.planning.plans.plan import Plan, first_notes, names
from service.query.conditions import ColumnRef, RowValue, Term
from service.query.latest import is_ordered
from service.query.model import Latest, Ordering, Query
from service.query.terms import is_nullable

TIES = "rows that tie in the first numbers and bytes of the order and the primary key are read, to compare the rest"
_ANY_BITS = ("int64", "float64", "timestamp")
_MOST_COORDINATES = 8  # of an entry of an ordered index
_TEXT_WORDS = 3  # of an entry: what a text shorter than 21 bytes leaves is for what follows it


def make(query: Query, relations: Relations) -> Plan:
    latest = query.latest
    assert latest is not None
    ((_, relation),) = query.aliases
    definition = relations[relation]
    _, exact = room_of(sort_keys(query, definition), definition)
    notes = [*first_notes(query, relations), "all rows that satisfy the filters are kept in order, and the first ones in a list"]
    for value, _, nulls_first in latest.order:
        term = value if isinstance(value, Term) else Term("column", "", (), value)
        if is_nullable(term, lambda ref: definition.column(ref.column).nullable):
            notes.append(f"rows whose {value} is null come {'first' if nulls_first else 'last'}")
    if not exact:
        notes.append(f"the order and the primary key ({', '.join(definition.key)}) are not made of a few numbers: {TIES}")
    return Plan(
        f"{_words(latest)}, 1 relation", "interval-tree", None, "strict" if exact else "delay", _bounds(latest, exact), tuple(notes),
        "latest", names(query),
    )  # fmt: skip


def sort_keys(query: Query, definition: RelationDefinition) -> list[Ordering]:
    """The order, and the columns of the primary key that distinguish equal rows."""
    latest, ((alias, _),) = query.latest, query.aliases
    assert latest is not None
    known = {*latest.by, *(key.value for key in latest.order)}
    rest = [ref for name in definition.key if (ref := ColumnRef(alias, name)) not in known]
    return [*latest.order, *(Ordering(ref, descending=True) for ref in rest)]


def room_of(keys: Sequence[Ordering], definition: RelationDefinition) -> tuple[int, bool]:
    """How many words of these values an entry has, and whether that is always all of them."""
    kinds = [key.value.kind if isinstance(key.value, Term) else definition.column(key.value.column).kind for key in keys]
    numbers = [is_ordered(kind) for kind in kinds]
    both = zip(keys, numbers, strict=True)
    words = sum(1 + has_null_apart(definition, key.value) if is_number else _TEXT_WORDS for key, is_number in both)
    return min(words, _MOST_COORDINATES - 1), all(numbers) and words < _MOST_COORDINATES


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


def _words(latest: Latest) -> str:
    of_each = f" of each {', '.join(map(str, latest.by))}" if latest.by else ""
    order = ", ".join(str(key.value) for key in latest.order)
    return f"{'latest row' if latest.rows == 1 else f'top {latest.rows} rows'}{of_each} by {order}"


def _bounds(latest: Latest, exact: bool) -> Mapping[str, str]:
    update = "O(log n)" if latest.rows == 1 else f"O(log n), and a step for each of the {latest.rows} rows"
    return {"space": "O(n)", "update": update if exact else f"{update}, and one for each row that ties", "delay": "O(log n)"}

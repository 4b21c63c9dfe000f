"""Find the users of relations, such as views, that a change concerns: those for whose filters a changed row may matter.

A filter `column = constant` (or `in`, or OR with one on the column in each case) of an alias is looked up by the values of the changed
rows, so users whose filters exclude the rows cost nothing. A user without such a filter is concerned by every change of its relation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.batch import RowBlock
from service.query.conditions import ColumnRef, Condition, Either, Filter
from service.tables.endpoints import TEXT_OR_BOOL, numbers
from service.tables.masks import select_mask
from service.tables.resolution import Resolution

T = TypeVar("T")
_MANY = 1000  # rows, above which only the values of interest are converted to Python


class Selection(NamedTuple):
    """The rows of a relation that meet all these filters."""

    relation: str
    filters: Sequence[Condition]


class TouchedRows:
    """The rows that a batch deletes and inserts, by value. Valid until the batch is applied."""

    def __init__(self, resolved: Iterable[Resolution]) -> None:
        self.relations = {one.relation.name: one for one in resolved if len(one.deletes) or one.inserts.num_rows}
        self._values: dict[tuple[str, str], set[Any]] = {}
        self.concerned: dict[Interest[Any], list[Any]] = {}  # cached results: indexes ask twice, to judge and to apply

    def values(self, relation: str, column: str, of_interest: Collection[Any]) -> set[Any]:
        """Return which of these values, in physical form, the rows have in this column. O(rows), once if they are few."""
        one = self.relations[relation]
        if len(one.deletes) + one.inserts.num_rows > _MANY:
            return {value for rows in self._rows(one, column) for value in _among(rows, column, of_interest)}
        found = self._values.get((relation, column))
        if found is None:
            found = self._values[relation, column] = {value for rows in self._rows(one, column) for value in _values(rows, column)}
        return {value for value in found if value in of_interest}

    @staticmethod
    def _rows(one: Resolution, column: str) -> Iterator[RowBlock]:
        if one.inserts.num_rows:
            yield one.inserts
        if len(one.deletes):
            for _, rows in one.relation.table.take_pieces([column], one.deletes):
                yield RowBlock(rows)


class _RelationUsers(Generic[T]):
    """The users of a relation, in order; places of those without an equality, and of the others by column and value."""

    def __init__(self) -> None:
        self.users: list[T] = []
        self.always: set[int] = set()
        self.by_value: dict[str, dict[Any, list[int]]] = {}


class Interest(Generic[T]):
    """Users, each with the rows that it uses."""

    def __init__(self, things: Iterable[tuple[T, Sequence[Selection]]]) -> None:
        self._things: list[T] = []
        self._of: dict[str, _RelationUsers[T]] = {}
        for position, (thing, takes) in enumerate(things):
            self._things.append(thing)
            for relation, filters in takes:
                of = self._of.setdefault(relation, _RelationUsers())
                if not of.users or of.users[-1] is not thing:  # with two aliases it counts once
                    of.users.append(thing)
                admitted = _admitted(filters)
                if not admitted:
                    of.always.add(position)
                    continue
                column = min(admitted, key=lambda one: len(admitted[one]))
                by_value = of.by_value.setdefault(column, {})
                for value in admitted[column]:
                    by_value.setdefault(value, []).append(position)

    def using(self, relation: str) -> list[T]:
        """Return the users of the relation, in order."""
        of = self._of.get(relation)
        return [] if of is None else of.users

    def concerned(self, touched: TouchedRows) -> list[T]:
        """Return the users for which the rows may matter, in order. O(1) per value, and per user found."""
        if not self._of:
            return []
        known = touched.concerned.get(self)
        if known is None:
            known = touched.concerned[self] = self._find(touched)
        return known

    def _find(self, touched: TouchedRows) -> list[T]:
        asked = [(relation, self._of[relation]) for relation in touched.relations if relation in self._of]
        if len(asked) == 1 and not asked[0][1].by_value:
            return asked[0][1].users
        found: set[int] = set()
        for relation, of in asked:
            found.update(of.always)
            for column, by_value in of.by_value.items():
                for value in touched.values(relation, column, by_value.keys()):
                    found.update(by_value[value])
        return [self._things[position] for position in sorted(found)]


def _admitted(filters: Iterable[Condition]) -> dict[str, frozenset[Any]]:
    """Return by column the values that a row meeting all of these may have; other columns are unrestricted."""
    found: dict[str, frozenset[Any]] = {}
    for one in filters:
        if isinstance(one, Either):
            cases = [_admitted(case) for case in one.cases]
            common = set(cases[0]).intersection(*cases[1:])
            mine = {column: frozenset().union(*(case[column] for case in cases)) for column in common}
        elif isinstance(one, Filter) and one.op in ("=", "in"):
            mine = {one.column.column: frozenset(one.value if one.op == "in" else (one.value,))}
        else:
            continue
        for column, values in mine.items():
            found[column] = found[column] & values if column in found else values
    return found


def _values(rows: RowBlock, column: str) -> list[Any]:
    if rows.values is not None:
        at = rows.struct.get_field_index(column)
        return [row[at] for row in rows.values]
    return _values_of(rows.arrow.column(column))


def _values_of(values: pa.Array) -> list[Any]:
    if values.null_count:  # nulls meet no such filter
        values = values.drop_null()
    return list(values.to_pylist() if values.type in TEXT_OR_BOOL else numbers(values).tolist())


def _among(rows: RowBlock, column: str, of_interest: Collection[Any]) -> list[Any]:
    """The same, only the distinct values of interest, without a Python value per row."""
    batch = rows.arrow.select([column])
    met = batch.filter(pa.array(select_mask([Filter(ColumnRef("", column), "in", tuple(of_interest))], batch)))
    return _values_of(pc.unique(met.column(0)))

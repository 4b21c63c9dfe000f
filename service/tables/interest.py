"""What a change concerns: of things that take rows of relations by filters, those to which a changed row may matter.

A filter `column = constant` (or `in`) of an alias is looked up by the values of the changed rows; so things whose filters exclude the rows
cost nothing. Who has no such filter is concerned by every change of its relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from service.query.model import Filter
from service.tables.endpoints import numbers
from service.tables.resolution import Resolved
from service.wire.batch import FewRows

T = TypeVar("T")
_MANY = 1000  # rows of which the different values are looked for first
_AS_THEY_ARE = (pa.utf8(), pa.bool_())


class Taken(NamedTuple):
    """Rows of a relation that meet all these filters."""

    relation: str
    filters: Sequence[Filter]


class Touched:
    """The rows that a batch takes and brings, by their values. Good until the batch is applied."""

    def __init__(self, resolved: Iterable[Resolved]) -> None:
        self._resolved = {one.relation.name: one for one in resolved}
        self._values: dict[tuple[str, str], set[Any]] = {}

    @property
    def relations(self) -> Iterable[str]:
        return self._resolved.keys()

    def values(self, relation: str, column: str) -> set[Any]:
        """The values, in physical form, that the rows have in this column. O(rows), once."""
        found = self._values.get((relation, column))
        if found is None:
            one = self._resolved[relation]
            found = set(_values(one.inserts, column)) if one.inserts.num_rows else set()
            if len(one.deletes):
                for _, rows in one.relation.table.take_pieces([column], one.deletes):
                    found.update(_values(rows, column))
            self._values[relation, column] = found
        return found


class _OfRelation:
    def __init__(self) -> None:
        self.every: dict[int, None] = {}
        self.always: dict[int, None] = {}
        self.by_value: dict[str, dict[Any, list[int]]] = {}


class Interest(Generic[T]):
    """Things, each with all the rows that it takes."""

    def __init__(self, things: Iterable[tuple[T, Sequence[Taken]]]) -> None:
        self._things: list[T] = []
        self._of: dict[str, _OfRelation] = {}
        for place, (thing, takes) in enumerate(things):
            self._things.append(thing)
            for relation, filters in takes:
                of = self._of.setdefault(relation, _OfRelation())
                of.every[place] = None
                chosen = next((f for op in ("=", "in") for f in filters if f.op == op), None)
                if chosen is None:
                    of.always[place] = None
                    continue
                by_value = of.by_value.setdefault(chosen.column.column, {})
                for value in chosen.value if chosen.op == "in" else (chosen.value,):
                    by_value.setdefault(value, []).append(place)

    def using(self, relation: str) -> list[T]:
        """Those that take rows of the relation at all, in order."""
        of = self._of.get(relation)
        return [] if of is None else [self._things[place] for place in of.every]

    def concerned(self, touched: Touched) -> list[T]:
        """Those to which the rows may matter, in order. O(1) a value, and what is found."""
        found: set[int] = set()
        for relation in touched.relations:
            of = self._of.get(relation)
            if of is None:
                continue
            found.update(of.always)
            for column, by_value in of.by_value.items():
                for value in touched.values(relation, column) & by_value.keys():
                    found.update(by_value[value])
        return [self._things[place] for place in sorted(found)]


def _values(rows: pa.RecordBatch | FewRows, column: str) -> list[Any]:
    if isinstance(rows, FewRows):
        at = rows.struct.get_field_index(column)
        return [row[at] for row in rows.values]
    values = rows.column(column)
    if values.null_count:  # they meet no such filter
        values = values.drop_null()
    if len(values) > _MANY:
        values = pc.unique(values)
    return list(values.to_pylist() if values.type in _AS_THEY_ARE else numbers(values).tolist())

"""Make a view's rows from slots: values, identities, bytes of text.

Parts    a row consists of a row of each alias, whose keys are its identity
Distinct a row consists of one of each alias too, but its values are its identity: those of a group
Stretches  a row consists of one of an alias, and a stretch of its interval as two more arrays: closed and encoded ends, int64[n]. Its
         identity is the key and the start of the stretch
Values   of a view with UNION or EXCEPT: a row is its values, taken from rows of one branch's aliases (the others have slot -1)
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import SENT_TYPES, sent
from livejoin.wire.schema import RelationDefinition
from service.query.model import GROUP, Output, Query
from service.query.terms import growth
from service.tables.arrow import is_text
from service.tables.projection import Projection, needed_columns, one_zero, values_schema
from service.tables.sides import Side
from service.views.deltas import Combination, stretches_of

STRETCH = 3  # arrays per row of `Stretches`
NULL_IS_A_VALUE = {b"livejoin.null": b"value"}  # of a column of identities: elsewhere a null there means that the alias is missing
ROW = "row"  # replaces an alias where the row is its own identity
Definitions = Mapping[str, RelationDefinition]


class Shown(Protocol):
    """Any thread; for slots that a pinned version (or an unsettled delta) retains."""

    schema: pa.Schema

    @property
    def has_texts(self) -> bool:
        """Whether `text_bytes` may return anything but zeros."""

    def rows(self, slots: Combination) -> pa.RecordBatch:
        """Return the view's rows. Cost: a gather per column."""

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the identities (columns named alias.column) and the rows."""

    def text_bytes(self, slots: Combination) -> npt.NDArray[np.int64]:
        """int64[n]: the bytes of text that `with_keys` copies per row."""

    def only(self, columns: Sequence[str]) -> Shown:
        """Return an object for the same rows with these columns, in this order; not for `with_keys`."""


def shown(query: Query, sides: Sequence[Side], definitions: Definitions) -> Shown:
    if query.distinct:
        return Distinct(query, sides, definitions)
    if query.stretches is not None:
        return Stretches(query, sides, definitions)
    return Values(query, sides, definitions) if query.branches else Parts(query, sides, definitions)


class Parts:
    """See the module docstring."""

    def __init__(self, query: Query, sides: Sequence[Side], definitions: Definitions) -> None:
        self._query, self._sides, self._definitions = query, sides, definitions
        self._projection = Projection(query, definitions)
        self._optional = query.optional
        self.schema = self._projection.schema
        self._grown = _grown(query)
        self._read, self._counted = [side.output for side in sides], [side.identity for side in sides]
        self.has_texts = self._may_have_texts()
        self._keys = [(side.alias, name, side.relation.definition.column(name).kind) for side in sides for name in side.relation.key]

    def rows(self, slots: Combination) -> pa.RecordBatch:
        parts = _taken(self._sides, self._read, slots, self._optional)
        return self._projected(parts, slots)

    def _projected(self, parts: Mapping[str, pa.RecordBatch], slots: Combination) -> pa.RecordBatch:
        return self._projection.rows(parts, self._missing(slots))

    def only(self, columns: Sequence[str]) -> Parts:
        outputs = {output.name: output for output in self._query.outputs}
        other, query = copy.copy(self), replace(self._query, outputs=tuple(outputs[name] for name in columns))
        other._projection = Projection(query, self._definitions)
        other.schema = other._projection.schema
        other._grown = _grown(query)
        read = [needed_columns(query, side.alias, side.relation.definition) for side in self._sides]
        if not any(read):  # only constants
            read[0] = self._sides[0].relation.key
        other._read = other._counted = read
        other.has_texts = other._may_have_texts()
        return other

    def _may_have_texts(self) -> bool:
        return self._grown != (1, 0) or any(_has_texts(side, names) for side, names in zip(self._sides, self._counted, strict=True))

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        parts = _taken(self._sides, [side.identity for side in self._sides], slots, self._optional)
        names = [f"{alias}.{name}" for alias, name, _ in self._keys]
        columns = [sent(parts[alias].column(name), SENT_TYPES[kind]) for alias, name, kind in self._keys]
        return pa.RecordBatch.from_arrays(columns, names), self._projected(parts, slots)

    def ends(self, slots: Combination) -> pa.RecordBatch:
        """Return, for each interval that overlaps another one, the columns alias.interval.start and alias.interval.end, as in the
        relation's rows; both are null where the alias is missing."""
        names = [list(dict.fromkeys(name for ends in side.ends.values() for name in ends)) for side in self._sides]
        parts = _taken(self._sides, names, slots, self._optional)
        columns = {
            f"{side.alias}.{interval}.{end}": sent(parts[side.alias].column(name), SENT_TYPES[side.relation.definition.column(name).kind])
            for side in self._sides
            for interval, ends in side.ends.items()
            for end, name in zip(("start", "end"), ends, strict=True)
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _missing(self, slots: Combination) -> dict[str, npt.NDArray[np.bool_]]:
        return {side.alias: part < 0 for side, part in _of(self._sides, slots) if side.alias in self._optional}

    def text_bytes(self, slots: Combination) -> npt.NDArray[np.int64]:
        total = np.zeros(len(slots[0]), np.int64)
        for (side, part), names in zip(_of(self._sides, slots), self._counted, strict=True):
            if side.alias in self._optional:
                there = part >= 0
                total[there] += side.relation.table.text_bytes(names, part[there])
            else:
                total += side.relation.table.text_bytes(names, part)
        times, more = self._grown
        return total if self._grown == (1, 0) else total * times + more


class Distinct(Parts):
    """See the module docstring."""

    def rows(self, slots: Combination) -> pa.RecordBatch:
        rows = super().rows(slots)
        return pa.RecordBatch.from_arrays([one_zero(column) for column in rows.columns], schema=rows.schema)

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        rows = self.rows(slots)
        return pa.RecordBatch.from_arrays(rows.columns, [f"{GROUP}.{name}" for name in rows.schema.names]), rows


class Stretches(Parts):
    """See the module docstring."""

    def __init__(self, query: Query, sides: Sequence[Side], definitions: Definitions) -> None:
        super().__init__(query, sides, definitions)
        assert query.stretches is not None
        function, name, of = query.stretches
        self._starts = Projection(replace(query, outputs=(Output(f"{name}.start", f"{function}_start", None, (of,)),)), definitions)
        ends = tuple(Output(f"{of}.{end}", f"{function}_{end}", None, (of,)) for end in ("start", "end"))
        self._ends = Projection(replace(query, outputs=ends), definitions)

    def _projected(self, parts: Mapping[str, pa.RecordBatch], slots: Combination) -> pa.RecordBatch:
        return self._projection.rows(parts, stretches=stretches_of(slots))

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        keys, rows = super().with_keys(slots)
        starts = self._starts.rows({}, stretches=stretches_of(slots))
        fields = [*keys.schema, starts.schema.field(0).with_metadata(NULL_IS_A_VALUE)]
        return pa.RecordBatch.from_arrays([*keys.columns, *starts.columns], schema=pa.schema(fields)), rows

    def ends(self, slots: Combination) -> pa.RecordBatch:
        """Return the ends of the stretch, in place of those of its interval."""
        return self._ends.rows({}, stretches=stretches_of(slots))


class Values:
    """See the module docstring."""

    def __init__(self, query: Query, sides: Sequence[Side], definitions: Definitions) -> None:
        self.schema = values_schema(query, definitions)
        places = iter(range(len(sides)))
        self._branches = [([next(places) for _ in range(branch.aliases)], branch.columns) for branch in query.branches]
        self._sides = sides
        self.has_texts = any(_has_texts(side, side.output) for side in sides)

    def rows(self, slots: Combination) -> pa.RecordBatch:
        parts, order = list[pa.RecordBatch](), list[npt.NDArray[np.int64]]()
        for places, columns in self._branches:
            some = np.flatnonzero(slots[places[0]] >= 0)
            if len(some) or not parts:
                sides = [self._sides[place] for place in places]
                rows = _taken(sides, [side.output for side in sides], [slots[place][some] for place in places])
                values = [one_zero(rows[ref.alias].column(ref.column)) for ref in columns]
                arrays = [sent(column, wanted) for column, wanted in zip(values, self.schema.types, strict=True)]
                parts.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
                order.append(some)
        if len(parts) == 1:
            return parts[0]
        places_of = np.empty(len(slots[0]), np.int64)
        places_of[np.concatenate(order)] = np.arange(len(places_of))
        return pa.concat_batches(parts).take(pa.array(places_of))

    def only(self, columns: Sequence[str]) -> Values:
        other, places = copy.copy(self), [self.schema.get_field_index(name) for name in columns]
        other.schema = pa.schema([self.schema.field(place) for place in places])
        other._branches = [(own, tuple(refs[place] for place in places)) for own, refs in self._branches]
        return other

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        rows = self.rows(slots)
        return pa.RecordBatch.from_arrays(rows.columns, [f"{ROW}.{name}" for name in rows.schema.names]), rows

    def text_bytes(self, slots: Combination) -> npt.NDArray[np.int64]:
        total = np.zeros(len(slots[0]), np.int64)
        for places, _ in self._branches:
            some = np.flatnonzero(slots[places[0]] >= 0)
            for place in places:
                side = self._sides[place]
                total[some] += side.relation.table.text_bytes(side.output, slots[place][some])
        return total


def _grown(query: Query) -> tuple[int, int]:
    """What computed texts add to those that are read: a factor, and a number of bytes, per row."""
    grown = [growth(output.term) for output in query.outputs if output.term is not None]
    return 1 + sum(times for times, _ in grown), sum(more for _, more in grown)


def _taken(
    sides: Sequence[Side], names: Sequence[Sequence[str]], slots: Sequence[npt.NDArray[np.int32]], optional: Collection[str] = ()
) -> dict[str, pa.RecordBatch]:
    """The columns of the aliases that are read. `optional`: aliases that may be missing; all their columns are null then."""
    return {
        side.alias: (_taken_if_there if side.alias in optional else _take)(side, own, part)
        for (side, part), own in zip(_of(sides, slots), names, strict=True)
        if own
    }


def _has_texts(side: Side, names: Sequence[str]) -> bool:
    return any(is_text(side.relation.schema.field(name).type) for name in names)


def _of(sides: Sequence[Side], slots: Sequence[npt.NDArray[np.int32]]) -> list[tuple[Side, npt.NDArray[np.int32]]]:
    """Pair each side with its slots, which come first in a row."""
    return list(zip(sides, slots[: len(sides)], strict=True))


def _take(side: Side, names: Sequence[str], slots: npt.NDArray[np.int32]) -> pa.RecordBatch:
    return side.relation.table.take(names, slots)


def _taken_if_there(side: Side, names: Sequence[str], slots: npt.NDArray[np.int32]) -> pa.RecordBatch:
    there = slots >= 0
    rows = _take(side, names, slots[there])
    columns: list[pa.Array] = rows.columns
    if not there.all():
        at = pa.array(np.cumsum(there) - 1, mask=~there)
        columns = [column.take(at) for column in columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in rows.schema]))

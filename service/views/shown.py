"""Make a view's rows from slots: values, identities, bytes of text.

Parts    a row consists of a row of each alias, whose keys are its identity
Distinct a row consists of one of each alias too, but its values are its identity: those of a group
Stretches  a row consists of one of an alias, and a stretch of its interval as two more arrays: closed and encoded ends, int64[n]. Its
         identity is the key and the start of the stretch
UnionAll of a view with UNION ALL: a row consists of a row of each alias of one SELECT, with slot -1 for the other aliases
Values   of a view with UNION or EXCEPT: a row is its values, taken from rows of one branch's aliases (the others have slot -1)
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.kinds import SENT_TYPES, sent
from livejoin.wire.schema import RelationDefinition
from service.query.model import GROUP, Output, Query
from service.query.terms import growth
from service.tables.arrow import is_text
from service.tables.inputs import Input
from service.tables.projection import Projection, needed_columns, one_zero, values_schema
from service.views.deltas import Combination, stretches_of

STRETCH = 3  # arrays per row of `Stretches`
NULL_IS_A_VALUE = {b"livejoin.null": b"value"}  # of a column of identities: elsewhere a null there means that the alias is missing
IS_NULL = ".null"  # ends the name of a column of a stored view (`stored.py`): whether the part of the key without it is null
IS_PART = ".flag"  # ends the name of such a column where it is itself a part of a key: of an alias that a row may lack
ROW = "row"  # replaces an alias where the row is its own identity
Definitions = Mapping[str, RelationDefinition]


class ShownColumns(Protocol):
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

    def only(self, columns: Sequence[str]) -> ShownColumns:
        """Return an object for the same rows with these columns, in this order; not for `with_keys`."""


def shown(query: Query, inputs: Sequence[Input], definitions: Definitions) -> ShownColumns:
    if query.distinct:
        return Distinct(query, inputs, definitions)
    if query.stretches is not None:
        return Stretches(query, inputs, definitions)
    if query.united:
        return UnionAll(query, inputs, definitions)
    return Values(query, inputs, definitions) if query.branches else ShownAliases(query, inputs, definitions)


class ShownAliases:
    """See the module docstring."""

    def __init__(self, query: Query, inputs: Sequence[Input], definitions: Definitions) -> None:
        self._query, self._inputs, self._definitions = query, inputs, definitions
        self._projection = Projection(query, definitions)
        self._optional = query.optional
        self.schema = self._projection.schema
        self._grown = _grown(query)
        self._read, self._counted = [input.output for input in inputs], [input.identity for input in inputs]
        self.has_texts = self._may_have_texts()
        self._keys = [
            (input.alias, name, input.relation.definition.column(name).kind)
            for input in inputs
            for name in input.relation.key
            if not name.endswith(IS_NULL) or input.alias in self._optional
        ]

    def rows(self, slots: Combination) -> pa.RecordBatch:
        parts = _taken(self._inputs, self._read, slots, self._optional)
        return self._projected(parts, slots)

    def _projected(self, parts: Mapping[str, pa.RecordBatch], slots: Combination) -> pa.RecordBatch:
        return self._projection.rows(parts, self._missing(slots))

    def only(self, columns: Sequence[str]) -> ShownAliases:
        outputs = {output.name: output for output in self._query.outputs}
        other, query = copy.copy(self), replace(self._query, outputs=tuple(outputs[name] for name in columns))
        other._projection = Projection(query, self._definitions)
        other.schema = other._projection.schema
        other._grown = _grown(query)
        read = [needed_columns(query, input.alias, input.relation.definition) for input in self._inputs]
        if not any(read):  # only constants
            read[0] = self._inputs[0].relation.key
        other._read = other._counted = read
        other.has_texts = other._may_have_texts()
        return other

    def _may_have_texts(self) -> bool:
        return self._grown != (1, 0) or any(_has_texts(input, names) for input, names in zip(self._inputs, self._counted, strict=True))

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        parts = _taken(self._inputs, [input.identity for input in self._inputs], slots, self._optional)
        names = [f"{alias}.{name}{IS_PART if name.endswith((IS_NULL, IS_PART)) else ''}" for alias, name, _ in self._keys]
        columns = [_key(sent(parts[alias].column(name), SENT_TYPES[kind]), name, parts[alias]) for alias, name, kind in self._keys]
        fields = [
            pa.field(name, column.type, metadata=NULL_IS_A_VALUE if of + IS_NULL in parts[alias].schema.names else None)
            for name, column, (alias, of, _) in zip(names, columns, self._keys, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), self._projected(parts, slots)

    def ends(self, slots: Combination) -> pa.RecordBatch:
        """Return, for each interval that overlaps another one, the columns alias.interval.start and alias.interval.end, as in the
        relation's rows; both are null where the alias is missing."""
        names = [list(dict.fromkeys(name for ends in input.ends.values() for name in ends)) for input in self._inputs]
        parts = _taken(self._inputs, names, slots, self._optional)
        columns = {
            f"{input.alias}.{interval}.{end}": sent(
                parts[input.alias].column(name), SENT_TYPES[input.relation.definition.column(name).kind]
            )
            for input in self._inputs
            for interval, ends in input.ends.items()
            for end, name in zip(("start", "end"), ends, strict=True)
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _missing(self, slots: Combination) -> dict[str, npt.NDArray[np.bool_]]:
        return {input.alias: part < 0 for input, part in _of(self._inputs, slots) if input.alias in self._optional}

    def text_bytes(self, slots: Combination) -> npt.NDArray[np.int64]:
        total = np.zeros(len(slots[0]), np.int64)
        for (input, part), names in zip(_of(self._inputs, slots), self._counted, strict=True):
            if input.alias in self._optional:
                there = part >= 0
                total[there] += input.relation.table.text_bytes(names, part[there])
            else:
                total += input.relation.table.text_bytes(names, part)
        times, more = self._grown
        return total if self._grown == (1, 0) else total * times + more


class Distinct(ShownAliases):
    """See the module docstring."""

    def rows(self, slots: Combination) -> pa.RecordBatch:
        rows = super().rows(slots)
        return pa.RecordBatch.from_arrays([one_zero(column) for column in rows.columns], schema=rows.schema)

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        rows = self.rows(slots)
        return pa.RecordBatch.from_arrays(rows.columns, [f"{GROUP}.{name}" for name in rows.schema.names]), rows


class Stretches(ShownAliases):
    """See the module docstring."""

    def __init__(self, query: Query, inputs: Sequence[Input], definitions: Definitions) -> None:
        super().__init__(query, inputs, definitions)
        assert query.stretches is not None
        function, name, of, _ = query.stretches
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


class UnionAll(ShownAliases):
    """See the module docstring."""

    def __init__(self, query: Query, inputs: Sequence[Input], definitions: Definitions) -> None:
        super().__init__(query, inputs, definitions)
        positions = iter(range(len(inputs)))
        owns = [list(islice(positions, len(one.aliases))) for one in query.united]
        self._parts = [
            (own, ShownAliases(one, [inputs[position] for position in own], definitions))
            for own, one in zip(owns, query.united, strict=True)
        ]
        self._set_schema()

    def _set_schema(self) -> None:
        fields = zip(*(part.schema for _, part in self._parts), strict=True)
        self.schema = pa.schema([first.with_nullable(any(one.nullable for one in (first, *others))) for first, *others in fields])

    def rows(self, slots: Combination) -> pa.RecordBatch:
        parts, order = list[pa.RecordBatch](), list[npt.NDArray[np.int64]]()
        for positions, part in self._parts:
            some = np.flatnonzero(np.max([slots[position] for position in positions], axis=0) >= 0)
            if len(some) or not parts:
                rows = part.rows(tuple(slots[position][some] for position in positions))
                parts.append(pa.RecordBatch.from_arrays(rows.columns, schema=self.schema))
                order.append(some)
        return _in_order(parts, order)

    def _projected(self, parts: Mapping[str, pa.RecordBatch], slots: Combination) -> pa.RecordBatch:
        return self.rows(slots)

    def only(self, columns: Sequence[str]) -> UnionAll:
        other = copy.copy(self)
        other._parts = [(own, part.only(columns)) for own, part in self._parts]
        other._set_schema()
        return other


class Values:
    """See the module docstring."""

    def __init__(self, query: Query, inputs: Sequence[Input], definitions: Definitions) -> None:
        self.schema = values_schema(query, definitions)
        positions = iter(range(len(inputs)))
        self._branches = [([next(positions) for _ in range(branch.aliases)], branch.columns) for branch in query.branches]
        self._inputs = inputs
        self.has_texts = any(_has_texts(input, input.output) for input in inputs)

    def rows(self, slots: Combination) -> pa.RecordBatch:
        parts, order = list[pa.RecordBatch](), list[npt.NDArray[np.int64]]()
        for positions, columns in self._branches:
            some = np.flatnonzero(slots[positions[0]] >= 0)
            if len(some) or not parts:
                inputs = [self._inputs[position] for position in positions]
                rows = _taken(inputs, [input.output for input in inputs], [slots[position][some] for position in positions])
                values = [one_zero(rows[ref.alias].column(ref.column)) for ref in columns]
                arrays = [sent(column, wanted) for column, wanted in zip(values, self.schema.types, strict=True)]
                parts.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
                order.append(some)
        return _in_order(parts, order)

    def only(self, columns: Sequence[str]) -> Values:
        other, positions = copy.copy(self), [self.schema.get_field_index(name) for name in columns]
        other.schema = pa.schema([self.schema.field(position) for position in positions])
        other._branches = [(own, tuple(refs[position] for position in positions)) for own, refs in self._branches]
        return other

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        rows = self.rows(slots)
        return pa.RecordBatch.from_arrays(rows.columns, [f"{ROW}.{name}" for name in rows.schema.names]), rows

    def text_bytes(self, slots: Combination) -> npt.NDArray[np.int64]:
        total = np.zeros(len(slots[0]), np.int64)
        for positions, _ in self._branches:
            some = np.flatnonzero(slots[positions[0]] >= 0)
            for position in positions:
                input = self._inputs[position]
                total[some] += input.relation.table.text_bytes(input.output, slots[position][some])
        return total


def _in_order(parts: Sequence[pa.RecordBatch], positions: Sequence[npt.NDArray[np.int64]]) -> pa.RecordBatch:
    """Concatenate batches whose rows have these positions in the result."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate(positions))
    return pa.concat_batches(parts).take(pa.array(order))


def _key(column: pa.Array, name: str, of: pa.RecordBatch) -> pa.Array:
    """Return a part of a key, null where a flag says so."""
    flag = name + IS_NULL
    return pc.if_else(of.column(flag), pa.scalar(None, column.type), column) if flag in of.schema.names else column


def _grown(query: Query) -> tuple[int, int]:
    """What computed texts add to those that are read: a factor, and a number of bytes, per row."""
    grown = [growth(output.term) for output in query.outputs if output.term is not None]
    return 1 + sum(times for times, _ in grown), sum(more for _, more in grown)


def _taken(
    inputs: Sequence[Input], names: Sequence[Sequence[str]], slots: Sequence[npt.NDArray[np.int32]], optional: Collection[str] = ()
) -> dict[str, pa.RecordBatch]:
    """The columns of the aliases that are read. `optional`: aliases that may be missing; all their columns are null then."""
    return {
        input.alias: (_taken_if_there if input.alias in optional else _take)(input, own, part)
        for (input, part), own in zip(_of(inputs, slots), names, strict=True)
        if own
    }


def _has_texts(input: Input, names: Sequence[str]) -> bool:
    return any(is_text(input.relation.schema.field(name).type) for name in names)


def _of(inputs: Sequence[Input], slots: Sequence[npt.NDArray[np.int32]]) -> list[tuple[Input, npt.NDArray[np.int32]]]:
    """Pair each side with its slots, which come first in a row."""
    return list(zip(inputs, slots[: len(inputs)], strict=True))


def _take(input: Input, names: Sequence[str], slots: npt.NDArray[np.int32]) -> pa.RecordBatch:
    return input.relation.table.take(names, slots)


def _taken_if_there(input: Input, names: Sequence[str], slots: npt.NDArray[np.int32]) -> pa.RecordBatch:
    there = slots >= 0
    rows = _take(input, names, slots[there])
    columns: list[pa.Array] = rows.columns
    if not there.all():
        at = pa.array(np.cumsum(there) - 1, mask=~there)
        columns = [column.take(at) for column in columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in rows.schema]))

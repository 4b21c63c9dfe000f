"""How a view's rows look, made from slots: values, identities, bytes of text.

    Parts    a row is a row of each alias, and their keys are its identity
    Values   of a view with UNION or EXCEPT: a row is its values, shown by rows of one branch's aliases (the others have slot -1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.query.model import Query
from service.tables.projection import Projection, one_zero, values_schema
from service.tables.sides import Side
from service.views.deltas import Combination
from service.wire.kinds import SENT_TYPES, sent
from service.wire.schema import RelationDefinition

ROW = "row"  # in place of an alias, where the row is its own identity
Definitions = Mapping[str, RelationDefinition]


class Shown(Protocol):
    """Any thread; slots that a pinned version (or an unsettled delta) keeps."""

    schema: pa.Schema

    def rows(self, slots: Combination) -> pa.RecordBatch:
        """The view's rows. Cost: a gather for each column."""

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The identities (columns named alias.column) and the rows."""

    def text_bytes(self, slots: Combination) -> npt.NDArray[np.int64]:
        """int64[n]: the bytes of text that `with_keys` copies for each row."""


def shown(query: Query, sides: Sequence[Side], definitions: Definitions) -> Shown:
    return Values(query, sides, definitions) if query.branches else Parts(query, sides, definitions)


class Parts:
    """See the module's head."""

    def __init__(self, query: Query, sides: Sequence[Side], definitions: Definitions) -> None:
        self._projection, self._sides = Projection(query, definitions), sides
        self.schema = self._projection.schema

    def rows(self, slots: Combination) -> pa.RecordBatch:
        return self._projection.rows(_taken(self._sides, [side.output for side in self._sides], slots))

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        parts = _taken(self._sides, [side.identity for side in self._sides], slots)
        names = [f"{side.alias}.{name}" for side in self._sides for name in side.relation.key]
        kinds = [side.relation.definition.column(name).kind for side in self._sides for name in side.relation.key]
        columns = [parts[side.alias].column(name) for side in self._sides for name in side.relation.key]
        columns = [sent(column, SENT_TYPES[kind]) for column, kind in zip(columns, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names), self._projection.rows(parts)

    def text_bytes(self, slots: Combination) -> npt.NDArray[np.int64]:
        total = np.zeros(len(slots[0]), np.int64)
        for side, part in zip(self._sides, slots, strict=True):
            total += side.relation.table.text_bytes(side.identity, part)
        return total


class Values:
    """See the module's head."""

    def __init__(self, query: Query, sides: Sequence[Side], definitions: Definitions) -> None:
        self.schema = values_schema(query, definitions)
        places = iter(range(len(sides)))
        self._branches = [([next(places) for _ in range(branch.aliases)], branch.columns) for branch in query.branches]
        self._sides = sides

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


def _taken(sides: Sequence[Side], names: Sequence[Sequence[str]], slots: Sequence[npt.NDArray[np.int32]]) -> dict[str, pa.RecordBatch]:
    return {side.alias: side.relation.table.take(own, part) for side, own, part in zip(sides, names, slots, strict=True)}

"""Make rows of the merged runs of groups: the columns of a group by its code, and the ends of the run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.query.model import GROUP, Output, Query
from service.tables.inputs import Input
from service.tables.projection import Projection
from service.views.deltas import Combination, stretches_of
from service.views.shown import NULL_IS_A_VALUE, Definitions
from service.views.stages.columns import Columns

_ENDS = ("start", "end")


class KeyStretches:
    """See the module docstring; as `Shown`, any thread. A row: its code, and the ends of the run, closed and encoded."""

    def __init__(self, query: Query, inputs: Sequence[Input], definitions: Definitions) -> None:
        assert query.groups is not None and query.stretches is not None
        self._groups = query.groups
        self.columns = Columns(query, inputs, definitions)
        function, self._name, of, _ = query.stretches
        ends = tuple(Output(f"{self._name}_{end}", f"{function}_{end}", None, (of,)) for end in _ENDS)
        self._ends = Projection(replace(query, outputs=ends), definitions)
        self.schema = self._schema()

    def _schema(self) -> pa.Schema:
        fields = []
        for output in self._groups.outputs:
            if output.kind == GROUP:
                fields.append(self.columns.now.field(self._groups.columns[output.position].of).with_name(output.name))
            else:
                fields.append(self._ends.schema.field(output.position).with_name(output.name))
        return pa.schema(fields)

    def follow(self, definitions: Definitions) -> None:
        """Adopt the present definitions of the relations."""
        self.columns.follow(definitions)
        self.schema = self._schema()

    def rows(self, slots: Combination) -> pa.RecordBatch:
        """Return the view's rows. Cost: a gather per column."""
        return self._rows(self._keys(slots), self._stretches(slots))

    def only(self, columns: Sequence[str]) -> KeyStretches:
        outputs = {output.name: output for output in self._groups.outputs}
        other = copy.copy(self)
        other._groups = self._groups._replace(outputs=tuple(outputs[name] for name in columns))
        other.schema = other._schema()
        return other

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the identities (columns named group.column, and the start of the run) and the rows."""
        keys, ends = self._keys(slots), self._stretches(slots)
        start = ends.schema.field(0).with_name(f"{self._name}.start").with_metadata(NULL_IS_A_VALUE)
        named = zip(self._groups.columns, keys.schema.types, strict=True)
        schema = pa.schema([*(pa.field(f"{GROUP}.{one.name}", type_) for one, type_ in named), start])
        return pa.RecordBatch.from_arrays([*keys.columns, ends.column(0)], schema=schema), self._rows(keys, ends)

    @property
    def has_texts(self) -> bool:
        return self.columns.has_texts

    def text_bytes(self, slots: Combination) -> npt.NDArray[np.int64]:
        """int64[n]: the bytes of text that `with_keys` copies per row."""
        return self.columns.text_bytes(slots[0])

    def _keys(self, slots: Combination) -> pa.RecordBatch:
        return self.columns.keys(slots[0], [str(index) for index in range(len(self._groups.columns))])

    def _stretches(self, slots: Combination) -> pa.RecordBatch:
        return self._ends.rows({}, stretches=stretches_of(slots))

    def _rows(self, keys: pa.RecordBatch, ends: pa.RecordBatch) -> pa.RecordBatch:
        columns = [(keys if output.kind == GROUP else ends).column(output.position) for output in self._groups.outputs]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

"""The first rows in an order that a reader asks for: a view has none, so all of its rows are read, and those that are first so far kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.wording import instead
from service.errors import bad_parameter
from service.views.deltas import Combination

MOST_FIRST = 10_000
_ITEM = re.compile(r'\s*(?:"([^"]*)"|([^",]*?))(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*(,|$)', re.IGNORECASE)


class OrderKey(NamedTuple):
    """A column to order by, with the defaults of PostgreSQL: null is the greatest value, and NaN the greatest but null."""

    column: str
    descending: bool
    nulls_first: bool


def parse_order(text: str, schema: pa.Schema) -> list[OrderKey]:
    """Parse `price desc, "some column" nulls first`. Problem `bad-parameter` for other texts, and for columns that do not exist."""
    keys, start = list[OrderKey](), 0
    while True:
        item = _ITEM.match(text, start)
        if item is None:
            raise bad_parameter("order", "must be columns, each with asc or desc and nulls first or nulls last, separated by commas")
        quoted, plain, direction, nulls, comma = item.groups()
        name, descending = plain if quoted is None else quoted, (direction or "asc").lower() == "desc"
        if name not in schema.names:
            raise bad_parameter("order", f"there is no column {name!r}{instead(name, schema.names)}")
        keys.append(OrderKey(name, descending, descending if nulls is None else nulls.lower() == "first"))
        start = item.end()
        if not comma:
            return keys


class FirstRows:
    """The first `count` >= 1 of the rows that are added, by their slots; of equal ones those that were added first. Memory: that of `count`
    rows and of those added last."""

    def __init__(self, keys: Sequence[OrderKey], count: int) -> None:
        self._keys, self._count = keys, count
        self._kept: tuple[Combination, pa.Table] | None = None
        self.added = 0

    @property
    def columns(self) -> list[str]:
        """What `add` needs of a row."""
        return list(dict.fromkeys(key.column for key in self._keys))

    def add(self, slots: Combination, rows: pa.RecordBatch) -> None:
        """`rows`: of these slots, with `columns`. Cost: to sort them and those kept."""
        self.added += rows.num_rows
        values = pa.table(list(self._comparable(rows)), names=[str(at) for at in range(3 * len(self._keys))])
        if self._kept is not None:
            before, known = self._kept
            slots, values = tuple(map(np.concatenate, zip(before, slots, strict=True))), pa.concat_tables([known, values])
        order = [(str(at), "descending" if backwards else "ascending") for at, backwards in enumerate(self._directions())]
        chosen = pc.sort_indices(values, sort_keys=order)[: self._count]
        self._kept = tuple(part[chosen.to_numpy()] for part in slots), values.take(chosen).combine_chunks()

    def slots(self) -> Combination | None:
        """Return the rows that are kept, in order; None if there are none."""
        return None if self._kept is None else self._kept[0]

    def _comparable(self, rows: pa.RecordBatch) -> Iterator[pa.Array]:
        """Yield three columns for each key: whether it is null, whether it is NaN, and its value: Arrow puts nulls and NaN last in either
        direction."""
        for key in self._keys:
            column = rows.column(key.column)
            column = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
            yield pc.is_null(column).cast(pa.int8())
            is_nan = pc.is_nan(column) if pa.types.is_floating(column.type) else pa.repeat(False, len(column))
            yield is_nan.fill_null(False).cast(pa.int8())
            yield pc.if_else(is_nan, 0.0, column) if pa.types.is_floating(column.type) else column

    def _directions(self) -> Iterator[bool]:
        """Yield which of these columns are in descending order."""
        for key in self._keys:
            yield from (key.nulls_first, key.descending, key.descending)

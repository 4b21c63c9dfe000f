"""Which quadtrees a natural join needs, and what its aliases contribute to them.

Aliases with the same tuples share their trees: the same relation, columns and filters. Beside the plain tree of an atom, there is one for
each proper, non-empty subset of its variables that another atom shares: a changed row of that atom gives them values, and the rest is
looked up (`structures.qdag.qdag`). A tree's coordinates are codes of domains: variables that share a column of a relation share one.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.planning.hypergraph import Attribute
from service.tables.arrow import is_text, null_mask
from service.tables.changes import DELETE, ENTER, INSERT, LEAVE, DividedRun, in_order
from service.tables.domains import Domain
from service.tables.inputs import Input
from service.tables.resolution import Slots
from structures.qdag.run import STEP_DELETE, STEP_ENTER, STEP_INSERT, STEP_LEAVE

Entries = npt.NDArray[np.int32]

_STEPS = np.array([STEP_LEAVE, STEP_ENTER, STEP_DELETE, STEP_INSERT])  # by kind of change


class Keys(NamedTuple):
    """A domain, and for each column of its keys whether null is a value there: then a bool column for null precedes it."""

    domain: Domain
    nulls: tuple[bool, ...]

    @classmethod
    def of_types(cls, types: Sequence[pa.DataType], nulls: Sequence[bool]) -> Keys:
        columns = [part for type_, null in zip(types, nulls, strict=True) for part in ([pa.bool_(), type_] if null else [type_])]
        return cls(Domain(columns), tuple(nulls))

    def keyed(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return these columns in the form of the domain; a null that is not a value of the domain remains null."""
        parts: list[pa.Array] = []
        for column, null in zip(columns, self.nulls, strict=True):
            if null:
                parts.append(column.is_null())
                column = pc.fill_null(column, _some(column.type)) if column.null_count else column
            parts.append(column)
        return pa.RecordBatch.from_arrays(parts, [str(at) for at in range(len(parts))])


def _some(type_: pa.DataType) -> pa.Scalar:
    if is_text(type_):
        return pa.scalar("", type_)
    return pa.scalar(0, pa.int32() if pa.types.is_date32(type_) else pa.int64()).cast(type_)


class Base:
    """A set of tuples: rows of a side, as codes of its attributes and a slot. A row with a null in them takes no part, unless null is a
    value of the variable here."""

    def __init__(self, input: Input, attributes: Sequence[Attribute], keys: Sequence[Keys], nulls: Set[int]) -> None:
        """`keys` by variable; `nulls`: variables for which null is a value here."""
        self.input, self._attributes = input, list(attributes)
        self._keys = [keys[one.variable] for one in attributes]
        self.domains = [one.domain for one in self._keys]
        self._columns = _columns(attributes)
        self._never_null = _columns([one for one in attributes if one.variable not in nulls])

    @property
    def most_code(self) -> int:
        """An upper bound of the codes of its values."""
        return max(domain.codes for domain in self.domains)

    def entries(self, slots: Slots, version: int, inserted: bool) -> tuple[Entries, npt.NDArray[np.int64]]:
        """int32[n, k + 1] of the rows at these slots that take part, and their indices. `inserted`: their codes gain a reference."""
        parts, indices, start = [], [], 0
        for some, rows in self.input.relation.table.take_pieces(self._columns, slots):
            codes, kept = self._codes(rows, self.input.selected(some), version, inserted)
            parts.append(np.column_stack((codes, some[kept])))
            indices.append(kept + start)
            start += len(some)
        return (parts[0], indices[0]) if len(parts) == 1 else (np.concatenate(parts), np.concatenate(indices))

    def _codes(
        self, rows: pa.RecordBatch, chosen: npt.NDArray[np.int64] | None, version: int, inserted: bool
    ) -> tuple[Entries, npt.NDArray[np.int64]]:
        kept = np.arange(len(rows)) if chosen is None else chosen
        for name in self._never_null:
            nulls = null_mask(rows.column(name))
            if nulls is not None:
                kept = kept[~nulls[kept]]
        if len(kept) < len(rows):
            rows = rows.take(pa.array(kept))
        codes = np.empty((len(rows), len(self._attributes)), np.int32)
        agree = np.ones(len(rows), np.bool_)
        for j, (one, keys) in enumerate(zip(self._attributes, self._keys, strict=True)):
            codes[:, j] = (keys.domain.acquire if inserted else keys.domain.look_up)(_keyed(keys, rows, one.columns))
            for choice in one.same:
                agree &= keys.domain.look_up(_keyed(keys, rows, choice)) == codes[:, j]
        agree &= (codes >= 0).all(axis=1)
        if agree.all():
            return codes, kept
        if inserted:
            self.release(codes[~agree], version)
        return codes[agree], kept[agree]

    def release(self, codes: Entries, version: int) -> None:
        """Drop the references of rows with these codes (further columns are ignored)."""
        for j, domain in enumerate(self.domains):
            domain.release(codes[:, j], version)

    def code_of(self, key: pa.RecordBatch) -> list[int] | None:
        """Return the codes of one row; None: no row has them."""
        found = []
        for one, keys in zip(self._attributes, self._keys, strict=True):
            codes = {int(keys.domain.look_up(_keyed(keys, key, choice))[0]) for choice in (one.columns, *one.same)}
            if len(codes) > 1 or min(codes) < 0:
                return None
            found.append(codes.pop())
        return found


def _columns(attributes: Sequence[Attribute]) -> list[str]:
    return list(dict.fromkeys(name for one in attributes for choice in (one.columns, *one.same) for name in choice))


def _keyed(keys: Keys, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return these columns; a name may occur twice."""
    return keys.keyed([rows.column(name) for name in names])


class RunSteps:
    """Changes of several versions as steps of `structures.qdag.run`."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, npt.NDArray[np.int64]]] = []  # kinds, offsets of the versions
        self._positions: list[npt.NDArray[np.int64]] = []  # int64[n, 2]: the base of each entry, and where it begins
        self._entries: list[Entries] = []
        self._words = 0

    def add(self, index: int, base: Base, part: DividedRun, version: int) -> Entries:
        """Add the steps of one base; return the entries that are deleted."""
        offsets, before, after = part.moved
        entries, kept = self._take(base, after, version, False)
        old = entries.copy()
        old[:, -1] = before[kept]
        self._put(index, LEAVE, offsets[kept], old)
        self._put(index, ENTER, offsets[kept], entries)
        deleted, kept = self._take(base, part.deleted.old, version, False)
        self._put(index, DELETE, part.deleted.offsets[kept], deleted)
        entries, kept = self._take(base, part.inserted.new, version, True)
        self._put(index, INSERT, part.inserted.offsets[kept], entries)
        return deleted

    @staticmethod
    def _take(base: Base, slots: Slots, version: int, inserted: bool) -> tuple[Entries, npt.NDArray[np.int64]]:
        if not len(slots):
            return np.empty((0, len(base.domains) + 1), np.int32), np.empty(0, np.int64)
        return base.entries(slots, version, inserted)

    def _put(self, index: int, kind: int, offsets: npt.NDArray[np.int64], entries: Entries) -> None:
        n, width = entries.shape
        self._parts.append((kind, offsets))
        self._positions.append(np.column_stack((np.full(n, index), self._words + width * np.arange(n))))
        self._entries.append(entries.reshape(-1))
        self._words += n * width

    def in_order(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return the steps, and their entries."""
        if not self._parts:
            return np.empty((0, 4), np.int64), np.empty(0, np.int32)
        found = in_order(self._parts)
        steps = np.column_stack((found.offsets, _STEPS[found.kinds], np.concatenate(self._positions)[found.order]))
        return np.ascontiguousarray(steps, np.int64), np.concatenate(self._entries).astype(np.int32, copy=False)

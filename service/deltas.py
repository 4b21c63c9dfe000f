"""The difference of a view between two versions, as slots; and what cancels in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.endpoints import numbers
from service.resolution import NO_SLOTS, Slots

Combination = tuple[Slots, ...]
"""Rows of a view as slots: one array an alias, equally long."""

_FLOOR = 100_000


class Delta(NamedTuple):
    """Deleted rows by the slots that version - 1 sees, inserted ones by those that `version` sees (a row whose change the view
    does not use stands by its new slot in both). `too_large`: there is more than the feed may keep, and nothing is here."""

    version: int
    deletes: Combination
    inserts: Combination
    too_large: bool = False

    @property
    def rows(self) -> int:
        return len(self.deletes[0]) + len(self.inserts[0])


class Collector:
    """The structure's sink: gathers delta rows up to a bound, each sign by itself.

    The bound counts candidates before they cancel: twice what the feed keeps, and at least 100,000.
    """

    def __init__(self, retain_rows: int, shaped: Callable[[Slots, Slots], Combination]) -> None:
        self._limit = max(2 * retain_rows, _FLOOR)
        self._shaped = shaped
        self._parts: dict[bool, list[Combination]] = {False: [], True: []}
        self._counts = {False: 0, True: 0}
        self.too_large = False

    def __call__(self, sign: int, slots0: Slots, slots1: Slots) -> bool:
        part = self._shaped(slots0, slots1)
        inserted = sign > 0
        self._counts[inserted] += len(part[0])
        if self._counts[inserted] > self._limit:
            self.too_large = True
            return False
        if len(part[0]):
            self._parts[inserted].append(part)
        return True

    def rows(self, inserted: bool, aliases: int) -> Combination:
        parts = self._parts[inserted]
        if not parts:
            return (NO_SLOTS,) * aliases
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(slots) for slots in zip(*parts, strict=True))


class Moved(NamedTuple):
    """Of one alias: rows that were replaced, as pairs of old and new slots, sorted by the old ones."""

    old: Slots
    new: Slots

    def apply(self, slots: Slots) -> Slots:
        """Each slot, or the one that has taken its place."""
        if len(self.old) == 0:
            return slots
        places = np.minimum(np.searchsorted(self.old, slots), len(self.old) - 1)
        return np.where(self.old[places] == slots, self.new[places], slots)


def cancel(
    deletes: Combination, inserts: Combination, moved: Sequence[Moved], values: Callable[[Combination], pa.RecordBatch]
) -> tuple[Combination, Combination]:
    """Without the rows that are deleted and inserted with equal identity and equal values. Cost: a sort, and a gather of the candidates.

    A deleted row comes back, by identity, as the row whose slots took the places of its own.
    """
    if len(deletes[0]) == 0 or len(inserts[0]) == 0 or not any(len(m.old) for m in moved):
        return deletes, inserts
    back = _one_number(tuple(m.apply(slots) for m, slots in zip(moved, deletes, strict=True)))
    _, of_deletes, of_inserts = np.intersect1d(back, _one_number(inserts), assume_unique=True, return_indices=True)
    if len(of_deletes) == 0:
        return deletes, inserts
    before = values(tuple(slots[of_deletes] for slots in deletes))
    after = values(tuple(slots[of_inserts] for slots in inserts))
    equal = equal_rows(before, after)
    deletes = tuple(np.delete(slots, of_deletes[equal]) for slots in deletes)
    inserts = tuple(np.delete(slots, of_inserts[equal]) for slots in inserts)
    return deletes, inserts


def _one_number(slots: Combination) -> npt.NDArray[np.int64]:
    result = slots[0].astype(np.int64)
    for more in slots[1:]:
        result = (result << 32) | more
    return result


def equal_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """bool[n]: rows that look alike in every column; null equals null, NaN the same NaN, 0.0 not -0.0."""
    equal = np.ones(left.num_rows, np.bool_)
    for x, y in zip(left.columns, right.columns, strict=True):
        if pa.types.is_floating(x.type):
            x, y = _bits(x), _bits(y)
        same = np.asarray(pc.fill_null(pc.equal(x, y), False))
        if x.null_count and y.null_count:
            same = same | (np.asarray(x.is_null()) & np.asarray(y.is_null()))
        equal &= same
    return equal


def _bits(column: pa.Array) -> pa.Array:
    mask = np.asarray(column.is_null()) if column.null_count else None
    return pa.array(numbers(column).view(np.int64), mask=mask)

"""The difference of a view between one version and the next, as slots; who takes deltas, and the rows that they are made of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.errors import Problem
from service.tables.endpoints import TEXT_OR_BOOL, numbers
from service.tables.masks import Mask
from service.tables.resolution import Indices, Slots
from service.tables.sides import Side
from service.tables.store import pieces
from structures.core.runs import Deltas
from structures.netting.merging import merged

Combination = tuple[Slots, ...]
"""Rows of a view as slots: one array an alias, equally long; of gaps and coverage two more behind it, int64 (`shown.Stretches`)."""

_FLOOR = 100_000
UNBOUNDED = 1 << 60  # the limit of a sink that takes all rows of a change


class Delta(NamedTuple):
    """What some versions change in a view, one after another: `slots` has the rows of each, from where it starts on, the deleted ones
    first, by the slots that the version before sees, then the inserted ones, by those that it sees itself (a row whose change the view does
    not use stands by its new slot in both). starts: also how many rows there are. deletes: how many are deleted. cut: the last version that
    changes more than the feed may keep, of which nothing is here, nor of those before it; -1: there is none. rest: nothing is here yet; it
    reads the delta, which may take long (None: there is none)."""

    versions: list[int]
    starts: list[int]
    deletes: list[int]
    slots: Combination
    cut: int = -1
    rest: Callable[[], Delta | None] | None = None

    @property
    def rows(self) -> int:
        return self.starts[-1]

    def part(self, first: int, end: int) -> Delta:
        """Of the versions number first to end (excluded)."""
        if first == 0 and end == len(self.versions):
            return self
        low, high = self.starts[first], self.starts[end]
        starts = [start - low for start in self.starts[first : end + 1]]
        return Delta(self.versions[first:end], starts, self.deletes[first:end], tuple(slots[low:high] for slots in self.slots))


def too_large(version: int) -> Delta:
    """Of a version that changes more than the feed may keep."""
    return Delta([], [0], [], (), version)


class Stored(NamedTuple):
    """Deltas in a file, as a feed writes and reads them."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


class DeltaSink(Protocol):
    """Where a view's deltas go: its feed, as the writer knows it."""

    def append(self, delta: Delta) -> None:
        """Take the changes of versions that are about to be published, all at once, or are already."""

    def wake(self) -> None:
        """It is published: tell the followers."""

    def housekeep(self, published: int, everything: bool) -> bool:
        """Let go of old slots, or of all: a piece of it; whether there is more."""
        ...

    def stored(self, version: int) -> Stored:
        """What it keeps of the changes up to a published version, for a snapshot of it. Any thread: takes as long as settling all."""
        ...

    def restart(self, version: int) -> None:
        """Keep nothing up to this version, the published one: what is appended follows it."""

    @property
    def has_little_to_settle(self) -> bool:
        """Whether `append` waits for no long work."""

    def floor(self) -> int | None:
        """The oldest version whose slots it still reads, if any."""

    @property
    def told(self) -> int:
        """Rows of the view that went or came, since it is followed here."""

    @property
    def kept_rows(self) -> int:
        """Those of them that followers can still have."""

    @property
    def subscribers(self) -> int: ...

    @property
    def lag(self) -> int:
        """Versions that the slowest of them is behind."""

    @property
    def bytes(self) -> int:
        """Memory of the rows that are kept and settled."""

    def close(self, problem: Problem) -> None:
        """No more comes: the followers end with this problem."""


def most_candidates(retain_rows: int) -> int:
    """How many rows of one sign are gathered, before they cancel, for a feed that keeps so many."""
    return max(2 * retain_rows, _FLOOR)


def delta_of(
    first: int, gone: tuple[Indices, Combination], come: tuple[Indices, Combination], most: int, too_many: Collection[int]
) -> Delta | None:
    """Of rows with the numbers of their versions, which ascend; `first`: version number 0. `most`: rows of a version that are kept;
    `too_many`: versions of which some are not here because they have more. None: there is nothing."""
    every = merged(gone[0], come[0])
    slots = tuple(np.concatenate(both)[every.order] for both in zip(gone[1], come[1], strict=True))
    if len(every.order) > most:
        too_many = {*too_many, *every.versions[np.diff(every.starts) > most].tolist()}
    delta = Delta((first + every.versions).tolist(), every.starts.tolist(), every.deletes.tolist(), slots)
    if too_many:
        cut = first + max(too_many)
        return delta.part(bisect_right(delta.versions, cut), len(delta.versions))._replace(cut=cut)
    return delta if delta.rows else None


def joined(deltas: Sequence[Delta]) -> Delta:
    """Of all their versions, which ascend."""
    if len(deltas) == 1:
        return deltas[0]
    starts = [0]
    for delta in deltas:
        starts += [starts[-1] + start for start in delta.starts[1:]]
    versions, deletes = ([*chain.from_iterable(of)] for of in zip(*((delta.versions, delta.deletes) for delta in deltas), strict=True))
    return Delta(versions, starts, deletes, tuple(map(np.concatenate, zip(*(delta.slots for delta in deltas), strict=True))))


def stretches_of(rows: Combination) -> tuple[Indices, Indices]:
    """The ends of the stretches of these rows."""
    _, starts, ends = cast(tuple[Slots, Indices, Indices], rows)
    return starts, ends


def look_alike(
    before: Combination, after: Combination, values: Callable[[Combination], pa.RecordBatch], text_bytes: Callable[[Combination], Indices]
) -> Mask:
    """bool[n]: whether these rows, in pairs, have equal values. Cost: a gather of both, in pieces."""
    equal = np.empty(len(before[0]), np.bool_)
    for part in pieces(text_bytes(before) + text_bytes(after)):
        equal[part] = equal_rows(values(tuple(slots[part] for slots in before)), values(tuple(slots[part] for slots in after)))
    return equal


def agree(before: Combination, after: Combination, sides: Sequence[Side]) -> Mask:
    """bool[n]: whether these rows, in pairs, consist of rows that agree in all that is read of them: then they look alike. Cost: O(1) a
    column and pair."""
    agreed = np.ones(len(before[0]), np.bool_)
    for side, old, new in zip(sides, before, after, strict=False):  # of stretches the two arrays behind are the same
        moved = np.flatnonzero(old != new)
        if len(moved):
            agreed[moved] &= side.relation.table.same(side.output, old[moved], new[moved])
    return agreed


def equal_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """bool[n]: rows that look alike in every column; null equals null, NaN the same NaN, 0.0 not -0.0."""
    equal = np.ones(left.num_rows, np.bool_)
    for x, y in zip(left.columns, right.columns, strict=True):
        if x.type in TEXT_OR_BOOL or pa.types.is_decimal(x.type):
            same = np.asarray(pc.fill_null(pc.equal(x, y), False))
        else:
            same = _bits(x) == _bits(y)
        if x.null_count or y.null_count:
            no_x, no_y = np.asarray(x.is_null()), np.asarray(y.is_null())
            same = (same & ~(no_x | no_y)) | (no_x & no_y)
        equal &= same
        if not equal.any():
            break
    return equal


def _bits(column: pa.Array) -> npt.NDArray[np.generic]:
    values = numbers(column)
    return values.view(np.int64) if values.dtype == np.float64 else values


class Sink(Protocol):
    """Takes the rows that a run deletes or inserts: a row goes once it is there, and comes once what it replaces has gone."""

    limit: int
    """Rows of one change: of more, none need be told (`exceeded`)."""

    def __call__(self, offset: int, inserted: bool, rows: Combination, /) -> bool:
        """Take some rows of version number `offset`. False: no more of this version are wanted."""

    def several(self, offsets: Indices, come: Mask, rows: Combination, /) -> None:
        """Take rows of any versions, or none. Of each the number of its version, and whether it is inserted."""

    def exceeded(self, offset: int, /) -> None:
        """Version number `offset` has more than `limit` rows."""


def told_rows(sink: Sink, offsets: Indices, deltas: Deltas) -> tuple[Indices, npt.NDArray[np.int32]]:
    """What a structure reports of the changes of a run: of each row the number of its change, and the rows, an array a line. What is too
    large is told already. `offsets`: int64[n], the numbers of the changes' versions."""
    for offset in set(offsets[deltas.too_large].tolist()):
        sink.exceeded(offset)
    return told_by(deltas)


def told_by(deltas: Deltas) -> tuple[Indices, npt.NDArray[Any]]:
    """Of each row that is told, one change after another: the number of the change; and the rows, an array a line."""
    lengths = deltas.ends - deltas.starts
    changes = np.repeat(np.arange(len(lengths)), lengths)
    if not deltas.too_large.any():  # else there are some between that are not told
        return changes, deltas.rows
    places = np.repeat(deltas.starts - np.cumsum(lengths) + lengths, lengths) + np.arange(len(changes))
    return changes, deltas.rows[:, places]


def tell_slots(sink: Sink, offsets: Indices, slots: Slots) -> None:
    """Tell rows of one alias, of each version those that go first. ~slot: it goes."""
    come = slots >= 0
    order = np.lexsort((come, offsets))
    slots, come = slots[order], come[order]
    sink.several(offsets[order], come, (np.where(come, slots, ~slots),))

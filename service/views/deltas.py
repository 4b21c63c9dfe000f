"""The difference of a view between successive versions, as slots; the sinks that take deltas, and the rows that deltas are made of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.errors import Problem
from service.tables.endpoints import equal_rows
from service.tables.inputs import Input
from service.tables.masks import Mask
from service.tables.resolution import Indices, Slots
from service.tables.store import pieces
from structures.core.runs import Deltas
from structures.netting.merging import merged

Combination = tuple[Slots, ...]
"""Rows of a view as slots: one array an alias, equally long; of gaps and coverage two more behind it, int64 (`shown.Stretches`)."""

_FLOOR = 100_000
UNBOUNDED = 1 << 60  # the limit of a sink that takes all rows


class Later(Protocol):
    """A delta whose rows are yet to be read. Any thread."""

    def read(self) -> Delta | SettledDelta | None:
        """Return the delta; None: nothing has changed. Once."""

    def close(self) -> None:
        """Release what it holds: nobody wants the delta. A second call does nothing."""


class Delta(NamedTuple):
    """The changes of a view in successive versions. `slots` has the rows of each version, from its start on: first the deleted rows, by the
    slots that the version before sees, then the inserted ones, by the slots that the version sees itself (a row whose change the view does
    not use has its new slot in both). starts: one more than versions, the last is the number of rows. deletes: how many are deleted. cut:
    the last version that changes more than the feed may keep; it and all before are left out; -1: there is none.
    later: reads the rows of its only version, which are none until then."""

    versions: list[int]
    starts: list[int]
    deletes: list[int]
    slots: Combination
    cut: int = -1
    later: Later | None = None

    @property
    def rows(self) -> int:
        return self.starts[-1]

    def part(self, first: int, end: int) -> Delta:
        """Return the versions from index first up to end (excluded)."""
        if first == 0 and end == len(self.versions):
            return self
        low, high = self.starts[first], self.starts[end]
        starts = [start - low for start in self.starts[first : end + 1]]
        return Delta(self.versions[first:end], starts, self.deletes[first:end], tuple(slots[low:high] for slots in self.slots))


class SettledDelta(NamedTuple):
    """The changes of a view in one version, by value: first the deleted rows, then the inserted ones."""

    version: int
    deletes: int
    keys: pa.RecordBatch
    rows: pa.RecordBatch


def too_large(version: int) -> Delta:
    """Return the delta of a version that changes more than the feed may keep."""
    return Delta([], [0], [], (), version)


def to_read(version: int, later: Later) -> Delta:
    """Return the delta of a version whose rows are yet to be read."""
    return Delta([version], [0, 0], [0], (), -1, later)


class StoredDeltas(NamedTuple):
    """Deltas in a file, as a feed writes and reads them."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


class DeltaSink(Protocol):
    """The destination of a view's deltas: its feed, as the writer sees it."""

    def append(self, delta: Delta) -> None:
        """Take the changes of versions that will be published together, or are published already."""

    def wake(self) -> None:
        """Notify the followers after publication."""

    def housekeep(self, published: int, everything: bool) -> bool:
        """Release old slots, or all, a piece at a time; return whether there is more."""
        ...

    def settle(self) -> None:
        """Read and convert all published changes. Any thread."""

    def stored(self, version: int) -> StoredDeltas:
        """Return the retained changes up to a published version, for a snapshot of it. Any thread; takes as long as settling all of
        them."""
        ...

    def hand_over(
        self, gather: Callable[[Combination], tuple[pa.RecordBatch, pa.RecordBatch]], text_bytes: Callable[[Combination], Indices],
        owns_rows: bool, retain: tuple[int, int],
    ) -> None:  # fmt: skip
        """Take the deltas of another view, with the same columns, from now on."""

    def restart(self, version: int) -> None:
        """Discard everything up to this version, the published one; later deltas follow it."""

    def floor(self) -> int | None:
        """The oldest version whose slots the sink still reads, or None."""

    @property
    def emitted(self) -> int:
        """Number of the view's rows deleted or inserted since the feed began."""

    @property
    def kept_rows(self) -> int:
        """Number of those that followers can still read."""

    @property
    def is_behind(self) -> bool:
        """Whether rows of published versions are yet to be read."""
        ...

    @property
    def subscribers(self) -> int: ...

    def quiet_until(self, position: int) -> int:
        """The newest published version if nothing has changed the view since `position`; otherwise `position`."""

    @property
    def lag(self) -> int:
        """Number of versions by which the slowest subscriber lags."""

    @property
    def bytes(self) -> int:
        """Memory of the retained and settled rows."""

    def close(self, problem: Problem) -> None:
        """Accept no more deltas; followers end with this problem."""


def most_candidates(retain_rows: int) -> int:
    """Return how many rows of one sign to collect, before netting, for a feed that keeps `retain_rows`."""
    return max(2 * retain_rows, _FLOOR)


def delta_of(
    first: int, deleted: tuple[Indices, Combination], inserted: tuple[Indices, Combination], most: int, too_many: Collection[int]
) -> Delta | None:
    """Build a delta of rows with the ascending offsets of their versions; `first`: the one at offset 0. `most`: rows of a version that are
    kept; `too_many`: versions that have more, some of them left out. None: there is no change."""
    every = merged(deleted[0], inserted[0])
    slots = tuple(np.concatenate(both)[every.order] for both in zip(deleted[1], inserted[1], strict=True))
    if len(every.order) > most:
        too_many = {*too_many, *every.versions[np.diff(every.starts) > most].tolist()}
    delta = Delta((first + every.versions).tolist(), every.starts.tolist(), every.deletes.tolist(), slots)
    if too_many:
        cut = first + max(too_many)
        return delta.part(bisect_right(delta.versions, cut), len(delta.versions))._replace(cut=cut)
    return delta if delta.rows else None


def joined(deltas: Sequence[Delta]) -> Delta:
    """Concatenate deltas of ascending versions."""
    if len(deltas) == 1:
        return deltas[0]
    starts = [0]
    for delta in deltas:
        starts += [starts[-1] + start for start in delta.starts[1:]]
    versions, deletes = ([*chain.from_iterable(of)] for of in zip(*((delta.versions, delta.deletes) for delta in deltas), strict=True))
    return Delta(versions, starts, deletes, tuple(map(np.concatenate, zip(*(delta.slots for delta in deltas), strict=True))))


def stretches_of(rows: Combination) -> tuple[Indices, Indices]:
    """Return the ends of these rows' stretches."""
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


def agree(before: Combination, after: Combination, inputs: Sequence[Input]) -> Mask:
    """bool[n]: whether the rows of each pair consist of parts that agree in all columns that are read: then they look alike. Cost: O(1) per
    column and pair."""
    agreed = np.ones(len(before[0]), np.bool_)
    for input, old, new in zip(inputs, before, after, strict=False):  # in a stretch, the two further arrays are equal
        moved = np.flatnonzero(old != new)
        if len(moved):
            agreed[moved] &= input.relation.table.same(input.output, old[moved], new[moved])
    return agreed


class Sink(Protocol):
    """Takes the rows that a run deletes or inserts: a row is deleted after it was inserted, and inserted after the row that it replaces was
    deleted."""

    limit: int
    """Rows of one change: of more, none need be emitted (`exceeded`)."""

    def __call__(self, offsets: Indices, inserted: Mask, rows: Combination, /) -> bool:
        """Take some rows, or none: for each one the number of its version, and whether it is inserted. Return False if no more of the last
        one's version are wanted."""

    def exceeded(self, offset: int, /) -> None:
        """Note that version `offset` has more than `limit` rows."""


def emit(sink: Sink, offset: int, inserted: bool, rows: Combination) -> bool:
    """Pass rows of one version to the sink; return whether it wants more of them."""
    n = len(rows[0])
    return n == 0 or sink(np.full(n, offset), np.full(n, inserted), rows)


def emitted_rows(sink: Sink, offsets: Indices, deltas: Deltas) -> tuple[Indices, npt.NDArray[np.int32]]:
    """Return what a structure reports for the changes of a run: for each row the number of its change, and the rows, an array per line.
    Versions that are too large are reported to the sink. `offsets`: int64[n], the numbers of the changes' versions."""
    for offset in set(offsets[deltas.too_large].tolist()):
        sink.exceeded(offset)
    return emitted_by(deltas)


def emitted_by(deltas: Deltas) -> tuple[Indices, npt.NDArray[Any]]:
    """Return the reported rows, change by change: for each one the number of its change; and the rows, an array per line."""
    lengths = deltas.ends - deltas.starts
    changes = np.repeat(np.arange(len(lengths)), lengths)
    if not deltas.too_large.any():  # otherwise some in between are not reported
        return changes, deltas.rows
    positions = np.repeat(deltas.starts - np.cumsum(lengths) + lengths, lengths) + np.arange(len(changes))
    return changes, deltas.rows[:, positions]


def emit_slots(sink: Sink, offsets: Indices, slots: Slots) -> None:
    """Report rows of one alias, in each version the deleted ones (~slot) first."""
    inserted = slots >= 0
    order = np.lexsort((inserted, offsets))
    slots, inserted = slots[order], inserted[order]
    sink(offsets[order], inserted, (np.where(inserted, slots, ~slots),))

"""The difference of a view between two versions, as slots; and what cancels in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.errors import Problem
from service.tables.changes import INSERT, InOrder, Moved
from service.tables.endpoints import TEXT_OR_BOOL, numbers
from service.tables.resolution import NO_SLOTS, Indices, Slots
from service.tables.store import pieces
from structures.core.runs import Deltas

Combination = tuple[Slots, ...]
"""Rows of a view as slots: one array an alias, equally long; of gaps and coverage two more behind it, int64 (`shown.Stretches`)."""

_FLOOR = 100_000
_SMALL = 64
_NO_INDICES: Indices = np.empty(0, np.int64)
_Told = tuple[Indices, Slots]


class Delta(NamedTuple):
    """Deleted rows by the slots that version - 1 sees, inserted ones by those that `version` sees (a row whose change the view
    does not use stands by its new slot in both). `too_large`: there is more than the feed may keep, and nothing is here. `rest`:
    nothing is here yet; it reads the delta, which may take long (None: there is none)."""

    version: int
    deletes: Combination
    inserts: Combination
    too_large: bool = False
    rest: Callable[[], Delta | None] | None = None

    @property
    def rows(self) -> int:
        return len(self.deletes[0]) + len(self.inserts[0])


class Stored(NamedTuple):
    """Deltas in a file, as a feed writes and reads them."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


class DeltaSink(Protocol):
    """Where a view's deltas go: its feed, as the writer knows it."""

    def append(self, delta: Delta) -> None:
        """Take the changes of a version that is about to be published."""

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


class Collected:
    """The delta rows of one version of a run, before they cancel; none once they are too many."""

    __slots__ = ("parts", "counts", "too_large")

    def __init__(self) -> None:
        self.parts: tuple[list[Combination], list[Combination]] = ([], [])  # deleted, inserted
        self.counts = [0, 0]
        self.too_large = False

    def rows(self, inserted: bool, aliases: int) -> Combination:
        parts = self.parts[inserted]
        if not parts:
            return (NO_SLOTS,) * aliases
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(slots) for slots in zip(*parts, strict=True))


class Collector:
    """A join's sink: gathers the delta rows of a run, version by version, each sign up to a bound."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.collected: dict[int, Collected] = {}  # by offset

    def __call__(self, offset: int, inserted: bool, part: Combination) -> bool:
        rows = len(part[0])
        if not rows:
            return True
        mine = self.collected.get(offset)
        if mine is None:
            mine = self.collected[offset] = Collected()
        mine.counts[inserted] += rows
        if mine.too_large or mine.counts[inserted] > self.limit:
            self.exceeded(offset)
            return False
        mine.parts[inserted].append(part)
        return True

    @property
    def is_exceeded(self) -> bool:
        return any(one.too_large for one in self.collected.values())

    def exceeded(self, offset: int) -> None:
        mine = self.collected.setdefault(offset, Collected())
        mine.too_large, mine.parts = True, ([], [])


class RowCollector:
    """The sink of a stage whose rows are its own, so that none cancel: gathers the deltas of a run. `limit`: rows of one version, of both
    signs."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: tuple[list[_Told], list[_Told]] = ([], [])  # deleted, inserted
        self._offset, self._rows = -1, 0  # of the version that is told in pieces, its rows so far
        self._too_large: set[int] = set()

    def __call__(self, offset: int, inserted: bool, rows: Combination) -> bool:
        self.several(inserted, np.full(len(rows[0]), offset), rows[0])
        return offset not in self._too_large

    def several(self, inserted: bool, offsets: Indices, slots: Slots) -> None:
        """Take rows of whole versions in order, or of a piece of one, behind those before; int64[n]: the numbers of their versions."""
        if not len(slots):
            return
        offset = int(offsets[0])
        if offset == offsets[-1]:
            self._offset, self._rows = offset, len(slots) + (self._rows if offset == self._offset else 0)
            if self._rows > self.limit:
                self.exceeded(offset)
                return
        self._parts[inserted].append((offsets, slots))

    def exceeded(self, offset: int) -> None:
        self._too_large.add(offset)
        for parts in self._parts:
            parts[:] = [part for part in parts if part[0][0] != offset]

    def deltas(self, first: int) -> list[Delta]:
        """Of the versions that change something, in order; `first`: version number 0."""
        (old_at, old), (new_at, new) = map(_joined, self._parts)
        if not self._too_large and len(old) + len(new) <= self.limit and _is_one(old_at, new_at):
            return [Delta(first + int((old_at if len(old) else new_at)[0]), (old,), (new,))]
        return deltas_of(first, (old_at, (old,)), (new_at, (new,)), self.limit, self._too_large)


def deltas_of(
    first: int, gone: tuple[Indices, Combination], come: tuple[Indices, Combination], most: int, too_large: Collection[int]
) -> list[Delta]:
    """Those of the versions of which rows are told, in order, with the numbers of their versions, which ascend; `first`: version number 0.
    `most`: rows of a version that are kept; `too_large`: versions of which some are not here because they have more."""
    offsets = np.unique(np.concatenate((gone[0], come[0])))
    told, rows = list[Iterator[Combination]](), np.zeros(len(offsets), np.int64)
    for at, side in (gone, come):
        ends = np.searchsorted(at, offsets, "right")
        rows += np.diff(ends, prepend=0)
        parts = list(map(slice, [0, *ends[:-1].tolist()], ends.tolist()))
        told.append(zip(*(map(slots.__getitem__, parts) for slots in side), strict=True))
    found = list(map(Delta, (first + offsets).tolist(), *told))
    for number in np.flatnonzero(rows > most).tolist():
        found[number] = Delta(found[number].version, (), (), True)
    if too_large:
        whole = [one for one in found if one.version - first not in too_large]
        found = sorted([*whole, *(Delta(first + offset, (), (), True) for offset in too_large)], key=attrgetter("version"))
    return found


def _is_one(old_at: Indices, new_at: Indices) -> bool:
    """Whether these rows, some at least, are of one version."""
    offsets = [int(at[end]) for at in (old_at, new_at) if len(at) for end in (0, -1)]
    return len(set(offsets)) == 1


def _joined(parts: Sequence[_Told]) -> _Told:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([_NO_INDICES, *(offsets for offsets, _ in parts)]), np.concatenate([NO_SLOTS, *(slots for _, slots in parts)])


def cancel(
    deletes: Combination, inserts: Combination, moved: Sequence[Moved], values: Callable[[Combination], pa.RecordBatch],
    text_bytes: Callable[[Combination], Indices], back: bool = False,
) -> tuple[Combination, Combination]:  # fmt: skip
    """Without the rows that are deleted and inserted with equal identity and equal values. Cost: a sort, and a gather of the candidates.

    A deleted row comes back, by identity, as the row whose slots took the places of its own; `back`: or as itself.
    """
    pairs = sum([len(m.old) for m in moved])
    if len(deletes[0]) == 0 or len(inserts[0]) == 0 or not (pairs or back):
        return deletes, inserts
    small = len(deletes[0]) + len(inserts[0]) + pairs <= _SMALL
    if small and _have_nothing_in_common(deletes, inserts, moved):
        return deletes, inserts
    of_deletes, of_inserts = (_match_few if small else _match_many)(deletes, inserts, moved)
    if len(of_deletes) == 0:
        return deletes, inserts
    before, after = (tuple(slots[indices] for slots in rows) for rows, indices in ((deletes, of_deletes), (inserts, of_inserts)))
    equal = look_alike(before, after, values, text_bytes)
    if not equal.any():
        return deletes, inserts
    deletes = tuple(np.delete(slots, of_deletes[equal]) for slots in deletes)
    inserts = tuple(np.delete(slots, of_inserts[equal]) for slots in inserts)
    return deletes, inserts


def stretches_of(rows: Combination) -> tuple[Indices, Indices]:
    """The ends of the stretches of these rows."""
    _, starts, ends = cast(tuple[Slots, Indices, Indices], rows)
    return starts, ends


def net(deletes: Combination, inserts: Combination) -> tuple[Combination, Combination]:
    """What is left of rows that are deleted and inserted at the same slots in turns: each once at most. Cost: a sort."""
    if len(deletes[0]) == 0 or len(inserts[0]) == 0:
        return deletes, inserts
    rows = tuple(np.concatenate(slots) for slots in zip(deletes, inserts, strict=True))
    _, first, numbers = np.unique(_one_number(rows), return_index=True, return_inverse=True)
    times = np.bincount(numbers, np.repeat([-1, 1], [len(deletes[0]), len(inserts[0])]))
    gone, come = first[times < 0], first[times > 0]
    return tuple(slots[gone] for slots in rows), tuple(slots[come] for slots in rows)


def _have_nothing_in_common(deletes: Combination, inserts: Combination, moved: Sequence[Moved]) -> bool:
    """Whether an alias of which no row has moved tells that none comes back: a quick look before the exact one."""
    for gone, come, pairs in zip(deletes, inserts, moved, strict=True):
        if not len(pairs.old) and set(gone.tolist()).isdisjoint(come.tolist()):
            return True
    return False


def _match_many(deletes: Combination, inserts: Combination, moved: Sequence[Moved]) -> tuple[Indices, Indices]:
    """Indices of the deleted rows that come back, and of what they come back as."""
    back = []
    for slots, (old, new) in zip(deletes, moved, strict=True):
        if len(old):
            order = np.argsort(old)
            indices = order[np.minimum(np.searchsorted(old, slots, sorter=order), len(old) - 1)]
            slots = np.where(old[indices] == slots, new[indices], slots)
        back.append(slots)
    numbers = _one_number([np.concatenate(slots) for slots in zip(back, inserts, strict=True)])
    mine, theirs = numbers[: len(back[0])], numbers[len(back[0]) :]
    _, of_deletes, of_inserts = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    return of_deletes, of_inserts


def _match_few(deletes: Combination, inserts: Combination, moved: Sequence[Moved]) -> tuple[Indices, Indices]:
    """The same without the fixed cost of a dozen array operations."""
    back = zip(*[_moved_on(slots.tolist(), pairs) for slots, pairs in zip(deletes, moved, strict=True)], strict=True)
    indices = {row: index for index, row in enumerate(zip(*[slots.tolist() for slots in inserts], strict=True))}
    found = [(index, indices[row]) for index, row in enumerate(back) if row in indices]
    if not found:
        return _NO_INDICES, _NO_INDICES
    return np.array([index for index, _ in found], np.int64), np.array([index for _, index in found], np.int64)


def _moved_on(slots: list[int], moved: Moved) -> list[int]:
    if not len(moved.old):
        return slots
    moves = dict(zip(moved.old.tolist(), moved.new.tolist(), strict=True))
    return [moves.get(slot, slot) for slot in slots]


def _one_number(slots: Sequence[Slots]) -> Indices:
    """int64[n], equal where all slots are; -1 is one."""
    result = slots[0].astype(np.int64)
    for index, more in enumerate(slots[1:]):
        if index:  # two slots fill a number: then their ranks stand for them
            result = np.unique(result, return_inverse=True)[1].astype(np.int64)
        result = (result << 32) | (more.astype(np.int64) + 1)
    return result


def look_alike(
    before: Combination, after: Combination, values: Callable[[Combination], pa.RecordBatch], text_bytes: Callable[[Combination], Indices]
) -> npt.NDArray[np.bool_]:
    """bool[n]: whether these rows, in pairs, have equal values. Cost: a gather of both, in pieces."""
    equal = np.empty(len(before[0]), np.bool_)
    for part in pieces(text_bytes(before) + text_bytes(after)):
        equal[part] = equal_rows(values(tuple(slots[part] for slots in before)), values(tuple(slots[part] for slots in after)))
    return equal


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
    """Takes the rows that a run deletes or inserts, version by version; of one version deleted ones first."""

    limit: int
    """Rows of one change: of more, none need be told (`exceeded`)."""

    def __call__(self, offset: int, inserted: bool, rows: Combination, /) -> bool:
        """Take some rows of version number `offset`. False: no more of this version are wanted."""

    def exceeded(self, offset: int, /) -> None:
        """Version number `offset` has more than `limit` rows."""


def tell(sink: Sink, entries: InOrder, deltas: Deltas, rows: Callable[[slice], Combination]) -> None:
    """Tell what a structure reports of the entries of a run; `rows(part)`: the rows of a part of `deltas.rows`."""
    some = np.flatnonzero((deltas.ends > deltas.starts) | deltas.too_large)
    columns = (entries.offsets, entries.kinds == INSERT, deltas.starts, deltas.ends, deltas.too_large)
    for offset, inserted, start, end, too_large in zip(*(column[some].tolist() for column in columns), strict=True):
        if too_large:
            sink.exceeded(offset)
        else:
            sink(offset, inserted, rows(slice(start, end)))


def tell_slots(sink: Sink, offsets: Indices, slots: Slots) -> None:
    """Tell rows of one alias, version by version, what goes first. offsets: ascending; ~slot: it goes."""
    begins = np.flatnonzero(np.diff(offsets, prepend=-1, append=-1)).tolist()  # and behind the last one
    for first, end in pairwise(begins):
        part, offset = slots[first:end], int(offsets[first])
        gone, come = ~part[part < 0], part[part >= 0]
        if len(gone) and not sink(offset, False, (gone,)):
            continue
        if len(come):
            sink(offset, True, (come,))

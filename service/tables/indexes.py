"""The service's ordered indexes: rows of a relation by some of its columns, kept once for all views that want the same.

An index is of the rows that meet an alias's filters, by the values of columns in an order. A view takes it while it is built; when the last
one that has it goes, it goes too. A batch goes into all indexes before any view follows it.

A value is an int64 that keeps order (`structures.core.encoding`); a text is its code in one dictionary for all indexes. A row with a null
in one of the columns takes no part. Floats: -0.0 is 0.0, and every NaN is one value.

Writer's thread only, but for reading at a pinned root (`structures.index.indexes`) and `SharedIndex.key`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.tables.arrow import null_mask, reader
from service.tables.changes import DELETE, INSERT, SIGNS, InOrder, Parted, Runs, in_order, parted, versions_of
from service.tables.interest import Interest, Selection, Touched
from service.tables.resolution import Indices, Resolved, Slots
from service.tables.sides import Side
from service.tables.store import Domain, Numbers
from structures.core.encoding import encode_floats
from structures.index.indexes import NO_ENTRIES, STEPS, Batch, Changes, Entries, OrderedIndexes
from structures.index.indexes import Run as IndexRun

_CHUNK = 1 << 16  # rows in a step of building
_NEWEST = 2**62  # a version that sees what is newest
_TEXT, _FLOAT = pa.utf8(), pa.float64()


class Planted(Protocol):
    """A structure that keeps trees of its own beside the indexes that it reads."""

    def load(self) -> None:
        """Make them."""

    def flips(self, counts: Mapping[int, int]) -> int:
        """The most entries of these that so many changes of the indexes put or cut."""
        ...

    def close(self) -> None:
        """The newest version has them no more."""


P = TypeVar("P", bound=Planted)


class Order(NamedTuple):
    """What an index goes by: its columns; and further ones that have to be equal to the column of that number."""

    columns: tuple[str, ...]
    same: tuple[tuple[int, str], ...]


class Applied(NamedTuple):
    """A run of several versions in all indexes: what became of each entry, and the order of the entries."""

    run: IndexRun
    order: InOrder


class SharedIndex:
    """One index: rows of a side's relation that meet its filters. `users`: joins that have it, each for a side of its own."""

    def __init__(self, number: int, side: Side, order: Order, texts: Domain) -> None:
        self.number, self.order, self._texts = number, order, texts
        self._side, self.relation = side, side.relation
        self.users: list[tuple[object, Side]] = []
        self.taken = Selection(side.relation.name, side.filters)
        self._names = list(dict.fromkeys((*order.columns, *(name for _, name in order.same))))
        self.text_columns = [j for j, name in enumerate(order.columns) if self.relation.schema.field(name).type == _TEXT]

    def entries(self, slots: Slots, come: bool) -> tuple[Entries, Indices]:
        """Those of the rows at these slots that take part, and their indices. `come`: their texts are counted once more."""
        indices = self._side.selected(slots)
        indices = np.arange(len(slots)) if indices is None else indices
        parts, kept, start = [], [], 0
        for some, rows in self.relation.table.take_pieces(self._names, slots[indices]):
            coordinates, mine = self._coordinates(rows, come)
            parts.append(Entries(coordinates, some[mine]))
            kept.append(indices[start + mine])
            start += len(some)
        if len(parts) == 1:
            return parts[0], kept[0]
        return joined(parts), np.concatenate(kept)

    def _coordinates(self, rows: pa.RecordBatch, come: bool) -> tuple[npt.NDArray[np.int64], Indices]:
        """int64[n, k] of the rows that take part, and which these are."""
        takes_part = np.ones(len(rows), np.bool_)
        for column in rows.columns:
            if (nulls := null_mask(column)) is not None:
                takes_part &= ~nulls
        numbers = {name: _numbers(rows.column(name)) for name in self._names if rows.column(name).type != _TEXT}
        for j, name in self.order.same:
            first = self.order.columns[j]
            if first in numbers:
                takes_part &= numbers[first] == numbers[name]
            else:
                takes_part &= np.asarray(pc.fill_null(pc.equal(rows.column(first), rows.column(name)), False))
        indices = np.flatnonzero(takes_part)
        coordinates = np.empty((len(indices), len(self.order.columns)), np.int64)
        for j, name in enumerate(self.order.columns):
            coordinates[:, j] = numbers[name][indices] if name in numbers else self._codes(rows.column(name), indices, come)
        if come or not self.text_columns:
            return coordinates, indices
        known = (coordinates[:, self.text_columns] >= 0).all(axis=1)
        return coordinates[known], indices[known]

    def _codes(self, column: pa.Array, indices: Indices, come: bool) -> Slots:
        texts = pa.RecordBatch.from_arrays([column if len(indices) == len(column) else column.take(pa.array(indices))], ["text"])
        return self._texts.acquire(texts) if come else self._texts.look_up(texts)

    def key(self, row: pa.RecordBatch) -> list[int] | None:
        """The coordinates of one row of the index's columns; None: no row of the index has them."""
        coordinates, indices = self._coordinates(row.select(self._names), False)
        return coordinates[0].tolist() if len(indices) else None

    def changes(self, part: Parted) -> Changes:
        """The entries of a run of one version."""
        gone, come, moved = part
        after, indices = self.entries(moved.new, False)
        before = after._replace(slot=moved.old[indices])
        return Changes(self.entries(gone.old, False)[0], self.entries(come.new, True)[0], before, after)

    def text_codes(self, entries: Entries) -> Slots:
        """int32[n texts]: of all the texts of these entries."""
        codes: Slots = entries.coordinates[:, self.text_columns].astype(np.int32).reshape(-1)
        return codes


class _Watched:
    """What the users of a relation's indexes read of it. All of its indexes move the same rows, and delete and insert the same: a join may
    have several of them for one alias."""

    def __init__(self, relation: str, concerned: Sequence[SharedIndex]) -> None:
        mine = [one for one in concerned if one.relation.name == relation]
        self.relation = mine[0].relation
        self.varying = list(dict.fromkeys(name for one in mine for _, side in one.users for name in side.varying))


class SharedIndexes:
    """All indexes, and the texts in them. `structure` is for the structures that read them."""

    def __init__(self) -> None:
        self._structure: OrderedIndexes | None = None
        self._kept: Mapping[Any, SharedIndex] = {}  # replaced, never changed: figures are asked for by any thread
        self._known: Interest[SharedIndex] | None = None
        self._trees: list[tuple[object, Planted]] = []
        self._leaving: list[tuple[int, SharedIndex | Planted]] = []  # and the newest version then
        self._newest = 0
        self._texts = Domain([_TEXT])
        self._batch: Batch = {}
        self._applied: Applied | None = None
        self._failure: Exception | None = None

    @property
    def structure(self) -> OrderedIndexes:
        assert self._structure is not None, "there is no room yet"
        return self._structure

    def make_room(self) -> None:
        """Reserve address space, when the first view wants indexes. OSError, MemoryError: there is none."""
        if self._structure is None:
            self._structure = OrderedIndexes()

    # views that come and go

    def take(self, owner: object, version: int, side: Side, order: Order) -> SharedIndex:
        """The index of the rows of a side, loaded with the newest `version` if it is new. O(n log n)."""
        filters = frozenset((f.column.column, f.op, f.value) for f in side.filters)
        key = side.relation.name, order, filters
        self._newest = version
        one = self._kept.get(key)
        if one is not None:
            one.users = [*one.users, (owner, side)]
            return one
        self.structure.begin(version)
        one = SharedIndex(self.structure.add(len(order.columns)), side, order, self._texts)
        one.users = [(owner, side)]
        self._kept, self._known = {**self._kept, key: one}, None
        self._load(version, one)
        return one

    def _load(self, version: int, one: SharedIndex) -> None:
        parts, start = [], 0
        while start >= 0:
            slots, start = one.relation.table.scan(version, start, _CHUNK)
            parts.append(one.entries(slots, True)[0])
        self.structure.load(one.number, joined(parts))

    def plant(self, owner: object, version: int, make: Callable[[OrderedIndexes], P]) -> P:
        """What is made, and loaded, over indexes that its owner has taken."""
        self.structure.begin(version)
        tree = make(self.structure)
        self._trees.append((owner, tree))
        tree.load()
        return tree

    def forget(self, owner: object) -> None:
        """It follows no more: what nobody else has goes with a later `reclaim`, when readers of the newest version can't know it."""
        gone: list[SharedIndex | Planted] = [tree for other, tree in self._trees if other is owner]
        self._trees = [(other, tree) for other, tree in self._trees if other is not owner]
        for one in self._kept.values():
            one.users = [(other, side) for other, side in one.users if other is not owner]
        gone += [one for one in self._kept.values() if not one.users]
        self._kept, self._known = {key: one for key, one in self._kept.items() if one.users}, None
        self._leaving += [(self._newest, one) for one in gone]

    # batches

    @property
    def _interest(self) -> Interest[SharedIndex]:
        if self._known is None:
            self._known = Interest((one, [one.taken]) for one in self._kept.values())
        return self._known

    def require(self, resolved: Mapping[str, Resolved], touched: Touched, singly: bool) -> None:
        """MemoryError, before anything is touched, unless `apply` surely has room, of many versions if `singly`."""
        if not self._kept:
            return
        counts, texts, text_bytes = {}, 0, 0
        for one in self._interest.concerned(touched):
            changed = resolved[one.relation.name]
            counts[one.number] = len(changed.deletes) + changed.inserts.num_rows
            texts += len(one.text_columns) * changed.inserts.num_rows
            text_bytes += changed.inserts.bytes if one.text_columns else 0
        if counts:
            changes = sum(counts.values()) + sum(tree.flips(counts) for _, tree in self._trees)
            self.structure.require(changes, changes if singly else STEPS)
            self._texts.require(texts, text_bytes)

    def apply(self, version: int, runs: Runs, touched: Touched) -> None:
        """Bring all indexes to `version`, the last of the runs. Does not raise: what goes wrong is told to the views that follow."""
        self._newest, self._batch, self._applied, self._failure = version, {}, None, None
        if not self._kept:
            return
        concerned = [one for one in self._interest.concerned(touched) if one.relation.name in runs]  # a product tells them in parts
        if not concerned:
            return
        try:
            self.structure.begin(version)
            gone = (self._apply_batch if versions_of(runs) == 1 else self._apply_run)(concerned, runs)
            for one, entries in gone:
                self._texts.release(one.text_codes(entries), version)
        except Exception as error:
            self._failure = error

    def _apply_batch(self, concerned: Sequence[SharedIndex], runs: Runs) -> list[tuple[SharedIndex, Entries]]:
        """Apply the changes of one version; gives the entries that go."""
        parts = {name: parted(_Watched(name, concerned), runs[name], True) for name in {one.relation.name for one in concerned}}
        work = {one.number: one.changes(parts[one.relation.name]) for one in concerned}
        self._batch = self.structure.apply(work)
        return [(one, work[one.number].deletes) for one in concerned]

    def _apply_run(self, concerned: Sequence[SharedIndex], runs: Runs) -> list[tuple[SharedIndex, Entries]]:
        """The same for the changes of several versions. A row that stays what it is goes and comes like others."""
        parts: list[tuple[int, Indices]] = []
        numbers, entries, gone = [], [], []
        for one in concerned:
            run = runs[one.relation.name]
            for kind, slots in ((DELETE, run.old), (INSERT, run.new)):
                there = np.flatnonzero(slots >= 0)
                found, kept = one.entries(slots[there], kind == INSERT)
                parts.append((kind, run.offsets[there[kept]]))
                numbers.append(np.full(len(kept), one.number))
                entries.append(found)
                if kind == DELETE:
                    gone.append((one, found))
        order = in_order(parts)
        applied = self.structure.apply_in_order(
            np.concatenate(numbers)[order.order], SIGNS[order.kinds], joined(entries).take(order.order)
        )
        self._applied = Applied(applied, order)
        return gone

    @property
    def batch(self) -> Batch:
        """What the newest batch did. Raises what went wrong."""
        if self._failure is not None:
            raise self._failure
        return self._batch

    @property
    def applied(self) -> Applied | None:
        """What the newest run did; None: nothing. Raises what went wrong."""
        if self._failure is not None:
            raise self._failure
        return self._applied

    def reclaim(self, published: int, pins: Numbers) -> bool:
        """Take away what nobody uses, and let be reused what neither `published`, the newest version, nor a pin sees: a piece of it.
        Whether there is more."""
        if self._structure is None:
            return False
        pinned = published in pins
        leaving = [one for since, one in self._leaving if since < published or not pinned]
        if leaving:
            self._structure.begin(published)
            for one in leaving:
                self._remove(published, one)
            self._leaving = [(since, one) for since, one in self._leaving if since >= published and pinned]
        self._structure.reclaim(published, pins)
        return self._texts.reclaim(published, pins)

    def _remove(self, version: int, one: SharedIndex | Planted) -> None:
        if not isinstance(one, SharedIndex):
            one.close()
            return
        cursor = self.structure.entries(one.number, self.structure.root(one.number))
        while one.text_columns and not cursor.done:
            self._texts.release(one.text_codes(cursor.fill(_CHUNK)), version)
        self.structure.remove(one.number)

    # figures

    def bytes_of(self, one: SharedIndex) -> int:
        """A user's share of an index, and of the texts."""
        everywhere = sum(self._texts_in(other) for other in self._kept.values())
        texts = self._texts.bytes * self._texts_in(one) // max(1, everywhere)
        return (self.structure.bytes(one.number) + texts) // max(1, len(one.users))

    def _texts_in(self, one: SharedIndex) -> int:
        return self.count(one) * len(one.text_columns)

    def count(self, one: SharedIndex) -> int:
        """Entries of the newest version."""
        return int(self.structure.count(one.number, self.structure.root(one.number)))

    @property
    def retired_bytes(self) -> int:
        """What is held for readers of older versions."""
        return self._structure.retired_bytes if self._structure is not None else 0

    def check(self) -> None:
        """Prove the invariants of all structures, and that each index has just the rows of its relation."""
        if self._structure is None:
            return
        self._structure.check()
        self._texts.check()
        for one in self._kept.values():
            parts, start = [], 0
            while start >= 0:
                slots, start = one.relation.table.scan(_NEWEST, start, _CHUNK)
                parts.append(one.entries(slots, False)[0])
            wanted, found = joined(parts), []
            cursor = self._structure.entries(one.number, self._structure.root(one.number))
            while not cursor.done:
                found.append(cursor.fill(_CHUNK))
            assert _rows(wanted) == _rows(joined(found)), f"the index of {one.relation.name} by {one.order} is not its rows"


def joined(parts: Sequence[Entries]) -> Entries:
    """All of them in one, as wide as the widest."""
    parts = [part for part in parts if len(part.slot)]
    if not parts:
        return NO_ENTRIES
    width = max(part.coordinates.shape[1] for part in parts)
    coordinates = np.zeros((sum(len(part.slot) for part in parts), width), np.int64)
    start = 0
    for part in parts:
        coordinates[start : start + len(part.slot), : part.coordinates.shape[1]] = part.coordinates
        start += len(part.slot)
    return Entries(coordinates, np.concatenate([part.slot for part in parts]))


def _rows(entries: Entries) -> list[tuple[int, ...]]:
    return sorted(zip(*entries.coordinates.T.tolist(), entries.slot.tolist(), strict=True))


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """int64[n] that keep order and equality; anything where the column is null."""
    if not len(column):
        return np.empty(0, np.int64)
    read = reader(column.type)
    assert read is not None
    values = read(column).astype(np.int64)
    if column.type != _FLOAT:
        return values
    floats = values.view(np.float64)
    return encode_floats(np.where(np.isnan(floats), np.nan, floats), 0)

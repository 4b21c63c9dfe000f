"""The service's ordered indexes: rows of a relation by some of its columns, stored once for all views that need the same.

A view that is built makes the missing indexes beside the writer (`loading.py`), and takes all in the turn in which it becomes live; an
index is removed with its last user. A batch is applied to all indexes before any view follows it.

After most rows were deleted, the store may hold several times what it needs. Another *generation* of indexes then begins: each view that
reads the former ones is rebuilt, by the one builder, over indexes of the new one, which the first of these views makes. New blocks lie in
the first chunks that have room; when the former indexes have no user left, the chunks behind these are empty.

Writer's thread only, except for reading at a pinned root (`structures.index.indexes`), `loading` and `SharedIndex.key`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from service.tables.changes import DELETE, SIGNS, Runs, in_order, parted
from service.tables.domains import Domain
from service.tables.inputs import NEWEST, Input
from service.tables.interest import Interest, TouchedRows
from service.tables.loading import IndexLoad
from service.tables.resolution import Indices, Resolution
from service.tables.shared_index import Order, SharedIndex, joined
from service.tables.store import FREED_AT_ONCE, PIECE_ROWS, Numbers
from structures.index.indexes import Entries, IndexCursor, OrderedIndexes, Run
from structures.index.layout import IndexArena
from structures.index.planting import IndexLoader

_PATIENCE = 60  # checks, a second apart
_FEW = 1 << 13  # entries whose texts are released at once
_TEXT = pa.utf8()

Key = tuple[int, str, Order, frozenset[Any]]
"""Generation, relation, order, filters."""


class _WatchedColumns:
    """The columns that the users of a relation's indexes read. All these indexes move the same rows, and delete and insert the same ones: a
    join may have several indexes for one alias."""

    def __init__(self, relation: str, concerned: Sequence[SharedIndex]) -> None:
        mine = [one for one in concerned if one.relation.name == relation]
        self.relation = mine[0].relation
        self.varying = list(dict.fromkeys(name for one in mine for _, input in one.users for name in input.varying))


class _UnusedIndex:
    """An index or tree without users, and the newest version when its last user left. `texts`: its entries whose texts are still to be
    released."""

    def __init__(self, since: int, one: SharedIndex | IndexLoader) -> None:
        self.since, self.one = since, one
        self.texts: IndexCursor | None = None


class Sparse:
    """Says when stores of blocks should be copied: when less than half of what one holds is in use, and only half as much lives as at
    another time; or when less than a third has been in use for a minute, as after a long reading. Under steady churn, the next changes need
    what is free."""

    def __init__(self) -> None:
        self._most = 0  # bytes that lived at a time
        self._checks = 0  # in a row that found less than a third in use

    def found(self, stores: Sequence[Any]) -> bool:
        """Whether these stores, the same as in the last call, should be copied. Called once a second. O(stores)."""
        live = sum(store.live_bytes for store in stores)
        self._most = max(self._most, live)
        outgrown = [store for store in stores if store.is_outgrown]
        is_thin = any(store.held_bytes > 3 * (store.live_bytes + store.retired_bytes) for store in outgrown)
        self._checks = self._checks + 1 if is_thin else 0
        return bool(outgrown) and (2 * live < self._most or self._checks > _PATIENCE)


class SharedIndexes:
    """All indexes, and the texts in them. `structure` is for the structures that read them."""

    def __init__(self) -> None:
        self.generation = 0  # of the indexes that views take now
        self._sparse = Sparse()
        self._structure: OrderedIndexes | None = None
        self._kept: Mapping[Key, SharedIndex] = {}  # replaced, never modified: any thread reads the metrics
        self._known: Interest[SharedIndex] | None = None
        self._trees: list[tuple[object, IndexLoader]] = []
        self._leaving: list[_UnusedIndex] = []
        self._newest = 0
        self._texts = Domain([_TEXT])
        self._applied: Run | None = None
        self._failure: Exception | None = None

    @property
    def structure(self) -> OrderedIndexes:
        assert self._structure is not None, "there is no room yet"
        return self._structure

    def make_room(self) -> None:
        """Reserve address space, when the first view needs indexes. OSError, MemoryError: there is no room."""
        if self._structure is None:
            self._structure = OrderedIndexes()

    # views are added and removed

    def renew(self) -> None:
        """Begin another generation if the store is sparse, and all indexes are of this one. O(indexes)."""
        if self._sparse.found(self.stores) and all(key[0] == self.generation for key in self._kept):
            self.generation, self._sparse = self.generation + 1, Sparse()

    @staticmethod
    def key(generation: int, input: Input, order: Order) -> Key:
        """Return the key of the index that all its users share."""
        return generation, input.relation.name, order, frozenset(f.of("") for f in input.filters)

    def loading(self, key: Key, input: Input, order: Order) -> IndexLoad | None:
        """Return a new, empty index for the rows of a side; None: there is one. Any thread."""
        return None if key in self._kept else IndexLoad(SharedIndex(input, order, self._texts))

    def take(self, owner: object, version: int, key: Key, input: Input, made: IndexLoad | None) -> SharedIndex | None:
        """Return the index of the rows of a side, at the newest `version`. If there is none, put a piece more of `made`, which has all
        changes recorded, into the store, and return it once complete; None: there is none, or it is incomplete."""
        self._newest = version
        one = self._kept.get(key)
        if one is not None:
            one.users = [*one.users, (owner, input)]
            if made is not None:
                self.give_up(made, version)
            return one
        if made is None:
            return None
        self.structure.begin(version)
        if not made.put(self.structure, version):
            return None
        made.index.users = [(owner, input)]
        self._kept, self._known = {**self._kept, key: made.index}, None
        return made.index

    def give_up(self, made: IndexLoad, version: int) -> None:
        """Discard an index that is no longer wanted; `version` is the newest."""
        self._newest = version
        if made.abandon(self._structure, version):
            self._leaving.append(_UnusedIndex(version, made.index))

    def plant(self, owner: object, tree: IndexLoader) -> None:
        """Register trees that a structure keeps beside the indexes that its owner has taken."""
        self._trees.append((owner, tree))

    def advance(self, version: int, tree: IndexLoader) -> bool:
        """As `IndexLoader.advance`, at the newest version."""
        self.structure.begin(version)
        return tree.advance()

    def has(self, owner: object) -> bool:
        """Whether this owner's trees are still registered."""
        return any(other is owner for other, _ in self._trees)

    def forget(self, owner: object) -> None:
        """Remove a user: what has no other user is removed by a later `reclaim`, when no reader of the newest version can have it."""
        unused: list[SharedIndex | IndexLoader] = [tree for other, tree in self._trees if other is owner]
        self._trees = [(other, tree) for other, tree in self._trees if other is not owner]
        for one in self._kept.values():
            one.users = [(other, input) for other, input in one.users if other is not owner]
        unused += [one for one in self._kept.values() if not one.users]
        self._kept, self._known = {key: one for key, one in self._kept.items() if one.users}, None
        self._leaving += [_UnusedIndex(self._newest, one) for one in unused]

    # batches

    @property
    def _interest(self) -> Interest[SharedIndex]:
        if self._known is None:
            self._known = Interest((one, [one.taken]) for one in self._kept.values())
        return self._known

    def require(self, resolved: Mapping[str, Resolution], touched: TouchedRows, singly: bool) -> None:
        """Raise MemoryError, before anything is changed, unless `apply` surely has room, for many versions if `singly`."""
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
            self.structure.require(changes, changes if singly else len(SIGNS))
            self._texts.require(texts, text_bytes)

    def apply(self, version: int, runs: Runs, touched: TouchedRows) -> None:
        """Bring all indexes to `version`, the last of the runs. Does not raise: the views that follow get the error."""
        self._newest, self._applied, self._failure = version, None, None
        if not self._kept:
            return
        concerned = [one for one in self._interest.concerned(touched) if one.relation.name in runs]  # a product passes them in parts
        if not concerned:
            return
        try:
            self.structure.begin(version)
            self._apply(version, concerned, runs)
        except Exception as error:
            self._failure = error

    def _apply(self, version: int, concerned: Sequence[SharedIndex], runs: Runs) -> None:
        """Apply the changes in order of the versions, those of each version by kind."""
        parts = {name: parted(_WatchedColumns(name, concerned), runs[name], True) for name in {one.relation.name for one in concerned}}
        kinds: list[tuple[int, Indices]] = []
        numbers, entries, deleted = list[Indices](), list[Entries](), list[tuple[SharedIndex, Entries]]()
        for one in concerned:
            for kind, offsets, some in one.changes(parts[one.relation.name]):
                if len(offsets) > 1:
                    order = self.structure.order(one.number, some)
                    offsets, some = offsets[order], some.take(order)
                if len(offsets):
                    kinds.append((kind, offsets))
                    numbers.append(np.full(len(offsets), one.number))
                    entries.append(some)
                    if kind == DELETE:
                        deleted.append((one, some))
        found = in_order(kinds)
        if len(found.order):
            order, ticks = found.order, len(SIGNS) * found.offsets + found.kinds
            self._applied = self.structure.apply(np.concatenate(numbers)[order], SIGNS[found.kinds], ticks, joined(entries).take(order))
        for one, some in deleted:
            self._texts.release(one.text_codes(some), version)

    @property
    def applied(self) -> Run | None:
        """The result of the newest run, whose ticks are offset * len(SIGNS) + kind; None: no changes. Raises its error, if any."""
        if self._failure is not None:
            raise self._failure
        return self._applied

    def reclaim(self, published: int, pins: Numbers) -> bool:
        """Remove what has no user, and make reusable what neither `published`, the newest version, nor a pin needs, a piece at a time.
        Return whether there is more."""
        if self._structure is None:
            return False
        pinned = published in pins
        leaving = next((one for one in self._leaving if one.since < published or not pinned), None)
        if leaving is not None:
            if self._remove(published, leaving):
                self._leaving.remove(leaving)
            return True
        return self._structure.reclaim(published, pins, FREED_AT_ONCE) or self._texts.reclaim(published, pins)

    def _remove(self, version: int, leaving: _UnusedIndex) -> bool:
        """Remove a tree, or a piece of an index; return whether nothing of it is left."""
        one = leaving.one
        if isinstance(one, SharedIndex) and one.text_columns:
            if leaving.texts is None:
                leaving.texts = self.structure.entries(one.number, self.structure.root(one.number))
            if not leaving.texts.done:
                self._texts.release(one.text_codes(leaving.texts.fill(_FEW)), version)
                return False
        self.structure.begin(version)
        return self.structure.remove(one.number, FREED_AT_ONCE) if isinstance(one, SharedIndex) else one.close(FREED_AT_ONCE)

    # metrics

    def bytes_of(self, one: SharedIndex) -> int:
        """Return a user's share of the bytes of an index and its texts."""
        everywhere = sum(self._texts_in(other) for other in self._kept.values())
        texts = self._texts.bytes * self._texts_in(one) // max(1, everywhere)
        return (self.structure.bytes(one.number) + texts) // max(1, len(one.users))

    def _texts_in(self, one: SharedIndex) -> int:
        return self.count(one) * len(one.text_columns)

    def count(self, one: SharedIndex) -> int:
        """Return the number of entries at the newest version."""
        return int(self.structure.count(one.number, self.structure.root(one.number)))

    @property
    def retired_bytes(self) -> int:
        """Bytes retained for readers of older versions."""
        return self._structure.retired_bytes if self._structure is not None else 0

    @property
    def stores(self) -> Sequence[IndexArena]:
        return () if self._structure is None else (self._structure.arena,)

    def check(self) -> None:
        """Verify the invariants of all structures, and that each index has exactly the rows of its relation."""
        if self._structure is None:
            return
        self._structure.check()
        self._texts.check()
        for one in self._kept.values():
            wanted, found = joined([one.entries(slots, False)[0] for slots in one.relation.table.scanned(NEWEST)]), []
            cursor = self._structure.entries(one.number, self._structure.root(one.number))
            while not cursor.done:
                found.append(cursor.fill(PIECE_ROWS))
            assert _rows(wanted) == _rows(joined(found)), f"the index of {one.relation.name} by {one.order} is not its rows"


def _rows(entries: Entries) -> list[tuple[int, ...]]:
    return sorted(zip(*entries.coordinates.T.tolist(), entries.slot.tolist(), strict=True))

"""Rows of a relation, and codes of join keys, in terms of Arrow.

    Table    key -> row; a row lives at the versions [born, died)
    Domain   composite join key -> int32 code, with a reference count; an unreferenced code that no readable version has gets another key

Both are `structures.rows.rows.Rows` with an Arrow interface. A deleted row's key is free at once; a code's key stays known as long as the
code is held, so that it can be revived, and readers of old versions can find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.batch import RowBlock
from service.tables.arrow import any_null, few_to_row_set, from_cells, from_rows, kind, null_mask, padded, reader, to_row_set, writable
from structures.core.reserve import SLOTS
from structures.rows.key_counts import KeyCounts
from structures.rows.key_table import ALL_BITS, RowSet
from structures.rows.reading import RowMoves, Run
from structures.rows.retired import LIVING
from structures.rows.rows import RowStore
from structures.rows.succession import Succession, SuccessionRows, VersionSlots
from structures.rows.widening import Widening

Array = np.ndarray[Any, Any]
T = TypeVar("T")
Numbers = npt.NDArray[np.int64]  # of versions, ascending
NO_NUMBERS: Numbers = np.empty(0, np.int64)

# Limits of a piece of rows whose number is unbounded: a join repeats a text for every partner.
PIECE_ROWS = 1 << 16
PIECE_BYTES = 64 << 20
_LOOKED_AT = 1 << 14  # slots that one `reclaim` visits: about a millisecond
_LOOKED_UP = 1 << 12  # keys to look up while the writer may wait: about a millisecond
FREED_AT_ONCE = 1 << 12  # blocks of a structure that one `reclaim` frees: about as long

_NO_SLOTS = np.empty(0, np.int32)
_NO_TEXTS = np.zeros(1, np.int64), np.frombuffer(b"", np.uint8)  # read-only bytes, as kernels take them


def pieces(text_bytes: Array) -> Iterator[slice]:
    """Split rows with these bytes of text (int64[n]) into slices: PIECE_ROWS at most, and within PIECE_BYTES unless it is a single row."""
    ends = np.cumsum(text_bytes)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + PIECE_BYTES, "right"))
        stop = max(start + 1, min(stop, start + PIECE_ROWS))
        yield slice(start, stop)
        start = stop


class Table:
    """The rows of one relation.

    `given` and `given_keys` may be called from any thread, at any time; `find`, `insert` (both in steps: `given`, `find_given`, `enter`),
    `delete` and `reclaim` by the writer; `find_at`, `take`, `scan` and the methods after them meanwhile by any thread that holds a pin on
    the version it reads; they release the GIL. Costs: O(1) expected a row, and its bytes of text. Rows without a key are added, not
    inserted, and cannot be found: the caller must remember their slots.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str], hash_mask: int = ALL_BITS) -> None:
        positions = [schema.get_field_index(name) for name in key]
        self._rows = RowStore([kind(field.type) for field in schema], positions, any(field.nullable for field in schema), hash_mask)
        self._widening: Widening | None = None
        self._describe(schema)
        self._key_readers = [self._readers[i] for i in positions]
        self._key_kinds = self._rows.kinds[positions]
        self._key_key = np.arange(len(key), dtype=np.int64)
        self._has_key = len(key) > 0
        self._living = self._retired_text = 0
        self._mortal = 0  # number of slots when a row last died: `died` was never written beyond it
        self._lock = Lock()  # guards the key table
        self.changed = 0  # the newest version that inserted rows, or deleted rows with a key

    def _describe(self, schema: pa.Schema) -> None:
        """The projections are replaced last: a reader that finds none there yet finds this schema."""
        self.schema = schema
        self._columns = {field.name: i for i, field in enumerate(schema)}
        self._types = {field.name: field.type for field in schema}
        self._nullable = {field.name for field in schema if field.nullable}
        self._readers = [reader(field.type) for field in schema]
        self._projections: dict[tuple[str, ...], tuple[Array, pa.Schema]] = {}

    def begin_widening(self, schema: pa.Schema) -> None:
        """Prepare for more columns, or for nulls in existing ones: call `widen` until it returns False, then `adopt` the schema. All in the
        writer's turn. Raises MemoryError or OSError if there is no room."""
        rows = self._rows
        if len(schema) > len(rows.kinds) or (rows.width == len(rows.kinds) and any(field.nullable for field in schema)):
            self._widening = Widening(rows, [kind(field.type) for field in schema])

    def widen(self) -> bool:
        """Copy rows for about a millisecond; return whether there are more."""
        return self._widening is not None and self._widening.step()

    def end_widening(self) -> None:
        """Abandon a widening, if one is running."""
        self._widening = None

    def adopt(self, schema: pa.Schema) -> None:
        """Use this schema from now on: existing rows have nulls in further columns. Concurrent readers find rows that are wide enough for
        the schema they have seen."""
        self.finish_widening()
        if self._widening is not None:
            self._rows, self._widening = self._widening.finish(), None
        self._describe(schema)

    def finish_widening(self) -> None:
        """Copy the rows that were added since the last piece."""
        while self.widen():
            pass

    def find(self, keys: RowBlock) -> Array:
        """int32[n]: the slot of the newest row with each key (the columns of `keys`, in key order), or -1."""
        return self._rows.find(self.given_keys(keys)) if keys.num_rows else _NO_SLOTS

    def given_keys(self, keys: RowBlock) -> RowSet:
        """Convert keys, at least one, for `find_given`."""
        if keys.values is not None:
            return few_to_row_set(keys.values, self._key_kinds, self._key_key, len(self._key_key))
        return to_row_set(keys.arrow.columns, self._key_readers, self._key_kinds, self._key_key, len(self._key_key))

    def find_at(self, version: int, key: pa.RecordBatch) -> Array | None:
        """int32[0 or 1]: the slot of the row with this key (one) that a pinned version sees; None: unknown, as the key table has only the
        newest rows. Waits while a batch is entered."""
        given = self.given_keys(RowBlock(key))
        with self._lock:
            slots, changed = self._rows.find(given), self.changed
        slots = slots[slots >= 0]
        if len(slots) and self._rows.sees(version, int(slots[0])):
            return slots
        return _NO_SLOTS if changed <= version else None

    def find_seen(self, version: int, keys: RowSet) -> Array:
        """int32[n]: the slots of the rows with these keys that both a pinned version and the newest one have; -1 for others. Any thread;
        the writer waits for some thousand keys at a time."""
        found, with_texts = np.empty(len(keys.cells), np.int32), len(keys.positions) > 1
        for start in range(0, len(found), _LOOKED_UP):
            some = slice(start, start + _LOOKED_UP)
            positions = keys.positions[some] if with_texts else keys.positions
            with self._lock:
                slots = self._rows.find(RowSet(keys.kinds, keys.key, keys.cells[some], positions, keys.heap))
                found[some] = np.where(self._rows.born[slots] <= version, slots, -1)
        return found

    def sees(self, version: int, slot: int) -> bool:
        """Whether a pinned version sees the row at this slot."""
        return self._rows.sees(version, slot)

    def living(self, slots: Array) -> Array:
        """bool[n]: which of the rows at these slots, all seen by a pinned version, the newest version has, too. In the writer's turn."""
        living: Array = self._rows.died[slots] == LIVING
        return living

    def insert(self, version: int, rows: RowBlock) -> Array:
        """int32[n]: the slots of these rows, whose keys must not be present. Reclaimed slots are used first. Raises MemoryError, with
        nothing changed, when there is no room, and ValueError for a null in a table without nullable columns."""
        return self.enter(version, self.given(rows)) if rows.num_rows else _NO_SLOTS

    def given(self, rows: RowBlock) -> RowSet:
        """Convert rows, at least one, to the table's form. Raises as `insert`."""
        store = self._rows
        if rows.values is not None:
            return few_to_row_set(rows.values, store.kinds, store.key, store.width)
        return to_row_set(rows.arrow.columns, self._readers, store.kinds, store.key, store.width)

    def find_given(self, given: RowSet) -> Array:
        """As `find`, for whole rows or for keys."""
        return self._rows.find(given)

    def enter(self, version: int, given: RowSet) -> Array:
        """As `insert`."""
        with self._lock:
            self.changed = version
            slots, stored = self._rows.enter(version, given)
        assert stored == len(slots), "a key that is present was inserted"
        self._living += stored
        if self._widening is not None:
            self._widening.entered(slots)
        return slots

    def succeed(self, version: int, emitted: SuccessionRows, succession: Succession) -> VersionSlots:
        """As `RowStore.succeed`, in a table without texts and keys. MemoryError."""
        found, lost, new = self._rows.succeed(version, emitted, succession)
        self.succeeded(lost, new)
        return found

    def succeeded(self, lost: int, new: int) -> None:
        """Note that as many rows were deleted and inserted, as by `succeed`."""
        self._living += new - lost
        if lost:
            self._mortal = self._rows.used

    def positions_of(self, names: Sequence[str]) -> Array:
        """int64[k]: the positions of these columns in a row, which never change."""
        return self._projection(tuple(names))[0]

    def of_cells(self, cells: Array) -> pa.RecordBatch:
        """Convert rows of cells without texts to a batch."""
        return from_cells(cells, self.schema)

    @property
    def store(self) -> RowStore:
        """The rows as they are stored; replaced when they are widened. The writer's thread."""
        return self._rows

    def delete(self, version: int, slots: Array) -> None:
        """Delete the rows at these slots, all living, at `version` (not below an earlier one)."""
        if len(slots):
            deleted = writable(slots, np.int32)  # the list of retired rows keeps it
            self._retired_text += self._rows.all_text(deleted)
            if self._has_key:
                with self._lock:
                    self.changed = version
                    self._rows.unlink(deleted)
            self._rows.retire(version, deleted)
            self._living, self._mortal = self._living - len(deleted), self._rows.used

    def reclaim(self, oldest_needed: int, pins: Array) -> bool:
        """Make reusable, a piece at a time, the slots of rows that died at or before `oldest_needed` (the published version) and that no
        pinned version (sorted) sees; return whether there is more. O(rows that became due, and rows that former pins held), in all."""
        freed = self._rows.reclaim(oldest_needed, writable(pins, np.int64), _LOOKED_AT)
        if len(freed):
            self._retired_text -= self._rows.all_text(freed)
            self._rows.free(freed)
        return self._rows.is_due(oldest_needed) or self._rows.tidy()

    def require(self, rows: RowBlock) -> None:
        """Raise MemoryError, before anything is changed, unless `insert` surely has room for these."""
        self._rows.require(rows.num_rows, rows.bytes)

    def prepare(self, rows: int) -> None:
        """Start to grow the key table, if that is necessary for so many more rows, before one of them has to wait for it. O(rows)."""
        with suppress(MemoryError):  # the rows will be refused
            self._rows.require(rows, 0)

    def take(self, names: Sequence[str], slots: Array) -> pa.RecordBatch:
        """Return these columns of the rows at these slots. Raises OverflowError when a column's text exceeds 2 GiB."""
        columns, schema = self._projection(tuple(names))
        return from_rows(self._rows, schema, columns, writable(slots, np.int32))

    def same(self, names: Sequence[str], slots: Array, others: Array) -> Array:
        """bool[n]: whether slots[i] and others[i] look alike in these columns; null like null, NaN like the same NaN, 0.0 not like -0.0."""
        columns, _ = self._projection(tuple(names))
        return self._rows.same(columns, writable(slots, np.int32), writable(others, np.int32))

    def differing(self, names: Sequence[str], run: Run) -> RowMoves:
        """Return the rows that changes of these columns (as in `same`) delete and insert, for each change the deleted one first."""
        columns, _ = self._projection(tuple(names))
        return self._rows.differing(columns, Run(run.offsets, writable(run.old, np.int32), writable(run.new, np.int32)))

    def numbers(self, names: Sequence[str], slots: Array) -> tuple[Array, list[Array | None]]:
        """int64[k, n], writable: these columns (no text) in the words of `arrow.py`; and for each bool[n], true at nulls, or None."""
        columns, _ = self._projection(tuple(names))
        slots = writable(slots, np.int32)
        nulls = [self._nulls(name, slots) if name in self._nullable else None for name in names]
        return self._rows.gather(columns, slots), nulls

    def type_of(self, name: str) -> pa.DataType:
        return self._types[name]

    def _nulls(self, name: str, slots: Array) -> Array | None:
        valid, count = self._rows.gather_valid(self._columns[name], slots)
        return np.unpackbits(valid, count=len(slots), bitorder="little") == 0 if count else None

    def text_bytes(self, names: Sequence[str], slots: Array) -> Array:
        """int64[n]: the bytes of text that `take` copies per row."""
        columns, _ = self._projection(tuple(names))
        return self._rows.text_bytes(columns, writable(slots, np.int32))

    def take_pieces(self, names: Sequence[str], slots: Array) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """As `take`, in pieces, at least one: (slots, rows). For any number of rows; needs memory for one piece."""
        if len(slots) <= 1:
            yield slots, self.take(names, slots)
            return
        for part in pieces(self.text_bytes(names, slots)):
            yield slots[part], self.take(names, slots[part])

    def scan(self, version: int, start_slot: int, limit: int) -> tuple[Array, int]:
        """int32[<= limit] slots that `version` sees from `start_slot` on, ascending; and where to continue, or -1."""
        return self._rows.scan(version, start_slot, limit)

    def passed(self, start: int, end: int) -> int:
        return self._rows.passed(start, end)

    def sample(self, version: int, size: int) -> Array:
        """int32[<= 2 * size], ascending: about `size` slots that `version` sees, drawn evenly; all of a small table. The same slots
        for the same rows. O(size)."""
        if self.used <= 2 * size:
            return self.scan(version, 0, 2 * size)[0]
        return self._rows.scan_from(version, np.unique(np.random.default_rng(0).integers(0, self.used, size)))

    def _projection(self, names: tuple[str, ...]) -> tuple[Array, pa.Schema]:
        found = self._projections.get(names)
        if found is None:
            columns = np.array([self._columns[name] for name in names], np.int64)
            found = self._projections[names] = columns, pa.schema([self.schema.field(i) for i in columns.tolist()])
        return found

    @property
    def used(self) -> int:
        """Number of slots that have ever been used."""
        return self._rows.used

    @property
    def rows(self) -> int:
        """Number of rows at the newest version."""
        return self._living

    @property
    def bytes(self) -> int:
        """Bytes of the rows, including retired ones and the key table; without memory that is only reserved."""
        return self._rows.bytes

    @property
    def held(self) -> dict[str, int]:
        """The same by use, including free memory for reuse; without the `died` of slots where no row has died yet."""
        held = self._rows.held
        held["life"] -= 8 * max(0, self._rows.used - self._mortal)
        return held

    @property
    def retired_bytes(self) -> int:
        """Bytes of the rows that only older versions see."""
        return (self._rows.kept - self._living) * self._rows.row_bytes + self._retired_text

    def check(self) -> None:
        """Verify the invariants of `structures.rows.rows`, and that the key table has exactly the living rows."""
        living, retired, linked = self._rows.check()
        assert np.array_equal(living if self._has_key else _NO_SLOTS, linked), "I3: the key table and the living rows differ"
        assert len(living) == self._living, "the living rows are miscounted"
        assert self._retired_text == self._rows.all_text(retired), "the texts of retired rows are miscounted"


class Domain:
    """Codes of a composite join key. Floats: -0.0 equals 0.0, and all NaNs are equal.

    The writer and what prepares structures beside it acquire and release codes, the writer calls `reclaim`, any thread `look_up`: a lock
    keeps them from seeing a partly changed key table (they wait for one batch's codes). Costs: O(1) expected a row, and its bytes of text.
    """

    def __init__(self, types: Sequence[pa.DataType], hash_mask: int = ALL_BITS) -> None:
        self._rows = RowStore([kind(type) for type in types], range(len(types)), False, hash_mask)
        self._readers = [reader(type) for type in types]
        self._counts = KeyCounts(SLOTS)
        self._lock = Lock()
        self._newest = 0  # the newest version passed to a call, so never newer than the one that a batch is making

    def acquire(self, columns: pa.RecordBatch) -> Array:
        """int32[n]: the code of each key, which gains a reference; -1, without a reference, where a column is null.

        A new key gets a reclaimed code, or else the next number from 0 on. It counts as known since the newest version that `release` or
        `reclaim` was given, which may hold it a little too long, never too short.
        """
        return self._of_arrow(columns, self._acquire)

    def acquire_of(self, table: Table, names: Sequence[str], slots: Array) -> Array:
        """The same for these columns of a table's rows, any number."""
        return self._of_table(table, names, slots, self._acquire)

    def _acquire(self, given: RowSet) -> Array:
        codes, _ = self._rows.enter(self._newest, given)
        self._counts.up(codes, self._rows.died)
        return codes

    def release(self, codes: Array, version: int) -> None:
        """Drop a reference to each code (-1 is skipped); codes without references end at `version`, or the newest one that was given."""
        with self._lock:
            self._retire(self._counts.down(writable(codes, np.int32)), version)

    def release_all(self, version: int, kept: Numbers = NO_NUMBERS) -> None:
        """Drop all references except so many of each code (int64[n]). `reclaim` ends the other codes, unless they are acquired first."""
        with self._lock:
            self._newest = max(self._newest, version)
            self._counts.down_to(kept, self._rows.used)

    def _retire(self, dropped: Array, version: int) -> None:
        self._newest = max(self._newest, version)
        if len(dropped):
            self._rows.retire(self._newest, dropped)

    def require(self, rows: int, text_bytes: int) -> None:
        """Raise MemoryError, before anything is changed, unless `acquire` surely has room for so many keys."""
        with self._lock:
            self._rows.require(rows, text_bytes)

    def look_up(self, columns: pa.RecordBatch) -> Array:
        """int32[n]: the code of each key, -1 when unknown or null. Keys of any readable version are known."""
        return self._of_arrow(columns, self._rows.find)

    def look_up_cells(self, cells: Array) -> Array:
        """As `look_up`, for keys without texts and nulls, given as rows of cells (int64[n, columns])."""
        with self._lock:
            return self._rows.find(self._given(cells)) if len(cells) else _NO_SLOTS

    def count_cells(self, cells: Array, inserted: Array, version: int) -> Array:
        """As `acquire`, for such keys where `inserted` (bool[n]); the others, acquired earlier, are released at `version`."""
        if not len(cells):
            return _NO_SLOTS
        with self._lock:
            codes, dropped = self._rows.enter_used(self._newest, self._given(cells), self._counts.counts, inserted)
            self._retire(dropped, version)
        return codes

    def count_by(self, version: int, work: Callable[[int], tuple[T, Array]]) -> T:
        """Have `work` enter and count keys as `count_cells`: given the version since which new ones are known, returns ended ones, too."""
        with self._lock:
            found, dropped = work(self._newest)
            self._retire(dropped, version)
        return found

    @property
    def counted(self) -> tuple[RowStore, Array]:
        """The keys, and the reference count of each."""
        return self._rows, self._counts.counts

    def _given(self, cells: Array) -> RowSet:
        return RowSet(self._rows.kinds, self._rows.key, np.ascontiguousarray(cells), *_NO_TEXTS)

    def take(self, schema: pa.Schema, codes: Array) -> pa.RecordBatch:
        """Return the keys of these codes of a readable version; `schema` names the columns. Raises OverflowError as `Table.take`."""
        return from_rows(self._rows, schema, self._rows.key, writable(codes, np.int32))

    def text_bytes(self, codes: Array) -> Array:
        """int64[n]: the bytes of text of these keys."""
        return self._rows.text_bytes(self._rows.key, writable(codes, np.int32))

    def look_up_of(self, table: Table, names: Sequence[str], slots: Array) -> Array:
        """The same for these columns of a table's rows, any number."""
        return self._of_table(table, names, slots, self._rows.find)

    def reclaim(self, oldest_needed: int, pins: Array) -> bool:
        """As `Table.reclaim`: unused codes that no readable version has may be given to other keys."""
        with self._lock:
            self._retire(self._counts.sweep(_LOOKED_AT, self._rows.born, self._rows.died), oldest_needed)
            freed = self._rows.reclaim(oldest_needed, writable(pins, np.int64), _LOOKED_AT)
            if len(freed):
                self._rows.unlink(freed)
                self._rows.free(freed)
            return len(self._counts.unswept) > 0 or self._rows.is_due(oldest_needed) or self._rows.tidy()

    def _of_arrow(self, columns: pa.RecordBatch, work: Callable[[RowSet], Array]) -> Array:
        """Call `work`, under the lock, on the rows without nulls; -1 for the others."""
        nulls = any_null([null_mask(column) for column in columns.columns])
        if nulls is not None:
            columns = columns.filter(pa.array(~nulls))
        rows = self._rows
        codes = _NO_SLOTS
        if len(columns):
            given = to_row_set(columns.columns, self._readers, rows.kinds, rows.key, rows.width)
            with self._lock:
                codes = work(given)
        return padded(codes, nulls)

    def _of_table(self, table: Table, names: Sequence[str], slots: Array, work: Callable[[RowSet], Array]) -> Array:
        """The same, using Arrow only where there are texts: for one row, Arrow takes longer than all the rest."""
        if None in self._readers:
            parts = [self._of_arrow(rows, work) for _, rows in table.take_pieces(names, slots)]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        cells, masks = table.numbers(names, slots)
        nulls = any_null(masks)
        if nulls is not None:
            cells = cells[:, ~nulls]
        rows = self._rows
        codes = _NO_SLOTS
        if cells.shape[1]:
            given = RowSet(rows.kinds, rows.key, np.ascontiguousarray(cells.T), *_NO_TEXTS)
            with self._lock:
                codes = work(given)
        return padded(codes, nulls)

    @property
    def codes(self) -> int:
        """An exclusive upper bound of all codes ever used."""
        return self._rows.used

    @property
    def keys(self) -> int:
        """Number of keys that are in use, or that a readable version may have."""
        return self._rows.linked

    @property
    def bytes(self) -> int:
        """Bytes of the keys and their counts."""
        return self._rows.bytes + self._rows.linked * 8

    def check(self) -> None:
        """Verify the invariants of `structures.rows.rows`, and: known = not free, living = counted, or about to be ended."""
        living, retired, linked = self._rows.check()
        assert np.array_equal(np.union1d(living, retired), linked), "I3: the key table and the codes differ"
        unused = self._counts.unused(self._counts.unswept, self._rows.born, self._rows.died)
        counted = np.flatnonzero(self._counts.counts[: self._rows.used])
        assert np.array_equal(np.union1d(counted, unused), living), "counts and lives differ"

"""Rows of a relation, in terms of Arrow: key -> row; a row lives at the versions [born, died).

It is `structures.rows.rows.RowStore` with an Arrow interface. A deleted row's key is free at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.batch import RowBlock
from service.tables.arrow import few_to_row_set, from_cells, from_rows, kind, reader, to_row_set, writable
from structures.rows.key_table import ALL_BITS, RowSet
from structures.rows.reading import RowMoves, Run
from structures.rows.retired import LIVING
from structures.rows.rows import RowStore
from structures.rows.succession import Succession, SuccessionRows, VersionSlots
from structures.rows.widening import widened

Array = np.ndarray[Any, Any]
Numbers = npt.NDArray[np.int64]  # of versions, ascending
NO_NUMBERS: Numbers = np.empty(0, np.int64)

# Limits of a piece of rows whose number is unbounded: a join repeats a text for every partner.
PIECE_ROWS = 1 << 16
PIECE_BYTES = 64 << 20
LOOKED_AT = 1 << 14  # slots that one `reclaim` visits: about a millisecond
_LOOKED_UP = 1 << 12  # keys to look up while the writer may wait: about a millisecond
FREED_AT_ONCE = 1 << 12  # blocks of a structure that one `reclaim` frees: about as long

_NO_SLOTS = np.empty(0, np.int32)


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

    def wider(self, schema: pa.Schema) -> RowStore:
        """Return the rows with more columns, or with nulls in existing ones, for `adopt` in the same turn of the writer. Raises MemoryError
        or OSError if there is no room. O(rows)."""
        rows = self._rows
        if len(schema) > len(rows.kinds) or (rows.width == len(rows.kinds) and any(field.nullable for field in schema)):
            return widened(rows, [kind(field.type) for field in schema])
        return rows

    def adopt(self, schema: pa.Schema, rows: RowStore) -> None:
        """Use this schema, and its rows by `wider`, from now on: existing rows have nulls in further columns. Concurrent readers find rows
        that are wide enough for the schema they have seen."""
        self._rows = rows
        self._describe(schema)

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
        freed = self._rows.reclaim(oldest_needed, writable(pins, np.int64), LOOKED_AT)
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

    def scanned(self, version: int, limit: int | None = None) -> Iterator[Array]:
        """Yield all slots that `version` sees, ascending, in pieces (PIECE_ROWS by default), at least one, which may be empty."""
        start = 0
        while start >= 0:
            slots, start = self.scan(version, start, limit or PIECE_ROWS)
            yield slots

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

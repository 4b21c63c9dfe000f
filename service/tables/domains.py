"""Codes of join keys, in terms of Arrow: composite key -> int32 code, with a reference count; an unreferenced code that no readable version
has gets another key.

It is `structures.rows.rows.RowStore` with an Arrow interface. A code's key stays known as long as the code is held, so that it can be
revived, and readers of old versions can find it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from service.tables.arrow import any_null, from_rows, kind, null_mask, padded, reader, to_row_set, writable
from service.tables.store import LOOKED_AT, NO_NUMBERS, Numbers, Table
from structures.core.reserve import SLOTS
from structures.rows.key_counts import KeyCounts
from structures.rows.key_table import ALL_BITS, RowSet
from structures.rows.rows import RowStore

Array = np.ndarray[Any, Any]
T = TypeVar("T")
_NO_CODES = np.empty(0, np.int32)
_NO_TEXTS = np.zeros(1, np.int64), np.frombuffer(b"", np.uint8)  # read-only bytes, as kernels take them


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
            return self._rows.find(self._given(cells)) if len(cells) else _NO_CODES

    def count_cells(self, cells: Array, inserted: Array, version: int) -> Array:
        """As `acquire`, for such keys where `inserted` (bool[n]); the others, acquired earlier, are released at `version`."""
        if not len(cells):
            return _NO_CODES
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
            self._retire(self._counts.sweep(LOOKED_AT, self._rows.born, self._rows.died), oldest_needed)
            freed = self._rows.reclaim(oldest_needed, writable(pins, np.int64), LOOKED_AT)
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
        codes = _NO_CODES
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
        codes = _NO_CODES
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

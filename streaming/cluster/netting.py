"""The net effect of deleted and inserted rows: equal ones cancel out.

A row of a view may leave one cell and enter another in one epoch. Changes meet by the hash of their identity, which all cells compute in
the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.batch import DELETE, INSERT, OP_NAMES
from livejoin.wire.schema import OP_COLUMN
from streaming.cluster.packing import as_one, one_of, unpacked
from streaming.cluster.workers import query_and_epoch

EPOCH_COLUMN = "_epoch"
_MOST_BYTES = 1 << 30  # that are netted at once: a column of a batch has at most 2 GiB of text
_ODD = np.uint64(0x9E3779B97F4A7C15)


def net(deleted: pa.RecordBatch, inserted: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Both without the rows that they have in common, counting multiplicities. In any order. Cost: about 30 ns per column of a row; for
    rows that may be in both, a group-by."""
    deleted_hashes, inserted_hashes = row_hashes(deleted), row_hashes(inserted)
    inserted_meets = _may_be_among(inserted_hashes, deleted_hashes)
    deleted_meets = _may_be_among(deleted_hashes, inserted_hashes[inserted_meets])
    some_deleted, some_inserted = deleted_hashes[deleted_meets], inserted_hashes[inserted_meets]
    deleted_meets[deleted_meets], inserted_meets[inserted_meets] = (
        np.isin(some_deleted, some_inserted),
        np.isin(some_inserted, some_deleted),
    )
    if not deleted_meets.any():
        return deleted, inserted
    numbers = [str(position) for position in range(deleted.num_columns)]  # names of columns may be anything: here they are numbers
    signed = [
        pa.table([*rows.filter(pa.array(meets)).columns, pa.array(np.full(np.count_nonzero(meets), sign))], [*numbers, "sign"])
        for rows, meets, sign in ((deleted, deleted_meets, -1), (inserted, inserted_meets, 1))
    ]
    summed = pa.concat_tables(signed).group_by(numbers, use_threads=False).aggregate([("sign", "sum")])
    left = summed.column("sign_sum").to_numpy()
    times = pa.array(np.repeat(np.arange(len(left)), np.abs(left)))
    more = summed.take(times)
    signs = np.repeat(left, np.abs(left))
    found = []
    for rows, meets, kept in ((deleted, deleted_meets, signs < 0), (inserted, inserted_meets, signs > 0)):
        again = more.filter(pa.array(kept)).select(numbers).rename_columns(rows.schema.names).cast(rows.schema)
        found.append(one_of(pa.concat_tables([pa.table(rows.filter(pa.array(~meets))), again])))
    return found[0], found[1]


def net_of_all(
    deleted: Sequence[pa.RecordBatch], inserted: Sequence[pa.RecordBatch], form: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:  # fmt: skip
    """The net effect of all of them, in slices of about _MOST_BYTES by the hashes of rows. Raises TooMuchAtOnce (rows of one hash)."""
    slices = 1 + sum(rows.nbytes for rows in (*deleted, *inserted)) // _MOST_BYTES
    if slices == 1:
        yield net(as_one(deleted, form), as_one(inserted, form))
        return
    positions = [[row_hashes(rows) % np.uint64(slices) for rows in some] for some in (deleted, inserted)]
    for index in range(slices):
        own = (
            as_one([rows.filter(pa.array(of == index)) for rows, of in zip(some, numbers, strict=True)], form)
            for some, numbers in zip((deleted, inserted), positions, strict=True)
        )
        yield net(*own)


def _may_be_among(hashes: npt.NDArray[np.uint64], others: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """bool[hashes]: true for all that are, and for one in sixteen of those that are not, by a table of the lowest bits."""
    mask = np.uint64((1 << (16 * len(others)).bit_length()) - 1)
    there = np.zeros(int(mask) + 1, np.bool_)
    there[others & mask] = True
    found: npt.NDArray[np.bool_] = there[hashes & mask]
    return found


def row_hashes(rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """uint64[n]: equal rows have equal ones, in any process."""
    mixed = np.zeros(rows.num_rows, np.uint64)
    for column in rows.columns:
        mixed = (mixed ^ _words(column)) * _ODD
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _words(column: pa.Array) -> npt.NDArray[np.uint64]:
    kind = column.type
    if pa.types.is_boolean(kind):
        return _plain(column.cast(pa.int64()))
    if pa.types.is_floating(kind):
        values: npt.NDArray[np.float64] = pc.fill_null(column, 0.0).to_numpy() + 0.0  # -0.0 is 0.0
        return values.view(np.uint64)
    if pa.types.is_decimal(kind):
        (_, data) = column.buffers()
        words = np.frombuffer(data, np.uint64).reshape(-1, 2)[column.offset : column.offset + len(column), 0]
        return np.where(column.is_valid().to_numpy(zero_copy_only=False), words, np.uint64(0))
    if pa.types.is_primitive(kind):
        return _plain(column.view(pa.int32()).cast(pa.int64()) if kind.bit_width == 32 else column.view(pa.int64()))
    encoded = column.dictionary_encode()
    checks = np.array([*map(zlib.crc32, encoded.dictionary.cast(pa.binary()).to_pylist()), 0], np.uint64)  # the last of nulls
    positions: npt.NDArray[np.int32] = encoded.indices.fill_null(-1).to_numpy()
    return checks[positions]


def _plain(column: pa.Array) -> npt.NDArray[np.uint64]:
    values: npt.NDArray[np.int64] = (column.fill_null(0) if column.null_count else column).to_numpy()
    return values.view(np.uint64)


def emitted_together(identities: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """As one batch."""
    names = [name for name in identities.schema.names if "." in name]  # without a dot: no column's
    fields = [*(identities.schema.field(name).remove_metadata() for name in names), *rows.schema]
    return pa.RecordBatch.from_arrays([*(identities.column(name) for name in names), *rows.columns], schema=pa.schema(fields))


class UnknownEpoch(ValueError):
    """Spark does not tell the job its micro-batch: the changes of all would be reported as those of one."""

    def __init__(self) -> None:
        said = "the changes of a view are read by a job that does not know its micro-batch, as in foreachBatch over Spark Connect"
        ways = "let the query itself write them (writeStream.format), or use Spark Classic and read them in the thread of foreachBatch"
        super().__init__(f"{said}: {ways}")


class Netting(NamedTuple):
    """The last stage. `form`: the schema of what it nets."""

    form: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of the changes of the view."""
        return pa.schema([pa.field(OP_COLUMN, pa.utf8(), False), pa.field(EPOCH_COLUMN, pa.int64(), False), *self.form])

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Blobs of a partition, whose role is DELETE or INSERT, as changes: deletes first. Raises UnknownEpoch."""
        _, epoch = query_and_epoch()
        if epoch is None:
            raise UnknownEpoch
        yield from self.netted(batches, epoch)

    def netted(self, batches: Iterable[pa.RecordBatch], epoch: int) -> Iterator[pa.RecordBatch]:
        parts: dict[int, list[pa.RecordBatch]] = {DELETE: [], INSERT: []}
        for _, op, rows in unpacked(batches, [self.form] * (max(DELETE, INSERT) + 1)):
            parts[op].append(rows)
        for op, left in zip((DELETE, INSERT), zip(*net_of_all(parts[DELETE], parts[INSERT], self.form), strict=True), strict=True):
            for rows in left:
                if rows.num_rows:
                    emitted = [pa.repeat(OP_NAMES[op], rows.num_rows), pa.repeat(epoch, rows.num_rows)]
                    yield pa.RecordBatch.from_arrays([*emitted, *rows.columns], schema=self.schema)

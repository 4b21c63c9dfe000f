"""Settled changes of a view: Arrow, in segments; and their form in a snapshot.

a segment in a file := a record batch: _version, _deleted, the columns of the keys, the columns of the rows
the schema's metadata: the number of key columns, and the feed's `lost` and `cut`
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from service.views.deltas import Delta, StoredDeltas

_KEYS, _LOST, _CUT = b"livejoin.keys", b"livejoin.lost", b"livejoin.cut"
_SMALL_BYTES, _TOGETHER = 16 << 10, 16  # of segments that are merged, and how many
_OWN = [pa.field("_version", pa.int64()), pa.field("_deleted", pa.bool_())]


@dataclass(slots=True)
class Segment:
    """Settled changes: rows starts[i]..starts[i+1] are those of versions[i], the first deletes[i] of them deleted. `level`: how many times
    they were merged with others."""

    versions: array[int]
    starts: array[int]
    deletes: array[int]
    keys: pa.RecordBatch
    rows: pa.RecordBatch
    row_bytes: float
    level: int = 0

    @property
    def bytes(self) -> float:
        return self.starts[-1] * self.row_bytes

    def change(self, i: int) -> tuple[int, pa.RecordBatch, pa.RecordBatch, int]:
        start, end = self.starts[i], self.starts[i + 1]
        return self.versions[i], self.keys.slice(start, end - start), self.rows.slice(start, end - start), self.deletes[i]


def segment_of(settled: Delta, keys: pa.RecordBatch, rows: pa.RecordBatch) -> Segment:
    row_bytes = (keys.nbytes + rows.nbytes) / keys.num_rows
    return Segment(_packed(settled.versions), _packed(settled.starts), _packed(settled.deletes), keys, rows, row_bytes)


def _packed(numbers: list[int]) -> array[int]:
    """A list would need four times as much, and each change has three numbers."""
    return array("q", numbers)


def to_merge(segments: Sequence[Segment]) -> list[Segment]:
    """Return the last ones if enough are small and of one level, otherwise none: each has kilobytes of overhead, and a follower at the head
    causes one per version. Only equal levels are merged, so that a row is copied once a level. The first of all is not among them: it may
    be partly dropped."""
    if len(segments) <= _TOGETHER:
        return []
    some = [segments[at] for at in range(-_TOGETHER, 0)]
    return some if all(one.level == some[-1].level and one.bytes <= _SMALL_BYTES for one in some) else []


def merged(segments: list[Segment]) -> Segment:
    """Concatenate successive segments of one level."""
    versions, starts, deletes = _packed([]), _packed([0]), _packed([])
    for segment in segments:
        starts += _packed([starts[-1] + start for start in segment.starts[1:]])
        deletes += segment.deletes
        versions += segment.versions
    row_bytes = sum(segment.bytes for segment in segments) / starts[-1]
    keys, rows = (_concatenated(batches) for batches in ([segment.keys for segment in segments], [segment.rows for segment in segments]))
    return Segment(versions, starts, deletes, keys, rows, row_bytes, segments[0].level + 1)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Handles columns that have become nullable in between."""
    schema = _schema(batches)
    return pa.concat_batches([pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches])


def _schema(batches: list[pa.RecordBatch]) -> pa.Schema:
    return pa.unify_schemas([batch.schema for batch in batches])


def stored(lost: int, cut: int, parts: list[tuple[Segment, int, int]]) -> StoredDeltas:
    """Return the versions number first to end (excluded) of each segment, in the form of the file."""
    some = [segment for segment, _, _ in parts]
    keys, rows = ([*_schema(batches)] if batches else [] for batches in ([one.keys for one in some], [one.rows for one in some]))
    schema = pa.schema([*_OWN, *keys, *rows], {_KEYS: str(len(keys)), _LOST: str(lost), _CUT: str(cut)})

    def batches() -> Iterator[pa.RecordBatch]:
        for segment, first, end in parts:
            starts = np.array(segment.starts[first : end + 1])
            counts, deletes = np.diff(starts), np.array(segment.deletes[first:end])
            deleted = np.arange(starts[0], starts[-1]) < np.repeat(starts[:-1] + deletes, counts)
            own = [pa.array(np.repeat(segment.versions[first:end], counts)), pa.array(deleted)]
            columns = [column.slice(starts[0], len(deleted)) for batch in (segment.keys, segment.rows) for column in batch.columns]
            yield pa.RecordBatch.from_arrays([*own, *columns], schema=schema)

    return StoredDeltas(schema, batches())


def taken_back(found: StoredDeltas, keys: pa.Schema, rows: pa.Schema, version: int) -> tuple[int, int, list[Segment]]:
    """Return `lost`, `cut` and the segments up to a version. Raises ValueError or KeyError (as do Arrow's errors) for invalid data."""
    metadata = found.schema.metadata
    lost, cut, width = (int(metadata[name]) for name in (_LOST, _CUT, _KEYS))
    segments, last = list[Segment](), lost
    for batch in found.batches:
        if width != len(keys) or batch.num_columns != len(_OWN) + len(keys) + len(rows):
            raise ValueError("the columns are not those of the view")
        if not batch.num_rows:
            continue
        own, columns = batch.columns[: len(_OWN)], batch.columns[len(_OWN) :]
        of_rows = np.asarray(own[0])
        versions, starts = np.unique(of_rows, return_index=True)
        if np.any(np.diff(of_rows) < 0) or versions[0] <= last or versions[-1] > version:
            raise ValueError("the versions are not in order")
        last = int(versions[-1])
        deletes = np.add.reduceat(np.asarray(own[1]).astype(np.int64), starts)
        its_keys = pa.RecordBatch.from_arrays(columns[:width], schema=keys)
        its_rows = pa.RecordBatch.from_arrays(columns[width:], schema=rows)
        row_bytes = (its_keys.nbytes + its_rows.nbytes) / batch.num_rows
        numbers = _packed(versions.tolist()), _packed([*starts.tolist(), batch.num_rows]), _packed(deletes.tolist())
        segments.append(Segment(*numbers, its_keys, its_rows, row_bytes))
    return lost, cut, segments

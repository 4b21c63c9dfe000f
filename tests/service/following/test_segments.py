"""Segments of changes whose columns have come to be null: a relation is patched while its views are followed."""

from __future__ import annotations

import pyarrow as pa

from service.following.segments import Segment, merged, segment_of, stored
from service.views.deltas import Delta


def segment(version: int, nullable: bool, value: int | None) -> Segment:
    keys = pa.RecordBatch.from_arrays([pa.array([version])], schema=pa.schema([pa.field("g", pa.int64(), nullable)]))
    rows = pa.RecordBatch.from_arrays([pa.array([value], pa.int64())], schema=pa.schema([pa.field("v", pa.int64(), nullable)]))
    return segment_of(Delta([version], [0, 1], [0], ()), keys, rows)


def test_they_are_merged() -> None:
    one = merged([segment(1, False, 7), segment(2, True, None)])
    assert ([*one.versions], [*one.starts], [*one.deletes], one.level) == ([1, 2], [0, 1, 2], [0, 0], 1)
    assert (one.keys["g"].to_pylist(), one.rows["v"].to_pylist()) == ([1, 2], [7, None])
    assert one.rows.schema.field("v").nullable
    assert merged([segment(1, False, 7), segment(2, False, 8)]).rows.schema == segment(1, False, 7).rows.schema


def test_they_are_stored() -> None:
    kept = stored(0, 0, [(segment(1, False, 7), 0, 1), (segment(2, True, None), 0, 1)])
    table = pa.Table.from_batches(list(kept[1]), kept[0])
    table.validate(full=True)
    assert kept[0].field("v").nullable and table["v"].to_pylist() == [7, None]

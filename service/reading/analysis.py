"""Readings of all rows that send none: how many there are, and what it costs to find them."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from service.reading.cursors import RowReader

_AT_ONCE = 65_536  # rows


def counted(reader: RowReader) -> Generator[None, None, dict[str, int]]:
    count = 0
    while (some := reader.skip(_AT_ONCE)) is not None:
        count += some
        yield
    return {"version": reader.version, "count": count}


def analyzed(reader: RowReader) -> Generator[None, None, dict[str, Any]]:
    """Read all rows without sending them, and return the work that this was. A delay is the steps from the beginning to the first row, from
    one row to the next, or from the last row to the end, where the last rows are read a second time, from a twin, to know their number."""
    begun, rows, before, last = time.perf_counter(), 0, reader.twin(), 0
    try:
        while (found := reader.skip(_AT_ONCE)) is not None:
            if found:
                rows += found
                last = _steps_of(before, found)
                before.close()
                before = reader.twin()
            yield
    finally:
        before.close()
    work = reader.counts
    return {
        "version": reader.version,
        "row_count": rows,
        "steps": work.steps,
        "delay_steps": {"max": max(work.largest_gap, work.steps - last), "mean": work.steps / (rows + 1)},
        "dead_ends": work.dead_ends,
        "counters": dict(work.counters),
        "seconds": time.perf_counter() - begun,
    }


def _steps_of(reader: RowReader, rows: int) -> int:
    """The steps up to the last of the next rows."""
    reader.leave_uncounted()
    while rows:
        rows -= reader.skip(rows) or 0
    return int(reader.counts.steps)

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
    one row to the next, or from the last row to the end. For the latter, the last chunk is read again, from a twin."""
    begun, rows, last = time.perf_counter(), 0, 0
    twins = [reader.twin()]  # where the last chunk with rows begins, and where it ends
    try:
        while (found := reader.skip(_AT_ONCE)) is not None:
            if found:
                rows, last = rows + found, found
                if len(twins) > 1:
                    twins.pop(0).close()
                twins.append(reader.twin())
            yield
        seconds = time.perf_counter() - begun
        twins[0].leave_uncounted()
        while last:
            last -= twins[0].skip(last) or 0
            yield
        work, tail = reader.counts, reader.counts.steps - (twins[0].counts.steps if rows else 0)
    finally:
        for twin in twins:
            twin.close()
    return {
        "version": reader.version,
        "row_count": rows,
        "steps": work.steps,
        "delay_steps": {"max": max(work.largest_gap, tail), "mean": work.steps / (rows + 1)},
        "dead_ends": work.dead_ends,
        "counters": dict(work.counters),
        "seconds": seconds,
    }

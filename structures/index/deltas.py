"""Report the rows of a batch, for structures over ordered indexes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from structures.core.cursor import Cursor

CHUNK = 1 << 16  # most rows that a sink gets at once
_FIRST = 1 << 8

Sink = Callable[[int, np.ndarray], bool]


def tell_all(cursor: Cursor, sign: int, sink: Sink) -> Sink | None:
    """Pass all rows of the cursor, in growing chunks, to the sink. Returns the sink, or None once it wants no more."""
    wanted, limit = True, _FIRST
    while wanted and not cursor.done:
        rows = cursor.fill(limit)
        limit = min(4 * limit, CHUNK)
        wanted = rows.shape[1] == 0 or sink(sign, rows)
    return sink if wanted else None

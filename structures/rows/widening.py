"""Add columns, or nulls, to rows at the same slots: the rows are copied, and the wider ones replace the others.

They have the lives, the texts and the key table of the former ones, which are no longer written. Readers that still use those find the rows
of earlier versions.

Cost: O(rows), some 50 ns each.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from structures.core.reserve import MEMORY, SLOTS, reserve
from structures.rows.key_table import NULLS_A_CELL, TEXT
from structures.rows.rows import LIFE_BYTES, RowStore


def widened(rows: RowStore, kinds: list[int]) -> RowStore:
    """Return the rows with columns of these kinds, the existing ones first. For the writer, which uses them in place of `rows` from now on.
    Raises MemoryError or OSError if there is no room."""
    used, before, columns = rows.used, len(rows.kinds), len(kinds)
    width = columns + -(-columns // NULLS_A_CELL)
    most = min(rows.most, SLOTS, MEMORY // (8 * width + LIFE_BYTES))
    if used > most:
        raise MemoryError(f"this relation would hold at most {most} rows, retired ones included, by the memory of this machine")
    cells = reserve(most * width * 8, np.int64).reshape(most, width)
    cells[:used, :before] = rows.cells[:used, :before]
    for column in range(before, columns):  # null in all rows
        cells[:used, columns + column // NULLS_A_CELL] |= 1 << (column % NULLS_A_CELL)
    for cell in range(rows.width - before):
        cells[:used, columns + cell] |= rows.cells[:used, before + cell]
    made = copy(rows)
    made.kinds, made.cells, made.width, made.most = np.array(kinds, np.int8), cells, width, most
    made._text_columns = np.flatnonzero(made.kinds == TEXT)
    made._use(rows._texts if len(rows._text_columns) or not len(made._text_columns) else made._new_texts())
    return made

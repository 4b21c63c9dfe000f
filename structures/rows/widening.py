"""Add columns, or nulls, to rows at the same slots: rows are copied beside those in use, a piece at a time.

    0 ..... at ............ used
    copied     to copy                rows entered at a slot below `at` are copied at once

Then the wider rows replace the others: they have the lives, the texts and the key table of the former ones, which are no longer written.
Readers that still use those find the rows of earlier versions.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from structures.core.reserve import MEMORY, SLOTS, reserve
from structures.rows.key_table import NULLS_A_CELL, TEXT
from structures.rows.rows import LIFE_BYTES, RowStore

_AT_ONCE = 2 << 20  # bytes


class Widening:
    """`kinds`: of all columns, the existing ones first. For the writer only. Raises MemoryError or OSError if there is no room.

    Costs: `step` two megabytes of copying, `entered` O(rows), `finish` O(1).
    """

    def __init__(self, rows: RowStore, kinds: list[int]) -> None:
        self._rows = rows
        self._kinds = np.array(kinds, np.int8)
        columns = len(kinds)
        self._width = columns + -(-columns // NULLS_A_CELL)
        self._most = min(rows.most, SLOTS, MEMORY // (8 * self._width + LIFE_BYTES))
        if rows.used > self._most:
            raise MemoryError(f"this relation would hold at most {self._most} rows, retired ones included, by the memory of this machine")
        self._cells = reserve(self._most * self._width * 8, np.int64).reshape(self._most, self._width)
        self._nulls = np.zeros(self._width - columns, np.int64)  # null bits of a row without values in the new columns
        for column in range(len(rows.kinds), columns):
            self._nulls[column // NULLS_A_CELL] |= 1 << (column % NULLS_A_CELL)
        self._at = 0

    def step(self) -> bool:
        """Copy the next rows. Returns whether there are more."""
        end = min(self._rows.used, self._at + max(1, _AT_ONCE // (8 * self._width)))
        self._copy(slice(self._at, end))
        self._at = end
        return self._at < self._rows.used

    def entered(self, slots: np.ndarray) -> None:
        """Copy rows that have been entered at these slots, if necessary."""
        behind = slots[slots < self._at]
        if len(behind):
            self._copy(behind)

    def _copy(self, where: slice | np.ndarray) -> None:
        old, new, before, columns = self._rows.cells, self._cells, len(self._rows.kinds), len(self._kinds)
        new[where, :before] = old[where, :before]
        new[where, columns:] = self._nulls
        for cell in range(self._rows.width - before):
            new[where, columns + cell] |= old[where, before + cell]

    def finish(self) -> RowStore:
        """Return the wider rows, which replace the others, once all rows are copied."""
        assert self._at >= self._rows.used, "not all rows are copied"
        rows, made = self._rows, copy(self._rows)
        made.kinds, made.cells, made.width, made.most = self._kinds, self._cells, self._width, self._most
        made._text_columns = np.flatnonzero(self._kinds == TEXT)
        made._use(rows._texts if len(rows._text_columns) or not len(made._text_columns) else made._new_texts())
        return made

"""What the cursors of all structures share: readings of one version, resumable between two chunks of rows.

A cursor is plain data beside its structure: arrays that belong to the reading kernels of its room. Whoever holds one holds its version's
pin. A clone costs a copy of these arrays.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Self

import numpy as np

_NO_STATE = np.empty(0, np.int64)


@cache
def _no_rows(members: int) -> np.ndarray:
    return np.empty((members, 0), np.int32)


class Resumable:
    """A computation that continues from a state `_Z`, which its kernels change."""

    _Z: np.ndarray

    def clone(self) -> Self:
        """Return an independent cursor at the same place."""
        other = copy.copy(self)
        other._Z = self._Z.copy()
        return other


class Cursor(Resumable):
    """A reading of one version. A subclass reads on in `_more`, sets `_ended`, and says which words of Z its kernels count in."""

    _STEPS: int
    _GAP: int
    _DEAD: int | None = None
    _BUDGET = 1 << 18  # steps of a call that finds nothing: about a millisecond
    _LOOKS = 256  # calls without rows before a reading is interrupted (a window has three parts for each key)

    def __init__(self, members: int, Z: np.ndarray) -> None:
        """`members`: the number of slots of a row."""
        self._nothing = _no_rows(members)
        self._held = self._nothing  # rows that a kernel returned beyond the limit
        self._ended = False
        self._Z = Z

    def fill(self, limit: int) -> np.ndarray:
        """Return up to `limit` >= 1 further rows, int32[members, rows]: their slots.

        A call takes milliseconds, with the GIL released in its kernels, and may find no rows before the end (`done`).
        """
        rows = self._held
        if rows is self._nothing and not self._ended:
            rows = self._more(limit)
            if not (rows.size or self._ended):
                rows = self._look_on(limit)
        if rows.shape[1] <= limit:
            self._held = self._nothing
            return rows
        self._held = rows[:, limit:]
        return rows[:, :limit]

    def _look_on(self, want: int) -> np.ndarray:
        """Return the next rows, after calls that find none; no rows if the budget does not reach them."""
        rows, start = self._nothing, self.steps
        for _ in range(self._LOOKS):
            if rows.shape[1] or self._ended or self.steps - start >= self._BUDGET:
                break
            rows = self._more(want)
        return rows

    def _more(self, want: int) -> np.ndarray:
        """Return further rows, possibly some more than wanted, or none yet."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        return self._ended and self._held.shape[1] == 0

    @property
    def steps(self) -> int:
        """The number of nodes, entries and other items visited so far."""
        return int(self._Z[self._STEPS])

    @property
    def largest_gap(self) -> int:
        """The largest number of steps between two rows so far."""
        return int(self._Z[self._GAP])

    @property
    def dead_ends(self) -> int | None:
        """The number of items visited in vain so far, as the class defines them; None: they are not counted."""
        return None if self._DEAD is None else int(self._Z[self._DEAD])

    @property
    def counters(self) -> dict[str, int]:
        """Further counts of the algorithm so far, by name."""
        return {}


class GivenCursor(Cursor):
    """The given rows, without any look-up."""

    _STEPS, _GAP = 0, 1

    def __init__(self, rows: np.ndarray) -> None:
        super().__init__(len(rows), np.zeros(2, np.int64))
        self._held, self._ended = rows, True


class PartedCursor(Cursor):
    """A reading in parts, one after another."""

    def __init__(self, members: int, Z: np.ndarray = _NO_STATE) -> None:
        """`Z`: the state of kernels that are called beside the parts."""
        super().__init__(members, Z)
        self._part: Cursor | None = None
        self._has_emitted = False  # whether the part has returned rows
        self._past = self._gap = self._last = 0  # of the parts that have ended: steps, the largest gap; the steps at the last row

    def _next_part(self) -> Cursor | None:
        """Return the next part; None if it surely has no rows, or if none is left: then `_ended` is set."""
        raise NotImplementedError

    def _beside(self) -> int:
        """Return the number of steps beside the parts."""
        return 0

    def _more(self, want: int) -> np.ndarray:
        if self._part is None:
            self._part = self._next_part()
            if self._part is None:
                return self._nothing
        rows = self._part.fill(want)
        self._has_emitted = self._has_emitted or rows.shape[1] > 0
        if self._part.done:
            self._end_part(self._part)
        return rows

    def _end_part(self, part: Cursor) -> None:
        before, steps = self._past + self._beside(), part.steps
        self._past += steps
        if self._has_emitted:
            self._gap, self._last = max(self._gap, part.largest_gap, before - self._last), before + steps
        self._part, self._has_emitted = None, False

    @property
    def steps(self) -> int:
        return self._past + self._beside() + (self._part.steps if self._part is not None else 0)

    @property
    def largest_gap(self) -> int:
        return max(self._gap, self._part.largest_gap if self._part is not None else 0)

    def clone(self) -> Self:
        other = super().clone()
        if self._part is not None:
            other._part = self._part.clone()
        return other

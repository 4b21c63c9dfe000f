"""Groups some of whose results are computed outside of the kernels: the least and greatest texts, joined texts, and variances.

The kernels leave these cells empty, or null if a group has no values; they are filled in when a group is reported. So the versions of a run
are added one after another. A variance is that of the exact sums of the values and of their squares, rounded once: it depends only on the
rows that are there.

Costs: those of `aggregate.groups`; a text O(log n); a joined text its values; a variance some microseconds a report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from structures.aggregate import layout
from structures.aggregate.groups import Groups, Step
from structures.aggregate.layout import GroupedColumns
from structures.aggregate.limbs import LOW, MINUS, NAN, PLUS, SIZE, START
from structures.grouped.joining import JoinedTexts, Joining
from structures.grouped.texts import Texts

_POINT = 1074  # of the sums of floats: they are multiples of 2**-1074


class TextEnd(NamedTuple):
    """Column `cell` of a reported row is the code of a group's least or greatest text, of those of column `column` of the rows."""

    cell: int
    column: int
    greatest: bool


class Variance(NamedTuple):
    """Column `cell` of a reported row is the variance, or its root, of values whose sum is at the word `sum`, that of their squares at
    `squares` (for whole numbers low and high words, for floats products and their errors), their number at `counted`. sample: divided by
    one less than that; unit: of whole numbers, by which they are divided."""

    cell: int
    sum: int
    squares: tuple[int, int]
    counted: int
    floats: bool
    sample: bool
    root: bool
    unit: int


class JoinedText(NamedTuple):
    """Column `cell` of a reported row is the code of a group's values of column `column` of the rows, joined; null if there are none, or
    too many. code: given groups (int32[n]) and their texts, keeps these and returns their codes, int64[n], -1 for null."""

    cell: int
    column: int
    joining: Joining
    code: Callable[[np.ndarray, JoinedTexts], np.ndarray]


class Filled(NamedTuple):
    """What is filled in."""

    ends: Sequence[TextEnd]
    variances: Sequence[Variance]
    joined: Sequence[JoinedText]


class FilledGroups(Groups):
    """See the module's head. One thread."""

    def __init__(
        self, steps: Step, results: Sequence[tuple[int, int, int, int, int]], width: int, most_codes: int, columns: int,
        filled: Filled, texts: dict[int, Texts],
    ) -> None:  # fmt: skip
        """As `Groups`. columns: of a reported row, before its null bits; texts: by the column of the rows that has their codes."""
        super().__init__(steps, results, width, most_codes)
        self._columns, self._filled, self._texts = columns, filled, texts

    def without_rows(self) -> FilledGroups:
        texts = {column: one.empty() for column, one in self._texts.items()}
        return FilledGroups(*self._made_of, self._columns, self._filled, texts)

    def require(self, codes: int, rows: int) -> None:
        super().require(codes, rows)
        for one in self._texts.values():
            one.require(rows)

    def add(self, rows: GroupedColumns) -> np.ndarray:
        for column, texts in self._texts.items():
            texts.count(rows.codes, rows.signs, rows.values[column], rows.nulls[column])
        return super().add(rows)

    def add_in_order(self, rows: GroupedColumns, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes, versions, out = [np.empty(0, np.int32)], [np.empty(0, np.int64)], [np.empty((0, self.width), np.int64)]
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        for first, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            part = slice(first, end)
            self.begin()
            columns = (np.ascontiguousarray(column[:, part]) for column in (rows.values, rows.nulls))
            codes.append(self.add(GroupedColumns(rows.codes[part], rows.signs[part], *columns)))
            versions.append(np.full(len(codes[-1]), numbers[first]))
            out.append(self.emit(codes[-1]))
        return np.concatenate(codes), np.concatenate(versions), np.concatenate(out)

    def emit(self, codes: np.ndarray) -> np.ndarray:
        out = super().emit(codes)
        ends, variances, joined = self._filled
        for cell, column, greatest in ends:
            found = self._texts[column].ends(codes, greatest)
            out[:, cell] = np.where(found >= 0, found, 0)
        for cell, column, joining, code in joined:
            for part, texts in joining.of(self._texts[column], codes):
                found = code(codes[part], texts)
                out[part, cell] = np.where(found >= 0, found, 0)
                out[part, self._columns + cell // layout.NULLS_A_CELL] |= (found < 0).astype(np.int64) << cell % layout.NULLS_A_CELL
        for one in variances:
            for k, code in enumerate(codes.tolist()):
                value = self._variance(code, one)
                if value is None:
                    out[k, self._columns + one.cell // layout.NULLS_A_CELL] |= 1 << one.cell % layout.NULLS_A_CELL
                else:
                    out[k, one.cell] = np.float64(value).view(np.int64)
        return out

    def _variance(self, code: int, one: Variance) -> float | None:
        """None: null, also where a square is beyond the floats."""
        cells = self._store.cells[code]
        n, at = int(cells[one.counted]), (one.sum, *one.squares)
        if n <= int(one.sample):
            return None
        if one.floats:
            if any(cells[one.sum + odd] for odd in (NAN, PLUS, MINUS)):
                return math.nan
            if any(cells[word + odd] for word in one.squares for odd in (NAN, PLUS, MINUS)):
                return None
            total, square, error = (self._exact(cells, word) for word in at)
            numerator, unit = (n * (square + error) << _POINT) - total * total, 1 << 2 * _POINT
        else:
            total, low, high = (_whole(cells, word) for word in at)
            numerator, unit = n * (low + (high << 64)) - total * total, one.unit**2
        try:
            value = max(numerator, 0) / (n * (n - int(one.sample)) * unit)  # rounded products may add up to less than nothing
        except OverflowError:
            return None
        return math.sqrt(value) if one.root else value

    def _exact(self, cells: np.ndarray, word: int) -> int:
        """A sum of floats times 2**1074."""
        start, low, size = (int(cells[word + part]) for part in (START, LOW, SIZE))
        limbs = self._store.limbs.store[start : start + size].tolist()
        return sum(int(limb) << 32 * (low + i) for i, limb in enumerate(limbs))

    @property
    def bytes(self) -> int:
        return super().bytes + sum(one.bytes for one in self._texts.values())

    def check(self, codes: int) -> None:
        super().check(codes)
        for one in self._texts.values():
            one.check(codes)


def _whole(cells: np.ndarray, word: int) -> int:
    lowest, middle, highest = (int(cells[word + digit]) for digit in (layout.LOWEST, layout.MIDDLE, layout.HIGHEST))
    return lowest + (middle << 32) + (highest << 64)

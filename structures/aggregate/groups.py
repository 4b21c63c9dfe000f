"""The aggregates of many groups, by the group's code, as rows come into groups and go.

Problem: rows (code, values) come and go in any number; report COUNT, SUM, AVG, MIN, MAX, COUNT(DISTINCT) of a group, so that the result
depends only on the rows that are there: not on the order in which they came, nor on those that have gone.

    code ──> cells[code]: rows, counts, sums of 128 bits ──> limbs: sums of float64 (`limbs.py`)
                                                       └───> tree: (code, value) with counts (`values.py`)

Written in position: only the writer reads it. A result is a row of cells for a store of rows, which has the versions (`results.py`).

Invariants: `check.py`.
Costs: a row O(1), and O(log n) for MIN, MAX and COUNT(DISTINCT); reporting a group O(1), and O(log n) for MIN and MAX. Memory: 8 bytes a
word of a group, 64 bytes a sum of float64 and more where magnitudes differ (576 at most), at least 24 bytes a distinct value of a group.
Source: docs/design/queries.md (*Groups*).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from structures.aggregate import layout, values
from structures.aggregate.amounts import Amounts, GroupReports, add_amounts
from structures.aggregate.changes import add_all, add_in_order, emit_all
from structures.aggregate.check import check_groups
from structures.aggregate.layout import GroupedColumns, Limbs, Plan, Store, Tree
from structures.aggregate.limbs import LIMB_WORDS, LIMBS, QUOTIENT_DIGITS, USED
from structures.core.kernel import compiled
from structures.core.reserve import MEMORY, SLOTS, reserve

_MANY = 4096  # rows, above which they are applied group by group
_SCRATCH = max(LIMBS + 1 + QUOTIENT_DIGITS, values.PATH_WORDS * values.MOST_LEVELS)  # digits of a sum and of a division; a path in the tree
_NOTHING = np.zeros(1, np.int64)


class Step:
    """The layout of accumulators: one after another."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self.words, self.trees = layout.HEAD, 0

    def of(self, kind: int, column: int) -> int:
        """The first word of the accumulator of this kind over this column of the values; there is one of each."""
        for known, taken, word in self.steps:
            if (known, taken) == (kind, column):
                return word
        word, self.words = self.words, self.words + layout.WORDS[kind]
        self.trees += kind == layout.VALUES
        self.steps.append((kind, column, word))
        return word

    def tree(self, column: int) -> int:
        """The number of the VALUES over this column."""
        return [taken for kind, taken, _ in self.steps if kind == layout.VALUES].index(column)


class Groups:
    """See the module's head. One thread."""

    def __init__(self, steps: Step, results: Sequence[tuple[int, int, int, int, int]], width: int, most_codes: int) -> None:
        """`results`: as in `layout.py`; `width`: cells of a reported row; codes are below `most_codes`. OSError: no address space."""
        self._made_of = steps, results, width, most_codes
        kinds = [kind for kind, _, _ in steps.steps]
        self._plan = Plan(
            np.array(steps.steps, np.int64).reshape(-1, 3), np.array(results, np.int64).reshape(-1, 5), max(1, steps.trees)
        )
        self.width, self._words, self._sums = width, steps.words, kinds.count(layout.FLOAT_SUM)
        self.most_codes = min(most_codes, SLOTS, MEMORY // (8 * steps.words))
        cells = reserve(8 * self.most_codes * steps.words, np.int64).reshape(self.most_codes, steps.words)
        limbs = Limbs(reserve(MEMORY, np.int64) if layout.FLOAT_SUM in kinds else _NOTHING, np.zeros(LIMB_WORDS, np.int64))
        limbs.control[USED] = 1
        blocks = MEMORY // (24 * values.B) if steps.trees else 0
        columns = [reserve(8 * blocks * values.B, np.int64) for _ in range(3)] if blocks else [_NOTHING] * 3
        size = reserve(8 * blocks, np.int64) if blocks else _NOTHING
        tree = Tree(columns[0], columns[1], columns[2], size, np.zeros(values.TREE_WORDS, np.int64))
        if blocks:
            values.new_block(tree)
            tree.control[values.ROOT], tree.control[values.HEIGHT] = 1, 1
        self._blocks = blocks
        self._store = Store(cells, limbs, tree, np.zeros(layout.CONTROL_WORDS, np.int64), np.zeros(_SCRATCH, np.int64))
        self._stamp = 1

    def without_rows(self) -> Groups:
        """New groups of the same kind, without rows. OSError: no address space."""
        return Groups(*self._made_of)

    @property
    def groups(self) -> int:
        """The number of groups that have rows."""
        return int(self._store.control[layout.GROUPS])

    @property
    def out_of_range(self) -> int:
        """The number of sums that were out of range when last reported."""
        return int(self._store.control[layout.BEYOND])

    @property
    def rows(self) -> np.ndarray:
        """int64[most_codes]: the rows of each group."""
        counts: np.ndarray = self._store.cells[:, layout.ROWS]
        return counts

    def require(self, codes: int, rows: int) -> None:
        """Raise MemoryError, before anything is changed, unless this number of rows of groups with codes below `codes` certainly fits.
        O(1)."""
        store = self._store
        if codes > self.most_codes:
            raise MemoryError(f"a view holds at most {self.most_codes} groups, those of older versions included")
        sums = self._sums
        if sums and store.limbs.control[USED] + rows * sums * LIMBS > len(store.limbs.store):
            raise MemoryError("the sums of a view's groups have reached the size of this machine's memory")
        more = 2 * rows * self._plan.trees + values.MOST_LEVELS
        if self._blocks and store.tree.control[values.USED] + more >= self._blocks:
            raise MemoryError("the values of a view's groups have reached the size of this machine's memory")

    def begin(self) -> None:
        """Begin to record the groups that are touched."""
        self._stamp += 1

    def add(self, rows: GroupedColumns) -> np.ndarray:
        """Add and remove rows. Returns int32[n]: the codes of the groups that are touched for the first time since `begin`. The rows of a
        group are applied in order, and many rows group by group: then the memory that one row waits for is in the caches for the next
        ones."""
        touched = np.empty(len(rows.codes), np.int32)
        n = compiled(add_all)(self._plan, self._store, rows, _by_code(rows.codes), self._stamp, touched)
        self._require_right()
        return touched[:n]

    def add_in_order(self, rows: GroupedColumns, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Apply rows version after version; `numbers`: int64[n], for each row that of its version, from 0 on. Returns for each report of a
        group its code (int32[n]), the version's number (int64[n]), and the row (int64[n, width]): for each version the groups that it has
        touched, as they are then."""
        n = len(rows.codes)
        codes, versions, out = np.empty(n, np.int32), np.empty(n, np.int64), np.empty((n, self.width), np.int64)
        n = compiled(add_in_order)(self._plan, self._store, rows, numbers, self._stamp + 1, codes, versions, out)
        if n:
            self._stamp += 1 + numbers.item(-1)
        self._require_right()
        return codes[:n], versions[:n], out[:n]

    @property
    def parts(self) -> tuple[Plan, Store]:
        """The arguments of a kernel that adds rows version after version (`changes.add_versions`)."""
        return self._plan, self._store

    @property
    def next_stamp(self) -> int:
        """The stamp of version number 0 of such a call."""
        return self._stamp + 1

    def went_on(self, last: int) -> None:
        """Note that such a call has reported groups, the last ones for version number `last`."""
        self._stamp += 1 + last
        self._require_right()

    def add_amounts(self, amounts: Amounts, ends: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Apply changes, each of which adds or removes many rows, in order. Returns the same as `add_in_order`; without `ends` the codes
        (int32[n]) of the groups that are touched for the first time since `begin`, and no rows."""
        n = len(amounts.codes)
        emitted = GroupReports(np.empty(n, np.int32), np.empty(n, np.int64), np.empty((0 if ends is None else n, self.width), np.int64))
        if ends is None:
            n = compiled(add_amounts)(self._plan, self._store, amounts, np.array([n]), self._stamp, emitted)
        else:
            n = compiled(add_amounts)(self._plan, self._store, amounts, ends, self._stamp + 1, emitted)
            self._stamp += len(ends)
        self._require_right()
        return emitted.codes[:n], emitted.versions[:n], emitted.rows[:n]

    def emit(self, codes: np.ndarray) -> np.ndarray:
        """int64[n, width]: the rows of these groups."""
        out = np.empty((len(codes), self.width), np.int64)
        compiled(emit_all)(self._plan, self._store, codes, out)
        return out

    def _require_right(self) -> None:
        wrong = int(self._store.control[layout.WRONG])
        if wrong:
            raise KeyError(f"{wrong} rows or values went out of groups that did not have them")

    @property
    def bytes(self) -> int:
        """Bytes of the groups that have rows, with their sums and values."""
        store = self._store
        return 8 * (self.groups * self._words + int(store.limbs.control[USED]) + 3 * values.B * int(store.tree.control[values.USED]))

    def check(self, codes: int) -> None:
        """Prove the invariants of `check.py`; all codes so far are below `codes`."""
        check_groups(self._plan, self._store, codes)


def _by_code(codes: np.ndarray) -> np.ndarray:
    """int64[n]: the places of many rows sorted by code (stable); those of few in their order. O(n): by the lower half, then the upper one,
    as NumPy sorts 16 bits by counting."""
    if len(codes) < _MANY:
        return np.arange(len(codes))
    halves = codes.view(np.uint16).reshape(-1, 2)
    lower, upper = (0, 1) if sys.byteorder == "little" else (1, 0)
    order = np.argsort(halves[:, lower], kind="stable")
    return order[np.argsort(halves[order, upper], kind="stable")]

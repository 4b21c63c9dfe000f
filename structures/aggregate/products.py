"""The number of rows of a join on one key that a changed row adds or removes, and the change of sums over them: products of counts and
sums.

Problem: rows with a key and weights come and go in k relations that are joined by equality of the key; for each change, report how many
rows of the join it adds or removes, one for each choice of a row of every other relation, and by how much sums of weights over them change.

    cells[key]    for each relation the number of its rows n, then for each sum the sum of its weights S, three digits each (`amounts.py`)

For a row of relation j the number is the product of n over the other relations; a sum of its own weight changes by that many times the
weight, a sum of a weight of relation m by S times the product of n over those but j and m.

Invariants: no number of rows is negative, and where it is zero, so are the sums.
Costs: O(k) a change, and O(k) a sum. Memory 8 bytes a word of a key. Source: docs/design/queries.md (*Groups*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from structures.aggregate.amounts import Measures
from structures.aggregate.changes import add_int
from structures.aggregate.layout import DIGITS, HIGHEST, LOW32, LOWEST, MIDDLE
from structures.core.kernel import arrays, compiled, kernel, require_columns, wide
from structures.core.reserve import MEMORY, SLOTS, reserve

MOST = 2**63 - 1
OWNER, WEIGHT, WORD = range(3)  # words of a sum: its relation, the number of the weight, the first word
TOO_MANY, WRONG, CONTROL_WORDS = range(3)


@arrays("int8[::1]", "int8[::1]", "int32[::1]", "int64[:, ::1]")
class Members(NamedTuple):
    """For each of n changes the sign (1 comes, -1 goes), the relation's number, the key, and the weights: int64[n, w]."""

    signs: np.ndarray
    roles: np.ndarray
    keys: np.ndarray
    weights: np.ndarray


@arrays("int64[:, ::1]", "int64[:, ::1]", "int64[::1]")
class Store(NamedTuple):
    """cells: int64[keys, words]; sums: int64[s, 3], OWNER, WEIGHT and WORD of each; control: products beyond MOST, rows that were not
    there."""

    cells: np.ndarray
    sums: np.ndarray
    control: np.ndarray


@kernel
def product(store: Store, relations: int, key: int, one: int, other: int) -> int:
    """The product of the numbers of rows of all relations but these two."""
    found, cells = wide(1), store.cells
    for r in range(relations):
        if r != one and r != other and cells[key, r] == 0:
            return 0
    for r in range(relations):
        if r != one and r != other:
            if found > MOST // cells[key, r]:
                store.control[TOO_MANY] += 1
                return 0
            found *= cells[key, r]
    return found


@kernel
def put_product(sums: Any, i: int, s: int, digits: tuple[int, int, int], times: int) -> None:
    """Write the amount: a number in three digits times one that is not negative, by 16 bits at a time."""
    d0, d1, d2 = digits
    a0, a1, a2 = wide(0), wide(0), wide(0)
    for shift in (48, 32, 16, 0):
        part = (times >> shift) & 0xFFFF
        over = (a0 << 16) + d0 * part
        a0 = over & LOW32
        over = (a1 << 16) + d1 * part + (over >> 32)
        a1 = over & LOW32
        a2 = (a2 << 16) + d2 * part + (over >> 32)
    sums[i, s, LOWEST], sums[i, s, MIDDLE], sums[i, s, HIGHEST] = a0, a1, a2


@kernel("void(Store, int64, Members, Measures)")
def follow(store: Store, relations: int, members: Members, measured: Measures) -> None:
    """Apply these changes one after another; each is measured relative to the state left by the ones before it. O(k) a change and sum, of k
    relations."""
    cells, sums = store.cells, store.sums
    for i in range(len(members.keys)):
        key, role, sign = wide(members.keys[i]), wide(members.roles[i]), wide(members.signs[i])
        measured.rows[i] = product(store, relations, key, role, role)
        for s in range(len(sums)):
            owner, w = sums[s, OWNER], sums[s, WORD]
            if owner == role:
                value = members.weights[i, sums[s, WEIGHT]]
                put_product(measured.sums, i, s, (value & LOW32, (value >> 32) & LOW32, value >> 63), measured.rows[i])
                add_int(cells, key, w, value, sign)
            else:
                digits = cells[key, w + LOWEST], cells[key, w + MIDDLE], cells[key, w + HIGHEST]
                put_product(measured.sums, i, s, digits, product(store, relations, key, role, owner))
        cells[key, role] += sign
        if cells[key, role] < 0:
            store.control[WRONG] += 1


class Products:
    """See the module's head. One thread."""

    def __init__(self, relations: int, sums: Sequence[tuple[int, int]], most_keys: int = SLOTS) -> None:
        """`sums`: for each the relation's number, and the number of the weight; keys are below `most_keys`. OSError: no address space."""
        self.relations, self.sums = relations, tuple(sums)
        self._words = relations + DIGITS * len(self.sums)
        self._most = min(most_keys, MEMORY // (8 * self._words))
        cells = reserve(8 * self._most * self._words, np.int64).reshape(self._most, self._words)
        placed = [(owner, weight, relations + DIGITS * index) for index, (owner, weight) in enumerate(self.sums)]
        self._store = Store(cells, np.array(placed, np.int64).reshape(-1, 3), np.zeros(CONTROL_WORDS, np.int64))

    def require(self, keys: int) -> None:
        """Raise MemoryError unless all keys below `keys` certainly fit. O(1)."""
        if keys > self._most:
            raise MemoryError(f"a view holds at most {self._most} keys, those of older versions included")

    def follow(self, members: Members) -> Measures:
        """Apply these changes one after another. For each, report how many rows of the join it adds or removes, and by how much the sums
        change. OverflowError: a key has more than 2**63 - 1 rows of the join; KeyError: a row to be removed was not there. After either the
        structure is damaged. TypeError, ValueError: the columns of the changes are invalid, and nothing was done. O(k) each, and a sum."""
        require_columns((np.int8, np.int8, np.int32, np.int64), members)
        n = len(members.keys)
        measured = Measures(np.empty(n, np.int64), np.empty((n, len(self.sums), DIGITS), np.int64))
        compiled(follow)(self._store, self.relations, members, measured)
        if self._store.control[TOO_MANY]:
            raise OverflowError("a key has more than 2**63 - 1 rows of the join")
        if missing := int(self._store.control[WRONG]):
            raise KeyError(f"{missing} rows that were to go are not there")
        return measured

    def bytes(self, keys: int) -> int:
        """Bytes of `keys` keys."""
        return 8 * self._words * keys

    def check(self, keys: int) -> None:
        """AssertionError unless the invariants hold; all keys so far are below `keys`."""
        cells = self._store.cells[:keys]
        assert (cells[:, : self.relations] >= 0).all(), "a relation has fewer than no rows of a key"
        for owner, _, w in self._store.sums.tolist():
            assert (cells[cells[:, owner] == 0, w : w + DIGITS] == 0).all(), "no rows have a sum"

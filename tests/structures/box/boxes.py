"""Random boxes, and the rows of a tree."""

from __future__ import annotations

import numpy as np

from structures.box.tree import BoxTree, Cursor, Entries
from tests.structures.box.machine import in_order

NO_PINS = np.empty(0, np.int64)


def read_all(cursor: Cursor, limit: int = 65536) -> np.ndarray:
    parts = [np.empty((2, 0), np.int32)]
    while not cursor.done:
        parts.append(cursor.fill(limit))
    return np.concatenate(parts, axis=1)


def rows_of(cursor: Cursor, kind: str = "pair") -> list[tuple[int, int]]:
    return sorted(in_order(kind, read_all(cursor)))


def random_entries(rng: np.random.Generator, n: int, dimensions: int, partners: float, first_slot: int = 0, total: int = 0) -> Entries:
    """n boxes, half in each set, of the sizes with which each of `total` meets about `partners` of the other set."""
    input = (2 * partners / (total or n)) ** (1 / dimensions) * 1e9
    left = rng.integers(0, 10**9, (n, dimensions))
    inputs = (rng.random((n, dimensions)) * input).astype(np.int64)
    slots = np.arange(first_slot, first_slot + n, dtype=np.int32)
    return Entries(rng.integers(0, 2, n).astype(np.uint8), np.zeros(n, np.int32), left, left + inputs, slots)


def same_rows(one: BoxTree, other: BoxTree) -> bool:
    found = [np.sort(rows[0].astype(np.int64) << 32 | rows[1]) for rows in (read_all(tree.rows(tree.root)) for tree in (one, other))]
    return len(found[0]) > 0 and np.array_equal(*found)

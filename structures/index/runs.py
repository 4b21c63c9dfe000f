"""Runs of changes of ordered indexes, for Python. Costs of a change: as `changes`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes, WriteState
from structures.core.control import VERSION
from structures.core.kernel import arrays, kernel, wide
from structures.index.changes import cut, put
from structures.index.layout import MISSING, ROOT, TREE_WORDS, TREES
from structures.index.search import Items


@kernel
def change(nodes: Nodes, writing: WriteState, h: int, sign: int, items: Items, e: int) -> int:
    """Insert (sign > 0) or delete entry e. Returns what `put` or `cut` does. C[MISSING] counts changes that could not be made."""
    C = writing.C
    coordinates, start, slot = items.coordinates, e * items.width, wide(items.slots[e])
    common = put(nodes, writing, h, coordinates, start, slot) if sign > 0 else cut(nodes, writing, h, coordinates, start, slot)
    if common < 0:
        C[MISSING] += 1
    return common


@kernel
def fits(arities: Any, index: int, items: Items) -> bool:
    """Whether there is such an index, and the entries have a slot each and as many coordinates as it takes."""
    coordinates, width, slots = items
    return 0 <= index < len(arities) and 0 < arities[index] <= width and len(coordinates) == width * len(slots)


@arrays("int64[::1]", "int8[::1]", "int64[::1]")
class Steps(NamedTuple):
    """Changes, in order: of each its index, its sign and its tick."""

    indexes: np.ndarray
    signs: np.ndarray
    ticks: np.ndarray


@kernel("int64(Nodes, WriteState, int8[::1], Steps, Items, int64[::1], int8[::1])")
def change_in_order(nodes: Nodes, writing: WriteState, arities: Any, steps: Steps, items: Items, after: Any, common: Any) -> int:
    """Make each change in its index; after: the root after each, and those after each tick stay readable; common: as returned by `change`.
    Returns -1; or the number of the first entry that does not fit its index, and nothing is done. arities: of the indexes in use, 0 for
    others. O(log n) a change."""
    indexes, signs, ticks = steps
    C = writing.C
    for e in range(len(indexes)):
        if not fits(arities, indexes[e], items):
            return e
    for e in range(len(indexes)):
        h = TREES + TREE_WORDS * indexes[e]
        if e == 0 or ticks[e] != ticks[e - 1]:
            C[VERSION] += 1
        common[e] = change(nodes, writing, h, signs[e], items, e)
        after[e] = C[h + ROOT]
    return -1

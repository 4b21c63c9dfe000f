"""Whether intervals have a partner at all: the search of `interval_search`, ended at the first leaf with a hit.

Costs: O(log n) steps an interval, however many partners it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.arena import NEG_INF, B
from structures.interval_cursors import Root
from structures.interval_search import NOTHING_BEFORE, SEARCH_WORDS, search_fill, search_start
from structures.interval_tree import Entries, IntervalTree
from structures.kernel import kernel


@kernel("void(int64[::1], int32[::1], int64[::1], int64, int64, int64, int32[::1], int64[::1], int64[::1], int32[::1], uint8[::1])")
def _first_hits(M: Any, W: Any, Z: Any, root: int, height: int, s: int, keys: Any, lefts: Any, rights: Any, out: Any, met: Any) -> None:
    """met[i] = 1 iff set s has an interval of the same key that meets the i-th. `out` has B + 1 places: the search ends with a hit."""
    ends = lefts[:0]
    for i in range(len(met)):
        search_start(Z, root, height, s, keys[i], NEG_INF, NOTHING_BEFORE, rights[i], lefts[i])
        met[i] = search_fill(M, W, Z, out, 0, ends) > 0


def have_partners(tree: IntervalTree, root: Root, entries: Entries) -> np.ndarray:
    """bool[n]: which of these entries, all of one set, meet one of the other set in this version of a "pair"."""
    met = np.zeros(len(entries.key), np.uint8)
    if len(met):
        arena, Z, out = tree.arena, np.zeros(SEARCH_WORDS, np.int64), np.empty(B + 1, np.int32)
        columns = (np.ascontiguousarray(entries.key), np.ascontiguousarray(entries.left), np.ascontiguousarray(entries.right))
        _first_hits(arena.M, arena.W, Z, root.offset, root.height, 1 - int(entries.set[0]), *columns, out, met)
    return met.view(np.bool_)

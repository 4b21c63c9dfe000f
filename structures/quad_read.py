"""What a reader sees of a quadtree, live and compact parts alike: places (`compact_quad.py`), their children, the entries of leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.bits import copy16
from structures.compact_quad import compact_child, compact_mask, compact_size, copy_compact
from structures.kernel import kernel
from structures.quad_nodes import LEAF, is_leaf


@kernel(forceinline=True)
def ends_at(W: Any, o: int) -> bool:
    """Whether a place is a leaf."""
    return is_leaf(W, o) if o > 0 else ~o & 1 != 0


@kernel(forceinline=True)
def child_of(W: Any, K: Any, base: int, o: int, k: int, c: int) -> int:
    """The place of child c of an inner node; 0: none."""
    return np.int64(W[2 * o + 4 + c]) if o > 0 else compact_child(K, base, o, k, c)


@kernel(forceinline=True)
def children_of(W: Any, K: Any, base: int, o: int, k: int) -> int:
    """The children of an inner node, as bits."""
    return np.int64(W[2 * o + 3]) if o > 0 else compact_mask(K, base, o, k)


@kernel
def size_of(W: Any, K: Any, base: int, o: int) -> int:
    """Entries of a leaf."""
    return np.int64(W[2 * o + 2]) if o > 0 else compact_size(K, base, o)


@kernel
def copy_leaf(W: Any, K: Any, B: Any, base: int, o: int, k: int, f: int, b: int, S: Any, s: int) -> int:
    """Put a leaf of level b as columns of LEAF at S[s], k coordinates and the slots; how many entries."""
    if o < 0:
        return copy_compact(K, B, base, o, k, f, b, S, s)
    for j in range(k + 1):
        copy16(S, s + j * LEAF, W, 2 * o + 4 + j * LEAF)
    return np.int64(W[2 * o + 2])

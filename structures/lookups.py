"""Look-ups of single places in a version of the tree: an exact entry, the next key.

Costs: O(log n) each. Source: ordered search (Theorem 1's structure, ij-heap.md).
"""

from __future__ import annotations

from typing import Any

from structures.arena import CHILD, KEY, KEY_MAX, KR, B, F
from structures.kernel import kernel
from structures.leaves import place, position
from structures.ordered_tree import find_child


@kernel("void(int64[::1], int32[::1], int64, int64, uint8[::1], int32[::1], int64[::1], int64[::1], int32[::1], boolean[::1])")
def find_entries(
    M: Any, W: Any, root: int, height: int, sets: Any, keys: Any, lefts: Any, rights: Any, slots: Any, found: Any
) -> None:
    """found[i]: whether the entry i lies in the version (rights are not compared: (set, slot) has one interval a version)."""
    for i in range(len(keys)):
        s, code = sets[i], 2 * slots[i] + sets[i]
        o = root
        for _ in range(height):
            o = W[2 * o + CHILD + find_child(M, W, o, keys[i], lefts[i], code)]
        p, end = place(M, W, o, s, keys[i], lefts[i], slots[i])
        found[i] = p < end


@kernel("int64(int64[::1], int32[::1], int64, int64, int64)")
def next_key(M: Any, W: Any, root: int, height: int, key: int) -> int:
    """The smallest key above `key`; KEY_MAX if there is none."""
    o = root
    for _ in range(height):
        c, n = 0, W[2 * o + 2]
        while c < n and max(W[2 * o + KR + c], W[2 * o + KR + F + c]) <= key:
            c += 1
        if c == n:
            return KEY_MAX
        o = W[2 * o + CHILD + c]
    least = KEY_MAX
    for s in range(2):
        if s == 0:
            lo, hi = 0, W[2 * o + 2]
        else:
            lo, hi = B - W[2 * o + 3], B
        p = position(M, W, o, lo, hi, key, 2**63 - 1, KEY_MAX)
        if p < hi:
            least = min(least, W[2 * o + KEY + p])
    return least

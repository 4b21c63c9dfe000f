"""Find entries of an interval tree of a version by everything except their right end. O(log n) each."""

from __future__ import annotations

from typing import Any

from structures.core.blocks import Nodes
from structures.core.entries import Entries
from structures.core.kernel import kernel, wide
from structures.ordered.layout import RIGHT, child_of
from structures.ordered.leaves import find_entry
from structures.ordered.tree import find_child


@kernel("void(Nodes, int64, int64, Entries, uint8[::1])")
def find_ends(nodes: Nodes, root: int, height: int, entries: Entries, held: Any) -> None:
    """Find which of these entries a version has, and fill in their right ends. O(log n) each."""
    W = nodes.W
    for i in range(len(held)):
        s, key, left, slot = wide(entries.set[i]), wide(entries.key[i]), entries.left[i], wide(entries.slot[i])
        o = root
        for _ in range(height):
            o = child_of(W, o, find_child(nodes, o, key, left, 2 * slot + s))
        at, end = find_entry(nodes, o, s, key, left, slot)
        held[i] = at < end
        if at < end:
            entries.right[i] = nodes.M[o + RIGHT + at]

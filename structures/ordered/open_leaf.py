"""Several changes of one leaf at once, or several searches in it: the path to it is searched once for all of them; after changes, its
summary is computed and the path updated once.

Changes, or searches, in the order of the tree share leaves if they are about twice as many as its leaves, or more (`are_dense`). Then

    opened = CLOSED                                                 opened = CLOSED
    for each change: opened, _ = change_near(..., opened, ...)      for each search: opened, n = search_near(..., opened, ...)
    close_leaf(nodes, writing, opened)

While a leaf is open, the tree must not be changed otherwise; while it is open for changes, it must not be read either, as the path above
the leaf has its former summary.

Costs: O(B + F log n) to open and close a leaf, O(B) a change, or a search of one leaf, in between; others as `search_fill`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from structures.core.arena import COUNT, HEIGHT, KEY_MAX, LEAF_WORDS, SUM, B
from structures.core.blocks import Nodes, Writing
from structures.core.encoding import NEG_INF
from structures.core.entries import Entry
from structures.core.kernel import kernel
from structures.ordered.layout import CHILDREN, PATH_CHILD, PATH_NODE, Place, child_of, entries_of, is_before, separator
from structures.ordered.leaves import cut_from_leaf, own_leaf, place, put_in_leaf
from structures.ordered.search import DEPTH, EVERY_CODE, KEY_, MOST, STEPS, search_fill, search_leaf
from structures.ordered.summary import leaf_summary
from structures.ordered.tree import climb, descend, expect_block, put


class OpenLeaf(NamedTuple):
    """The leaf, which the version owns if it is open for changes, or 0 if none is open; entries from `first` on and before `end` belong to
    it."""

    leaf: int
    first: Place
    end: Place


CLOSED = OpenLeaf(0, Place(0, 0, 0), Place(0, 0, 0))


@kernel
def are_dense(changes: int, entries: int) -> bool:
    """Whether so many changes of a tree, spread over all its leaves, are about two for each leaf, or more."""
    return changes * B > 2 * entries


@kernel
def close_leaf(nodes: Nodes, writing: Writing, opened: OpenLeaf) -> None:
    """Make the tree complete again."""
    if opened.leaf != 0:
        leaf_summary(nodes, writing.C, opened.leaf, SUM)
        climb(nodes, writing, opened.leaf, 0)


@kernel(forceinline=True)
def is_within(opened: OpenLeaf, at: Place) -> bool:
    """Whether a leaf is open to which an entry at this place belongs."""
    return opened.leaf != 0 and not is_before(at, opened.first) and is_before(at, opened.end)


@kernel
def leaf_on_path(nodes: Nodes, C: Any, o: int) -> OpenLeaf:
    """Leaf o, at the end of the path, with its bounds. Prefetches the next leaf, unless that is below another node."""
    W = nodes.W
    first, end = Place(-1, NEG_INF, -1), Place(KEY_MAX, NEG_INF, -1)
    has_first, has_end = False, False
    for d in range(C[HEIGHT] - 1, -1, -1):
        above, c = C[PATH_NODE + 2 * d], C[PATH_CHILD + 2 * d]
        if not has_first and c > 0:
            first, has_first = separator(nodes, above, c), True
        if not has_end and c + 1 < W[2 * above + CHILDREN]:
            if d == C[HEIGHT] - 1:
                expect_block(nodes.M, child_of(W, above, c + 1), LEAF_WORDS)
            end, has_end = separator(nodes, above, c + 1), True
        if has_first and has_end:
            break
    return OpenLeaf(o, first, end)


@kernel
def change_near(nodes: Nodes, writing: Writing, opened: OpenLeaf, come: bool, entry: Entry) -> tuple[OpenLeaf, bool]:
    """Insert an entry that is not there, or delete one. Returns the leaf that is open then, and whether the change was possible."""
    W, C, s = nodes.W, writing.C, entry.set
    at = Place(entry.key, entry.left, 2 * entry.slot + s)
    o = opened.leaf
    if not is_within(opened, at) or (come and entries_of(W, o) == B):
        close_leaf(nodes, writing, opened)
        o = descend(nodes, C, at.key, at.left, at.code)
        if come and entries_of(W, o) == B:
            put(nodes, writing, s, entry.key, entry.left, entry.right, entry.slot)
            return CLOSED, True
        opened = leaf_on_path(nodes, C, own_leaf(nodes, writing, o))
        o = opened.leaf
    if come:
        put_in_leaf(nodes, o, s, entry.key, entry.left, entry.right, entry.slot)
        C[COUNT + s] += 1
        return opened, True
    p, end = place(nodes, o, s, entry.key, entry.left, entry.slot)
    if p == end:
        return opened, False
    cut_from_leaf(nodes, o, s, p)
    C[COUNT + s] -= 1
    return opened, True


@kernel
def search_near(nodes: Nodes, C: Any, opened: OpenLeaf, state: Any, out: Any, n: int) -> tuple[OpenLeaf, int]:
    """Complete a search that has just begun in the tree that the writer works on (`search_start`, without a place to come after), as far
    as `out` has room: as `search_fill` from out[n] on. Returns the leaf that is open then, and the new end. A search that goes beyond the
    leaf begins again at the root."""
    first, last = Place(state[KEY_], NEG_INF, -1), Place(state[KEY_], state[MOST], EVERY_CODE)
    if not is_within(opened, first):
        opened = leaf_on_path(nodes, C, descend(nodes, C, first.key, first.left, first.code))
    if not is_before(last, opened.end) or len(out) - n <= B:
        return opened, search_fill(nodes, state, out, n, state[:0])
    state[DEPTH] = 0
    state[STEPS] += 1
    return opened, search_leaf(nodes, state, opened.leaf, out, n, state[:0])

"""The arrays of an event tree (`tree.py` defines it): leaves of up to B events, inner nodes of up to F children with their summaries.

    leaves  int64[l, 3 or more, B]   name, at, value of each event, ascending by (key, at, rank, slot); more values for further weights
    inners  int64[n, 10 + 4 w, F]    for each child: where its events begin, the child, its summary (`summary.py`), the sums of w weights

A name is key << 32 | rank << 30 | slot. No event of a child is before the child's (name, at), and all events of the children before it are;
that of the first child is not used. Leaf and inner node 0 are NIL; free nodes form a list, linked by their first words. Only the newest
version is read: all is written in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.arena import B, F
from structures.core.kernel import arrays, kernel, prefetch, wide

START, END, ROW = range(3)  # ranks
NAME, AT, VALUE, LEAF_FIELDS = range(4)  # VALUE: the right end of a row, the first weight of other events
CHILD, STARTS, ENDS, FIRST_KEY, FIRST_AT, FIT, TRAIL_KEY, TRAIL_END, INNER_FIELDS = range(2, 11)  # after NAME and AT of the child
START_LOW, START_HIGH, END_LOW, END_HIGH, WEIGHT_FIELDS = range(5)  # for each weight, after those
LEAF_LEAST, INNER_LEAST = max(1, B // 4), 2  # least sizes, except for the root
# HEIGHT: levels of inner nodes. PLAIN: the tree has no rows, so that only the numbers and sums of a child are maintained.
ROOT, HEIGHT, EVENTS, LEAVES, FREE_LEAF, INNERS, FREE_INNER, WEIGHTS, PLAIN, CONTROL_WORDS = range(10)
ON, TAKEN = range(2)  # for each level of a path: the inner node, and the child taken
MOST_LEVELS = 64  # an inner node has at least two children, and there are fewer than 2**33 events
LOW32 = 2**32 - 1


@arrays("int64[:,:,::1]", "int64[:,:,::1]", "int32[::1]", "int32[::1]", "int64[::1]", "int64[:,::1]", "int64[:,::1]")
class Tree(NamedTuple):
    """leaf_size, inner_size: events of a leaf, children of an inner node. path, int64[levels, 2]: ON and TAKEN. given, int64[2, w]: the
    weights of the START and of the END to be inserted next."""

    leaves: np.ndarray
    inners: np.ndarray
    leaf_size: np.ndarray
    inner_size: np.ndarray
    control: np.ndarray
    path: np.ndarray
    given: np.ndarray


@kernel(forceinline=True)
def name_of(key: int, rank: int, slot: int) -> int:
    return (key << 32) | (rank << 30) | slot


@kernel(forceinline=True)
def key_of(name: int) -> int:
    return name >> 32


@kernel(forceinline=True)
def slot_of(name: int) -> int:
    return name & (2**30 - 1)


@kernel(forceinline=True)
def rank_of(name: int) -> int:
    return (name >> 30) & 3


@kernel(forceinline=True)
def is_before(name: int, at: int, other: int, its: int) -> bool:
    """Whether (name, at) comes before (other, its). Without branches, as those of a search are unpredictable."""
    key, its_key = name >> 32, other >> 32
    return (key < its_key) | ((key == its_key) & ((at < its) | ((at == its) & (name < other))))


@kernel
def new_leaf(tree: Tree) -> int:
    control = tree.control
    o = control[FREE_LEAF]
    if o != 0:
        control[FREE_LEAF] = tree.leaves[o, NAME, 0]
    else:
        control[LEAVES] += 1
        o = control[LEAVES]
    tree.leaf_size[o] = 0
    return o


@kernel
def free_leaf(tree: Tree, o: int) -> None:
    tree.leaves[o, NAME, 0] = tree.control[FREE_LEAF]
    tree.leaf_size[o] = -1
    tree.control[FREE_LEAF] = o


@kernel
def new_inner(tree: Tree) -> int:
    control = tree.control
    o = control[FREE_INNER]
    if o != 0:
        control[FREE_INNER] = tree.inners[o, NAME, 0]
    else:
        control[INNERS] += 1
        o = control[INNERS]
    tree.inner_size[o] = 0
    return o


@kernel
def free_inner(tree: Tree, o: int) -> None:
    tree.inners[o, NAME, 0] = tree.control[FREE_INNER]
    tree.inner_size[o] = -1
    tree.control[FREE_INNER] = o


@kernel
def open_event(tree: Tree, o: int, p: int) -> None:
    """Make room for an event at place p of a leaf that is not full. With unsigned places, which need no check of their sign, the loop is
    vectorised."""
    L, leaf = tree.leaves, np.uint64(o)
    for f in range(L.shape[1]):
        for i in range(tree.leaf_size[o], p, -1):
            L[leaf, f, np.uint64(i)] = L[leaf, f, np.uint64(i - 1)]


@kernel
def close_event(tree: Tree, o: int, p: int) -> None:
    """Move the events after place p of a leaf over that at p; vectorised."""
    L, leaf = tree.leaves, np.uint64(o)
    for f in range(L.shape[1]):
        for i in range(np.uint64(p + 1), np.uint64(tree.leaf_size[o])):
            L[leaf, f, i - np.uint64(1)] = L[leaf, f, i]


@kernel
def move_events(tree: Tree, source: int, low: int, high: int, target: int, at: int) -> None:
    """Copy the events [low, high) of a leaf to place `at` of another leaf, or of itself."""
    L = tree.leaves
    for f in range(L.shape[1]):
        if at > low:
            for i in range(high - low - 1, -1, -1):
                L[target, f, at + i] = L[source, f, low + i]
        else:
            for i in range(high - low):
                L[target, f, at + i] = L[source, f, low + i]


@kernel
def move_children(tree: Tree, source: int, low: int, high: int, target: int, at: int) -> None:
    """As `move_events`, for the children of inner nodes."""
    N = tree.inners
    for f in range(N.shape[1]):
        if at > low:
            for c in range(high - low - 1, -1, -1):
                N[target, f, at + c] = N[source, f, low + c]
        else:
            for c in range(high - low):
                N[target, f, at + c] = N[source, f, low + c]


@kernel
def child_for(tree: Tree, o: int, name: int, at: int) -> int:
    """The last child of o that begins at or before (name, at), or the first one."""
    N, n, found = tree.inners, tree.inner_size[o], 0
    for c in range(1, F):
        found += (c < n) & (not is_before(name, at, N[o, NAME, c], N[o, AT, c]))
    return found


@kernel
def place_for(tree: Tree, o: int, name: int, at: int) -> int:
    """The number of events of leaf o that are before (name, at)."""
    L, low, n = tree.leaves, wide(0), wide(tree.leaf_size[o])
    while n > 0:
        half = (n + 1) >> 1
        low += half * is_before(L[o, NAME, low + half - 1], L[o, AT, low + half - 1], name, at)
        n -= half
    return low


@kernel
def expect(tree: Tree, name: int, at: int, height: int) -> None:
    """Prefetch the cache lines of the node at this height (0: the leaf) on the path to an event."""
    o, of_leaf, of_inner = tree.control[ROOT], tree.leaves.shape[1] * B, tree.inners.shape[1] * F
    for _ in range(tree.control[HEIGHT] - height):
        o = tree.inners[o, CHILD, child_for(tree, o, name, at)]
    if height == 0:
        for field in range(0, of_leaf, B):
            for line in range(0, tree.leaf_size[o], 8):
                prefetch(tree.leaves, o * of_leaf + field + line)
    elif tree.control[HEIGHT] >= height:
        for line in range(0, of_inner, 8):
            prefetch(tree.inners, o * of_inner + line)


@kernel
def expect_above(tree: Tree, name: int, at: int) -> int:
    """Prefetch the cache lines of the node above the leaf on the path to an event. Returns this node, 0 if there is none."""
    o, of_inner = tree.control[ROOT], tree.inners.shape[1] * F
    if tree.control[HEIGHT] == 0:
        return 0
    for _ in range(tree.control[HEIGHT] - 1):
        o = tree.inners[o, CHILD, child_for(tree, o, name, at)]
    prefetch(tree.inner_size, o)
    for line in range(0, of_inner, 8):
        prefetch(tree.inners, o * of_inner + line)
    return o


@kernel
def expect_leaf(tree: Tree, above: int, name: int, at: int) -> None:
    """Prefetch the cache lines of the leaf below this node on the path to an event: those of the events that most leaves have."""
    o, of_leaf = tree.inners[above, CHILD, child_for(tree, above, name, at)], tree.leaves.shape[1] * B
    prefetch(tree.leaf_size, o)
    for field in range(0, of_leaf, B):
        for line in range(0, B * 3 // 4, 8):
            prefetch(tree.leaves, o * of_leaf + field + line)


@kernel
def descend(tree: Tree, name: int, at: int) -> int:
    """The leaf to which the event belongs; leaves the path in the tree."""
    path, o = tree.path, tree.control[ROOT]
    for level in range(tree.control[HEIGHT]):
        c = child_for(tree, o, name, at)
        path[level, ON], path[level, TAKEN] = o, c
        o = tree.inners[o, CHILD, c]
    return o

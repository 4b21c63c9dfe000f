"""The arrays of an event tree (`tree.py` defines it): leaves of up to B events, inner nodes of up to F children with their summaries.

    leaves  int64[l, 3 or more, B]   name, at, value of each event, ascending by (key, at, rank, slot); more values for further weights
    inners  int64[n, 10 + 4 w, F]    for each child: where its events begin, the child, its summary (`summary.py`), the sums of w weights

A name is key << 32 | rank << 30 | slot. No event of a child is before the child's (name, at), and all events of the children before it are;
that of the first child is not used. Leaf and inner node 0 are NIL; free nodes form a list, linked by their first words. Only the newest
version is read: all is written in place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.btree.nodes import Helper
from structures.core.arena import B, F
from structures.core.kernel import arrays, kernel, wide

START, END, ROW = range(3)  # ranks
NAME, AT, VALUE, LEAF_FIELDS = range(4)  # VALUE: the right end of a row, the first weight of other events
CHILD, STARTS, ENDS, FIRST_KEY, FIRST_AT, FIT, TRAIL_KEY, TRAIL_END, INNER_FIELDS = range(2, 11)  # after NAME and AT of the child
START_LOW, START_HIGH, END_LOW, END_HIGH, WEIGHT_FIELDS = range(5)  # for each weight, after those
LEAF_LEAST, INNER_LEAST = max(1, B // 4), 2  # least sizes, except for the root
# HEIGHT: levels of inner nodes. PLAIN: the tree has no rows, so that only the numbers and sums of a child are maintained. DEEPENS: whether
# the change of a leaf changes its starts less its ends.
ROOT, HEIGHT, EVENTS, LEAVES, FREE_LEAF, INNERS, FREE_INNER, WEIGHTS, PLAIN, DEEPENS, CONTROL_WORDS = range(11)
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


def pooled(nodes: int, sizes: int, made: int, free: int) -> tuple[Helper, Helper, Helper, Helper, Helper]:
    """Return the helpers of the nodes in one field of a tree: new(tree, o), drop(tree, o), size(tree, o), resize(tree, o, n), and
    move(tree, source, low, high, target, at), which copies items to place `at` of another node, or of the same. `sizes`: the field of their
    sizes; `made`, `free`: the words of `control` that have their number, and the first free one."""

    @kernel
    def new(tree: Any, o: int) -> int:
        control = tree.control
        o = control[free]
        if o != 0:
            control[free] = tree[nodes][o, NAME, 0]
        else:
            control[made] += 1
            o = control[made]
        tree[sizes][o] = 0
        return o

    @kernel
    def drop(tree: Any, o: int) -> None:
        tree[nodes][o, NAME, 0] = tree.control[free]
        tree[sizes][o] = -1
        tree.control[free] = o

    @kernel
    def size(tree: Any, o: int) -> int:
        return wide(tree[sizes][o])

    @kernel
    def resize(tree: Any, o: int, n: int) -> None:
        tree[sizes][o] = n

    @kernel(forceinline=True)
    def move(tree: Any, source: int, low: int, high: int, target: int, at: int) -> None:
        N, first, to = tree[nodes], np.uint64(low), np.uint64(at)  # unsigned places need no check of their sign, so that this is vectorised
        for f in range(N.shape[1]):
            if at > low:
                for i in range(high - low, 0, -1):
                    N[target, f, to + np.uint64(i - 1)] = N[source, f, first + np.uint64(i - 1)]
            else:
                for i in range(np.uint64(max(high - low, 0))):
                    N[target, f, to + i] = N[source, f, first + i]

    return new, drop, size, resize, move


new_leaf, drop_leaf, leaf_size, resize_leaf, move_events = pooled(0, 2, LEAVES, FREE_LEAF)
new_inner, drop_inner, inner_size, resize_inner, move_children = pooled(1, 3, INNERS, FREE_INNER)


@kernel
def child_for(tree: Tree, o: int, name: int, at: int) -> int:
    """The last child of o that begins at or before (name, at), or the first one."""
    N, n, found = tree.inners, tree.inner_size[o], 0
    for c in range(1, F):
        found += (c < n) & (not is_before(name, at, N[o, NAME, c], N[o, AT, c]))
    return found


@kernel
def position_for(tree: Tree, o: int, name: int, at: int) -> int:
    """The number of events of leaf o that are before (name, at)."""
    L, low, n = tree.leaves, wide(0), wide(tree.leaf_size[o])
    while n > 0:
        half = (n + 1) >> 1
        low += half * is_before(L[o, NAME, low + half - 1], L[o, AT, low + half - 1], name, at)
        n -= half
    return low


@kernel
def descend(tree: Tree, name: int, at: int) -> int:
    """The leaf to which the event belongs; leaves the path in the tree."""
    path, o = tree.path, tree.control[ROOT]
    for level in range(tree.control[HEIGHT]):
        c = child_for(tree, o, name, at)
        path[level, ON], path[level, TAKEN] = o, c
        o = tree.inners[o, CHILD, c]
    return o

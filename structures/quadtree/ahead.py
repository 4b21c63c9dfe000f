"""Prefetching the paths to several entries: they go down a tree together, level by level, so that while one node is on its way from memory
the others are requested. A descent alone waits for one node after another.

Where an entry takes the same path as the one before it, it follows that one. Requests are in vain where a change replaces a block before it
is read. Costs: a third of a descent an entry, where all is in the processor's caches; a descent that waits for memory takes half the time.
"""

from __future__ import annotations

from typing import Any

from structures.core.bits import highest
from structures.core.kernel import kernel, prefetch, wide
from structures.quadtree.compact import LEAVES, NODE_WORDS, NODES, SIZES, find_leaf
from structures.quadtree.layout import AHEAD, CODE_BITS, HEAD, LEAF, QuadNodes, Shape, digit, level_below
from structures.quadtree.search import child_of, ends_at, leads_to_leaf

_LINE = 8  # words


@kernel
def request_paths(
    nodes: QuadNodes, tree: tuple[int, int, int], shape: Shape, entries: Any, ends: tuple[int, int], lowest: int, paths: Any, p: int
) -> None:
    """Prefetch the paths of a tree (root, bits, base), down to the level `lowest`, to the entries entries[ends[0]:ends[1]], at most AHEAD.
    `paths`: room for PATHS_WORDS words from p on."""
    W = nodes.W
    root, bits, base = tree
    k, f = shape
    count = (ends[1] - ends[0]) // (k + 1)
    if root == 0 or ends_at(W, root):
        return
    for i in range(count):
        paths[p + i], paths[p + AHEAD + i] = root, fork(entries, ends[0] + i * (k + 1), k, f) if i > 0 else 2 * CODE_BITS
    level, going = bits - 1 + (CODE_BITS if f > 0 else 0), True
    while going and level >= lowest:
        going = False
        for i in range(p, p + count):
            if level > paths[i + AHEAD]:
                paths[i] = paths[i - 1]
            elif paths[i] != 0:
                paths[i] = request_next(nodes, base, paths[i], shape, level, digit(entries, ends[0] + (i - p) * (k + 1), 1, k, f, level))
                going = True
        level = level_below(level, bits)


@kernel(forceinline=True)
def fork(entries: Any, e: int, arity: int, leading: int) -> int:
    """Return the level at which the path to the entry at entries[e] leaves that to the one before it; -1: at the slots."""
    differ = wide(0)
    for j in range(leading):
        differ |= wide(entries[e + j] ^ entries[e + j - arity - 1])
    if differ != 0:
        return CODE_BITS + highest(differ)
    for j in range(leading, arity):
        differ |= wide(entries[e + j] ^ entries[e + j - arity - 1])
    return highest(differ) if differ != 0 else -1


@kernel(forceinline=True)
def request_next(nodes: QuadNodes, base: int, o: int, shape: Shape, level: int, c: int) -> int:
    """Prefetch child c of the inner node at place o of a level, and return its place; if a compact leaf is at o, prefetch its bytes. 0: the
    path ends."""
    M, W, compact, packed = nodes.M, nodes.W, nodes.compact, nodes.packed
    if ends_at(W, o):
        at, n, each = find_leaf(compact, base, o, shape, level)
        for byte in range(0, n * each + 8 * _LINE, 8 * _LINE):
            prefetch(packed, at + byte)
        return 0
    child = wide(child_of(nodes, base, o, shape.arity, c))
    if child > 0:
        ends = leads_to_leaf(W, o, c, child)
        items = (shape.arity + 1) * LEAF if ends else 1 << shape.arity
        for word in range(0, (HEAD + items) // 2, _LINE):  # the last words of a block that begins within a line are rarely needed
            prefetch(M, child + word)
        return 0 if ends else child
    if child < 0 and leads_to_leaf(W, o, c, child):
        prefetch(compact, compact[base + LEAVES] + (~child >> 1) // SIZES)
    elif child < 0:
        w = compact[base + NODES] + NODE_WORDS * (((~child >> 1) << shape.arity) >> 6)
        prefetch(compact, w)
        prefetch(compact, w + NODE_WORDS - 1)
    return child

"""Prefetching the paths to several entries: they go down a tree together, level by level, so that the processor fetches many nodes at once.
A descent alone waits for one node after another: without this, a change with its delta, in a batch of 1,000 or more on 10^6 rows, takes 1.7
times as long.

Where an entry takes the same path as the one before it, it follows that one. The tree may change before the descents themselves: a block
that was replaced, or an entry that the tree does not reach, is prefetched in vain.

Costs: O(levels) an entry, a third of a descent whose nodes are in the processor's caches.
"""

from __future__ import annotations

from typing import Any

from structures.core.bits import highest
from structures.core.kernel import kernel, prefetch, wide
from structures.quadtree.compact import CODE, NODE_WORDS, bytes_of, find_leaf, node_word, sizes_word
from structures.quadtree.layout import (
    AHEAD,
    ARITY,
    BASE,
    BITS,
    CODE_BITS,
    FIRST,
    HEAD,
    LEAF,
    LEVELS,
    PATHS,
    ROOT,
    QuadNodes,
    QuadtreeShape,
    digit,
    level_below,
)
from structures.quadtree.search import child_of, ends_at, leads_to_leaf

_LINE = 64  # bytes


@kernel(forceinline=True)
def prefetch_lines(array: Any, first: int, end: int, items: int) -> None:
    """Prefetch the cache lines, of `items` items each, of array[first:end], whose memory begins with a line."""
    for at in range(first - first % items, end, items):
        prefetch(array, at)


@kernel
def prefetch_entries(nodes: QuadNodes, C: Any, h: int, entries: Any, e: int) -> int:
    """Prefetch the paths of the tree at holder h to the next AHEAD entries, from entries[e] on. Returns where they end."""
    shape = QuadtreeShape(C[h + ARITY], C[h + FIRST])
    end = min(wide(len(entries)), e + AHEAD * (shape.arity + 1))
    prefetch_paths(nodes, (C[h + ROOT], C[h + BITS], C[h + BASE]), shape, entries, (e, end), -LEVELS, C, PATHS)
    return end


@kernel
def prefetch_paths(
    nodes: QuadNodes, tree: tuple[int, int, int], shape: QuadtreeShape, entries: Any, part: tuple[int, int], lowest: int, paths: Any, p: int
) -> None:
    """Prefetch the paths of a tree (root, bits, base), down to the level `lowest`, to entries[part[0]:part[1]], at most AHEAD, if there are
    several. paths[p:]: room for PATHS_WORDS words, the place that each path has reached and the level at which it leaves the one before
    it."""
    root, bits, base = tree
    k, f = shape
    count = (part[1] - part[0]) // (k + 1)
    if count < 2 or root == 0 or ends_at(nodes.W, root):
        return
    level, going = bits - 1 + (CODE_BITS if f > 0 else 0), True
    for i in range(count):
        paths[p + i], paths[p + AHEAD + i] = root, fork_level(entries, part[0] + i * (k + 1), k, f) if i > 0 else level
    while going and level >= lowest:
        going = False
        for i in range(p, p + count):
            if level > paths[i + AHEAD]:
                paths[i] = paths[i - 1]
            elif paths[i] != 0:
                paths[i] = prefetch_next(nodes, base, paths[i], shape, level, digit(entries, part[0] + (i - p) * (k + 1), 1, k, f, level))
                going = True
        level = level_below(level, bits)


@kernel(forceinline=True)
def fork_level(entries: Any, e: int, arity: int, leading: int) -> int:
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
def prefetch_next(nodes: QuadNodes, base: int, o: int, shape: QuadtreeShape, level: int, c: int) -> int:
    """Prefetch child c of the inner node at place o of a level, and return its place; of a compact leaf, at first only where its bytes are,
    and at its own turn these. 0: the path ends."""
    M, W, compact, packed = nodes.M, nodes.W, nodes.compact, nodes.packed
    if ends_at(W, o):
        at, n, each = find_leaf(compact, base, o, shape, level)
        prefetch_lines(packed, at, at + bytes_of(compact[base + CODE]) * shape.arity + n * each, _LINE)
        return 0
    child = wide(child_of(nodes, base, o, shape.arity, c))
    if child == 0:
        return 0
    is_leaf = leads_to_leaf(W, o, c, child)
    if child > 0:
        items = (shape.arity + 1) * LEAF if is_leaf else 1 << shape.arity
        prefetch_lines(M, child, child + (HEAD + items + 1) // 2, _LINE // 8)
        return 0 if is_leaf else child
    if is_leaf:
        prefetch(compact, sizes_word(compact, base, child))
    else:
        word = node_word(compact, base, child, shape.arity)
        prefetch_lines(compact, word, word + NODE_WORDS, _LINE // 8)
    return child

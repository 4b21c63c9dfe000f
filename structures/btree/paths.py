"""Paths of a B+-tree: the way up after a change of a leaf, and whole levels built at once (`nodes.py` has the helpers).

Costs: the way up O(F log n), and O(log n) copied nodes a version; levels O(1) a node.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.btree.nodes import Helper, Helpers, either, evening, halving, inserting
from structures.core.kernel import kernel, wide


def swapping(its: Helpers) -> Helper:
    """Return swap_up(tree, d, old, new), which replaces node `old`, below depth d of the path, by `new` with the same summary: up to the
    first node that was owned already."""
    step, own, position, plant = its.step, its.own, its.position, its.plant

    @kernel
    def swap_up(tree: Any, d: int, old: int, new: int) -> None:
        while old != new and d >= 0:
            above, c = step(tree, d)
            o = own(tree, above, False)
            position(tree, o, c, new)
            old, new = above, o
            d -= 1
        if old != new:
            plant(tree, new, 0, False)

    return swap_up


def climbing(its: Helpers) -> Helper:
    """Return climb(tree, child, extra, leaf), which updates the path after a change: what it ends in is now `child`, a leaf or an inner
    node, followed by the new node `extra` unless that is 0. It ends where nothing differs."""
    height, step, own, child_of, above, drop = its.height, its.step, its.own, its.child, its.above, its.inner.drop
    size, most, position, note, refresh, plant = its.inner.size, its.inner.most, its.position, its.note, its.refresh, its.plant
    size_of, least = either(its.leaf.size, its.inner.size), either(its.leaf.least, its.inner.least)
    even_out, halve, insert_child, swap_up = evening(its), halving(its.inner), inserting(its), swapping(its)

    @kernel
    def climb(tree: Any, child: int, extra: int, leaf: bool) -> None:
        for d in range(height(tree) - 1, -1, -1):
            old, c = step(tree, d)
            o, right = own(tree, old, False), wide(0)
            if extra != 0:
                refresh(tree, o, c, child, leaf)
                into, at = o, c + 1
                if size(tree, o) == most(tree):
                    right, into, at = halve(tree, o, at)
                insert_child(tree, into, at, extra, leaf)
            elif size_of(leaf, tree, child) < least(leaf, tree):
                position(tree, o, c, child)
                even_out(tree, o, c - 1 if c > 0 else 0, leaf)
            elif not note(tree, o, c, child, leaf):
                swap_up(tree, d - 1, old, o)
                return
            child, extra, leaf = o, right, False
        by = 0
        if extra != 0:
            root, by = above(tree, child), 1
            insert_child(tree, root, 0, child, leaf)
            insert_child(tree, root, 1, extra, leaf)
            child = root
        elif not leaf and size(tree, child) == 1:
            root, by = child_of(tree, child, 0), -1
            drop(tree, child)
            child = root
        plant(tree, child, by, True)

    return climb


def building(its: Helpers) -> tuple[Helper, Helper]:
    """Return build_nodes(tree, below, level, first, last, leaf), which makes the nodes level[first:last] of those over which the nodes
    `below` are divided; and build_levels(tree, leaves, fill), which makes all levels above the leaves, with at most `fill` children a
    node, and the root."""
    above, plant, insert_child = its.above, its.plant, inserting(its)

    @kernel
    def build_nodes(tree: Any, below: Any, level: Any, first: int, last: int, leaf: bool) -> None:
        for b in range(first, last):
            low, high = len(below) * b // len(level), len(below) * (b + 1) // len(level)
            o = above(tree, below[low])
            for c in range(low, high):
                insert_child(tree, o, c - low, below[c], leaf)
            level[b] = o

    @kernel(allocates=True)
    def build_levels(tree: Any, leaves: Any, fill: int) -> None:
        below, leaf, by = leaves, True, 0
        while len(below) > 1:
            level = np.empty(-(-len(below) // fill), np.int64)
            build_nodes(tree, below, level, 0, len(level), leaf)
            below, leaf = level, False
            by += 1
        plant(tree, wide(below[0]), by, True)

    return build_nodes, build_levels

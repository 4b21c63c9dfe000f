"""Nodes of a B+-tree: items moved between neighbours, a node halved, two evened out, a child inserted.

A factory takes the helpers of a tree and returns a helper over them, which Numba compiles into the kernels that call it. `tree` is whatever
the tree's own helpers take; `leaf` says whether a node, or a child, is a leaf. A node is named by its place, which is not 0. Item i of an
inner node is its child i, with a separator: no entry below it comes before that, and all below child i - 1 do. That of item 0 is not used.

Writers own the nodes they change. Costs: O(capacity) each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from structures.core.kernel import kernel

Helper = Callable[..., Any]
_EVENING = "size", "most", "drop", "to_left", "to_right"


class Kind(NamedTuple):
    """What a tree does with its leaves, or with its inner nodes."""

    new: Helper  # (tree, o): an empty node of the level of node o
    drop: Helper  # (tree, o): give a node back
    size: Helper  # (tree, o): its items
    most: Helper  # (tree): its capacity
    least: Helper  # (tree): the least size of one that is not the root
    to_left: Helper  # (tree, o, other, m): append the first m items of `other`, the node after o, to those of o
    to_right: Helper  # (tree, o, other, m): move the last m items of o before those of `other`


class Helpers(NamedTuple):
    """What a tree does by itself."""

    leaf: Kind
    inner: Kind
    height: Helper  # (tree): levels of inner nodes on the path from the root to the leaf that is changed
    step: Helper  # (tree, d): at depth d of this path, the node and the number of the child taken
    child: Helper  # (tree, o, c): child c of node o
    own: Helper  # (tree, o, leaf): the node itself if this version wrote it, otherwise a copy that replaces it
    above: Helper  # (tree, o): an empty inner node of the level above node o
    open: Helper  # (tree, o, c): make room for a child c in node o, which is not full
    close: Helper  # (tree, o, c): remove child c from node o
    separate: Helper  # (tree, o, c, child, leaf): let the first item of the child separate child c of node o from the one before
    inherit: Helper  # (tree, o, c, child): give the first item of the child, an inner node, the separator of child c of node o
    position: Helper  # (tree, o, c, child): let node o have this child c, with the summary that is stored
    note: Helper  # (tree, o, c, child, leaf): as `position`, and update the summary by the change; whether it differs
    refresh: Helper  # (tree, o, c, child, leaf): as `position`, and compute the summary anew
    plant: Helper  # (tree, root, by, differs): let the tree have this root, whose summary may differ, and `by` more levels


def moving(size: Helper, resize: Helper, move: Helper) -> tuple[Helper, Helper]:
    """Return `to_left` and `to_right` for nodes whose items lie in order: size(tree, o), resize(tree, o, n), and
    move(tree, source, low, high, target, at), which copies items, to the same node too."""

    @kernel
    def to_left(tree: Any, o: int, other: int, m: int) -> None:
        n, its = size(tree, o), size(tree, other)
        move(tree, other, 0, m, o, n)
        move(tree, other, m, its, other, 0)
        resize(tree, o, n + m)
        resize(tree, other, its - m)

    @kernel
    def to_right(tree: Any, o: int, other: int, m: int) -> None:
        n, its = size(tree, o), size(tree, other)
        move(tree, other, 0, its, other, m)
        move(tree, o, n - m, n, other, 0)
        resize(tree, o, n - m)
        resize(tree, other, its + m)

    return to_left, to_right


def shifting(size: Helper, resize: Helper, move: Helper) -> tuple[Helper, Helper]:
    """Return `open` and `close` for such nodes."""

    @kernel
    def open_(tree: Any, o: int, c: int) -> None:
        n = size(tree, o)
        move(tree, o, c, n, o, c + 1)
        resize(tree, o, n + 1)

    @kernel
    def close(tree: Any, o: int, c: int) -> None:
        n = size(tree, o)
        move(tree, o, c + 1, n, o, c)
        resize(tree, o, n - 1)

    return open_, close


def either(of_leaf: Helper, of_inner: Helper) -> Helper:
    """Return a helper that takes `leaf` first, and then does what the one or the other does."""

    @kernel
    def of_either(leaf: bool, *given: Any) -> Any:
        return of_leaf(*given) if leaf else of_inner(*given)

    return of_either


def evening(its: Helpers) -> Helper:
    """Return even_out(tree, o, a, leaf), which merges children a and a + 1 of own node o if they fit into one, or gives each half."""
    size, most, drop, to_left, to_right = (either(getattr(its.leaf, one), getattr(its.inner, one)) for one in _EVENING)
    child, own, close, separate, inherit, refresh = its.child, its.own, its.close, its.separate, its.inherit, its.refresh

    @kernel
    def even_out(tree: Any, o: int, a: int, leaf: bool) -> None:
        first, second = own(tree, child(tree, o, a), leaf), own(tree, child(tree, o, a + 1), leaf)
        if not leaf:
            inherit(tree, o, a + 1, second)
        n, m = size(leaf, tree, first), size(leaf, tree, second)
        if n + m <= most(leaf, tree):
            to_left(leaf, tree, first, second, m)
            drop(leaf, tree, second)
            close(tree, o, a + 1)
        else:
            half = (n + m) // 2
            if n < half:
                to_left(leaf, tree, first, second, half - n)
            else:
                to_right(leaf, tree, first, second, n - half)
            separate(tree, o, a + 1, second, leaf)
            refresh(tree, o, a + 1, second, leaf)
        refresh(tree, o, a, first, leaf)

    return even_out


def halving(kind: Kind) -> Helper:
    """Return halve(tree, o, at), which divides full own node o, into which item `at` is to be inserted. It returns the new node after it,
    and the node and the place to which the item belongs. If it comes at the end, as in ascending inserts, three quarters stay."""
    new, size, to_right = kind.new, kind.size, kind.to_right

    @kernel
    def halve(tree: Any, o: int, at: int) -> tuple[int, int, int]:
        n = size(tree, o)
        is_left = at <= n // 2
        stay = n // 2 if is_left else (n + 1) // 2 if at < n else n - max(1, n // 4)
        after = new(tree, o)
        to_right(tree, o, after, n - stay)
        if is_left:
            return after, o, at
        return after, after, at - stay

    return halve


def making_room(its: Helpers, roomy: Helper) -> Helper:
    """Return make_room(tree), which evens out the full leaf at the end of the path with a neighbour below the same node, above, that is
    roomy(tree, above, neighbour), and says whether there was one. Without this, leaves of random changes in place are less than two thirds
    full."""
    height, step, child, size, even_out = its.height, its.step, its.child, its.inner.size, evening(its)

    @kernel
    def make_room(tree: Any) -> bool:
        d = height(tree) - 1
        if d < 0:
            return False
        o, c = step(tree, d)
        for a in range(max(c - 1, 0), min(c + 1, size(tree, o) - 1)):
            if roomy(tree, o, child(tree, o, a if a < c else c + 1)):
                even_out(tree, o, a, True)
                return True
        return False

    return make_room


def inserting(its: Helpers) -> Helper:
    """Return insert_child(tree, o, c, child, leaf), which inserts a child, with its first item as separator, into own node o, which is not
    full."""
    open_, separate, refresh = its.open, its.separate, its.refresh

    @kernel
    def insert_child(tree: Any, o: int, c: int, child: int, leaf: bool) -> None:
        open_(tree, o, c)
        refresh(tree, o, c, child, leaf)
        separate(tree, o, c, child, leaf)

    return insert_child

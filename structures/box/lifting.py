r"""Lifting of spanners: what a rotation (`rotation.py`) changes in trees, where boxes cover the slabs of both nodes that it joins.

              before                         after            The box s is a spanner of both nodes, and then of the one that
        light          inner                joined            joins them. That gets a tree of s and of the points of both, which
      [-------]  |  [----------]     [------------------]     their trees have; a tree that is left without spanners is dropped.
    s ==========================   s ====================

Only trees of the last dimension are changed, and only if they have few members. So a few boxes that are much longer than all others, such
as intervals without an end, do not prevent rotations. Costs: O(m log m) for m members of both trees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.box import layout
from structures.box.build import build_entries, enter, sorted_positions
from structures.box.layout import clear_holder, holder, members_of, own_child, refresh, root_of, spanners_of
from structures.core.blocks import Nodes, WriteState
from structures.core.entries import Entries
from structures.core.kernel import kernel
from structures.ordered.whole import drop_flat, read_all

MOST_LIFTED = 64 * layout.CAP  # most members of two trees that are changed in this way: a few milliseconds


@kernel
def have_spanners(W: Any, light: int, inner: int, i: int) -> bool:
    """Whether both nodes have spanners of set i: perhaps common ones."""
    return spanners_of(W, light, i) > 0 and spanners_of(W, inner, i) > 0


@kernel
def is_liftable(W: Any, C: Any, level: int, light: int, inner: int, i: int) -> bool:
    """Whether the common spanners of set i of two nodes of the level may be lifted within a change."""
    return level + 2 == C[layout.DIMENSIONS] and members_of(W, holder(light, i)) + members_of(W, holder(inner, i)) <= MOST_LIFTED


@kernel(allocates=True)
def room_of(n: int) -> Entries:
    """Entries without values."""
    return Entries(np.empty(n, np.uint8), np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32))


@kernel(allocates=True)
def read_members(nodes: Nodes, C: Any, h: int) -> Entries:
    """The members of the 1-D tree in holder h, leaf by leaf."""
    into = room_of(members_of(nodes.W, h))
    enter(nodes.W, C, h)
    read_all(nodes, C, into)
    return into


@kernel
def copy_chosen(source: Entries, chosen: Any, into: Entries, at: int) -> int:
    """Copy the chosen entries (bool[n]) to `into`, from place `at` on. Returns the place after them."""
    for p in range(len(chosen)):
        if chosen[p]:
            into.set[at], into.key[at], into.slot[at] = source.set[p], source.key[p], source.slot[p]
            into.left[at], into.right[at] = source.left[p], source.right[p]
            at += 1
    return at


@kernel(allocates=True)
def build_unsorted(nodes: Nodes, writing: WriteState, h: int, entries: Entries) -> None:
    """Build the 1-D tree of holder h, which is inactive, from entries in any order."""
    n = len(entries.slot)
    codes = np.empty(n, np.int64)
    for p in range(n):
        codes[p] = 2 * np.int64(entries.slot[p]) + entries.set[p]
    build_entries(nodes, writing, h, entries, sorted_positions(np.zeros(n, np.int64), entries.left, codes))


@kernel(allocates=True)
def mark_common(light: Entries, inner: Entries, s: int, lifted: Any, lifted_inner: Any) -> int:
    """Mark the entries of set s whose slot occurs in both. Returns their number, of one of both."""
    mine, others = np.flatnonzero(light.set == s), np.flatnonzero(inner.set == s)
    mine, others = mine[np.argsort(light.slot[mine])], others[np.argsort(inner.slot[others])]
    n, i, j = 0, 0, 0
    while i < len(mine) and j < len(others):
        slot, other = light.slot[mine[i]], inner.slot[others[j]]
        if slot == other:
            lifted[mine[i]], lifted_inner[others[j]] = True, True
            n += 1
        i, j = i + (slot <= other), j + (other <= slot)
    return n


@kernel(allocates=True)
def keep_others(nodes: Nodes, writing: WriteState, o: int, i: int, members: Entries, lifted: Any, n: int) -> None:
    """Remove n lifted members from tree i of own node o, or drop the tree if no spanner is left."""
    W, h = nodes.W, holder(o, i)
    left = room_of(len(lifted) - n if n < spanners_of(W, o, i) else 0)
    drop_flat(nodes, writing, root_of(W, h), W[h + layout.HEIGHT_])
    clear_holder(W, h)
    if len(left.slot) > 0:
        copy_chosen(members, ~lifted, left, 0)
        build_unsorted(nodes, writing, h, left)
    refresh(W, o)


@kernel(allocates=True)
def lift(nodes: Nodes, writing: WriteState, i: int, joined: int, c: int) -> None:
    """Make the common spanners of set i of the children of own node `joined`, which has no tree i, its own; c: the child that was the inner
    one."""
    W, C = nodes.W, writing.C
    light, inner = own_child(nodes, writing, joined, 1 - c), own_child(nodes, writing, joined, c)
    mine, others = read_members(nodes, C, holder(light, i)), read_members(nodes, C, holder(inner, i))
    lifted, lifted_inner = np.zeros(len(mine.slot), np.bool_), np.zeros(len(others.slot), np.bool_)
    n = mark_common(mine, others, i, lifted, lifted_inner)
    if n == 0:
        return
    into = room_of(len(mine.slot) + len(others.slot) - spanners_of(W, light, i) - spanners_of(W, inner, i) + n)
    at = copy_chosen(mine, (mine.set != i) | lifted, into, 0)
    copy_chosen(others, others.set != i, into, at)
    build_unsorted(nodes, writing, holder(joined, i), into)
    keep_others(nodes, writing, light, i, mine, lifted, n)
    keep_others(nodes, writing, inner, i, others, lifted_inner, n)

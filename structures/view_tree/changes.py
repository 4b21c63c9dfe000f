"""The writer of view trees: which live prefixes a changed entry flips, and changes in order, each with its delta.

An entry whose group in its atom was empty before, or is now, may flip the live prefix of the node above: if all other children of that node
have something below the prefix. A prefix that flipped goes on to the node above, if no other live prefix of its node has the parent's
prefix in common. Whether another one is in common, the tree tells that was changed (`index.changes.put`): no look-up.

Costs: a change at most one look-up a child of the path's nodes, O(log n) each, besides its delta. Source: docs/design/natural-joins.md
(*view-tree*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes, Writing
from structures.core.entries import Told
from structures.core.kernel import arrays, kernel, wide
from structures.index.changes import cut, put
from structures.index.compaction import compact_beside, has_spare_room
from structures.index.layout import HEAD, LEAF_ROOM, ROOT, size_of
from structures.index.search import BEFORE, BEHIND, Items, Place, has_prefix, same, seek, seek_near
from structures.view_tree.shape import ARITY, CHILD, CHILDREN, HOLDER, MEMBER_WORDS, PARENT, PLAN_WORDS, PREFIX
from structures.view_tree.walk import AT, Walking, forget, walk

CHANGE, BUSY, ATOM, LOOKED, FLIPPED, STATE = range(6)
"""The state N: of a run (`gather`), the change, whether its rows are being told, the atom that is looked at for it; look-ups, and live
prefixes that came or went, in all changes so far."""
_EVER = 2**62  # steps: a delta is interrupted by its rows alone


@arrays("int64[::1]", "int64[::1]", "int64[::1]")
class View(NamedTuple):
    """The members of a view (`shape.py`), their newest roots, and the state of a run."""

    T: np.ndarray
    R: np.ndarray
    N: np.ndarray


@arrays("int64[::1]", "int8[::1]", "int8[::1]", "int64[::1]", "boolean[::1]")
class Changes(NamedTuple):
    """What came to indexes: change i to that of `atoms[i]`, as bits, which has the root after[i] since; common[i]: as `put` and `cut` tell
    it; wanted[i]: whether its rows are."""

    atoms: np.ndarray
    signs: np.ndarray
    common: np.ndarray
    after: np.ndarray
    wanted: np.ndarray


@kernel
def set_live(nodes: Nodes, writing: Writing, view: View, X: Any, x: int, v: int, sign: int) -> int:
    """Let the prefix of an entry be live in node v (sign 1), or not (-1); as `put` and `cut` tell it."""
    C = writing.C
    T, R, N = view
    h = T[v * MEMBER_WORDS + HOLDER]
    common = put(nodes, writing, h, X, x, 0) if sign > 0 else cut(nodes, writing, h, X, x, 0)
    if common >= 0:
        if has_spare_room(C):
            compact_beside(nodes, writing, h, X, x, 0)
        R[v] = C[h + ROOT]
        N[FLIPPED] += 1
    return common


@kernel
def flip(nodes: Nodes, writing: Writing, view: View, X: Any, x: int, sign: int, atom: int, common: int) -> None:
    """An entry of the atom was put or cut (its index is so already), and `common` coordinates of it are in another entry of its index."""
    T, R, N = view
    child = atom
    v = T[child * MEMBER_WORDS + PARENT]
    while v >= 0:
        node = v * MEMBER_WORDS
        p = T[node + PREFIX]
        if common >= p:
            return
        for c in range(T[node + CHILDREN]):
            other = T[node + CHILD + c]
            if other == child:
                continue
            N[LOOKED] += 1
            if not has_prefix(nodes, R[other], T[other * MEMBER_WORDS + ARITY], X, x, 1, p):
                return
        common = set_live(nodes, writing, view, X, x, v, sign)
        child, v = v, T[node + PARENT]


@kernel("void(Nodes, Writing, View, Items, int8[::1], int64, int64)")
def flip_all(nodes: Nodes, writing: Writing, view: View, items: Items, common: Any, sign: int, atom: int) -> None:
    """As `flip`, for n entries that were put (sign 1) or cut (-1) one after another. common: int8[n], as `put` and `cut` tell it.
    There must be room for a flip of each entry in each node above the atom. Cost: O(t log n) an entry."""
    for e in range(len(common)):
        if common[e] >= 0:
            flip(nodes, writing, view, items.X, e * items.width, sign, atom, wide(common[e]))


@kernel("void(Nodes, Writing, View, Items, int64)")
def recheck_all(nodes: Nodes, writing: Writing, view: View, items: Items, atom: int) -> None:
    """Let the nodes above the atom have those prefixes of n entries that all their children have, as these are now. There must be room for
    a flip of each entry in each of them. Cost: O(t log n) an entry."""
    T, R, _ = view
    for e in range(len(items.slots)):
        x, v = e * items.width, T[atom * MEMBER_WORDS + PARENT]
        while v >= 0:
            node, live = v * MEMBER_WORDS, True
            for c in range(T[node + CHILDREN]):
                other = T[node + CHILD + c]
                live = live and has_prefix(nodes, R[other], T[other * MEMBER_WORDS + ARITY], items.X, x, 1, T[node + PREFIX])
            set_live(nodes, writing, view, items.X, x, v, 1 if live else -1)
            v = T[node + PARENT]


@kernel("int64(Nodes, Writing, View, Walking, Changes, Items, Told, int64[::1])")
def follow_run(
    nodes: Nodes, writing: Writing, view: View, walking: Walking, changes: Changes, items: Items, told: Told, done: Any
) -> int:  # fmt: skip
    """Follow changes of indexes from number N[CHANGE] on until all are done or there is no room for more rows; the rows written, at most
    `stride`.

    done: int64[n], the rows written when change i was done. `items`: entry i is that of change i. `walking` reads the view's own roots: for
    the rows of atom a those before it have the new root, those behind it the old one. Cost: as `flip_all`, and the rows.
    """
    R, N, Z = view.R, view.N, walking.Z
    atoms, signs, common, after, wanted = changes
    n = wide(0)
    while N[CHANGE] < len(signs):
        e = N[CHANGE]
        while atoms[e] >> N[ATOM] != 0:
            a = N[ATOM]
            if (atoms[e] >> a) & 1 != 0 and common[e] >= 0:
                if wanted[e]:
                    if N[BUSY] == 0:
                        forget(Z)
                        Z[AT], N[BUSY] = e, 1
                    n = walk(nodes, walking, a * PLAN_WORDS, items, e + 1, told, n, _EVER)
                    if Z[AT] == e:
                        return n
                N[BUSY] = 0
                R[a] = after[e]
                flip(nodes, writing, view, items.X, e * items.width, wide(signs[e]), a, wide(common[e]))
            N[ATOM] += 1
        done[e] = n
        N[CHANGE], N[ATOM] = e + 1, 0
    return n


@kernel("int64(Nodes, int64[::1], int64[::1], int64, int64[::1], int64[::1])")
def live_prefixes(nodes: Nodes, T: Any, R: Any, v: int, near: Any, out: Any) -> int:
    """Write the prefixes that all children of node v have, in order, one after another; how many. near: two zeros a child. out: room for as
    many as the smallest child has entries. Cost: a look-up a child for each of these."""
    M, W = nodes.M, nodes.W
    node = v * MEMBER_WORDS
    p, n, least = T[node + PREFIX], wide(0), T[node + CHILD]
    for c in range(T[node + CHILDREN]):
        other = T[node + CHILD + c]
        if R[other] == 0:
            return 0
        if size_of(W, T[other * MEMBER_WORDS + ARITY], R[other]) < size_of(W, T[least * MEMBER_WORDS + ARITY], R[least]):
            least = other
    k = T[least * MEMBER_WORDS + ARITY]
    leaf, i = seek(nodes, R[least], k, Place(out, 0, 1, 0, BEFORE))
    while leaf != 0:
        for j in range(p):
            out[n * p + j] = M[leaf + HEAD + j * LEAF_ROOM[k] + i]
        live = True
        for c in range(T[node + CHILDREN]):
            other = T[node + CHILD + c]
            if other != least and live:
                ko = T[other * MEMBER_WORDS + ARITY]
                o, e = seek_near(nodes, R[other], ko, near[2 * c], near[2 * c + 1], Place(out, n * p, 1, p, BEFORE))
                live = o != 0 and same(M, o, LEAF_ROOM[ko], e, out, n * p, 1, p)
                if o != 0:
                    near[2 * c], near[2 * c + 1] = o, e
        leaf, i = seek_near(nodes, R[least], k, leaf, i, Place(out, n * p, 1, p, BEHIND))
        n += live
    return n

"""Writer of view trees: find the live prefixes that a changed entry flips, and apply changes in order, each with its delta.

An entry whose group in its atom was empty before, or is now, may flip the live prefix of the node above: if all other children of that node
have something below the prefix. A flipped prefix is passed on to the node above, if no other live prefix of its node shares the parent's
prefix. The change of the tree itself reports whether another one shares it (`index.changes.put`): no look-up.

Costs: a change at most one look-up for each child of the path's nodes, O(log n) each, besides its delta. Source:
docs/design/natural-joins.md (*view-tree*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes, WriteState
from structures.core.entries import RowBuffer
from structures.core.kernel import arrays, kernel, wide
from structures.core.runs import AT as TICK
from structures.core.runs import BEGUN, RUN_WORDS, end_change, has_delta
from structures.index.changes import cut, put
from structures.index.layout import HEAD, LEAF_ROOM, ROOT, size_of
from structures.index.search import BEFORE, BEHIND, IndexPosition, Items, has_prefix, same, seek, seek_near
from structures.view_tree.shape import ARITY, CHILD, CHILDREN, HOLDER, MEMBER_WORDS, PARENT, PLAN_WORDS, PREFIX
from structures.view_tree.walk import AT, ViewTreeWalk, forget, walk

ATOM, LOOKED, FLIPPED, STATE = range(RUN_WORDS, RUN_WORDS + 4)
"""Of the state of a view, behind that of a run: the atom that is looked at for a change; look-ups, and live prefixes that came or went, in
all changes so far."""
_EVER = 2**62  # steps: only the number of its rows interrupts a delta


@arrays("int64[::1]", "int64[::1]", "int64[::1]")
class View(NamedTuple):
    """The members of a view (`shape.py`), their newest roots, and the state of a run."""

    members: np.ndarray
    roots: np.ndarray
    run: np.ndarray


@arrays("int64[::1]", "int8[::1]", "int8[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class TupleChanges(NamedTuple):
    """Changes of indexes: change i was made to index `indexes[i]`, which has the root after[i] since; common[i]: as `put` and `cut` return
    it. Turn g is the changes starts[g] to starts[g + 1] (excluded). own: for each atom its index."""

    indexes: np.ndarray
    signs: np.ndarray
    common: np.ndarray
    after: np.ndarray
    starts: np.ndarray
    own: np.ndarray


@kernel
def set_live(nodes: Nodes, writing: WriteState, view: View, coordinates: Any, start: int, v: int, sign: int) -> int:
    """Make the prefix of an entry live in node v (sign 1), or not (-1). Returns what `put` and `cut` return."""
    C = writing.C
    members, roots, run = view
    h = members[v * MEMBER_WORDS + HOLDER]
    common = put(nodes, writing, h, coordinates, start, 0) if sign > 0 else cut(nodes, writing, h, coordinates, start, 0)
    if common >= 0:
        roots[v] = C[h + ROOT]
        run[FLIPPED] += 1
    return common


@kernel
def flip(nodes: Nodes, writing: WriteState, view: View, coordinates: Any, start: int, sign: int, atom: int, common: int) -> None:
    """Update the nodes above after an entry of the atom was inserted or deleted (its index is up to date). `common` of its coordinates are
    shared by another entry of its index."""
    members, roots, run = view
    child = atom
    v = members[child * MEMBER_WORDS + PARENT]
    while v >= 0:
        node = v * MEMBER_WORDS
        p = members[node + PREFIX]
        if common >= p:
            return
        for c in range(members[node + CHILDREN]):
            other = members[node + CHILD + c]
            if other == child:
                continue
            run[LOOKED] += 1
            if not has_prefix(nodes, roots[other], members[other * MEMBER_WORDS + ARITY], coordinates, start, 1, p):
                return
        common = set_live(nodes, writing, view, coordinates, start, v, sign)
        child, v = v, members[node + PARENT]


@kernel("void(Nodes, WriteState, View, Items, int64)")
def recheck_all(nodes: Nodes, writing: WriteState, view: View, items: Items, atom: int) -> None:
    """Make those prefixes of n entries live in the nodes above the atom that all their children have, as the children are now. There must
    be room for a flip of each entry in each of them. Cost: O(t log n) an entry."""
    members, roots, _ = view
    for e in range(len(items.slots)):
        start, v = e * items.width, members[atom * MEMBER_WORDS + PARENT]
        while v >= 0:
            node, live = v * MEMBER_WORDS, True
            for c in range(members[node + CHILDREN]):
                other = members[node + CHILD + c]
                arity, prefix = members[other * MEMBER_WORDS + ARITY], members[node + PREFIX]
                live = live and has_prefix(nodes, roots[other], arity, items.coordinates, start, 1, prefix)
            set_live(nodes, writing, view, items.coordinates, start, v, 1 if live else -1)
            v = members[node + PARENT]


@kernel
def changes_of(changes: TupleChanges, g: int, a: int) -> tuple[int, int]:
    """The changes of tick g to the index of atom a: the first one, and the one after the last; equal if there are none."""
    e, end = changes.starts[g], changes.starts[g + 1]
    while e < end and changes.indexes[e] != changes.own[a]:
        e += 1
    last = e
    while last < end and changes.indexes[last] == changes.own[a]:
        last += 1
    return e, last


@kernel("int64(Nodes, WriteState, View, ViewTreeWalk, TupleChanges, Items, RowBuffer, int64[::1])")
def follow_run(
    nodes: Nodes, writing: WriteState, view: View, walking: ViewTreeWalk, changes: TupleChanges, items: Items, emitted: RowBuffer, done: Any
) -> int:  # fmt: skip
    """Follow ticks of changes of indexes from index run[TICK] on until all are done or there is no room for more rows. Returns the number
    of rows written, at most `stride`.

    done: int64[ticks], the rows written when tick g was done; empty: no rows are wanted. `items`: entry i is that of change i. `walking`
    reads the view's own roots: for the rows of atom a, those before it have the new root, those after it the old one. There must be room
    for a flip of each entry in each node above its atom. Cost: O(t log n) an entry, and the rows.
    """
    roots, run, state = view.roots, view.run, walking.state
    n = wide(0)
    while run[TICK] < len(changes.starts) - 1:
        while run[ATOM] < len(changes.own):
            a = run[ATOM]
            e, end = changes_of(changes, run[TICK], a)
            if end > e:
                sign = wide(changes.signs[e])
                if len(done) > 0 and has_delta(sign):
                    if run[BEGUN] == 0:
                        forget(state)
                        state[AT], run[BEGUN] = e, 1
                    n = walk(nodes, walking, a * PLAN_WORDS, items, end, emitted, n, _EVER)
                    if state[AT] < end:
                        return n
                run[BEGUN] = 0
                roots[a] = changes.after[end - 1]
                for i in range(e, end if has_delta(sign) else e):
                    if changes.common[i] >= 0:
                        flip(nodes, writing, view, items.coordinates, i * items.width, sign, a, wide(changes.common[i]))
            run[ATOM] += 1
        end_change(run, done, n, False)
        run[ATOM] = 0
    return n


@kernel("int64(Nodes, int64[::1], int64[::1], int64, int64[::1], int64[::1])")
def live_prefixes(nodes: Nodes, members: Any, roots: Any, v: int, near: Any, out: Any) -> int:
    """Write the prefixes that all children of node v have, in order, one after another. Returns their number. near: two zeros a child. out:
    room for as many as the smallest child has entries. Cost: a look-up a child for each of these."""
    M, W = nodes.M, nodes.W
    node = v * MEMBER_WORDS
    p, n, least = members[node + PREFIX], wide(0), members[node + CHILD]
    for c in range(members[node + CHILDREN]):
        other = members[node + CHILD + c]
        if roots[other] == 0:
            return 0
        k, arity = members[least * MEMBER_WORDS + ARITY], members[other * MEMBER_WORDS + ARITY]
        if size_of(W, arity, roots[other]) < size_of(W, k, roots[least]):
            least = other
    k = members[least * MEMBER_WORDS + ARITY]
    leaf, i = seek(nodes, roots[least], k, IndexPosition(out, 0, 1, 0, BEFORE))
    while leaf != 0:
        for j in range(p):
            out[n * p + j] = M[leaf + HEAD + j * LEAF_ROOM[k] + i]
        live = True
        for c in range(members[node + CHILDREN]):
            other = members[node + CHILD + c]
            if other != least and live:
                ko = members[other * MEMBER_WORDS + ARITY]
                o, e = seek_near(nodes, roots[other], ko, near[2 * c], near[2 * c + 1], IndexPosition(out, n * p, 1, p, BEFORE))
                live = o != 0 and same(M, o, LEAF_ROOM[ko], e, out, n * p, 1, p)
                if o != 0:
                    near[2 * c], near[2 * c + 1] = o, e
        leaf, i = seek_near(nodes, roots[least], k, leaf, i, IndexPosition(out, n * p, 1, p, BEHIND))
        n += live
    return n

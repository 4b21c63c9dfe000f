"""Cliques of one set: walks over the starts at which enough intervals share a point, with no dead ends; all rows, a window, given ones.

Problem: report every set of `MEMBERS` entries of one key that share a point, where the one that comes last in the order starts
(its centre: the others cover its start), for centres in a stretch of the order.

    context   the right endpoints, the largest few, of what lies to the left of the walk (within the key)
    a subtree is entered iff mn[MEMBERS] lies below it, or mn[MEMBERS - j] <= the j-th of the context: then it surely has a centre

So the walk meets no dead ends but, at most, the leaf in which it begins. What it passes over joins the context by its `top`.

A window [lo, hi], in one key: the members share a point of it (Helly). Either all of them contain lo (they are searched there, if the
context has so many that reach it), or their centre starts in (lo, hi]: the context at lo, and a walk from there.
The rows of a given interval r: those of one member less, without r, in the window that is r.

Costs: O(t log n) steps to the first row and between rows, O(1) a row. Source: docs/design/ij-heap.md (*Self-joins*).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.clique.covers import begin_heap, begin_search, push, search, take, tell
from structures.clique.state import (
    AT,
    BACK,
    CENTRE,
    CONTEXT,
    COUNT,
    COVERS,
    DEAD,
    DONE,
    EACH_KEY,
    ENTRIES,
    FRUITFUL,
    FULL,
    GIVEN,
    HEAP,
    HEAPED,
    HIGH,
    HIGH_KEY,
    ITEM,
    KEPT,
    KEY,
    LEAF,
    MEMBERS,
    MODE,
    NEXT_KEY,
    NODE_DEPTH,
    NODE_STACK,
    NODES,
    PICKING,
    PICKS,
    ROWS,
    SEARCH,
    START,
    STEPS,
    TOP,
    WHOLE,
)
from structures.core.arena import KEY_MAX, NEG_INF, POS_INF
from structures.core.kernel import kernel
from structures.multiway.clique_summary import enter, keys_at, top_at
from structures.multiway.layout import CHILD, L, height_of
from structures.multiway.leaves import count_of, entry_at, position
from structures.multiway.topology import CLIQUE
from structures.multiway.tree import side_of

NONE_GIVEN = -1
ANY_KEY = -1  # of a reading
_HEAP_MOST = 4 * L  # what a walk takes along from leaf to leaf; a longer heap has dead intervals, and is made anew


# --- the context


@kernel
def pass_over(M: Any, W: Any, T: Any, Z: Any, o: int) -> None:
    """The walk goes on to the right of subtree o."""
    keys, tops = keys_at(T, o), top_at(o)
    if W[keys] != Z[KEY]:
        Z[KEY], Z[COUNT] = W[keys], 0
    for j in range(W[keys + 1]):
        Z[COUNT] = enter(Z, CONTEXT, Z[COUNT], Z[KEPT], M[tops + j])
    Z[WHOLE] = 0


@kernel
def pass_entry(Z: Any, H: Any, I: Any, right: int, slot: int) -> None:  # noqa: E741
    """The walk goes on behind an entry of the context's key."""
    Z[COUNT] = enter(Z, CONTEXT, Z[COUNT], Z[KEPT], right)
    if Z[WHOLE] != 0:
        push(Z, H, I, right, slot)


@kernel
def has_centre(M: Any, W: Any, T: Any, Z: Any, o: int) -> bool:
    """Whether subtree o, next to the right, has a centre within the stretch: exact."""
    keys, leasts = keys_at(T, o) + 1, top_at(o) + T[CLIQUE] - 1
    for j in range(Z[MEMBERS]):
        k = Z[MEMBERS] - j
        key, start = np.int64(W[keys + k]), M[leasts + k]
        if key == KEY_MAX or key > Z[HIGH_KEY] or (key == Z[HIGH_KEY] and start > Z[HIGH]):
            continue
        if j == 0 or (j <= Z[COUNT] and key == Z[KEY] and start <= Z[CONTEXT + j - 1]):
            return True
    return False


# --- steps of a walk


@kernel
def next_leaf(M: Any, W: Any, T: Any, Z: Any) -> None:
    """Go down to the next leaf that has a centre."""
    while Z[NODE_DEPTH] > 0:
        Z[STEPS] += 1
        Z[NODE_DEPTH] -= 1
        o = Z[NODE_STACK + Z[NODE_DEPTH]]
        if not has_centre(M, W, T, Z, o):
            pass_over(M, W, T, Z, o)
            continue
        while height_of(W, o) > 0:
            Z[STEPS] += 1
            lower, upper = M[o + CHILD], M[o + CHILD + 1]
            if has_centre(M, W, T, Z, lower):
                Z[NODE_STACK + Z[NODE_DEPTH]] = upper
                Z[NODE_DEPTH] += 1
                o = lower
            else:
                pass_over(M, W, T, Z, lower)
                o = upper
        enter_leaf(Z, o, 0)
        return
    Z[MODE] = DONE


@kernel
def enter_leaf(Z: Any, o: int, at: int) -> None:
    Z[LEAF], Z[AT], Z[FRUITFUL], Z[MODE] = o, at, 0, ENTRIES
    if Z[HEAPED] > _HEAP_MOST:
        Z[WHOLE] = 0


@kernel
def next_centre(M: Any, W: Any, T: Any, Z: Any, H: Any, I: Any) -> None:  # noqa: E741
    """Go on to the next centre in the leaf, and begin with what covers its start."""
    o = Z[LEAF]
    e, w = entry_at(T, o)
    n, covers = count_of(W, T, o), Z[MEMBERS] - 1
    for i in range(Z[AT], n):
        key, left = np.int64(W[w + L + i]), M[e + i]
        if key > Z[HIGH_KEY] or (key == Z[HIGH_KEY] and left > Z[HIGH]):
            Z[NODE_DEPTH] = 0
            break
        Z[STEPS] += 1
        if key != Z[KEY]:
            Z[KEY], Z[COUNT], Z[HEAPED], Z[WHOLE] = key, 0, 0, 1
        if Z[COUNT] >= covers and Z[CONTEXT + covers - 1] >= left:
            Z[START], Z[CENTRE], Z[AT], Z[PICKS], Z[FRUITFUL] = left, W[w + i], i, covers - 1, 1
            if Z[WHOLE] != 0:
                begin_heap(Z, H, I)
                Z[MODE] = HEAP
            else:
                begin_search(M, W, T, Z, left, 8 * np.int64(W[w + i]), i)
                Z[MODE] = SEARCH
            return
        pass_entry(Z, H, I, M[e + L + i], np.int64(W[w + i]))
    Z[DEAD] += 1 - Z[FRUITFUL]
    Z[MODE] = NODES


@kernel
def leave_centre(M: Any, W: Any, T: Any, Z: Any, H: Any, I: Any) -> None:  # noqa: E741
    """All rows of the centre are told: it joins the context."""
    Z[WHOLE], Z[MODE] = 1, ENTRIES
    Z[DEAD] += 1 if Z[COVERS] <= Z[PICKS] else 0
    if Z[CENTRE] >= 0:
        e, w = entry_at(T, Z[LEAF])
        pass_entry(Z, H, I, M[e + L + Z[AT]], np.int64(W[w + Z[AT]]))
        Z[AT] += 1


@kernel
def walk(
    M: Any, W: Any, T: Any, Z: Any, H: Any, I: Any, out: Any, stride: int, n: int, end: int, until: int  # noqa: E741
) -> int:  # fmt: skip
    """Go on until `end` rows are in out (member i at stride * i), the steps pass `until`, the heap needs room (Z[FULL]), or all is found
    (Z[MODE] is DONE). Rows in out."""
    while Z[STEPS] < until:
        mode = Z[MODE]
        if mode == ROWS:
            n = tell(Z, I, out, stride, n, end)
            if Z[PICKING] != 0:
                return n
            Z[MODE] = Z[BACK]
            continue
        if mode == DONE:
            return n
        if len(H) - Z[HEAPED] <= L:
            Z[FULL] = 1
            return n
        if mode == NODES:
            next_leaf(M, W, T, Z)
        elif mode == ENTRIES:
            next_centre(M, W, T, Z, H, I)
        elif search(M, W, T, Z, H, I) if mode == SEARCH else take(Z, H, I):
            if Z[COVERS] > Z[PICKS]:
                Z[MODE], Z[BACK] = ROWS, mode
        else:
            leave_centre(M, W, T, Z, H, I)
    return n


# --- beginnings


@kernel
def start(T: Any, Z: Any, root: int, members: int, given: int, high_key: int, high: int) -> None:
    """A walk of no nodes yet, with an empty context."""
    Z[TOP], Z[MEMBERS], Z[GIVEN], Z[HIGH_KEY], Z[HIGH] = root, members, given, high_key, high
    Z[KEY], Z[COUNT], Z[KEPT], Z[NODE_DEPTH], Z[HEAPED], Z[WHOLE], Z[PICKING] = -1, 0, T[CLIQUE], 0, 0, 0, 0
    Z[MODE] = NODES


@kernel
def stand(M: Any, W: Any, T: Any, Z: Any, key: int, left: int, slot: int) -> None:
    """Go to the place of (key, left, slot): what comes before is the context, what comes after is ahead."""
    o = Z[TOP]
    while height_of(W, o) > 0:
        Z[STEPS] += 1
        lower, upper = M[o + CHILD], M[o + CHILD + 1]
        if side_of(M, W, o, key, left, 8 * slot):
            pass_over(M, W, T, Z, lower)
            o = upper
        else:
            Z[NODE_STACK + Z[NODE_DEPTH]] = upper
            Z[NODE_DEPTH] += 1
            o = lower
    e, w = entry_at(T, o)
    if Z[KEY] != key:
        Z[KEY], Z[COUNT] = key, 0
    at = position(M, W, T, o, 0, key, left, slot)
    i = at - 1
    while i >= 0 and W[w + L + i] == key:
        Z[STEPS] += 1
        Z[COUNT] = enter(Z, CONTEXT, Z[COUNT], Z[KEPT], M[e + L + i])
        i -= 1
    enter_leaf(Z, o, at)


@kernel
def start_rows(M: Any, W: Any, T: Any, Z: Any, root: int, low_key: int, high_key: int) -> None:
    """All rows of the keys low_key..high_key."""
    start(T, Z, root, T[CLIQUE], NONE_GIVEN, high_key, POS_INF)
    Z[KEPT] = T[CLIQUE] - 1
    if low_key > 0:
        stand(M, W, T, Z, low_key, NEG_INF, -1)
        Z[WHOLE] = 1
    else:
        Z[NODE_STACK], Z[NODE_DEPTH] = root, 1


@kernel
def start_window(M: Any, W: Any, T: Any, Z: Any, root: int, key: int, lo: int, hi: int, given: int, inside: bool, right: int) -> None:
    """Rows of the key whose members all meet [lo, hi]; with the entry `given` (-1: none), which meets it, ends at `right`, and is, or is
    not, `inside` the tree."""
    members = T[CLIQUE] if given < 0 else T[CLIQUE] - 1
    start(T, Z, root, members, given, key, hi)
    if lo > hi:
        Z[MODE] = DONE
        return
    stand(M, W, T, Z, key, lo, KEY_MAX)
    if inside:
        forget(Z, right)
    found = Z[COUNT] >= members and Z[CONTEXT + members - 1] >= lo
    Z[KEPT] = members - 1
    Z[COUNT] = min(Z[COUNT], members - 1)
    if found:
        Z[START], Z[CENTRE], Z[PICKS], Z[FRUITFUL] = lo, -1, members - 1, 1
        begin_search(M, W, T, Z, lo, 8 * KEY_MAX, Z[AT])
        Z[MODE] = SEARCH


@kernel
def forget(Z: Any, right: int) -> None:
    """Take an endpoint out of the context, if it is among the largest."""
    found = False
    for j in range(Z[COUNT]):
        if found:
            Z[CONTEXT + j - 1] = Z[CONTEXT + j]
        elif Z[CONTEXT + j] == right:
            found = True
    Z[COUNT] -= 1 if found else 0


@kernel
def next_key(M: Any, W: Any, T: Any, Z: Any, H: Any, I: Any, lo: int, hi: int) -> None:  # noqa: E741
    """Begin the window in the next key that has rows; clear EACH_KEY if there is none."""
    start_rows(M, W, T, Z, Z[TOP], Z[NEXT_KEY], KEY_MAX)
    while Z[MODE] == NODES or Z[MODE] == ENTRIES:
        if Z[MODE] == NODES:
            next_leaf(M, W, T, Z)
        else:
            next_centre(M, W, T, Z, H, I)
    if Z[MODE] == DONE:
        Z[EACH_KEY] = 0
        return
    key = Z[KEY]
    Z[NEXT_KEY] = key + 1
    start_window(M, W, T, Z, Z[TOP], key, lo, hi, NONE_GIVEN, False, 0)


@kernel("void(int64[::1], int32[::1], int64[::1], int64[::1], int64, int64, int64, int64)")
def start_reading(M: Any, W: Any, T: Any, Z: Any, root: int, key: int, lo: int, hi: int) -> None:
    """All rows, or those of one key, in the window [lo, hi]."""
    if lo == NEG_INF and hi == POS_INF:
        start_rows(M, W, T, Z, root, max(key, 0), KEY_MAX if key == ANY_KEY else key)
    elif key != ANY_KEY:
        start_window(M, W, T, Z, root, key, lo, hi, NONE_GIVEN, False, 0)
    else:
        Z[TOP], Z[MODE], Z[EACH_KEY], Z[NEXT_KEY] = root, DONE, 1, 0


@kernel(
    "int64(int64[::1], int32[::1], int64[::1], int64[::1], int64[::1], int32[:,::1], int64, int32[::1], int64[::1], int64[::1],"
    " int32[::1], int64, int64, int32[::1], int64, int64)"
)
def walk_fill(
    M: Any, W: Any, T: Any, Z: Any, H: Any, I: Any, root: int, keys: Any, lefts: Any, rights: Any, slots: Any, lo: int, hi: int,  # noqa: E741
    out: Any, stride: int, steps: int,
) -> int:  # fmt: skip
    """Up to `stride` rows into out, within about so many steps: of what Z has begun, then of entry after entry, which are in the tree; all
    members meeting [lo, hi]. All is found when Z[ITEM] is the number of entries, Z[MODE] is DONE and Z[EACH_KEY] is 0 after it."""
    n, until = 0, Z[STEPS] + steps
    while n < stride and Z[STEPS] < until:
        if Z[MODE] == DONE:
            Z[STEPS] += 1
            if Z[EACH_KEY] != 0:
                next_key(M, W, T, Z, H, I, lo, hi)
            elif Z[ITEM] == len(slots):
                break
            else:
                e = Z[ITEM]
                Z[ITEM] = e + 1
                left, right = lefts[e], rights[e]
                start_window(M, W, T, Z, root, np.int64(keys[e]), max(left, lo), min(right, hi), np.int64(slots[e]), True, right)
        n = walk(M, W, T, Z, H, I, out, stride, n, stride, until)
        if Z[FULL] != 0:
            break
    return n

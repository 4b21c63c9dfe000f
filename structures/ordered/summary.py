"""A node's summary of the intervals below it, for Theorem 1: the four extremes and the live bit.

A summary is ten fields in C from `base`, `MR_` to `LIVE_` of `layout.py`: mr0 mr1 ml0 ml1 (values), kr0 kr1 kl0 kl1 (their keys), first,
live; this is the order of the fields of a child in an inner node. `live`: a row lies wholly below.

KIND determines the rows: PAIR, a set 0 interval meeting a set 1 interval; SELF, two intervals of set 0
that meet; LIST, one interval; COVER the same, and (kr1, mr1) is the end of the last gap below: the greatest
(key, left) that lies more than one place beyond all entries before it below the node, or is the first of its key.

With the entries in (key, left) order, x before y meet iff (key, left) of y <= (key, right) of x: the
earlier one stabs the one that starts later (docs/design/ij-heap.md, Theorem 1). So a row lies across two children
iff the largest (key, right) of one side reaches the smallest (key, left) of the other.

Costs: a leaf O(B), an inner node O(F). Source: Tao and Yi, section 4.1 (pilot values, productive nodes).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import KEY_MAX, KIND, B, F
from structures.core.blocks import Nodes
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import kernel
from structures.ordered.layout import (
    CHILDREN,
    COUNTS,
    FIELDS,
    FIELDS32,
    FIRST,
    FIRST_,
    KEY,
    KL,
    KL_,
    KR,
    KR_,
    LEFT,
    LIVE_,
    LIVE_CHILDREN,
    ML,
    ML_,
    MR,
    MR_,
    RIGHT,
    SLOT,
    run_of,
    set_child,
)

PAIR, SELF, LIST, COVER = 0, 1, 2, 3


@kernel
def leaf_live(nodes: Nodes, o: int, kind: int) -> bool:
    """Whether two entries of the leaf make a row: one sweep in (key, left) order that ends at the first hit."""
    M, W = nodes.M, nodes.W
    n0, n1 = W[2 * o + COUNTS], W[2 * o + COUNTS + 1]
    if kind == LIST or kind == COVER:
        return n0 > 0
    i, j = 0, B - n1
    reach0, reach_key0, reach1, reach_key1 = NEG_INF, -1, NEG_INF, -1
    while i < n0 or j < B:
        if j == B:
            from0 = True
        elif i == n0:
            from0 = False
        else:
            ki, kj = W[2 * o + KEY + i], W[2 * o + KEY + j]
            from0 = ki < kj or (ki == kj and M[o + LEFT + i] <= M[o + LEFT + j])
        if from0:
            k, left, right = W[2 * o + KEY + i], M[o + LEFT + i], M[o + RIGHT + i]
            if kind == PAIR:
                if reach_key1 == k and reach1 >= left:
                    return True
            elif reach_key0 == k and reach0 >= left:
                return True
            if reach_key0 != k or right > reach0:
                reach_key0, reach0 = k, right
            i += 1
        else:
            k, left, right = W[2 * o + KEY + j], M[o + LEFT + j], M[o + RIGHT + j]
            if reach_key0 == k and reach0 >= left:
                return True
            if reach_key1 != k or right > reach1:
                reach_key1, reach1 = k, right
            j += 1
    return False


@kernel
def first_of(nodes: Nodes, C: Any, o: int, base: int, s: int) -> None:
    """Write ml, kl of set s of the leaf."""
    M, W = nodes.M, nodes.W
    position = 0 if s == 0 else B - W[2 * o + COUNTS + 1]
    if W[2 * o + COUNTS + s] == 0:
        C[base + ML_ + s], C[base + KL_ + s] = POS_INF, KEY_MAX
    else:
        C[base + ML_ + s], C[base + KL_ + s] = M[o + LEFT + position], W[2 * o + KEY + position]


@kernel
def last_of(nodes: Nodes, C: Any, o: int, base: int, s: int) -> None:
    """Write mr, kr of set s of the leaf."""
    M, W = nodes.M, nodes.W
    lo, hi = run_of(W, o, s)
    if lo == hi:
        C[base + MR_ + s], C[base + KR_ + s] = NEG_INF, -1
        return
    k = W[2 * o + KEY + hi - 1]
    most = M[o + RIGHT + hi - 1]
    if W[2 * o + KEY + lo] == k:
        for i in range(lo, hi):
            most = max(most, M[o + RIGHT + i])
    else:
        i = hi - 2
        while W[2 * o + KEY + i] == k:
            most = max(most, M[o + RIGHT + i])
            i -= 1
    C[base + MR_ + s], C[base + KR_ + s] = most, k


@kernel
def last_gap(nodes: Nodes, C: Any, o: int, base: int) -> None:
    """Write kr1, mr1 of the leaf of a COVER."""
    M, W = nodes.M, nodes.W
    lo, hi = run_of(W, o, 0)
    key, reach, end_key, end = -1, NEG_INF, -1, NEG_INF
    for i in range(lo, hi):
        k, left = W[2 * o + KEY + i], M[o + LEFT + i]
        if k != key:
            key, reach, end_key, end = k, M[o + RIGHT + i], k, left
            continue
        if left > reach and left - 1 > reach:
            end_key, end = k, left
        reach = max(reach, M[o + RIGHT + i])
    C[base + MR_ + 1], C[base + KR_ + 1] = end, end_key


@kernel
def first_code(W: Any, C: Any, o: int, base: int) -> None:
    """Write `first` of the leaf, whose ml and kl are written."""
    n0, n1 = W[2 * o + COUNTS], W[2 * o + COUNTS + 1]
    code0 = 2 * W[2 * o + SLOT]
    code1 = 2 * W[2 * o + SLOT + B - n1] + 1 if n1 > 0 else code0
    k0, k1, l0, l1 = C[base + KL_], C[base + KL_ + 1], C[base + ML_], C[base + ML_ + 1]
    zero = n1 == 0 or (n0 > 0 and (k0 < k1 or (k0 == k1 and (l0 < l1 or (l0 == l1 and code0 < code1)))))
    C[base + FIRST_] = code0 if zero else code1


@kernel
def leaf_summary(nodes: Nodes, C: Any, o: int, base: int) -> None:
    """Write the leaf's summary at C[base], from its entries."""
    W = nodes.W
    for s in range(2):
        first_of(nodes, C, o, base, s)
        last_of(nodes, C, o, base, s)
    if C[KIND] == COVER:
        last_gap(nodes, C, o, base)
    first_code(W, C, o, base)
    C[base + LIVE_] = 1 if leaf_live(nodes, o, C[KIND]) else 0


@kernel
def inner_summary(nodes: Nodes, C: Any, o: int, base: int) -> None:
    """Write the inner node's summary at C[base] from those of its children that it stores."""
    M, W = nodes.M, nodes.W
    n = W[2 * o + CHILDREN]
    kind = C[KIND]
    live = W[2 * o + LIVE_CHILDREN] != 0
    for s in range(2):
        key, most = -1, NEG_INF
        kl, least = KEY_MAX, POS_INF
        for c in range(n):
            kc, rc = W[2 * o + KR + s * F + c], M[o + MR + s * F + c]
            if kc > key or (kc == key and rc > most):
                key, most = kc, rc
            if kl == KEY_MAX:
                kl, least = W[2 * o + KL + s * F + c], M[o + ML + s * F + c]
        C[base + MR_ + s], C[base + ML_ + s], C[base + KR_ + s], C[base + KL_ + s] = most, least, key, kl
    if kind == COVER:
        last_gap_across(nodes, C, o, n, base)
    C[base + FIRST_] = W[2 * o + FIRST]
    if not live and kind < LIST:
        live = _across(nodes, o, n, 0, 1 if kind == PAIR else 0) or (kind == PAIR and _across(nodes, o, n, 1, 0))
    C[base + LIVE_] = 1 if live else 0


@kernel
def last_gap_across(nodes: Nodes, C: Any, o: int, n: int, base: int) -> None:
    """Write kr1, mr1 of the inner node of a COVER."""
    M, W = nodes.M, nodes.W
    key, reach, end_key, end = -1, NEG_INF, -1, NEG_INF
    for c in range(n):
        k, e = W[2 * o + KR + F + c], M[o + MR + F + c]
        if k != key or (e > reach and e - 1 > reach):
            end_key, end = k, e
        kr, mr = W[2 * o + KR + c], M[o + MR + c]
        if kr != key or mr > reach:
            key, reach = kr, mr
    C[base + MR_ + 1], C[base + KR_ + 1] = end, end_key


@kernel
def _across(nodes: Nodes, o: int, n: int, s: int, t: int) -> bool:
    """Whether an interval of set s below one child reaches one of set t below a later child."""
    M, W = nodes.M, nodes.W
    key, most = -1, NEG_INF
    for c in range(n):
        kc, lc = W[2 * o + KL + t * F + c], M[o + ML + t * F + c]
        if key == kc and most >= lc:
            return True
        kc, rc = W[2 * o + KR + s * F + c], M[o + MR + s * F + c]
        if kc > key or (kc == key and rc > most):
            key, most = kc, rc
    return False


@kernel
def write_child(nodes: Nodes, C: Any, o: int, c: int, child: int, base: int) -> bool:
    """Write child c of inner node o with the summary at C[base]. Returns whether the summary changed."""
    M, W = nodes.M, nodes.W
    set_child(W, o, c, child)
    changed = False
    for f in range(KR_):
        i = o + FIELDS + f * F + c
        if M[i] != C[base + f]:
            M[i] = C[base + f]
            changed = True
    for f in range(LIVE_ - KR_):
        i = 2 * o + FIELDS32 + f * F + c
        if W[i] != C[base + KR_ + f]:
            W[i] = C[base + KR_ + f]
            changed = True
    bit = 1 << c
    mask = W[2 * o + LIVE_CHILDREN]
    if ((mask & bit) != 0) != (C[base + LIVE_] != 0):
        W[2 * o + LIVE_CHILDREN] = mask ^ bit
        changed = True
    return changed


@kernel
def clear_child(nodes: Nodes, o: int, c: int) -> None:
    """Mark position c of inner node o as unused."""
    M, W = nodes.M, nodes.W
    for s in range(2):
        M[o + MR + s * F + c] = NEG_INF
        M[o + ML + s * F + c] = POS_INF
        W[2 * o + KR + s * F + c] = -1
        W[2 * o + KL + s * F + c] = KEY_MAX
    W[2 * o + FIRST + c] = 0
    set_child(W, o, c, 0)
    W[2 * o + LIVE_CHILDREN] &= ~(1 << c)

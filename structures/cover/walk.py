"""Reading kernels: find the places that the intervals of a key leave uncovered.

An inner node of a COVER (`ordered/summary.py`) knows where the last gap below each child ends, so that one descent finds the first gap from
a place on, however many intervals touch before it.

Costs: O(F log n) each.
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import B, F
from structures.core.blocks import Nodes
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import kernel, wide
from structures.ordered.layout import CHILDREN, COUNTS, KEY, KL, KR, LEFT, ML, MR, RIGHT, SLOT, child_of, run_of
from structures.ordered.scan import next_leaf


@kernel
def next_gap(nodes: Nodes, root: int, height: int, key: int, at: int) -> tuple[bool, int, int]:
    """The first stretch [start, last] from `at` on that no interval of the key meets, in full except for its part before `at`; False if
    there is none."""
    M, W = nodes.M, nodes.W
    o = root
    for _ in range(height):
        chosen = -1
        for c in range(W[2 * o + CHILDREN]):
            most, reach = W[2 * o + KR + c], M[o + MR + c]
            if most < key:
                continue
            end_key, end = W[2 * o + KR + F + c], M[o + MR + F + c]
            if end_key > key or (end_key == key and end > at):
                chosen = c
                break
            if reach == POS_INF:
                return False, at, at
            at = max(at, reach + 1)
        if chosen < 0:
            return True, at, POS_INF
        o = child_of(W, o, chosen)
    low, high = run_of(W, o, 0)
    for i in range(low, high):
        k, left, right = wide(W[2 * o + KEY + i]), M[o + LEFT + i], M[o + RIGHT + i]
        if k > key:
            break
        if k == key:
            if left > at:
                return True, at, left - 1
            if right == POS_INF:
                return False, at, at
            at = max(at, right + 1)
    return True, at, POS_INF


@kernel
def next_covered(nodes: Nodes, root: int, height: int, key: int, at: int) -> tuple[bool, int]:
    """The first place from `at` on that an interval of the key covers; False if there is none."""
    found, start, last = next_gap(nodes, root, height, key, at)
    if not found or start > at:
        return True, at
    return (True, last + 1) if last < POS_INF else (False, at)


@kernel
def gap_begin(nodes: Nodes, root: int, height: int, key: int, at: int) -> int:
    """The beginning of the gap that contains `at`."""
    M, W = nodes.M, nodes.W
    o, begin = root, NEG_INF
    for _ in range(height):
        c = 0
        while c + 1 < W[2 * o + CHILDREN] and is_at_most(W[2 * o + KL + c + 1], M[o + ML + c + 1], key, at):
            if W[2 * o + KR + c] == key:
                begin = max(begin, M[o + MR + c] + 1)
            c += 1
        o = child_of(W, o, c)
    low, high = run_of(W, o, 0)
    for i in range(low, high):
        k, left = W[2 * o + KEY + i], M[o + LEFT + i]
        if not is_at_most(k, left, key, at):
            break
        if k == key:
            begin = max(begin, M[o + RIGHT + i] + 1)
    return begin


@kernel(forceinline=True)
def is_at_most(key: int, left: int, other: int, at: int) -> bool:
    return key < other or (key == other and left <= at)


@kernel
def run_begin(nodes: Nodes, root: int, height: int, key: int, at: int) -> int:
    """The beginning of the covered stretch that contains `at`."""
    M, W = nodes.M, nodes.W
    o, begin, reach_key, reach = root, at, wide(-1), NEG_INF
    for _ in range(height):
        c = 0
        while c + 1 < W[2 * o + CHILDREN] and is_at_most(W[2 * o + KL + c + 1], M[o + ML + c + 1], key, at):
            end_key, end = W[2 * o + KR + F + c], M[o + MR + F + c]
            if end_key == key and (reach_key < key or (end > reach and end - 1 > reach)):
                begin = end
            k, right = wide(W[2 * o + KR + c]), M[o + MR + c]
            reach = max(reach, right) if k == reach_key else right
            reach_key = k
            c += 1
        o = child_of(W, o, c)
    low, high = run_of(W, o, 0)
    for i in range(low, high):
        k, left, right = wide(W[2 * o + KEY + i]), M[o + LEFT + i], M[o + RIGHT + i]
        if not is_at_most(k, left, key, at):
            break
        if k == key and (reach_key < key or (left > reach and left - 1 > reach)):
            begin = left
        reach = max(reach, right) if k == reach_key else right
        reach_key = k
    return begin


@kernel
def next_run(nodes: Nodes, root: int, height: int, key: int, at: int) -> tuple[bool, int, int]:
    """The first covered stretch [start, last] from `at` on, in full except for its part before `at`; False if there is none."""
    found, start = next_covered(nodes, root, height, key, at)
    if not found:
        return False, at, at
    ends, behind, _ = next_gap(nodes, root, height, key, start)
    return True, start, behind - 1 if ends else POS_INF


# --- rows, one after another, with their stretches

KEY_, LEFT_, RIGHT_, SLOT_, ITEM = range(5)  # words of an item, which is a row
ITEM_AT, BEGUN, POINT, STEPS, LAST, GAP, READ_WORDS = range(7)  # words of a reading's state


@kernel("int64(Nodes, int64, int64, int64[:,::1], int64[::1], int64[:,::1], int64[::1])")
def emit_items(nodes: Nodes, root: int, height: int, items: Any, state: Any, out: Any, asked: Any) -> int:
    """For the items from state[ITEM_AT] on, write the stretches that intervals leave uncovered, or cover (asked[2]), and that meet
    [asked[0], asked[1]]: slot, start and last, from out[:, 0] on, until it is full. Returns their number. O(log n) a stretch."""
    n, low, high, covered = 0, asked[0], asked[1], asked[2] != 0
    while state[ITEM_AT] < len(items):
        item = items[state[ITEM_AT]]
        key, left, right = item[KEY_], item[LEFT_], item[RIGHT_]
        at = state[POINT] if state[BEGUN] != 0 else max(left, low)
        while at <= right:
            if n == out.shape[1]:
                state[POINT] = at  # for a row without reported stretches so far, the walk begins again
                return n
            found, start, last = next_stretch(nodes, root, height, key, at, covered)
            state[STEPS] += 1
            if not found or start > right or start > high:
                break
            if start == at and state[BEGUN] == 0 and at > left:
                start = max(left, gap_or_run_begin(nodes, root, height, key, at, covered))
            out[0, n], out[1, n], out[2, n] = item[SLOT_], start, min(last, right)
            n += 1
            state[GAP] = max(state[GAP], state[STEPS] - state[LAST])
            state[LAST] = state[STEPS]
            state[BEGUN] = 1
            if last >= right:
                break
            at = last + 1
        state[BEGUN] = 0
        state[ITEM_AT] += 1
    return n


@kernel
def next_stretch(nodes: Nodes, root: int, height: int, key: int, at: int, covered: bool) -> tuple[bool, int, int]:
    if covered:
        return next_run(nodes, root, height, key, at)
    return next_gap(nodes, root, height, key, at)


@kernel
def gap_or_run_begin(nodes: Nodes, root: int, height: int, key: int, at: int, covered: bool) -> int:
    """The beginning of the stretch that contains `at`."""
    if covered:
        return run_begin(nodes, root, height, key, at)
    return gap_begin(nodes, root, height, key, at)


@kernel("int64(Nodes, int64[::1], int64, int64[:,::1])")
def scan_items(nodes: Nodes, state: Any, height: int, items: Any) -> int:
    """Further rows of a tree, in its order, from the position in `state` (`ordered/scan.py`): as many leaves as fit. Returns the number of
    rows. O(1) an item."""
    M, W = nodes.M, nodes.W
    n = 0
    while len(items) - n >= B:
        o = next_leaf(W, state, height)
        if o == 0:
            break
        for i in range(W[2 * o + COUNTS]):
            items[n, KEY_], items[n, SLOT_] = W[2 * o + KEY + i], W[2 * o + SLOT + i]
            items[n, LEFT_], items[n, RIGHT_] = M[o + LEFT + i], M[o + RIGHT + i]
            n += 1
    return n

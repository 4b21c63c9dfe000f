"""The slots of a tree of one set, all in its order: a resumable reading of one version. Costs: O(1) a slot."""

from __future__ import annotations

from typing import Any

from structures.core.arena import B
from structures.core.kernel import kernel
from structures.ordered.layout import CHILDREN, COUNTS, MOST_LEVELS, SLOT, child_of

SCAN_DEPTH, SCAN_FRAMES = 0, 1
NODE, NEXT_CHILD, FRAME_WORDS = range(3)  # words of a frame
SCAN_WORDS = SCAN_FRAMES + FRAME_WORDS * MOST_LEVELS


@kernel("void(int64[::1], int64)")
def scan_start(state: Any, root: int) -> None:
    """Set the state, int64[SCAN_WORDS], before the first entry of the tree with this root. O(1)."""
    state[SCAN_DEPTH], state[SCAN_FRAMES + NODE], state[SCAN_FRAMES + NEXT_CHILD] = 1, root, 0


@kernel("int64(int64[::1], int32[::1], int64[::1], int64, int32[::1])")
def scan_fill(M: Any, W: Any, state: Any, height: int, out: Any) -> int:
    """Write further slots of a tree of one set, in its order, from the position in `state` on: as many leaves as fit into out, int32[B or
    more]. Returns their number. All are written once state[SCAN_DEPTH] is 0. Cost: O(1) a slot."""
    n = 0
    while len(out) - n >= B:
        o = next_leaf(W, state, height)
        if o == 0:
            break
        n = slots_of_leaf(W, o, W[2 * o + COUNTS], out, n)
    return n


@kernel
def next_leaf(W: Any, state: Any, height: int) -> int:
    """The next leaf; 0 if there is none."""
    while state[SCAN_DEPTH] > 0:
        f = SCAN_FRAMES + FRAME_WORDS * (state[SCAN_DEPTH] - 1)
        o, c = state[f + NODE], state[f + NEXT_CHILD]
        if state[SCAN_DEPTH] == height + 1:
            state[SCAN_DEPTH] -= 1
            return o
        if c == W[2 * o + CHILDREN]:
            state[SCAN_DEPTH] -= 1
        else:
            state[f + NEXT_CHILD] = c + 1
            f += FRAME_WORDS
            state[f + NODE], state[f + NEXT_CHILD] = child_of(W, o, c), 0
            state[SCAN_DEPTH] += 1
    return 0


@kernel
def slots_of_leaf(W: Any, o: int, count: int, out: Any, n: int) -> int:
    for i in range(count):
        out[n + i] = W[2 * o + SLOT + i]
    return n + count

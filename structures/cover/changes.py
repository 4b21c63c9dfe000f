"""Writing kernel: changes of both sides one after another, each with the stretches of rows that it adds or removes.

A partner changes what the others leave uncovered of its interval, stretch by stretch: rows are searched only there. Where there are no
rows, the tree of the rows returns the next place that has one. If gaps are reported, a row under such a stretch loses it and gains the two
parts beside the partner, or vice versa. If coverage is reported, it loses the stretches that the partner joins and gains one, or vice
versa; it is then processed once, at the first of its stretches.

Costs: O(log n) a change, for each stretch under it that has rows, and for each stretch reported. Reported stretches may cancel within a
batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import HEIGHT, ROOT, B
from structures.core.blocks import Nodes, WriteState
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import arrays, kernel, wide
from structures.core.runs import AT, BEGUN, RUN_WORDS, end_change
from structures.cover.walk import gap_begin, next_covered, next_gap, next_run, next_stretch, run_begin
from structures.event_tree.runs import OUTER_DELETE, OUTER_INSERT, OUTER_MOVE, PARTNER_INSERT, PARTNER_MOVE, Moves
from structures.ordered.search import DEPTH, NOTHING_BEFORE, SEARCH_WORDS, Bounds, search_fill, search_start
from structures.ordered.tree import cut, put

# Words of the state. COVERED: whether coverage is reported. POINT: the position of the walk through a partner's interval, or a row's.
# ENDED: the walk has ended. FINAL: it will end with the current stretch, which begins at START, within the partner at CLIP, and ends at
# LAST. SEARCHING: the search for its rows has more; HITS were found, HIT is the next one, and HIT_POINT the position of its walk if it is
# reported in pieces. FROM, TO: the stretch that the partner makes of those that it meets and touches.
_OF_WALK = range(RUN_WORDS, RUN_WORDS + 16)
(COVERED, POINT, ENDED, FINAL, START, CLIP, LAST, SEARCHING, HITS, HIT, HIT_BEGUN, HIT_POINT, FROM, TO, STEPS, SEARCH) = _OF_WALK
STATE_WORDS = SEARCH + SEARCH_WORDS
MOST_HITS = 4 * B
SPARE = 3  # most stretches that one row reports without a check of the remaining room


@arrays(Nodes, WriteState, Nodes, WriteState)
class Trees(NamedTuple):
    """The trees of the rows, and of their partners."""

    nodes: Any
    writing: Any
    its_nodes: Any
    its_writing: Any


@arrays("int64[::1]", "int32[::1]", "int64[::1]")
class Scratch(NamedTuple):
    """The state, STATE_WORDS; hits of a search, and their ends."""

    state: np.ndarray
    hits: np.ndarray
    ends: np.ndarray


class One(NamedTuple):
    """A row or a partner."""

    key: int
    left: int
    right: int
    slot: int


@kernel("int64(Trees, Scratch, int64[:,::1], Moves, boolean)")
def run_moves(trees: Trees, scratch: Scratch, out: Any, moves: Moves, deltas: bool) -> int:
    """Apply the changes from index state[AT] on until all are done or `out` is full. Returns the number of stretches reported: slot
    (~slot: it goes), start, last. O(log n) a change, and for each stretch visited."""
    state = scratch.state
    n = 0
    while state[AT] < len(moves.kind):
        i = state[AT]
        kind = moves.kind[i]
        one = One(wide(moves.key[i]), moves.left[i], moves.right[i], wide(moves.slot[i]))
        of_rows = kind == OUTER_MOVE or kind == OUTER_DELETE or kind == OUTER_INSERT
        is_inserted = kind == OUTER_INSERT or kind == PARTNER_INSERT
        if state[BEGUN] == 0:
            state[BEGUN], state[POINT], state[ENDED], state[FINAL] = 1, one.left, 0, 0
            state[SEARCHING], state[HITS], state[HIT], state[HIT_BEGUN] = 0, 0, 0, 0
            if kind == OUTER_MOVE or kind == PARTNER_MOVE:
                former = One(one.key, one.left, one.right, wide(moves.former[i]))
                state[BEGUN] = 1 if take_out(trees, of_rows, former) else 2
                take_in(trees, of_rows, one)
                state[ENDED] = 1
            elif kind == OUTER_INSERT:
                take_in(trees, of_rows, one)
            elif kind != PARTNER_INSERT:
                state[BEGUN] = 1 if take_out(trees, of_rows, one) else 2
            if deltas and state[COVERED] != 0 and state[ENDED] == 0 and not of_rows:
                find_ends(trees, state, one)
        if deltas and state[BEGUN] == 1 and state[ENDED] == 0:
            n = emit_row(trees, state, one, is_inserted, out, n) if of_rows else emit_partner(trees, scratch, one, is_inserted, out, n)
            if state[ENDED] == 0:
                return n
        if kind == PARTNER_INSERT:
            take_in(trees, of_rows, one)
        end_change(state, moves.done, n, state[BEGUN] == 2)
    return n


@kernel
def take_in(trees: Trees, of_rows: bool, one: One) -> None:
    if of_rows:
        put(trees.nodes, trees.writing, 0, one.key, one.left, one.right, one.slot)
    else:
        put(trees.its_nodes, trees.its_writing, 0, one.key, one.left, one.right, one.slot)


@kernel
def take_out(trees: Trees, of_rows: bool, one: One) -> bool:
    """Remove a row or partner; False if it was not there."""
    if of_rows:
        return cut(trees.nodes, trees.writing, 0, one.key, one.left, one.slot)
    return cut(trees.its_nodes, trees.its_writing, 0, one.key, one.left, one.slot)


@kernel
def emit(out: Any, n: int, is_inserted: bool, slot: int, start: int, last: int) -> int:
    out[0, n], out[1, n], out[2, n] = slot if is_inserted else ~slot, start, last
    return n + 1


@kernel
def emit_row(trees: Trees, state: Any, row: One, is_inserted: bool, out: Any, n: int) -> int:
    """Report all stretches of a row."""
    nodes, C, at = trees.its_nodes, trees.its_writing.C, state[POINT]
    while n < out.shape[1]:
        found, start, last = next_stretch(nodes, C[ROOT], C[HEIGHT], row.key, at, state[COVERED] != 0)
        state[STEPS] += 1
        if found and start <= row.right:
            n = emit(out, n, is_inserted, row.slot, start, min(last, row.right))
        if not found or last >= row.right:
            state[ENDED] = 1
            break
        at = last + 1
    state[POINT] = at
    return n


@kernel
def emit_partner(trees: Trees, scratch: Scratch, partner: One, is_inserted: bool, out: Any, n: int) -> int:
    """Report what a partner, which is not in its tree, changes; state[ENDED] is set when that is all."""
    state = scratch.state
    while True:
        while state[HIT] < state[HITS]:
            if out.shape[1] - n < SPARE:
                return n
            j = state[HIT]
            row = One(partner.key, scratch.ends[2 * j], scratch.ends[2 * j + 1], wide(scratch.hits[j]))
            if state[COVERED] == 0:
                n = emit_split(state, row, partner, is_inserted, out, n)
            else:
                n = emit_joined(trees, state, row, partner, is_inserted, out, n)
                if state[HIT_BEGUN] != 0:
                    return n
            state[HIT] += 1
        if state[SEARCHING] != 0:
            state[HITS], state[HIT] = search_fill(trees.nodes, state[SEARCH:], scratch.hits, 0, scratch.ends), 0
            state[SEARCHING] = 1 if state[SEARCH + DEPTH] > 0 else 0
        elif state[FINAL] != 0 or not begin_stretch(trees, state, partner):
            state[ENDED] = 1
            return n


@kernel
def begin_stretch(trees: Trees, state: Any, partner: One) -> bool:
    """Begin the search for rows under the next stretch of the partner that no other partner covers and that has rows; False if there is
    none."""
    nodes, C, mine, D = trees.its_nodes, trees.its_writing.C, trees.nodes, trees.writing.C
    at = state[POINT]
    while at <= partner.right:
        found, start, last = next_gap(nodes, C[ROOT], C[HEIGHT], partner.key, at)
        state[STEPS] += 2
        if not found or start > partner.right:
            return False
        found, first = next_covered(mine, D[ROOT], D[HEIGHT], partner.key, start)
        if not found or first > partner.right:
            return False
        if first > last:
            at = first
            continue
        state[START] = gap_begin(nodes, C[ROOT], C[HEIGHT], partner.key, start) if start == at else start
        state[CLIP], state[LAST], state[SEARCHING] = start, last, 1
        if last >= partner.right:
            state[FINAL] = 1
        else:
            state[POINT] = last + 1
        bounds = Bounds(NEG_INF, NOTHING_BEFORE, min(last, partner.right), start)
        search_start(state[SEARCH:], D[ROOT], D[HEIGHT], 0, partner.key, bounds)
        return True
    return False


@kernel
def emit_split(state: Any, row: One, partner: One, is_inserted: bool, out: Any, n: int) -> int:
    """Report a row's gap under the stretch, and what the partner leaves of it."""
    left, right = max(row.left, state[START]), min(row.right, state[LAST])
    n = emit(out, n, not is_inserted, row.slot, left, right)
    if left < partner.left:
        n = emit(out, n, is_inserted, row.slot, left, partner.left - 1)
    if right > partner.right:
        n = emit(out, n, is_inserted, row.slot, partner.right + 1, right)
    return n


@kernel
def find_ends(trees: Trees, state: Any, partner: One) -> None:
    """Compute FROM and TO."""
    nodes, C = trees.its_nodes, trees.its_writing.C
    root, height, key = C[ROOT], C[HEIGHT], partner.key
    state[FROM], state[TO] = partner.left, partner.right
    if partner.left > NEG_INF:
        found, start = next_covered(nodes, root, height, key, partner.left - 1)
        if found and start == partner.left - 1:
            state[FROM] = run_begin(nodes, root, height, key, start)
    if partner.right < POS_INF:
        found, start, last = next_run(nodes, root, height, key, partner.right + 1)
        if found and start == partner.right + 1:
            state[TO] = last


@kernel
def emit_joined(trees: Trees, state: Any, row: One, partner: One, is_inserted: bool, out: Any, n: int) -> int:
    """Report the stretch that the partner makes of the row's stretches that it meets or touches, and these. If the room ends,
    state[HIT_BEGUN] remains set."""
    nodes, C = trees.its_nodes, trees.its_writing.C
    root, height, key = C[ROOT], C[HEIGHT], row.key
    end = min(row.right, state[TO])
    if state[HIT_BEGUN] == 0:
        _, first, _ = next_gap(nodes, root, height, key, max(row.left, partner.left))
        if first < state[CLIP]:  # reported at an earlier stretch
            return n
        state[HIT_BEGUN], state[HIT_POINT] = 1, max(row.left, state[FROM])
        n = emit(out, n, is_inserted, row.slot, state[HIT_POINT], end)
    while n < out.shape[1]:
        found, start, last = next_run(nodes, root, height, key, state[HIT_POINT])
        state[STEPS] += 1
        if found and start <= end:
            n = emit(out, n, not is_inserted, row.slot, start, min(last, end))
        if not found or last >= end:
            state[HIT_BEGUN] = 0
            break
        state[HIT_POINT] = last + 1
    return n

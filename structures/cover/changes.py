"""Changes of both sides one after another, each with the stretches of rows that come and go by it: the writing kernel.

A partner changes what the others leave uncovered of its interval, stretch by stretch: rows are looked up there alone. Where no row lies
the next place that has one is found in the tree of the rows. Where gaps are told, a row under such a stretch loses it and gets the two
parts beside the partner, or the other way round. Where coverage is told, it loses what the partner joins, and gets one stretch, or the
other way round; so it is looked at once, at the first of its stretches.

Costs: O(log n) a change, and for each stretch under it that has rows, and for each stretch told. What is told may cancel within a batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import HEIGHT, ROOT, B
from structures.core.blocks import Nodes, Writing
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import arrays, kernel, wide
from structures.core.runs import AT, BEGUN, RUN_WORDS, end_change
from structures.cover.walk import gap_begin, next_covered, next_gap, next_run, next_stretch, run_begin
from structures.event_tree.runs import OUTER_DELETE, OUTER_INSERT, OUTER_MOVE, PARTNER_INSERT, PARTNER_MOVE, Moves
from structures.ordered.search import DEPTH, NOTHING_BEFORE, SEARCH_WORDS, Bounds, search_fill, search_start
from structures.ordered.tree import cut, expect, put

# Of the state. COVERED: whether what is covered is told. POINT: where the walk through a partner's interval, or a row's, is. ENDED: it has
# ended. FINAL: it will with the stretch whose rows are looked up: that begins at START, and in the partner at CLIP, and ends at LAST.
# SEARCHING: more of these are to come; HITS are there, HIT is the next, and where it is told in pieces, HIT_POINT is where its walk is.
# FROM, TO: the stretch that the partner makes of what it meets and touches.
_OF_WALK = range(RUN_WORDS, RUN_WORDS + 16)
(COVERED, POINT, ENDED, FINAL, START, CLIP, LAST, SEARCHING, HITS, HIT, HIT_BEGUN, HIT_POINT, FROM, TO, STEPS, SEARCH) = _OF_WALK
STATE_WORDS = SEARCH + SEARCH_WORDS
MOST_HITS = 4 * B
SPARE = 3  # stretches that one row tells at most without a look at what is left
AHEAD = 2


@arrays(Nodes, Writing, Nodes, Writing)
class Trees(NamedTuple):
    """Of the rows, and of their partners."""

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
    """Make the changes from number state[AT] on until all are done or `out` is full; the stretches told: slot (~slot: it goes), start,
    last. O(log n) a change, and for each stretch that is looked at."""
    state = scratch.state
    n = 0
    while state[AT] < len(moves.kind):
        i = state[AT]
        kind = moves.kind[i]
        one = One(wide(moves.key[i]), moves.left[i], moves.right[i], wide(moves.slot[i]))
        of_rows = kind == OUTER_MOVE or kind == OUTER_DELETE or kind == OUTER_INSERT
        comes = kind == OUTER_INSERT or kind == PARTNER_INSERT
        if state[BEGUN] == 0:
            expect_change(trees, moves, i + 2 * AHEAD, 1)
            expect_change(trees, moves, i + AHEAD, 0)
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
            n = tell_row(trees, state, one, comes, out, n) if of_rows else tell_partner(trees, scratch, one, comes, out, n)
            if state[ENDED] == 0:
                return n
        if kind == PARTNER_INSERT:
            take_in(trees, of_rows, one)
        end_change(state, moves.done, n, state[BEGUN] == 2)
    return n


@kernel
def expect_change(trees: Trees, moves: Moves, i: int, height: int) -> None:
    """A change looks into both trees."""
    if i < len(moves.kind):
        key, code = wide(moves.key[i]), 2 * wide(moves.slot[i])
        expect(trees.nodes, trees.writing.C, key, moves.left[i], code, height)
        expect(trees.its_nodes, trees.its_writing.C, key, moves.left[i], code, height)


@kernel
def take_in(trees: Trees, of_rows: bool, one: One) -> None:
    if of_rows:
        put(trees.nodes, trees.writing, 0, one.key, one.left, one.right, one.slot)
    else:
        put(trees.its_nodes, trees.its_writing, 0, one.key, one.left, one.right, one.slot)


@kernel
def take_out(trees: Trees, of_rows: bool, one: One) -> bool:
    """False: it was not there."""
    if of_rows:
        return cut(trees.nodes, trees.writing, 0, one.key, one.left, one.slot)
    return cut(trees.its_nodes, trees.its_writing, 0, one.key, one.left, one.slot)


@kernel
def tell(out: Any, n: int, comes: bool, slot: int, start: int, last: int) -> int:
    out[0, n], out[1, n], out[2, n] = slot if comes else ~slot, start, last
    return n + 1


@kernel
def tell_row(trees: Trees, state: Any, row: One, comes: bool, out: Any, n: int) -> int:
    """All stretches of a row."""
    nodes, C, at = trees.its_nodes, trees.its_writing.C, state[POINT]
    while n < out.shape[1]:
        found, start, last = next_stretch(nodes, C[ROOT], C[HEIGHT], row.key, at, state[COVERED] != 0)
        state[STEPS] += 1
        if found and start <= row.right:
            n = tell(out, n, comes, row.slot, start, min(last, row.right))
        if not found or last >= row.right:
            state[ENDED] = 1
            break
        at = last + 1
    state[POINT] = at
    return n


@kernel
def tell_partner(trees: Trees, scratch: Scratch, partner: One, comes: bool, out: Any, n: int) -> int:
    """What a partner changes, which is not in its tree; state[ENDED]: that was all."""
    state = scratch.state
    while True:
        while state[HIT] < state[HITS]:
            if out.shape[1] - n < SPARE:
                return n
            j = state[HIT]
            row = One(partner.key, scratch.ends[2 * j], scratch.ends[2 * j + 1], wide(scratch.hits[j]))
            if state[COVERED] == 0:
                n = tell_split(state, row, partner, comes, out, n)
            else:
                n = tell_joined(trees, state, row, partner, comes, out, n)
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
    """Look for the rows under the next stretch of the partner that no other covers, and that has any; False: there is none."""
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
def tell_split(state: Any, row: One, partner: One, comes: bool, out: Any, n: int) -> int:
    """The gap of a row under the stretch, and what the partner leaves of it."""
    left, right = max(row.left, state[START]), min(row.right, state[LAST])
    n = tell(out, n, not comes, row.slot, left, right)
    if left < partner.left:
        n = tell(out, n, comes, row.slot, left, partner.left - 1)
    if right > partner.right:
        n = tell(out, n, comes, row.slot, partner.right + 1, right)
    return n


@kernel
def find_ends(trees: Trees, state: Any, partner: One) -> None:
    """Write FROM and TO."""
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
def tell_joined(trees: Trees, state: Any, row: One, partner: One, comes: bool, out: Any, n: int) -> int:
    """What the partner makes of the row's stretches that it meets or touches, and these; state[HIT_BEGUN]: there is no room for more."""
    nodes, C = trees.its_nodes, trees.its_writing.C
    root, height, key = C[ROOT], C[HEIGHT], row.key
    end = min(row.right, state[TO])
    if state[HIT_BEGUN] == 0:
        _, first, _ = next_gap(nodes, root, height, key, max(row.left, partner.left))
        if first < state[CLIP]:  # it was told at an earlier stretch
            return n
        state[HIT_BEGUN], state[HIT_POINT] = 1, max(row.left, state[FROM])
        n = tell(out, n, comes, row.slot, state[HIT_POINT], end)
    while n < out.shape[1]:
        found, start, last = next_run(nodes, root, height, key, state[HIT_POINT])
        state[STEPS] += 1
        if found and start <= end:
            n = tell(out, n, not comes, row.slot, start, min(last, end))
        if not found or last >= end:
            state[HIT_BEGUN] = 0
            break
        state[HIT_POINT] = last + 1
    return n

"""Runs of changes of a box tree (`core/runs.py`), with the delta of each."""

from __future__ import annotations

from typing import Any

from structures.box import layout
from structures.box.changes import STACK_WORDS, change_box, present
from structures.box.layout import BoxRoot, root_of
from structures.box.records import Box
from structures.box.search import BOTH, LO_, QUEUED, ask, query_fill
from structures.core.blocks import Nodes, WriteState
from structures.core.entries import Entries, RowBuffer
from structures.core.kernel import kernel, wide
from structures.core.runs import AT, BEGUN, REFUSED, RUN_WORDS, RunChanges, begins, end_change, has_delta, refuses

ITEM = RUN_WORDS  # words of the writer's state: of the run, the item searched for, the stack, the search
STACK = ITEM + LO_ + 2 * layout.MOST_DIMENSIONS
SEARCH = STACK + STACK_WORDS


@kernel
def note_boxes(boxes: Any, signs: Any, entries: Entries, dimensions: int) -> None:
    """Store the boxes that are inserted by set and slot."""
    for e in range(len(signs)):
        if signs[e] > 0:
            s, slot = entries.set[e], entries.slot[e]
            for j in range(dimensions):
                boxes[s, slot, j] = entries.left[e * dimensions + j]
                boxes[s, slot, dimensions + j] = entries.right[e * dimensions + j]


@kernel("int64(Nodes, WriteState, int64[::1], int64[:,:,::1], RowBuffer, RunChanges, boolean)")
def run_changes(nodes: Nodes, writing: WriteState, state: Any, boxes: Any, emitted: RowBuffer, changes: RunChanges, deltas: bool) -> int:
    """Apply the changes from state[AT] on until all are done or there is no room for more rows. Returns the number of rows reported.

    state[MISSING] counts deletes of boxes that were not there, which have no effect. REFUSED: an entry is invalid, and nothing was done.
    Inserted boxes are stored in `boxes` first, by set and slot: left[d], right[d]. O(log**d n) a change, amortised, besides the rows.
    """
    W, C = nodes.W, writing.C
    signs, entries, order, done = changes
    n, d = 0, C[layout.DIMENSIONS]
    is_self = C[layout.SELF_] != 0
    if refuses(state, entries, 1 if is_self else 2):
        return REFUSED
    if begins(state):
        note_boxes(boxes, signs, entries, d)
    out0, out1 = emitted.out[: emitted.stride], emitted.out[emitted.stride :]
    item, stack, Z = state[ITEM : ITEM + LO_ + 2 * d], state[STACK:SEARCH], state[SEARCH:]
    while state[AT] < len(order) and C[layout.FULL] == 0:
        e = order[state[AT]]
        sign, s, key, slot = signs[e], wide(entries.set[e]), wide(entries.key[e]), wide(entries.slot[e])
        lo, hi = entries.left[e * d : (e + 1) * d], entries.right[e * d : (e + 1) * d]
        box = Box(s, key, slot, lo, hi)
        wanted = deltas and has_delta(sign)
        there = True
        if state[BEGUN] == 0:
            if sign > 0:
                change_box(nodes, writing, stack, 1, box)
            else:
                there = present(nodes, box)
            state[BEGUN] = 1
            item[0], item[1], item[2], item[3], item[4] = slot, key, 0 if is_self else 1 - s, BOTH, 2 * slot + s
            for j in range(d):
                item[LO_ + j], item[LO_ + d + j] = lo[j], hi[j]
            ask(Z, root_of(W, layout.TOP))
        if there:
            if wanted and C[layout.FULL] == 0:
                own = out0 if s == 0 else out1
                other = out1 if s == 0 else out0
                n = query_fill(nodes, Z, BoxRoot(root_of(W, layout.TOP), is_self, d), item, own, other, n, layout.EVERY_CODE)
                if Z[QUEUED] > 0:
                    return n
            if sign < 0:
                change_box(nodes, writing, stack, -1, box)
        end_change(state, done, n, not there)
    return n

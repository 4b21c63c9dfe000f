"""Single changes of a join tree, one after another, each with its delta.

A deleted row reports its rows before it is removed, an inserted one after it is added; only rows that are in the
join are visited. Costs: as `spread`, and
the delta's rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes, Writing
from structures.core.entries import DELETE, INSERT
from structures.core.kernel import arrays, kernel
from structures.core.runs import AT, BEGUN, RUN_WORDS
from structures.join_tree.layout import FIRST_PORT, HAS, Tables, shift_row
from structures.join_tree.spread import END, FIRST_, FLIPS, PLACE, Spreading, change_rows, live_but, move_rows
from structures.join_tree.walk import DEPTH, START, Walking, begin_walk, walk

RUN = FLIPS + 1  # in Z: the state of a run
CHANGES_WORDS = RUN + RUN_WORDS
MOVE = 0  # beside DELETE and INSERT


@arrays("int8[::1]", "int64[::1]", "int32[::1]", "int32[::1]", "int64[::1]")
class Singles(NamedTuple):
    """Change number i: alias places[i] loses the row at old[i] (DELETE), gains the one at new[i] (INSERT), or has it move (MOVE).
    done[i]: the rows written when it was done."""

    signs: np.ndarray
    places: np.ndarray
    old: np.ndarray
    new: np.ndarray
    done: np.ndarray


@kernel("int64(Nodes, Writing, Tables, Walking, Spreading, Singles, int32[:,::1], boolean)")
def run_singles(
    nodes: Nodes, writing: Writing, tables: Tables, walking: Walking, spreading: Spreading, singles: Singles, out: Any, deltas: bool,
) -> int:  # fmt: skip
    """Make the changes from number state[AT] on until all are done or out, int32[t, rows], is full; the delta rows written.

    state[BEGUN]: its delta is being told; called with `deltas` off then, the rest of it is left out.
    """
    T, LINKS, state, PATHS, S, L = tables.T, tables.LINKS, spreading.Z[RUN:], walking.PATHS, walking.S, walking.L
    signs, places, old, new, done = singles.signs, singles.places, singles.old, singles.new, singles.done
    n = 0
    while state[AT] < len(signs):
        i = state[AT]
        u, sign = places[i], signs[i]
        if sign == MOVE:
            move_rows(nodes, writing, tables, u, old[i : i + 1], new[i : i + 1])
        else:
            one = new[i : i + 1] if sign == INSERT else old[i : i + 1]
            if sign == INSERT and state[BEGUN] == 0:
                change_row(nodes, writing, tables, spreading, u, one[0], True)
            if deltas and live_but(tables, u, one[0], -1, -1):
                if state[BEGUN] == 0:
                    begin_walk(S, u)
                    state[BEGUN] = 1
                while S[0, DEPTH] > 0 or S[0, START] == 0:
                    if n == out.shape[1]:
                        return n
                    n = walk(nodes, tables, Walking(T, PATHS, LINKS[:0], S, L), one, out, n)
            state[BEGUN] = 0
            if sign == DELETE:
                change_row(nodes, writing, tables, spreading, u, one[0], False)
        done[i] = n
        state[AT] += 1
    return n


@kernel
def change_row(nodes: Nodes, writing: Writing, tables: Tables, spreading: Spreading, u: int, slot: int, come: bool) -> None:
    """A row comes or goes, with all that follows."""
    SIDES, rows, runs = tables.SIDES, spreading.rows, spreading.runs
    rows[0] = slot
    for r in range(change_rows(nodes, writing, tables, spreading, u, 1, come)):
        w = runs[r, PLACE]
        for i in range(runs[r, FIRST_], runs[r, END]):
            for j in range(SIDES[w, HAS]):
                p = SIDES[w, FIRST_PORT + j]
                shift_row(nodes, writing, tables, p, p, rows[i], come)

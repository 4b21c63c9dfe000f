"""Changes of rows of a join tree, one after another, each with its delta.

A deleted row reports its rows before it is removed, an inserted one after it is added; only rows that are in the join are visited. Rows
that a part ends are reported before the trees of full rows change, rows that it adds afterwards. Costs: as `spread`, and the delta's rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes, WriteState
from structures.core.entries import INSERT
from structures.core.kernel import arrays, kernel
from structures.core.runs import AT, BEGUN, RUN_WORDS, end_change
from structures.join_tree.layout import FIRST_PORT, HAS, HIDDEN, Tables, shift_row
from structures.join_tree.spread import (
    BESIDE_NULL,
    BY_CHANGED,
    EMITTED,
    END,
    FIRST_,
    FLIPS,
    LINK,
    POSITION,
    SIGN,
    SpreadState,
    change_rows,
    live_but,
    move_row,
)
from structures.join_tree.walk import DEPTH, NULLED, START, JoinTreeWalk, begin_walk, walk

RUNS = FLIPS + 1  # in Z: the number of runs of the current change
RUN = RUNS + 1  # the state of a run
CHANGES_WORDS = RUN + RUN_WORDS
MOVE = 0  # besides DELETE and INSERT
BEFORE, ENDED, BROUGHT, AFTER, DONE = range(1, 6)  # run[BEGUN]: the rows of a change that are being reported (`phase`)


@arrays("int8[::1]", "int64[::1]", "int32[::1]", "int32[::1]", "int64[::1]")
class RowChanges(NamedTuple):
    """Change number i: alias positions[i] loses the row at old[i] (DELETE), gains the one at new[i] (INSERT), or has it move (MOVE).
    done[i]: the rows written when it was done."""

    signs: np.ndarray
    positions: np.ndarray
    old: np.ndarray
    new: np.ndarray
    done: np.ndarray


@kernel("int64(Nodes, WriteState, Tables, JoinTreeWalk, SpreadState, RowChanges, int32[:,::1], boolean)")
def run_changes(
    nodes: Nodes, writing: WriteState, tables: Tables, walking: JoinTreeWalk, spreading: SpreadState, changes: RowChanges, out: Any,
    deltas: bool,
) -> int:  # fmt: skip
    """Apply the changes from index run[AT] on until all are done or out, int32[t, rows], is full. Returns the number of delta rows
    written; `JoinTables.is_inserted` says which of them come.

    run[BEGUN]: the delta of the current change is being reported; a call with `deltas` off then leaves out the rest. Cost: as the head
    says, a change.
    """
    state, run, rows = walking.state, spreading.Z[RUN:], spreading.rows
    reading = JoinTreeWalk(tables.T, walking.PATHS, tables.LINKS[:0], state, walking.lists)
    signs, positions, old, new, done = changes.signs, changes.positions, changes.old, changes.new, changes.done
    n = 0
    while run[AT] < len(signs):
        i = run[AT]
        u, sign, begun = positions[i], signs[i], run[BEGUN] > 0
        if sign == MOVE:
            move_row(nodes, writing, tables, u, old[i], new[i])
            run[BEGUN] = DONE
        elif not begun:
            rows[0] = new[i] if sign == INSERT else old[i]
            run[BEGUN] = BEFORE
        while run[BEGUN] < DONE:
            if not begun:
                reach(nodes, writing, tables, spreading, u, sign)
            position, nulled, first, end = emitted_now(tables, spreading, u, sign)
            if not begun and end > first:
                begin_walk(state, position)
                state[0, NULLED] = nulled
            while deltas and end > first and (state[0, DEPTH] > 0 or state[0, START] < end - first):
                if n == out.shape[1]:
                    return n
                n = walk(nodes, tables, reading, rows[first:end], out, n)
            run[BEGUN] += 1
            begun = False
        end_change(run, done, n, False)
    return n


@kernel
def reach(nodes: Nodes, writing: WriteState, tables: Tables, spreading: SpreadState, u: int, sign: int) -> None:
    """Apply the parts of a change of the row in rows[0] that must be done before the rows of phase run[BEGUN] are reported."""
    INPUTS, Z, rows, runs = tables.INPUTS, spreading.Z, spreading.rows, spreading.runs
    if Z[RUN + BEGUN] == ENDED:
        Z[RUNS] = change_rows(nodes, writing, tables, spreading, u, 1, sign == INSERT)
    elif Z[RUN + BEGUN] == BROUGHT:
        for r in range(Z[RUNS]):
            w = runs[r, POSITION]
            for i in range(runs[r, FIRST_], runs[r, END] if runs[r, EMITTED] != BESIDE_NULL else 0):
                for j in range(INPUTS[w, HAS]):
                    p = INPUTS[w, FIRST_PORT + j]
                    shift_row(nodes, writing, tables, p, p, rows[i], runs[r, SIGN] != 0)


@kernel
def emitted_now(tables: Tables, spreading: SpreadState, u: int, sign: int) -> tuple[int, int, int, int]:
    """The alias whose rows[first:end] report their rows now, and NULLED of that walk: (alias, NULLED, first, end)."""
    Z, rows, runs = spreading.Z, spreading.rows, spreading.runs
    now = Z[RUN + BEGUN]
    if now == BEFORE or now == AFTER:
        emits = (now == AFTER) == (sign == INSERT) and tables.INPUTS[u, HIDDEN] == 0 and live_but(tables, u, rows[0], -1, -1)
        return u, 0, 0, 1 if emits else 0
    for r in range(Z[RUNS]):
        if runs[r, EMITTED] != BY_CHANGED and runs[r, SIGN] == now - ENDED:
            return runs[r, POSITION], runs[r, LINK] + 1 if runs[r, EMITTED] == BESIDE_NULL else 0, runs[r, FIRST_], runs[r, END]
    return u, 0, 0, 0

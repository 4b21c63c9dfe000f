"""Writer of the join tree: insert and delete rows, and find the rows that become live or die, outward (`tree.py`, J1 to J4).

A run is a set of rows of one alias whose bit for one link flips: (alias, link, first, end) in RUNS, its slots in OUT[first:end]. The first
run, with link -1, has the changed rows themselves. As aliases form a tree, each is reached by at most one run, and the other bits of its
rows do not change meanwhile. An edge answers two questions: which rows of the other side flip when these become live or die (`flipped`),
and whether a row has a live partner (`has_partner`). With equality only, all rows of a key are live or none: one count per key decides.

Across an absent link a run changes its sign: its rows die where the others became live. At most one run leaves a part: its rows become rows
of the join, or cease to be. Out of an optional part, rows stop standing beside null, or begin to, and the run ends there.

Costs: a row that becomes live or dies: with equality only O(1), and its key's rows if it is the key's first or last live one; otherwise
O(log n), and its partners. Many rows in the order of a tree share the way to a leaf (`ordered/open_leaf.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import COUNT, HEIGHT, ROOT, B
from structures.core.blocks import Nodes, WriteState
from structures.core.encoding import NEG_INF
from structures.core.entries import Entry
from structures.core.kernel import arrays, kernel, wide
from structures.join_tree import layout
from structures.join_tree.layout import (
    ABSENT,
    EXISTS,
    FREE,
    OPTIONAL,
    REQUIRED,
    Tables,
    code_of,
    ends_of,
    group,
    has_own_live_tree,
    join_group,
    lay_down,
    leave_group,
    sees,
    shift_row,
    take_up,
)
from structures.ordered.open_leaf import CLOSED, are_dense, change_near, close_leaf, search_near
from structures.ordered.search import NOTHING_BEFORE, SEARCH_WORDS, STEPS, Bounds, search_fill, search_start

# of a run; ROOM: the first place after all runs; SIGN: 1 if its rows come
POSITION, LINK, FIRST_, END, ROOM, SIGN, EMITTED, RUN_WORDS = range(8)
BY_CHANGED, BY_ITSELF, BESIDE_NULL = range(3)  # TOLD: the rows that report a run: the changed ones; its own; its own beside null
FLIPS = SEARCH_WORDS  # in Z: rows that others made live or dead
BLOCK = 32  # rows whose records are read together


@arrays("int64[::1]", "int32[::1]", "int64[:,::1]", "int64[:,::1]")
class SpreadState(NamedTuple):
    """Z: the search, and counters; rows: OUT; runs: RUNS; block: int64[BLOCK, 3], see `read_block`."""

    Z: np.ndarray
    rows: np.ndarray
    runs: np.ndarray
    block: np.ndarray


@kernel(forceinline=True)
def bits_at(INPUTS: Any, u: int, slot: int) -> int:
    return INPUTS[u, layout.BASE] + slot * INPUTS[u, layout.WORDS]


@kernel(forceinline=True)
def has_partner(tables: Tables, u: int, e: int, slot: int) -> bool:
    """Whether a row of alias u, where link e begins, has a live partner along it, according to the bits and supports."""
    LINKS, INPUTS, X, Y = tables.LINKS, tables.INPUTS, tables.X, tables.Y
    if LINKS[e, layout.SPANNED] != 0:
        return (X[bits_at(INPUTS, u, slot)] & LINKS[e, layout.BIT]) != 0
    code = code_of(tables, LINKS[e ^ 1, layout.PORT], slot)
    return code >= 0 and Y[LINKS[e, layout.SUPPORT] + code * LINKS[e, layout.STEP]] > 0


@kernel(forceinline=True)
def live_but(tables: Tables, u: int, slot: int, one: int, other: int) -> bool:
    """Whether a row of alias u meets the requirements of each of its links, except perhaps these two."""
    INPUTS, LINKS = tables.INPUTS, tables.LINKS
    for i in range(INPUTS[u, layout.OUT]):
        e = INPUTS[u, layout.FIRST_LINK + i]
        kind = LINKS[e, layout.KIND]
        if e != one and e != other and kind < OPTIONAL and has_partner(tables, u, e, slot) == (kind == ABSENT):
            return False
    return True


@kernel
def any_live(nodes: Nodes, tables: Tables, spreading: SpreadState, e: int, slot: int, some: Any) -> bool:
    """Whether a row has a live partner along link e, by a search. `some`: room for B + 1 slots."""
    T, LINKS, E, Z = tables.T, tables.LINKS, tables.E, spreading.Z
    tree, p = LINKS[e, layout.LIVE_TREE], LINKS[e ^ 1, layout.PORT]
    left, right = ends_of(tables, p, slot)
    search_start(Z, T[tree, 0], T[tree, HEIGHT - ROOT], 0, code_of(tables, p, slot), Bounds(NEG_INF, NOTHING_BEFORE, right, left))
    return search_fill(nodes, Z, some, 0, E[:0]) > 0


@kernel
def read_block(tables: Tables, p: int, slots: Any, i: int, block: Any) -> None:
    """Write (code, left, right) of up to BLOCK rows from slots[i] on, as port p sees them, into block; code -1: it does not see the row.
    The processor waits for these reads together; between two searches it would wait for those of each row."""
    for j in range(min(BLOCK, len(slots) - i)):
        slot = slots[i + j]
        block[j, 0] = code_of(tables, p, slot) if sees(tables, p, slot) else -1
        block[j, 1], block[j, 2] = ends_of(tables, p, slot)


@kernel
def shift_all(nodes: Nodes, writing: WriteState, tables: Tables, tree: int, p: int, slots: Any, inserted: bool, block: Any) -> None:
    """Do the same as `shift_row` for each of these rows. `block`: as in `SpreadState`. Cost: O(log n) a row; for many rows in the order of
    the port, only for those that are the first of their leaf."""
    C, T = writing.C, tables.T
    take_up(C, T, tree)
    if not are_dense(len(slots), C[COUNT]):
        for i in range(len(slots)):
            shift_row(nodes, writing, tables, tree, p, slots[i], inserted)
        return
    opened = CLOSED
    for i in range(len(slots)):
        b = i % BLOCK
        if b == 0:
            read_block(tables, p, slots, i, block)
        if block[b, 0] >= 0:
            entry = Entry(0, block[b, 0], block[b, 1], block[b, 2], wide(slots[i]))
            opened = change_near(nodes, writing, opened, inserted, entry)[0]
    close_leaf(nodes, writing, opened)
    lay_down(C, T, tree)


@kernel(forceinline=True)
def flipped(nodes: Nodes, writing: WriteState, tables: Tables, spreading: SpreadState, run: Any, e: int, inserted: bool) -> int:
    """The rows where link e leads that flip because rows of a run become live, away from there, or die. Writes them after rows[run[END] :],
    and returns their end."""
    LINKS, Y, Z, rows = tables.LINKS, tables.Y, spreading.Z, spreading.rows
    u, d, n, p = run[POSITION], run[LINK], run[ROOM], LINKS[e ^ 1, layout.PORT]
    if LINKS[e, layout.SPANNED] != 0:
        if has_own_live_tree(tables, e ^ 1):
            for i in range(run[FIRST_], run[END]):
                if live_but(tables, u, rows[i], d, e):
                    rows[n] = rows[i]
                    n += 1
            shift_all(nodes, writing, tables, LINKS[e ^ 1, layout.LIVE_TREE], p, rows[run[ROOM] : n], inserted, spreading.block)
        return flipped_partners(nodes, writing, tables, spreading, run, e, inserted)
    for i in range(run[FIRST_], run[END]):
        slot = rows[i]
        if not live_but(tables, u, slot, d, e) or not sees(tables, p, slot):
            continue
        Z[STEPS] += 1
        code = code_of(tables, p, slot)
        at = LINKS[e ^ 1, layout.SUPPORT] + code * LINKS[e ^ 1, layout.STEP]
        Y[at] += 1 if inserted else -1
        if Y[at] == (1 if inserted else 0):
            n = group(tables, LINKS[e, layout.PORT], code, rows, n)
    Z[STEPS] += n - run[ROOM]
    return n


@kernel
def flipped_partners(nodes: Nodes, writing: WriteState, tables: Tables, spreading: SpreadState, run: Any, e: int, inserted: bool) -> int:
    """As `flipped`, along a link with spans, once the live tree is up to date. A bit is flipped as soon as its row is found, so each row is
    found once even with several partners; if rows that died have another live partner, their bits are flipped back. Also sets the bits of
    the changed rows, if they depend on these partners only (`gets_bit_from_partners`): nothing has read them yet. Where all rows on the
    other side are live, a row whose bit is not set has no partner, and is not searched."""
    C, LINKS, INPUTS, X, Z, rows, block = writing.C, tables.LINKS, tables.INPUTS, tables.X, spreading.Z, spreading.rows, spreading.block
    u, d, first = run[POSITION], run[LINK], run[ROOM]
    w, bit, n = LINKS[e, layout.FAR], LINKS[e ^ 1, layout.BIT], first
    gets_bit = inserted and d < 0 and gets_bit_from_partners(tables, u)
    # FREE links have no bits.
    bit_tells = not gets_bit and LINKS[e, layout.KIND] != FREE and not has_own_live_tree(tables, e)
    take_up(C, tables.T, tables.PORTS[LINKS[e, layout.PORT], layout.ALL_TREE])
    opened, are_near = CLOSED, are_dense(run[END] - run[FIRST_], C[COUNT])
    for i in range(run[FIRST_], run[END]):
        b = (i - run[FIRST_]) % BLOCK
        if b == 0:
            read_block(tables, LINKS[e ^ 1, layout.PORT], rows[: run[END]], i, block)
        if block[b, 0] < 0 or not live_but(tables, u, rows[i], d, e):
            continue
        if bit_tells and not has_partner(tables, u, e, rows[i]):
            continue
        Z[STEPS] += 1
        search_start(Z, C[ROOT], C[HEIGHT], 0, block[b, 0], Bounds(NEG_INF, NOTHING_BEFORE, block[b, 2], block[b, 1]))
        if are_near:
            opened, end = search_near(nodes, C, opened, Z, rows, n)
        else:
            end = search_fill(nodes, Z, rows, n, tables.E[:0])
        if gets_bit and end > n:
            X[bits_at(INPUTS, u, rows[i])] = LINKS[e, layout.BIT]
        for j in range(n, end):
            slot = rows[j]
            at = bits_at(INPUTS, w, slot)
            if ((X[at] & bit) == 0) == inserted:
                X[at] ^= bit
                rows[n] = slot
                n += 1
    if inserted:
        return n
    end, n = n, first
    some = rows[end : end + B + 1]
    for j in range(first, end):
        slot = rows[j]
        if any_live(nodes, tables, spreading, e ^ 1, slot, some):
            X[bits_at(INPUTS, w, slot)] |= bit
        else:
            rows[n] = slot
            n += 1
    return n


@kernel
def begin_run(tables: Tables, run: Any, sign: int) -> None:
    """Set how a run's rows change, as partners of them have come (sign 1) or gone along its link."""
    kind = tables.LINKS[run[LINK], layout.KIND]
    run[SIGN] = 1 - sign if kind == ABSENT or kind == OPTIONAL else sign
    run[EMITTED] = BESIDE_NULL if kind == OPTIONAL else BY_ITSELF if kind == ABSENT or kind == EXISTS else BY_CHANGED


@kernel
def spread(nodes: Nodes, writing: WriteState, tables: Tables, spreading: SpreadState, inserted: bool) -> int:
    """Process runs from the first one outward. Returns the number of runs; each then ends after those of its rows that take part in rows of
    the view."""
    LINKS, INPUTS, Z, rows, runs = tables.LINKS, tables.INPUTS, spreading.Z, spreading.rows, spreading.runs
    runs[0, SIGN], runs[0, EMITTED] = 1 if inserted else 0, BY_CHANGED
    done, count = 0, 1
    while done < count:
        run = runs[done]
        u, d = run[POSITION], run[LINK]
        for i in range(INPUTS[u, layout.OUT] if run[EMITTED] != BESIDE_NULL else 0):
            e = INPUTS[u, layout.FIRST_LINK + i]
            if e == d or LINKS[e, layout.KIND] == EXISTS or LINKS[e, layout.KIND] == ABSENT:
                continue
            first = runs[count - 1, END]
            run[ROOM] = first
            end = flipped(nodes, writing, tables, spreading, run, e, run[SIGN] != 0)
            if end > first:
                runs[count, POSITION], runs[count, LINK], runs[count, FIRST_], runs[count, END] = LINKS[e, layout.FAR], e ^ 1, first, end
                begin_run(tables, runs[count], run[SIGN])
                count += 1
        done += 1
    for r in range(count):
        u, d, n = runs[r, POSITION], runs[r, LINK], runs[r, FIRST_]
        if INPUTS[u, layout.HIDDEN] != 0:
            runs[r, END] = n
        for i in range(runs[r, FIRST_], runs[r, END]):
            slot = rows[i]
            if live_but(tables, u, slot, d, d):
                rows[n] = slot
                n += 1
        runs[r, END] = n
        if r > 0:
            Z[FLIPS] += n - runs[r, FIRST_]
    return count


@kernel(forceinline=True)
def gets_bit_from_partners(tables: Tables, u: int) -> bool:
    """Whether alias u has a single link, which is required, has spans, and leads to rows that are all live. The bit of a row that comes is
    then set when its partners are found (`flipped_partners`), without a search of its own."""
    LINKS, INPUTS = tables.LINKS, tables.INPUTS
    e = INPUTS[u, layout.FIRST_LINK]
    required = INPUTS[u, layout.OUT] == 1 and LINKS[e, layout.SPANNED] != 0 and LINKS[e, layout.KIND] == REQUIRED
    return required and not has_own_live_tree(tables, e)


@kernel(forceinline=True)
def set_bits(nodes: Nodes, tables: Tables, spreading: SpreadState, u: int, slot: int, some: Any) -> None:
    """Set the bits of a row of alias u that comes; they depend on outer rows only."""
    LINKS, INPUTS, X, Z = tables.LINKS, tables.INPUTS, tables.X, spreading.Z
    bits = 0
    for i in range(INPUTS[u, layout.OUT]):
        e = INPUTS[u, layout.FIRST_LINK + i]
        if LINKS[e, layout.SPANNED] != 0 and LINKS[e, layout.KIND] != FREE and sees(tables, LINKS[e ^ 1, layout.PORT], slot):
            Z[STEPS] += 1
            if any_live(nodes, tables, spreading, e, slot, some):
                bits |= LINKS[e, layout.BIT]
    X[bits_at(INPUTS, u, slot)] = bits


@kernel
def shift_members(nodes: Nodes, writing: WriteState, tables: Tables, u: int, slots: Any, inserted: bool, block: Any) -> None:
    """Add rows to all rows of alias u, or remove them."""
    PORTS, INPUTS = tables.PORTS, tables.INPUTS
    for i in range(INPUTS[u, layout.HAS]):
        p = INPUTS[u, layout.FIRST_PORT + i]
        if PORTS[p, layout.SPAN] != 0:
            shift_all(nodes, writing, tables, PORTS[p, layout.ALL_TREE], p, slots, inserted, block)
            continue
        for slot in slots:
            if sees(tables, p, slot):
                if inserted:
                    join_group(tables, p, slot)
                else:
                    leave_group(tables, p, slot)


@kernel("int64(Nodes, WriteState, Tables, SpreadState, int64, int64, boolean)")
def change_rows(nodes: Nodes, writing: WriteState, tables: Tables, spreading: SpreadState, u: int, n: int, inserted: bool) -> int:
    """Insert or delete rows[:n] of alias u, which are described. Returns the number of runs of rows that must enter or leave the trees of
    full rows. Behind them, `rows` must have room for each row of all aliases once, and for the rows of one alias once more.
    Cost: as the module's head."""
    rows, runs = spreading.rows, spreading.runs
    runs[0, POSITION], runs[0, LINK], runs[0, FIRST_], runs[0, END] = u, -1, 0, n
    if inserted and gets_bit_from_partners(tables, u):
        for i in range(n):
            tables.X[bits_at(tables.INPUTS, u, rows[i])] = 0
    elif inserted:
        for i in range(n):
            set_bits(nodes, tables, spreading, u, rows[i], rows[n : n + B + 1])
    shift_members(nodes, writing, tables, u, rows[:n], inserted, spreading.block)
    return spread(nodes, writing, tables, spreading, inserted)


@kernel("void(Nodes, WriteState, Tables, int64, int32[::1], boolean, int64[:,::1])")
def shift_rows(nodes: Nodes, writing: WriteState, tables: Tables, p: int, slots: Any, inserted: bool, block: Any) -> None:
    """Insert rows into the tree of full rows of port p, or delete them. Cost: as `shift_all`."""
    shift_all(nodes, writing, tables, p, p, slots, inserted, block)


@kernel
def swap_row(nodes: Nodes, writing: WriteState, tables: Tables, tree: int, p: int, old: int, new: int) -> None:
    shift_row(nodes, writing, tables, tree, p, old, False)
    shift_row(nodes, writing, tables, tree, p, new, True)


@kernel
def move_row(nodes: Nodes, writing: WriteState, tables: Tables, u: int, old: int, new: int) -> None:
    """Move a row of alias u from slot to slot; the new one has the same description. Cost: O(log n) a tree."""
    LINKS, PORTS, INPUTS, X = tables.LINKS, tables.PORTS, tables.INPUTS, tables.X
    full = INPUTS[u, layout.HIDDEN] == 0 and live_but(tables, u, old, -1, -1)
    X[bits_at(INPUTS, u, new)] = X[bits_at(INPUTS, u, old)]
    for j in range(INPUTS[u, layout.OUT]):
        e = INPUTS[u, layout.FIRST_LINK + j]
        kind = LINKS[e, layout.KIND]
        shifts = LINKS[e, layout.SPANNED] != 0 and has_own_live_tree(tables, e ^ 1) and kind != EXISTS and kind != ABSENT
        if shifts and live_but(tables, u, old, e, e):
            swap_row(nodes, writing, tables, LINKS[e ^ 1, layout.LIVE_TREE], LINKS[e ^ 1, layout.PORT], old, new)
    for j in range(INPUTS[u, layout.HAS]):
        p = INPUTS[u, layout.FIRST_PORT + j]
        if full:
            swap_row(nodes, writing, tables, p, p, old, new)
        if PORTS[p, layout.SPAN] != 0:
            swap_row(nodes, writing, tables, PORTS[p, layout.ALL_TREE], p, old, new)
        elif sees(tables, p, old):
            leave_group(tables, p, old)
            join_group(tables, p, new)

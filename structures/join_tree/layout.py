"""The arrays of a join tree: its links, ports and sides, and the data by slot and by code (`tree.py` defines them).

    LINKS  int64[l, 9]   a directed edge: its aliases, its kind, the port that it ends in, where its supports lie; its opposite is e ^ 1
    PORTS  int64[p, 8]   one alias's rows as an edge sees them: where their codes, groups and ends lie
    SIDES  int64[t, 21]  an alias: where its records lie, its links outward, its ports, whether rows of the join omit it
    T      int64[k, 6]   the trees, all in one arena: for each port the full rows; for ports with a span all rows; for links between such
                         ports the live ones, unless these are all rows (`has_own_live_tree`). Stores what `ordered.tree` keeps of a tree in
                         C, while it works on another one.
    X      int32         a record a slot of an alias: bits | code, next, previous of each port. next, previous: slot + 1 in the group, or 0
    Y      int32         a record a code of a domain: of each port without span its group's first slot + 1, of each link into it the support
    E      int64         of each port with a span and each slot: left, right

Trees that only the newest version reads have a version of their own, which never changes: they are written in place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import ROOT
from structures.core.blocks import Nodes, WriteState
from structures.core.control import VERSION
from structures.core.kernel import arrays, kernel
from structures.ordered.tree import cut, put

NEAR, FAR, PORT, SPANNED, BIT, SUPPORT, STEP, LIVE_TREE, KIND, LINK_WORDS = range(10)  # words of a link; STEP: words of a code's record
# Kinds of links: what a row where the link begins must have along it. EXISTS and ABSENT lead to aliases that rows of the join leave out,
# FREE away from them.
REQUIRED, EXISTS, ABSENT, OPTIONAL, FREE = range(5)
ALIAS, CODE, WIDTH, HEAD, STEP_, ENDS, SPAN, ALL_TREE = range(8)  # words of a port; WIDTH: words of a slot's record
BASE, WORDS, OUT, HAS, FIRST_LINK, FIRST_PORT, HIDDEN, INPUT_WORDS = 0, 1, 2, 3, 4, 12, 20, 21
MOST = 8  # most aliases, links of an alias, ports of an alias
TREE_WORDS, TREE_VERSION = 6, 5
UNVERSIONED = -1


@arrays("int64[:,::1]", "int64[:,::1]", "int64[:,::1]", "int64[:,::1]", "int32[::1]", "int32[::1]", "int64[::1]")
class Tables(NamedTuple):
    """The arrays of the module's head."""

    T: np.ndarray
    LINKS: np.ndarray
    PORTS: np.ndarray
    INPUTS: np.ndarray
    X: np.ndarray
    Y: np.ndarray
    E: np.ndarray


@kernel(forceinline=True)
def code_of(tables: Tables, p: int, slot: int) -> int:
    PORTS, X = tables.PORTS, tables.X
    return X[PORTS[p, CODE] + slot * PORTS[p, WIDTH]]


@kernel(forceinline=True)
def ends_of(tables: Tables, p: int, slot: int) -> tuple[int, int]:
    PORTS, E = tables.PORTS, tables.E
    if PORTS[p, SPAN] == 0:
        return 0, 0
    at = PORTS[p, ENDS] + 2 * slot
    return E[at], E[at + 1]


@kernel(forceinline=True)
def sees(tables: Tables, p: int, slot: int) -> bool:
    """Whether a row has a code and a nonempty span at a port; otherwise it has no partner there, and is in no tree or group of the port."""
    left, right = ends_of(tables, p, slot)
    return code_of(tables, p, slot) >= 0 and left <= right


@kernel("void(Tables, int64[::1], int32[::1], boolean[::1])")
def see_all(tables: Tables, ports: Any, slots: Any, seen: Any) -> None:
    """Set seen[i] to whether all these ports see the row slots[i]. O(1) a row and port."""
    for i in range(len(slots)):
        seen[i] = True
        for p in ports:
            seen[i] &= sees(tables, p, slots[i])


@kernel("void(Tables, int64, int32[::1], int32[::1], int64[::1])")
def read_positions(tables: Tables, p: int, slots: Any, codes: Any, lefts: Any) -> None:
    """Write the code and the left end of each of these rows, as port p sees them. O(1) a row."""
    for i in range(len(slots)):
        codes[i], lefts[i] = code_of(tables, p, slots[i]), ends_of(tables, p, slots[i])[0]


@kernel(forceinline=True)
def has_own_live_tree(tables: Tables, e: int) -> bool:
    """Whether the rows that are live along link e, which has spans, have a tree of their own."""
    return tables.LINKS[e, LIVE_TREE] != tables.PORTS[tables.LINKS[e, PORT], ALL_TREE]


@kernel
def take_up(C: Any, trees: Any, tree: int) -> None:
    """Make this the tree that the writer works on."""
    for i in range(TREE_VERSION):
        C[ROOT + i] = trees[tree, i]
    C[VERSION] = trees[tree, TREE_VERSION]


@kernel
def lay_down(C: Any, trees: Any, tree: int) -> None:
    for i in range(TREE_VERSION):
        trees[tree, i] = C[ROOT + i]


@kernel
def shift_row(nodes: Nodes, writing: WriteState, tables: Tables, tree: int, p: int, slot: int, inserted: bool) -> None:
    """Insert a row, as port p sees it, into a tree or delete it; no effect if the port does not see the row."""
    C, T = writing.C, tables.T
    if not sees(tables, p, slot):
        return
    left, right = ends_of(tables, p, slot)
    take_up(C, T, tree)
    if inserted:
        put(nodes, writing, 0, code_of(tables, p, slot), left, right, slot)
    else:
        cut(nodes, writing, 0, code_of(tables, p, slot), left, slot)
    lay_down(C, T, tree)


@kernel(forceinline=True)
def join_group(tables: Tables, p: int, slot: int) -> None:
    """Add a row to the front of its group, for a port without span."""
    PORTS, X, Y = tables.PORTS, tables.X, tables.Y
    at, width = PORTS[p, CODE], PORTS[p, WIDTH]
    here = at + slot * width
    h = PORTS[p, HEAD] + X[here] * PORTS[p, STEP_]
    first = Y[h]
    X[here + 1], X[here + 2] = first, 0
    if first != 0:
        X[at + (first - 1) * width + 2] = slot + 1
    Y[h] = slot + 1


@kernel(forceinline=True)
def leave_group(tables: Tables, p: int, slot: int) -> None:
    PORTS, X, Y = tables.PORTS, tables.X, tables.Y
    at, width = PORTS[p, CODE], PORTS[p, WIDTH]
    here = at + slot * width
    after, before = X[here + 1], X[here + 2]
    if after != 0:
        X[at + (after - 1) * width + 2] = before
    if before != 0:
        X[at + (before - 1) * width + 1] = after
    else:
        Y[PORTS[p, HEAD] + X[here] * PORTS[p, STEP_]] = after


@kernel(forceinline=True)
def group(tables: Tables, p: int, code: int, out: Any, n: int) -> int:
    """Write all rows of a code, from out[n] on. Returns the new end."""
    PORTS, X, Y = tables.PORTS, tables.X, tables.Y
    at, width = PORTS[p, CODE], PORTS[p, WIDTH]
    slot = Y[PORTS[p, HEAD] + code * PORTS[p, STEP_]] - 1
    while slot >= 0:
        out[n] = slot
        n += 1
        slot = X[at + slot * width + 1] - 1
    return n

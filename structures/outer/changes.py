"""Changes of both sets one after another, each with the rows that come and go by it.

All that a changed interval meets is searched in the tree of the pairs: that is the delta. Of each row that is met, if it can be told alone,
the count of partners goes up or down; it gains its first partner where the count leaves 0, and loses its last one where it comes to 0.
A row that comes and has many partners of which nobody is told is not counted: where one of them goes, it is asked for another.

Costs: O(log n) a change, O(1) a pair that comes or goes, told or not (by an outer row of LEFT JOIN as many as are told, or Z[MOST]), and
O(log n) a row that gains its first partner or loses its last one, or loses one and is not counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import HEIGHT, ROOT, B
from structures.core.blocks import Nodes, Writing
from structures.core.encoding import NEG_INF
from structures.core.kernel import arrays, kernel, wide
from structures.core.runs import AT, BEGUN, RUN_WORDS, end_change
from structures.event_tree.runs import LONELY, OUTER_DELETE, OUTER_INSERT, OUTER_MOVE, PARTNER_INSERT, PARTNER_MOVE, Moves
from structures.ordered.search import DEPTH, HIGH, NOTHING_BEFORE, SEARCH_WORDS, TOP, Bounds, search_fill, search_start
from structures.ordered.tree import cut, expect, put

# Of the state; OUTER_SET: the set of the outer rows. MOST: partners of a row that are counted if nobody is told of them. Two searches.
FLIPS, OUTER_SET, MOST, SEARCH = range(RUN_WORDS, RUN_WORDS + 4)
OTHER = SEARCH + SEARCH_WORDS
STATE_WORDS = OTHER + SEARCH_WORDS
UNCOUNTED = -1  # in place of a count: some
HITS = 4 * B  # of a search, at once
SPARE = 2 * HITS + 1  # rows that so many hits tell: of each a pair, and the row alone; and that of the change itself
COMES, OUT_LINES = 2, 3  # of what is told, behind the slots of both sets
AHEAD = 2  # changes between asking for a leaf and using it, and between asking for the path to it and using that


@arrays(Nodes, Writing, "int32[::1]")
class Alone(NamedTuple):
    """Of one set the list of the rows without a partner, and by slot how many partners each has, or UNCOUNTED; no counts: they are not told
    alone."""

    nodes: Any
    writing: Any
    counts: Any


class Change(NamedTuple):
    """An entry of a set that comes or goes."""

    key: int
    left: int
    right: int
    slot: int
    set: int
    comes: bool


@arrays("int64[::1]", "int32[::1]", "int64[::1]", "int32[::1]")
class Scratch(NamedTuple):
    """The state, STATE_WORDS; hits of the first search, and their ends; hits of the second one."""

    Z: np.ndarray
    hits: np.ndarray
    ends: np.ndarray
    others: np.ndarray


@kernel("int64(Nodes, Writing, Alone, Alone, Scratch, int32[:,::1], Moves, boolean)")
def run_moves(
    nodes: Nodes, writing: Writing, first: Alone, second: Alone, scratch: Scratch, out: Any, moves: Moves, deltas: bool
) -> int:  # fmt: skip
    """Make the changes from number Z[AT] on until all are done or `out` is full; the rows told: of each the slots of both sets (-1: it has
    none), and whether it comes. first, second: of the sets."""
    Z, S, C = scratch.Z, scratch.Z[SEARCH:], writing.C
    n = 0
    while Z[AT] < len(moves.kind):
        i = Z[AT]
        kind = moves.kind[i]
        comes, s = kind == PARTNER_INSERT or kind == OUTER_INSERT, set_of(Z, kind)
        mine, its = (first, second) if s == 0 else (second, first)
        row = Change(wide(moves.key[i]), moves.left[i], moves.right[i], wide(moves.slot[i]), s, comes)
        told_alone, missing = len(mine.counts) > 0, False
        if len(out[0]) - n < SPARE:
            return n
        if Z[BEGUN] == 0:
            expect_change(nodes, C, Z, moves, i + 2 * AHEAD, 1)
            expect_change(nodes, C, Z, moves, i + AHEAD, 0)
        if kind == OUTER_MOVE or kind == PARTNER_MOVE:
            missing = not move(nodes, writing, mine, row, wide(moves.former[i]))
        else:
            if row.key != LONELY:
                if Z[BEGUN] == 0:
                    Z[BEGUN] = 1
                    if told_alone and comes:
                        mine.counts[row.slot] = 0
                    S[DEPTH] = 0
                    meets_none = told_alone and not comes and mine.counts[row.slot] == 0
                    if not meets_none and (deltas or len(its.counts) > 0 or (told_alone and comes)):
                        search_start(S, C[ROOT], C[HEIGHT], 1 - s, row.key, Bounds(NEG_INF, NOTHING_BEFORE, row.right, row.left))
                while S[DEPTH] > 0:
                    if len(out[0]) - n < SPARE:
                        return n
                    count = search_fill(nodes, S, scratch.hits, 0, scratch.ends)
                    if told_alone and comes:
                        mine.counts[row.slot] += count
                    n = meet(nodes, its, scratch, count, row, out, n, deltas)
                    if not deltas and len(its.counts) == 0 and (not comes or mine.counts[row.slot] > Z[MOST]):
                        if comes:
                            mine.counts[row.slot] = UNCOUNTED
                        S[DEPTH] = 0
                if comes:
                    put(nodes, writing, s, row.key, row.left, row.right, row.slot)
                else:
                    missing = not cut(nodes, writing, s, row.key, row.left, row.slot)
            if told_alone and (row.key == LONELY or mine.counts[row.slot] == 0):
                missing = not list_alone(mine, row) or missing
                if deltas:
                    n = tell_alone(out, n, s, row.slot, comes)
        end_change(Z, moves.done, n, missing)
    return n


@kernel(forceinline=True)
def set_of(Z: Any, kind: int) -> int:
    """That of what such a change is of."""
    is_outer = kind == OUTER_MOVE or kind == OUTER_DELETE or kind == OUTER_INSERT
    return Z[OUTER_SET] if is_outer else 1 - Z[OUTER_SET]


@kernel
def expect_change(nodes: Nodes, C: Any, Z: Any, moves: Moves, i: int, height: int) -> None:
    if i < len(moves.kind):
        expect(nodes, C, wide(moves.key[i]), moves.left[i], 2 * wide(moves.slot[i]) + set_of(Z, moves.kind[i]), height)


@kernel(forceinline=True)
def meet(nodes: Nodes, its: Alone, scratch: Scratch, count: int, row: Change, out: Any, n: int, deltas: bool) -> int:
    """A row comes, or goes, that meets these hits of the other set: count them up or down, and tell; the rows told."""
    hits, ends, s, comes = scratch.hits, scratch.ends, row.set, row.comes
    for j in range(count):
        other = hits[j]
        if len(its.counts) > 0 and turns(nodes, its, scratch, row, j):
            scratch.Z[FLIPS] += 1
            list_alone(its, Change(row.key, ends[2 * j], ends[2 * j + 1], wide(other), 1 - s, not comes))
            if deltas:
                n = tell_alone(out, n, 1 - s, other, not comes)
        if deltas:
            out[s, n], out[1 - s, n], out[COMES, n] = row.slot, other, comes
            n += 1
    return n


@kernel(forceinline=True)
def turns(nodes: Nodes, its: Alone, scratch: Scratch, row: Change, j: int) -> bool:
    """Whether a row comes as the first partner of hit number j, or goes as its last one."""
    slot = scratch.hits[j]
    if its.counts[slot] != UNCOUNTED:
        return count_on(its, slot, row.comes)
    if row.comes or has_other(nodes, scratch, row, scratch.ends[2 * j], scratch.ends[2 * j + 1]):
        return False
    its.counts[slot] = 0
    return True


@kernel
def has_other(nodes: Nodes, scratch: Scratch, row: Change, left: int, right: int) -> bool:
    """Whether another one than this row of its set meets [left, right]."""
    Z, S, others = scratch.Z[OTHER:], scratch.Z[SEARCH:], scratch.others
    search_start(Z, S[TOP], S[HIGH], row.set, row.key, Bounds(NEG_INF, NOTHING_BEFORE, right, left))
    while Z[DEPTH] > 0:
        for j in range(search_fill(nodes, Z, others, 0, scratch.ends[:0])):
            if others[j] != row.slot:
                return True
    return False


@kernel(forceinline=True)
def count_on(its: Alone, slot: int, comes: bool) -> bool:
    """A row has one partner more, or one less; whether it is the first, or was the last."""
    before = its.counts[slot]
    its.counts[slot] = before + (1 if comes else -1)
    return before == (0 if comes else 1)


@kernel
def list_alone(mine: Alone, row: Change) -> bool:
    """Put a row into the list, or take it out; False: it was not there."""
    if row.comes:
        put(mine.nodes, mine.writing, 0, row.key, row.left, row.right, row.slot)
        return True
    return cut(mine.nodes, mine.writing, 0, row.key, row.left, row.slot)


@kernel(forceinline=True)
def tell_alone(out: Any, n: int, s: int, slot: int, comes: bool) -> int:
    out[s, n], out[1 - s, n], out[COMES, n] = slot, -1, comes
    return n + 1


@kernel
def move(nodes: Nodes, writing: Writing, mine: Alone, row: Change, former: int) -> bool:
    """A row is at another slot now; False: it was not there."""
    found, told_alone = True, len(mine.counts) > 0
    if row.key != LONELY:
        found = cut(nodes, writing, row.set, row.key, row.left, former)
        put(nodes, writing, row.set, row.key, row.left, row.right, row.slot)
        if told_alone:
            mine.counts[row.slot] = mine.counts[former]
    if told_alone and (row.key == LONELY or mine.counts[row.slot] == 0):
        found = list_alone(mine, Change(row.key, row.left, row.right, former, row.set, False)) and found
        list_alone(mine, Change(row.key, row.left, row.right, row.slot, row.set, True))
    return found

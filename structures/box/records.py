"""Records: the boxes with an end in a leaf's slab (layout: `layout.py`).

Two records of a leaf make a row there iff their boxes meet and one of them has its left end in the slab. Then the later of the two left
ends lies there, as a box whose left end is not in the slab begins before it.

Costs: O(log CAP) to find, O(CAP) to move and to find the partners of a box (eight records are compared at once), less where dimension k + 1
separates boxes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from structures.box.layout import COUNT, DIMENSIONS, ENDS, KEY_SHIFT, LEFT1, LEFT_HERE, ROOM, SET_BIT, SLOT_SHIFT, TAG
from structures.core.bits import LANES, at_most8, count_bits, lowest, within8
from structures.core.blocks import Nodes, WriteState, close_position, open_position
from structures.core.kernel import kernel


class Box(NamedTuple):
    """A box as a member of a tree: its set there, its key (0 below level 0), its slot, and its ends by dimension."""

    set: int
    key: int
    slot: int
    lo: Any
    hi: Any


@kernel
def tag_of(key: int, slot: int, s: int, here: int) -> int:
    """`here`: the ends that lie in the slab, LEFT_HERE and RIGHT_HERE."""
    return (key << KEY_SHIFT) | (slot << SLOT_SHIFT) | (SET_BIT if s != 0 else 0) | here


@kernel
def code_of(tag: int) -> int:
    return (tag >> (SLOT_SHIFT - 1)) & 0x7FFFFFFF


@kernel
def key_of(tag: int) -> int:
    return (tag >> KEY_SHIFT) & 0x7FFFFFFF


@kernel
def find_record(nodes: Nodes, o: int, left1: int, code: int) -> int:
    """The first place in records o whose (left of dimension k + 1, code) is >= the given one."""
    M, W = nodes.M, nodes.W
    lo, hi = 0, W[2 * o + COUNT]
    while lo < hi:
        mid = (lo + hi) // 2
        v = M[o + LEFT1 + mid]
        if v < left1 or (v == left1 and code_of(M[o + TAG + mid]) < code):
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def write_record(M: Any, o: int, dimensions: int, level: int, p: int, tag: int, lo: Any, hi: Any) -> None:
    M[o + TAG + p] = tag
    at = o + ENDS + p
    for j in range(level, dimensions):
        M[at], M[at + ROOM] = lo[j], hi[j]
        at += 2 * ROOM


@kernel
def put_record(nodes: Nodes, C: Any, o: int, level: int, tag: int, lo: Any, hi: Any) -> None:
    """Insert a box into own records that have room."""
    M, W = nodes.M, nodes.W
    d, n = C[DIMENSIONS], W[2 * o + COUNT]
    p = find_record(nodes, o, lo[level + 1], code_of(tag))
    for c in range(1 + 2 * (d - level)):
        a = o + TAG + c * ROOM
        open_position(M, a + p, a + n)
    write_record(M, o, d, level, p, tag, lo, hi)
    W[2 * o + COUNT] = n + 1


@kernel
def cut_record(nodes: Nodes, C: Any, o: int, level: int, p: int) -> None:
    """Remove the record at place p from own records."""
    M, W = nodes.M, nodes.W
    n = W[2 * o + COUNT] - 1
    for c in range(1 + 2 * (C[DIMENSIONS] - level)):
        a = o + TAG + c * ROOM
        close_position(M, a + p, a + n + 1)
    W[2 * o + COUNT] = n


@kernel
def beginning_by(nodes: Nodes, o: int, most: int) -> int:
    """The number of records with a left end of dimension k + 1 that is <= most."""
    M, W = nodes.M, nodes.W
    lo, hi = 0, W[2 * o + COUNT]
    while lo < hi:
        mid = (lo + hi) // 2
        if M[o + LEFT1 + mid] <= most:
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def meets(M: Any, o: int, i: int, first: int, level: int, dimensions: int, lo: Any, hi: Any) -> bool:
    """Whether record i meets the box [lo, hi] in the dimensions from `first` on."""
    at = o + ENDS + 2 * ROOM * (first - level) + i
    for j in range(first, dimensions):
        if M[at] > hi[j] or M[at + ROOM] < lo[j]:
            return False
        at += 2 * ROOM
    return True


@kernel(forceinline=True)
def meeting8(M: Any, o: int, i: int, end: int, lo: tuple[int, int], hi: tuple[int, int]) -> int:
    """The c in 0..7, as bits, for which record i + c, below `end`, begins by `hi` and ends from `lo` on in dimensions k and k + 1."""
    at, at1 = o + ENDS + i, o + LEFT1 + i
    found = within8(M, at, hi[0], at + ROOM, lo[0]) & within8(M, at1, hi[1], at1 + ROOM, lo[1])
    return found & ((1 << min(end - i, LANES)) - 1)


@kernel
def count_rows(nodes: Nodes, writing: WriteState, o: int, level: int, is_self: bool, tag: int, lo: Any, hi: Any) -> int:
    """The number of records, besides its own, with which the box makes a row here."""
    M, C = nodes.M, writing.C
    d, rows, end = C[DIMENSIONS], 0, beginning_by(nodes, o, hi[level + 1])
    for i in range(0, end, LANES):
        found = meeting8(M, o, i, end, (lo[level], lo[level + 1]), (hi[level], hi[level + 1]))
        while found != 0:
            e = i + lowest(found)
            found &= found - 1
            if may_make_row(M[o + TAG + e], tag, is_self) and code_of(M[o + TAG + e]) != code_of(tag):
                rows += meets(M, o, e, level + 2, level, d, lo, hi)
    return rows


@kernel
def may_make_row(one: int, other: int, is_self: bool) -> bool:
    """Whether boxes with these tags make a row of the leaf if they meet."""
    return (is_self or (one ^ other) & SET_BIT != 0) and (one | other) & LEFT_HERE != 0 and key_of(one) == key_of(other)


@kernel
def next_row(M: Any, o: int, level: int, dimensions: int, is_self: bool, i: int, j: int, end: int) -> int:
    """The first place from j on, below `end`, of a record that makes a row with record i; they begin after it in dimension k + 1. If there
    is none, ~place where the search ended: at a record that begins beyond record i, or at `end`."""
    tag, left, right, right1 = M[o + TAG + i], M[o + ENDS + i], M[o + ENDS + ROOM + i], M[o + LEFT1 + ROOM + i]
    for first in range(j, end, LANES):
        at, here = o + ENDS + first, (1 << min(end - first, LANES)) - 1
        beginning = at_most8(M, o + LEFT1 + first, right1) & here
        found = within8(M, at, right, at + ROOM, left) & beginning
        while found != 0:
            e = first + lowest(found)
            found &= found - 1
            if may_make_row(M[o + TAG + e], tag, is_self) and both_meet(M, o, i, e, level + 2, level, dimensions):
                return e
        if beginning != here:
            return ~(first + count_bits(beginning))
    return ~end


@kernel
def both_meet(M: Any, o: int, i: int, e: int, first: int, level: int, dimensions: int) -> bool:
    """Whether records i and e meet in the dimensions from `first` on."""
    at = o + ENDS + 2 * ROOM * (first - level)
    for _ in range(first, dimensions):
        if M[at + i] > M[at + ROOM + e] or M[at + e] > M[at + ROOM + i]:
            return False
        at += 2 * ROOM
    return True


@kernel
def rows_inside(nodes: Nodes, C: Any, o: int, level: int, is_self: bool) -> int:
    """The number of pairs of records that make a row."""
    M, W = nodes.M, nodes.W
    d, n, rows = C[DIMENSIONS], W[2 * o + COUNT], 0
    for i in range(n):
        j = next_row(M, o, level, d, is_self, i, i + 1, n)
        while j >= 0:
            rows += 1
            j = next_row(M, o, level, d, is_self, i, j + 1, n)
    return rows

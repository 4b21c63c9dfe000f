"""Changes of both sides one after another, each with the rows that join and leave the reported list.

When a partner comes, the unmatched rows that it meets become matched. When it goes, dead rows become unmatched until none is left. Each is
found in O(log n), so a change costs that much for each row that it flips, however many it meets.

Costs: O(log n) a change, and a row reported.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import HEIGHT, KEY_MAX, ROOT, B
from structures.core.blocks import Nodes, WriteState
from structures.core.encoding import NEG_INF
from structures.core.kernel import arrays, kernel, require_columns, wide
from structures.core.runs import AT, BEGUN, RUN_WORDS, end_change
from structures.event_tree.changes import cut, cut_ends, put_ends, put_into, take
from structures.event_tree.layout import AT as AT_
from structures.event_tree.layout import NAME, ROW, VALUE, Tree, descend, key_of, name_of, slot_of
from structures.event_tree.search import find_dead, position_of_row
from structures.ordered.search import DEPTH, NOTHING_BEFORE, SEARCH_WORDS, Bounds, search_fill, search_start
from structures.ordered.tree import cut as take_out
from structures.ordered.tree import put as take_in

# Kinds of changes, in the order in which a batch takes them: so a row that stays flips at most once.
OUTER_MOVE, PARTNER_MOVE, OUTER_DELETE, PARTNER_INSERT, PARTNER_DELETE, OUTER_INSERT = range(6)
# Where rows without a partner are reported, the kinds of a step may be applied in the order in which they lie, so that their leaves are
# visited together: a row that goes or comes may then flip in addition, but is still reported once.
STEPS_UNMATCHED = np.array([0, 1, 2, 2, 3, 3], np.int8)
LONELY = KEY_MAX - 1  # the key of rows that can have no partner
BASE, EMITS_MATCHED, FLIPS, SEARCH = range(RUN_WORDS, RUN_WORDS + 4)  # words of the state; BASE: 1 if each row is its own partner
HITS = 4 * B  # most hits of a search at once
STATE_WORDS = SEARCH + SEARCH_WORDS


@arrays(Nodes, WriteState, Nodes, WriteState)
class Lists(NamedTuple):
    """The rows without a partner; if they are reported, those with one."""

    nodes: Any
    writing: Any
    its_nodes: Any
    its_writing: Any


@arrays("int8[::1]", "int32[::1]", "int64[::1]", "int64[::1]", "int32[::1]", "int32[::1]", "int64[::1]")
class Moves(NamedTuple):
    """Change number i concerns an outer row or a partner with this key and interval, at slot[i]; a move is from former[i]. done[i]: rows
    reported when it was done."""

    kind: np.ndarray
    key: np.ndarray
    left: np.ndarray
    right: np.ndarray
    slot: np.ndarray
    former: np.ndarray
    done: np.ndarray

    def require(self) -> None:
        """TypeError, ValueError unless the columns have these types and one length. O(1)."""
        require_columns((np.int8, np.int32, np.int64, np.int64, np.int32, np.int32, np.int64), self)


@arrays("int64[::1]", "int32[::1]", "int64[::1]")
class Scratch(NamedTuple):
    """The state, STATE_WORDS; hits of a search, and their ends."""

    Z: np.ndarray
    hits: np.ndarray
    ends: np.ndarray


class Row(NamedTuple):
    key: int
    left: int
    right: int
    slot: int


@kernel
def unlist(lists: Lists, row: Row) -> bool:
    """Remove a row from the unmatched ones; False if it is not among them."""
    return take_out(lists.nodes, lists.writing, 0, row.key, row.left, row.slot)


@kernel
def enlist(lists: Lists, row: Row) -> None:
    take_in(lists.nodes, lists.writing, 0, row.key, row.left, row.right, row.slot)


@kernel
def match(tree: Tree, lists: Lists, emits_matched: bool, row: Row) -> None:
    """Insert a row that has a partner."""
    match_in(tree, lists, emits_matched, row, descend(tree, name_of(row.key, ROW, row.slot), row.left))


@kernel
def match_if_met(tree: Tree, lists: Lists, emits_matched: bool, row: Row, base: int) -> bool:
    """Insert the row if it has a partner; otherwise return False, with nothing done. `base`: the number of partners that count as none."""
    leaf, is_matched = position_of_row(tree, row.key, row.left, row.right, row.slot, base)
    if is_matched:
        match_in(tree, lists, emits_matched, row, leaf)
    return is_matched


@kernel
def match_in(tree: Tree, lists: Lists, emits_matched: bool, row: Row, leaf: int) -> None:
    """As `match`. `leaf`: the leaf to which the row belongs, at the end of the path."""
    put_into(tree, leaf, name_of(row.key, ROW, row.slot), row.left, row.right)
    if emits_matched:
        take_in(lists.its_nodes, lists.its_writing, 0, row.key, row.left, row.right, row.slot)


@kernel
def unmatch(tree: Tree, lists: Lists, emits_matched: bool, row: Row) -> bool:
    """Remove a matched row; False if it is not there."""
    if emits_matched:
        take_out(lists.its_nodes, lists.its_writing, 0, row.key, row.left, row.slot)
    return cut(tree, name_of(row.key, ROW, row.slot), row.left)


@kernel("int64(Tree, Lists, Scratch, int32[::1], Moves, boolean)")
def run_moves(tree: Tree, lists: Lists, scratch: Scratch, out: Any, moves: Moves, deltas: bool) -> int:
    """Apply the changes from number Z[AT] on until all are done or `out` is full. Returns the number of rows reported: slots of those that
    come, ~slots of those that go. O(log n) a change, and a row reported."""
    Z = scratch.Z
    n, emits_matched = 0, Z[EMITS_MATCHED] != 0
    while Z[AT] < len(moves.kind):
        i = Z[AT]
        kind, missing = moves.kind[i], False
        row = Row(wide(moves.key[i]), moves.left[i], moves.right[i], wide(moves.slot[i]))
        if kind == OUTER_MOVE or kind == PARTNER_MOVE:
            missing = not move(tree, lists, emits_matched, kind == OUTER_MOVE, row, wide(moves.former[i]))
        elif kind == OUTER_DELETE or kind == OUTER_INSERT:
            if n == len(out):
                return n
            if kind == OUTER_INSERT:
                is_matched = row.key != LONELY and match_if_met(tree, lists, emits_matched, row, Z[BASE])
                if not is_matched:
                    enlist(lists, row)
            else:  # in most data more rows have a partner than have none
                is_matched = row.key != LONELY and unmatch(tree, lists, emits_matched, row)
                missing = not is_matched and not unlist(lists, row)
            if deltas and is_matched == emits_matched and not missing:
                out[n] = row.slot if kind == OUTER_INSERT else ~row.slot
                n += 1
        else:
            if Z[BEGUN] == 0:
                Z[BEGUN] = 1
                if kind == PARTNER_INSERT:
                    put_ends(tree, row.key, row.left, row.right, row.slot)
                elif not cut_ends(tree, row.key, row.left, row.right, row.slot):
                    Z[BEGUN] = 2
            found, emitted = True, 0
            while found:
                if len(out) - n < HITS:
                    return n
                emitted = join_hits(tree, lists, scratch, row) if kind == PARTNER_INSERT else part_dead(tree, lists, scratch)
                found = emitted > 0 and (Z[SEARCH + DEPTH] > 0 if kind == PARTNER_INSERT else emitted == HITS)
                for j in range(emitted if deltas else 0):
                    out[n] = scratch.hits[j] if emits_matched == (kind == PARTNER_INSERT) else ~scratch.hits[j]
                    n += 1
                Z[FLIPS] += emitted
            missing = Z[BEGUN] == 2
        end_change(Z, moves.done, n, missing)
    return n


@kernel
def move(tree: Tree, lists: Lists, emits_matched: bool, is_outer: bool, row: Row, former: int) -> bool:
    """Move a row, or a partner, to another slot; False if it was not there."""
    old = Row(row.key, row.left, row.right, former)
    if not is_outer:
        found = cut_ends(tree, row.key, row.left, row.right, former)
        put_ends(tree, row.key, row.left, row.right, row.slot)
        return found
    if unlist(lists, old):
        enlist(lists, row)
        return True
    found = unmatch(tree, lists, emits_matched, old)
    match(tree, lists, emits_matched, row)
    return found


@kernel
def join_hits(tree: Tree, lists: Lists, scratch: Scratch, partner: Row) -> int:
    """Match some unmatched rows that meet a partner. Returns their number; their slots are in `hits`. None is left when the search has
    ended."""
    Z, hits, ends, C = scratch.Z[SEARCH:], scratch.hits, scratch.ends, lists.writing.C
    bounds = Bounds(NEG_INF, NOTHING_BEFORE, partner.right, partner.left)
    search_start(Z, C[ROOT], C[HEIGHT], 0, partner.key, bounds)
    count = search_fill(lists.nodes, Z, hits, 0, ends)
    for j in range(count):
        row = Row(partner.key, ends[2 * j], ends[2 * j + 1], wide(hits[j]))
        unlist(lists, row)
        match(tree, lists, scratch.Z[EMITS_MATCHED] != 0, row)
    return count


@kernel
def part_dead(tree: Tree, lists: Lists, scratch: Scratch) -> int:
    """Unmatch at most HITS rows that have no partner any more. Returns their number; their slots are in `hits`."""
    L, count = tree.leaves, 0
    while count < HITS:
        leaf, p = find_dead(tree, scratch.Z[BASE])
        if p < 0:
            break
        name = L[leaf, NAME, p]
        row = Row(key_of(name), L[leaf, AT_, p], L[leaf, VALUE, p], slot_of(name))
        take(tree, leaf, p)
        if scratch.Z[EMITS_MATCHED] != 0:
            take_out(lists.its_nodes, lists.its_writing, 0, row.key, row.left, row.slot)
        enlist(lists, row)
        scratch.hits[count] = row.slot
        count += 1
    return count

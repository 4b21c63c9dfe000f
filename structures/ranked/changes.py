"""Changes of an ordered index, key by key: the rows that come first for the key, or at its places, before and after them.

The index is written in place, as all its blocks belong to one version: only the writer reads it.

Costs: O(log n) a change, O(log n + rows listed) a group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes, WriteState
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries
from structures.core.kernel import arrays, kernel, wide
from structures.index.changes import cut, put
from structures.index.layout import ARITY, HEAD, LEAF_ROOM, ROOT, slot_at
from structures.index.search import BEFORE, BEHIND, IndexPosition, Items, is_before, next_entry, same, seek, seek_last, seek_near
from structures.ordered.tree import cut as take_out
from structures.ordered.tree import put as take_in
from structures.ranked.tries import ARITY as WORDED_ARITY
from structures.ranked.tries import Words, cut_row, first_row, put_row

# Words of the state: the next group, whether it has been changed; rows to list for each key or place, whether entries may tie; entries that
# could not be changed; number of places found, the group's first one and the next one to be listed, whether there is something before all
# places of a key, whether words order the rows of a place.
GROUP, CHANGED, MOST, TIED, MISSING, POSITIONS, FIRST, LISTING, FILLED, WORDED, STATE_WORDS = range(11)
FULL = -1  # in place of rows: they do not fit


@arrays("int32[::1]", "int64[::1]", "int8[::1]", "int8[::1]")
class ListedRows(NamedTuple):
    """Rows that come first: in list number `of`, before or after its changes, in the order of the index. Rows of which some tie with an
    entry after the last one are not `sure`."""

    slot: np.ndarray
    of: np.ndarray
    after: np.ndarray
    sure: np.ndarray


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class Positions(NamedTuple):
    """Places of a key: the group, the place, and the last number before the next place, before the group's changes and after."""

    group: np.ndarray
    at: np.ndarray
    before: np.ndarray
    after: np.ndarray


@arrays(IndexPosition, "int64", "int64")
class RankedPosition(NamedTuple):
    """A place, and an entry there or the first one after it; leaf 0: there is none."""

    position: IndexPosition
    leaf: int
    i: int


@arrays("int64[::1]", "int64[::1]", Positions, Words)
class Visit(NamedTuple):
    """The state, room for a place, and the places found: at most two for each change; the words of rows, if they have any."""

    state: np.ndarray
    coordinates: np.ndarray
    positions: Positions
    words: Words


@kernel
def is_full(count: int, most: int, tied: int) -> bool:
    """Whether no more rows need be listed, except those that tie with the last one."""
    return count >= most and tied == 0


@kernel
def list_first(
    nodes: Nodes, root: int, arity: int, begin: RankedPosition, state: Any, listed: ListedRows, n: int, of: int
) -> tuple[int, int, int]:
    """List, from index n on, the first rows of those whose entries begin like this place. Returns the number of rows, or FULL, and where
    the scan ended."""
    M, W = nodes.M, nodes.W
    position, leaf, i = begin
    room, most, tied = LEAF_ROOM[arity], state[MOST], state[TIED]
    count, first, before, b = wide(0), wide(0), wide(0), wide(0)
    while leaf != 0 and not is_full(count, most, tied) and same(M, leaf, room, i, position.coordinates, position.start, 1, position.length):
        if count > 0 and not same(M, leaf, room, i, M, before + HEAD + b, room, arity):
            if count >= most:
                break
            first = count
        if n + count == len(listed.slot):
            return FULL, leaf, i
        listed.slot[n + count] = W[slot_at(leaf, arity, room) + i]
        count += 1
        before, b = leaf, i
        leaf, i = next_entry(nodes, root, arity, leaf, i)
    sure = count if count <= most else first
    for j in range(count):
        listed.of[n + j], listed.after[n + j], listed.sure[n + j] = of, state[CHANGED], j < sure
    return count, leaf, i


@kernel
def change_some(nodes: Nodes, writing: WriteState, h: int, items: Items, signs: Any, first: int, end: int) -> int:
    """Insert (sign > 0) or delete the entries from index `first` on. Returns how many could not be changed."""
    missing = 0
    for e in range(first, end):
        coordinates, start, slot = items.coordinates, e * items.width, wide(items.slots[e])
        done = put(nodes, writing, h, coordinates, start, slot) if signs[e] > 0 else cut(nodes, writing, h, coordinates, start, slot)
        missing += done < 0
    return missing


@kernel
def change_rows(nodes: Nodes, writing: WriteState, h: int, items: Items, signs: Any, first: int, end: int, words: Words) -> int:
    """As `change_some`, for rows ordered by words."""
    missing = 0
    for e in range(first, end):
        key, at, slot = items.coordinates[e * items.width], items.coordinates[e * items.width + 1], wide(items.slots[e])
        if signs[e] > 0:
            missing += not put_row(nodes, writing, h, key, at, slot, words)
        else:
            missing += not cut_row(nodes, writing, h, key, at, slot, words)
    return missing


@kernel
def list_row(nodes: Nodes, root: int, at: RankedPosition, words: Words, after: int, listed: ListedRows, n: int, of: int) -> int:
    """List the first row at a place as row n. Returns the number of rows, or FULL."""
    position, leaf, i = at
    if leaf == 0 or not same(nodes.M, leaf, LEAF_ROOM[WORDED_ARITY], i, position.coordinates, position.start, 1, position.length):
        return 0
    if n == len(listed.slot):
        return FULL
    listed.slot[n], listed.of[n], listed.after[n], listed.sure[n] = first_row(nodes, root, leaf, i, words), of, after, 1
    return 1


@kernel("int64(Nodes, WriteState, int64, Items, int8[::1], int64[::1], int64[::1], ListedRows)")
def change_groups(nodes: Nodes, writing: WriteState, h: int, items: Items, signs: Any, ends: Any, state: Any, listed: ListedRows) -> int:
    """Change the index at holder h group by group, from index state[GROUP] on, until all are done or no more rows fit. Returns the number
    of rows listed. The changes of group g, all of one key, end before ends[g]. O(log n) a change and a row listed."""
    C = writing.C
    arity, n = C[h + ARITY], 0
    while state[GROUP] < len(ends):
        g = state[GROUP]
        first = ends[g - 1] if g > 0 else wide(0)
        while True:
            position = IndexPosition(items.coordinates, first * items.width, 1, 1, BEFORE)
            leaf, i = seek(nodes, C[h + ROOT], arity, position)
            count, _, _ = list_first(nodes, C[h + ROOT], arity, RankedPosition(position, leaf, i), state, listed, n, g)
            if count == FULL:
                return n
            n += count
            if state[CHANGED] != 0:
                break
            state[MISSING] += change_some(nodes, writing, h, items, signs, first, ends[g])
            state[CHANGED] = 1
        state[CHANGED] = 0
        state[GROUP] = g + 1
    return n


@kernel
def seek_on(nodes: Nodes, root: int, arity: int, behind: RankedPosition, position: IndexPosition) -> tuple[int, int]:
    """As `seek`; `behind`: the first entry after an earlier place."""
    if behind.leaf == 0 or not is_before(nodes, behind.leaf, arity, LEAF_ROOM[arity], behind.i, position):
        return behind.leaf, behind.i
    return seek_near(nodes, root, arity, behind.leaf, behind.i, position)


@kernel
def go_behind(nodes: Nodes, root: int, arity: int, at: RankedPosition) -> tuple[int, int]:
    """The first entry after the place, starting from an entry there or from that entry."""
    coordinates, leaf, i = at.position.coordinates, at.leaf, at.i
    if leaf == 0 or not same(nodes.M, leaf, LEAF_ROOM[arity], i, coordinates, 0, 1, 2):
        return leaf, i
    return seek_near(nodes, root, arity, leaf, i, IndexPosition(coordinates, 0, 1, 2, BEHIND))


@kernel
def last_before(nodes: Nodes, arity: int, leaf: int, i: int, key: int) -> int:
    """The last number of the key before this entry, which is the first one after a place of the key."""
    if leaf == 0 or nodes.M[leaf + HEAD + i] != key:
        return wide(POS_INF)
    return nodes.M[leaf + HEAD + LEAF_ROOM[arity] + i] - 1


@kernel
def find_positions(nodes: Nodes, root: int, arity: int, items: Items, first: int, end: int, state: Any, positions: Positions) -> None:
    """Find the places that the changes of a group concern: their own, which ascend, and those before them, in order."""
    M, coordinates, begin = nodes.M, items.coordinates, state[POSITIONS]
    for e in range(first, end):
        start, n = e * items.width, state[POSITIONS]
        key, at = coordinates[start], coordinates[start + 1]
        if n > begin and positions.at[n - 1] == at:
            continue
        leaf, i = seek_last(nodes, root, arity, IndexPosition(coordinates, start, 1, 2, BEFORE))
        has = leaf != 0 and M[leaf + HEAD + i] == key
        before = M[leaf + HEAD + LEAF_ROOM[arity] + i] if has else wide(NEG_INF)
        if (has or (state[FILLED] != 0 and at != NEG_INF)) and (n == begin or before > positions.at[n - 1]):
            positions.group[n], positions.at[n] = state[GROUP], before
            n += 1
        positions.group[n], positions.at[n] = state[GROUP], at
        state[POSITIONS] = n + 1


@kernel("int64(Nodes, WriteState, int64, Items, int8[::1], int64[::1], Visit, ListedRows)")
def change_positions(
    nodes: Nodes, writing: WriteState, h: int, items: Items, signs: Any, ends: Any, visit: Visit, listed: ListedRows
) -> int:
    """As `change_groups`; the changes of a group ascend by their places, and it lists the first row at each place that they concern, and
    how far the place extends. O(log n) a change and a row listed."""
    C, state, coordinates, positions, words = writing.C, visit.state, visit.coordinates, visit.positions, visit.words
    arity, n = C[h + ARITY], 0
    while state[GROUP] < len(ends):
        g = state[GROUP]
        first = ends[g - 1] if g > 0 else wide(0)
        coordinates[0] = items.coordinates[first * items.width]
        if state[CHANGED] == 0 and state[LISTING] == state[POSITIONS]:  # otherwise it continues
            state[FIRST] = state[POSITIONS]
            find_positions(nodes, C[h + ROOT], arity, items, first, ends[g], state, positions)
        while True:
            until = positions.after if state[CHANGED] != 0 else positions.before
            position = IndexPosition(coordinates, 0, 1, 2, BEFORE)
            leaf, i, is_known = wide(0), wide(0), False
            while state[LISTING] < state[POSITIONS]:
                j = state[LISTING]
                coordinates[1] = positions.at[j]
                if is_known:
                    leaf, i = seek_on(nodes, C[h + ROOT], arity, RankedPosition(position, leaf, i), position)
                else:
                    leaf, i = seek(nodes, C[h + ROOT], arity, position)
                if state[WORDED] != 0:
                    count = list_row(nodes, C[h + ROOT], RankedPosition(position, leaf, i), words, state[CHANGED], listed, n, j)
                else:
                    count, leaf, i = list_first(nodes, C[h + ROOT], arity, RankedPosition(position, leaf, i), state, listed, n, j)
                if count == FULL:
                    return n
                n += count
                leaf, i = go_behind(nodes, C[h + ROOT], arity, RankedPosition(position, leaf, i))
                is_known = True
                until[j] = last_before(nodes, arity, leaf, i, coordinates[0])
                state[LISTING] = j + 1
            if state[CHANGED] != 0:
                break
            if state[WORDED] != 0:
                state[MISSING] += change_rows(nodes, writing, h, items, signs, first, ends[g], words)
            else:
                state[MISSING] += change_some(nodes, writing, h, items, signs, first, ends[g])
            state[CHANGED], state[LISTING] = 1, state[FIRST]
        state[CHANGED] = 0
        state[GROUP] = g + 1
    return n


@kernel("int64(Nodes, WriteState, int8[::1], Entries)")
def change_list(nodes: Nodes, writing: WriteState, signs: Any, entries: Entries) -> int:
    """Change a list of rows. Returns how many could not be changed, as they were not there. O(log n) a row."""
    missing = 0
    for e in range(len(signs)):
        key, left, slot = wide(entries.key[e]), entries.left[e], wide(entries.slot[e])
        if signs[e] > 0:
            take_in(nodes, writing, 0, key, left, entries.right[e], slot)
        elif not take_out(nodes, writing, 0, key, left, slot):
            missing += 1
    return missing

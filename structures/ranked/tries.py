"""The first row at a place in the order of words, under updates: for rows that are distinguished by a text, not a number.

Problem: rows (key, place) are distinguished by sequences of int64, none of which is a prefix of another. Find the row at a place whose
words come first.

    (key, place, word, 0)         the only row there whose words begin with this one, with its slot
    (key, place, word, n)         several: node n distinguishes them, by the word that follows
    (OF_NODE, m, word, 0 or n)    likewise below node m

All of these are entries of one ordered index, written in place (`entries.py`). A row is only as deep as others require: a node is made when
a second row comes whose words begin alike, and dropped with the last row below it.

Invariants, by which `check_nodes` names what broke:
    W1  each node is named by one entry
    W2  each node has an entry

Costs (w words, n rows): O(w log n) a row that comes or goes; O(log n) a node on the path to the first row of a place. Memory 36 bytes a
row, and as much for each node. Source: tries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes, WriteState
from structures.core.kernel import arrays, kernel, wide
from structures.index.changes import cut, put
from structures.index.indexes import Entries
from structures.index.layout import HEAD, LEAF_ROOM, ROOT, slot_at
from structures.index.search import BEFORE, IndexPosition, Items, has_prefix, same, seek

ARITY = 4
BELOW = 3  # the coordinate that names a node
OF_NODE = -1  # in place of a key
NOBODY = -1  # in place of a slot
LAST, LOOKED, WORDS_STATE = range(3)  # the last node made, nodes visited so far
_ENTRY, _LEVEL = 4, 3  # words of an entry, of a level of the path


@arrays("int32[::1]", "int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class Words(NamedTuple):
    """The row at slots[i] has words[starts[i]:starts[i + 1]]; slots ascend. The state, WORDS_STATE; room for an entry and for a path."""

    slots: np.ndarray
    starts: np.ndarray
    words: np.ndarray
    state: np.ndarray
    entry: np.ndarray
    path: np.ndarray


def words_with(slots: np.ndarray, starts: np.ndarray, words: np.ndarray, state: np.ndarray) -> Words:
    """Words with new state and room."""
    longest = int(np.diff(starts).max(initial=0))
    return Words(slots, starts, words, state, np.empty(_ENTRY, np.int64), np.empty(_LEVEL * longest, np.int64))


def no_words(state: np.ndarray) -> Words:
    return words_with(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int64), state)


@kernel
def words_of(words: Words, slot: int) -> tuple[int, int]:
    """The first and the end of the words of a row; an empty range if they are unknown."""
    slots, low, high = words.slots, 0, len(words.slots)
    while low < high:
        middle = (low + high) >> 1
        if slots[middle] < slot:
            low = middle + 1
        else:
            high = middle
    if low == len(slots) or slots[low] != slot:
        return wide(0), wide(0)
    return words.starts[low], words.starts[low + 1]


@kernel
def find_word(nodes: Nodes, root: int, entry: Any) -> tuple[int, int]:
    """The entry that begins with entry[:3]; leaf 0 if there is none."""
    leaf, i = seek(nodes, root, ARITY, IndexPosition(entry, 0, 1, 3, BEFORE))
    if leaf != 0 and same(nodes.M, leaf, LEAF_ROOM[ARITY], i, entry, 0, 1, 3):
        return leaf, i
    return wide(0), wide(0)


@kernel
def below(nodes: Nodes, leaf: int, i: int) -> int:
    """The node that an entry names; 0 if the entry is that of a row."""
    return nodes.M[leaf + HEAD + BELOW * LEAF_ROOM[ARITY] + i]


@kernel
def row_at(nodes: Nodes, leaf: int, i: int) -> int:
    """The slot of an entry."""
    return wide(nodes.W[slot_at(leaf, ARITY, LEAF_ROOM[ARITY]) + i])


@kernel
def first_row(nodes: Nodes, root: int, leaf: int, i: int, words: Words) -> int:
    """The slot of the first row of an entry and those below it."""
    entry, state = words.entry, words.state
    node = below(nodes, leaf, i)
    while node != 0:
        entry[0], entry[1] = OF_NODE, node
        leaf, i = seek(nodes, root, ARITY, IndexPosition(entry, 0, 1, 2, BEFORE))
        node = below(nodes, leaf, i)
        state[LOOKED] += 1
    return row_at(nodes, leaf, i)


@kernel
def put_row(nodes: Nodes, writing: WriteState, h: int, key: int, at: int, slot: int, words: Words) -> bool:
    """Insert a row. False, and nothing done: there is a row with the same words, or required words are unknown."""
    C, entry, state = writing.C, words.entry, words.state
    begin, end = words_of(words, slot)
    entry[0], entry[1] = key, at
    for w in range(begin, end):
        entry[2] = words.words[w]
        leaf, i = find_word(nodes, C[h + ROOT], entry)
        if leaf == 0:
            entry[3] = 0
            put(nodes, writing, h, entry, 0, slot)
            return True
        node = below(nodes, leaf, i)
        if node == 0:
            other = row_at(nodes, leaf, i)
            first, last = words_of(words, other)
            next_ = first + w - begin + 1
            if w + 1 == end or next_ >= last:
                return False
            state[LAST] += 1
            node = state[LAST]
            entry[3] = 0
            cut(nodes, writing, h, entry, 0, other)
            entry[3] = node
            put(nodes, writing, h, entry, 0, 0)
            entry[0], entry[1], entry[2], entry[3] = OF_NODE, node, words.words[next_], 0
            put(nodes, writing, h, entry, 0, other)
        entry[0], entry[1] = OF_NODE, node
        state[LOOKED] += 1
    return False


@kernel
def cut_row(nodes: Nodes, writing: WriteState, h: int, key: int, at: int, slot: int, words: Words) -> bool:
    """Delete a row, with the nodes that have no other row. False, and nothing done: the row is not there."""
    C, entry, state, path = writing.C, words.entry, words.state, words.path
    begin, end = words_of(words, slot)
    entry[0], entry[1] = key, at
    node, w = wide(-1), begin
    while node != 0:
        if w == end:
            return False
        entry[2] = words.words[w]
        leaf, i = find_word(nodes, C[h + ROOT], entry)
        if leaf == 0:
            return False
        node = below(nodes, leaf, i)
        if node != 0:
            level = _LEVEL * (w - begin)
            path[level], path[level + 1], path[level + 2] = entry[0], entry[1], entry[2]
            entry[0], entry[1] = OF_NODE, node
            state[LOOKED] += 1
            w += 1
    entry[3] = 0
    if cut(nodes, writing, h, entry, 0, slot) < 0:
        return False
    while w > begin and not has_prefix(nodes, C[h + ROOT], ARITY, entry, 0, 1, 2):
        w -= 1
        level = _LEVEL * (w - begin)
        entry[3] = entry[1]
        entry[0], entry[1], entry[2] = path[level], path[level + 1], path[level + 2]
        cut(nodes, writing, h, entry, 0, 0)
    return True


@kernel("void(Nodes, int64, Items, Words, int32[::1])")
def find_neighbours(nodes: Nodes, root: int, items: Items, words: Words, found: Any) -> None:
    """For each of these rows (key, place), find the row to which its own words lead; NOBODY if there is none. O(log n) each, and a word."""
    entry = words.entry
    for e in range(len(found)):
        found[e] = NOBODY
        begin, end = words_of(words, wide(items.slots[e]))
        entry[0], entry[1] = items.coordinates[e * items.width], items.coordinates[e * items.width + 1]
        for w in range(begin, end):
            entry[2] = words.words[w]
            leaf, i = find_word(nodes, root, entry)
            if leaf == 0:
                break
            node = below(nodes, leaf, i)
            if node == 0:
                found[e] = row_at(nodes, leaf, i)
                break
            entry[0], entry[1] = OF_NODE, node


@kernel("void(Nodes, int64, Items, Words, int32[::1])")
def find_firsts(nodes: Nodes, root: int, items: Items, words: Words, found: Any) -> None:
    """For each of these places, which have rows, find the first row. O(log n) each, and a word."""
    for e in range(len(found)):
        leaf, i = seek(nodes, root, ARITY, IndexPosition(items.coordinates, e * items.width, 1, 2, BEFORE))
        found[e] = first_row(nodes, root, leaf, i, words)


def expanded(entries: Entries, starts: np.ndarray, words: np.ndarray) -> tuple[Entries, int]:
    """The entries of all rows at once, in no order, and the number of nodes that they name; `entries`: key and place of each row, whose
    words are words[starts[i]:starts[i + 1]]. Cost: a sort for each word that rows have in common."""
    rows, names = np.arange(len(entries.slot)), entries.coordinates[:, :2]
    parts, slots, depth, made = [np.empty((0, ARITY), np.int64)], [np.empty(0, np.int32)], 0, 0
    while len(rows):
        mine = np.column_stack((names, words[starts[rows] + depth]))
        order = np.lexsort((mine[:, 2], mine[:, 1], mine[:, 0]))
        mine, rows = mine[order], rows[order]
        begins = np.flatnonzero(np.append(True, (mine[1:] != mine[:-1]).any(axis=1)))
        counts = np.diff(begins, append=len(rows))
        numbers = np.where(counts > 1, made + np.cumsum(counts > 1), 0)
        parts.append(np.column_stack((mine[begins], numbers)))
        slots.append(np.where(counts > 1, 0, entries.slot[rows[begins]]).astype(np.int32))
        several = np.repeat(counts > 1, counts)
        made, depth, rows = made + int(np.count_nonzero(counts > 1)), depth + 1, rows[several]
        names = np.column_stack((np.full(len(rows), OF_NODE), np.repeat(numbers, counts)[several]))
    return Entries(np.concatenate(parts), np.concatenate(slots)), made


def check_nodes(entries: Entries) -> None:
    """Prove the invariants, given all entries."""
    named = np.sort(entries.coordinates[entries.coordinates[:, BELOW] != 0, BELOW])
    assert (np.diff(named) > 0).all(), "W1: two entries name one node"
    there = np.unique(entries.coordinates[entries.coordinates[:, 0] == OF_NODE, 1])
    assert np.array_equal(named, there), "W1, W2: a node has no entry, or no entry names it"

r"""The constraint tree: the parts of the space of all tuples that are known to have no row of the join.

A tuple has a value for each *level*, the variables in the order of the search. A *constraint* is a pattern, a value or `*` for each level
before some level d, and an interval of values of level d: no tuple that agrees with the pattern and has a value of the interval is a row.
Patterns are the nodes of a tree; a node of depth d has the intervals of level d.

    root (depth 0)        intervals of level 0
    +- = 2                intervals of level 1 where level 0 is 2
    |  +- *               intervals of level 2 where level 0 is 2
    +- *                  intervals of level 1, whatever level 0 is

Intervals are closed, and none is empty. Those of one node neither overlap nor touch: an insert merges with what it meets.

Nodes lie in a table, NODE_WORDS words each; children by value are found by `hashed`, open addressing with the number of the node. The
intervals of all nodes are entries (node, low, high) in one tree of `index/changes.py`, in a private store whose
version does not change, so it is written in place. A tree is a cache: lost intervals are found again.

Invariants, by which `check()` names what broke
    M3  the intervals of a node are not empty, do not overlap or touch, and are as many as it counts
    M4  a node is found by its parent and label, and its bits are the levels that have a value in its pattern

Costs: child, next_free O(log n); put_interval O(log n) amortised; clear O(nodes + blocks). Source: *Beyond Worst-case Analysis for Joins
with Minesweeper*, Section 3.3.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Blocks, Nodes, WriteState
from structures.core.control import KEPT, VERSION
from structures.core.hashing import SECRET, begin_hash, end_hash, take_long, take_word
from structures.core.kernel import arrays, compiled, kernel, wide
from structures.index import layout
from structures.index.changes import cut, drop_all, put
from structures.index.check import entries_of
from structures.index.layout import HEAD, LEAF_ROOM
from structures.index.search import BEFORE, BEHIND, IndexPosition, seek, seek_last

MOST_LEVELS = 8
LEAST, GREATEST = -(2**63), 2**63 - 1

# Words of the table: of the tree, in place of node 0; then of each node. PLACE: in `hashed`, or -1. Of the tree: nodes, with node 0;
# intervals; the most; the number of nodes when the lists were made; the key of the hash. WHOLE: see `triangle.py`.
MADE, INTERVALS, MOST, LISTED, HASH_KEY = range(5)
PARENT, LABEL, STAR, BITS, DEPTH, WHOLE, COUNT, POSITION = range(8)
NODE_WORDS = 8
ROOT = 1

# Words of the scratch: a key; for each level, the number of nodes that generalise the tuple so far, and these nodes; then the arrays of
# `shadow.py` for one level.
KEY, SIZES, LISTS = 0, 4, 16
LIST = 1 << (MOST_LEVELS - 1)  # most nodes of one level
SCRATCH = LISTS + LIST * MOST_LEVELS
SCRATCH_WORDS = SCRATCH + 5 * LIST + 8

SPARE = 80  # most nodes, and intervals, that inserts may need before room is checked again
_H = layout.TREES  # the holder
_ARITY = 3
_FIRST = 256  # nodes at first
_WORDS_EACH = 32  # words of an interval at worst: leaves a quarter full, and inner nodes


@arrays(Nodes, WriteState, "int64[::1]", "int64[::1]", "int64[::1]")
class Constraints(NamedTuple):
    """The arrays of a tree: the store of its intervals, nodes, children, scratch."""

    nodes: Nodes
    writing: WriteState
    table: np.ndarray
    hashed: np.ndarray
    scratch: np.ndarray


@kernel
def position_of(tree: Constraints, v: int, label: int) -> int:
    """The place of node v's child with this value in `hashed`, or the one where it would be inserted."""
    table, hashed = tree.table, tree.hashed
    mask = len(hashed) - 1
    state = take_word(begin_hash(table[HASH_KEY], table[HASH_KEY + 1]), v)
    h = end_hash(take_long(state, label)) & mask
    while hashed[h] != 0:
        u = NODE_WORDS * hashed[h]
        if table[u + PARENT] == v and table[u + LABEL] == label:
            break
        h = (h + 1) & mask
    return h


@kernel
def child(tree: Constraints, v: int, label: int) -> int:
    """Node v's child with this value; 0 if there is none."""
    return tree.hashed[position_of(tree, v, label)]


@kernel
def new_node(tree: Constraints, v: int, label: int, bits: int, position: int) -> int:
    """Make a node below v without intervals."""
    table = tree.table
    new = table[MADE]
    table[MADE] = new + 1
    u = NODE_WORDS * new
    table[u + PARENT], table[u + LABEL], table[u + STAR], table[u + BITS] = v, label, 0, bits
    table[u + DEPTH], table[u + COUNT], table[u + POSITION] = table[NODE_WORDS * v + DEPTH] + 1, 0, position
    return new


@kernel
def node_of(tree: Constraints, bits: int, depth: int, values: Any, at: int) -> int:
    """The node of this depth whose pattern has the values values[at:] at the levels of `bits`, made if necessary: there is room for it."""
    table, hashed = tree.table, tree.hashed
    v = wide(ROOT)
    for d in range(depth):
        if (bits >> d) & 1 != 0:
            h = position_of(tree, v, values[at + d])
            if hashed[h] == 0:
                hashed[h] = new_node(tree, v, values[at + d], table[NODE_WORDS * v + BITS] | (wide(1) << d), h)
            v = hashed[h]
        else:
            if table[NODE_WORDS * v + STAR] == 0:
                table[NODE_WORDS * v + STAR] = new_node(tree, v, 0, table[NODE_WORDS * v + BITS], -1)
            v = table[NODE_WORDS * v + STAR]
    return v


@kernel
def is_short(tree: Constraints) -> bool:
    """Whether the tree lacks room for necessary inserts: it must grow, or be cleared."""
    table = tree.table
    return table[MADE] + SPARE > len(table) // NODE_WORDS or table[INTERVALS] + SPARE > table[MOST]


@kernel
def root_of(tree: Constraints) -> int:
    return tree.writing.C[_H + layout.ROOT]


@kernel
def position(tree: Constraints, v: int, x: int, slot: int) -> IndexPosition:
    """The place before (BEFORE) or after (BEHIND) the interval of node v that begins at x."""
    scratch = tree.scratch
    scratch[KEY], scratch[KEY + 1] = v, x
    return IndexPosition(scratch, KEY, 1, 2, slot)


@kernel
def next_free(tree: Constraints, v: int, x: int) -> tuple[bool, int]:
    """The least value >= x in no interval of node v: whether there is one, and the value."""
    M = tree.nodes.M
    room = LEAF_ROOM[_ARITY]
    leaf, i = seek_last(tree.nodes, root_of(tree), _ARITY, position(tree, v, x, BEHIND))
    if leaf == 0 or M[leaf + HEAD + i] != v:
        return True, x
    high = M[leaf + HEAD + 2 * room + i]
    if high < x:
        return True, x
    return high != GREATEST, x if high == GREATEST else high + 1


@kernel
def take_out(tree: Constraints, v: int, low: int, high: int) -> None:
    """Delete an interval of node v."""
    table, scratch = tree.table, tree.scratch
    scratch[KEY], scratch[KEY + 1], scratch[KEY + 2] = v, low, high
    cut(tree.nodes, tree.writing, _H, scratch, KEY, 0)
    table[NODE_WORDS * v + COUNT] -= 1
    table[INTERVALS] -= 1


@kernel
def put_interval(tree: Constraints, v: int, low: int, high: int) -> bool:
    """Insert a nonempty interval, merged with all that it meets; False if one of node v's covers it."""
    M, table, scratch = tree.nodes.M, tree.table, tree.scratch
    room = LEAF_ROOM[_ARITY]
    leaf, i = seek_last(tree.nodes, root_of(tree), _ARITY, position(tree, v, low, BEHIND))
    if leaf != 0 and M[leaf + HEAD + i] == v:
        first, last = M[leaf + HEAD + room + i], M[leaf + HEAD + 2 * room + i]
        if last >= high:
            return False
        if last >= low or last + 1 == low:
            take_out(tree, v, first, last)
            low = first
    while True:
        leaf, i = seek(tree.nodes, root_of(tree), _ARITY, position(tree, v, low, BEFORE))
        if leaf == 0 or M[leaf + HEAD + i] != v:
            break
        first, last = M[leaf + HEAD + room + i], M[leaf + HEAD + 2 * room + i]
        if first > high and first - 1 != high:
            break
        take_out(tree, v, first, last)
        high = max(high, last)
    scratch[KEY], scratch[KEY + 1], scratch[KEY + 2] = v, low, high
    put(tree.nodes, tree.writing, _H, scratch, KEY, 0)
    table[NODE_WORDS * v + COUNT] += 1
    table[INTERVALS] += 1
    return True


@kernel("void(Constraints)")
def clear(tree: Constraints) -> None:
    """Empty the tree. Cost: O(nodes + blocks)."""
    table, hashed = tree.table, tree.hashed
    if root_of(tree) != 0:
        drop_all(tree.nodes, tree.writing, _H)
    for v in range(ROOT, table[MADE]):
        if table[NODE_WORDS * v + POSITION] >= 0:
            hashed[table[NODE_WORDS * v + POSITION]] = 0
    for word in range(NODE_WORDS):
        table[NODE_WORDS * ROOT + word] = 0
    table[NODE_WORDS * ROOT + POSITION] = -1
    table[MADE], table[INTERVALS], table[LISTED] = ROOT + 1, 0, 0


@kernel("void(Constraints)")
def find_positions(tree: Constraints) -> None:
    """Insert all nodes into `hashed`, which is empty and has room for them. Cost: O(nodes)."""
    table, hashed = tree.table, tree.hashed
    for v in range(ROOT + 1, table[MADE]):
        u = NODE_WORDS * v
        if table[u + POSITION] >= 0:
            table[u + POSITION] = position_of(tree, table[u + PARENT], table[u + LABEL])
            hashed[table[u + POSITION]] = v


class Size(NamedTuple):
    """The most nodes and intervals of a tree. An interval takes about 45 to 60 bytes, a node 96 to 128."""

    nodes: int
    intervals: int


MOST_SIZE = Size(1 << 16, 1 << 17)  # about 16 MiB


class ConstraintTree:
    """Only the holder of `lock` may read and write it."""

    def __init__(self, size: Size = MOST_SIZE) -> None:
        self.lock = Lock()
        self._size = size
        words = _WORDS_EACH * (size.intervals + SPARE)
        self._store = Blocks((layout.BLOCK,), layout.TREES + layout.TREE_WORDS - KEPT, words)
        self._store.C[VERSION], self._store.C[_H + layout.ARITY] = 1, _ARITY
        table = np.zeros(NODE_WORDS * min(_FIRST, size.nodes), np.int64)
        table[MADE], table[MOST] = ROOT + 1, size.intervals
        table[HASH_KEY : HASH_KEY + 2] = SECRET
        table[NODE_WORDS * ROOT + POSITION] = -1
        scratch = np.zeros(SCRATCH_WORDS, np.int64)
        self.arrays = Constraints(self._store.nodes, self._store.writing, table, self._children(table), scratch)

    def _children(self, table: np.ndarray) -> np.ndarray:
        return np.zeros(1 << (2 * len(table) // NODE_WORDS - 1).bit_length(), np.int64)

    def clear(self) -> None:
        """Empty the tree."""
        compiled(clear)(self.arrays)

    def make_room(self) -> int:
        """Grow, or be cleared if that is impossible. Returns the number of intervals lost, or -1."""
        if not is_short(self.arrays):
            return -1
        table = self.arrays.table
        have = len(table) // NODE_WORDS
        if table[INTERVALS] + SPARE > table[MOST] or have >= self._size.nodes:
            lost = int(table[INTERVALS])
            self.clear()
            return lost
        larger = np.zeros(NODE_WORDS * min(2 * have, self._size.nodes), np.int64)
        larger[: len(table)] = table
        self.arrays = self.arrays._replace(table=larger, hashed=self._children(larger))
        compiled(find_positions)(self.arrays)
        return -1

    @property
    def bytes(self) -> int:
        return self._store.live_bytes + 8 * (len(self.arrays.table) + len(self.arrays.hashed) + len(self.arrays.scratch))

    def intervals(self) -> list[tuple[int, ...]]:
        """Node, low and high of all, in order, and 0. Slow, for tests."""
        C = self._store.C
        root = int(C[_H + layout.ROOT])
        seen: dict[int, int] = {}
        return entries_of(self._store, _ARITY, root, True, seen) if root else []  # type: ignore[arg-type]  # its blocks are alike

    def pattern(self, v: int) -> tuple[int | None, ...]:
        """The pattern of a node: for each level before its depth the value, None for `*`."""
        table, found = self.arrays.table, []
        while v != ROOT:
            u, above = NODE_WORDS * v, NODE_WORDS * int(table[NODE_WORDS * v + PARENT])
            found.append(int(table[u + LABEL]) if table[u + BITS] != table[above + BITS] else None)
            v = int(table[u + PARENT])
        return tuple(reversed(found))

    def _check_intervals(self) -> dict[int, list[tuple[int, int]]]:
        """The intervals of each node that has any; AssertionError names M3."""
        table, found = self.arrays.table, dict[int, list[tuple[int, int]]]()
        for v, low, high, _ in self.intervals():
            mine = found.setdefault(v, [])
            assert low <= high and (not mine or mine[-1][1] < low - 1), f"M3: intervals of node {v} at {low}"
            mine.append((low, high))
        for v in range(ROOT, int(table[MADE])):
            counted, count = int(table[NODE_WORDS * v + COUNT]), len(found.get(v, []))
            assert counted == count, f"M3: node {v} counts {counted} intervals, it has {count}"
        assert int(table[INTERVALS]) == sum(map(len, found.values())), "M3: intervals are not as many as counted"
        return found

    def check(self) -> None:
        """Prove M3 and M4; AssertionError names the invariant."""
        table, hashed = self.arrays.table, self.arrays.hashed
        self._check_intervals()
        for v in range(ROOT, int(table[MADE])):
            u = NODE_WORDS * v
            bits = sum(1 << d for d, value in enumerate(self.pattern(v)) if value is not None)
            assert int(table[u + BITS]) == bits and int(table[u + DEPTH]) == len(self.pattern(v)), f"M4: the pattern of node {v}"
            assert table[u + POSITION] < 0 or hashed[table[u + POSITION]] == v, f"M4: node {v} is not at its place"

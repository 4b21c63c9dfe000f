r"""The constraint tree: the parts of the space of all tuples that are known to have no row of the join.

A tuple has a value for each *level*, the variables in the order of the search. A *constraint* is a pattern, a value or `*` for each level
before some level d, and an interval of values of level d: no tuple that agrees with the pattern and has a value of the interval is a row.
Patterns are the nodes of a tree; a node of depth d has the intervals of level d.

    root (depth 0)        intervals of level 0
    +- = 2                intervals of level 1 where level 0 is 2
    |  +- *               intervals of level 2 where level 0 is 2
    +- *                  intervals of level 1, whatever level 0 is

Intervals are closed, and none is empty. Those of one node neither overlap nor touch: an insert merges with what it meets. Each has a
*mask*, the atoms that it follows from, a bit each: none of its tuples is in all of them. The mask of a merged interval is the union.

Nodes lie in a table, NODE_WORDS words each; children by value are found by `hashed`, open addressing with the number of the node. The
intervals of all nodes are entries (node, low, high) with the mask as their slot in one tree of `index/changes.py`, in a private store whose
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
from structures.index.layout import HEAD, LEAF_ROOM, slot_at
from structures.index.search import BEFORE, BEHIND, IndexPosition, seek, seek_last

MOST_LEVELS = 8
LEAST, GREATEST = -(2**63), 2**63 - 1

# Words of the table: of the tree, in place of node 0; then of each node. PLACE: in `hashed`, or -1. Of the tree: nodes, with node 0;
# intervals; the most; rows of the log to apply; the number of nodes when the lists were made; the key of the hash.
MADE, INTERVALS, MOST, LOGGED, LISTED, HASH_KEY = range(6)
PARENT, LABEL, STAR, BITS, DEPTH, SEEN, COUNT, POSITION = range(8)
NODE_WORDS = 8
ROOT = 1

# Words of the scratch: a key; for each level, the number of nodes that generalise the tuple so far, and these nodes; then the arrays of
# `shadow.py` for one level.
KEY, SIZES, LISTS = 0, 4, 16
LIST = 1 << (MOST_LEVELS - 1)  # most nodes of one level
SCRATCH = LISTS + LIST * MOST_LEVELS
SCRATCH_WORDS = SCRATCH + 6 * LIST + 8

# Words of a row of the log: the bit of the atom, its levels, a bit each, and the tuple's value for each.
ATOM_BIT, HAS, VALUE = range(3)
LOG_WORDS = VALUE + MOST_LEVELS
MOST_LOGGED = 1024

SPARE = 80  # most nodes, and intervals, that inserts may need before room is checked again
_H = layout.TREES  # the holder
_ARITY = 3
_FIRST = 256  # nodes at first
_WORDS_EACH = 32  # words of an interval at worst: leaves a quarter full, and inner nodes


@arrays(Nodes, WriteState, "int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class Constraints(NamedTuple):
    """The arrays of a tree: the store of its intervals, nodes, children, scratch, log."""

    nodes: Nodes
    writing: WriteState
    table: np.ndarray
    hashed: np.ndarray
    scratch: np.ndarray
    log: np.ndarray


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
    table[u + DEPTH], table[u + SEEN], table[u + COUNT], table[u + POSITION] = table[NODE_WORDS * v + DEPTH] + 1, table[LOGGED], 0, position
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
def next_free(tree: Constraints, v: int, x: int) -> tuple[bool, int, int]:
    """The least value >= x in no interval of node v: whether there is one, and the value; and the mask of the interval that contains x, or
    0."""
    M, W = tree.nodes.M, tree.nodes.W
    room = LEAF_ROOM[_ARITY]
    leaf, i = seek_last(tree.nodes, root_of(tree), _ARITY, position(tree, v, x, BEHIND))
    if leaf == 0 or M[leaf + HEAD + i] != v:
        return True, x, wide(0)
    high = M[leaf + HEAD + 2 * room + i]
    if high < x:
        return True, x, wide(0)
    mask = wide(W[slot_at(leaf, _ARITY, room) + i])
    if high == GREATEST:
        return False, x, mask
    return True, high + 1, mask


@kernel
def take_out(tree: Constraints, v: int, low: int, high: int, mask: int) -> None:
    """Delete an interval of node v."""
    table, scratch = tree.table, tree.scratch
    scratch[KEY], scratch[KEY + 1], scratch[KEY + 2] = v, low, high
    cut(tree.nodes, tree.writing, _H, scratch, KEY, mask)
    table[NODE_WORDS * v + COUNT] -= 1
    table[INTERVALS] -= 1


@kernel
def put_in(tree: Constraints, v: int, low: int, high: int, mask: int) -> None:
    """Insert an interval that meets none of node v's."""
    table, scratch = tree.table, tree.scratch
    scratch[KEY], scratch[KEY + 1], scratch[KEY + 2] = v, low, high
    put(tree.nodes, tree.writing, _H, scratch, KEY, mask)
    table[NODE_WORDS * v + COUNT] += 1
    table[INTERVALS] += 1


@kernel
def put_interval(tree: Constraints, v: int, low: int, high: int, mask: int) -> bool:
    """Insert a nonempty interval, merged with all that it meets; False if one of node v's covers it."""
    M, W = tree.nodes.M, tree.nodes.W
    room = LEAF_ROOM[_ARITY]
    leaf, i = seek_last(tree.nodes, root_of(tree), _ARITY, position(tree, v, low, BEHIND))
    if leaf != 0 and M[leaf + HEAD + i] == v:
        first, last = M[leaf + HEAD + room + i], M[leaf + HEAD + 2 * room + i]
        if last >= high:
            return False
        if last >= low or last + 1 == low:
            other = wide(W[slot_at(leaf, _ARITY, room) + i])
            take_out(tree, v, first, last, other)
            low, mask = first, mask | other
    while True:
        leaf, i = seek(tree.nodes, root_of(tree), _ARITY, position(tree, v, low, BEFORE))
        if leaf == 0 or M[leaf + HEAD + i] != v:
            break
        first, last = M[leaf + HEAD + room + i], M[leaf + HEAD + 2 * room + i]
        if first > high and first - 1 != high:
            break
        other = wide(W[slot_at(leaf, _ARITY, room) + i])
        take_out(tree, v, first, last, other)
        high, mask = max(high, last), mask | other
    put_in(tree, v, low, high, mask)
    return True


@kernel
def cut_value(tree: Constraints, v: int, x: int, bit: int) -> None:
    """Remove this value from node v's interval, if the interval's mask has the atom of the bit."""
    M, W = tree.nodes.M, tree.nodes.W
    room = LEAF_ROOM[_ARITY]
    leaf, i = seek_last(tree.nodes, root_of(tree), _ARITY, position(tree, v, x, BEHIND))
    if leaf == 0 or M[leaf + HEAD + i] != v:
        return
    low, high, mask = M[leaf + HEAD + room + i], M[leaf + HEAD + 2 * room + i], wide(W[slot_at(leaf, _ARITY, room) + i])
    if high < x or mask & bit == 0:
        return
    take_out(tree, v, low, high, mask)
    if low < x:
        put_in(tree, v, low, x - 1, mask)
    if high > x:
        put_in(tree, v, x + 1, high, mask)


@kernel
def drop_intervals(tree: Constraints, v: int, bit: int) -> int:
    """Delete all intervals of node v whose masks have the atom of the bit. Returns the number of intervals visited."""
    M, W = tree.nodes.M, tree.nodes.W
    room = LEAF_ROOM[_ARITY]
    leaf, i = seek(tree.nodes, root_of(tree), _ARITY, position(tree, v, LEAST, BEFORE))
    n = wide(0)
    while leaf != 0 and M[leaf + HEAD + i] == v:
        low, high, mask = M[leaf + HEAD + room + i], M[leaf + HEAD + 2 * room + i], wide(W[slot_at(leaf, _ARITY, room) + i])
        if mask & bit != 0:
            take_out(tree, v, low, high, mask)
        leaf, i = seek(tree.nodes, root_of(tree), _ARITY, position(tree, v, low, BEHIND))
        n += 1
    return n


@kernel
def agrees(tree: Constraints, v: int, g: int) -> bool:
    """Whether the pattern of node v has the logged tuple's value wherever both have one."""
    table, log = tree.table, tree.log
    u = NODE_WORDS * v
    while v != ROOT:
        d = table[u + DEPTH] - 1
        above = NODE_WORDS * table[u + PARENT]
        if (table[u + BITS] & ~table[above + BITS] & log[g + HAS]) >> d != 0 and table[u + LABEL] != log[g + VALUE + d]:
            return False
        v, u = table[u + PARENT], above
    return True


@kernel
def bring_up(tree: Constraints, v: int) -> int:
    """Apply the log to node v: tuples that were inserted into an atom after its constraints were found. All constraints that follow from
    the atom and may contain a row of the tuple are removed. Returns the number of steps."""
    table, log = tree.table, tree.log
    u, dropped, n = NODE_WORDS * v, wide(0), wide(0)
    d = table[u + DEPTH]
    for row in range(table[u + SEEN], table[LOGGED] if table[u + COUNT] != 0 else table[u + SEEN]):
        g = LOG_WORDS * row
        bit = log[g + ATOM_BIT]
        n += 1
        if dropped & bit == 0 and agrees(tree, v, g):
            if (log[g + HAS] >> d) & 1 != 0:
                cut_value(tree, v, log[g + VALUE + d], bit)
            else:
                n += drop_intervals(tree, v, bit)
                dropped |= bit
    table[u + SEEN] = table[LOGGED]
    return n


@kernel("void(Constraints)")
def bring_all_up(tree: Constraints) -> None:
    """Apply the log to all nodes. O(nodes + logged tuples for each)."""
    for v in range(ROOT, tree.table[MADE]):
        bring_up(tree, v)


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
    table[NODE_WORDS * ROOT + POSITION], table[NODE_WORDS * ROOT + SEEN] = -1, table[LOGGED]
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


KEPT_SIZE = Size(1 << 18, 1 << 19)  # about 64 MiB
PRIVATE_SIZE = Size(1 << 16, 1 << 17)  # about 16 MiB


class ConstraintTree:
    """Only the holder of `lock` may read and write it."""

    def __init__(self, size: Size = PRIVATE_SIZE, log: np.ndarray | None = None) -> None:
        """`log`: rows of LOG_WORDS words each, as the writer fills them."""
        self.lock = Lock()
        self._size = size
        splits = 0 if log is None else MOST_LOGGED * 2 * LIST  # most intervals before room is checked again
        words = _WORDS_EACH * (size.intervals + SPARE + splits)
        self._store = Blocks((layout.BLOCK,), layout.TREES + layout.TREE_WORDS - KEPT, words)
        self._store.C[VERSION], self._store.C[_H + layout.ARITY] = 1, _ARITY
        table = np.zeros(NODE_WORDS * min(_FIRST, size.nodes), np.int64)
        table[MADE], table[MOST] = ROOT + 1, size.intervals
        table[HASH_KEY : HASH_KEY + 2] = SECRET
        table[NODE_WORDS * ROOT + POSITION] = -1
        log = np.zeros(LOG_WORDS, np.int64) if log is None else log
        scratch = np.zeros(SCRATCH_WORDS, np.int64)
        self.arrays = Constraints(self._store.nodes, self._store.writing, table, self._children(table), scratch, log)

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
        """Bytes without the log."""
        return self._store.live_bytes + 8 * (len(self.arrays.table) + len(self.arrays.hashed) + len(self.arrays.scratch))

    def intervals(self) -> list[tuple[int, ...]]:
        """Node, low, high and mask of all, in order. Slow, for tests."""
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

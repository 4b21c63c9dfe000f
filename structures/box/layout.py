r"""Nodes of the box trees: slabs of one dimension, in the arena of their 1-D trees.

A *tree of level k* orders the endpoints of its boxes in dimension k by (key, value, tie): tie = code for a left end,
2**31 + code for a right one, code = 2 * slot + set. So all left ends at a value come before all right ends there, and if two boxes meet in
dimension k, exactly one of them has its left end within the other. Only level 0 has keys; below, key = 0.

                 (node: separator)          a node stands for a slab, a range of endpoints; the right child's
                 /              \           slab begins at the separator; a leaf's slab has up to CAP endpoints
        (node)                   (leaf) -> records of the boxes with an end in the slab

    node     M[o] born | W weight, flags | child 0, child 1 (leaf: records, rows) | tree 0, tree 1 | separator (value, key, tie)
    tree     W[h] root, height, members of set 0, of set 1, state, idle       "holder h": six words of W, in a node or at TOP
    records  M[o] born | W count | columns of ROOM: tag, then left, right of dimension k, k + 1, ..., ascending by
             (left of dimension k + 1, code); tag = key << 33 | slot << 3 | set << 2 | left end is here << 1 | right end is here

Trees 0 and 1 of a node are trees of level k + 1 (1-D trees of `ordered/tree.py` when k + 1 is the last dimension): tree i
joins the spanners of set i, which cover the slab but not its parent's, with the points of the other set, whose left end
lies in the slab. In a "self" structure level 0 has one set: tree 0 joins spanners (as set 0) with points (as set 1).
A tree without spanners needs no points: it is inactive (root 0) until a spanner comes.

Invariants, named by `check()` when violated: I1 to I4 of
`core/blocks.py`, and
    N1  the ends in a leaf's records are those of its slab; each box has one record in a leaf; order as above
    N2  weight = endpoints below; a leaf has at most CAP, an inner node more than CAP / 2; no child has over 3/4 of its
        inner node's weight, unless that is over `most_at_once`: such a node stays if no rotation helps, as it would take too
        long to rebuild within a change (UNEVEN counts the changes below it), while no path from the root has more than
        LARGE_DEEPEST such nodes
    N3  an active tree holds exactly the node's spanners and points; an inactive one has no spanners
    N4  rows of a leaf = pairs of records that meet, one of them with its left end here; live = a row lies in the node's
        trees, records or below
    N5  the table by slot (`tree.py`) has the ends of each box
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import CONTROL_WORDS, INNER_WORDS, KIND, LEAF_WORDS, B, EntryBlocks
from structures.core.blocks import Nodes, WriteState, allocate, block_at, drop, moved, name_block
from structures.core.control import KEPT, VERSION, empty_room, room
from structures.core.kernel import arrays, kernel
from structures.ordered.summary import PAIR

CAP = max(4 * B, B * B // 8)  # 512 for leaf blocks of 64: half of it costs 70 bytes a box more, and a fifth of the speed
ROOM = CAP + 2 + CAP % 2  # a leaf is repaired after the change that overfills it
FILL = CAP * 7 // 8

# Words of W from 2 * o.
WEIGHT, FLAGS, CHILD0, CHILD1, TREES = 2, 3, 4, 5, 6
RECORDS, ROWS = CHILD0, CHILD1
COUNT = 2  # number of records; their columns (words of M) follow it: tags, then the ends by dimension
TAG, ENDS = 2, 2 + ROOM  # left ends of dimension k; its right ends are ROOM words further, the next dimension's left ends 2 * ROOM
LEFT1 = ENDS + 2 * ROOM  # left ends of dimension k + 1
RIGHT_HERE, LEFT_HERE, SET_BIT = 1, 2, 4  # bits of a tag: the ends that lie in the slab, and the set
BOTH_HERE = LEFT_HERE | RIGHT_HERE
SLOT_SHIFT, KEY_SHIFT = 3, 33
ROOT_, HEIGHT_, MEMBERS, STATE, IDLE, TREE_WORDS = 0, 1, 2, 4, 5, 6  # MEMBERS + set
LIVE_, ACTIVE = 1, 2  # bits of STATE
LIVE_NODE, LEAF_NODE = 1, 2  # bits of FLAGS
SEPARATOR = 9  # words of M: value, key, tie
NODE_WORDS = 12

RIGHT_TIE = 2**31
EVERY_CODE = 2**31 - 1
MOST_DISTANCE = 2**63 - 1
BEFORE_KEYS, BEHIND_KEYS = -1, 2**31  # in place of a key: before all keys, and after all
# Nodes on a path, so that stacks of a multiple have room: at most LARGE_DEEPEST above `most_at_once` (`balance.repair` sees to that); of
# the others, which are balanced, log 16 to the base 4/3 from 16 * CAP endpoints down to CAP, and a leaf: 308. Until the next change there,
# rotations may put such a path below a balanced one of at most log 2**33 to the base 4/3, 80 nodes, and as many that they left unbalanced.
DEEPEST = 480
# Numbers of nodes above `most_at_once` on a path with unbalanced nodes: with more than the first, the structure is too uneven, whatever its
# size, and LARGE_MORE times as many endpoints are rebuilt at once, so that the path grows that much more slowly; the second is the maximum.
# A balanced path has at most log 2**33 to the base 4/3, 80.
LARGE_DEEP, LARGE_DEEPEST = 128, 296
LARGE_MORE = 8  # about 30 ms, and twice as long beside a build
FEW_UNEVEN = 8  # unbalanced nodes above `most_at_once` on a path, each of which makes it longer by about one node, that are tolerated
LARGE_REBUILT = 12  # beyond the maximum, an unbalanced node above the lowest 12 such nodes is rebuilt
TOO_UNEVEN = 2**40  # value of UNEVEN
MOST_DIMENSIONS = 8

FIRST, BEHIND, SLAB_WORDS = 0, 3, 6  # words of a slab: its first place and that of the next slab, each (key, value, tie)

TOP = 16  # the holder of the tree of level 0
NODE, RECORD_LEVELS = 2, 3  # classes of blocks besides those of the 1-D trees: nodes; records of level k have class RECORD_LEVELS + k
# Words of C. LONGEST + k: the greatest length (`distance`) of a box in dimension k since the structure was empty, for k < DIMENSIONS - 1.
DIMENSIONS, SELF_, FULL, UNEVEN, LONGEST = range(CONTROL_WORDS, CONTROL_WORDS + 5)
CONTROL_END = LONGEST + MOST_DIMENSIONS
# Most words that a change of one tree takes, besides what it builds: copies of the nodes on the two paths, of those beside them and, for
# rotations, of both children of those, the roots of trees that are then not built for lack of room, and copies of both leaves' records.
SPARE = 8 * DEEPEST * NODE_WORDS + 2 * (TAG + (1 + 2 * MOST_DIMENSIONS) * ROOM)


@arrays("int64", "boolean", "int64")
class BoxRoot(NamedTuple):
    """A version of a structure, for reading: the root of its tree of level 0, whether it has one set, and its dimensions."""

    root: int
    is_self: bool
    dimensions: int


@kernel
def child_of(W: Any, o: int, c: int) -> int:
    return block_at(W, 2 * o + CHILD0 + c)


@kernel
def set_child(W: Any, o: int, c: int, child: int) -> None:
    name_block(W, 2 * o + CHILD0 + c, child)


@kernel
def records_of(W: Any, o: int) -> int:
    """The records of a leaf."""
    return block_at(W, 2 * o + RECORDS)


@kernel
def set_records(W: Any, o: int, records: int) -> None:
    name_block(W, 2 * o + RECORDS, records)


@kernel
def root_of(W: Any, h: int) -> int:
    """The root of the tree in holder h."""
    return block_at(W, h + ROOT_)


@kernel
def set_root(W: Any, h: int, o: int) -> None:
    name_block(W, h + ROOT_, o)


@kernel
def no_room(C: Any, words: int) -> bool:
    """Whether the arena lacks room for `words` words and SPARE for the operation in progress. Then nothing more is done (FULL), and the
    version that is being written is undone."""
    if words + SPARE > empty_room(C) and words + SPARE > room(C):  # the first test is fast
        C[FULL] = 1
    return C[FULL] != 0


@kernel
def new_node(nodes: Nodes, C: Any, weight: int, flags: int) -> int:
    """A node without children, records or trees."""
    M, W = nodes.M, nodes.W
    o = allocate(M, C, NODE)
    for i in range(1, NODE_WORDS):
        M[o + i] = 0
    W[2 * o + WEIGHT], W[2 * o + FLAGS] = weight, flags
    return o


@kernel
def own_node(nodes: Nodes, writing: WriteState, o: int) -> int:
    """The node itself if this version wrote it, otherwise a copy that replaces it."""
    return o if nodes.M[o] == writing.C[VERSION] else moved(nodes.M, writing, o, NODE, NODE_WORDS)


@kernel
def own_child(nodes: Nodes, writing: WriteState, o: int, c: int) -> int:
    """Child c of own node o, which this version owns from now on."""
    W = nodes.W
    child = own_node(nodes, writing, child_of(W, o, c))
    set_child(W, o, c, child)
    return child


@kernel
def new_records(nodes: Nodes, C: Any, level: int) -> int:
    M, W = nodes.M, nodes.W
    o = allocate(M, C, RECORD_LEVELS + level)
    W[2 * o + COUNT] = 0
    return o


@kernel
def own_records(nodes: Nodes, writing: WriteState, level: int, o: int) -> int:
    return o if nodes.M[o] == writing.C[VERSION] else moved_records(nodes, writing, level, o)


@kernel
def moved_records(nodes: Nodes, writing: WriteState, level: int, o: int) -> int:
    M, W, C = nodes.M, nodes.W, writing.C
    new = allocate(M, C, RECORD_LEVELS + level)
    M[new + 1] = M[o + 1]
    n = W[2 * o + COUNT]
    for c in range(1 + 2 * (C[DIMENSIONS] - level)):
        a, b = np.uint64(o + TAG + c * ROOM), np.uint64(new + TAG + c * ROOM)  # unsigned, as in `moved`
        for i in range(np.uint64(n)):
            M[b + i] = M[a + i]
    drop(M, writing, o, RECORD_LEVELS + level)
    return new


@kernel
def before(key: int, value: int, tie: int, key1: int, value1: int, tie1: int) -> bool:
    """Whether the first place in a level's order is before the second."""
    return key < key1 or (key == key1 and (value < value1 or (value == value1 and tie < tie1)))


@kernel
def distance(left: int, right: int) -> int:
    """right - left, at most 2**63 - 1, for left <= right."""
    return right - left if left >= 0 or right <= MOST_DISTANCE + left else MOST_DISTANCE


@kernel
def note_length(C: Any, lo: Any, hi: Any) -> None:
    """Update LONGEST for a box with these ends."""
    for k in range(C[DIMENSIONS] - 1):
        C[LONGEST + k] = max(C[LONGEST + k], distance(lo[k], hi[k]))


@kernel
def goes_right(M: Any, o: int, key: int, value: int, tie: int) -> bool:
    """Whether the place lies in the slab of the inner node's right child."""
    s = o + SEPARATOR
    return not before(key, value, tie, M[s + 1], M[s], M[s + 2])


@kernel(allocates=True)
def whole_slab() -> Any:
    """The slab of a root."""
    slab = np.empty(SLAB_WORDS, np.int64)
    widen(slab)
    return slab


@kernel
def widen(slab: Any) -> None:
    """Make the slab that of a root."""
    slab[:] = 0
    slab[FIRST], slab[BEHIND] = BEFORE_KEYS, BEHIND_KEYS


@kernel
def narrow(M: Any, o: int, c: int, slab: Any) -> None:
    """Narrow the slab of inner node o to that of its child c."""
    at = FIRST if c == 1 else BEHIND
    slab[at], slab[at + 1], slab[at + 2] = M[o + SEPARATOR + 1], M[o + SEPARATOR], M[o + SEPARATOR + 2]


@kernel
def child_towards(nodes: Nodes, o: int, slab: Any, key: int, value: int, tie: int) -> int:
    """The child of inner node o whose slab has the place. Narrows the slab of the node to that of the child."""
    c = 1 if goes_right(nodes.M, o, key, value, tie) else 0
    narrow(nodes.M, o, c, slab)
    return child_of(nodes.W, o, c)


@kernel
def holder(o: int, i: int) -> int:
    """The holder of tree i of node o."""
    return 2 * o + TREES + TREE_WORDS * i


@kernel
def members_of(W: Any, h: int) -> int:
    """The number of members of the tree in holder h, of both sets."""
    return W[h + MEMBERS] + W[h + MEMBERS + 1]


@kernel
def clear_holder(W: Any, h: int) -> None:
    """Make holder h inactive, without a tree."""
    for i in range(TREE_WORDS):
        W[h + i] = 0


@kernel
def spanners_of(W: Any, o: int, i: int) -> int:
    """The number of spanners in tree i of node o; they are of set i there."""
    return W[holder(o, i) + MEMBERS + i]


@kernel
def spanned(C: Any, level: int, s: int) -> tuple[int, int]:
    """The tree of a node that has a spanner of set s as a member, and the spanner's set there."""
    if level == 0 and C[SELF_] != 0:
        return 0, 0
    return s, s


@kernel
def pointed(C: Any, level: int, s: int) -> tuple[int, int]:
    """The tree of a node that has a point of set s as a member, and the point's set there."""
    if level == 0 and C[SELF_] != 0:
        return 0, 1
    return 1 - s, s


@kernel
def most_at_once(C: Any, level: int) -> int:
    """Most endpoints below a node that is rebuilt within a change: about 6 ms with the last dimension next; each dimension between takes
    about four times as long."""
    return max(2 * CAP, 16 * CAP >> 2 * (C[DIMENSIONS] - 2 - level))


@kernel
def refresh(W: Any, o: int) -> None:
    """Update the live bit of node o from its trees, and its rows or children."""
    w = 2 * o
    live = (W[w + TREES + STATE] | W[w + TREES + TREE_WORDS + STATE]) & LIVE_
    flags = W[w + FLAGS]
    if flags & LEAF_NODE != 0:
        live |= W[w + ROWS] > 0
    else:
        live |= (W[2 * child_of(W, o, 0) + FLAGS] | W[2 * child_of(W, o, 1) + FLAGS]) & LIVE_NODE
    W[w + FLAGS] = (flags & ~LIVE_NODE) | live


@kernel
def refresh_holder(W: Any, h: int) -> None:
    """Update the live bit of a tree of nodes from its root."""
    W[h + STATE] = ACTIVE | (W[2 * root_of(W, h) + FLAGS] & LIVE_NODE)


class BoxArena(EntryBlocks):
    """The store of one box tree: the classes of `Arena`, which the 1-D trees use, then nodes, and the records of each level."""

    def __init__(self, dimensions: int, is_self: bool, words: int) -> None:
        records = [TAG + (1 + 2 * (dimensions - level)) * ROOM for level in range(dimensions - 1)]
        super().__init__((LEAF_WORDS, INNER_WORDS, NODE_WORDS, *records), CONTROL_END - KEPT, words)
        self.C[KIND], self.C[DIMENSIONS], self.C[SELF_] = PAIR, dimensions, is_self
        self._dimensions = dimensions
        self.sampled = 0  # estimated words a box while the tree is still empty; 0: unknown

    def require(self, changes: int, times: int = 1) -> int:
        """As `EntryBlocks.require`, as far as this can be determined.

        At worst each change copies a path in every tree that it touches, or everything is rewritten. The size of a box can then only be
        estimated: three times the present size; for an empty tree `sampled`, or the ends, and 9 words (a leaf's three in leaves a third
        full) for each tree that has the box: a point of one and a spanner of two nodes a level, at up to two levels. Data may exceed this
        (a rebuild may need trees that were not needed before): then the change is abandoned, and the version that is being written is
        undone.
        """
        if self.has_room(times * changes * self._change_words(32)):
            return times * changes * self._change_words(32)
        n = int(self.W[TOP + MEMBERS] + self.W[TOP + MEMBERS + 1])
        levels = max(1, (2 * (n + changes) // CAP).bit_length())
        box = 64 + 9 * (3 * levels) ** min(2, self._dimensions - 1)
        if n:
            box = min(box, 3 * self.live_bytes // (8 * n) + 64)
        elif self.sampled:
            box = min(box, self.sampled)
        anew = (n + changes) * box + SPARE
        words = times * min(changes * self._change_words(levels), anew)
        self.require_words(words)
        return words

    def _change_words(self, levels: int) -> int:
        """Words that a change writes when every tree on its path, each of `levels` levels, is to be copied."""
        return (3 * levels) ** (self._dimensions - 1) * (2 * LEAF_WORDS + 3 * INNER_WORDS) + 8 * CAP * self._dimensions

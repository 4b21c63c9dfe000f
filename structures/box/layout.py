r"""Nodes of the box trees: slabs of one dimension, in the arena of their 1-D trees.

A *tree of level k* orders the endpoints of its boxes in dimension k by (key, value, tie): tie = code for a left end,
2**31 + code for a right one, code = 2 * slot + set. So all left ends at a value come before all right ends there, and of
two boxes that meet in dimension k exactly one has its left end within the other. Only level 0 knows keys; below, key = 0.

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

Invariants, by which `check()` names what broke: I1 to I3 of `core/arena.py`, for these blocks too, and
    N1  the ends in a leaf's records are those of its slab; each box has one record in a leaf; order as above
    N2  weight = endpoints below; a leaf has at most CAP, an inner node more than CAP / 2; no child has over 3/4 of its
        inner node's weight
    N3  an active tree holds exactly the node's spanners and points; an inactive one has no spanners
    N4  rows of a leaf = pairs of records that meet, one of them with its left end here; live = a row lies in the node's
        trees, records or below
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.arena import BUMP, CONTROL_WORDS, KIND, VERSION, Arena, B, Nodes, reclaim
from structures.core.kernel import arrays, kernel
from structures.core.pins import pinned
from structures.core.reserve import reserve
from structures.ordered.summary import PAIR

CAP = max(4 * B, B * B // 8)  # 512 for leaf blocks of 64: half of it costs 70 bytes a box more, and a fifth of the speed
ROOM = CAP + 2  # a leaf is repaired after the change that overfilled it
FILL = CAP * 7 // 8

# Words of W from 2 * o.
WEIGHT, FLAGS, CHILD0, CHILD1, TREES = 2, 3, 4, 5, 6
RECORDS, ROWS = CHILD0, CHILD1
ROOT_, HEIGHT_, MEMBERS, STATE, IDLE, TREE_WORDS = 0, 1, 2, 4, 5, 6  # MEMBERS + set
LIVE_, ACTIVE = 1, 2  # of STATE
LIVE_NODE, LEAF_NODE = 1, 2  # of FLAGS
SEPARATOR = 9  # words of M: value, key, tie
NODE_WORDS = 12

RIGHT_TIE = 2**31
EVERY_CODE = 2**31 - 1
DEEPEST = 96  # log 2**33 to the base 4/3, and some
MOST_DIMENSIONS = 8

TOP = 16  # the holder of the tree of level 0
NODE = 0  # class of nodes; records of level k are of class 1 + k
_C = CONTROL_WORDS
DIMENSIONS, SELF_, NODES_RETIRED, NODES_HELD = _C, _C + 1, _C + 2, _C + 3
WORDS, NODES_FREE, NODES_OUT, NODES_WAITING = _C + 4, _C + 12, _C + 20, _C + 28  # + class
LIMIT, FULL = _C + 36, _C + 37
SPARE = 1 << 15  # words that a change of one tree surely fits in, besides what it builds


@arrays("int64[::1]", "int64[::1]", "int64[::1]")
class BoxWriting(NamedTuple):
    """As `Writing`, with the retired nodes and records."""

    C: np.ndarray
    Q: np.ndarray
    R: np.ndarray


@arrays("int64", "boolean", "int64")
class BoxRoot(NamedTuple):
    """A version of a structure, for reading: the root of its tree of level 0, whether it has one set, its dimensions."""

    root: int
    single: bool
    dimensions: int


@kernel
def new_block(M: Any, C: Any, cls: int) -> int:
    """A block of the class, born now; its contents are whatever was there."""
    o = C[NODES_FREE + cls]
    if o != 0:
        C[NODES_FREE + cls] = M[o]
    else:
        o = C[BUMP]
        C[BUMP] = o + C[WORDS + cls]
    C[NODES_OUT + cls] += 1
    M[o] = C[VERSION]
    return o


@kernel
def no_room(C: Any, words: int) -> bool:
    """Whether the arena can't take so many words more, and SPARE for what is being done: the version being written is then damaged
    (FULL), and no more is done."""
    if C[BUMP] + words + SPARE > C[LIMIT]:
        C[FULL] = 1
    return C[FULL] != 0


@kernel
def free_block(M: Any, C: Any, o: int, cls: int) -> None:
    M[o] = C[NODES_FREE + cls]
    C[NODES_FREE + cls] = o
    C[NODES_OUT + cls] -= 1


@kernel
def drop_block(nodes: Nodes, writing: BoxWriting, o: int, cls: int) -> None:
    """The newest version no longer uses block o: free it if nobody can have seen it, else retire it."""
    M, C, R = nodes.M, writing.C, writing.R
    if M[o] == C[VERSION]:
        free_block(M, C, o, cls)
    else:
        i = C[NODES_RETIRED]
        R[2 * i], R[2 * i + 1] = 8 * o + cls, C[VERSION]
        C[NODES_RETIRED] = i + 1
        C[NODES_WAITING + cls] += 1


@kernel("void(Nodes, BoxWriting, int64, int64[::1], boolean)")
def reclaim_blocks(nodes: Nodes, writing: BoxWriting, oldest: int, pins: Any, everything: bool) -> None:
    """As `arena.reclaim`, for these blocks."""
    M, C, R = nodes.M, writing.C, writing.R
    h = 0 if everything else C[NODES_HELD]
    w = h
    for i in range(h, C[NODES_RETIRED]):
        block, retired = R[2 * i], R[2 * i + 1]
        o, cls = block >> 3, block & 7
        held = pinned(pins, M[o], retired)
        if not held and retired <= oldest:
            C[NODES_WAITING + cls] -= 1
            free_block(M, C, o, cls)
            continue
        R[2 * w], R[2 * w + 1] = block, retired
        if held:
            R[2 * w], R[2 * h] = R[2 * h], block
            R[2 * w + 1], R[2 * h + 1] = R[2 * h + 1], retired
            h += 1
        w += 1
    C[NODES_HELD] = h
    C[NODES_RETIRED] = w


@kernel
def new_node(nodes: Nodes, C: Any, weight: int, flags: int) -> int:
    """A node without children, records or trees."""
    M, W = nodes.M, nodes.W
    o = new_block(M, C, NODE)
    for i in range(1, NODE_WORDS):
        M[o + i] = 0
    W[2 * o + WEIGHT], W[2 * o + FLAGS] = weight, flags
    return o


@kernel
def own_node(nodes: Nodes, writing: BoxWriting, o: int) -> int:
    """The node itself if this version wrote it, else a copy in its place."""
    M, C = nodes.M, writing.C
    if M[o] == C[VERSION]:
        return o
    new = new_block(M, C, NODE)
    for i in range(1, NODE_WORDS):
        M[new + i] = M[o + i]
    drop_block(nodes, writing, o, NODE)
    return new


@kernel
def new_records(nodes: Nodes, C: Any, level: int) -> int:
    M, W = nodes.M, nodes.W
    o = new_block(M, C, 1 + level)
    W[2 * o + 2] = 0
    return o


@kernel
def own_records(nodes: Nodes, writing: BoxWriting, level: int, o: int) -> int:
    M, W, C = nodes.M, nodes.W, writing.C
    if M[o] == C[VERSION]:
        return o
    new = new_block(M, C, 1 + level)
    M[new + 1] = M[o + 1]
    n = W[2 * o + 2]
    for c in range(1 + 2 * (C[DIMENSIONS] - level)):
        a, b = o + 2 + c * ROOM, new + 2 + c * ROOM
        for i in range(n):
            M[b + i] = M[a + i]
    drop_block(nodes, writing, o, 1 + level)
    return new


@kernel
def before(key: int, value: int, tie: int, key1: int, value1: int, tie1: int) -> bool:
    """Whether the first place of a level's order is before the second."""
    return key < key1 or (key == key1 and (value < value1 or (value == value1 and tie < tie1)))


@kernel
def goes_right(M: Any, o: int, key: int, value: int, tie: int) -> bool:
    """Whether the place lies in the slab of the inner node's right child."""
    s = o + SEPARATOR
    return not before(key, value, tie, M[s + 1], M[s], M[s + 2])


@kernel
def holder(o: int, i: int) -> int:
    """Tree i of node o."""
    return 2 * o + TREES + TREE_WORDS * i


@kernel
def spanned(C: Any, level: int, s: int) -> tuple[int, int]:
    """The tree of a node in which a spanner of set s is a member, and its set there."""
    if level == 0 and C[SELF_] != 0:
        return 0, 0
    return s, s


@kernel
def pointed(C: Any, level: int, s: int) -> tuple[int, int]:
    """The tree of a node in which a point of set s is a member, and its set there."""
    if level == 0 and C[SELF_] != 0:
        return 0, 1
    return 1 - s, s


@kernel
def refresh(W: Any, o: int) -> None:
    """Write the live bit of node o from its trees, and its rows or children."""
    w = 2 * o
    live = (W[w + TREES + STATE] | W[w + TREES + TREE_WORDS + STATE]) & LIVE_
    flags = W[w + FLAGS]
    if flags & LEAF_NODE != 0:
        live |= W[w + ROWS] > 0
    else:
        live |= (W[2 * W[w + CHILD0] + FLAGS] | W[2 * W[w + CHILD1] + FLAGS]) & LIVE_NODE
    W[w + FLAGS] = (flags & ~LIVE_NODE) | live


@kernel
def refresh_holder(W: Any, h: int) -> None:
    """Write the live bit of a tree of nodes from its root."""
    W[h + STATE] = ACTIVE | (W[2 * W[h + ROOT_] + FLAGS] & LIVE_NODE)


class BoxArena(Arena):
    """The arrays of one box tree: those of `Arena`, which the 1-D trees use, with the retired nodes and records in R."""

    def __init__(self, dimensions: int, single: bool, words: int) -> None:
        super().__init__(words)
        C = np.zeros(_C + 38, np.int64)
        C[BUMP], C[KIND], C[DIMENSIONS], C[SELF_] = 12, PAIR, dimensions, single
        C[WORDS], C[LIMIT] = NODE_WORDS, words
        for level in range(dimensions - 1):
            C[WORDS + 1 + level] = 2 + (1 + 2 * (dimensions - level)) * ROOM
        self.C = C
        self.R: np.ndarray = reserve(2 * (words // NODE_WORDS + 1) * 8, np.int64)
        self.writing = BoxWriting(self.C, self.Q, self.R)

    def reclaim(self, oldest: int, pins: np.ndarray) -> None:
        now = set(pins.tolist())
        gone = not self._pins <= now
        self._pins = now
        reclaim(self.nodes, self.writing, oldest, pins, gone)
        reclaim_blocks(self.nodes, self.writing, oldest, pins, gone)

    def _bytes(self, counts: int) -> int:
        classes = int(self.C[DIMENSIONS])
        return 8 * int(self.C[counts : counts + classes] @ self.C[WORDS : WORDS + classes])

    @property
    def live_bytes(self) -> int:
        return super().live_bytes + self._bytes(NODES_OUT) - self._bytes(NODES_WAITING)

    @property
    def retired_bytes(self) -> int:
        return super().retired_bytes + self._bytes(NODES_WAITING)

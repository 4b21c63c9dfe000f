"""Blocks of the ordered tree: how entries and children lie in those of `core/arena.py`.

A leaf has its entries in columns, with two sets that grow towards each other; an inner node has columns of summary fields and children.

    leaf   M[o] born | W n0, n1 | left[B] | right[B] | slot[B] key[B] (int32)
           set 0 lies in [0, n0), set 1 in [B - n1, B), each ascending by (key, left, slot)
    inner  M[o] born | W count, live mask | mr0 mr1 ml0 ml1 [F each] |
           kr0 kr1 kl0 kl1 first child [F each, int32]

Per child c and set s: (kr, mr) is the largest (key, right), (kl, ml) the smallest (key, left) below c,
`first` the slot code of the first entry. Absent values, and every unused child, are (-1, NEG_INF)
and (KEY_MAX, POS_INF), so that loops over the children have constant length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from structures.core.arena import INNER_WORDS, LEAF_WORDS, PATH, B, F
from structures.core.blocks import Nodes, WriteState, block_at, name_block
from structures.core.kernel import kernel, wide

MOST_LEVELS = 64  # most levels of a tree: an inner node has at least two children, and there are fewer than 2**32 entries, of two sets

# Words of W, from 2 * o: for a leaf the number of entries of each set, for an inner node that of its children, and which of them are live.
COUNTS = 2  # + set
CHILDREN, LIVE_CHILDREN = 2, 3

# A summary in C, from its base: the fields of a child in the order of its columns, + set, and whether a row lies wholly below.
MR_, ML_, KR_, KL_, FIRST_, LIVE_ = 0, 2, 4, 6, 8, 9

# The path in C: for each level, + 2 * level, the inner node, and the child taken.
PATH_NODE, PATH_CHILD = PATH, PATH + 1

# Columns of a leaf: int64 columns from o, int32 columns from 2 * o.
LEFT, RIGHT = 2, 2 + B
SLOT = 2 * (2 + 2 * B)
KEY = SLOT + B

# Columns of an inner node. Field f < 4 of child c: M[o + FIELDS + f * F + c]; f >= 4: W[2 * o + FIELDS32 + (f - 4) * F + c].
MR, ML = 2, 2 + 2 * F  # + set * F
FIELDS = 2
FIELDS32 = 2 * (2 + 4 * F)
KR, KL = FIELDS32, FIELDS32 + 2 * F  # + set * F
FIRST = FIELDS32 + 4 * F
CHILD = FIELDS32 + 5 * F

assert (LEFT, FIELDS, LEAF_WORDS, INNER_WORDS) == (2, 2, (KEY + B) // 2 + B % 2, (CHILD + F) // 2 + F % 2)  # as in the arena


class OrderedTree(NamedTuple):
    """A tree that is being changed."""

    nodes: Nodes
    writing: WriteState


class TreePosition(NamedTuple):
    """A place in the order of the tree."""

    key: int
    left: int
    code: int


@kernel
def run_of(W: Any, o: int, s: int) -> tuple[int, int]:
    """The places [low, high) of set s in leaf o."""
    if s == 0:
        return 0, wide(W[2 * o + COUNTS])
    return B - wide(W[2 * o + COUNTS + 1]), B


@kernel
def entries_of(W: Any, o: int) -> int:
    """The number of entries of a leaf, of both sets."""
    return wide(W[2 * o + COUNTS]) + wide(W[2 * o + COUNTS + 1])


@kernel
def child_of(W: Any, o: int, c: int) -> int:
    """The block of child c of inner node o."""
    return block_at(W, 2 * o + CHILD + c)


@kernel
def set_child(W: Any, o: int, c: int, child: int) -> None:
    """Set only the child's block: the summary stays."""
    name_block(W, 2 * o + CHILD + c, child)


@kernel
def separator(nodes: Nodes, o: int, c: int) -> TreePosition:
    """The place where child c of inner node o begins."""
    M, W = nodes.M, nodes.W
    k0, k1, code = wide(W[2 * o + KL + c]), wide(W[2 * o + KL + F + c]), wide(W[2 * o + FIRST + c])
    l0, l1 = M[o + ML + c], M[o + ML + F + c]
    if k0 < k1 or (k0 == k1 and l0 <= l1):
        return TreePosition(k0, l0, code)
    return TreePosition(k1, l1, code)


@kernel
def is_before(one: TreePosition, other: TreePosition) -> bool:
    """Whether the first place comes before the other."""
    return one.key < other.key or (one.key == other.key and (one.left < other.left or (one.left == other.left and one.code < other.code)))

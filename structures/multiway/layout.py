"""Blocks of the IJ-heap's tree, in a store of `core/blocks.py`, with sizes that depend on the topology.

    leaf    M[o] born | W height = 0, - | W starts[t + 1] | summary | left[L] | right[L] | slot[L] key[L] (int32)
            set i lies in [starts[i], starts[i + 1]), ascending by (key, left, slot)
    inner   M[o] born | W height, key of the separator | lower, upper, left, code of the separator | summary
            all entries of `lower` come before the separator, those of `upper` do not; code = 8 * slot + set
    summary near, far of the least tuple [SPAN each] | near, far of the greatest | slots of both [SPAN each], keys of both [SUBSETS
            each] (int32)

A summary has, for each connected V, the least V-tuple below (`which` 0: near = left endpoint, far = right) and the greatest
(`which` 1: near = right, far = left), with its slots and its key (KEY_MAX and -1 as keys if there is none): `summary.py`. For cliques its
content is different: `clique_summary.py`.

Invariants, and how blocks are retired and reused: `core/blocks.py`. Costs: O(1); a copy the words of the block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core import blocks
from structures.core.arena import HEIGHT, INNER, LEAF, B, EntryBlocks
from structures.core.blocks import WriteState, allocate
from structures.core.control import KEPT, STORE_WORDS, VERSION
from structures.core.kernel import arrays, kernel, wide
from structures.multiway.topology import ENTRIES, INNER_WORDS_, LEAF_WORDS_, MOST, SPAN, SUBSETS, Topology

L = min(B, 63)  # entries of a leaf: a run's candidates are the bits of one word, its sign unused
LEAF_LEAST = max(1, L // 4)

HEIGHT_, SEPARATOR_KEY = 2, 3  # in W, from 2 * o
STARTS = 4
CHILD = 2  # in M, from o: + side
SEPARATOR_LEFT, SEPARATOR_CODE = 4, 5
SUMMARY = 6

# A tree balanced by height has 1.45 log2(n) levels over n leaves, 48 over those of 6 * 2**30 entries, which are the most.
MOST_LEVELS = 64

# Words of C: ROOT and HEIGHT as in `core/arena.py`, then
COUNTS = HEIGHT + 1  # + set
PATH = COUNTS + 8  # 2 words a level: node, side
CONTROL_WORDS = PATH + 2 * MOST_LEVELS


def summary_words(topology: Topology) -> int:
    """The words of a block's summary."""
    return int(5 * topology.table[SPAN] + topology.table[SUBSETS])


@arrays("int64[::1]", "int32[::1]", "int64[::1]")
class MultiwayNodes(NamedTuple):
    """As `Nodes`, with the table of the topology, or of the clique."""

    M: np.ndarray
    W: np.ndarray
    table: np.ndarray


@kernel
def near_at(table: Any, o: int, which: int) -> int:
    """The first word of `near` in the summary of block o; `far` is SPAN words further."""
    return o + SUMMARY + 2 * which * table[SPAN]


@kernel
def slot_at(table: Any, o: int, which: int) -> int:
    """The first of the slots in W."""
    return 2 * (o + SUMMARY + 4 * table[SPAN]) + which * table[SPAN]


@kernel
def key_at(table: Any, o: int, which: int) -> int:
    """The first of the keys in W."""
    return 2 * (o + SUMMARY + 5 * table[SPAN]) + which * table[SUBSETS]


@kernel
def key_of(nodes: MultiwayNodes, o: int, which: int, v: int) -> int:
    """The key of the stored extreme of v at block o: KEY_MAX (`which` 0) or -1 (1) if there is none."""
    W, table = nodes.W, nodes.table
    return wide(W[key_at(table, o, which) + v])


@kernel
def height_of(W: Any, o: int) -> int:
    """0: a leaf."""
    return wide(W[2 * o + HEIGHT_])


@kernel
def start_of(W: Any, o: int, s: int) -> int:
    """The first place of run s of leaf o; that of s + 1 is its end."""
    return wide(W[2 * o + STARTS + s])


@kernel
def allocate_block(nodes: MultiwayNodes, C: Any, cls: int) -> int:
    """Allocate a block of the class, born now; its previous content remains, its height is 0."""
    W = nodes.W
    o = allocate(nodes.M, C, cls)
    W[2 * o + HEIGHT_] = 0
    return o


@kernel
def own(nodes: MultiwayNodes, writing: WriteState, o: int) -> int:
    """The block itself if this version wrote it, otherwise a copy that replaces it."""
    return o if nodes.M[o] == writing.C[VERSION] else moved(nodes, writing, o)


@kernel
def class_of(W: Any, o: int) -> int:
    return LEAF if height_of(W, o) == 0 else INNER


@kernel
def moved(nodes: MultiwayNodes, writing: WriteState, o: int) -> int:
    """A copy that replaces the block."""
    cls = class_of(nodes.W, o)
    return blocks.moved(nodes.M, writing, o, cls, nodes.table[LEAF_WORDS_ + cls])


class MultiwayArena(EntryBlocks):
    """The store of one tree, and the table (of a topology, or a clique) with the sizes of its blocks."""

    def __init__(self, table: np.ndarray, summary: int, words: int = STORE_WORDS) -> None:
        """`summary`: words of a block's summary; `words`: reserved address space in 8-byte words, not memory."""
        table = table.copy()
        table[ENTRIES] = SUMMARY + summary
        table[INNER_WORDS_], table[LEAF_WORDS_] = table[ENTRIES], table[ENTRIES] + 3 * L
        super().__init__(table[LEAF_WORDS_ : LEAF_WORDS_ + 2].tolist(), CONTROL_WORDS - KEPT, words)
        self.table: np.ndarray = table
        self.nodes = MultiwayNodes(self.M, self.W, table)

    def require(self, changes: int, times: int = 1) -> int:
        """As `EntryBlocks.require`: a change copies at worst three leaves and, on its path, every node and two beside it."""
        leaf, inner = int(self.table[LEAF_WORDS_]), int(self.table[INNER_WORDS_])
        entries = int(self.C[COUNTS : COUNTS + MOST].sum()) + changes
        paths = changes * (3 * leaf + MOST_LEVELS * inner)
        anew = (entries // LEAF_LEAST + MOST_LEVELS) * (leaf + 2 * inner)
        words = times * min(paths, anew)
        self.require_words(words)
        return words

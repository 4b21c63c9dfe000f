"""The arena of the ordered trees: two classes of blocks, LEAF and INNER, in a store of blocks (`blocks.py`), and what a tree keeps
in the control array. The layout of a block is in `ordered/layout.py`.

Source: docs/design/ij-heap.md (*Blocks*).
"""

from __future__ import annotations

import os

from structures.core.blocks import Blocks
from structures.core.control import KEPT, STORE_WORDS
from structures.core.encoding import NEG_INF

B = int(os.environ.get("LIVEJOIN_LEAF", "64"))
F = int(os.environ.get("LIVEJOIN_FANOUT", "8"))
if not (2 <= B <= 256 and 3 <= F <= 16):
    raise ValueError("LIVEJOIN_LEAF must be 2..256 and LIVEJOIN_FANOUT 3..16")

LEAF, INNER = 0, 1
LEAF_LEAST = max(1, B // 4)  # entries of a leaf that is not the root
LEAF_WORDS = 2 + 3 * B + B % 2  # columns: `ordered/layout.py`; even: `block_at`
INNER_WORDS = 2 + 7 * F + F % 2

KEY_MAX = 2**31 - 1
FIRST_POSITION = -1, NEG_INF, -1  # key, left, code: not after any entry's

# Words of C that a tree keeps: its newest root, then scratch of the writer.
ROOT, HEIGHT, COUNT, LIVE, KIND = KEPT, KEPT + 1, KEPT + 2, KEPT + 4, KEPT + 5  # COUNT + set
PATH = KEPT + 6  # 2 words a level: node, child index
SUM = PATH + 2 * 64  # a summary of ten fields
CONTROL_WORDS = SUM + 12


def words_anew(entries: int, trees: int) -> int:
    """Return the maximum number of words of trees with so many entries in all, each in its thinnest form."""
    return (entries // LEAF_LEAST + 64 * trees) * (LEAF_WORDS + INNER_WORDS)


class EntryBlocks(Blocks):
    """A store of trees of entries."""

    def require(self, changes: int, times: int = 1) -> int:
        """Raise MemoryError, before anything is changed, unless a version with `changes` changes surely fits. `times`: the number of calls
        among which they are divided. Returns the maximum number of words that they take. O(1)."""
        raise NotImplementedError


class Arena(EntryBlocks):
    """The store of one tree. `words`: reserved address space, not memory."""

    def __init__(self, words: int = STORE_WORDS) -> None:
        super().__init__((LEAF_WORDS, INNER_WORDS), CONTROL_WORDS - KEPT, words)

    def require(self, changes: int, times: int = 1) -> int:
        """Do the same as `EntryBlocks.require`: at worst each change copies a path, or the whole tree is written anew in its thinnest
        form."""
        entries = self.C.item(COUNT) + self.C.item(COUNT + 1) + changes
        words = times * min(changes * (2 * LEAF_WORDS + 64 * INNER_WORDS), words_anew(entries, 1))
        self.require_words(words)
        return words

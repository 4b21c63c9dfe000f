"""Blocks of the persistent trees, in one reserved array.

Problem: keep the nodes of a tree that many versions share, where a writer replaces nodes and readers
of pinned versions keep using the old ones, without locks and without moving anything.

    M  int64, reserved address space          W  the same memory as int32
    +------+--------+--------+------+----
    | nil  | leaf   | inner  | leaf | ...     a block is named by its first word's index in M;
    +------+--------+--------+------+----     0 is NIL

Two classes of blocks, each of one size: LEAF and INNER. Word M[o] of a block that is out is the version that
wrote it (born); what else lies in it is the tree's matter (`ordered/layout.py`).

Invariants
    I1  a block with born == the version being written was never published: it is changed in place and
        freed at once; every other block is copied and retired
    I2  a retired block [born, retired) is reused only when retired <= the oldest version that can still
        be pinned and no pin p has born <= p < retired
    I3  allocated = reachable from the newest root + retired (and the free lists hold the rest)

Costs: allocate, free, retire O(1); reclaim O(retired since the last call), or O(all retired) when a pin
has gone since. Source: LMDB's model (docs/design/versions.md); docs/design/ij-heap.md (*Blocks*).
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from structures.core.bits import LANES
from structures.core.encoding import NEG_INF as NEG_INF
from structures.core.encoding import POS_INF as POS_INF
from structures.core.kernel import arrays, kernel
from structures.core.pins import pinned
from structures.core.reserve import reserve

B = int(os.environ.get("LIVEJOIN_LEAF", "64"))
F = int(os.environ.get("LIVEJOIN_FANOUT", "8"))
if not (2 <= B <= 256 and 3 <= F <= 16):
    raise ValueError("LIVEJOIN_LEAF must be 2..256 and LIVEJOIN_FANOUT 3..16")

LEAF, INNER = 0, 1
LEAF_LEAST = max(1, B // 4)  # entries of a leaf that is not the root
LEAF_WORDS = 2 + 3 * B  # columns: `ordered/layout.py`
INNER_WORDS = 2 + 7 * F

KEY_MAX = 2**31 - 1

# The control array C: counters, then scratch of the writer.
BUMP, FREE, RETIRED, HELD, VERSION = 0, 1, 3, 4, 5  # FREE + class
ALLOCATED, WAITING = 6, 8  # blocks by class: handed out and not free; of these retired
ROOT, HEIGHT, COUNT, LIVE, KIND = 10, 11, 12, 14, 15  # COUNT + set
PATH = 16  # 2 words a level: node, child index
SUM, SUM2 = 16 + 2 * 64, 16 + 2 * 64 + 12  # two summaries of ten fields
CONTROL_WORDS = SUM2 + 12

ARENA_WORDS = 2**31 - 1  # offsets are int32


@arrays("int64[::1]", "int32[::1]")
class Nodes(NamedTuple):
    """The memory of the blocks: as 64-bit words, and the same as 32-bit words."""

    M: np.ndarray
    W: np.ndarray


@arrays("int64[::1]", "int64[::1]")
class Writing(NamedTuple):
    """What their one writer keeps besides: the control array, and the retired blocks."""

    C: np.ndarray
    Q: np.ndarray


@kernel
def allocate(nodes: Nodes, C: Any, cls: int) -> int:
    """A block of the class, born now; its contents are whatever was there."""
    M = nodes.M
    o = C[FREE + cls]
    if o != 0:
        C[FREE + cls] = M[o]
    else:
        o = C[BUMP]
        C[BUMP] = o + (LEAF_WORDS if cls == LEAF else INNER_WORDS)
    C[ALLOCATED + cls] += 1
    M[o] = C[VERSION]
    return o


@kernel
def free(M: Any, C: Any, o: int, cls: int) -> None:
    M[o] = C[FREE + cls]
    C[FREE + cls] = o
    C[ALLOCATED + cls] -= 1


@kernel
def drop(nodes: Nodes, writing: Writing, o: int, cls: int) -> None:
    """The newest version no longer uses block o: free it if nobody can have seen it (I1), else retire it."""
    M, C, Q = nodes.M, writing.C, writing.Q
    if M[o] == C[VERSION]:
        free(M, C, o, cls)
    else:
        i = C[RETIRED]
        Q[2 * i] = 2 * o + cls
        Q[2 * i + 1] = C[VERSION]
        C[RETIRED] = i + 1
        C[WAITING + cls] += 1


@kernel("void(Nodes, Writing, int64, int64[::1], boolean)")
def reclaim(nodes: Nodes, writing: Writing, oldest: int, pins: Any, everything: bool) -> None:
    """Free what no version >= oldest and no pin can see (I2). Q[:HELD] is held by pins and looked at only if `everything`."""
    M, C, Q = nodes.M, writing.C, writing.Q
    h = 0 if everything else C[HELD]
    w = h
    for i in range(h, C[RETIRED]):
        block, retired = Q[2 * i], Q[2 * i + 1]
        o, cls = block >> 1, block & 1
        held = pinned(pins, M[o], retired)
        if not held and retired <= oldest:
            C[WAITING + cls] -= 1
            free(M, C, o, cls)
            continue
        Q[2 * w] = block
        Q[2 * w + 1] = retired
        if held:
            Q[2 * w], Q[2 * h] = Q[2 * h], block
            Q[2 * w + 1], Q[2 * h + 1] = Q[2 * h + 1], retired
            h += 1
        w += 1
    C[HELD] = h
    C[RETIRED] = w


def words_anew(entries: int, trees: int) -> int:
    """Words at most of trees that have so many entries together, each in its thinnest form."""
    return (entries // LEAF_LEAST + 64 * trees) * (LEAF_WORDS + INNER_WORDS)


class Arena:
    """The arrays of one tree. `words`: reserved address space, not memory."""

    def __init__(self, words: int = ARENA_WORDS) -> None:
        self.M: np.ndarray = reserve((words + LANES) * 8, np.int64)[:words]  # the last leaf's keys are read eight at once
        self.W: np.ndarray = self.M.view(np.int32)
        self.C: np.ndarray = np.zeros(CONTROL_WORDS, np.int64)
        self.Q: np.ndarray = reserve(2 * (words // min(LEAF_WORDS, INNER_WORDS) + 1) * 8, np.int64)
        self.C[BUMP] = 8
        self.nodes: Any = Nodes(self.M, self.W)  # as the kernels take them; of a class that adds arrays another tuple
        self.writing: Any = Writing(self.C, self.Q)
        self._pins: set[int] = set()

    def reclaim(self, oldest: int, pins: np.ndarray) -> None:
        """See I2; `pins` ascending int64."""
        now = set(pins.tolist())
        gone = not self._pins <= now
        self._pins = now
        reclaim(self.nodes, self.writing, oldest, pins, gone)

    def require(self, changes: int, times: int = 1) -> None:
        """Raise MemoryError, before anything is touched, unless a version with `changes` changes surely fits: at worst each change copies
        a path, or the whole tree is written anew in its thinnest form. `times`: calls that the changes are spread over."""
        entries = self.C.item(COUNT) + self.C.item(COUNT + 1) + changes
        self.require_words(times * min(changes * (2 * LEAF_WORDS + 64 * INNER_WORDS), words_anew(entries, 1)))

    def require_words(self, words: int) -> None:
        """Raise MemoryError unless the arena has so many words more."""
        if self.C.item(BUMP) + words > self.M.size:
            raise MemoryError(f"this view's structure has reached the size of its arena ({8 * self.M.size} bytes)")

    @property
    def live_bytes(self) -> int:
        C = self.C
        return 8 * int((C[ALLOCATED] - C[WAITING]) * LEAF_WORDS + (C[ALLOCATED + 1] - C[WAITING + 1]) * INNER_WORDS)

    @property
    def retired_bytes(self) -> int:
        return 8 * int(self.C[WAITING] * LEAF_WORDS + self.C[WAITING + 1] * INNER_WORDS)

    def free_and_retired(self) -> tuple[list[int], list[int], list[int]]:
        """Blocks of the free lists of leaves and of inner nodes, and the retired ones, for `check()`."""
        lists: list[list[int]] = []
        for cls in (LEAF, INNER):
            o, blocks = int(self.C[FREE + cls]), []
            while o:
                blocks.append(o)
                o = int(self.M[o])
            lists.append(blocks)
        return lists[0], lists[1], [int(q) >> 1 for q in self.Q[: 2 * int(self.C[RETIRED]) : 2]]

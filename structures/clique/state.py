"""The state of a walk over cliques: plain data, which is also the cursor.

    Z   scalars | CONTEXT: right endpoints | PICKED: places of covers | nodes still to come, and to be searched [MOST_LEVELS each]
    H   int64[n]: right endpoints of the heap
    J   int32[3, n]: slots of the heap; slots of covers, as they are found; their places in the heap

H and J hold the covers of one start; a walk whose Z[FULL] is set continues once `grown` has enlarged them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.kernel import arrays
from structures.multiway.layout import MOST_LEVELS, L

ROOM = 16 * L  # capacity of a new walk's heap

# The next step: none; the next node; the next entry of a leaf; covers of a start, from the tree or from the heap; rows.
DONE, NODES, ENTRIES, SEARCH, HEAP, ROWS = range(6)

MODE, BACK, FULL, STEPS, LAST, GAP, DEAD = range(7)  # BACK: the mode after ROWS
TOP, MEMBERS, GIVEN, HIGH_KEY, HIGH = range(7, 12)  # root; entries of a row besides the given one; its slot or -1; the last start
KEY, COUNT, KEPT = 12, 13, 14  # of the context: its key, the number of its entries, the number kept
NODE_DEPTH, LEAF, AT, FRUITFUL = 15, 16, 17, 18  # the leaf, its next entry, whether a start was found in it
HEAPED, WHOLE = 19, 20  # size of the heap; whether it has all entries of the context's key that come before and end later
START, CENTRE = 21, 22  # the start to be covered, and the slot of the interval that starts there or -1
SEARCH_DEPTH, SEARCH_LEAF, SEARCH_AT = 23, 24, 25
COVERS, QUEUED, PICKS, PICKING = 26, 27, 28, 29  # found so far; queued; picks of a row, besides the newest; whether PICKED is in use
EACH_KEY, NEXT_KEY, ITEM = 30, 31, 32  # a window over all keys: whether keys remain, and the next; given entries that have begun
CONTEXT, PICKED = 34, 42
NODE_STACK = 50
SEARCH_STACK = NODE_STACK + MOST_LEVELS
WALK_WORDS = SEARCH_STACK + MOST_LEVELS

HEAP_SLOT, COVER, QUEUE = range(3)  # rows of J


@arrays("int64[::1]", "int64[::1]", "int32[:,::1]")
class CliqueWalk(NamedTuple):
    """The arrays of a walk, as in the drawing."""

    Z: np.ndarray
    H: np.ndarray
    J: np.ndarray


def new_walk() -> CliqueWalk:
    """A walk that is done."""
    return CliqueWalk(np.zeros(WALK_WORDS, np.int64), np.empty(ROOM, np.int64), np.empty((3, ROOM), np.int32))


def grown(walking: CliqueWalk) -> CliqueWalk:
    """The same walk with twice the room in H and J. O(n)."""
    H, J = walking.H, walking.J
    return CliqueWalk(walking.Z, np.concatenate((H, H)), np.concatenate((J, J), axis=1))

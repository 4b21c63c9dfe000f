"""The state of an enumeration of the IJ-heap: counters, the tuple, goals and frames (`ij_walk.py` says what they are).

    Z   counters | bounds by alias | the tuple | candidates in leaves | goals | frames

Plain data: a copy is an independent cursor at the same place. Costs: O(t) for each function.
"""

from __future__ import annotations

from typing import Any

from structures.arena import NEG_INF
from structures.ij_extreme import LAST_KEY
from structures.ij_topology import MEMBER, NEAR, POS, SETS, SIZE
from structures.kernel import kernel

DEPTH, GOALS, STEPS, LAST, GAP, FUEL, DEAD, ROWS, TOP, EACH_KEY, NEXT_KEY = range(11)
MOST_, LEAST_ = 12, 18  # bounds by alias: left <= MOST_, right >= LEAST_
LEFT_, RIGHT_, SLOT_ = 24, 30, 36  # the tuple
LEFT_OVER = 42  # candidates of an alias still to be tried
CANDIDATES = 48  # at 6 * i + j: those of alias j when alias i is to be bound
SHARP = 84  # lower bounds by alias of the components of a live split's lower side
GOAL0 = 90
# A goal: node, subset, the goal that follows (-1: none), mask of the aliases bound before it, key (-1: any), lower bounds by alias.
G_NODE, G_SUBSET, G_NEXT, G_BEFORE, G_KEY, G_LEAST = range(6)
GOAL_WORDS = 12
FRAME0 = GOAL0 + 24 * GOAL_WORDS
# A frame: node, subset, the goal after it, mask bound before, step, goals in use before it, rows before it, keys allowed, and the bounds.
NODE, SUBSET, NEXT, BEFORE, STEP, GOALS_, ROWS_, KEY_LOW, KEY_HIGH = range(9)
F_MOST, F_LEAST = 9, 15
FRAME_WORDS = 21

NO_GOAL = -1
FUEL_MOST = 16
ANY_KEY = -1


def walk_words(t: int, height: int) -> int:
    """Words of a state for t sets in a tree of the height."""
    return FRAME0 + FRAME_WORDS * t * (height + 2)


@kernel
def walk_start(T: Any, Z: Any, root: int, lo: int, hi: int) -> None:
    """Begin a reading of the version at `root`, every interval meeting [lo, hi]: without goals it has no rows. Counters go on."""
    Z[DEPTH], Z[GOALS], Z[TOP], Z[EACH_KEY], Z[FUEL] = 0, 0, root, 0, FUEL_MOST
    for i in range(T[SETS]):
        Z[MOST_ + i], Z[LEAST_ + i] = hi, lo


@kernel
def add_goal(T: Any, Z: Any, o: int, v: int, next: int, before: int, key: int) -> int:
    """A new goal, in front of `next`; its place."""
    g = GOAL0 + GOAL_WORDS * Z[GOALS]
    Z[GOALS] += 1
    Z[g + G_NODE], Z[g + G_SUBSET], Z[g + G_NEXT], Z[g + G_BEFORE], Z[g + G_KEY] = o, v, next, before, key
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        Z[g + G_LEAST + T[MEMBER + m]] = NEG_INF
    return g


@kernel
def begin(T: Any, Z: Any, g: int) -> None:
    """Push the frame of goal g: its bounds are those by alias, those of the goal, and the neighbours bound before."""
    f = FRAME0 + FRAME_WORDS * Z[DEPTH]
    Z[DEPTH] += 1
    v, before, key = Z[g + G_SUBSET], Z[g + G_BEFORE], Z[g + G_KEY]
    Z[f + NODE], Z[f + SUBSET], Z[f + NEXT], Z[f + BEFORE] = Z[g + G_NODE], v, Z[g + G_NEXT], before
    Z[f + STEP], Z[f + GOALS_], Z[f + ROWS_] = 0, Z[GOALS], Z[ROWS]
    Z[f + KEY_LOW] = 0 if key == ANY_KEY else key
    Z[f + KEY_HIGH] = LAST_KEY if key == ANY_KEY else key
    for m in range(T[POS + v], T[POS + v] + T[SIZE + v]):
        i = T[MEMBER + m]
        most, least = Z[MOST_ + i], max(Z[LEAST_ + i], Z[g + G_LEAST + i])
        bound = T[NEAR + i] & before
        for j in range(T[SETS]):
            if (bound >> j) & 1 != 0:
                most, least = min(most, Z[RIGHT_ + j]), max(least, Z[LEFT_ + j])
        Z[f + F_MOST + i], Z[f + F_LEAST + i] = most, least

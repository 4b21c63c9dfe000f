"""The state of an enumeration of the IJ-heap: counters, the tuple, goals and frames (`walk.py` explains them).

    state   counters | the tuple by alias | candidates in leaves | goals | frames | strip (`strip.py`)

A goal is "a v-tuple below node u" with keys, bounds by alias and the goal that follows it. Its GIVEN bounds are its own; the others combine
these with the neighbours bound before it, when it begins. A frame works on a goal at a node on the way down, or in the strip.

Plain data: a copy is an independent cursor at the same place. Costs: O(t) for each function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.bits import LANES
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import arrays, kernel
from structures.multiway.extreme import LAST_KEY
from structures.multiway.topology import LEAF_WORDS_, MEMBER, NEAR, POS, SETS, SIZE

DEPTH, GOALS, STEPS, LAST, GAP, FUEL, DEAD, ROWS, TOP, EACH_KEY, NEXT_KEY, LO, HI, STRIP, CROSSING = range(15)
LEFT_, RIGHT_, SLOT_ = 15, 21, 27  # the tuple, by alias
LEFT_OVER = 33  # candidates of an alias that are still to be tried
CANDIDATES = 39  # at 6 * i + j: candidates of alias j when alias i is to be bound
SHARP = 75  # lower bounds by alias for the components of a live split's lower side
LOWER = 81  # candidates in the strip that come from the lower child, by alias
INPUTS = 87  # at i: the children (1 lower, 2 upper) that the aliases bound before alias i come from
ITEM = 93  # given entries that have begun
GOAL0 = 94
# A goal: node, subset, the goal that follows, mask of the aliases bound before it, keys allowed, whether it has no bounds at all.
G_NODE, G_SUBSET, G_NEXT, G_BEFORE, G_LOW, G_HIGH, G_FREE = range(7)
GIVEN_MOST, GIVEN_LEAST, MOST, LEAST = 7, 13, 19, 25  # left <= most, right >= least
GOAL_WORDS = 31
# A goal that is divided stays, and its aliases are distributed among two or more goals: t aliases make at most 2t - 1 goals, and one more
# for the rest of a given interval, whose components are goals as well. A topology has at most six sets: 12.
_MOST_GOALS = 24
FRAME0 = GOAL0 + _MOST_GOALS * GOAL_WORDS
# A frame: node, goal, next step, goals in use before it, rows before it, whether the strip was tried.
NODE, GOAL, STEP, GOALS_, ROWS_, TRIED = range(6)
FRAME_WORDS = 6

IN_STRIP = 0  # as node
NO_GOAL = -1
FUEL_MOST = 16
ANY_KEY = -1


def new_walk(table: np.ndarray, height: int) -> np.ndarray:
    """A state for trees of at most this height. Each alias is in one goal in progress: a frame a level, and one in the strip."""
    strip = FRAME0 + FRAME_WORDS * table.item(SETS) * (height + 2)
    state = np.zeros(strip + table.item(LEAF_WORDS_) + LANES, np.int64)  # `within8` reads past the end of a run
    state[STRIP] = strip
    return state


@arrays("int64[::1]", "int32[::1]", "int64[::1]")
class HeapWalk(NamedTuple):
    """An enumeration: its state, the same memory as 32-bit words, and scratch."""

    state: np.ndarray
    ZW: np.ndarray
    scratch: np.ndarray


@kernel
def walk_start(walking: HeapWalk, root: int, lo: int, hi: int) -> None:
    """Begin a reading of the version at `root` in which every interval meets [lo, hi]; without goals it has no rows. Counters continue."""
    state = walking.state
    state[DEPTH], state[GOALS], state[TOP], state[EACH_KEY], state[FUEL], state[LO], state[HI] = 0, 0, root, 0, FUEL_MOST, lo, hi


@kernel
def add_goal(table: Any, walking: HeapWalk, o: int, v: int, next: int, before: int, low: int, high: int) -> int:
    """Add a goal in front of `next`, bounded by the window alone. Returns its place."""
    state = walking.state
    g = GOAL0 + GOAL_WORDS * state[GOALS]
    state[GOALS] += 1
    state[g + G_NODE], state[g + G_SUBSET], state[g + G_NEXT], state[g + G_BEFORE] = o, v, next, before
    state[g + G_LOW], state[g + G_HIGH] = low, high
    state[g + G_FREE] = state[LO] == NEG_INF and state[HI] == POS_INF and low == 0 and high == LAST_KEY
    for m in range(table[POS + v], table[POS + v] + table[SIZE + v]):
        i = table[MEMBER + m]
        state[g + GIVEN_MOST + i], state[g + GIVEN_LEAST + i] = state[HI], state[LO]
    return g


@kernel
def push_frame(walking: HeapWalk, o: int, g: int, goals: int) -> None:
    """Work on goal g at node o."""
    state = walking.state
    f = FRAME0 + FRAME_WORDS * state[DEPTH]
    state[DEPTH] += 1
    state[f + NODE], state[f + GOAL], state[f + STEP], state[f + GOALS_], state[f + TRIED] = o, g, 0, goals, 0


@kernel
def begin(table: Any, walking: HeapWalk, g: int) -> None:
    """Compute the bounds of goal g, and push its first frame."""
    state = walking.state
    bound_goal(table, walking, g)
    push_frame(walking, state[g + G_NODE], g, state[GOALS])


@kernel
def bound_goal(table: Any, walking: HeapWalk, g: int) -> None:
    """Set the bounds of goal g from its given ones and from the neighbours bound before."""
    state = walking.state
    v, before = state[g + G_SUBSET], state[g + G_BEFORE]
    for m in range(table[POS + v], table[POS + v] + table[SIZE + v]):
        i = table[MEMBER + m]
        most, least = state[g + GIVEN_MOST + i], state[g + GIVEN_LEAST + i]
        bound = table[NEAR + i] & before
        for j in range(table[SETS]):
            if (bound >> j) & 1 != 0:
                most, least = min(most, state[RIGHT_ + j]), max(least, state[LEFT_ + j])
        state[g + MOST + i], state[g + LEAST + i] = most, least

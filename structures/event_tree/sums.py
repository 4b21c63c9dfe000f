"""The number of partners and the sums of their weights, and changes of both sides one after another, each with what it adds to a group.

The weights of partners add up as the partners do (`search.py`): those of the STARTs at or before r less those of the ENDs at or before l.
The points that [l, r] has in common with its partners are C(r + 1) - C(l), where C(t) is the sum of t - start over the STARTs before t,
less the sum of t - end over the ENDs before t: for intervals with both ends, whose first weights are the places of these two events.

Costs: a measurement O(B + F log n) for each weight, however many partners there are.
Source: docs/design/queries.md (*Structure: the event tree*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.aggregate.amounts import Measures, put_digits
from structures.core.kernel import arrays, kernel, require_columns, wide
from structures.event_tree.changes import cut_ends, end_position, put_ends
from structures.event_tree.layout import (
    CHILD,
    END,
    HEIGHT,
    INNER_FIELDS,
    LOW32,
    NAME,
    ROOT,
    ROW,
    START,
    START_HIGH,
    STARTS,
    VALUE,
    WEIGHT_FIELDS,
    WEIGHTS,
    Tree,
    child_for,
    name_of,
    position_for,
    rank_of,
)

MOVE, DELETE, INSERT, MEASURE = range(4)  # kinds of changes; MEASURE changes nothing
OWN, THEIRS, COMMON, LENGTHS = 1, 2, 4, 8  # bits of a recipe: what a sum changes by; with no bit, and with LENGTHS, by the number of rows
HOW, WEIGHT = range(2)  # words of a recipe
TIMES, STEPS, MISSING, STATE_WORDS = range(4)
NUMBER, LOW, HIGH, TOTAL_WORDS = range(4)  # words of `totals`: of the partners, and of the first weight; + 2 * weight


@arrays("int8[::1]", "int8[::1]", "int32[::1]", "int64[::1]", "int64[::1]", "int32[::1]", "int32[::1]", "int64[:,::1]")
class EventChanges(NamedTuple):
    """Change number i concerns an interval of the side role[i], at slot[i], with these weights (int64[n, w]); a move is from former[i]."""

    kind: np.ndarray
    role: np.ndarray
    key: np.ndarray
    left: np.ndarray
    right: np.ndarray
    slot: np.ndarray
    former: np.ndarray
    weights: np.ndarray

    def require(self, weights: int) -> None:
        """TypeError, ValueError unless the columns have these types, one length, and at least `weights` weights. O(1)."""
        require_columns((np.int8, np.int8, np.int32, np.int64, np.int64, np.int32, np.int32, np.int64), self)
        if self.weights.ndim != 2 or len(self.kind) and self.weights.shape[1] < weights:
            raise ValueError(f"changes have {weights} weights, not {self.weights.shape[1:]}")


@arrays(Tree, Tree, "int64[:,:,::1]", "int64[::1]", "int64[::1]")
class TreePair(NamedTuple):
    """The trees of both sides, twice the same for a set with itself. recipe, int64[2, s, 2]: for a change of each side, and each sum, what
    it changes by (HOW), and the number of the weight (OWN and THEIRS), or the difference between a length and its points (COMMON: the sum
    of lengths, LENGTHS: their number). totals: scratch. Z: rows that a partner makes, steps so far, changes of intervals that were not
    there."""

    first: Tree
    second: Tree
    recipe: np.ndarray
    totals: np.ndarray
    Z: np.ndarray


@kernel
def add_partners(tree: Tree, key: int, begun: int, ended: int, totals: Any) -> None:
    """Add to `totals` the STARTs at or before (key, begun) less the ENDs at or before (key, ended): their number, and for each weight the
    sums of lower and upper halves. Both descents proceed side by input: neither waits for the other's memory."""
    N, name = tree.inners, name_of(key, ROW, 0)
    a = b = tree.control[ROOT]
    for _ in range(tree.control[HEIGHT]):
        c, d = child_for(tree, a, name, begun), child_for(tree, b, name, ended)
        add_children(tree, a, c, START, 1, totals)
        add_children(tree, b, d, END, -1, totals)
        a, b = N[a, CHILD, c], N[b, CHILD, d]
    add_events(tree, a, position_for(tree, a, name, begun), START, 1, totals)
    add_events(tree, b, position_for(tree, b, name, ended), END, -1, totals)


@kernel
def add_children(tree: Tree, o: int, end: int, rank: int, sign: int, totals: Any) -> None:
    """Add the first children of an inner node, up to `end`."""
    N, number = tree.inners, wide(0)
    for c in range(end):
        number += N[o, STARTS + rank, c]
    totals[NUMBER] += sign * number
    for w in range(tree.control[WEIGHTS]):
        field, low, high = INNER_FIELDS + WEIGHT_FIELDS * w + 2 * rank, wide(0), wide(0)
        for c in range(end):
            low += N[o, field, c]
            high += N[o, field + START_HIGH, c]
        totals[LOW + 2 * w] += sign * low
        totals[HIGH + 2 * w] += sign * high


@kernel
def add_events(tree: Tree, o: int, end: int, rank: int, sign: int, totals: Any) -> None:
    """Add the first events of a leaf, up to `end`."""
    L, number = tree.leaves, wide(0)
    for i in range(end):
        number += rank_of(L[o, NAME, i]) == rank
    totals[NUMBER] += sign * number
    for w in range(tree.control[WEIGHTS]):
        low, high = wide(0), wide(0)
        for i in range(end):
            value = L[o, VALUE + w, i] if rank_of(L[o, NAME, i]) == rank else wide(0)
            low += value & LOW32
            high += value >> 32
        totals[LOW + 2 * w] += sign * low
        totals[HIGH + 2 * w] += sign * high


@kernel
def covered(tree: Tree, key: int, at: int, t: int, totals: Any) -> tuple[int, int]:
    """C(t), as low + high * 2**32; `at`: the last place before t, or t itself."""
    totals[:TOTAL_WORDS] = 0
    add_partners(tree, key, at, at, totals)
    return (t & LOW32) * totals[NUMBER] - totals[LOW], (t >> 32) * totals[NUMBER] - totals[HIGH]


@kernel
def measure(tree: Tree, both: TreePair, changes: EventChanges, i: int, measured: Measures) -> None:
    """Measure what change i adds or removes, where the partners are in this tree."""
    totals, role, Z = both.totals, changes.role[i], both.Z
    key, left, right = wide(changes.key[i]), changes.left[i], changes.right[i]
    common_low, common_high = wide(0), wide(0)
    for s in range(both.recipe.shape[1]):
        if both.recipe[role, s, HOW] == COMMON:
            low, high = covered(tree, key, right, right + 1, totals)
            its_low, its_high = covered(tree, key, left, left, totals)
            common_low, common_high = low - its_low, high - its_high
            Z[STEPS] += 4 * (tree.control[HEIGHT] + 1)
            break
    totals[:] = 0
    add_partners(tree, key, right, left, totals)
    Z[STEPS] += 2 * (tree.control[HEIGHT] + 1)
    measured.rows[i] = Z[TIMES] * totals[NUMBER]
    for s in range(both.recipe.shape[1]):
        how, w = both.recipe[role, s, HOW], both.recipe[role, s, WEIGHT]
        low, high = wide(0), wide(0)
        if how == 0 or how == LENGTHS:
            low = Z[TIMES] * totals[NUMBER]
        elif how == COMMON:
            low, high = Z[TIMES] * (common_low + w * totals[NUMBER]), Z[TIMES] * common_high
        if how & OWN:
            value = changes.weights[i, w]
            low += (value & LOW32) * totals[NUMBER]
            high += (value >> 32) * totals[NUMBER]
        if how & THEIRS:
            low += totals[LOW + 2 * w]
            high += totals[HIGH + 2 * w]
        put_digits(measured.sums, i, s, low, high)


@kernel
def give(tree: Tree, both: TreePair, changes: EventChanges, i: int) -> None:
    """Set the weights of an interval in the tree into which it will be inserted."""
    for w in range(tree.control[WEIGHTS]):
        tree.given[START, w] = tree.given[END, w] = changes.weights[i, w]
    for s in range(both.recipe.shape[1]):
        if both.recipe[0, s, HOW] == COMMON:
            tree.given[START, 0] = changes.left[i]
            tree.given[END, 0] = end_position(wide(changes.key[i]), changes.right[i])[1]


@kernel
def make(own: Tree, other: Tree, both: TreePair, changes: EventChanges, i: int, measured: Measures) -> None:
    """Apply change i, of an interval of `own`, whose partners are in `other`. For a set with itself they are the same tree, without
    the interval."""
    kind, key, slot = changes.kind[i], wide(changes.key[i]), wide(changes.slot[i])
    left, right = changes.left[i], changes.right[i]
    if kind == MOVE or kind == DELETE:
        if not cut_ends(own, key, left, right, wide(changes.former[i]) if kind == MOVE else slot):
            both.Z[MISSING] += 1
    if kind == MOVE:
        measured.rows[i] = 0
    else:
        measure(other, both, changes, i, measured)
    if kind == MOVE or kind == INSERT:
        give(own, both, changes, i)
        put_ends(own, key, left, right, slot)


@kernel("void(TreePair, EventChanges, Measures)")
def follow(both: TreePair, changes: EventChanges, measured: Measures) -> None:
    """Apply these changes one after another; each is measured relative to the state left by the ones before it. O(log n) a change and
    weight."""
    for i in range(len(changes.kind)):
        if changes.role[i] == 0:
            make(both.first, both.second, both, changes, i, measured)
        else:
            make(both.second, both.first, both, changes, i, measured)

r"""The next tuple of a triangle that may be a row: R(A, B), S(B, C), T(A, C), searched in the order A, B, C, without visiting each (a, b).

If the gaps of S and T together leave no value of C for any pair (a, b), the constraint tree of `cds.py` rules out n * n pairs one by one.
Here, the gaps of S are stored so that one comparison rules out a whole range of b. A reading is in lexicographic order, so of R and T it
needs only what lies ahead: a gap moves the *frontier* forward, and the gaps of T under the current a are a list.

    {0..7}                   a crit-bit tree over the b that have gaps of C. A node stands for the dyadic range of values that agree in all
    +- {0..3}                bits above its own. It is *whole* if all values of this range are known: they have gaps of C, or S has no such
    |  +- 1: gaps of S(1, C) b. A whole node has the intersection of its children's gaps: what no b of the range has.
    |  +- 3: gaps of S(3, C)
    +- 6: gaps of S(6, C)

If the list of a node and that of a leave no value, no b of the node's range has a row with a. `next_triple` goes from leaf to leaf and
skips whole nodes that are ruled out. If a value c is free in a list, some b below it has no gap there: so the walk ends at such a b, or at
a value that is not known.

It uses the store of a `ConstraintTree`; the words of nodes have other meanings. Lists grow as gaps are found: a new gap of a child is
passed to its parent as far as the sibling has it, by frames on a stack (`grow`), which any later call may finish.

Invariants, by which `check()` names what broke
    M3  as in `cds.py`
    M5  keys ascend from left to right, and a node's range encloses those of its children
    M6  the known values are the leaves and the values that S does not have; a node is whole iff all of its range is known
    M7  a whole node's list is the intersection of those of its children; others have none

Costs: with h gaps of T under a and h' in a node's list, a comparison takes O(min(h, h')) searches of O(log n). A probe leads to O(log U) of
them, where U is the range of b, no node twice for an a; so C gaps, and p pairs (a, b) that have rows, take O((C + p) C^(1/2) log U)
searches, as long as the tree is never full. The bound is a sketch: the paper only states O((C^(3/2) + Z) log^(7/2) N). Source: *Beyond
Worst-case Analysis for Joins with Minesweeper*, Section 5.3; docs/design/natural-joins.md (*minesweeper*).
"""

from __future__ import annotations

from typing import Any

from structures.core.bits import highest
from structures.core.kernel import kernel, wide
from structures.index.layout import HEAD, LEAF_ROOM
from structures.index.search import BEHIND, seek, seek_last
from structures.minesweeper import cds
from structures.minesweeper.cds import (
    GREATEST,
    LEAST,
    MADE,
    NODE_WORDS,
    ROOT,
    Constraints,
    ConstraintTree,
    is_short,
    next_free,
    position,
    put_interval,
    root_of,
    take_out,
)
from structures.minesweeper.shadow import CONSTRAINTS, ENDED, FREE, FRONTIER, NONE, OVER, PAIRS, STEPS, STOPPED, TUPLE

# Words of a node of the table. BIT: the highest bit in which its keys differ, -1 for a leaf; KEY: one of them; WHOLE: 1 for a leaf.
ABOVE, KEY, LEFT, RIGHT, BIT, WHOLE = cds.PARENT, cds.LABEL, cds.STAR, cds.BITS, cds.DEPTH, cds.SEEN
# The first nodes: the values b that S does not have; all known values; the gaps of T under KEY, if WHOLE. TOP: of the crit-bit tree.
GAPS, KNOWN, OWN, FIRST = ROOT, ROOT + 1, ROOT + 2, ROOT + 3
TOP = NODE_WORDS * GAPS + LEFT

# Words of the scratch: frames; nodes above which others may have become whole; the position of the walk of (a, b): a node, and a value of
# its list.
FRAMES, RISING, WALK, WALK_C, WALK_A, WALK_B = cds.SIZES, cds.SIZES + 1, cds.SIZES + 3, cds.SIZES + 4, cds.SIZES + 5, cds.SIZES + 6
FRAME, FRAME_WORDS = cds.LISTS, 3  # of a frame: a node, and the values of both children that it must get; at most one a level
_ARITY = 3


@kernel
def begin(tree: Constraints) -> None:
    """Make the first nodes if the tree is empty."""
    table, scratch = tree.table, tree.scratch
    if table[MADE] == ROOT + 1:
        table[TOP] = 0
        for v in (GAPS, KNOWN, OWN):
            u = NODE_WORDS * v
            table[u + KEY], table[u + WHOLE], table[u + cds.COUNT], table[u + cds.POSITION] = 0, 0, 0, -1
        table[MADE] = FIRST
        scratch[FRAMES], scratch[RISING], scratch[RISING + 1], scratch[WALK] = 0, 0, 0, 0


@kernel
def goes_right(x: int, bit: int) -> bool:
    return ((x ^ LEAST) >> bit) & 1 != 0


@kernel
def low_of(tree: Constraints, v: int) -> int:
    """The least value of a node's range."""
    table, u = tree.table, NODE_WORDS * v
    if table[u + BIT] == 63:
        return wide(LEAST)
    return table[u + KEY] & (wide(-1) << (table[u + BIT] + 1))


@kernel
def high_of(tree: Constraints, v: int) -> int:
    """The greatest value of a node's range."""
    table, u = tree.table, NODE_WORDS * v
    if table[u + BIT] == 63:
        return wide(GREATEST)
    return table[u + KEY] | ~(wide(-1) << (table[u + BIT] + 1))


@kernel
def descend(tree: Constraints, b: int, bit: int) -> tuple[int, int]:
    """The first node on the path to b that does not separate keys above this bit, and the node above it; 0 if there is none."""
    table = tree.table
    above, v = wide(0), table[TOP]
    while v != 0 and table[NODE_WORDS * v + BIT] > bit:
        above = v
        v = table[NODE_WORDS * v + (RIGHT if goes_right(b, table[NODE_WORDS * v + BIT]) else LEFT)]
    return v, above


@kernel
def leaf_of(tree: Constraints, b: int) -> int:
    """The leaf of this value; 0 if there is none."""
    v, _ = descend(tree, b, -1)
    return v if v != 0 and tree.table[NODE_WORDS * v + KEY] == b else 0


@kernel
def new_node(tree: Constraints, key: int, bit: int, above: int) -> int:
    table = tree.table
    v = table[MADE]
    table[MADE] = v + 1
    u = NODE_WORDS * v
    table[u + ABOVE], table[u + KEY], table[u + LEFT], table[u + RIGHT], table[u + BIT] = above, key, 0, 0, bit
    table[u + WHOLE], table[u + cds.COUNT], table[u + cds.POSITION] = bit < 0, 0, -1
    return v


@kernel
def new_leaf(tree: Constraints, b: int) -> int:
    """Make a leaf for a value that has none. Nothing above it is whole, as the value was not known."""
    table = tree.table
    new = new_node(tree, b, -1, 0)
    other, _ = descend(tree, b, -1)
    if other == 0:
        table[TOP] = new
        return new
    differing = b ^ table[NODE_WORDS * other + KEY]
    bit = 63 if differing < 0 else highest(differing)
    v, above = descend(tree, b, bit)
    w = new_node(tree, b, bit, above)
    right = goes_right(b, bit)
    table[NODE_WORDS * w + LEFT], table[NODE_WORDS * w + RIGHT] = (v, new) if right else (new, v)
    table[NODE_WORDS * v + ABOVE], table[NODE_WORDS * new + ABOVE] = w, w
    if above == 0:
        table[TOP] = w
    else:
        table[NODE_WORDS * above + (RIGHT if table[NODE_WORDS * above + RIGHT] == v else LEFT)] = w
    return new


@kernel
def push(tree: Constraints, v: int, low: int, high: int) -> None:
    """Push a frame: node v must get what both its children have from `low` to `high`."""
    scratch = tree.scratch
    f = FRAME + FRAME_WORDS * scratch[FRAMES]
    scratch[f], scratch[f + 1], scratch[f + 2] = v, low, high
    scratch[FRAMES] += 1


@kernel
def push_above(tree: Constraints, v: int, low: int, high: int) -> None:
    """Push a frame for the node above v, which has got these values."""
    above = tree.table[NODE_WORDS * v + ABOVE]
    if above != 0 and tree.table[NODE_WORDS * above + WHOLE] != 0:
        push(tree, above, low, high)


@kernel
def put_value_gap(tree: Constraints, b: int, low: int, high: int) -> bool:
    """Insert that S has no value of C from `low` to `high` with b; False if that was known. The caller must call `grow`."""
    v = leaf_of(tree, b)
    if v != 0:
        if not put_interval(tree, v, low, high, 1):
            return False
        push_above(tree, v, low, high)
        return True
    v = new_leaf(tree, b)
    put_interval(tree, v, low, high, 1)
    put_interval(tree, KNOWN, b, b, 1)
    tree.scratch[RISING] = v
    return True


@kernel
def put_key_gap(tree: Constraints, low: int, high: int) -> bool:
    """Insert that S has no b from `low` to `high`, but has the neighbours; False if that was known. The caller must call `grow`."""
    if not put_interval(tree, GAPS, low, high, 1):
        return False
    put_interval(tree, KNOWN, low, high, 1)
    tree.scratch[RISING] = leaf_of(tree, low - 1) if low > LEAST else 0
    tree.scratch[RISING + 1] = leaf_of(tree, high + 1) if high < GREATEST else 0
    return True


@kernel
def is_known(tree: Constraints, v: int) -> bool:
    """Whether all of a node's range is known."""
    found, x, _ = next_free(tree, KNOWN, low_of(tree, v))
    return not found or x > high_of(tree, v)


@kernel
def rise(tree: Constraints) -> bool:
    """Find the next node that has become whole, above those that have, and begin to build its list; False if there is none."""
    table, scratch = tree.table, tree.scratch
    for r in range(RISING, RISING + 2):
        v = scratch[r]
        while v != 0:
            above = table[NODE_WORDS * v + ABOVE]
            if above != 0 and table[NODE_WORDS * above + WHOLE] == 0:
                u = NODE_WORDS * above
                other = table[u + LEFT] if table[u + RIGHT] == v else table[u + RIGHT]
                if table[NODE_WORDS * other + WHOLE] == 0 or not is_known(tree, above):
                    break
                table[u + WHOLE], scratch[r] = 1, above
                push(tree, above, LEAST, GREATEST)
                return True
            v = above
        scratch[r] = 0
    return False


@kernel
def next_interval(tree: Constraints, v: int, x: int) -> tuple[bool, int, int]:
    """The first values from x on that are in an interval of node v: whether there are any, and the first and the last of them."""
    M, room = tree.nodes.M, LEAF_ROOM[_ARITY]
    leaf, i = seek_last(tree.nodes, root_of(tree), _ARITY, position(tree, v, x, BEHIND))
    if leaf != 0 and M[leaf + HEAD + i] == v and M[leaf + HEAD + 2 * room + i] >= x:
        return True, x, M[leaf + HEAD + 2 * room + i]
    leaf, i = seek(tree.nodes, root_of(tree), _ARITY, position(tree, v, x, BEHIND))
    if leaf == 0 or M[leaf + HEAD + i] != v:
        return False, x, x
    return True, M[leaf + HEAD + room + i], M[leaf + HEAD + 2 * room + i]


@kernel
def grow(tree: Constraints, state: Any, stop: int) -> bool:
    """Complete the lists; False if the steps reach `stop`, or the tree has no room."""
    table, scratch = tree.table, tree.scratch
    begin(tree)  # another cursor may have had it cleared: its frames refer to nodes that are gone
    while scratch[FRAMES] > 0 or rise(tree):
        if state[STEPS] >= stop or is_short(tree):
            return False
        state[STEPS] += 1
        f = FRAME + FRAME_WORDS * (scratch[FRAMES] - 1)
        v, x, high = scratch[f], scratch[f + 1], scratch[f + 2]
        found, low, last = next_interval(tree, table[NODE_WORDS * v + LEFT], x)
        if found:
            found, other, end = next_interval(tree, table[NODE_WORDS * v + RIGHT], x)
            low, last = max(low, other), min(last, end, high)
        if not found or low > high:
            scratch[FRAMES] -= 1
            continue
        scratch[f + 1] = low
        if low <= last:
            if last == high:
                scratch[FRAMES] -= 1
            else:
                scratch[f + 1] = last + 1
            if put_interval(tree, v, low, last, 1):
                push_above(tree, v, low, last)
    return True


@kernel
def advance(state: Any, d: int, high: int) -> None:
    """Move the frontier: no rows are left among the tuples that begin with the tuple's first d values and have up to `high` at level d."""
    while d >= 0 and high == GREATEST:
        d -= 1
        high = state[TUPLE + d]  # unused if none is left
    if d < 0:
        state[OVER] = 1
        return
    for i in range(d):
        if state[FRONTIER + i] != state[TUPLE + i]:
            return  # it is further
    if state[FRONTIER + d] <= high:
        state[FRONTIER + d] = high + 1
        for i in range(d + 1, 3):
            state[FRONTIER + i] = LEAST


@kernel
def put_triangle_gap(tree: Constraints, state: Any, bits: int, d: int, low: int, high: int) -> None:
    """Apply a gap: given the tuple's values at the levels of `bits`, level d has no value from `low` to `high`. Gaps of S, and of T under
    a, are kept."""
    table = tree.table
    begin(tree)
    if d == 1 and bits == 0:
        state[CONSTRAINTS] += put_key_gap(tree, low, high)
    elif d == 2 and bits == 2:
        state[CONSTRAINTS] += put_value_gap(tree, state[TUPLE + 1], low, high)
    elif d == 2 and table[NODE_WORDS * OWN + WHOLE] != 0 and table[NODE_WORDS * OWN + KEY] == state[TUPLE]:
        state[CONSTRAINTS] += put_interval(tree, OWN, low, high, 1)
    advance(state, d, high)


@kernel
def move_to(tree: Constraints, state: Any, a: int, stop: int) -> bool:
    """Make the gaps of T those under a; False if the steps reached `stop` while others were dropped."""
    table, u = tree.table, NODE_WORDS * OWN
    if table[u + WHOLE] != 0 and table[u + KEY] == a:
        return True
    table[u + WHOLE] = 0
    while table[u + cds.COUNT] != 0:
        if state[STEPS] >= stop:
            return False
        state[STEPS] += 1
        _, low, high = next_interval(tree, OWN, LEAST)
        take_out(tree, OWN, low, high, 1)
    table[u + KEY], table[u + WHOLE] = a, 1
    return True


@kernel
def free_value(tree: Constraints, state: Any, v: int, c: int, stop: int) -> tuple[int, int]:
    """The least value >= c free in node v (0: in all) and in the gaps of T: FREE and the value; NONE; or STOPPED and where to continue."""
    while True:
        state[STEPS] += 1
        found, y, _ = next_free(tree, OWN, c)
        if not found or v == 0:
            return FREE if found else NONE, y
        found, c, _ = next_free(tree, v, y)
        if not found or c == y:
            return FREE if found else NONE, c
        if state[STEPS] >= stop:
            return STOPPED, c


@kernel
def next_sibling(tree: Constraints, v: int) -> int:
    """The first node to the right of everything below node v; 0 if there is none."""
    table = tree.table
    above = table[NODE_WORDS * v + ABOVE]
    while above != 0 and table[NODE_WORDS * above + RIGHT] == v:
        v = above
        above = table[NODE_WORDS * v + ABOVE]
    return table[NODE_WORDS * above + RIGHT] if above != 0 else 0


@kernel
def walk(tree: Constraints, state: Any, unknown: tuple[bool, int], stop: int) -> int:
    """Move the tuple to the first leaf from the frontier's b on that has a value of C with a (FREE), or the frontier to the first unknown
    value (STOPPED, also if the steps reach `stop`); NONE if there is neither."""
    table, scratch = tree.table, tree.scratch
    a, b = state[FRONTIER], state[FRONTIER + 1]
    there, z = unknown
    v, c = scratch[WALK], scratch[WALK_C]
    scratch[WALK] = 0
    if v == 0 or scratch[WALK_A] != a or scratch[WALK_B] != b:
        v, c = leaf_of(tree, b), wide(LEAST)
    while v != 0 and not (there and low_of(tree, v) > z):
        how, leaf = NONE, table[NODE_WORDS * v + BIT] < 0
        if state[STEPS] >= stop:
            how = STOPPED
        elif table[NODE_WORDS * v + WHOLE] != 0:
            state[PAIRS] += leaf and c == LEAST
            how, c = free_value(tree, state, v, c, stop)
        else:
            how = FREE
        if how == STOPPED:
            scratch[WALK], scratch[WALK_C], scratch[WALK_A], scratch[WALK_B] = v, c, a, b
            return STOPPED
        if how == FREE and leaf:
            state[TUPLE + 1], state[TUPLE + 2] = table[NODE_WORDS * v + KEY], c
            return FREE
        v, c = table[NODE_WORDS * v + LEFT] if how == FREE else next_sibling(tree, v), wide(LEAST)
    if not there:
        return NONE
    state[FRONTIER + 1] = z
    return STOPPED


@kernel
def next_of_a(tree: Constraints, state: Any, stop: int) -> int:
    """As `next_triple`, for the frontier's a, whose gaps of T the tree has; NONE if there is no tuple with a. STOPPED also if the frontier
    has come to an unknown value."""
    b, c = state[FRONTIER + 1], state[FRONTIER + 2]
    if c > LEAST:
        how, state[TUPLE + 2] = free_value(tree, state, leaf_of(tree, b), c, stop)
        if how == STOPPED:
            state[FRONTIER + 2] = state[TUPLE + 2]
        if how != NONE:
            state[TUPLE + 1] = b
            return how
        if b == GREATEST:
            return NONE
        b += 1
    found, b, _ = next_free(tree, GAPS, b)
    if not found:
        return NONE
    state[FRONTIER + 1], state[FRONTIER + 2] = b, LEAST
    there, z, _ = next_free(tree, KNOWN, b)
    if not there or z > b:
        return walk(tree, state, (there, z), stop)
    state[PAIRS] += 1
    state[TUPLE + 1] = b
    how, state[TUPLE + 2] = free_value(tree, state, 0, LEAST, stop)
    return how


@kernel
def next_triple(tree: Constraints, state: Any, stop: int) -> int:
    """Move the tuple, and the frontier, to the least tuple from the frontier on that no constraint rules out (FREE); ENDED if there is
    none; STOPPED if the steps reach `stop`, or the tree has no room."""
    if not grow(tree, state, stop):
        return STOPPED
    while state[OVER] == 0:
        a = state[FRONTIER]
        if state[STEPS] >= stop or not move_to(tree, state, a, stop):
            return STOPPED
        how = next_of_a(tree, state, stop)
        if how == FREE:
            state[TUPLE] = a
            for d in range(3):
                state[FRONTIER + d] = state[TUPLE + d]
            return FREE
        if how == NONE:
            found, _, _ = next_free(tree, GAPS, LEAST)
            state[TUPLE] = a
            advance(state, 0, a if found else GREATEST)
    return ENDED


class TriangleTree(ConstraintTree):
    """What a reading of a triangle, and its clones, have found. Not kept between versions."""

    def check(self) -> None:
        """Prove M3 and M5 to M7; AssertionError names the invariant."""
        table, scratch = self.arrays.table, self.arrays.scratch
        lists = self._check_intervals()
        if table[MADE] == ROOT + 1:
            return
        known = merged([*lists.get(GAPS, []), *((key, key) for key in self._check_below(int(table[TOP])))])
        assert lists.get(KNOWN, []) == known, "M6: the known values are not the leaves and the gaps"
        for v in range(FIRST, int(table[MADE])):
            left, right, bit, whole = (int(table[NODE_WORDS * v + word]) for word in (LEFT, RIGHT, BIT, WHOLE))
            if bit < 0:
                continue
            low, high = int(low_of(self.arrays, v)), int(high_of(self.arrays, v))
            covered = any(first <= low and high <= last for first, last in known)
            if scratch[FRAMES] == 0 and not scratch[RISING : RISING + 2].any():
                both = [(max(x, y), min(p, q)) for x, p in lists.get(left, []) for y, q in lists.get(right, []) if max(x, y) <= min(p, q)]
                assert bool(whole) == covered, f"M6: node {v}, {low} to {high}"
                assert lists.get(v, []) == (merged(both) if whole else []), f"M7: the list of node {v}"

    def _check_below(self, v: int) -> list[int]:
        """The keys below a node."""
        table = self.arrays.table
        if v == 0 or table[NODE_WORDS * v + BIT] < 0:
            return [int(table[NODE_WORDS * v + KEY])] if v else []
        parts = [self._check_below(int(table[NODE_WORDS * v + word])) for word in (LEFT, RIGHT)]
        low, high = int(low_of(self.arrays, v)), int(high_of(self.arrays, v))
        assert low <= parts[0][0] and parts[0][-1] < parts[1][0] and parts[1][-1] <= high, f"M5: keys below node {v}"
        for word in (LEFT, RIGHT):
            assert table[NODE_WORDS * int(table[NODE_WORDS * v + word]) + ABOVE] == v, f"M5: what is above the children of node {v}"
        return [*parts[0], *parts[1]]


def merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The intervals in order, with those that overlap or touch merged."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found

"""Min-IJ and max-IJ queries: the least or greatest V-tuple below a node, under a bound for each alias.

Problem: `which` 0: of the V-tuples below node u whose (key, right_i) >= (K, b_i) for all i, the one with the smallest lefts; `which` 1:
of those with (key, left_i) <= (K, a_i), the one with the largest rights. By Closure (the paper's Lemma 15) "smallest" holds in every
coordinate at once, and the answer is a real V-tuple.

Both are one algorithm: `which` 1 is its mirror image, with children swapped and the order of values and keys reversed. So a value is
compared as value ^ x, x = 0 or -1, and "near child" is the lower for 0, the upper for 1.

    ask(u)      1  the opposite extreme breaks a bound: there is none (exact, by Closure)
                2  the stored extreme meets the bounds: it is the answer
                3  it cannot improve the answer so far: nothing to do
                4  a leaf is searched; another node is opened:
    open(u)     the near child is asked; then every split of V that is live (the far components are asked first, their nears bound
                the near ones); then the far child (`which` 0: only if nothing was found, as it is dominated)

No recursion: frames in `scratch`, one a level; a frame writes into its own answer (far components of a split) or that of its caller.
An answer has the form of `leaves`: key, mask of the members filled in, near, far, slot by alias.

    scratch   of leaves | found alias | ASK: key, bound by alias | answer | frames

Costs: O(log n) nodes each for t = 2, polylogarithmic for every t; O(1) without bounds. A reader needs scratch of its own.
Source: Tao and Yi, Lemma 11; docs/design/ij-heap.md (*The one composition step*, *The two queries*; Caps).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import KEY_MAX
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import kernel, wide
from structures.multiway import topology
from structures.multiway.alias import FOUND_, FOUND_WORDS, first, reach
from structures.multiway.layout import CHILD, MOST_LEVELS, L, MultiwayNodes, height_of, key_at, key_of, near_at, slot_at
from structures.multiway.leaves import ANSWER_WORDS, AT, FAR_, FILLED, KEY_, NEAR_, SLOT_, entry_at, leaf_greatest, leaf_least

LAST_KEY = KEY_MAX - 1  # the greatest key of an entry

BOUND_WORDS = 7  # key, bound by alias
ASK = FOUND_ + FOUND_WORDS
ANSWER = ASK + BOUND_WORDS
ASKED = ANSWER + ANSWER_WORDS  # nodes asked so far
FRAMES = ASKED + 1
# A frame: node, subset, next split (-1: the near child first), part of it, answer's place, whether something was found, the split's key,
NODE, SUBSET, SPLIT, PART, INTO, FOUND, AT_KEY = range(7)
BOUND = 7  # the bounds; SHARP: those of the split; OWN: the answer for its far components
SHARP = BOUND + BOUND_WORDS
OWN = SHARP + BOUND_WORDS
FRAME_WORDS = OWN + ANSWER_WORDS
SCRATCH_WORDS = FRAMES + MOST_LEVELS * FRAME_WORDS

NOTHING, ANSWERED, OPEN = 0, 1, 2


@kernel
def forget(scratch: Any, answer: int, which: int) -> None:
    """Empty the answer."""
    scratch[answer + KEY_] = KEY_MAX if which == 0 else -1
    scratch[answer + FILLED] = 0


@kernel
def no_bounds(scratch: Any, bound: int, which: int) -> None:
    scratch[bound] = 0 if which == 0 else LAST_KEY
    for i in range(6):
        scratch[bound + 1 + i] = NEG_INF if which == 0 else POS_INF


@kernel
def take(scratch: Any, answer: int, which: int, key: int) -> bool:
    """Make room for a tuple of this key in the answer; False if the answer's key is better."""
    x = -which
    if (key ^ x) > (scratch[answer + KEY_] ^ x):
        return False
    if key != scratch[answer + KEY_]:
        scratch[answer + KEY_], scratch[answer + FILLED] = key, 0
    return True


@kernel
def offer(scratch: Any, answer: int, which: int, i: int, near: int, far: int, slot: int) -> None:
    """Write alias i's interval into the answer if it is better than the present one."""
    filled, x = scratch[answer + FILLED], -which
    if (filled >> i) & 1 == 0 or (near ^ x) < (scratch[answer + NEAR_ + i] ^ x):
        scratch[answer + FILLED] = filled | (1 << i)
        scratch[answer + NEAR_ + i], scratch[answer + FAR_ + i], scratch[answer + SLOT_ + i] = near, far, slot


@kernel
def offer_stored(nodes: MultiwayNodes, scratch: Any, which: int, o: int, v: int, answer: int) -> None:
    """Merge the stored extreme of node o, which exists, into the answer."""
    M, W, table = nodes.M, nodes.W, nodes.table
    if not take(scratch, answer, which, key_of(nodes, o, which, v)):
        return
    near, slot = near_at(table, o, which), slot_at(table, o, which)
    for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
        offer(scratch, answer, which, table[topology.MEMBER + m], M[near + m], M[near + table[topology.SPAN] + m], wide(W[slot + m]))


@kernel
def offer_leaf(nodes: MultiwayNodes, scratch: Any, which: int, o: int, v: int, bound: int, answer: int) -> None:
    """Merge the leaf's extreme within the bounds, if there is one, into the answer."""
    M, W, table = nodes.M, nodes.W, nodes.table
    if which == 0:
        found = leaf_least(nodes, scratch, o, v, scratch[bound], bound + 1)
    else:
        found = leaf_greatest(nodes, scratch, o, v, scratch[bound], bound + 1)
    e, w = entry_at(table, o)
    near, far = (e, e + L) if which == 0 else (e + L, e)
    if not found or not take(scratch, answer, which, wide(W[w + L + scratch[AT + table[topology.MEMBER + table[topology.POS + v]]]])):
        return
    for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
        i = table[topology.MEMBER + m]
        p = scratch[AT + i]
        offer(scratch, answer, which, i, M[near + p], M[far + p], wide(W[w + p]))


@kernel
def offer_alias(nodes: MultiwayNodes, scratch: Any, which: int, o: int, i: int, bound: int, answer: int) -> None:
    """Merge the extreme of alias i alone within the bounds, which exists, into the answer."""
    if which == 0:
        first(nodes, scratch, o, i, scratch[bound], scratch[bound + 1 + i])
        near, far = scratch[FOUND_ + 1], scratch[FOUND_ + 2]
    else:
        reach(nodes, scratch, o, i, scratch[bound], scratch[bound + 1 + i])
        near, far = scratch[FOUND_ + 2], scratch[FOUND_ + 1]
    if take(scratch, answer, which, scratch[FOUND_]):
        offer(scratch, answer, which, i, near, far, scratch[FOUND_ + 3])


@kernel
def reaches(nodes: MultiwayNodes, scratch: Any, which: int, o: int, v: int, bound: int) -> bool:
    """Whether a v-tuple below node o meets the bounds: by Closure iff the opposite extreme does."""
    M, table = nodes.M, nodes.table
    x = -which
    k = key_of(nodes, o, 1 - which, v)
    if k != scratch[bound]:
        return (k ^ x) > (scratch[bound] ^ x)
    near = near_at(table, o, 1 - which)
    for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
        if (M[near + m] ^ x) < (scratch[bound + 1 + table[topology.MEMBER + m]] ^ x):
            return False
    return True


@kernel
def betters(nodes: MultiwayNodes, scratch: Any, which: int, o: int, v: int, key: int, answer: int) -> bool:
    """Whether a v-tuple below node o, at best of this key, could improve the answer, whose key is no better."""
    M, table = nodes.M, nodes.table
    if key != scratch[answer + KEY_] or key_of(nodes, o, which, v) != key:
        return True
    x = -which
    near = near_at(table, o, which)
    for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
        i = table[topology.MEMBER + m]
        if (scratch[answer + FILLED] >> i) & 1 == 0 or (M[near + m] ^ x) < (scratch[answer + NEAR_ + i] ^ x):
            return True
    return False


@kernel
def ask(nodes: MultiwayNodes, scratch: Any, which: int, o: int, v: int, bound: int, answer: int) -> int:
    """Answer from what node o stores, or from the leaf: NOTHING if there is no tuple, ANSWERED, or OPEN if it must be opened."""
    M, W, table = nodes.M, nodes.W, nodes.table
    scratch[ASKED] += 1
    if not reaches(nodes, scratch, which, o, v, bound):
        return NOTHING
    x = -which
    k = key_of(nodes, o, which, v)
    if (k ^ x) > (scratch[answer + KEY_] ^ x) or not betters(nodes, scratch, which, o, v, k, answer):
        return ANSWERED
    meets = (k ^ x) >= (scratch[bound] ^ x)
    if k == scratch[bound]:
        far = near_at(table, o, which) + table[topology.SPAN]
        for m in range(table[topology.POS + v], table[topology.POS + v] + table[topology.SIZE + v]):
            if (M[far + m] ^ x) < (scratch[bound + 1 + table[topology.MEMBER + m]] ^ x):
                meets = False
                break
    if meets:
        offer_stored(nodes, scratch, which, o, v, answer)
        return ANSWERED
    if table[topology.SIZE + v] == 1:
        offer_alias(nodes, scratch, which, o, v, bound, answer)
        return ANSWERED
    if height_of(W, o) == 0:
        offer_leaf(nodes, scratch, which, o, v, bound, answer)
        return ANSWERED
    return OPEN


@kernel
def push(scratch: Any, f: int, o: int, v: int, bound: int, answer: int) -> None:
    scratch[f + NODE], scratch[f + SUBSET], scratch[f + SPLIT], scratch[f + PART] = o, v, -1, 0
    scratch[f + INTO], scratch[f + FOUND] = answer, 0
    for i in range(BOUND_WORDS):
        scratch[f + BOUND + i] = scratch[bound + i]


@kernel
def promising(nodes: MultiwayNodes, scratch: Any, which: int, f: int, r: int) -> bool:
    """Whether split r of frame f may be live, by the stored extremes, and could improve the answer; writes its key into AT_KEY."""
    M, W, table = nodes.M, nodes.W, nodes.table
    x = -which
    o = scratch[f + NODE]
    near, far = M[o + CHILD + which], M[o + CHILD + 1 - which]
    near_parts, far_parts = r + topology.SPLIT_PARTS + 6 * which, r + topology.SPLIT_PARTS + 6 * (1 - which)
    near_keys, far_keys = key_at(table, near, 1 - which), key_at(table, far, which)
    key = wide(W[near_keys + table[near_parts]])
    if (key ^ x) < (scratch[f + BOUND] ^ x) or (key ^ x) > (scratch[scratch[f + INTO] + KEY_] ^ x):
        return False
    for c in range(table[r + topology.SPLIT_COUNT + which]):
        if W[near_keys + table[near_parts + c]] != key:
            return False
    for c in range(table[r + topology.SPLIT_COUNT + 1 - which]):
        if W[far_keys + table[far_parts + c]] != key:
            return False
    ends, begins = near_at(table, near, 1 - which), near_at(table, far, which)
    for edge in range(r + topology.SPLIT_EDGES, r + topology.SPLIT_EDGES + 4 * table[r + topology.SPLIT_CROSS], 4):
        if (M[ends + table[edge + 2 + which]] ^ x) < (M[begins + table[edge + 3 - which]] ^ x):
            return False
    scratch[f + AT_KEY] = key
    for c in range(table[r + topology.SPLIT_COUNT + which]):
        if betters(nodes, scratch, which, near, table[near_parts + c], key, scratch[f + INTO]):
            return True
    for c in range(table[r + topology.SPLIT_COUNT + 1 - which]):
        if betters(nodes, scratch, which, far, table[far_parts + c], key, scratch[f + INTO]):
            return True
    return False


@kernel
def sharpen(scratch: Any, which: int, f: int) -> None:
    """Write the bounds that apply at the split's key into SHARP."""
    scratch[f + SHARP] = scratch[f + AT_KEY]
    same = scratch[f + AT_KEY] == scratch[f + BOUND]
    for i in range(6):
        if same:
            scratch[f + SHARP + 1 + i] = scratch[f + BOUND + 1 + i]
        else:
            scratch[f + SHARP + 1 + i] = NEG_INF if which == 0 else POS_INF


@kernel
def cross(nodes: MultiwayNodes, scratch: Any, which: int, f: int, r: int) -> bool:
    """Once the far components of split r are answered in OWN, decide whether it is live. If so, offer them to the frame's answer, and set
    SHARP to what the near ones must reach."""
    M, table = nodes.M, nodes.table
    x = -which
    near = M[scratch[f + NODE] + CHILD + which]
    if scratch[f + OWN + KEY_] != scratch[f + AT_KEY]:
        return False
    for edge in range(r + topology.SPLIT_EDGES, r + topology.SPLIT_EDGES + 4 * table[r + topology.SPLIT_CROSS], 4):
        i, j = table[edge + which], table[edge + 1 - which]
        if (scratch[f + OWN + FILLED] >> j) & 1 == 0:
            return False
        if (scratch[f + OWN + NEAR_ + j] ^ x) > (scratch[f + SHARP + 1 + i] ^ x):
            scratch[f + SHARP + 1 + i] = scratch[f + OWN + NEAR_ + j]
    parts = r + topology.SPLIT_PARTS + 6 * which
    for c in range(table[r + topology.SPLIT_COUNT + which]):
        if not reaches(nodes, scratch, which, near, table[parts + c], f + SHARP):
            return False
    if take(scratch, scratch[f + INTO], which, scratch[f + AT_KEY]):
        for j in range(6):
            if (scratch[f + OWN + FILLED] >> j) & 1 != 0:
                own = f + OWN + j
                offer(scratch, scratch[f + INTO], which, j, scratch[own + NEAR_], scratch[own + FAR_], scratch[own + SLOT_])
    scratch[f + FOUND] = 1
    return True


@kernel
def split_step(nodes: MultiwayNodes, scratch: Any, which: int, f: int, r: int) -> bool:
    """Continue with split r of frame f; True if a child was opened (pushed behind f), False when the split is done."""
    M, table = nodes.M, nodes.table
    o = scratch[f + NODE]
    near, far = M[o + CHILD + which], M[o + CHILD + 1 - which]
    nears, fars = table[r + topology.SPLIT_COUNT + which], table[r + topology.SPLIT_COUNT + 1 - which]
    part = scratch[f + PART]
    if part == 0:
        if not promising(nodes, scratch, which, f, r):
            return False
        sharpen(scratch, which, f)
        forget(scratch, f + OWN, which)
    while part < fars:
        v = table[r + topology.SPLIT_PARTS + 6 * (1 - which) + part]
        part += 1
        state = ask(nodes, scratch, which, far, v, f + SHARP, f + OWN)
        if state == NOTHING:
            return False
        if state == OPEN:
            scratch[f + PART] = part
            push(scratch, f + FRAME_WORDS, far, v, f + SHARP, f + OWN)
            return True
    if part == fars:
        if not cross(nodes, scratch, which, f, r):
            return False
        part += 1
    while part - fars - 1 < nears:
        v = table[r + topology.SPLIT_PARTS + 6 * which + part - fars - 1]
        part += 1
        if ask(nodes, scratch, which, near, v, f + SHARP, scratch[f + INTO]) == OPEN:
            scratch[f + PART] = part
            push(scratch, f + FRAME_WORDS, near, v, f + SHARP, scratch[f + INTO])
            return True
    return False


@kernel
def extreme(nodes: MultiwayNodes, scratch: Any, which: int, o: int, v: int, opened: bool) -> bool:
    """Write the extreme v-tuple below node o within the bounds at scratch[ASK] to scratch[ANSWER]; False if there is none. `opened`: do not
    ask inner node o itself, whose summary is not written yet."""
    M, table = nodes.M, nodes.table
    forget(scratch, ANSWER, which)
    if not opened:
        state = ask(nodes, scratch, which, o, v, ASK, ANSWER)
        if state != OPEN:
            return state == ANSWERED
    push(scratch, FRAMES, o, v, ASK, ANSWER)
    f = FRAMES
    while f >= FRAMES:
        o, v = scratch[f + NODE], scratch[f + SUBSET]
        near, far = M[o + CHILD + which], M[o + CHILD + 1 - which]
        if scratch[f + SPLIT] < 0:
            scratch[f + SPLIT] = 0
            state = ask(nodes, scratch, which, near, v, f + BOUND, scratch[f + INTO])
            if state != NOTHING:
                scratch[f + FOUND] = 1
            if state == OPEN:
                push(scratch, f + FRAME_WORDS, near, v, f + BOUND, scratch[f + INTO])
                f += FRAME_WORDS
        elif scratch[f + SPLIT] < table[topology.NSPLITS + v]:
            if split_step(nodes, scratch, which, f, table[table[topology.SPLITS + v] + scratch[f + SPLIT]]):
                f += FRAME_WORDS
            else:
                scratch[f + SPLIT] += 1
                scratch[f + PART] = 0
        elif (which == 0 and scratch[f + FOUND] != 0) or ask(nodes, scratch, which, far, v, f + BOUND, scratch[f + INTO]) != OPEN:
            f -= FRAME_WORDS
        else:
            push(scratch, f, far, v, f + BOUND, scratch[f + INTO])
    return scratch[ANSWER + FILLED] != 0


@kernel("boolean(MultiwayNodes, int64[::1], int64, int64, int64)")
def find_extreme(nodes: MultiwayNodes, scratch: Any, which: int, o: int, v: int) -> bool:
    """`extreme` for callers in Python. O(polylog(n)), as the head says."""
    return extreme(nodes, scratch, which, o, v, False)

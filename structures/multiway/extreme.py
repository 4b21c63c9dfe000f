"""Min-IJ and max-IJ queries: the least or greatest V-tuple below a node, under a bound for each alias.

Problem: `which` 0: of the V-tuples below node u whose (key, right_i) >= (K, b_i) for all i, the one with the smallest lefts; `which` 1:
of those with (key, left_i) <= (K, a_i), the one with the largest rights. By Closure (the paper's Lemma 15) "smallest" holds in every
coordinate at once, and the answer is a real V-tuple.

Both are one algorithm: `which` 1 is its mirror image, children swapped and the order of values and keys turned round. So a value is
compared as value ^ x, x = 0 or -1, and "near child" is the lower for 0, the upper for 1.

    ask(u)      1  the opposite extreme breaks a bound: there is none (exact, by Closure)
                2  the stored extreme keeps the bounds: it is the answer
                3  it could not better what is known: nothing to do
                4  a leaf is searched; else the node is opened:
    open(u)     the near child is asked; then every split of V that is live (the far components are asked first, their nears bound
                the near ones); then the far child (`which` 0: only if there was nothing yet, for it is dominated)

No recursion: frames in X, one a level; a frame writes into an answer of its own (far components of a split) or of its caller.
An answer is as in `leaves`: key, mask of the members filled in, near, far, slot by alias.

    X   scratch of leaves | found alias | ASK: key, bound by alias | answer | frames

Costs: O(log n) nodes each for t = 2, polylogarithmic for every t; O(1) without bounds. A reader needs an X of its own.
Source: Tao and Yi, Lemma 11; docs/design/ij-heap.md (*The one composition step*, *The two queries*; Caps).
"""

from __future__ import annotations

from typing import Any

from structures.core.arena import KEY_MAX
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import kernel, wide
from structures.multiway import topology
from structures.multiway.alias import FOUND_, FOUND_WORDS, first, reach
from structures.multiway.layout import CHILD, L, MultiwayNodes, height_of, key_at, key_of, near_at, slot_at
from structures.multiway.leaves import ANSWER_WORDS, AT, FAR_, FILLED, KEY_, NEAR_, SLOT_, entry_at, leaf_greatest, leaf_least

LAST_KEY = KEY_MAX - 1  # the greatest key of an entry

BOUND_WORDS = 7  # key, bound by alias
ASK = FOUND_ + FOUND_WORDS
ANSWER = ASK + BOUND_WORDS
ASKED = ANSWER + ANSWER_WORDS  # nodes asked so far
FRAMES = ASKED + 1
# A frame: node, subset, next split (-1: the near child first), part of it, answer's place, whether something was found, the split's key,
NODE, SUBSET, SPLIT, PART, INTO, FOUND, AT_KEY = range(7)
BOUND = 7  # the bounds; SHARP: those of the split; OWN: the answer of its far components
SHARP = BOUND + BOUND_WORDS
OWN = SHARP + BOUND_WORDS
FRAME_WORDS = OWN + ANSWER_WORDS
SCRATCH_WORDS = FRAMES + 64 * FRAME_WORDS

NOTHING, ANSWERED, OPEN = 0, 1, 2


@kernel
def forget(X: Any, answer: int, which: int) -> None:
    """Empty the answer."""
    X[answer + KEY_] = KEY_MAX if which == 0 else -1
    X[answer + FILLED] = 0


@kernel
def no_bounds(X: Any, bound: int, which: int) -> None:
    X[bound] = 0 if which == 0 else LAST_KEY
    for i in range(6):
        X[bound + 1 + i] = NEG_INF if which == 0 else POS_INF


@kernel
def take(X: Any, answer: int, which: int, key: int) -> bool:
    """Make room for a tuple of the key in the answer; False if the answer's key is better."""
    x = -which
    if (key ^ x) > (X[answer + KEY_] ^ x):
        return False
    if key != X[answer + KEY_]:
        X[answer + KEY_], X[answer + FILLED] = key, 0
    return True


@kernel
def offer(X: Any, answer: int, which: int, i: int, near: int, far: int, slot: int) -> None:
    """Put alias i's interval into the answer if it is better than the one there."""
    filled, x = X[answer + FILLED], -which
    if (filled >> i) & 1 == 0 or (near ^ x) < (X[answer + NEAR_ + i] ^ x):
        X[answer + FILLED] = filled | (1 << i)
        X[answer + NEAR_ + i], X[answer + FAR_ + i], X[answer + SLOT_ + i] = near, far, slot


@kernel
def offer_stored(nodes: MultiwayNodes, X: Any, which: int, o: int, v: int, answer: int) -> None:
    """Merge the stored extreme of node o, which exists, into the answer."""
    M, W, T = nodes.M, nodes.W, nodes.T
    if not take(X, answer, which, key_of(nodes, o, which, v)):
        return
    near, slot = near_at(T, o, which), slot_at(T, o, which)
    for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
        offer(X, answer, which, T[topology.MEMBER + m], M[near + m], M[near + T[topology.SPAN] + m], wide(W[slot + m]))


@kernel
def offer_leaf(nodes: MultiwayNodes, X: Any, which: int, o: int, v: int, bound: int, answer: int) -> None:
    """Merge the leaf's extreme within the bounds, if there is one, into the answer."""
    M, W, T = nodes.M, nodes.W, nodes.T
    if which == 0:
        found = leaf_least(nodes, X, o, v, X[bound], bound + 1)
    else:
        found = leaf_greatest(nodes, X, o, v, X[bound], bound + 1)
    e, w = entry_at(T, o)
    near, far = (e, e + L) if which == 0 else (e + L, e)
    if not found or not take(X, answer, which, wide(W[w + L + X[AT + T[topology.MEMBER + T[topology.POS + v]]]])):
        return
    for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
        i = T[topology.MEMBER + m]
        p = X[AT + i]
        offer(X, answer, which, i, M[near + p], M[far + p], wide(W[w + p]))


@kernel
def offer_alias(nodes: MultiwayNodes, X: Any, which: int, o: int, i: int, bound: int, answer: int) -> None:
    """Merge the extreme of alias i alone within the bounds, which exists, into the answer."""
    if which == 0:
        first(nodes, X, o, i, X[bound], X[bound + 1 + i])
        near, far = X[FOUND_ + 1], X[FOUND_ + 2]
    else:
        reach(nodes, X, o, i, X[bound], X[bound + 1 + i])
        near, far = X[FOUND_ + 2], X[FOUND_ + 1]
    if take(X, answer, which, X[FOUND_]):
        offer(X, answer, which, i, near, far, X[FOUND_ + 3])


@kernel
def reaches(nodes: MultiwayNodes, X: Any, which: int, o: int, v: int, bound: int) -> bool:
    """Whether a v-tuple below node o keeps the bounds: by Closure iff the opposite extreme does."""
    M, T = nodes.M, nodes.T
    x = -which
    k = key_of(nodes, o, 1 - which, v)
    if k != X[bound]:
        return (k ^ x) > (X[bound] ^ x)
    near = near_at(T, o, 1 - which)
    for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
        if (M[near + m] ^ x) < (X[bound + 1 + T[topology.MEMBER + m]] ^ x):
            return False
    return True


@kernel
def betters(nodes: MultiwayNodes, X: Any, which: int, o: int, v: int, key: int, answer: int) -> bool:
    """Whether a v-tuple below node o, of the key at best, could better the answer, whose key is no better."""
    M, T = nodes.M, nodes.T
    if key != X[answer + KEY_] or key_of(nodes, o, which, v) != key:
        return True
    x = -which
    near = near_at(T, o, which)
    for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
        i = T[topology.MEMBER + m]
        if (X[answer + FILLED] >> i) & 1 == 0 or (M[near + m] ^ x) < (X[answer + NEAR_ + i] ^ x):
            return True
    return False


@kernel
def ask(nodes: MultiwayNodes, X: Any, which: int, o: int, v: int, bound: int, answer: int) -> int:
    """Answer from what node o stores, or from the leaf: NOTHING there, ANSWERED, or OPEN: it must be opened."""
    M, W, T = nodes.M, nodes.W, nodes.T
    X[ASKED] += 1
    if not reaches(nodes, X, which, o, v, bound):
        return NOTHING
    x = -which
    k = key_of(nodes, o, which, v)
    if (k ^ x) > (X[answer + KEY_] ^ x) or not betters(nodes, X, which, o, v, k, answer):
        return ANSWERED
    meets = (k ^ x) >= (X[bound] ^ x)
    if k == X[bound]:
        far = near_at(T, o, which) + T[topology.SPAN]
        for m in range(T[topology.POS + v], T[topology.POS + v] + T[topology.SIZE + v]):
            if (M[far + m] ^ x) < (X[bound + 1 + T[topology.MEMBER + m]] ^ x):
                meets = False
                break
    if meets:
        offer_stored(nodes, X, which, o, v, answer)
        return ANSWERED
    if T[topology.SIZE + v] == 1:
        offer_alias(nodes, X, which, o, v, bound, answer)
        return ANSWERED
    if height_of(W, o) == 0:
        offer_leaf(nodes, X, which, o, v, bound, answer)
        return ANSWERED
    return OPEN


@kernel
def push(X: Any, f: int, o: int, v: int, bound: int, answer: int) -> None:
    X[f + NODE], X[f + SUBSET], X[f + SPLIT], X[f + PART], X[f + INTO], X[f + FOUND] = o, v, -1, 0, answer, 0
    for i in range(BOUND_WORDS):
        X[f + BOUND + i] = X[bound + i]


@kernel
def promising(nodes: MultiwayNodes, X: Any, which: int, f: int, r: int) -> bool:
    """Whether split r of frame f may be live, by the stored extremes, and could better the answer; its key into AT_KEY."""
    M, W, T = nodes.M, nodes.W, nodes.T
    x = -which
    o = X[f + NODE]
    near, far = M[o + CHILD + which], M[o + CHILD + 1 - which]
    near_parts, far_parts = r + topology.SPLIT_PARTS + 6 * which, r + topology.SPLIT_PARTS + 6 * (1 - which)
    near_keys, far_keys = key_at(T, near, 1 - which), key_at(T, far, which)
    key = wide(W[near_keys + T[near_parts]])
    if (key ^ x) < (X[f + BOUND] ^ x) or (key ^ x) > (X[X[f + INTO] + KEY_] ^ x):
        return False
    for c in range(T[r + topology.SPLIT_COUNT + which]):
        if W[near_keys + T[near_parts + c]] != key:
            return False
    for c in range(T[r + topology.SPLIT_COUNT + 1 - which]):
        if W[far_keys + T[far_parts + c]] != key:
            return False
    ends, begins = near_at(T, near, 1 - which), near_at(T, far, which)
    for edge in range(r + topology.SPLIT_EDGES, r + topology.SPLIT_EDGES + 4 * T[r + topology.SPLIT_CROSS], 4):
        if (M[ends + T[edge + 2 + which]] ^ x) < (M[begins + T[edge + 3 - which]] ^ x):
            return False
    X[f + AT_KEY] = key
    for c in range(T[r + topology.SPLIT_COUNT + which]):
        if betters(nodes, X, which, near, T[near_parts + c], key, X[f + INTO]):
            return True
    for c in range(T[r + topology.SPLIT_COUNT + 1 - which]):
        if betters(nodes, X, which, far, T[far_parts + c], key, X[f + INTO]):
            return True
    return False


@kernel
def sharpen(X: Any, which: int, f: int) -> None:
    """The bounds that hold at the split's key into SHARP."""
    X[f + SHARP] = X[f + AT_KEY]
    same = X[f + AT_KEY] == X[f + BOUND]
    for i in range(6):
        if same:
            X[f + SHARP + 1 + i] = X[f + BOUND + 1 + i]
        else:
            X[f + SHARP + 1 + i] = NEG_INF if which == 0 else POS_INF


@kernel
def cross(nodes: MultiwayNodes, X: Any, which: int, f: int, r: int) -> bool:
    """The far components of split r are answered in OWN: whether it is live. Then they are offered to the frame's answer, and SHARP
    becomes what the near ones must reach."""
    M, T = nodes.M, nodes.T
    x = -which
    near = M[X[f + NODE] + CHILD + which]
    if X[f + OWN + KEY_] != X[f + AT_KEY]:
        return False
    for edge in range(r + topology.SPLIT_EDGES, r + topology.SPLIT_EDGES + 4 * T[r + topology.SPLIT_CROSS], 4):
        i, j = T[edge + which], T[edge + 1 - which]
        if (X[f + OWN + FILLED] >> j) & 1 == 0:
            return False
        if (X[f + OWN + NEAR_ + j] ^ x) > (X[f + SHARP + 1 + i] ^ x):
            X[f + SHARP + 1 + i] = X[f + OWN + NEAR_ + j]
    parts = r + topology.SPLIT_PARTS + 6 * which
    for c in range(T[r + topology.SPLIT_COUNT + which]):
        if not reaches(nodes, X, which, near, T[parts + c], f + SHARP):
            return False
    if take(X, X[f + INTO], which, X[f + AT_KEY]):
        for j in range(6):
            if (X[f + OWN + FILLED] >> j) & 1 != 0:
                own = f + OWN + j
                offer(X, X[f + INTO], which, j, X[own + NEAR_], X[own + FAR_], X[own + SLOT_])
    X[f + FOUND] = 1
    return True


@kernel
def split_step(nodes: MultiwayNodes, X: Any, which: int, f: int, r: int) -> bool:
    """Go on with split r of frame f; True if a child was opened (pushed behind f), False when the split is done."""
    M, T = nodes.M, nodes.T
    o = X[f + NODE]
    near, far = M[o + CHILD + which], M[o + CHILD + 1 - which]
    nears, fars = T[r + topology.SPLIT_COUNT + which], T[r + topology.SPLIT_COUNT + 1 - which]
    part = X[f + PART]
    if part == 0:
        if not promising(nodes, X, which, f, r):
            return False
        sharpen(X, which, f)
        forget(X, f + OWN, which)
    while part < fars:
        v = T[r + topology.SPLIT_PARTS + 6 * (1 - which) + part]
        part += 1
        state = ask(nodes, X, which, far, v, f + SHARP, f + OWN)
        if state == NOTHING:
            return False
        if state == OPEN:
            X[f + PART] = part
            push(X, f + FRAME_WORDS, far, v, f + SHARP, f + OWN)
            return True
    if part == fars:
        if not cross(nodes, X, which, f, r):
            return False
        part += 1
    while part - fars - 1 < nears:
        v = T[r + topology.SPLIT_PARTS + 6 * which + part - fars - 1]
        part += 1
        if ask(nodes, X, which, near, v, f + SHARP, X[f + INTO]) == OPEN:
            X[f + PART] = part
            push(X, f + FRAME_WORDS, near, v, f + SHARP, X[f + INTO])
            return True
    return False


@kernel
def extreme(nodes: MultiwayNodes, X: Any, which: int, o: int, v: int, opened: bool) -> bool:
    """The extreme v-tuple below node o within the bounds at X[ASK], at X[ANSWER]; whether there is one. `opened`: do not ask inner node
    o itself, whose summary is not written yet."""
    M, T = nodes.M, nodes.T
    forget(X, ANSWER, which)
    if not opened:
        state = ask(nodes, X, which, o, v, ASK, ANSWER)
        if state != OPEN:
            return state == ANSWERED
    push(X, FRAMES, o, v, ASK, ANSWER)
    f = FRAMES
    while f >= FRAMES:
        o, v = X[f + NODE], X[f + SUBSET]
        near, far = M[o + CHILD + which], M[o + CHILD + 1 - which]
        if X[f + SPLIT] < 0:
            X[f + SPLIT] = 0
            state = ask(nodes, X, which, near, v, f + BOUND, X[f + INTO])
            if state != NOTHING:
                X[f + FOUND] = 1
            if state == OPEN:
                push(X, f + FRAME_WORDS, near, v, f + BOUND, X[f + INTO])
                f += FRAME_WORDS
        elif X[f + SPLIT] < T[topology.NSPLITS + v]:
            if split_step(nodes, X, which, f, T[T[topology.SPLITS + v] + X[f + SPLIT]]):
                f += FRAME_WORDS
            else:
                X[f + SPLIT] += 1
                X[f + PART] = 0
        elif (which == 0 and X[f + FOUND] != 0) or ask(nodes, X, which, far, v, f + BOUND, X[f + INTO]) != OPEN:
            f -= FRAME_WORDS
        else:
            push(X, f, far, v, f + BOUND, X[f + INTO])
    return X[ANSWER + FILLED] != 0


@kernel("boolean(MultiwayNodes, int64[::1], int64, int64, int64)")
def find_extreme(nodes: MultiwayNodes, X: Any, which: int, o: int, v: int) -> bool:
    """`extreme` for callers in Python."""
    return extreme(nodes, X, which, o, v, False)

"""Proof of the IJ-heap's invariants, for tests: slow, plain Python, independent of the composition step.

The least V-tuple below a node is found from all entries below it, by advancing whatever ends before a neighbour begins.
"""

from __future__ import annotations

from collections.abc import Callable

from structures.core.arena import INNER, KEY_MAX, LEAF
from structures.core.check import check_blocks
from structures.ij_heap.cursors import Root
from structures.multiway.layout import (
    CHILD,
    HEIGHT_,
    LEAF_LEAST,
    SEPARATOR_CODE,
    SEPARATOR_KEY,
    SEPARATOR_LEFT,
    STARTS,
    Blocks,
    L,
    key_at,
    near_at,
    slot_at,
)
from structures.multiway.leaves import entry_at
from structures.multiway.topology import SPAN, Topology

Entry = tuple[int, int, int, int]  # key, left, code, right


def leaf_entries(A: Blocks, o: int, t: int) -> list[Entry]:
    """The entries of a leaf, in the tree's order; proves I1 for each run."""
    e, w = entry_at(A.T, o)
    entries: list[Entry] = []
    for s in range(t):
        lo, hi = int(A.W[2 * o + STARTS + s]), int(A.W[2 * o + STARTS + s + 1])
        run = [(int(A.W[w + L + p]), int(A.M[e + p]), 8 * int(A.W[w + p]) + s, int(A.M[e + L + p])) for p in range(lo, hi)]
        assert all(x[:3] < y[:3] for x, y in zip(run, run[1:], strict=False)), f"I1: run {s} of leaf {o} is out of order"
        entries += run
    return sorted(entries)


def extreme_of(entries: list[Entry], topology: Topology, members: list[int], which: int) -> list[tuple[int, int]] | None:
    """(key, near endpoint) of each member in the least (`which` 0) or greatest tuple, by definition; None if there is none."""
    turn = 1 if which == 0 else -1
    runs = {}
    for i in members:
        mine = [x for x in entries if x[2] % 8 == i]
        ends = [((turn * k, turn * left), (turn * k, turn * right)) for k, left, _, right in mine]
        runs[i] = sorted((near, far) if which == 0 else (far, near) for near, far in ends)
    at = dict.fromkeys(members, 0)
    moved = True
    while moved:
        moved = False
        for i in members:
            for j in members:
                while topology.near[i] >> j & 1:
                    if at[i] == len(runs[i]) or at[j] == len(runs[j]):
                        return None
                    if runs[i][at[i]][1] >= runs[j][at[j]][0]:
                        break
                    at[i], moved = at[i] + 1, True
    if any(at[i] == len(runs[i]) for i in members):
        return None
    return [(turn * runs[i][at[i]][0][0], turn * runs[i][at[i]][0][1]) for i in members]


def check_summary(A: Blocks, topology: Topology, o: int, entries: list[Entry]) -> None:
    """Prove I2 of node o: keys and near endpoints as by definition, and each stored tuple a real one."""
    T, by_code = A.T, {x[2]: x for x in entries}
    for which in (0, 1):
        place, near, slot = 0, int(near_at(T, o, which)), int(slot_at(T, o, which))
        for v, members in enumerate(topology.members):
            wanted = extreme_of(entries, topology, members, which)
            key = int(A.W[key_at(T, o, which) + v])
            if wanted is None:
                assert key == (KEY_MAX if which == 0 else -1), f"I2: extreme {which} of {members} at {o} has key {key}, should be absent"
            else:
                stored = [(key, int(A.M[near + place + m])) for m in range(len(members))]
                assert stored == wanted, f"I2: extreme {which} of {members} at {o} is {stored}, should be {wanted}"
                for m, i in enumerate(members):
                    k, left, _, right = by_code[8 * int(A.W[slot + place + m]) + i]
                    ends = (left, right) if which == 0 else (right, left)
                    assert (k, *ends) == (key, *(int(A.M[near + f * int(T[SPAN]) + place + m]) for f in (0, 1))), "I2: a stored tuple"
            place += len(members)


def check_heap(A: Blocks, topology: Topology, root: Root, others: tuple[Root, ...]) -> None:
    """Prove I1 to I3 of the version, and I3 of the arena when all roots in use are given."""
    entries = check_nodes(A, topology.t, root, others, lambda o, below: check_summary(A, topology, o, below))
    assert root.live == (extreme_of(entries, topology, list(range(topology.t)), 0) is not None), f"live is {root.live}"


def check_nodes(
    A: Blocks, t: int, root: Root, others: tuple[Root, ...], check_node: Callable[[int, list[Entry]], None]
) -> list[Entry]:  # fmt: skip
    """As `check_heap`, of any tree of `ij_tree` with t sets; `check_node` proves I2 of a node and the entries below it. The version's
    entries."""
    M, W, seen = A.M, A.W, dict[int, int]()

    def below(o: int, top: bool) -> list[Entry]:
        if W[2 * o + HEIGHT_] == 0:
            seen[o] = LEAF
            entries = leaf_entries(A, o, t)
            assert len(entries) <= L and (top or len(entries) >= LEAF_LEAST), f"I3: leaf {o} has {len(entries)} entries"
        else:
            seen[o] = INNER
            lower, upper = int(M[o + CHILD]), int(M[o + CHILD + 1])
            heights = int(W[2 * lower + HEIGHT_]), int(W[2 * upper + HEIGHT_])
            assert abs(heights[0] - heights[1]) <= 1 and max(heights) + 1 == W[2 * o + HEIGHT_], f"I3: heights {heights} below {o}"
            separator = int(W[2 * o + SEPARATOR_KEY]), int(M[o + SEPARATOR_LEFT]), int(M[o + SEPARATOR_CODE])
            a, b = below(lower, False), below(upper, False)
            assert a[-1][:3] < separator <= b[0][:3], f"I1: the separator of {o} does not divide"
            entries = a + b
        check_node(o, entries)
        return entries

    entries = below(root.offset, True)
    counts = tuple(sum(x[2] % 8 == s for x in entries) for s in range(t))
    assert counts == root.counts, f"counts {root.counts}, should be {counts}"
    for other in others:
        below(other.offset, True)
    check_blocks(A, seen)
    return entries

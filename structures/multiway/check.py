"""Checks of the invariants that both trees have in common, for tests: slow, plain Python."""

from __future__ import annotations

from collections.abc import Callable

from structures.core.arena import INNER, LEAF
from structures.core.check import check_blocks
from structures.core.entry_tree import EntryRoot
from structures.multiway.layout import CHILD, HEIGHT_, LEAF_LEAST, SEPARATOR_CODE, SEPARATOR_KEY, SEPARATOR_LEFT, STARTS, L, MultiwayArena
from structures.multiway.leaves import entry_at

Entry = tuple[int, int, int, int]  # key, left, code, right


def leaf_entries(A: MultiwayArena, o: int, t: int) -> list[Entry]:
    """The entries of a leaf, in the tree's order; proves I1 for each run."""
    e, w = entry_at(A.table, o)
    entries: list[Entry] = []
    for s in range(t):
        lo, hi = int(A.W[2 * o + STARTS + s]), int(A.W[2 * o + STARTS + s + 1])
        run = [(int(A.W[w + L + p]), int(A.M[e + p]), 8 * int(A.W[w + p]) + s, int(A.M[e + L + p])) for p in range(lo, hi)]
        assert all(x[:3] < y[:3] for x, y in zip(run, run[1:], strict=False)), f"I1: run {s} of leaf {o} is out of order"
        entries += run
    return sorted(entries)


def check_nodes(
    A: MultiwayArena, t: int, root: EntryRoot, others: tuple[EntryRoot, ...], check_node: Callable[[int, list[Entry]], None]
) -> list[Entry]:
    """Prove I1 and I3 of the version of a tree with t sets, and I3 of the arena when all roots in use are given; `check_node` proves I2 of
    a node, given the entries below it. Returns the version's entries."""
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

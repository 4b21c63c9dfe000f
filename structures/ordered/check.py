"""Checks of the trees' invariants, for tests: slow, plain Python, independent of the code that maintains summaries."""

from __future__ import annotations

from structures.core.arena import INNER, KEY_MAX, KIND, LEAF, LEAF_LEAST, B, F
from structures.core.blocks import Blocks
from structures.core.check import check_blocks
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entry_tree import EntryRoot
from structures.ordered.layout import CHILDREN, FIELDS, FIELDS32, KEY, LEFT, LIVE_CHILDREN, RIGHT, SLOT, child_of, run_of
from structures.ordered.summary import COVER, LIST, SELF

Entry = tuple[int, int, int, int, int]  # key, left, slot code, right, set
Row = list[object]


def leaf_entries(arena: Blocks, o: int) -> list[Entry]:
    """The entries of a leaf, in the tree's order; proves I1 for each set."""
    M, W = arena.M, arena.W
    entries: list[Entry] = []
    for s in (0, 1):
        positions = range(*run_of(W, o, s))
        run = [
            (int(W[2 * o + KEY + i]), int(M[o + LEFT + i]), 2 * int(W[2 * o + SLOT + i]) + s, int(M[o + RIGHT + i]), s) for i in positions
        ]
        assert all(a[:3] < b[:3] for a, b in zip(run, run[1:], strict=False)), f"I1: set {s} of leaf {o} is out of order"
        entries += run
    return sorted(entries)


def summary_of(entries: list[Entry], kind: int) -> Row:
    """The ten fields of `summary.py`, by definition."""
    mr: Row = []
    ml: Row = []
    kr: Row = []
    kl: Row = []
    for s in (0, 1):
        mine = [e for e in entries if e[4] == s]
        key, right = max(((e[0], e[3]) for e in mine), default=(-1, NEG_INF))
        first, left = min(((e[0], e[1]) for e in mine), default=(KEY_MAX, POS_INF))
        mr, ml, kr, kl = [*mr, right], [*ml, left], [*kr, key], [*kl, first]
    if kind == COVER:
        kr[1], mr[1] = max(gap_ends(entries))
    return [*mr, *ml, *kr, *kl, entries[0][2], has_row(entries, kind)]


def gap_ends(entries: list[Entry]) -> list[tuple[int, int]]:
    """(key, left) of the entries that lie more than one place beyond all before them, and of the first of each key."""
    reach: dict[int, int] = {}
    found = []
    for key, left, _, right, _ in entries:
        if key not in reach or left > reach[key] + 1:
            found.append((key, left))
        reach[key] = max(right, reach.get(key, right))
    return found


def has_row(entries: list[Entry], kind: int) -> bool:
    """Whether two of the entries (in order) make a row."""
    if kind in (LIST, COVER):
        return bool(entries)
    reach: dict[tuple[int, int], int] = {}
    for key, left, _, right, s in entries:
        other = s if kind == SELF else 1 - s
        if reach.get((key, other), NEG_INF - 1) >= left:
            return True
        reach[key, s] = max(right, reach.get((key, s), NEG_INF))
    return False


def stored_summary(arena: Blocks, o: int, c: int) -> Row:
    M, W = arena.M, arena.W
    fields: Row = [int(M[o + FIELDS + f * F + c]) for f in range(4)]
    fields += [int(W[2 * o + FIELDS32 + f * F + c]) for f in range(5)]
    return [*fields, bool((W[2 * o + LIVE_CHILDREN] >> c) & 1)]


def check_below(arena: Blocks, o: int, height: int, top: bool, seen: dict[int, int]) -> list[Entry]:
    """Prove I1 to I4 of the (sub)tree at block o. Returns its entries in order. Adds its blocks, with their classes, to `seen`."""
    kind = int(arena.C[KIND])
    if height == 0:
        seen[o] = LEAF
        entries = leaf_entries(arena, o)
        assert len(entries) <= B and (top or len(entries) >= LEAF_LEAST), f"I3: leaf {o} has {len(entries)} entries"
        return entries
    seen[o] = INNER
    n = int(arena.W[2 * o + CHILDREN])
    assert 2 <= n <= F, f"I3: inner node {o} has {n} children"
    entries = []
    for c in range(n):
        part = check_below(arena, int(child_of(arena.W, o, c)), height - 1, False, seen)
        wanted, stored = summary_of(part, kind), stored_summary(arena, o, c)
        assert wanted == stored, f"I2: child {c} of {o} has {stored}, should be {wanted}"
        assert not entries or entries[-1][:3] < part[0][:3], f"I1: child {c} of {o} begins before its neighbour ends"
        entries += part
    empty = [NEG_INF, NEG_INF, POS_INF, POS_INF, -1, -1, KEY_MAX, KEY_MAX, 0, False]
    for c in range(n, F):
        assert stored_summary(arena, o, c) == empty, f"I4: position {c} of {o} is not cleared"
    return entries


def check_tree(arena: Blocks, root: EntryRoot, others: tuple[EntryRoot, ...]) -> None:
    """Prove I1 to I4 of the version, and I3 of the arena when all roots in use are given."""
    kind = int(arena.C[KIND])
    seen: dict[int, int] = {}
    entries = check_below(arena, root.offset, root.height, True, seen)
    counts = tuple(sum(e[4] == s for e in entries) for s in (0, 1))
    assert counts == root.counts, f"counts {root.counts}, should be {counts}"
    assert root.live == has_row(entries, kind), f"live is {root.live}"
    for other in others:
        check_below(arena, other.offset, other.height, True, seen)
    check_blocks(arena, seen)

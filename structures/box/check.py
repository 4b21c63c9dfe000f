"""Checks of the box trees' invariants (`layout.py`), for tests: slow, plain Python, independent of the writing code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.box import layout
from structures.box.layout import BoxArena, child_of, records_of, root_of
from structures.core.arena import KIND
from structures.core.check import check_blocks
from structures.core.entry_tree import EntryRoot
from structures.ordered.check import check_below, has_row

Position = tuple[int, int, int]
FIRST_POSITION, LAST_POSITION = (-1, 0, 0), (2**31, 0, 0)


class Box(NamedTuple):
    key: int
    set: int
    slot: int
    inputs: tuple[tuple[int, int], ...]  # from the dimension of the level on

    def left(self) -> Position:
        return self.key, self.inputs[0][0], 2 * self.slot + self.set

    def right(self) -> Position:
        return self.key, self.inputs[0][1], layout.RIGHT_TIE + 2 * self.slot + self.set


def meet(a: Box, b: Box) -> bool:
    if a.key != b.key:
        return False
    for (start, end), (other_start, other_end) in zip(a.inputs, b.inputs, strict=True):  # not all(): most of the check's time is spent here
        if start > other_end or other_start > end:
            return False
    return True


class _Proof:
    """The blocks found while walking through an arena: of 1-D trees, and nodes and records, with their classes."""

    def __init__(self, arena: BoxArena) -> None:
        self.arena = arena
        self.dimensions, self.is_self = int(arena.C[layout.DIMENSIONS]), bool(arena.C[layout.SELF_])
        self.flat: dict[int, int] = {}
        self.nodes: dict[int, int] = {}

    def records(self, level: int, node: int) -> list[tuple[Box, int]]:
        """The boxes of a leaf, with the bits that say which of their ends are there."""
        M, W = self.arena.M, self.arena.W
        o = int(records_of(W, node))
        self.nodes[o] = layout.RECORD_LEVELS + level
        found = []
        for i in range(int(W[2 * o + layout.COUNT])):
            columns = [int(M[o + 2 + c * layout.ROOM + i]) for c in range(1 + 2 * (self.dimensions - level))]
            tag = columns[0]
            inputs = tuple(zip(columns[1::2], columns[2::2], strict=True))
            found.append((Box((tag >> 33) & 0x7FFFFFFF, (tag >> 2) & 1, (tag >> 3) & 0x3FFFFFFF, inputs), tag & 3))
        order = [(box.inputs[1][0], 2 * box.slot + box.set) for box, _ in found]
        assert order == sorted(order), f"N1: records {o} are out of order"
        return found

    def leaf(self, level: int, node: int, lo: Position, hi: Position) -> dict[Box, int]:
        found = self.records(level, node)
        for box, here in found:
            wanted = 2 * (lo <= box.left() < hi) + (lo <= box.right() < hi)
            assert here == wanted != 0, f"N1: {box} of leaf {node} says {here}, should be {wanted}"
        assert len({box for box, _ in found}) == len(found), f"N1: leaf {node} has a box twice"
        is_self = self.is_self and level == 0
        rows = 0
        for i, (a, here) in enumerate(found):
            for b, there in found[:i]:
                rows += (is_self or a.set != b.set) and (here | there) & 2 != 0 and meet(a, b)
        stored = self.arena.W[2 * node + layout.ROWS]
        assert rows == stored, f"N4: leaf {node} has {stored} rows, should be {rows}"
        return dict(found)

    def below(self, level: int, node: int, lo: Position, hi: Position) -> dict[Box, int]:
        """Prove the invariants of everything below a node whose trees are proven. Returns the boxes with an end there, and which ends."""
        W, w = self.arena.W, 2 * node
        self.nodes[node] = layout.NODE
        live = self.tree_lives(node)
        if W[w + layout.FLAGS] & layout.LEAF_NODE:
            boxes = self.leaf(level, node, lo, hi)
            live = live or W[w + layout.ROWS] > 0
            assert W[w + layout.WEIGHT] <= layout.CAP, f"N2: leaf {node} has {W[w + layout.WEIGHT]} ends"
        else:
            boxes = self.children(level, node, lo, hi)
            live = live or any(W[2 * int(child_of(W, node, c)) + layout.FLAGS] & layout.LIVE_NODE for c in range(2))
        ends = sum((here & 1) + (here >> 1) for here in boxes.values())
        assert ends == W[w + layout.WEIGHT], f"N2: node {node} has weight {W[w + layout.WEIGHT]}, should be {ends}"
        assert bool(W[w + layout.FLAGS] & layout.LIVE_NODE) == live, f"N4: node {node} says {not live}"
        return boxes

    def children(self, level: int, node: int, lo: Position, hi: Position) -> dict[Box, int]:
        """Prove both children of an inner node, and their trees, whose spanners are among the node's boxes."""
        M, W = self.arena.M, self.arena.W
        middle = int(M[node + layout.SEPARATOR + 1]), int(M[node + layout.SEPARATOR]), int(M[node + layout.SEPARATOR + 2])
        children = [int(child_of(W, node, c)) for c in range(2)]
        slabs = (lo, middle), (middle, hi)
        parts = [self.below(level, child, *slab) for child, slab in zip(children, slabs, strict=True)]
        boxes = {box: parts[0].get(box, 0) | parts[1].get(box, 0) for box in (*parts[0], *parts[1])}
        for child, slab, part in zip(children, slabs, parts, strict=True):
            spanners = [box for box in boxes if box.left() < slab[0] and box.right() >= slab[1]]
            self.trees(level, child, spanners, [box for box, here in part.items() if here & 2])
        weights = [int(W[2 * child + layout.WEIGHT]) for child in children]
        is_large = sum(weights) > layout.most_at_once(self.arena.C, level)
        is_balanced = sum(weights) > layout.CAP // 2 and 4 * max(weights) <= 3 * sum(weights)
        assert is_large or is_balanced, f"N2: node {node} is unbalanced, {weights}"
        return boxes

    def tree_lives(self, node: int) -> bool:
        return any(self.arena.W[2 * node + layout.TREES + layout.TREE_WORDS * i + layout.STATE] & layout.LIVE_ for i in range(2))

    def trees(self, level: int, node: int, spanners: list[Box], points: list[Box]) -> None:
        """Prove that the trees of a node have the members that they should have (N3) and are sound."""
        is_self = self.is_self and level == 0
        for i in range(1 if is_self else 2):
            wanted = {Box(0, i, b.slot, b.inputs[1:]) for b in spanners if is_self or b.set == i}
            first = len(wanted)
            wanted |= {Box(0, 1 - i, b.slot, b.inputs[1:]) for b in points if is_self or b.set == 1 - i}
            h = 2 * node + layout.TREES + layout.TREE_WORDS * i
            if not self.arena.W[h + layout.STATE] & layout.ACTIVE:
                assert first == 0, f"N3: tree {i} of node {node} is inactive, but has spanners"
                continue
            assert self.tree(level + 1, h) == wanted, f"N3: tree {i} of node {node} has other members than it should"

    def tree(self, level: int, h: int) -> set[Box]:
        """Prove the tree in holder h. Returns its members."""
        W = self.arena.W
        root, live = int(root_of(W, h)), bool(W[h + layout.STATE] & layout.LIVE_)
        if level + 1 == self.dimensions:
            entries = check_below(self.arena, root, int(W[h + layout.HEIGHT_]), True, self.flat)
            assert live == has_row(entries, int(self.arena.C[KIND])), f"N4: live of tree {h} is {live}"
            members = {Box(0, e[4], e[2] >> 1, ((e[1], e[3]),)) for e in entries}
        else:
            members = set(self.below(level, root, FIRST_POSITION, LAST_POSITION))
            assert live == bool(W[2 * root + layout.FLAGS] & layout.LIVE_NODE), f"N4: live of tree {h} is {live}"
        counts = [sum(box.set == s for box in members) for s in range(2)]
        assert counts == [W[h + layout.MEMBERS], W[h + layout.MEMBERS + 1]] and members, f"tree {h} should have {counts} members"
        return members


def check_boxes(arena: BoxArena, table: np.ndarray, root: EntryRoot, others: tuple[EntryRoot, ...]) -> None:
    """Prove N1 to N5 of the version and of others, and I3 of the arena when all roots in use are given. `table`: the one of N5, by set and
    slot."""
    proof = _Proof(arena)
    boxes: dict[Box, int] = {}
    for offset, _, wanted, live in (*others, root):
        boxes = proof.below(0, offset, FIRST_POSITION, LAST_POSITION)
        counts = tuple(sum(box.set == s for box in boxes) for s in range(2))
        assert counts == wanted, f"counts {wanted}, should be {counts}"
        for box in boxes:
            ends, known = list(zip(*box.inputs, strict=True)), table[box.set, box.slot].tolist()
            assert known == [*ends[0], *ends[1]], f"N5: the table has {known} for {box}"
        assert live == bool(arena.W[2 * offset + layout.FLAGS] & layout.LIVE_NODE), f"live is {live}"
    check_blocks(arena, {**proof.flat, **proof.nodes})

"""Checks of a join tree's invariants, for tests: recompute liveness from the descriptions of all rows, row by row."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from structures.core.arena import COUNT, ROOT
from structures.core.check import check_blocks
from structures.join_tree.layout import (
    ABSENT,
    ALL_TREE,
    BASE,
    BIT,
    FREE,
    HEAD,
    LIVE_TREE,
    OPTIONAL,
    STEP,
    STEP_,
    SUPPORT,
    WORDS,
    has_own_live_tree,
)
from structures.join_tree.tables import JoinTables, Roots
from structures.ordered.check import Entry, check_below


class _Proof:
    def __init__(self, tree: JoinTables, rows: list[list[int]]) -> None:
        self.tree, self.rows = tree, rows
        self.seen: list[dict[int, tuple[int, int, int]]] = [{} for _ in tree.ports]
        for p, port in enumerate(tree.ports):
            slots = np.array(rows[port.alias], np.int32)
            slots = slots[tree.seen(p, slots)]
            columns = tree.codes(p, slots), *tree.ends(p, slots)
            self.seen[p] = dict(zip(slots.tolist(), zip(*(column.tolist() for column in columns), strict=True), strict=True))
        self.live: dict[int, list[int]] = {}  # for each link, the rows of its far alias that are live away from its near one
        self.partnered: dict[int, set[int]] = {}  # for each link, the rows of its near alias that have a partner among these
        for e in range(len(tree.near)):
            self._settle(e)

    def ports_of(self, e: int) -> tuple[int, int]:
        """The ports where a link begins and ends."""
        links = self.tree._links
        return int(links[e ^ 1, 2]), int(links[e, 2])

    def _settle(self, e: int) -> None:
        if e in self.live:
            return
        near, far = self.tree.near, self.tree.far
        further = [d for d in range(len(near)) if near[d] == far[e] and d != e ^ 1]
        for d in further:
            self._settle(d)
        self.live[e] = [slot for slot in self.rows[far[e]] if all(self._fits(d, slot) for d in further)]
        p, q = self.ports_of(e)
        reach: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))  # by code: lefts, and the largest right up to each
        for code, left, right in sorted(self.seen[q][slot] for slot in self.live[e] if slot in self.seen[q]):
            lefts, rights = reach[code]
            lefts.append(left)
            rights.append(max(right, rights[-1]) if rights else right)
        self.partnered[e] = set()
        for slot, (code, left, right) in self.seen[p].items():
            lefts, rights = reach[code]
            if (i := bisect_right(lefts, right)) and rights[i - 1] >= left:
                self.partnered[e].add(slot)

    def _fits(self, e: int, slot: int) -> bool:
        """Whether a row meets the requirement of link e."""
        kind = self.tree.kinds[e]
        return kind in (OPTIONAL, FREE) or (slot in self.partnered[e]) != (kind == ABSENT)

    def full(self, u: int) -> list[int]:
        out = [e for e, near in enumerate(self.tree.near) if near == u]
        return [slot for slot in self.rows[u] if u < self.tree.shown and all(self._fits(e, slot) for e in out)]

    def entries(self, p: int, slots: list[int]) -> list[Entry]:
        return sorted((*self.seen[p][slot][:2], 2 * slot, self.seen[p][slot][2], 0) for slot in slots if slot in self.seen[p])


def check_join(tree: JoinTables, rows: Sequence[np.ndarray], others: tuple[Roots, ...]) -> None:
    """AssertionError names the invariant. Cost: O(n log n)."""
    able = [slots[tree.able(u, slots)].tolist() for u, slots in enumerate(rows)]
    proof = _Proof(tree, able)
    blocks: dict[int, int] = {}

    def holds(index: int, p: int, slots: list[int], what: str) -> None:
        root, height, count = tree._T[index, [0, 1, COUNT - ROOT]].tolist()
        found = check_below(tree.arena, root, height, True, blocks)
        assert found == proof.entries(p, slots) and count == len(found), what

    for p, port in enumerate(tree.ports):
        holds(p, p, proof.full(port.alias), f"J3: the full rows of port {p}")
        if port.spanned:
            holds(int(tree._ports[p, ALL_TREE]), p, able[port.alias], f"J4: all rows of port {p}")
        else:
            _check_groups(tree, proof, p)
    for e in range(len(tree.near)):
        q, kept = proof.ports_of(e)[1], proof.live[e] if tree.kinds[e] != FREE else []  # never looked up along this link
        if tree.ports[q].spanned:
            if has_own_live_tree(tree._tables, e):  # otherwise they are all rows
                holds(int(tree._links[e, LIVE_TREE]), q, kept, f"J2: the live rows of link {e}")
            _check_bits(tree, proof, e)
        else:
            live = Counter(proof.seen[q][slot][0] for slot in kept if slot in proof.seen[q])
            codes = {code for p in proof.ports_of(e) for code, _, _ in proof.seen[p].values()}
            counted = {code: int(tree._Y[tree._links[e, SUPPORT] + code * tree._links[e, STEP]]) for code in codes}
            assert counted == {code: live[code] for code in codes}, f"J2: the supports of link {e}"
    for other in others:
        for p in range(len(tree.ports)):
            check_below(tree.arena, int(other.trees[p, 0]), int(other.trees[p, 1]), True, blocks)
    check_blocks(tree.arena, blocks)


def _check_groups(tree: JoinTables, proof: _Proof, p: int) -> None:
    groups = defaultdict(set)
    for slot, (code, _, _) in proof.seen[p].items():
        groups[code].add(slot)
    records, at = tree._records[tree.ports[p].alias], tree._column(p)
    for code, wanted in groups.items():
        slot, before, found = int(tree._Y[tree._ports[p, HEAD] + code * tree._ports[p, STEP_]]), 0, []
        while slot:
            assert records[slot - 1, at + 2] == before, f"J4: the group of {code} at port {p} is linked backwards otherwise"
            found.append(slot - 1)
            slot, before = int(records[slot - 1, at + 1]), slot
        assert len(found) == len(wanted) and set(found) == wanted, f"J4: the group of {code} at port {p}"


def _check_bits(tree: JoinTables, proof: _Proof, e: int) -> None:
    u = tree.near[e]
    base, words = tree._inputs[u, [BASE, WORDS]].tolist()
    for slot in proof.rows[u]:
        bit = (int(tree._X[base + slot * words]) & int(tree._links[e, BIT])) != 0
        assert bit == (tree.kinds[e] != FREE and slot in proof.partnered[e]), f"J1: the bit of row {slot} of alias {u} for link {e}"

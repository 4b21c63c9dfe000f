"""Join topologies as tables: connected subsets, their splits and the edges across, for the kernels of the IJ-heap.

Problem: a topology is a connected graph G on t = 2..6 sets (aliases). Everything that the IJ-heap stores or asks is about a
*connected* non-empty subset V of them; the composition step splits V = V_L + V_G in every way, takes the components of both sides
and looks at the edges across. All this depends only on G, so it is computed once, as one table.

    table   [0..15] sizes | the sections named below | edge lists | split records

Subsets are numbered by size, then by mask: the singletons {i} are 0..t-1, the last is the set of all. It is followed by "all without i"
where that is not connected: these have members and a binding order, but no place in summaries. A subset's members (ascending) have places
POS[V] .. POS[V] + SIZE[V] - 1; SPAN is the number of places of all.

    edge list of V      pairs (i, j), i < j
    split record        L mask, number of components of L, of G, of crossing edges | components of L [6], of G [6] |
                        a crossing edge each: alias in L, alias in G, its place in L's component, its place in G's

Costs: O(3**t) words at most; built in milliseconds. Source: Tao and Yi, section 6.1; docs/design/ij-heap.md (*Notation*, *The one
composition step*).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

MOST = 6  # most sets
SETS, SUBSETS, SPAN, ALL = 0, 1, 2, 3  # t, number of connected subsets, places, the subset of all
LEAF_WORDS_, INNER_WORDS_, ENTRIES = 4, 5, 6  # sizes of the blocks in words; the first column of a leaf's entries (`layout`)
CLIQUE = 7  # the members of a clique of one set (`clique_summary`), which has no topology; 0: an IJ-heap
_SUBSETS, _POSITIONS = 64 + 8, 192 + 32
POS = 16  # a subset's first place
SIZE = POS + _SUBSETS
NEDGES, EDGES = SIZE + _SUBSETS, SIZE + 2 * _SUBSETS  # a subset's number of edges, and where its list begins
NSPLITS, SPLITS = EDGES + _SUBSETS, EDGES + 2 * _SUBSETS
DIAMETER = SPLITS + _SUBSETS
MEMBER = DIAMETER + _SUBSETS  # the alias at a place
ORDER = MEMBER + _POSITIONS  # the aliases of a subset, in the order in which they are bound, at its places
POSITION = ORDER + _POSITIONS  # the place of alias i in subset V at 8 * V + i; -1 if it is not a member
NEAR = POSITION + 8 * _SUBSETS  # the mask of an alias's neighbours
REST = NEAR + 8  # at 8 * i: all without i, the number of its components, and these
TABLE = REST + 8 * MOST
SPLIT_L, SPLIT_COUNT, SPLIT_CROSS, SPLIT_PARTS, SPLIT_EDGES = 0, 1, 3, 4, 16  # COUNT and PARTS: + side (PARTS: + 6 * side)


def components(mask: int, near: Sequence[int]) -> list[int]:
    """The connected components of the aliases in `mask`, as masks, smallest member first."""
    parts = []
    while mask:
        part = mask & -mask
        while True:
            grown = part
            for i in bits(part):
                grown |= near[i] & mask
            if grown == part:
                break
            part = grown
        parts.append(part)
        mask &= ~part
    return parts


def bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


class Topology:
    """A connected graph on sets 0..t-1. `edges`: pairs of different sets, t = 2..6 (ValueError otherwise, or if it is not connected)."""

    def __init__(self, t: int, edges: Iterable[tuple[int, int]]) -> None:
        self.t = t
        self.edges = sorted({(min(e), max(e)) for e in edges})
        if not 2 <= t <= MOST:
            raise ValueError(f"a topology has 2 to {MOST} sets, not {t}")
        if any(not 0 <= i < j < t for i, j in self.edges):
            raise ValueError(f"edges join two different sets of 0..{t - 1}")
        self.near = [sum(1 << (a + b - i) for a, b in self.edges if i in (a, b)) for i in range(t)]
        if len(components(2**t - 1, self.near)) != 1:
            raise ValueError("the topology is not connected: take the product of its components")
        connected = [mask for mask in range(1, 2**t) if len(components(mask, self.near)) == 1]
        self.subsets = sorted(connected, key=lambda mask: (mask.bit_count(), mask))
        self.members = [bits(mask) for mask in self.subsets]
        self.number = {mask: v for v, mask in enumerate(self.subsets)}
        self.table = self._table()

    def _table(self) -> np.ndarray:
        """The table; `layout` sets the block sizes."""
        t, head = self.t, [0] * TABLE
        tail: list[int] = []
        head[SETS], head[SUBSETS], head[ALL] = t, len(self.subsets), len(self.subsets) - 1
        position = 0
        for v, (mask, members) in enumerate(zip(self.subsets, self.members, strict=True)):
            head[POS + v], head[SIZE + v] = position, len(members)
            head[POSITION + 8 * v : POSITION + 8 * v + 8] = [position + members.index(i) if i in members else -1 for i in range(8)]
            head[MEMBER + position : MEMBER + position + len(members)] = members
            head[ORDER + position : ORDER + position + len(members)] = self._binding_order(mask)
            position += len(members)
        head[SPAN] = position
        for v, mask in enumerate(self.subsets):
            edges = [e for e in self.edges if mask >> e[0] & mask >> e[1] & 1]
            head[NEDGES + v], head[EDGES + v] = len(edges), TABLE + len(tail)
            tail += [i for edge in edges for i in edge]
            splits = [low for low in range(1, mask) if low & ~mask == 0]
            head[DIAMETER + v] = self._diameter(mask)
            head[NSPLITS + v], head[SPLITS + v] = len(splits), TABLE + len(tail)
            records = [self._split(low, mask & ~low, edges, head) for low in splits]
            starts = np.cumsum([0, *map(len, records)])[: len(records)] + TABLE + len(tail) + len(records)
            tail += [int(start) for start in starts]
            for record in records:
                tail += record
        for i in range(t):
            head[NEAR + i] = self.near[i]
            rest = (2**t - 1) & ~(1 << i)
            parts = [self.number[part] for part in components(rest, self.near)]
            v = self.number.get(rest, len(self.subsets) + i)
            if len(parts) > 1:
                head[POS + v], head[SIZE + v] = position, t - 1
                head[MEMBER + position : MEMBER + position + t - 1] = bits(rest)
                head[ORDER + position : ORDER + position + t - 1] = self._binding_order(rest)
                position += t - 1
            head[REST + 8 * i : REST + 8 * i + 2 + len(parts)] = [v, len(parts), *parts]
        return np.array(head + tail, np.int64)

    def _split(self, low: int, high: int, edges: list[tuple[int, int]], head: list[int]) -> list[int]:
        parts = [[self.number[part] for part in components(members, self.near)] for members in (low, high)]
        crossing = []
        for i, j in edges:
            if (low >> i & 1) == (low >> j & 1):
                continue
            a, b = (i, j) if low >> i & 1 else (j, i)
            positions = [next(head[POSITION + 8 * v + c] for v in parts[s] if c in self.members[v]) for s, c in ((0, a), (1, b))]
            crossing += [a, b, *positions]
        padded = [part + [0] * (MOST - len(part)) for part in parts]
        return [low, len(parts[0]), len(parts[1]), len(crossing) // 4, *padded[0], *padded[1], *crossing]

    def _diameter(self, mask: int) -> int:
        """The most edges on the shortest path between two aliases of a connected subset."""
        most = 0
        for i in bits(mask):
            reached, steps = 1 << i, 0
            while reached != mask:
                for j in bits(reached):
                    reached |= self.near[j] & mask
                steps += 1
            most = max(most, steps)
        return most

    def _binding_order(self, mask: int) -> list[int]:
        """The alias with the most neighbours first, then always one with the most bound neighbours: a star binds its centre first."""
        order: list[int] = []
        bound = 0
        while len(order) < mask.bit_count():
            i = max(
                bits(mask & ~bound),
                key=lambda i: ((self.near[i] & bound).bit_count(), (self.near[i] & mask).bit_count(), -i),
            )
            order.append(i)
            bound |= 1 << i
        return order

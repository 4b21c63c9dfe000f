"""The shape of a view tree: variables in path order, the nodes above the atoms, and the plans by which rows are found.

Atoms have numbers from 0 on, nodes those that follow, the root first, parents before children. Both are *members*: each has a tree
in the arena, and `roots` holds its root. A *plan* is a list of positions, the loops of an enumeration from the outermost to the innermost:
nodes, parents before children, then atoms. Each goes through what its member has below a prefix, which is that of its parent's current
entry, or what is given.

Source: docs/design/natural-joins.md (*view-tree*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST_ATOMS = 8
MOST_MEMBERS = 2 * MOST_ATOMS - 1

# Words of a member.
PARENT, ARITY, PREFIX, HOLDER, CHILDREN, CHILD = range(6)  # node above or -1; of its tree; coordinates; in C; number of children, they
MEMBER_WORDS = CHILD + MOST_MEMBERS

# Words of a plan; then of a position.
POSITIONS, GIVEN, POSITION = range(3)  # the number of positions; the atom whose slots are given or -1; the first position
# BOUND: length of the prefix; KNOWN: the part of it that the given item has; ABOVE: position, -1: given; ALIAS: atom or -1
MEMBER, ARITY_, BOUND, KNOWN, ABOVE, ALIAS, POSITION_WORDS = range(7)
PLAN_WORDS = POSITION + POSITION_WORDS * MOST_MEMBERS


class Node(NamedTuple):
    """A prefix of variables that all atoms below have in common, by its length; `parent`: a member, -1 for the root; `children`:
    members."""

    prefix: int
    parent: int
    children: list[int]


def path_orders(variables: Sequence[frozenset[int]]) -> list[tuple[int, ...]] | None:
    """For each atom, its variables in an order in which any two atoms share exactly a common beginning: variables of more atoms come first.
    None if there is no such order, as the query is not hierarchical, or not connected."""
    atoms_of = {v: tuple(v in own for own in variables) for own in variables for v in own}
    orders = [tuple(sorted(own, key=lambda v: (-sum(atoms_of[v]), atoms_of[v], v))) for own in variables]
    return orders if is_tree(orders) else None


def is_tree(orders: Sequence[tuple[int, ...]]) -> bool:
    """Whether any two orders share exactly a common beginning, and all share one."""
    for one in orders:
        for other in orders:
            common = _common([one, other])
            if set(one) & set(other) != set(one[:common]) or common == 0:
                return False
    return all(len(set(one)) == len(one) for one in orders)


def _common(orders: Sequence[tuple[int, ...]]) -> int:
    """The length of the common beginning of the orders."""
    n = 0
    while all(len(one) > n for one in orders) and len({one[n] for one in orders}) == 1:
        n += 1
    return n


def nodes_of(orders: Sequence[tuple[int, ...]]) -> list[Node]:
    """The nodes, the root first; nodes that would have one child are left out."""
    nodes: list[Node] = []

    def add(atoms: list[int], parent: int) -> int:
        prefix = _common([orders[a] for a in atoms])
        node = Node(prefix, parent, [])
        nodes.append(node)
        member = len(orders) + len(nodes) - 1
        branches: dict[int, list[int]] = {}
        for a in atoms:
            branches.setdefault(orders[a][prefix] if len(orders[a]) > prefix else -1 - a, []).append(a)
        for branch in branches.values():
            node.children.append(branch[0] if len(branch) == 1 else add(branch, member))
        return member

    add(list(range(len(orders))), -1)
    return nodes


class ViewTreeShape:
    """`table`: the words of all members. `plans`: number a for the rows of given entries of atom a, t + a for those of a given key of it, 2
    t for all rows."""

    def __init__(self, orders: Sequence[tuple[int, ...]], arities: Sequence[int]) -> None:
        """`orders`: the atoms' variables in path order; `arities`: of their indexes. ValueError: not 2 to 8 atoms, no tree, or more
        variables than coordinates."""
        if not 2 <= len(orders) <= MOST_ATOMS or not is_tree(orders):
            raise ValueError(f"no view tree of {orders}")
        if any(len(order) > arity for order, arity in zip(orders, arities, strict=True)):
            raise ValueError(f"indexes of {list(arities)} coordinates for {orders}")
        self.t, self.nodes = len(orders), nodes_of(orders)
        self._lengths, self._arities = [len(order) for order in orders], [*arities, *(node.prefix for node in self.nodes)]
        self._parents = [-1] * self.t + [node.parent for node in self.nodes]
        for v, node in enumerate(self.nodes):
            for child in node.children:
                self._parents[child] = self.t + v
        self.table = np.zeros((len(self._parents), MEMBER_WORDS), np.int64)
        self.table[:, PARENT], self.table[:, ARITY] = self._parents, self._arities
        for v, node in enumerate(self.nodes):
            row = self.table[self.t + v]
            row[PREFIX], row[CHILDREN] = node.prefix, len(node.children)
            row[CHILD : CHILD + len(node.children)] = node.children
        given = [self._plan(a, a) for a in range(self.t)]
        self.plans = np.array([*given, *(self._plan(a, -1) for a in range(self.t)), self._plan(-1, -1)], np.int64).reshape(-1)

    def above(self, member: int) -> list[int]:
        """The nodes on the path from a member to the root."""
        path: list[int] = []
        while (member := self._parents[member]) >= 0:
            path.append(member)
        return path

    def _plan(self, of: int, given: int) -> list[int]:
        """A plan for items that have the coordinates of one entry of atom `of` (-1: for all rows); `given`: the atom whose entry is given
        as well, or -1."""
        path = self.above(of) if of >= 0 else []
        members = [v for v in (*range(self.t, len(self._parents)), *range(self.t)) if v not in path and v != given]
        words = [len(members), given]
        known: list[int] = []
        for v in members:
            parent = self._parents[v]
            above = members.index(parent) if parent in members else -1
            bound = self._lengths[v] if v == of else 0 if parent < 0 else self.nodes[parent - self.t].prefix
            known.append(known[above] if above >= 0 else bound)
            words += [v, self._arities[v], bound, known[-1], above, v if v < self.t else -1]
        return words + [0] * (PLAN_WORDS - len(words))

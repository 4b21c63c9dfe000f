"""The shape of an acyclic join: the atoms as a tree, the indexes by which an atom is looked up from each neighbour, and the plans of walks.

Each atom has an index for each set of variables that it shares with a neighbour; these variables come first in it. Each is a
*member*; `roots` holds the members' roots, atom by atom. A *plan* is a list of positions: the atoms in preorder, from the one where the
walk starts. All but the first are looked up by a key, the variables that they share with the position above.

Source: docs/design/natural-joins.md (*tree-tracker*).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from structures.index.following import Atom
from structures.index.layout import MOST_ARITY

MOST_ATOMS = 8
_PLANS = 64  # plans that are kept: for each start, by the order of the atoms' sizes

# Words of a plan; then of a position.
POSITIONS, GIVEN, POSITION = range(3)  # the number of positions; whether entries of the first are given; the first position
# BOUND: length of the key; ABOVE: position or -1; CHILDREN: their number; SOURCE: for each coordinate of the key its number above
MEMBER, ARITY_, BOUND, ABOVE, ATOM, CHILDREN, SOURCE = range(7)
POSITION_WORDS = SOURCE + MOST_ARITY


def index_orders(atoms: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]]) -> list[list[tuple[int, ...]]]:
    """For each atom the variables of its members: those that it shares with a neighbour, then those that it shares with others, then the
    rest, each in the atom's own order."""
    found = []
    for a, own in enumerate(atoms):
        around = [atoms[y if x == a else x] for x, y in edges if a in (x, y)]
        joined = [v for v in own if any(v in other for other in around)]
        orders = [[v for v in own if v in other] for other in around]
        found.append(list(dict.fromkeys(tuple(dict.fromkeys((*key, *joined, *own))) for key in orders)))
    return found


def is_join_tree(atoms: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]]) -> bool:
    """Whether the edges connect the atoms to one tree, in which the atoms of each variable are connected, and each edge shares a
    variable."""
    reached = {0}
    for _ in atoms:
        reached |= {a for edge in edges if not reached.isdisjoint(edge) for a in edge}
    if len(edges) != len(atoms) - 1 or len(reached) != len(atoms):
        return False
    for v in {v for own in atoms for v in own}:
        if sum(v in atoms[x] and v in atoms[y] for x, y in edges) != sum(v in own for own in atoms) - 1:
            return False
    return all(set(atoms[x]) & set(atoms[y]) for x, y in edges)


class TreeTrackerShape:
    """`members`: of all atoms, one after another; `first`: for each atom the number of its first member."""

    def __init__(self, atoms: Sequence[Atom], arities: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]]) -> None:
        """`arities`: of the members' indexes. ValueError: not 2 to 8 atoms, not a join tree, or not the indexes that it requires."""
        self._variables = [atom[0].variables for atom in atoms]
        if not 2 <= len(atoms) <= MOST_ATOMS or not is_join_tree(self._variables, edges):
            raise ValueError(f"{list(edges)} is no join tree of 2 to {MOST_ATOMS} atoms over {self._variables}")
        for atom, own in zip(atoms, arities, strict=True):
            if any(sorted(one.variables) != sorted(atom[0].variables) or len(one.variables) != k for one, k in zip(atom, own, strict=True)):
                raise ValueError(f"indexes of {list(own)} coordinates by {[one.variables for one in atom]}")
        self.t, self._edges = len(atoms), list(edges)
        self.members = [one for atom in atoms for one in atom]
        self.atom_of = [a for a, atom in enumerate(atoms) for _ in atom]
        self.first = [self.atom_of.index(a) for a in range(self.t)]
        for x, y in edges:
            self._member(x, set(self._variables[y]))
            self._member(y, set(self._variables[x]))
        self.plan = lru_cache(maxsize=_PLANS)(self._plan)

    def _member(self, atom: int, others: set[int]) -> int:
        """The number of the atom's member that begins with the atom's share of these variables."""
        key = others & set(self._variables[atom])
        for m, one in enumerate(self.members):
            if self.atom_of[m] == atom and key == set(one.variables[: len(key)]):
                return m
        raise ValueError(f"atom {atom} has no index that begins with the variables {sorted(key)}")

    def _plan(self, start: int, prefix: int, order: tuple[int, ...]) -> np.ndarray:
        """The plan of a walk from atom `start`, either from given entries (`prefix` -1), or from all entries that begin with `prefix` given
        coordinates. Children follow in the order of `order`."""
        walk: list[tuple[int, int]] = []  # atom, position above

        def visit(atom: int, above: int) -> None:
            here = len(walk)
            walk.append((atom, above))
            taken = walk[above][0] if above >= 0 else -1
            for child in order:
                if child != taken and ((atom, child) in self._edges or (child, atom) in self._edges):
                    visit(child, here)

        visit(start, -1)
        words = [len(walk), int(prefix < 0)]
        orders: list[tuple[int, ...]] = []
        for here, (atom, above) in enumerate(walk):
            own = self._variables[atom]
            if above < 0:
                member, source = self.first[atom], list(range(max(prefix, 0)))
            else:
                member = self._member(atom, set(orders[above]))
                source = [orders[above].index(v) for v in self.members[member].variables if v in orders[above]]
            orders.append(self.members[member].variables)
            children = sum(parent == here for _, parent in walk)
            words += [member, len(own), len(source), above, atom, children, *source, *[0] * (MOST_ARITY - len(source))]
        return np.array(words, np.int64)

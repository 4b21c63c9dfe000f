"""The shape of a natural join for Minesweeper: the order of its variables, the indexes that follow from it, and the plans of readings.

All rows are searched in the *order*, a level for each variable; each atom is read by an index with its variables in this order. If an entry
or a key of an atom is given, its variables are bound: they are not levels, and each other atom is read by an index that begins with its
share of them, in any order, followed by the rest in the order. A *plan* is the levels and the atoms of such a search.

Source: docs/design/natural-joins.md (*minesweeper*).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np

from structures.index.following import Atom
from structures.index.layout import MOST_ARITY
from structures.minesweeper.cds import MOST_LEVELS

MOST_ATOMS = 8

# Words of a plan; then of an atom. GIVEN: the atom whose entries are given, or -1; TRIANGLE: whether all rows of a triangle are searched.
LEVELS, ATOMS, GIVEN, TRIANGLE, ATOM = range(5)
# BOUND: number of bound first coordinates; NUMBER: of the alias; SOURCE: for each bound coordinate its number in the item, for others the
# level
MEMBER, ARITY_, BOUND, NUMBER, SOURCE = range(5)
ATOM_WORDS = SOURCE + MOST_ARITY


def index_orders(atoms: Sequence[Sequence[int]], order: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """For each atom the variables of its members: in the order; then, for each set of variables that another atom binds and no earlier
    member serves, these first."""
    ranks = {v: rank for rank, v in enumerate(order)}
    found = []
    for own in atoms:
        bound = {frozenset(own) & frozenset(other) for other in atoms}
        orders: list[tuple[int, ...]] = []
        for first in sorted([frozenset[int](), *bound], key=lambda one: (len(one), sorted(ranks[v] for v in one))):
            rest = sorted(frozenset(own) - first, key=lambda v: ranks[v])
            if not any(_serves(one, first, rest) for one in orders):
                orders.append((*sorted(first, key=lambda v: ranks[v]), *rest))
        found.append(orders)
    return found


def is_triangle(atoms: Sequence[Collection[int]]) -> bool:
    """Whether atoms with these variables are R(A, B), S(B, C), T(A, C), in any order."""
    edges = {frozenset(own) for own in atoms}
    return len(atoms) == len(edges) == 3 and {len(own) for own in edges} == {2} and len(frozenset[int]().union(*edges)) == 3


def _serves(variables: Sequence[int], first: frozenset[int], rest: Sequence[int]) -> bool:
    """Whether an index on `variables` begins with those in `first`, followed by `rest`."""
    k = len(first)
    return first == frozenset(variables[:k]) and list(variables[k:]) == list(rest)


class MinesweeperShape:
    """The atoms' members, and plans over them."""

    def __init__(self, atoms: Sequence[Atom], arities: Sequence[Sequence[int]], order: Sequence[int]) -> None:
        """`arities`: of the members' indexes. ValueError: not 2 to 8 atoms, not 1 to 8 variables, an order of other variables, or not the
        indexes that it requires."""
        self._variables = [atom[0].variables for atom in atoms]
        used = sorted({v for own in self._variables for v in own})
        if not 2 <= len(atoms) <= MOST_ATOMS or not 1 <= len(order) <= MOST_LEVELS or sorted(order) != used:
            raise ValueError(f"{list(order)} is no order of 1 to {MOST_LEVELS} variables of 2 to {MOST_ATOMS} atoms over {self._variables}")
        for atom, own in zip(atoms, arities, strict=True):
            if any(sorted(one.variables) != sorted(atom[0].variables) or len(one.variables) != k for one, k in zip(atom, own, strict=True)):
                raise ValueError(f"indexes of {list(own)} coordinates by {[one.variables for one in atom]}")
        self.order, self.t = tuple(order), len(atoms)
        self._members = [(a, one.variables) for a, atom in enumerate(atoms) for one in atom]
        self.plan = lru_cache(maxsize=None)(self._plan)  # one for all rows, two an atom
        for position in (None, *range(self.t)):
            self.plan(position, False)

    def levels(self, atom: int) -> list[int]:
        """The level of each coordinate of the atom's first member, in the search for all rows."""
        return [self.order.index(v) for v in self._variables[atom]]

    def _member(self, atom: int, first: frozenset[int], rest: Sequence[int]) -> int:
        for m, (a, variables) in enumerate(self._members):
            if a == atom and _serves(variables, first, rest):
                return m
        raise ValueError(f"atom {atom} has no index by the variables {sorted(first)} and then {list(rest)}")

    def _plan(self, position: int | None, given: bool) -> np.ndarray:
        """The plan of a search for all rows, or for those where the variables of atom `position` are bound; `given`: by entries of it."""
        bound = list(self._variables[position]) if position is not None else []
        order = [v for v in self.order if v not in bound]
        atoms = [a for a in range(self.t) if not (given and a == position)]
        words = [
            len(order), len(atoms), position if given and position is not None else -1, position is None and is_triangle(self._variables)
        ]
        for a in atoms:
            own = frozenset(self._variables[a])
            first, rest = own & frozenset(bound), [v for v in order if v in own]
            m = self._member(a, first, rest)
            source = [bound.index(v) for v in self._members[m][1][: len(first)]] + [order.index(v) for v in rest]
            words += [m, len(own), len(first), a, *source, *[0] * (MOST_ARITY - len(source))]
        return np.array(words, np.int64)

r"""Intersect: natural joins of a chain of variable sets, by an adaptive walk through ordered indexes, without any further state.

Problem: report the rows of a natural join (a row is one slot per atom) in which, for any two atoms, one has all variables of the other:
intersections of sets, or nested intersections A(x), B(x, y), C(x, y, z). All of them, those of given entries or of a given key of an atom,
and the exact change that a batch or each of many single changes causes; at any version that is still pinned.

Every atom is an ordered index, by the variables of the smallest atom first, which is written elsewhere and may be shared, with view trees
too. Reading is a walk that jumps from place to place (`walk.py`): it takes as many look-ups as the shortest proof of the result has
comparisons, up to a factor of the number of atoms. A few look-ups show that sets in separate ranges are disjoint, however large they are.

    A   1 2 3 4 5 6             A begins: 1. B from 1 on: 7. A from 7 on: none. Three look-ups.
    B               7 8 9

Invariants, named by `check()` when violated
    F1  the roots of the atoms are those of their indexes
    F2  all indexes of an atom have as many entries as it counts

Costs (m atoms, n entries, D comparisons in the shortest proof, Z tuples)
    follow      O(1) a changed entry, besides its rows, which are a walk below it
    rows        O(m D + Z) look-ups of O(log n); no bound between two rows; O(1) amortised a row of a tuple
    memory      none
Differences from the paper: atoms take turns, and the first whose entry lies beyond moves the eliminator (Algorithm 2 asks all of them); an
atom that still agrees is not asked again; the rows of a tuple are reported as a product.
Source: *Towards Instance Optimal Join Algorithms for Data in Indexes*, Algorithms 1, 2 and 10, Definition 3.3; docs/design/natural-joins.md
(*intersect*).
"""

from __future__ import annotations

from collections.abc import Sequence

from structures.adaptive.cursors import AdaptiveCursor
from structures.adaptive.reading import AdaptiveRoot, Reader
from structures.adaptive.shape import MOST_ATOMS, AtomPart, is_chain, plan_of
from structures.index.following import ONE, Atom, Member
from structures.index.indexes import Entries, OrderedIndexes

__all__ = ["Atom", "AdaptiveCursor", "Intersect", "Member", "AdaptiveRoot"]


class Intersect(Reader):
    """See the module's head."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom]) -> None:
        """Over atoms with one loaded index each. ValueError: not 2 to 8 atoms, or their variables are not prefixes of one order."""
        orders = [member.variables for atom in atoms for member in atom]
        arities = [indexes.arity(member.index) for atom in atoms for member in atom]
        if not 2 <= len(atoms) == len(orders) <= MOST_ATOMS or not is_chain(orders) or arities != list(map(len, orders)):
            raise ValueError(f"no chain of 2 to {MOST_ATOMS} atoms: {orders}, in indexes of {arities} coordinates")
        super().__init__(indexes, atoms)
        parts = [AtomPart(a, a, arity, 0) for a, arity in enumerate(arities)]
        self._whole = plan_of(parts, 0, False)
        self._given = [plan_of([part, *(other for other in parts if other is not part)], part.arity, True) for part in parts]
        self._keyed = [plan_of(parts, part.arity, False) for part in parts]

    def rows(self, root: AdaptiveRoot) -> AdaptiveCursor:
        """All rows, in the order of the tuples."""
        return AdaptiveCursor(self.indexes.arena, self._whole, root.roots, ONE)

    def _below(self, root: AdaptiveRoot, position: int, items: Entries, given: bool) -> AdaptiveCursor:
        return AdaptiveCursor(self.indexes.arena, (self._given if given else self._keyed)[position], root.roots, items)

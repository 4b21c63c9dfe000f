r"""Elimination: bow-ties R(x), S(x, y), T(y) by one index of S for all rows, without any state besides the indexes.

Problem: report the rows of the join (a row is one slot per atom): all of them, those of given entries or of a given key of an atom, and the
exact change that a batch or each of many single changes causes; at any version that is still pinned.

All rows are found by an adaptive walk (`walk.py`): R and S are intersected on x, and, for each x that both have, S's values of y with T.
The rows below a changed entry, or a key, are found by such a walk as well; below one of T it uses an index of S by (y, x).

Invariants, named by `check()` when violated
    F1  the roots of the atoms are those of their indexes
    F2  all indexes of an atom have as many entries as it counts

Costs (n entries, D comparisons in the shortest proof that uses the index of S by (x, y) alone, Z tuples)
    follow      O(1) a changed entry, besides its rows, which are a walk below it
    rows        O(D + Z) look-ups of O(log n); no bound between two rows; O(1) amortised a row of a tuple
    memory      none
Source: *Towards Instance Optimal Join Algorithms for Data in Indexes*, Algorithm 9, Theorem C.4; docs/design/natural-joins.md (*bow-tie*).
"""

from __future__ import annotations

from collections.abc import Sequence

from structures.adaptive import dyadic
from structures.adaptive.cursors import AdaptiveCursor
from structures.adaptive.reading import AdaptiveRoot, Reader
from structures.adaptive.shape import AtomPart, plan_of
from structures.index.following import ONE, Atom, Member
from structures.index.indexes import Entries, OrderedIndexes

__all__ = ["Atom", "AdaptiveCursor", "Elimination", "Member", "AdaptiveRoot"]


class Elimination(Reader):
    """See the module's head."""

    def __init__(self, indexes: OrderedIndexes, atoms: Sequence[Atom]) -> None:
        """Over loaded atoms R(x), S(x, y) and T(y), in any order; S has a second index, by (y, x). ValueError: other atoms or indexes."""
        self._s = next((a for a, atom in enumerate(atoms) if len(atom[0].variables) == 2), 0)
        x, y = (*atoms[self._s][0].variables, -1)[:2]
        wanted = {(x,): [(x,)], (x, y): [(x, y), (y, x)], (y,): [(y,)]}
        given = {atom[0].variables: [member.variables for member in atom] for atom in atoms}
        fits = all(indexes.arity(member.index) == len(member.variables) for atom in atoms for member in atom)
        if len(atoms) != 3 or x == y or given != wanted or not fits:
            raise ValueError(f"no bow-tie in indexes of as many coordinates: {list(given.values())}")
        super().__init__(indexes, atoms)
        self._r, self._t = (list(given).index(key) for key in ((x,), (y,)))
        self._in_roles = [self.first[self._r], self.first[self._s], self.first[self._s] + 1, self.first[self._t]]
        r, by_x, t = AtomPart(self._r, dyadic.OF_R, 1, 0), AtomPart(self._s, dyadic.BY_X, 2, 0), AtomPart(self._t, dyadic.OF_T, 1, 1)
        self._whole = plan_of([r, by_x, t], 0, False)
        mirrored = [t._replace(offset=0), by_x._replace(member=dyadic.BY_Y), r._replace(offset=1)]
        below = {self._r: ([r, by_x, t], 1), self._s: ([by_x, r, t], 2), self._t: (mirrored, 1)}
        self._given, self._keyed = ({a: plan_of(*below[a], given) for a in below} for given in (True, False))

    def rows(self, root: AdaptiveRoot) -> AdaptiveCursor:
        """All rows, in the order of (x, y)."""
        return AdaptiveCursor(self.indexes.arena, self._whole, self._roots_of(root), ONE)

    def _below(self, root: AdaptiveRoot, position: int, items: Entries, given: bool) -> AdaptiveCursor:
        return AdaptiveCursor(self.indexes.arena, (self._given if given else self._keyed)[position], self._roots_of(root), items)

    def _roots_of(self, root: AdaptiveRoot) -> list[int]:
        """The roots in the form that kernels take."""
        words = [*(root.roots[member] for member in self._in_roles), *root.levels]
        return words + [0] * (dyadic.ROOTS - len(words))

"""Natural joins of relations in quadtrees, worst-case optimal: qdags, and their AND.

Problem: tell the rows of a full natural join of up to 8 atoms over up to 6 variables, a row being a slot an atom; all of them, or those in
which some variables have given values.

A qdag is a quadtree seen in more dimensions: a mapping M from the 2**d quadrants of all variables to those of the tree's own, by
projection (Extend). It is never copied, whatever order the variables are in; so atoms over one set of tuples share one tree. The AND goes
down all qdags at once and leaves a subgrid as soon as one of them is empty there:

    R(A, B)  M = 0 0 1 1 2 2 3 3        quadrant 5 = 101 of (A, B, C) is 10 of (A, B), 01 of (B, C), 11 of (A, C)
    S(B, C)  M = 0 1 2 3 0 1 2 3
    T(A, C)  M = 0 1 0 1 2 3 2 3

Costs (m atoms, d variables, codes below l, N entries)
    all rows    O(2^d m log min(l, N)) times the AGM bound: the most rows that relations of these sizes can have (Theorem 3.8)
    delay       none; the memory of a reading is a frame a level
Source: Navarro, Reutter and Rojas-Ledesma, *Optimal Joins using Compact Data Structures*, section 3.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from structures.qdag_walk import (
    ALL,
    ARITY,
    ATOM,
    ATOM_WORDS,
    ATOMS,
    DEAD,
    DEPTH,
    DIMENSION,
    EXT,
    GAP,
    GIVEN,
    ITEM,
    MAP,
    MOST_ATOMS,
    MOST_VARIABLES,
    PLACE,
    STEPS,
    and_fill,
    plan_words,
    state_words,
)
from structures.quad_tree import QuadTrees, Root

__all__ = ["And", "Cursor", "extend"]

_BUDGET = 1 << 18  # steps of a call: milliseconds
_FREE = -1


def extend(variables: Sequence[int], dimension: int) -> list[int]:
    """M of a qdag whose tree has these variables, in this order (Algorithm 3); the first of the `dimension` variables has the highest bit."""
    return [
        sum((i >> (dimension - 1 - v) & 1) << (len(variables) - 1 - place) for place, v in enumerate(variables))
        for i in range(1 << dimension)
    ]


class Cursor:
    """A reading; plain data beside the trees. `fill` releases the GIL."""

    def __init__(self, W: np.ndarray, plan: np.ndarray, roots: np.ndarray, items: np.ndarray, lines: int) -> None:
        self._W, self._plan, self._roots, self._items, self._lines = W, plan, roots, items, lines
        self._state = np.zeros(state_words(int(plan[ATOMS])), np.int64)

    def fill(self, limit: int) -> np.ndarray:
        """Up to `limit` >= 1 further rows, int32[atoms, rows]: their slots. May have none before the end (`done`)."""
        out = np.empty((self._lines, limit), np.int32)
        n = and_fill(self._W, self._plan, self._roots, self._items, self._state, out, _BUDGET)
        return out[:, :n]

    @property
    def done(self) -> bool:
        return bool(self._state[DEPTH] == 0 and self._state[ITEM] == len(self._items))

    def clone(self) -> Cursor:
        """An independent cursor at the same place."""
        other = copy.copy(self)
        other._state = self._state.copy()
        return other

    @property
    def steps(self) -> int:
        """Joint nodes visited, and rows of cells gone through."""
        return int(self._state[STEPS])

    @property
    def largest_gap(self) -> int:
        """The most steps between two rows so far."""
        return int(self._state[GAP])

    @property
    def dead_ends(self) -> int:
        """Joint nodes visited that had no children."""
        return int(self._state[DEAD])


class And:
    """The AND of qdags over trees of one arena. Any thread."""

    def __init__(self, trees: QuadTrees, dimension: int, atoms: Sequence[tuple[int, Sequence[int]]]) -> None:
        """`atoms`: of each the number of its tree, and the variables (below `dimension`) of the tree's coordinates. ValueError: more than 6
        variables or 8 atoms, or variables that do not fit the tree."""
        if not 1 <= dimension <= MOST_VARIABLES or not 1 <= len(atoms) <= MOST_ATOMS:
            raise ValueError(f"no AND of {len(atoms)} qdags over {dimension} variables")
        if any(len(set(variables)) != trees.arities[tree] or not set(variables) <= set(range(dimension)) for tree, variables in atoms):
            raise ValueError("an atom's variables are its tree's coordinates")
        self.trees, self.dimension = trees, dimension
        self.atoms = [(tree, tuple(variables)) for tree, variables in atoms]
        self._plans = {given: self._plan(given) for given in range(-1, len(atoms))}

    def _plan(self, given: int) -> np.ndarray:
        """What the kernels go by (`qdag_walk`): of all atoms but the given one."""
        d = self.dimension
        places = [place for place in range(len(self.atoms)) if place != given]
        plan = np.zeros(plan_words(len(places), d), np.int64)
        plan[ATOMS], plan[DIMENSION], plan[GIVEN] = len(places), d, given
        plan[ALL] = _word(range(1 << d))
        for t, place in enumerate(places):
            variables = self.atoms[place][1]
            mapping = extend(variables, d)
            a = ATOM + t * ATOM_WORDS
            plan[a + ARITY], plan[a + PLACE] = len(variables), place
            plan[a + MAP : a + MAP + (1 << d)] = mapping
            for c in range(1 << len(variables)):
                plan[a + EXT + c] = _word(i for i, projected in enumerate(mapping) if projected == c)
        for v in range(d):
            plan[ATOM + len(places) * ATOM_WORDS + v] = _word(i for i in range(1 << d) if i >> (d - 1 - v) & 1)
        return plan

    def rows(self, roots: Sequence[Root], codes: Sequence[int] | None = None) -> Cursor:
        """All rows over these roots, one an atom; `codes`: of each variable the value that it has, -1 for any."""
        items = np.full((1, 1 + self.dimension), _FREE, np.int64)
        if codes is not None:
            items[0, 1:] = codes
        return self._cursor(-1, roots, items)

    def partners(self, roots: Sequence[Root], place: int, entries: np.ndarray) -> Cursor:
        """The rows in which atom number `place` is one of these entries (int32[n, k + 1]), in their order; its own root is not looked at."""
        items = np.full((len(entries), 1 + self.dimension), _FREE, np.int64)
        items[:, 0] = entries[:, -1]
        items[:, [1 + v for v in self.atoms[place][1]]] = entries[:, :-1]
        return self._cursor(place, roots, items)

    def _cursor(self, given: int, roots: Sequence[Root], items: np.ndarray) -> Cursor:
        kept = [(root.offset, root.bits) for place, root in enumerate(roots) if place != given]
        return Cursor(self.trees.arena.W, self._plans[given], np.array(kept, np.int64).reshape(-1), items, len(self.atoms))


def _word(bits: object) -> int:
    """These bits as an int64."""
    word = sum(1 << i for i in bits)  # type: ignore[attr-defined]
    return word - (1 << 64) if word >> 63 else word

"""Unions of natural joins without what groups exclude (a lazy qdag's OR): each tuple of all variables is reported once.

A branch is an AND that reports tuples (`qdag.And`, `once`), without its groups. The branches are read one after another; a tuple is
reported by the first branch that has it: what a later branch finds is looked up in those before it. A row has a slot for each atom of the
branch that reports it, -1 for the atoms of the others, and behind them the tuple.

A tuple is added between two versions if some branch has it now, and no branch had it before; the branch then has a changed tuple of some
atom: one of its own that was inserted, or one of a group's that was deleted. So the added tuples are among those that the branch has now
and that agree with such a changed tuple: `changes` reads them, and skips those that a branch had before. Removed tuples are found in the
same way, with the versions exchanged.

Costs: of all branches together, and O(m log l) for each tuple of a branch but the first, m atoms of those before it. Source: Navarro,
Reutter and Rojas-Ledesma, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from structures.core.cursor import PartedCursor
from structures.core.kernel import compiled, kernel, wide
from structures.qdag import layout, qdag
from structures.qdag.absent import has_tuple
from structures.qdag.layout import (
    ARITY,
    ATOM,
    ATOM_WORDS,
    ATOMS,
    FRAMES,
    GROUP,
    LOOKED_UP,
    MUST,
    POSITION,
    ROOT_WORDS,
    VALUES,
    QdagWalk,
    root_of,
)
from structures.qdag.qdag import And, Atom, Roots
from structures.qdag.refs import enter
from structures.quadtree.layout import CODE_BITS, QuadNodes
from structures.quadtree.trees import QuadTrees

__all__ = ["Branch", "QdagUnionCursor", "Or"]


class Branch(NamedTuple):
    """The atoms and groups of a branch, as `qdag.And` takes them."""

    atoms: Sequence[Atom]
    absent: Sequence[Sequence[Atom]] = ()


@kernel
def is_there(nodes: QuadNodes, walking: QdagWalk, t: int) -> bool:
    """Return whether atom t has the tuple in the state."""
    roots, state = walking.roots, walking.state
    if root_of(roots, t) == 0:
        return False
    state[FRAMES] = enter(nodes.W, root_of(roots, t))
    return has_tuple(nodes, walking, t, FRAMES, CODE_BITS)


@kernel
def is_emitted(nodes: QuadNodes, walking: QdagWalk) -> bool:
    """Return whether a branch has the tuple in the state: all its own atoms have it, and in each of its groups some atom does not."""
    plan, t = walking.plan, wide(0)
    while t < plan[ATOMS]:
        branch, stands = plan[ATOM + t * ATOM_WORDS + POSITION], True
        while t < plan[ATOMS] and plan[ATOM + t * ATOM_WORDS + POSITION] == branch:
            group, all_have = plan[ATOM + t * ATOM_WORDS + GROUP], stands
            while t < plan[ATOMS] and plan[ATOM + t * ATOM_WORDS + POSITION] == branch and plan[ATOM + t * ATOM_WORDS + GROUP] == group:
                all_have = all_have and is_there(nodes, walking, t)
                t += 1
            stands = stands and all_have == (group == MUST)
        if stands:
            return True
    return False


@kernel("int64(QuadNodes, QdagWalk, int32[:, ::1], uint8[::1])")
def find_emitted(nodes: QuadNodes, walking: QdagWalk, tuples: Any, found: Any) -> int:
    """Set found[i] to whether a branch has tuple i. Returns the number of atoms that were searched. O(atoms log l) a tuple."""
    state, n = walking.state, tuples.shape[1]
    state[LOOKED_UP] = 0
    for i in range(n):
        for v in range(tuples.shape[0]):
            state[VALUES + v] = tuples[v, i]
        found[i] = 1 if is_emitted(nodes, walking) else 0
    return wide(state[LOOKED_UP])


class _Test:
    """Tests whether some branches have a tuple at one version."""

    def __init__(self, branches: Sequence[And], roots: Roots) -> None:
        listed = [(branch, position, one) for branch, one in enumerate(branches) for position in range(len(one.atoms))]
        plan = np.zeros(layout.plan_words(len(listed)), np.int64)
        plan[ATOMS] = len(listed)
        for t, (branch, position, one) in enumerate(listed):
            a, order = ATOM + t * ATOM_WORDS, one.variables_of(position)
            plan[a + ARITY], plan[a + POSITION], plan[a + GROUP] = len(order), branch, one.groups[position]
            plan[a + layout.VARIABLES : a + layout.VARIABLES + len(order)] = order
        words = np.array([word for _, position, one in listed for word in roots[_plain(one.atoms[position])][:ROOT_WORDS]], np.int64)
        leaves, state = np.empty(len(listed) * layout.LINE, np.int32), np.zeros(FRAMES + 1, np.int64)
        self._walking = QdagWalk(plan, words, np.empty(0, np.int64), leaves, state)

    def find(self, trees: QuadTrees, tuples: np.ndarray) -> tuple[np.ndarray, int]:
        """Return bool[n], whether the branches have each of these tuples, int32[d, n]; and the number of atoms that were searched."""
        found = np.zeros(tuples.shape[1], np.uint8)
        # A cursor and its clones may be read by several threads.
        walking = self._walking._replace(leaves=self._walking.leaves.copy(), state=self._walking.state.copy())
        looked_up = compiled(find_emitted)(trees.arrays[0], walking, np.ascontiguousarray(tuples), found)
        return found.view(np.bool_), int(looked_up)


def _plain(atom: Atom) -> int:
    return atom.trees[frozenset()][0]


class _Part(NamedTuple):
    """A branch to be read, and the tests for tuples that it does not report: those that any test finds."""

    branch: int
    cursor: qdag.QdagCursor
    tests: tuple[_Test, ...]


class QdagUnionCursor(PartedCursor):
    """A reading. Its steps and dead ends are those of the branches, plus a step for each atom in which a tuple is looked up, and a dead end
    for each tuple that is not reported."""

    def __init__(self, of: Or, parts: Sequence[_Part]) -> None:
        super().__init__(of.lines + of.dimension)
        self._of, self._left = of, list(parts)
        self._number, self._tests = 0, tuple[_Test, ...]()
        self._dead = self._looked_up = self._excluded = self._repeated = 0  # of the parts that have ended, and of the tests
        self._tested = self._emitted_at = self._wait = 0  # steps: of tests, at the last reported tuple, the most without one
        self._ended = not parts

    def _next_part(self) -> qdag.QdagCursor | None:
        if not self._left:
            self._ended = True
            return None
        self._number, part, self._tests = self._left.pop(0)
        return part

    def _beside(self) -> int:
        return self._tested

    def _more(self, want: int) -> np.ndarray:
        part = self._part or self._next_part()
        self._part, before = part, self.steps
        if not isinstance(part, qdag.QdagCursor):
            return self._nothing
        rows = part.fill(want)
        first, lines = self._of.starts[self._number], len(rows) - self._of.dimension
        for test in self._tests:
            emitted, looked_up = test.find(self._of.trees, rows[lines:])
            self._tested += looked_up
            self._repeated += int(np.count_nonzero(emitted))
            rows = rows[:, ~emitted]
        found = np.full((len(self._nothing), rows.shape[1]), -1, np.int32)
        found[first : first + lines], found[self._of.lines :] = rows[:lines], rows[lines:]
        if found.shape[1]:
            self._has_emitted, self._wait, self._emitted_at = True, max(self._wait, before - self._emitted_at), self.steps
        if part.done:
            self._dead += part.dead_ends or 0
            self._add(part.counters)
            self._end_part(part)
            self._ended = not self._left
        return found

    def _add(self, counters: dict[str, int]) -> None:
        self._looked_up += counters.get("looked_up", 0)
        self._excluded += counters.get("excluded", 0)

    @property
    def largest_gap(self) -> int:
        return max(super().largest_gap, self._wait)

    @property
    def dead_ends(self) -> int:
        own = self._part.dead_ends or 0 if self._part is not None else 0
        return self._dead + own + self._repeated

    @property
    def counters(self) -> dict[str, int]:
        """The numbers of look-ups of tuples in atoms, for groups and for other branches; of what groups excluded; and of tuples that
        another branch had reported."""
        own = self._part.counters if isinstance(self._part, qdag.QdagCursor) else {}
        return {
            "looked_up": self._looked_up + self._tested + own.get("looked_up", 0),
            "excluded": self._excluded + own.get("excluded", 0),
            "repeated": self._repeated,
        }

    def clone(self) -> Self:
        other = super().clone()
        other._left = [one._replace(cursor=one.cursor.clone()) for one in self._left]
        return other


class Or:
    """The union of branches over trees of one arena. May be used in any thread."""

    def __init__(self, trees: QuadTrees, dimension: int, branches: Sequence[Branch]) -> None:
        """Raises ValueError as `qdag.And` does, or if a branch lacks a variable."""
        self.trees, self.dimension = trees, dimension
        for atoms, _ in branches:
            if frozenset().union(*(variables for variables, _ in atoms)) != frozenset(range(dimension)):
                raise ValueError("a branch has to have all variables")
        self.branches = [And(trees, dimension, atoms, absent, once=True) for atoms, absent in branches]
        self.starts = [sum(one.lines for one in self.branches[:index]) for index in range(len(self.branches))]
        self.lines = sum(one.lines for one in self.branches)

    def rows(self, roots: Roots, codes: Sequence[int] | None = None) -> QdagUnionCursor:
        """Return a cursor over all tuples of a version; `codes`: only the one with these values."""
        parts = []
        for index, one in enumerate(self.branches):
            if not self.is_empty(index, roots):
                parts.append(_Part(index, one.rows([roots] * len(one.atoms), codes), self._tests(index, roots)))
        return QdagUnionCursor(self, parts)

    def changes(self, branch: int, position: int, tuples: np.ndarray, roots: Roots, others: Roots) -> QdagUnionCursor:
        """Return a cursor over the tuples of a version that no branch has at another one, and that branch `branch` is the first to have:
        those that agree with one of the given tuples in the variables of its atom `position` (which may be one of a group's)."""
        one = self.branches[branch]
        if self.is_empty(branch, roots):
            return QdagUnionCursor(self, [])
        tests = self._tests(branch, roots) + self._tests(len(self.branches), others)
        return QdagUnionCursor(self, [_Part(branch, one.having([roots] * len(one.atoms), position, tuples), tests)])

    def is_empty(self, branch: int, roots: Roots) -> bool:
        """Return whether a branch surely has no tuples because one of its own atoms has none."""
        one = self.branches[branch]
        return any(roots[_plain(atom)].count == 0 for atom in one.atoms[: one.lines])

    def _tests(self, count: int, roots: Roots) -> tuple[_Test, ...]:
        """Return the tests for the tuples of the first `count` branches."""
        some = [self.branches[index] for index in range(count) if not self.is_empty(index, roots)]
        return (_Test(some, roots),) if some else ()

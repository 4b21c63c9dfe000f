"""Natural joins of relations in quadtrees, worst-case optimal: qdags, and their AND, less what NOT EXISTS groups leave out.

Problem: enumerate the rows of a full natural join of up to 8 atoms over up to 6 variables, where a row is one slot for each atom: all rows,
those in which some variables have given values, or those of given entries of one atom. Some atoms may be in groups: a row is excluded if
all atoms of a group have its values (`absent.py`, a lazy qdag). These count among the 8, and have no slot in a row. If tuples are wanted
instead of rows, each is reported once, with a slot of each atom and the values of all variables (`once`).

A qdag is a quadtree seen in more dimensions: a mapping M from the 2**d quadrants of all variables to those of the tree's own, by
projection (Extend). It is never copied, whatever order the variables are in; so atoms over one set of tuples share one tree. The AND goes
down all qdags at once and leaves a subgrid as soon as one of them is empty there:

    R(A, B)  M = 0 0 1 1 2 2 3 3        quadrant 5 = 101 of (A, B, C) is 10 of (A, B), 01 of (B, C), 11 of (A, C)
    S(B, C)  M = 0 1 2 3 0 1 2 3
    T(A, C)  M = 0 1 0 1 2 3 2 3

Given variables are bound first (`walk.py`): for an atom that has some of them, a tree is read in which these come first. The rows of a
changed entry are read in this way, and so are all rows: entry after entry of the smallest atom (the driving one, as in a nested loop's
driving table), each joined with what the others have of its values; a tuple of many rows once for all of them.

Decision: the paper's AND of all atoms searches the subgrids of all variables, of which a sparse relation leaves few empty before its leaves
are reached: a triangle over 100,000 random edges took 18.9 million steps, entry by entry it takes 1.1 million; where every subgrid has rows
both take the same. The bound holds: over the tuples t of one atom, the AGM bounds of what the others have of t's values sum up to that of
the whole at most (Ngo, Ré and Rudra, *Skew strikes back*, the query decomposition lemma); and the smallest atom has no more entries than
that, which cost a way down in each other one. The lemma counts a tuple once: rows of one tuple that do not fill a leaf are read one by one,
LEAF times at most.

Costs (m atoms, d variables, codes below l, N entries)
    all rows    O(2^d m log min(l, N)) times the AGM bound: the most rows that relations of these sizes can have (Theorem 3.8)
    given ones  the same of what the given values leave, over the free variables, and O(log l) an atom
    delay       none; the memory of a reading is a frame a level
    groups      no joint node more than without them; each tuple found in leaves is looked up in the atoms of the groups left there
Source: Navarro, Reutter and Rojas-Ledesma, *Optimal Joins using Compact Data Structures*, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np

from structures.core import cursor
from structures.core.kernel import compiled
from structures.qdag import layout
from structures.qdag.layout import LINE, ROOT_WORDS, QdagWalk, plan_words, state_words
from structures.qdag.scan import NO_SLOT, SCANNED, SCANNED_AT_ONCE, read_items, scan_of
from structures.quadtree.layout import MOST_ARITY
from structures.quadtree.trees import QuadtreeRoot, QuadTrees

__all__ = ["And", "Atom", "QdagCursor", "extend"]

Roots = tuple[QuadtreeRoot, ...]


def extend(variables: Sequence[int], dimension: int) -> list[int]:
    """Return M of a qdag whose tree has these variables, in this order (Algorithm 3); the first of all variables has the highest bit."""
    return [
        sum((i >> (dimension - 1 - v) & 1) << (len(variables) - 1 - position) for position, v in enumerate(variables))
        for i in range(1 << dimension)
    ]


class Atom(NamedTuple):
    """The variables of a relation, and the trees with its entries: for each set of variables that comes first, the tree's number and the
    variables of its coordinates."""

    variables: frozenset[int]
    trees: dict[frozenset[int], tuple[int, tuple[int, ...]]]


class _Plan(NamedTuple):
    words: np.ndarray  # as the kernels take it
    trees: list[tuple[int, int]]  # of each atom read, its place and its tree's number


class QdagCursor(cursor.Cursor):
    """A reading. Its steps are joint nodes visited, entries of leaves tried, and rows of cells read; its dead ends are joint nodes visited
    that had no children, and items and entries tried that joined with nothing."""

    _STEPS, _GAP, _DEAD = layout.STEPS, layout.GAP, layout.DEAD

    def __init__(self, join: And, plans: Sequence[np.ndarray], items: np.ndarray, scan: np.ndarray | None) -> None:
        """Start a reading. `plans`: two plans, each with its roots, as in `scan.py`; `items`: what is read, or, with a scan, a buffer for
        it."""
        trees, atoms = join.trees, len(join.atoms)
        super().__init__(join.lines + (join.dimension if join.once else 0), np.zeros(state_words(atoms), np.int64))
        self._has_groups = join.lines < atoms
        self._nodes, self._plans = trees.arrays[0], plans
        self._scan = np.zeros(1, np.int64) if scan is None else scan
        self._Z[layout.ITEMS] = len(items) // plans[0].item(layout.WIDTH) if scan is None else 0
        self._walking = QdagWalk(plans[0], plans[1], items, np.empty(atoms * LINE, np.int32), self._Z)
        self._ended = self._is_over()

    def _is_over(self) -> bool:
        state = self._Z
        return state.item(layout.DEPTH) == 0 and state.item(layout.ITEM) == state.item(layout.ITEMS) and self._scan.item(SCANNED) == 0

    def _more(self, want: int) -> np.ndarray:
        out = np.empty((len(self._nothing), want), np.int32)
        n = compiled(read_items)(self._nodes, self._walking, *self._plans[2:], self._scan, out, self._BUDGET)
        self._ended = self._is_over()
        return out[:, :n]

    @property
    def counters(self) -> dict[str, int]:
        """With groups: the numbers of tuples that were looked up in their atoms, and of items, cells and tuples that a group excluded."""
        state = self._Z
        return {"looked_up": state.item(layout.LOOKED_UP), "excluded": state.item(layout.EXCLUDED)} if self._has_groups else {}

    def clone(self) -> Self:
        other, walking = super().clone(), self._walking
        other._scan = self._scan.copy()
        other._walking = walking._replace(items=walking.items.copy(), leaves=walking.leaves.copy(), state=other._Z)
        return other


class And:
    """The AND of qdags over trees of one arena, without what is in all atoms of a group. May be used in any thread.

    `atoms` are numbered: first those that have a slot in a row, `lines` of them, then those of each group.
    """

    def __init__(
        self, trees: QuadTrees, dimension: int, atoms: Sequence[Atom], absent: Sequence[Sequence[Atom]] = (), once: bool = False
    ) -> None:
        """Variables are numbers below `dimension`; `absent`: the groups; `once`: a row is a tuple of all variables, however many rows have
        it. Raises ValueError for more than 6 variables, more than 8 atoms, trees of other shapes, or a group over variables that the other
        atoms do not have."""
        grouped = [(index, atom) for index, group in enumerate(absent) for atom in group]
        self.lines, self.atoms = len(atoms), [*atoms, *(atom for _, atom in grouped)]
        if not 1 <= dimension <= layout.MOST_VARIABLES or not 1 <= len(atoms) <= len(self.atoms) <= layout.MOST_ATOMS:
            raise ValueError(f"no AND of {len(self.atoms)} qdags over {dimension} variables")
        if not frozenset().union(*(variables for variables, _ in self.atoms)) <= frozenset().union(*(variables for variables, _ in atoms)):
            raise ValueError("a group has a variable that no other atom has")
        for variables, own in self.atoms:
            for first, (tree, order) in own.items():
                fits = trees.shapes[tree] == (len(variables), len(first)) and set(order[: len(first)]) == first and set(order) == variables
                if not fits:
                    raise ValueError(f"tree {tree} of shape {trees.shapes[tree]} does not hold {order}, {set(first)} first")
        self.trees, self.dimension, self.once = trees, dimension, once
        self.groups = [layout.MUST] * len(atoms) + [index for index, _ in grouped]
        self._plans: dict[tuple[int, frozenset[int]], _Plan] = {}
        # Of an atom's entries, in an item.
        self._columns = [[*(1 + v for v in self.variables_of(position)), 0] for position in range(len(self.atoms))]

    def _plan(self, given: int, bound: frozenset[int]) -> _Plan:
        """Return the plan for readings of all atoms except the given one, in which these variables have values."""
        found = self._plans.get((given, bound))
        if found is None:
            found = self._plans[given, bound] = self._new_plan(given, bound)
        return found

    def _new_plan(self, given: int, bound: frozenset[int]) -> _Plan:
        read = [position for position in range(self.lines) if position != given]
        joint = self._ordered([position for position in read if not self.atoms[position].variables <= bound], bound)
        read = joint + [position for position in read if position not in joint]
        tested = self._tested(given)
        words = np.zeros(plan_words(len(read) + len(tested)), np.int64)
        words[layout.JOINT], words[layout.ATOMS], words[layout.TESTED] = len(joint), len(read), len(tested)
        words[layout.GIVEN], words[layout.WIDTH] = given if given < self.lines else -1, 1 + self.dimension
        words[layout.ALL], words[layout.ONCE], words[layout.BOUND] = _word(range(1 << self.dimension - len(bound))), self.once, _word(bound)
        trees, before, last = [], set(bound), tuple[int, ...]()
        for t, position in enumerate([*read, *(position for _, position in tested)]):
            variables = self.atoms[position].variables
            whole = variables <= bound
            tree, order = self.atoms[position].trees[frozenset() if whole else variables & bound]
            trees.append((position, tree))
            a = layout.ATOM + t * layout.ATOM_WORDS
            words[a + layout.ARITY], words[a + layout.POSITION], words[a + layout.WHOLE] = len(order), position, whole
            words[a + layout.VARIABLES : a + layout.VARIABLES + len(order)] = order
            if not whole:
                self._put_quadrants(words[a : a + layout.ATOM_WORDS], order, bound)
            if t >= len(read):
                words[a + layout.GROUP] = tested[t - len(read)][0]
                continue
            words[a + layout.CHECKS] = _word(j for j, v in enumerate(order) if v in before - bound)
            late = {j: last.index(v) for j, v in enumerate(order) if v in last and v not in bound}
            words[a + layout.LATE], words[a + layout.SOURCES] = _word(late), sum(source << 4 * j for j, source in late.items())
            last = order
            before |= variables
        return _Plan(words, trees)

    def _put_quadrants(self, words: np.ndarray, order: Sequence[int], bound: frozenset[int]) -> None:
        """Write FIRST, MAP and EXT of an atom, over the free variables."""
        free = [v for v in range(self.dimension) if v not in bound]
        rest = [free.index(v) for v in order if v not in bound]
        words[layout.FIRST] = len(order) - len(rest)
        mapping = extend(rest, len(free))
        words[layout.MAP : layout.MAP + len(mapping)] = mapping
        for c in range(1 << len(rest)):
            words[layout.EXT + c] = _word(i for i, projected in enumerate(mapping) if projected == c)
        assert MOST_ARITY <= 4, "EXT has room for 16 quadrants"

    def _tested(self, given: int) -> list[tuple[int, int]]:
        """Return the atoms that a reading tests, and their groups. If the given atom is in a group, the rows are those that the group
        excludes because of it: the group's other atoms must have the values."""
        own = self.groups[given] if given >= self.lines else None
        positions = [position for position in range(self.lines, len(self.atoms)) if position != given]
        return sorted((layout.MUST if self.groups[position] == own else self.groups[position], position) for position in positions)

    def _ordered(self, positions: Iterable[int], bound: frozenset[int]) -> list[int]:
        """Return these atoms in an order: first one with the most free variables, then always one that adds the fewest, so that its entries
        are restricted by the atoms before it."""
        rest, known, found = sorted(positions, key=lambda position: -len(self.atoms[position].variables - bound)), set(bound), list[int]()
        while rest:
            found.append(rest.pop(0))
            known |= self.atoms[found[-1]].variables
            rest.sort(key=lambda position: (len(self.atoms[position].variables - known), position))
        return found

    def plan_of(self, position: int) -> _Plan:
        """Return the plan of the readings of `partners`."""
        return self._plan(position, self.atoms[position].variables)

    def variables_of(self, position: int) -> tuple[int, ...]:
        """Return the variables of an atom, in the order of its plain tree's coordinates."""
        return self.atoms[position].trees[frozenset()][1]

    def rows(self, versions: Sequence[Roots], codes: Sequence[int] | None = None) -> QdagCursor:
        """Return a cursor over all rows of these versions, one version for each atom, including those of groups. `codes`: the value of each
        variable, -1 for any."""
        if codes is None:
            position = self._driver(versions)
            tree, variables = self.atoms[position].trees[frozenset()]
            items = np.empty(SCANNED_AT_ONCE * (1 + self.dimension), np.int64)
            whole = self._plan(-1, self.atoms[position].variables)
            plans = [whole if self.once else self.plan_of(position), whole]
            return self._cursor(plans, versions, items, scan_of(versions[position][tree], variables, self.once))
        bound = frozenset(v for v, code in enumerate(codes) if code >= 0)
        return self._cursor([self._plan(-1, bound)] * 2, versions, np.array([NO_SLOT, *codes], np.int64))

    def _driver(self, versions: Sequence[Roots]) -> int:
        """Return the atom whose entries are read one after another: one with the fewest entries, and of these one with the most
        variables."""
        read = self.atoms[: self.lines]
        counts = [version[atom.trees[frozenset()][0]].count for version, atom in zip(versions, read, strict=False)]
        return min(range(len(counts)), key=lambda position: (counts[position], -len(self.atoms[position].variables)))

    def partners(self, versions: Sequence[Roots], position: int, entries: np.ndarray) -> QdagCursor:
        """Return a cursor over the rows in which atom `position` is one of these entries, in their order: int32[n, k + 1],
        coordinates as in its plain tree, slot. The version of this atom is not read. For an atom of a group: the rows that only this group
        excludes, because of one of these tuples."""
        items = np.empty((len(entries), 1 + self.dimension), np.int64)
        items[:, self._columns[position]] = entries
        return self._cursor([self.plan_of(position)] * 2, versions, items.reshape(-1))

    def having(self, versions: Sequence[Roots], position: int, tuples: np.ndarray) -> QdagCursor:
        """Return a cursor over the rows that have one of these tuples in the variables of atom `position`: int32[n, k], coordinates
        as in its plain tree. The atom is read like any other."""
        items = np.full((len(tuples), 1 + self.dimension), NO_SLOT, np.int64)
        items[:, self._columns[position][:-1]] = tuples
        plan = self._plan(-1, self.atoms[position].variables)
        return self._cursor([plan] * 2, versions, items.reshape(-1))

    def _cursor(self, plans: Sequence[_Plan], versions: Sequence[Roots], items: np.ndarray, scan: np.ndarray | None = None) -> QdagCursor:
        """Return a reading that uses the first plan for items that have a slot, the second for those that have none."""
        words = list[np.ndarray]()
        for plan in plans:
            words += plan.words, np.array(
                [word for position, tree in plan.trees for word in versions[position][tree][:ROOT_WORDS]], np.int64
            )
        return QdagCursor(self, words, items, scan)


def _word(bits: Iterable[int]) -> int:
    """Return these bits as an int64."""
    word = sum(1 << i for i in bits)
    return word - (1 << 64) if word >> 63 else word

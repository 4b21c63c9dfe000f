"""Single changes one after another in one call: each is written to its trees, and the rows that come or go with it are found.

A run is a list of steps, in order: an entry goes (STEP_LEAVE) or comes (STEP_ENTER) without a word, or goes (STEP_DELETE) or comes
(STEP_INSERT) and its rows are told. Steps of one change and of one kind (moves, deletes, inserts) stand for each other as those of a batch
do: all are written, then atom number i is joined with the atoms before it as they are then, and with those behind it as they were before.

    U    a step: change, sign, base, where its entry lies in E
    T    trees by base: tree, words of an entry, which of the base's columns it takes      X    of each base its first tree, and the end
    A    atoms: base, where its plan begins and ends in P, words of its entry, places and trees of the atoms that are joined with it, the
         entry's variables
    G    AT the step in hand; PLACE the atom in hand (-1: nothing is written yet), READING whether it is being read; ROWS told of this kind
         of this change; LIMIT of these (-1: nothing is told)
    V    roots of all trees before and after the step in hand      N    room for an entry
    L    lines, rows of `out`: change, sign, first, end, whether there were more than the limit and none is here

Costs: as of each change by itself, without what a call costs. Source: docs/design/natural-joins.md (*Deltas*).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Writing
from structures.core.control import VERSION
from structures.core.kernel import arrays, compiled, kernel, wide
from structures.qdag.layout import DEPTH, ITEM, ITEMS, MOST_ATOMS, ROOT_WORDS, STEPS, Walking, line_words, state_words
from structures.qdag.qdag import And
from structures.qdag.walk import and_steps
from structures.quadtree.changes import delete_entry, insert_entry
from structures.quadtree.layout import MISSING, MOST_ARITY, TREE, TREE_WORDS, QuadNodes

__all__ = ["STEP_DELETE", "STEP_ENTER", "STEP_INSERT", "STEP_LEAVE", "Runs", "Told"]

STEP_LEAVE, STEP_ENTER, STEP_DELETE, STEP_INSERT = 0, 1, 2, 3
AT, PLACE, READING, ROWS, LIMIT = 0, 1, 2, 3, 4
BASE, PLAN, WIDTH, OTHERS, COLUMNS = 0, 1, 3, 4, 4 + MOST_ATOMS  # of an atom
ATOM_WORDS = COLUMNS + MOST_ARITY + 1
_CAPACITY = 1 << 13


@arrays("int64[:, ::1]", "int32[::1]")
class Steps(NamedTuple):
    U: np.ndarray
    E: np.ndarray


@arrays("int64[:, ::1]", "int64[:, ::1]", "int64[:, ::1]")
class Query(NamedTuple):
    T: np.ndarray
    X: np.ndarray
    A: np.ndarray


@arrays("int64[::1]", "int64[:, ::1]", "int32[::1]")
class State(NamedTuple):
    G: np.ndarray
    V: np.ndarray
    N: np.ndarray


@arrays("int64[:, ::1]", "int32[:, ::1]")
class Lines(NamedTuple):
    L: np.ndarray
    out: np.ndarray


@kernel
def write_step(nodes: QuadNodes, writing: Writing, query: Query, steps: Steps, N: Any, s: int) -> None:
    """Step s, in all trees of its base."""
    C, T, X, E, step = writing.C, query.T, query.X, steps.E, steps.U
    base, e = step[s, 2], step[s, 3]
    for i in range(X[base, 0], X[base, 1]):
        for j in range(T[i, 1]):
            N[j] = E[e + T[i, 2 + j]]
        if step[s, 1] == STEP_ENTER or step[s, 1] == STEP_INSERT:
            done = insert_entry(nodes, writing, T[i, 0], N, 0)
        else:
            done = delete_entry(nodes, writing, T[i, 0], N, 0)
        if not done:
            C[MISSING] += 1


@kernel
def keep_roots(C: Any, V: Any, v: int) -> None:
    """Root, bits and base of every tree, as they are, to V[v]."""
    for t in range(V.shape[1] // ROOT_WORDS):
        for i in range(ROOT_WORDS):
            V[v, ROOT_WORDS * t + i] = C[TREE + TREE_WORDS * t + i]


@kernel
def open_reading(A: Any, a: int, E: Any, e: int, V: Any, walking: Walking, others: int) -> None:
    """Of the rows in which atom a has the entry at E[e]; the others are of the version that is theirs."""
    R, items, Z = walking.R, walking.items, walking.Z
    k = A[a, WIDTH] - 1
    items[0] = E[e + k]
    for j in range(k):
        items[1 + A[a, COLUMNS + j]] = E[e + j]
    for t in range(others):
        place, tree = A[a, OTHERS + t] >> 16, A[a, OTHERS + t] & 65535
        for i in range(ROOT_WORDS):
            R[ROOT_WORDS * t + i] = V[1 if place < a else 0, ROOT_WORDS * tree + i]
    Z[DEPTH], Z[ITEM], Z[ITEMS] = 0, 0, 1


@kernel
def tell(nodes: QuadNodes, query: Query, steps: Steps, walking: Walking, state: State, out: Any, n: int, end: int) -> int:
    """The rows of the steps from G[AT] to `end`, until `out` is full or they are more than the limit; how many rows there are then."""
    U, E, A, G, V = steps.U, steps.E, query.A, state.G, state.V
    P, R, items, S, Z = walking.P, walking.R, walking.items, walking.S, walking.Z
    while G[PLACE] < len(A) and n < out.shape[1] and G[ROWS] <= G[LIMIT]:
        a, s = G[PLACE], G[AT]
        while s < end and U[s, 2] != A[a, BASE]:
            s += 1
        if s < end:
            plan = P[A[a, PLAN] : A[a, PLAN + 1]]
            if G[READING] == 0:
                open_reading(A, a, E, U[s, 3], V, walking, len(A) - 1)
                G[READING] = 1
            before = n
            n = and_steps(nodes, Walking(plan, R, items, S, Z), out, n, 1 << 62)
            G[ROWS] += n - before
            if Z[DEPTH] > 0 or n == out.shape[1]:
                break
        G[PLACE] += 1
        G[READING] = 0
    return n


@kernel("int64(QuadNodes, Writing, Query, Steps, Walking, State, Lines)")
def follow(nodes: QuadNodes, writing: Writing, query: Query, steps: Steps, walking: Walking, state: State, told: Lines) -> int:
    """Go on until all steps are done, or there is no room for more rows or lines; how many lines there are."""
    C, U, A, G, V, L, out = writing.C, steps.U, query.A, state.G, state.V, told.L, told.out
    n, lines, limit = wide(0), wide(0), G[LIMIT]
    while G[AT] < len(U) and n < out.shape[1] and lines < len(L):
        s, end = G[AT], G[AT] + 1
        while end < len(U) and U[end, 0] == U[s, 0] and max(U[end, 1], STEP_ENTER) == max(U[s, 1], STEP_ENTER):
            end += 1
        if G[PLACE] < 0:
            C[VERSION] += 1
            keep_roots(C, V, 0)
            for i in range(s, end):
                write_step(nodes, writing, query, steps, state.N, i)
            keep_roots(C, V, 1)
            G[PLACE], G[READING], G[ROWS] = 0, 0, 0
            if limit < 0 or U[s, 1] <= STEP_ENTER:
                G[PLACE] = len(A)
        start = n
        n = tell(nodes, query, steps, walking, state, out, n, end)
        if G[ROWS] > limit and limit >= 0:
            n, G[PLACE] = start, len(A)
            L[lines, 0], L[lines, 1], L[lines, 2], L[lines, 3], L[lines, 4] = U[s, 0], U[s, 1], n, n, 1
            lines += 1
        elif n > start:
            L[lines, 0], L[lines, 1], L[lines, 2], L[lines, 3], L[lines, 4] = U[s, 0], U[s, 1], start, n, 0
            lines += 1
        if G[PLACE] == len(A):
            G[AT], G[PLACE] = end, -1
    return lines


class Told(NamedTuple):
    """Rows, int32[atoms, n], that come (or go) by a change; or too many, and none here."""

    change: int
    inserted: bool
    rows: np.ndarray
    too_large: bool


class Runs:
    """Runs of one AND. `bases`: of each set of entries its trees, and which columns each takes; `base_of`: of each atom its base;
    `capacity`: rows, and changes, of a call."""

    def __init__(
        self,
        join: And,
        bases: Sequence[Sequence[tuple[int, Sequence[int]]]],
        base_of: Sequence[int],
        capacity: int = _CAPACITY,
    ) -> None:
        self._trees = join.trees
        ends = np.cumsum([0, *map(len, bases)])
        X = np.column_stack((ends[:-1], ends[1:]))
        T = np.zeros((ends[-1], 3 + MOST_ARITY), np.int64)
        for row, (tree, columns) in zip(T, [one for own in bases for one in own], strict=True):
            row[: 2 + len(columns)] = tree, len(columns), *columns
        plans = [join.plan_of(place) for place in range(len(base_of))]
        ends = np.cumsum([0, *(len(plan.words) for plan in plans)])
        P = np.concatenate([plan.words for plan in plans])
        A = np.zeros((len(base_of), ATOM_WORDS), np.int64)
        for place, (row, plan) in enumerate(zip(A, plans, strict=True)):
            variables = join.variables_of(place)
            row[BASE], row[PLAN], row[PLAN + 1], row[WIDTH] = base_of[place], ends[place], ends[place + 1], len(variables) + 1
            row[OTHERS : OTHERS + len(plan.trees)] = [other << 16 | tree for other, tree in plan.trees]
            row[COLUMNS : COLUMNS + len(variables)] = variables
        others = len(base_of) - 1
        self._query = Query(T, X, A)
        R, items = np.zeros(ROOT_WORDS * max(1, others), np.int64), np.zeros(1 + join.dimension, np.int64)
        S, Z = np.zeros(line_words(max(1, others)), np.int32), np.zeros(state_words(max(1, others)), np.int64)
        self._walking = Walking(P, R, items, S, Z)
        V = np.zeros((2, ROOT_WORDS * len(join.trees.shapes)), np.int64)
        self._state = State(np.zeros(5, np.int64), V, np.zeros(MOST_ARITY + 1, np.int32))
        self._told = Lines(np.zeros((capacity, 5), np.int64), np.zeros((len(base_of), capacity), np.int32))

    def follow(self, version: int, steps: np.ndarray, entries: np.ndarray, limit: int | None) -> Iterator[Told]:
        """int64[n, 4] steps over int32 entries of their bases, each kind of a change as one more version after `version`; tell what they
        did. `limit`: of rows; None: tell nothing. `QuadTrees.require` comes first. KeyError: some deleted entries were not there."""
        self._trees.arena.C[VERSION] = version
        for base, (first, end) in enumerate(self._query.X.tolist()):
            own = steps[steps[:, 2] == base]
            come = (own[:, 1] == STEP_ENTER) | (own[:, 1] == STEP_INSERT)
            for tree, width, *columns in self._query.T[first:end].tolist():
                self._trees.expect(tree, entries[own[:, 3, None] + np.array(columns[:width])], come)
        G, told = self._state.G, self._told
        G[:] = 0, -1, 0, 0, -1 if limit is None else limit
        while G[AT] < len(steps):
            lines = compiled(follow)(*self._trees.arrays, self._query, Steps(steps, entries), self._walking, self._state, told)
            for change, sign, first, end, too_large in told.L[:lines].tolist():
                yield Told(change, sign == STEP_INSERT, told.out[:, first:end].copy(), bool(too_large))
        self._trees.settle_missing()

    @property
    def steps(self) -> int:
        """As `Cursor.steps`, of all readings so far."""
        return int(self._walking.Z[STEPS])

"""Single changes one after another in one call: each is written to its trees, and the rows that it adds or removes are found.

A run is a list of steps, in order: an entry is deleted (STEP_LEAVE) or inserted (STEP_ENTER) without a report, or deleted (STEP_DELETE) or
inserted (STEP_INSERT) and its rows are reported. Steps of one change and of one kind (moves, deletes, inserts) are treated as a batch: all
are written, then atom i is joined with the new versions of the atoms before it and with the old versions of those after it.

    steps      change, sign, base, where its entry lies in `entries`
    trees      by base: tree, words of an entry, which of the base's columns it takes
    bases      of each its first tree, and the end
    atoms      base, where the plan begins and ends, words of an entry, places and trees of the atoms that are joined with it, the entry's
               variables
    run        AT the current step; PLACE the current atom (-1: nothing is written yet), READING whether it is being read; ROWS reported for
               this kind of this change; LIMIT of these (-1: nothing is reported); BUDGET: steps of a call
    versions   roots of all trees before and after the current step
    entry      room for one
    lines      of `out`: change, sign, first, end, whether there were more than the limit and none is here

Costs: those of each change alone, without the cost of a call. Source: docs/design/natural-joins.md (*Deltas*).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import WriteState
from structures.core.control import VERSION
from structures.core.kernel import arrays, compiled, contiguous, kernel, wide
from structures.qdag.layout import DEPTH, ITEM, ITEMS, LINE, MOST_ATOMS, ROOT_WORDS, STEPS, QdagWalk, state_words
from structures.qdag.qdag import And
from structures.qdag.walk import and_steps
from structures.quadtree.changes import delete_entry, insert_entry
from structures.quadtree.layout import MISSING, MOST_ARITY, TREE, TREE_WORDS, QuadNodes

__all__ = ["STEP_DELETE", "STEP_ENTER", "STEP_INSERT", "STEP_LEAVE", "Runs", "Emission"]

STEP_LEAVE, STEP_ENTER, STEP_DELETE, STEP_INSERT = 0, 1, 2, 3
AT, POSITION, READING, ROWS, LIMIT, BUDGET, RUN_WORDS = range(7)
CHANGE, SIGN, OF_BASE, ENTRY, STEP_WORDS = range(5)  # of a step
TREE_, TAKEN, TAKES = range(3)  # of a tree: it, how many columns it takes, and these
BASE_TREES, BASE_END = range(2)  # of a base: its trees
BASE, PLAN, WIDTH, OTHERS, COLUMNS = 0, 1, 3, 4, 4 + MOST_ATOMS  # of an atom; PLAN + 1: where it ends
ATOM_WORDS = COLUMNS + MOST_ARITY + 1
_POSITION_SHIFT = 16  # of an atom's others: place << 16 | tree
LINE_CHANGE, LINE_SIGN, FIRST_ROW, END_ROW, TOO_LARGE, LINE_WORDS = range(6)  # of a line
_NOTHING_WRITTEN = -1  # as PLACE
_NOTHING_EMITTED = -1  # as LIMIT
_CAPACITY = 1 << 13
_BUDGET = 1 << 18  # steps of the readings of a call: about a millisecond


@arrays("int64[:, ::1]", "int32[::1]")
class Steps(NamedTuple):
    steps: np.ndarray
    entries: np.ndarray


@arrays("int64[:, ::1]", "int64[:, ::1]", "int64[:, ::1]")
class Query(NamedTuple):
    trees: np.ndarray
    bases: np.ndarray
    atoms: np.ndarray


@arrays("int64[::1]", "int64[:, ::1]", "int32[::1]")
class State(NamedTuple):
    run: np.ndarray
    versions: np.ndarray
    entry: np.ndarray


@arrays("int64[:, ::1]", "int32[:, ::1]")
class Lines(NamedTuple):
    lines: np.ndarray
    out: np.ndarray


@kernel
def write_step(nodes: QuadNodes, writing: WriteState, query: Query, steps: Steps, entry: Any, s: int) -> None:
    """Write step s to all trees of its base."""
    C, trees, bases, entries, step = writing.C, query.trees, query.bases, steps.entries, steps.steps
    base, e, sign = step[s, OF_BASE], step[s, ENTRY], step[s, SIGN]
    for i in range(bases[base, BASE_TREES], bases[base, BASE_END]):
        for j in range(trees[i, TAKEN]):
            entry[j] = entries[e + trees[i, TAKES + j]]
        if sign == STEP_ENTER or sign == STEP_INSERT:
            done = insert_entry(nodes, writing, trees[i, TREE_], entry, 0)
        else:
            done = delete_entry(nodes, writing, trees[i, TREE_], entry, 0)
        if not done:
            C[MISSING] += 1


@kernel
def keep_roots(C: Any, versions: Any, v: int) -> None:
    """Copy the current root, bits and base of every tree to versions[v]."""
    for t in range(versions.shape[1] // ROOT_WORDS):
        for i in range(ROOT_WORDS):
            versions[v, ROOT_WORDS * t + i] = C[TREE + TREE_WORDS * t + i]


@kernel
def open_reading(atoms: Any, a: int, entries: Any, e: int, versions: Any, walking: QdagWalk, others: int) -> None:
    """Open the reading of the rows in which atom a has the entry at entries[e]; each other atom is read at its own version."""
    roots, items, reading = walking.roots, walking.items, walking.state
    k = atoms[a, WIDTH] - 1
    items[0] = entries[e + k]
    for j in range(k):
        items[1 + atoms[a, COLUMNS + j]] = entries[e + j]
    for t in range(others):
        position, tree = atoms[a, OTHERS + t] >> _POSITION_SHIFT, atoms[a, OTHERS + t] & ((1 << _POSITION_SHIFT) - 1)
        for i in range(ROOT_WORDS):
            roots[ROOT_WORDS * t + i] = versions[1 if position < a else 0, ROOT_WORDS * tree + i]
    reading[DEPTH], reading[ITEM], reading[ITEMS] = 0, 0, 1


@kernel
def emit(nodes: QuadNodes, query: Query, steps: Steps, walking: QdagWalk, state: State, out: Any, n: int, stop: tuple[int, int]) -> int:
    """Report the rows of the steps from run[AT] to before stop[0], until `out` is full, they exceed the limit, or the readings have made
    stop[1] steps. Returns the number of rows in `out` then."""
    table, entries, atoms, run, versions = steps.steps, steps.entries, query.atoms, state.run, state.versions
    plans, roots, items, leaves, reading = walking.plan, walking.roots, walking.items, walking.leaves, walking.state
    end, most = stop
    while run[POSITION] < len(atoms) and n < out.shape[1] and run[ROWS] <= run[LIMIT]:
        a, s = run[POSITION], run[AT]
        while s < end and table[s, OF_BASE] != atoms[a, BASE]:
            s += 1
        if s < end:
            plan = plans[atoms[a, PLAN] : atoms[a, PLAN + 1]]
            if run[READING] == 0:
                open_reading(atoms, a, entries, table[s, ENTRY], versions, walking, len(atoms) - 1)
                run[READING] = 1
            before = n
            n = and_steps(nodes, QdagWalk(plan, roots, items, leaves, reading), out, n, most)
            run[ROWS] += n - before
            if reading[DEPTH] > 0 or reading[ITEM] < reading[ITEMS] or n == out.shape[1]:
                break
        run[POSITION] += 1
        run[READING] = 0
    return n


@kernel
def write_line(lines: Any, i: int, change: int, sign: int, first: int, end: int, too_large: int) -> None:
    lines[i, LINE_CHANGE], lines[i, LINE_SIGN] = change, sign
    lines[i, FIRST_ROW], lines[i, END_ROW], lines[i, TOO_LARGE] = first, end, too_large


@kernel("int64(QuadNodes, WriteState, Query, Steps, QdagWalk, State, Lines)")
def follow(nodes: QuadNodes, writing: WriteState, query: Query, steps: Steps, walking: QdagWalk, state: State, emitted: Lines) -> int:
    """Continue until all steps are done, there is no room for more rows or lines, as many entries are written as there is room for lines,
    or the readings have made run[BUDGET] steps. Returns the number of lines. Cost: of each step that of `QuadTrees` for the entry, and that
    of reading its rows."""
    C, table, atoms, run, versions, out = writing.C, steps.steps, query.atoms, state.run, state.versions, emitted.out
    n, lines, limit, written = wide(0), wide(0), run[LIMIT], wide(0)
    most = walking.state[STEPS] + run[BUDGET]
    while run[AT] < len(table) and n < out.shape[1] and max(lines, written) < len(emitted.lines) and walking.state[STEPS] < most:
        s, end = run[AT], run[AT] + 1
        change, sign = table[s, CHANGE], table[s, SIGN]
        while end < len(table) and table[end, CHANGE] == change and max(table[end, SIGN], STEP_ENTER) == max(sign, STEP_ENTER):
            end += 1
        if run[POSITION] == _NOTHING_WRITTEN:
            C[VERSION] += 1
            keep_roots(C, versions, 0)
            for i in range(s, end):
                write_step(nodes, writing, query, steps, state.entry, i)
            written += end - s
            keep_roots(C, versions, 1)
            run[POSITION], run[READING], run[ROWS] = 0, 0, 0
            if limit == _NOTHING_EMITTED or sign <= STEP_ENTER:
                run[POSITION] = len(atoms)
        start = n
        n = emit(nodes, query, steps, walking, state, out, n, (end, most))
        if run[ROWS] > limit and limit != _NOTHING_EMITTED:
            n, run[POSITION] = start, len(atoms)
            write_line(emitted.lines, lines, change, sign, n, n, 1)
            lines += 1
        elif n > start:
            write_line(emitted.lines, lines, change, sign, start, n, 0)
            lines += 1
        if run[POSITION] == len(atoms):
            run[AT], run[POSITION] = end, _NOTHING_WRITTEN
    return lines


class Emission(NamedTuple):
    """The rows, int32[atoms, n], that a change adds or removes; or too many, and none here."""

    change: int
    inserted: bool
    rows: np.ndarray
    too_large: bool


class Runs:
    """Runs of one AND. `bases`: for each set of entries its trees, and which columns each takes; `base_of`: the base of each atom;
    `capacity`: rows, and changes, of a call; `budget`: steps of its readings. Results do not depend on the last two."""

    def __init__(
        self,
        join: And,
        bases: Sequence[Sequence[tuple[int, Sequence[int]]]],
        base_of: Sequence[int],
        capacity: int = _CAPACITY,
        budget: int = _BUDGET,
    ) -> None:
        self._trees, self._budget = join.trees, budget
        ends = np.cumsum([0, *map(len, bases)])
        positions = np.column_stack((ends[:-1], ends[1:]))
        trees = np.zeros((ends[-1], TAKES + MOST_ARITY + 1), np.int64)
        for row, (tree, columns) in zip(trees, [one for own in bases for one in own], strict=True):
            row[: TAKES + len(columns)] = tree, len(columns), *columns
        plans = [join.plan_of(position) for position in range(len(base_of))]
        ends = np.cumsum([0, *(len(plan.words) for plan in plans)])
        words = np.concatenate([plan.words for plan in plans])
        atoms = np.zeros((len(base_of), ATOM_WORDS), np.int64)
        for position, (row, plan) in enumerate(zip(atoms, plans, strict=True)):
            variables = join.variables_of(position)
            row[BASE], row[PLAN], row[PLAN + 1], row[WIDTH] = base_of[position], ends[position], ends[position + 1], len(variables) + 1
            row[OTHERS : OTHERS + len(plan.trees)] = [other << _POSITION_SHIFT | tree for other, tree in plan.trees]
            row[COLUMNS : COLUMNS + len(variables)] = variables
        others = len(base_of) - 1
        self._query = Query(trees, positions, atoms)
        roots, items = np.zeros(ROOT_WORDS * max(1, others), np.int64), np.zeros(1 + join.dimension, np.int64)
        leaves, reading = np.zeros(max(1, others) * LINE, np.int32), np.zeros(state_words(max(1, others)), np.int64)
        self._walking = QdagWalk(words, roots, items, leaves, reading)
        versions = np.zeros((2, ROOT_WORDS * len(join.trees.shapes)), np.int64)
        self._state = State(np.zeros(RUN_WORDS, np.int64), versions, np.zeros(MOST_ARITY + 1, np.int32))
        self._emitted = Lines(np.zeros((capacity, LINE_WORDS), np.int64), np.zeros((len(base_of), capacity), np.int32))

    def follow(self, version: int, steps: np.ndarray, entries: np.ndarray, limit: int | None) -> Iterator[Emission]:
        """Apply int64[n, 4] steps over int32 entries of their bases, each kind of a change as one more version after `version`, and yield
        what they did. `limit`: of rows; None: report nothing. Call `QuadTrees.require` first. Raises KeyError if some deleted entries were
        not there; TypeError or ValueError, with nothing done, if the steps or their entries are invalid."""
        contiguous((np.int64, np.int32), (steps, entries))
        bases = len(self._query.bases)
        if len(steps) and (steps.shape[1:] != (STEP_WORDS,) or not 0 <= steps[:, OF_BASE].min() <= steps[:, OF_BASE].max() < bases):
            raise ValueError(f"steps have {STEP_WORDS} words, and one of {bases} bases")
        self._trees.arena.C[VERSION] = version
        for base, (first, end) in enumerate(self._query.bases.tolist()):
            own = steps[steps[:, OF_BASE] == base]
            inserted = (own[:, SIGN] == STEP_ENTER) | (own[:, SIGN] == STEP_INSERT)
            for tree, width, *columns in self._query.trees[first:end].tolist():
                self._trees.expect(tree, entries[own[:, ENTRY, None] + np.array(columns[:width])], inserted)
        run, emitted = self._state.run, self._emitted
        run[:] = 0, _NOTHING_WRITTEN, 0, 0, _NOTHING_EMITTED if limit is None else limit, self._budget
        while run[AT] < len(steps):
            lines = compiled(follow)(*self._trees.arrays, self._query, Steps(steps, entries), self._walking, self._state, emitted)
            for change, sign, first, end, too_large in emitted.lines[:lines].tolist():
                yield Emission(change, sign == STEP_INSERT, emitted.out[:, first:end].copy(), bool(too_large))
        self._trees.settle_missing()

    @property
    def steps(self) -> int:
        """As `Cursor.steps`, for all readings so far."""
        return int(self._walking.state[STEPS])

"""UNION and EXCEPT over quadtrees: a union of natural joins, each without the tuples that groups have (`structures.qdag.union`).

A row is a tuple of values, represented by rows of the branch that reports it: slots of its aliases, -1 for the others. So the insert or
delete of a relation's row matters if a tuple is inserted or deleted with it. A batch is written in one step: it deletes what a branch had
before and no branch has after, among the tuples that agree with a changed one of its atoms; inserts are found the other way round. A tuple
that several changed ones report is reported by the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import kept
from service.planning.hypergraph import Hypergraph
from service.planning.quadtree_shapes import Shapes
from service.tables.resolution import Slots
from service.tables.sides import Side
from service.tables.store import pieces
from service.views.deltas import Combination, Sink, tell
from service.views.joins.protocol import Bounds
from service.views.joins.qdag_trees import Entries, Keys
from service.views.joins.quadtree_join import CHUNK, QdagRoot, QuadtreeJoin
from service.views.joins.slots_cursor import SlotsCursor
from service.views.shown import Shown
from structures.qdag.union import Branch, Cursor, Or
from structures.quadtree.trees import Root, in_order

_FIRST = 1 << 8  # rows of the first step of a delta
Roots = tuple[Root, ...]


class UnionJoin(QuadtreeJoin):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, sides: Sequence[Side], graph: Hypergraph, shapes: Shapes, never: bool) -> None:
        super().__init__(sides, graph, shapes, never)
        self._shown = [self.keys[shapes.domains[variable]] for variable in range(graph.dimension)], graph.shown
        made = [self._atom(place) for place in range(len(graph.atoms))]
        # For each branch the places of its atoms: its own, and then those of its groups.
        self._places = [(*own, *(place for number in groups for place in graph.absent[number])) for own, groups in graph.families]
        self._own = [len(own) for own, _ in graph.families]
        absent = [[made[place] for place in group] for group in graph.absent]
        branches = [Branch([made[place] for place in own], [absent[number] for number in groups]) for own, groups in graph.families]
        self._or = Or(self.trees, graph.dimension, branches)

    def _change(self, gone: Mapping[int, Entries], come: Mapping[int, Entries], sink: Sink | None, offset: int) -> None:
        if not gone and not come:
            return
        before = self.trees.roots
        self._tick += 1
        for entries, comes in ((gone, False), (come, True)):
            for number, some in entries.items():
                self._write(number, in_order(some), comes)
        if sink is None:
            return
        after = self.trees.roots
        lost = {number: self._tuples(number, some, after)[:, :-1] for number, some in gone.items()}
        won = {number: self._tuples(number, some, before)[:, :-1] for number, some in come.items()}
        if self._tell(lost, won, (before, after), sink, offset, False):
            self._tell(won, lost, (after, before), sink, offset, True)

    def _tell(
        self, changed: Mapping[int, Entries], others: Mapping[int, Entries], roots: tuple[Roots, Roots], sink: Sink, offset: int, come: bool
    ) -> bool:
        """Report the rows of one version that the other one lacks, by the tuples of each base that only this one has, and those that only
        the other one has; return whether more are wanted."""
        for branch, places in enumerate(self._places):
            told: list[_Told] = []
            for at, place in enumerate(places):
                tuples = (changed if at < self._own[branch] else others).get(self._base_of[place])
                if tuples is None or not len(tuples):
                    continue
                cursor = self._or.changes(branch, at, tuples, *roots)
                if not self._tell_all(cursor, told, sink, offset, come):
                    return False
                told.append(_Told(self._variables[place], tuples))
        return True

    def _tell_all(self, cursor: Cursor, told: Sequence[_Told], sink: Sink, offset: int, come: bool) -> bool:
        """Report rows of a delta, except those already reported."""
        wanted, limit, lines = True, _FIRST, self._or.lines
        while wanted and not cursor.done:
            rows = cursor.fill(limit)
            limit = min(4 * limit, CHUNK)
            for before in told if rows.shape[1] else ():
                rows = rows[:, ~before.has(rows[lines:])]
            wanted = tell(sink, offset, come, tuple(rows[:lines]))
        self._told_steps += cursor.steps
        return wanted

    def rows(self, root: QdagRoot, window: Bounds | None) -> SlotsCursor:
        return _Rows(self._or.rows(root.roots), self._or.lines)

    def partners(self, root: QdagRoot, place: int, slots: Slots, window: Bounds | None) -> SlotsCursor:
        raise TypeError("a row of UNION or EXCEPT is its values: it has no parts that could be looked up")

    def of_key(self, root: QdagRoot, place: int, key: pa.RecordBatch, window: Bounds | None) -> SlotsCursor:
        """Read the row with these values, in the order of the view's columns."""
        codes = []
        for keys, shown in zip(*self._shown, strict=True):
            codes.append(int(keys.domain.look_up(keys.keyed([key.column(at) for at in shown]))[0]))
        known = all(code >= 0 for code in codes)
        return _Rows(self._or.rows(root.roots, codes) if known else Cursor(self._or, []), self._or.lines)

    def is_empty(self, root: QdagRoot) -> bool | None:
        return True if all(self._or.is_empty(branch, root.roots) for branch in range(len(self._places))) else None


def rows_apart(gone: Combination, come: Combination, shown: Shown) -> tuple[Combination, Combination]:
    """Drop the rows that are in both. Cost: a gather, and O(1) expected a row."""
    both = tuple(map(np.concatenate, zip(gone, come, strict=True)))
    keys, codes = None, np.empty(len(both[0]), np.int32)
    for part in pieces(shown.text_bytes(both)):
        columns = [kept(column) for column in shown.rows(tuple(slots[part] for slots in both)).columns]
        keys = keys or Keys.of_types([column.type for column in columns], [True] * len(columns))
        codes[part] = keys.domain.acquire(keys.keyed(columns))
    before, after = np.split(codes, [len(gone[0])])
    return tuple(part[~np.isin(before, after)] for part in gone), tuple(part[~np.isin(after, before)] for part in come)


class _Rows(SlotsCursor):
    """A cursor without the codes of the values."""

    def __init__(self, cursor: Cursor, lines: int) -> None:
        super().__init__(cursor)
        self._lines = lines

    def fill(self, limit: int) -> Combination:
        return super().fill(limit)[: self._lines]


class _Told:
    """Tuples of some variables, all of whose rows have been reported. They are looked up column by column: a code (below 2**30) and the
    place of the preceding prefix fit into one word."""

    def __init__(self, variables: Sequence[int], tuples: Entries) -> None:
        self._variables, self._tuples = variables, tuples

    @cached_property
    def _known(self) -> list[npt.NDArray[np.int64]]:
        """Built on demand: for a single change it is rarely needed."""
        found, places = list[npt.NDArray[np.int64]](), np.zeros(len(self._tuples), np.int64)
        for column in self._tuples.T:
            known, places = np.unique(places << 30 | column, return_inverse=True)
            found.append(known)
        return found

    def has(self, values: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """bool[n], for rows int32[d, n]. Cost: O(log) of the tuples per row."""
        has, places = np.ones(values.shape[1], np.bool_), np.zeros(values.shape[1], np.int64)
        for variable, known in zip(self._variables, self._known, strict=True):
            wanted = places << 30 | values[variable]
            places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            has &= known[places] == wanted
        return has

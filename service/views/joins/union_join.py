"""UNION and EXCEPT over quadtrees: a union of natural joins, each without the tuples that groups have (`structures.qdag.union`).

A row is a tuple of values, represented by rows of the branch that reports it: slots of its aliases, -1 for the others. So the insert or
delete of a relation's row matters if a tuple is inserted or deleted with it. A batch is written in one step: it deletes what a branch had
before and no branch has after, among the tuples that agree with a changed one of its atoms; inserts are found the other way round. A tuple
that several changed ones report is reported by the first of them.

UNION ALL has no such structures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import kept
from service.planning.hypergraph import Hypergraph
from service.planning.quadtree_shapes import Shapes
from service.tables.changes import Runs
from service.tables.inputs import Input
from service.tables.resolution import Slots
from service.tables.store import pieces
from service.views.deltas import Combination, Sink, emit
from service.views.joins.outer_cursor import CursorChain, PartSink, ShownCursor
from service.views.joins.product_join import Factor, SeparateJoins
from service.views.joins.protocol import Bounds, Enumeration
from service.views.joins.qdag_trees import Entries, Keys
from service.views.joins.quadtree_join import CHUNK, QdagRoot, QuadtreeJoin
from service.views.joins.slots_cursor import SlotsCursor
from service.views.shown import ShownColumns
from structures.qdag.union import Branch, Or, QdagUnionCursor
from structures.quadtree.trees import QuadtreeRoot, in_order

_FIRST = 1 << 8  # rows of the first step of a delta
Roots = tuple[QuadtreeRoot, ...]


class UnionJoin(QuadtreeJoin):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, inputs: Sequence[Input], graph: Hypergraph, shapes: Shapes, never: bool) -> None:
        super().__init__(inputs, graph, shapes, never)
        self._shown = [self.keys[shapes.domains[variable]] for variable in range(graph.dimension)], graph.shown
        made = [self._atom(position) for position in range(len(graph.atoms))]
        # For each branch the places of its atoms: its own, and then those of its groups.
        self._positions = [(*own, *(position for index in groups for position in graph.absent[index])) for own, groups in graph.families]
        self._own = [len(own) for own, _ in graph.families]
        absent = [[made[position] for position in group] for group in graph.absent]
        branches = [Branch([made[position] for position in own], [absent[index] for index in groups]) for own, groups in graph.families]
        self._or = Or(self.trees, graph.dimension, branches)

    def _change(self, deleted: Mapping[int, Entries], inserted: Mapping[int, Entries], sink: Sink | None, offset: int) -> None:
        if not deleted and not inserted:
            return
        before = self.trees.roots
        self._tick += 1
        for entries, is_inserted in ((deleted, False), (inserted, True)):
            for index, some in entries.items():
                self._write(index, in_order(some), is_inserted)
        if sink is None:
            return
        after = self.trees.roots
        lost = {index: self._tuples(index, some, after)[:, :-1] for index, some in deleted.items()}
        won = {index: self._tuples(index, some, before)[:, :-1] for index, some in inserted.items()}
        if self._emit(lost, won, (before, after), sink, offset, False):
            self._emit(won, lost, (after, before), sink, offset, True)

    def _emit(
        self,
        changed: Mapping[int, Entries],
        others: Mapping[int, Entries],
        roots: tuple[Roots, Roots],
        sink: Sink,
        offset: int,
        inserted: bool,
    ) -> bool:
        """Report the rows of one version that the other one lacks, by the tuples of each base that only this one has, and those that only
        the other one has; return whether more are wanted."""
        for branch, positions in enumerate(self._positions):
            emitted: list[_EmittedTuples] = []
            for at, position in enumerate(positions):
                tuples = (changed if at < self._own[branch] else others).get(self._base_of[position])
                if tuples is None or not len(tuples):
                    continue
                cursor = self._or.changes(branch, at, tuples, *roots)
                if not self._emit_all(cursor, emitted, sink, offset, inserted):
                    return False
                emitted.append(_EmittedTuples(self._variables[position], tuples))
        return True

    def _emit_all(self, cursor: QdagUnionCursor, emitted: Sequence[_EmittedTuples], sink: Sink, offset: int, inserted: bool) -> bool:
        """Report rows of a delta, except those already reported."""
        wanted, limit, lines = True, _FIRST, self._or.lines
        while wanted and not cursor.done:
            rows = cursor.fill(limit)
            limit = min(4 * limit, CHUNK)
            for before in emitted if rows.shape[1] else ():
                rows = rows[:, ~before.has(rows[lines:])]
            wanted = emit(sink, offset, inserted, tuple(rows[:lines]))
        self._emitted_steps += cursor.steps
        return wanted

    def _read(self, cursor: QdagUnionCursor) -> SlotsCursor:
        """Read rows without the codes of their values."""
        return SlotsCursor(cursor, lambda rows: tuple(rows[: self._or.lines]))

    def rows(self, root: QdagRoot, window: Bounds | None) -> SlotsCursor:
        return self._read(self._or.rows(root.roots))

    def partners(self, root: QdagRoot, position: int, slots: Slots, window: Bounds | None) -> SlotsCursor:
        raise TypeError("a row of UNION or EXCEPT is its values: it has no parts that could be looked up")

    def of_key(self, root: QdagRoot, position: int, key: pa.RecordBatch, window: Bounds | None) -> SlotsCursor:
        """Read the row with these values, in the order of the view's columns."""
        codes = []
        for keys, shown in zip(*self._shown, strict=True):
            codes.append(int(keys.domain.look_up(keys.keyed([key.column(at) for at in shown]))[0]))
        known = all(code >= 0 for code in codes)
        return self._read(self._or.rows(root.roots, codes) if known else QdagUnionCursor(self._or, []))

    def is_empty(self, root: QdagRoot) -> bool | None:
        return True if all(self._or.is_empty(branch, root.roots) for branch in range(len(self._positions))) else None


class UnionAllJoin(SeparateJoins):
    """UNION ALL: the rows of separate joins side by side. A row has the slots of one SELECT's aliases, and -1 for all others. Costs: those
    of the joins."""

    def __init__(self, factors: Sequence[Factor]) -> None:
        super().__init__(factors)
        self._aliases = sum(len(factor.positions) for factor in factors)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        for factor in self.factors:
            if any(input.relation.name in runs for input in factor.inputs):
                factor.join.apply(version, runs, None if sink is None else PartSink(sink, factor.positions, self._aliases))

    def rows(self, root: tuple[Any, ...], window: Bounds | None) -> Enumeration:
        parts = list(zip(self.factors, root, strict=True))
        return CursorChain([partial(self._rows_of, factor, its) for factor, its in parts], self._aliases)

    def _rows_of(self, factor: Factor, root: Any) -> Enumeration:
        return self._shown(factor, factor.join.rows(root, None))

    def partners(self, root: tuple[Any, ...], position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        index, factor = self.of_alias(position)
        return self._shown(factor, factor.join.partners(root[index], factor.positions.index(position), slots, None))

    def of_key(self, root: tuple[Any, ...], position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        index, factor = self.of_alias(position)
        return self._shown(factor, factor.join.of_key(root[index], factor.positions.index(position), key, None))

    def _shown(self, factor: Factor, cursor: Enumeration) -> Enumeration:
        return ShownCursor(cursor, factor.positions, self._aliases, ())

    def is_empty(self, root: tuple[Any, ...]) -> bool | None:
        known = {factor.join.is_empty(its) for factor, its in zip(self.factors, root, strict=True)}
        return False if False in known else None if None in known else True


def rows_apart(deleted: Combination, inserted: Combination, shown: ShownColumns) -> tuple[Combination, Combination]:
    """Drop the rows that are in both. Cost: a gather, and O(1) expected a row."""
    both = tuple(map(np.concatenate, zip(deleted, inserted, strict=True)))
    keys, codes = None, np.empty(len(both[0]), np.int32)
    for part in pieces(shown.text_bytes(both)):
        columns = [kept(column) for column in shown.rows(tuple(slots[part] for slots in both)).columns]
        keys = keys or Keys.of_types([column.type for column in columns], [True] * len(columns))
        codes[part] = keys.domain.acquire(keys.keyed(columns))
    before, after = np.split(codes, [len(deleted[0])])
    return tuple(part[~np.isin(before, after)] for part in deleted), tuple(part[~np.isin(after, before)] for part in inserted)


class _EmittedTuples:
    """Tuples of some variables, all of whose rows have been reported. They are looked up column by column: a code (below 2**30) and the
    place of the preceding prefix fit into one word."""

    def __init__(self, variables: Sequence[int], tuples: Entries) -> None:
        self._variables, self._tuples = variables, tuples

    @cached_property
    def _known(self) -> list[npt.NDArray[np.int64]]:
        """Built on demand: for a single change it is rarely needed."""
        found, positions = list[npt.NDArray[np.int64]](), np.zeros(len(self._tuples), np.int64)
        for column in self._tuples.T:
            known, positions = np.unique(positions << 30 | column, return_inverse=True)
            found.append(known)
        return found

    def has(self, values: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """bool[n], for rows int32[d, n]. Cost: O(log) of the tuples per row."""
        has, positions = np.ones(values.shape[1], np.bool_), np.zeros(values.shape[1], np.int64)
        for variable, known in zip(self._variables, self._known, strict=True):
            wanted = positions << 30 | values[variable]
            positions = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            has &= known[positions] == wanted
        return has

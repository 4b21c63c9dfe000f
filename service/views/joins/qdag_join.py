"""A natural join over quadtrees, read as qdags (`structures.qdag.qdag`).

A changed row gives its variables values; its rows are the AND of the other atoms with these values. A batch has three steps, each at a tick
of its own, so that the roots before and after each stay intact: rows that only move, deletes, inserts. Of the deletes, and then of the
inserts, alias i is joined with the aliases before it as they are after the step, and with those behind it as they were before: so
each row of the delta is reported by exactly one alias.

NOT EXISTS groups work the other way round: inserts into their relations delete rows. So deletes go with the inserts of the groups'
relations in one step, which only deletes rows, and the rest in the next one. An atom of a group changes when a tuple is inserted or
deleted, whatever rows have it; the rows of a changed tuple are those that only its group excludes. A relation that is both in a group and
outside has trees for each. With groups of several atoms a row may be deleted and inserted again within a batch: netting removes both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from service.planning.hypergraph import Hypergraph
from service.planning.quadtree_shapes import Shapes
from service.tables.changes import Runs, versions_of
from service.tables.inputs import Input
from service.tables.resolution import Slots
from service.views.deltas import Sink, emit
from service.views.joins.protocol import Bounds
from service.views.joins.qdag_trees import Entries, RunSteps
from service.views.joins.quadtree_join import CHUNK, QdagRoot, QuadtreeJoin
from service.views.joins.slots_cursor import SlotsCursor
from structures.qdag.qdag import And, QdagCursor
from structures.qdag.run import Runs as QdagRuns
from structures.quadtree.trees import QuadtreeRoot, in_order

_FIRST = 1 << 8  # rows of the first step of a delta


class QdagJoin(QuadtreeJoin):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, inputs: Sequence[Input], graph: Hypergraph, shapes: Shapes, never: bool) -> None:
        super().__init__(inputs, graph, shapes, never)
        grouped = {position for group in graph.absent for position in group}
        self._absent = {shapes.bases[position] for position in grouped}
        self._joined = [tree for base, tree in enumerate(self._plain) if base not in self._absent]
        made = [self._atom(position) for position in range(len(graph.atoms))]
        groups = [[made[position] for position in group] for group in graph.absent]
        self._and = And(self.trees, graph.dimension, made[: len(made) - len(grouped)], groups)
        self._runs = None if grouped else QdagRuns(self._and, self._trees, shapes.bases)

    @property
    def update_steps(self) -> int:
        return self._emitted_steps + (self._runs.steps if self._runs is not None else 0)

    def _change(self, deleted: Mapping[int, Entries], inserted: Mapping[int, Entries], sink: Sink | None, offset: int) -> None:
        for come_back in (False, True):
            changed = {index: entries for index, entries in inserted.items() if (index in self._absent) != come_back}
            changed |= {index: entries for index, entries in deleted.items() if (index in self._absent) == come_back}
            sink = self._step(changed, come_back, sink, offset)

    def _follow(self, version: int, runs: Runs, sink: Sink | None) -> dict[int, Entries]:
        if self._runs is None or versions_of(runs) == 1:
            return super()._follow(version, runs, sink)
        run = RunSteps()
        parts = self._parted(runs, sink is not None)
        deleted = {index: run.add(index, self._bases[index], part, version) for index, part in parts.items()}
        steps, entries = run.in_order()
        if len(steps):
            for emitted in self._runs.follow(self._tick, steps, entries, None if sink is None else sink.limit):
                if sink is None:
                    continue
                if emitted.too_large:
                    sink.exceeded(emitted.change)
                else:
                    emit(sink, emitted.change, emitted.inserted, tuple(emitted.rows))
            self._tick = self.trees.version
        return deleted

    def _step(self, changed: Mapping[int, Entries], inserted: bool, sink: Sink | None, offset: int) -> Sink | None:
        """Make all changes that insert rows of the view, or all that delete rows; return the sink, or None once it wants no more."""
        changed = {index: in_order(entries) for index, entries in changed.items() if len(entries)}
        if not changed:
            return sink
        self._tick += 1
        before = self.trees.roots
        for index, entries in changed.items():
            self._write(index, entries, inserted != (index in self._absent))
        after = self.trees.roots
        if sink is None:
            return None
        for index in self._absent.intersection(changed):
            changed[index] = self._tuples(index, changed[index], after if inserted else before)
        for position, index in enumerate(self._base_of):
            if index in changed:
                versions = [after if other < position else before for other in range(len(self.inputs))]
                if not self._emit(self._and.partners(versions, position, changed[index]), inserted, sink, offset):
                    return None
        return sink

    def _emit(self, cursor: QdagCursor, inserted: bool, sink: Sink, offset: int) -> bool:
        wanted, limit = True, _FIRST
        while wanted and not cursor.done:
            rows = cursor.fill(limit)
            limit = min(4 * limit, CHUNK)
            wanted = emit(sink, offset, inserted, tuple(rows))
        self._emitted_steps += cursor.steps
        return wanted

    def rows(self, root: QdagRoot, window: Bounds | None) -> SlotsCursor:
        return SlotsCursor(self._nothing(root) if self.never else self._and.rows(self._versions(root)))

    def partners(self, root: QdagRoot, position: int, slots: Slots, window: Bounds | None) -> SlotsCursor:
        if self.never or len(slots) == 0:
            return SlotsCursor(self._nothing(root))
        entries, _ = self._bases[self._base_of[position]].entries(slots, root.version, False)
        return SlotsCursor(self._and.partners(self._versions(root), position, entries))

    def of_key(self, root: QdagRoot, position: int, key: pa.RecordBatch, window: Bounds | None) -> SlotsCursor:
        codes = self._bases[self._base_of[position]].code_of(key)
        if self.never or codes is None:
            return SlotsCursor(self._nothing(root))
        values = [-1] * self._and.dimension
        for variable, code in zip(self._variables[position], codes, strict=True):
            values[variable] = code
        return SlotsCursor(self._and.rows(self._versions(root), values))

    def _versions(self, root: QdagRoot) -> list[tuple[QuadtreeRoot, ...]]:
        return [root.roots] * len(self.inputs)

    def _nothing(self, root: QdagRoot) -> QdagCursor:
        return self._and.partners(self._versions(root), 0, np.empty((0, len(self._variables[0]) + 1), np.int32))

    def is_empty(self, root: QdagRoot) -> bool | None:
        return True if self.never or any(root.roots[tree].count == 0 for tree in self._joined) else None

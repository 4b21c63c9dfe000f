"""A natural join over quadtrees, read as qdags (`structures.qdag.qdag`); `qdag_trees` says which trees.

A changed row gives its variables values; its rows are the AND of the other atoms with these values. A batch has three steps, each of a
tick of its own, so that the roots before and after each stay whole: rows that only move, deletes, inserts. Of the deletes, and then of the
inserts, alias number i is joined with the aliases before it as they are after the step, and with those behind it as they were before: so
each row of the delta is told by exactly one alias.

NOT EXISTS groups turn this around: what comes into their relations takes rows away. So deletes go with the inserts of the groups' relations
in one step, which only takes rows away, and the rest in the next one. An atom of a group changes when a tuple comes or goes, whatever the
rows that have it; the rows of a changed tuple are those that its group alone leaves out. A relation that stands both in a group and outside
has trees for either. With groups of several atoms a row may go and come back within a batch: `views.deltas.cancel` takes both out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from service.planning.hypergraph import Hypergraph
from service.planning.quadtree_shapes import Shapes
from service.tables.changes import Part, Parted, Runs, parted, versions_of
from service.tables.resolution import Resolved, Slots
from service.tables.sides import Side
from service.tables.store import Domain, Numbers
from service.views.deltas import Sink
from service.views.joins.protocol import Bounds
from service.views.joins.qdag_trees import Base, Entries, RunSteps
from service.views.joins.slots_cursor import SlotsCursor
from structures.core.ticks import Ticks
from structures.qdag.qdag import And, Atom, Cursor
from structures.qdag.run import Runs as QdagRuns
from structures.quadtree.trees import QuadTrees, Root, in_order

_CHUNK = 1 << 16  # rows in a step of building, or of a delta
_FIRST = 1 << 8  # rows of the first step of a delta
_STEPS = 3  # ticks of a batch


class QdagRoot(NamedTuple):
    """One version: of the relations, and of each tree."""

    version: int
    roots: tuple[Root, ...]


class QdagJoin:
    """See the module's head; what the methods do is said in `protocol`."""

    def __init__(self, sides: Sequence[Side], graph: Hypergraph, shapes: Shapes, never: bool) -> None:
        """`sides`: also of the groups' aliases, in the order of the atoms."""
        self.sides, self.never = list(sides), never
        self._base_of, self._orders = shapes.bases, shapes.orders
        atoms = graph.atoms
        self.domains: dict[int, Domain] = {}
        for side, atom in zip(sides, atoms, strict=True):
            types = side.relation.schema
            for one in atom:
                if shapes.domains[one.variable] not in self.domains:
                    self.domains[shapes.domains[one.variable]] = Domain([types.field(name).type for name in one.columns])
        of_variable = [self.domains[number] for number in shapes.domains]
        firsts = [shapes.bases.index(base) for base in range(max(shapes.bases) + 1)]
        shifted = {v for v, number in enumerate(shapes.domains) if number in {shapes.domains[lone] for lone in graph.lone}}
        grouped = {place for group in graph.absent for place in group}
        self._absent = {shapes.bases[place] for place in grouped}
        self._bases = [
            Base(sides[place], atoms[place], of_variable, frozenset() if place in grouped else graph.lone, shifted) for place in firsts
        ]
        # Of each base, its trees: number, and which columns of its entries they take.
        self._trees: list[list[tuple[int, list[int]]]] = [[] for _ in self._bases]
        for number, (base, first, rest) in enumerate(self._orders):
            self._trees[base].append((number, [*first, *rest, len(first) + len(rest)]))
        self._plain = [own[0][0] for own in self._trees]
        self._joined = [tree for base, tree in enumerate(self._plain) if base not in self._absent]
        self.trees = QuadTrees([(len(first) + len(rest), len(first)) for _, first, rest in self._orders])
        self._variables = [[one.variable for one in atom] for atom in atoms]
        made = [self._atom(place) for place in range(len(atoms))]
        groups = [[made[place] for place in group] for group in graph.absent]
        self._and = And(self.trees, graph.dimension, made[: len(atoms) - len(grouped)], groups)
        self._new_tuples = {base: self._tuples_of(base) for base in self._absent}
        self._runs = None if grouped else QdagRuns(self._and, self._trees, shapes.bases)
        self._told_steps = 0
        self._version = self._tick = 0
        self._ticks = Ticks()

    def _atom(self, place: int) -> Atom:
        variables = self._variables[place]
        own = {}
        for number, (base, first, rest) in enumerate(self._orders):
            if base == self._base_of[place]:
                own[frozenset(variables[j] for j in first)] = number, tuple(variables[j] for j in (*first, *rest))
        return Atom(frozenset(variables), own)

    def _tuples_of(self, base: int) -> And:
        """Of given entries of a base, the first atom, it tells those whose tuple the trees do not have."""
        tree = self._plain[base]
        order = tuple(range(self.trees.shapes[tree][0]))
        one = Atom(frozenset(order), {frozenset(): (tree, order)})
        return And(self.trees, len(order), [one], [[one]])

    @property
    def update_steps(self) -> int:
        return self._told_steps + (self._runs.steps if self._runs is not None else 0)

    @property
    def root(self) -> QdagRoot:
        return QdagRoot(self._version, self.trees.roots)

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log l), l the number of codes."""
        self._begin(version)
        for number, base in enumerate([] if self.never else self._bases):
            parts, start = [], 0
            while start >= 0:
                slots, start = base.side.relation.table.scan(version, start, _CHUNK)
                parts.append(base.entries(slots, version, True)[0])
            entries = np.concatenate(parts)
            for tree, columns in self._trees[number]:
                self.trees.bulk_load(self._tick, tree, entries[:, columns])
            progress((number + 1) / len(self._bases))
        self._end()

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        changes = 0
        for base, own in zip(self._bases, self._trees, strict=True):
            one = resolved.get(base.side.relation.name)
            if one is not None:
                changes += len(own) * (len(one.deletes) + one.inserts.num_rows)
                for domain in base.domains:
                    domain.require(one.inserts.num_rows, one.inserts.bytes)
        if changes:
            self.trees.require(changes, _STEPS)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        if self.never:
            self._version = version
            return
        self._begin(version)
        parts: dict[int, Parted] = {}
        for number, base in enumerate(self._bases):
            run = runs.get(base.side.relation.name)
            if run is not None:
                parts[number] = parted(base.side, run, sink is not None)
        if versions_of(runs) == 1:
            gone = self._apply_batch(version, parts, sink, 0)
        else:
            gone = self._apply_each(version, parts, sink) if self._runs is None else self._apply_run(self._runs, version, parts, sink)
        for number, entries in gone.items():
            self._bases[number].release(entries, version)
        self.trees.merge(self._tick)
        self._end()

    def _apply_batch(self, version: int, parts: Mapping[int, Parted], sink: Sink | None, offset: int) -> dict[int, Entries]:
        """Apply the changes of version number `offset`; gives the entries that go, by base."""
        gone: dict[int, Entries] = {}
        come: dict[int, Entries] = {}
        for number, part in parts.items():
            base = self._bases[number]
            if len(part.moved.new):
                self._move(number, part.moved.old, part.moved.new)
            if len(part.gone.old):
                gone[number] = base.entries(part.gone.old, version, False)[0]
            if len(part.come.new):
                come[number] = base.entries(part.come.new, version, True)[0]
        for come_back in (False, True):
            changed = {number: entries for number, entries in come.items() if (number in self._absent) != come_back}
            changed |= {number: entries for number, entries in gone.items() if (number in self._absent) == come_back}
            sink = self._step(changed, come_back, sink, offset)
        return gone

    def _apply_each(self, version: int, parts: Mapping[int, Parted], sink: Sink | None) -> dict[int, Entries]:
        """The same for the changes of several versions, one after another."""
        gone: dict[int, list[Entries]] = {}
        for offset in sorted({offset for one in parts.values() for part in one for offset in part.offsets.tolist()}):
            own = {number: Parted(*(_of_version(part, offset) for part in one)) for number, one in parts.items()}
            for number, entries in self._apply_batch(version, own, sink, offset).items():
                gone.setdefault(number, []).append(entries)
        return {number: np.concatenate(entries) for number, entries in gone.items()}

    def _apply_run(self, runs: QdagRuns, version: int, parts: Mapping[int, Parted], sink: Sink | None) -> dict[int, Entries]:
        """The same in one call."""
        run = RunSteps()
        gone = {number: run.add(number, self._bases[number], part, version) for number, part in parts.items()}
        steps, entries = run.in_order()
        if len(steps):
            for told in runs.follow(self._tick, steps, entries, None if sink is None else sink.limit):
                if sink is None:
                    continue
                if told.too_large:
                    sink.exceeded(told.change)
                else:
                    sink(told.change, told.inserted, tuple(told.rows))
            self._tick = self.trees.version
        return gone

    def _begin(self, version: int) -> None:
        self._version = version
        self._tick += 1

    def _end(self) -> None:
        self._ticks.end(self._version, self._tick)

    def _move(self, number: int, before: Slots, after: Slots) -> None:
        """Rows that keep all that the view uses, from slot to slot."""
        new, indices = self._bases[number].entries(after, self._version, False)
        old = new.copy()
        old[:, -1] = before[indices]
        self._write(number, old, False)
        self._write(number, new, True)

    def _write(self, number: int, entries: Entries, come: bool) -> None:
        write = self.trees.insert if come else self.trees.delete
        for tree, columns in self._trees[number]:
            write(self._tick, tree, entries[:, columns])

    def _step(self, changed: Mapping[int, Entries], come: bool, sink: Sink | None, offset: int) -> Sink | None:
        """All changes by which rows of the view come, or all by which rows go; the sink, or None once it wants no more."""
        changed = {number: in_order(entries) for number, entries in changed.items() if len(entries)}
        if not changed:
            return sink
        self._tick += 1
        before = self.trees.roots
        for number, entries in changed.items():
            self._write(number, entries, come != (number in self._absent))
        after = self.trees.roots
        if sink is None:
            return None
        for number in self._absent.intersection(changed):
            changed[number] = self._tuples(number, changed[number], after if come else before)
        for place, number in enumerate(self._base_of):
            if number in changed:
                versions = [after if other < place else before for other in range(len(self.sides))]
                if not self._tell(self._and.partners(versions, place, changed[number]), come, sink, offset):
                    return None
        return sink

    def _tuples(self, number: int, entries: Entries, roots: tuple[Root, ...]) -> Entries:
        """The tuples of these entries of a group's base that the trees do not have at these roots, each once."""
        tuples = np.unique(entries[:, :-1], axis=0)
        tuples = np.column_stack((tuples, np.arange(len(tuples), dtype=np.int32)))
        cursor, found = self._new_tuples[number].partners([roots, roots], 0, tuples), [np.empty(0, np.int32)]
        while not cursor.done:
            found.append(cursor.fill(_CHUNK)[0])
        self._told_steps += cursor.steps
        return in_order(tuples[np.concatenate(found)])

    def _tell(self, cursor: Cursor, come: bool, sink: Sink, offset: int) -> bool:
        wanted, limit = True, _FIRST
        while wanted and not cursor.done:
            rows = cursor.fill(limit)
            limit = min(4 * limit, _CHUNK)
            wanted = rows.shape[1] == 0 or sink(offset, come, tuple(rows))
        self._told_steps += cursor.steps
        return wanted

    def reclaim(self, oldest_needed: int, pins: Numbers) -> None:
        self.trees.reclaim(*self._ticks.keep(oldest_needed, pins))
        for domain in self.domains.values():
            domain.reclaim(oldest_needed, pins)

    def rows(self, root: QdagRoot, window: Bounds | None) -> SlotsCursor:
        return SlotsCursor(self._nothing(root) if self.never else self._and.rows(self._versions(root)))

    def partners(self, root: QdagRoot, place: int, slots: Slots, window: Bounds | None) -> SlotsCursor:
        if self.never or len(slots) == 0:
            return SlotsCursor(self._nothing(root))
        entries, _ = self._bases[self._base_of[place]].entries(slots, root.version, False)
        return SlotsCursor(self._and.partners(self._versions(root), place, entries))

    def of_key(self, root: QdagRoot, place: int, key: pa.RecordBatch, window: Bounds | None) -> SlotsCursor:
        codes = self._bases[self._base_of[place]].code_of(key)
        if self.never or codes is None:
            return SlotsCursor(self._nothing(root))
        values = [-1] * self._and.dimension
        for variable, code in zip(self._variables[place], codes, strict=True):
            values[variable] = code
        return SlotsCursor(self._and.rows(self._versions(root), values))

    def _versions(self, root: QdagRoot) -> list[tuple[Root, ...]]:
        return [root.roots] * len(self.sides)

    def _nothing(self, root: QdagRoot) -> Cursor:
        return self._and.partners(self._versions(root), 0, np.empty((0, len(self._variables[0]) + 1), np.int32))

    def is_empty(self, root: QdagRoot) -> bool | None:
        return True if self.never or any(root.roots[tree].count == 0 for tree in self._joined) else None

    def entries(self, root: QdagRoot) -> int:
        return sum(root.roots[tree].count for tree in self._plain)

    @property
    def bits_per_tuple(self) -> float | None:
        """The mean over those plain trees that have a compact form; None: none has. Without the slots."""
        bits = [(self.trees.bits_a_tuple(tree), root.count) for tree, root in enumerate(self.trees.roots) if tree in self._plain]
        compact = sum(count for found, count in bits if found)
        return sum(found * count for found, count in bits) / compact if compact else None

    @property
    def bytes(self) -> int:
        return self.trees.live_bytes + sum(domain.bytes for domain in self.domains.values())

    @property
    def retired_bytes(self) -> int:
        return self.trees.retired_bytes

    def check(self) -> None:
        self.trees.check(self.trees.roots)
        for domain in self.domains.values():
            domain.check()


def _of_version(part: Part, offset: int) -> Part:
    """Of a part of a run what version number `offset` changes."""
    first, end = np.searchsorted(part.offsets, (offset, offset + 1)).tolist()
    return Part(part.offsets[first:end], part.old[first:end], part.new[first:end])

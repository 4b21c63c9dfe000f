"""The common part of joins over quadtrees: the trees of their relations, and how these follow changes; `qdag_trees` says which trees.

A version is written in steps, each at a tick of its own, so that the roots before and after each stay intact: first rows that only move
from slot to slot, then the deletes and inserts as the class arranges them (`_change`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from service.planning.hypergraph import Hypergraph
from service.planning.quadtree_shapes import Shapes
from service.tables.changes import DividedRun, Runs, by_version, parted
from service.tables.domains import Domain
from service.tables.inputs import Input
from service.tables.resolution import Resolution, Slots
from service.tables.store import FREED_AT_ONCE, Numbers
from service.views.deltas import Sink
from service.views.joins.protocol import Join, Store
from service.views.joins.qdag_trees import Base, Entries, Keys
from structures.core.ticks import Ticks
from structures.qdag.qdag import And, Atom
from structures.quadtree.trees import QuadtreeRoot, QuadTrees, in_order

CHUNK = 1 << 16  # rows per step of building, or of a delta
_STEPS = 3  # ticks per batch


class QdagRoot(NamedTuple):
    """A version: of the relations, and of each tree."""

    version: int
    roots: tuple[QuadtreeRoot, ...]


class QuadtreeJoin(Join):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, inputs: Sequence[Input], graph: Hypergraph, shapes: Shapes, never: bool) -> None:
        """`inputs`: including those of the groups, in the order of the atoms."""
        self.inputs, self.never = list(inputs), never
        self._base_of, self._orders = shapes.bases, shapes.orders
        atoms = graph.atoms
        self.keys = _keys(inputs, graph, shapes)
        of_variable = [self.keys[index] for index in shapes.domains]
        firsts = [shapes.bases.index(base) for base in range(max(shapes.bases) + 1)]
        nulls = [{variable for at, variable in graph.nulls if at == position} for position in range(len(atoms))]
        self._bases = [Base(inputs[position], atoms[position], of_variable, nulls[position]) for position in firsts]
        # For each base its trees: index, and which columns of its entries they use.
        self._trees: list[list[tuple[int, list[int]]]] = [[] for _ in self._bases]
        for index, (base, first, rest) in enumerate(self._orders):
            self._trees[base].append((index, [*first, *rest, len(first) + len(rest)]))
        self._plain = [own[0][0] for own in self._trees]
        self.trees = QuadTrees([(len(first) + len(rest), len(first)) for _, first, rest in self._orders])
        self._variables = [[one.variable for one in atom] for atom in atoms]
        self._new_tuples = [self._tuples_of(tree) for tree in self._plain]
        self._emitted_steps = 0
        self._version = self._tick = 0
        self._ticks = Ticks()

    @property
    def domains(self) -> list[Domain]:
        return [keys.domain for keys in self.keys.values()]

    def _atom(self, position: int) -> Atom:
        variables = self._variables[position]
        own = {}
        for index, (base, first, rest) in enumerate(self._orders):
            if base == self._base_of[position]:
                own[frozenset(variables[j] for j in first)] = index, tuple(variables[j] for j in (*first, *rest))
        return Atom(frozenset(variables), own)

    def _tuples_of(self, tree: int) -> And:
        """Report, of given entries of a plain tree, the first atom, those whose tuple the tree does not have."""
        order = tuple(range(self.trees.shapes[tree][0]))
        one = Atom(frozenset(order), {frozenset(): (tree, order)})
        return And(self.trees, len(order), [one], [[one]])

    @property
    def update_steps(self) -> int:
        return self._emitted_steps

    @property
    def root(self) -> QdagRoot:
        return QdagRoot(self._version, self.trees.roots)

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log l), l the number of codes."""
        self._begin(version)
        for index, base in enumerate([] if self.never else self._bases):
            entries = np.concatenate([base.entries(slots, version, True)[0] for slots in base.input.relation.table.scanned(version)])
            for tree, columns in self._trees[index]:
                self.trees.bulk_load(self._tick, tree, entries[:, columns], base.most_code)
            progress((index + 1) / len(self._bases))
        self._end()

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        changes = 0
        for base, own in zip(self._bases, self._trees, strict=True):
            one = resolved.get(base.input.relation.name)
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
        for index, entries in self._follow(version, runs, sink).items():
            self._bases[index].release(entries, version)
        for base, own in zip(self._bases, self._trees, strict=True):
            code = base.most_code
            for tree, _ in own:
                self.trees.reach(tree, code)
        self._end()

    def _change(self, deleted_slots: Mapping[int, Entries], inserted: Mapping[int, Entries], sink: Sink | None, offset: int) -> None:
        """Write each base's deleted and inserted entries of version `offset`, and report the resulting rows of the view."""
        raise NotImplementedError

    def _parted(self, runs: Runs, followed: bool) -> dict[int, DividedRun]:
        """Return what the runs change, by base."""
        own = ((index, base.input, runs.get(base.input.relation.name)) for index, base in enumerate(self._bases))
        return {index: parted(input, run, followed) for index, input, run in own if run is not None}

    def _follow(self, version: int, runs: Runs, sink: Sink | None) -> dict[int, Entries]:
        """Apply changes, version by version; return the deleted entries, by base."""
        deleted: dict[int, list[Entries]] = {}
        for offset, changes in by_version(runs):
            deleted_slots: dict[int, Entries] = {}
            inserted: dict[int, Entries] = {}
            for index, part in self._parted(changes, sink is not None).items():
                base = self._bases[index]
                if len(part.moved.new):
                    self._move(index, part.moved.old, part.moved.new)
                if len(part.deleted.old):
                    deleted_slots[index] = base.entries(part.deleted.old, version, False)[0]
                    deleted.setdefault(index, []).append(deleted_slots[index])
                if len(part.inserted.new):
                    inserted[index] = base.entries(part.inserted.new, version, True)[0]
            self._change(deleted_slots, inserted, sink, offset)
        return {index: np.concatenate(entries) for index, entries in deleted.items()}

    def is_outgrown(self, version: int) -> bool:
        return self.trees.is_outgrown

    def _begin(self, version: int) -> None:
        self._version = version
        self._tick += 1

    def _end(self) -> None:
        self._ticks.end(self._version, self._tick)

    def _move(self, index: int, before: Slots, after: Slots) -> None:
        """Move rows whose columns used by the view are unchanged from slot to slot."""
        new, indices = self._bases[index].entries(after, self._version, False)
        old = new.copy()
        old[:, -1] = before[indices]
        self._write(index, old, False)
        self._write(index, new, True)

    def _write(self, index: int, entries: Entries, inserted: bool) -> None:
        write = self.trees.insert if inserted else self.trees.delete
        for tree, columns in self._trees[index]:
            write(self._tick, tree, entries[:, columns])

    def _tuples(self, index: int, entries: Entries, roots: tuple[QuadtreeRoot, ...]) -> Entries:
        """Return the distinct tuples of these entries of a base that the trees do not have at these roots."""
        tuples = _distinct(entries[:, :-1])
        tuples = np.column_stack((tuples, np.arange(len(tuples), dtype=np.int32)))
        cursor, found = self._new_tuples[index].partners([roots, roots], 0, tuples), [np.empty(0, np.int32)]
        while not cursor.done:
            found.append(cursor.fill(CHUNK)[0])
        self._emitted_steps += cursor.steps
        return in_order(tuples[np.concatenate(found)])

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self.trees.reclaim(*self._ticks.keep(oldest_needed, pins), FREED_AT_ONCE):
            return True
        return any(domain.reclaim(oldest_needed, pins) for domain in self.domains)

    def entries(self, root: QdagRoot) -> int:
        return sum(root.roots[tree].count for tree in self._plain)

    @property
    def bits_per_tuple(self) -> float | None:
        """The mean over the plain trees that have a compact form; None: none has. Without the slots."""
        bits = [(self.trees.bits_a_tuple(tree), root.count) for tree, root in enumerate(self.trees.roots) if tree in self._plain]
        compact = sum(count for found, count in bits if found)
        return sum(found * count for found, count in bits) / compact if compact else None

    @property
    def bytes(self) -> int:
        return self.trees.live_bytes + sum(domain.bytes for domain in self.domains)

    @property
    def retired_bytes(self) -> int:
        return self.trees.retired_bytes

    @property
    def stores(self) -> Sequence[Store]:
        return (self.trees.arena,)

    def check(self) -> None:
        self.trees.check(self.trees.roots)
        for domain in self.domains:
            domain.check()


def _distinct(tuples: Entries) -> Entries:
    """Remove duplicates: as `np.unique` by rows, in a fraction of the time."""
    tuples = tuples[np.lexsort(tuples.T)]
    first = np.ones(len(tuples), np.bool_)
    first[1:] = (tuples[1:] != tuples[:-1]).any(axis=1)
    return tuples[first]


def _keys(inputs: Sequence[Input], graph: Hypergraph, shapes: Shapes) -> dict[int, Keys]:
    """Return the domains by index. Null is a value of a column if it is one for some alias with nulls there."""
    found: dict[int, tuple[list[pa.DataType], list[bool]]] = {}
    for position, (input, atom) in enumerate(zip(inputs, graph.atoms, strict=True)):
        for one in atom:
            fields = [input.relation.schema.field(name) for name in one.columns]
            _, nulls = found.setdefault(shapes.domains[one.variable], ([field.type for field in fields], [False] * len(fields)))
            for choice in (one.columns, *one.same):
                for at, name in enumerate(choice):
                    nulls[at] |= (position, one.variable) in graph.nulls and input.relation.definition.column(name).nullable
    return {index: Keys.of_types(types, nulls) for index, (types, nulls) in found.items()}

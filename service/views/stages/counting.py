"""Maintain the groups of a join by counting: for two relations on intervals, a `Counting` over both sides counts partners; for relations on
one key, `Products` multiplies counts. Where each row of one alias is a group, the rows of the other one visit it: `Visits`.

A row has a key, the code of its group, which depends on its key, and weights: the values that the aggregates take of it. Each change
reports how many rows of the join it inserts or deletes, all of one group, and by how much the sums change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.errors import Problem
from service.planning.binding import equal_classes
from service.planning.plans.plan import Plan
from service.query.conditions import ColumnRef, IntervalRef
from service.query.model import GroupColumn, Output, Query
from service.tables.changes import Runs, order_of, parted
from service.tables.domains import Domain
from service.tables.inputs import NEWEST, Codes, Input, Source, scanned
from service.tables.resolution import NO_SLOTS, Resolution, Slots
from service.tables.store import FREED_AT_ONCE, PIECE_ROWS, Numbers
from service.views.deltas import Sink
from service.views.joins.protocol import Join, Store
from service.views.shown import Definitions
from service.views.stages.aggregates import RAW
from service.views.stages.columns import Columns, References
from service.views.stages.table import GroupTable
from structures.aggregate import layout
from structures.aggregate.amounts import Amounts
from structures.aggregate.products import Members, Products
from structures.core.entries import Entries
from structures.event_tree.counting import COMMON, DELETE, INSERT, LENGTHS, MEASURE, MOVE, OWN, THEIRS, Counting, EventChanges, Recipe
from structures.event_tree.visits import Visits

_ITSELF = {"pair": 0, "self_less": 1, "self_not_equal": 2}  # how often each pair occurs in the join of a set with itself
_Of = tuple[int, int]  # an accumulator's kind, and the output that it reads
Kinds = npt.NDArray[np.int8]


class _Counted(NamedTuple):
    """Rows that take part: as intervals, with the codes of their groups and their weights; which: their indices among the given rows."""

    entries: Entries
    codes: Slots
    weights: npt.NDArray[np.int64]
    which: npt.NDArray[np.int64]


class GroupAmounts(NamedTuple):
    """Amounts added to groups, in order, with the offset of each one's version."""

    offsets: npt.NDArray[np.int64]
    amounts: Amounts


class _Role:
    """One alias, or both for a set with itself: its rows as a side of the structure."""

    def __init__(
        self, query: Query, plan: Plan, input: Input, definitions: Definitions, table: GroupTable, weights: Sequence[_Of], first: int,
        grouped: bool,
    ) -> None:  # fmt: skip
        """`weights`: per row, after the `first` ones, which belong to the structure; `grouped`: each row has a group."""
        assert query.groups is not None
        self.input, self._grouped = input, grouped
        refs = [query.outputs[column.of].column for column in query.groups.columns] if grouped else []
        columns = [_equal(query, ref, input.alias) for ref in refs if ref is not None]
        outputs = [Output("", "column", ref, ()) for ref in columns] + [_of_alias(query.outputs[of], input.alias) for _, of in weights]
        outputs = [output._replace(name=str(index)) for index, output in enumerate(outputs)]
        groups = tuple(GroupColumn(one.name, index, one.trunc) for index, one in enumerate(query.groups.columns) if grouped)
        alone = replace(
            query, aliases=(query.aliases[input.position],), equal=(), overlaps=(), less=(), at_most=(), not_equal=(), shifted=(), cross=(),
            filters=(), outputs=tuple(outputs), groups=query.groups._replace(columns=groups, aggregates=(), outputs=(), having=()),
        )  # fmt: skip
        self._columns = Columns(alone, [Input(alone, 0, input.relation)], definitions)
        if grouped:
            self._columns.domain, self._columns.nullable = table.columns.domain, table.columns.nullable
        self._kinds, self._first = [kind for kind, _ in weights], first
        self._operands = [self._columns.operand(len(columns) + index, RAW) for index in range(len(weights))]
        self.source = Source(input, 0, plan.keys[input.position], plan.spans[input.position])

    def take(self, slots: Slots, inserted: bool, codes: Codes | None) -> _Counted:
        """Take the rows at these slots; inserted rows add a reference to their groups' codes. `codes`: returns those of the rows' keys."""
        entries, which = self.source.entries(slots, codes)
        which = np.arange(len(slots)) if which is None else which
        weights = np.zeros((len(which), self._first + len(self._kinds)), np.int64)
        if not len(which):
            return _Counted(entries, NO_SLOTS, weights, which)
        read = self._columns.read((entries.slot,), (np.ones(len(which), np.bool_), 0) if inserted else None)
        for index, (kind, operand) in enumerate(zip(self._kinds, self._operands, strict=True), self._first):
            there = read.nulls[operand] == 0
            weights[:, index] = there if kind == layout.COUNT else np.where(there, read.values[operand], 0)
        return _Counted(entries, read.codes if self._grouped else np.full(len(which), -1, np.int32), weights, which)


class Counter(Join):
    """The parts of a join that a stage uses, except its rows. Used by the writer, or the view's builder. `structure` does the counting.

    `build` and `apply` are for a counter that is prepared beside the stage's own one, until `take_over`; that one has the references to
    the codes of its rows' groups."""

    root: Any = None
    _references: References | None = None  # while it is prepared: those that its rows would have

    def __init__(self, query: Query, plan: Plan, inputs: Sequence[Input], table: GroupTable, itself: bool = False) -> None:
        """`itself`: all aliases are one set. OSError, MemoryError: there is no room."""
        self._never, self._groups, self._is_one = query.never, table.columns, itself
        definitions = {input.relation.name: input.relation.definition for input in inputs}
        self.more = [_open_ends(one, query, definitions) - 1 if len(one.intervals) > 1 else 0 for one in query.outputs]  # added to lengths
        self.outputs = [(kind, table.columns.operands[operand][0]) for kind, operand, _ in table.steps.steps]
        self.common = [len(query.outputs[of].intervals) > 1 for _, of in self.outputs]
        owners = [0 if itself else _position(query, query.outputs[of]) for _, of in self.outputs]
        mine = [
            [index for index, owner in enumerate(owners) if owner == position and not self.common[index]]
            for position in range(len(inputs))
        ]
        first = int(any(self.common))  # the structure's own weight
        self.weights = [first + len(indices) for indices in mine]
        self.sums = [  # alias, and index of the weight
            (owner, 0 if self.common[index] else first + mine[owner].index(index)) for index, owner in enumerate(owners)
        ]  # fmt: skip
        self._roles = [
            _Role(
                query, plan, input, definitions, table, [self.outputs[index] for index in mine[input.position]], first,
                self.has_groups(input.position),
            )
            for input in (inputs[:1] if itself else inputs)
        ]  # fmt: skip
        types = [self._roles[0].input.relation.schema.field(name).type for name in plan.keys[0]]
        self.keys = Domain(types) if types else None
        self._acquire = self.keys.acquire_of if self.keys is not None else None
        self._look_up = self.keys.look_up_of if self.keys is not None else None
        self.structure: Any = self.made()

    def has_groups(self, position: int) -> bool:
        """Whether the rows of this alias have groups."""
        return True

    def recipe(self, role: int) -> list[Recipe]:
        """For intervals: by what a row of this alias changes each sum."""
        found = list[Recipe]()
        for (kind, of), common, (owner, weight) in zip(self.outputs, self.common, self.sums, strict=True):
            if common:
                found.append((LENGTHS if kind == layout.COUNT else COMMON, self.more[of]))
            else:
                found.append((OWN | THEIRS if self._is_one else OWN if owner == role else THEIRS, weight))
        return found

    def made(self) -> Any:
        """Return an empty structure."""
        raise NotImplementedError

    def load(self, structure: Any, version: int, found: Sequence[_Counted]) -> Iterator[Amounts]:
        """Fill an empty structure with the rows of each alias, or of the one set, at a version; yield the amounts in pieces."""
        raise NotImplementedError

    def make(self, structure: Any, kind: Kinds, role: Kinds, taken: _Counted, former: Slots) -> Amounts:
        """Apply these changes and return the amounts."""
        raise NotImplementedError

    def require_room(self, rows: Sequence[int], more: int) -> None:
        """Raise MemoryError unless this many rows of each alias surely fit, `more` of which are new."""
        raise NotImplementedError

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Load the rows that the relations have at a version: some relations have none, so there are no amounts."""
        self._references = References()
        for _ in self.loaded(version, progress):
            pass

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Follow the changed relations."""
        for _ in self.follow(version, runs):
            pass

    def take_over(self) -> References:
        """Return the references that its rows have from now on."""
        assert self._references is not None
        references, self._references = self._references, None
        return references

    def _refer(self, codes: Slots, each: int) -> None:
        """Count the references of rows of these groups."""
        if self._references is not None and self._groups.domain is not None:
            self._references.add([codes], each)

    def loaded(self, version: int, progress: Callable[[float], None]) -> Iterator[Amounts]:
        """Load the rows that the relations have at a version; yield the amounts in pieces."""
        yield from self._all(self.structure, version, True, progress)

    def again(self) -> Iterator[Amounts]:
        """Yield the amounts of a new structure with the relations' newest rows, for `check`."""
        yield from self._all(self.made(), NEWEST, False, lambda part: None)

    def _all(self, structure: Any, version: int, inserted: bool, progress: Callable[[float], None]) -> Iterator[Amounts]:
        """`inserted`: codes of keys and groups gain references; otherwise they are only looked up."""
        parts = [[role.take(NO_SLOTS, False, None)] for role in self._roles]
        for at, slots in () if self._never else scanned([role.input.relation for role in self._roles], version, progress):
            parts[at].append(self._take(self._roles[at], slots, inserted))
        yield from self.load(structure, version, [_together(some) for some in parts])

    def _take(self, role: _Role, slots: Slots, inserted: bool) -> _Counted:
        """Take rows of an alias. `inserted`: they are inserted."""
        taken = role.take(slots, inserted and self._references is None, self._acquire if inserted else self._look_up)
        if inserted:
            self._refer(taken.codes, 1)
        return taken

    def of_all(self, structure: Any, taken: _Counted, role: int, kind: int) -> Iterator[Amounts]:
        """Make the same change for all these rows, in pieces."""
        for first in range(0, len(taken.codes), PIECE_ROWS):
            part = _part(taken, slice(first, first + PIECE_ROWS))
            n = len(part.codes)
            yield self.make(structure, np.full(n, kind, np.int8), np.full(n, role, np.int8), part, np.full(n, -1, np.int32))

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        rows, more, texts = list[int](), 0, 0
        for role in self._roles:
            one = resolved.get(role.input.relation.name)
            inserts = one.inserts.num_rows if one is not None else 0
            rows.append(role.input.relation.table.rows + inserts)
            more, texts = more + inserts, texts + (one.inserts.bytes if one is not None else 0)
        self.require_room(rows, more)
        for domain in (self.keys, self._groups.domain):
            if domain is not None:
                domain.require(more, texts)

    def follow(self, version: int, runs: Runs) -> Iterator[GroupAmounts]:
        """Follow the changed relations to `version`, the last of the runs, some changes at a time; the caller must exhaust the iterator."""
        kinds, roles, taken, formers, offsets = list[int](), list[int](), list[_Counted](), list[Slots](), list[Numbers]()
        for index, role in enumerate(self._roles):
            run = runs.get(role.input.relation.name)
            if run is None or self._never:
                continue
            part = parted(role.input, run, True)
            for kind, some in ((MOVE, part.moved), (DELETE, part.deleted), (INSERT, part.inserted)):
                slots = some.old if kind == DELETE else some.new
                if len(slots):
                    one = self._take(role, slots, kind == INSERT)
                    formers.append(some.old[one.which] if kind == MOVE else np.full(len(one.which), -1, np.int32))
                    offsets.append(some.offsets[one.which])
                    kinds.append(kind)
                    roles.append(index)
                    taken.append(one)
        if not taken:
            return
        lengths = [len(one.which) for one in taken]
        kind_of, role_of = (np.repeat(np.array(values, np.int8), lengths) for values in (kinds, roles))
        every, former, offset = _together(taken), np.concatenate(formers), np.concatenate(offsets)
        order = order_of(offset, kind_of, every.entries.key, every.entries.left)
        kind_of, every = kind_of[order], _part(every, order)
        yield from self.changed(version, offset[order], kind_of, role_of[order], every, former[order])
        deleted = kind_of == DELETE
        if self.keys is not None:
            self.keys.release(every.entries.key[deleted], version)
        self._refer(every.codes[deleted], -1)
        if self._references is None and self._groups.domain is not None:
            self._groups.domain.release(every.codes[deleted], version)

    def changed(self, version: int, offsets: Numbers, kind: Kinds, role: Kinds, taken: _Counted, former: Slots) -> Iterator[GroupAmounts]:
        """Apply these changes, whose versions have these offsets."""
        yield GroupAmounts(offsets, self.make(self.structure, kind, role, taken, former))

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return self.keys is not None and self.keys.reclaim(oldest_needed, pins)

    @property
    def update_steps(self) -> int:
        return int(self.structure.steps)

    @property
    def bytes(self) -> int:
        return int(self.structure.bytes) + (self.keys.bytes if self.keys is not None else 0)

    def check(self) -> None:
        self.structure.check()
        if self.keys is not None:
            self.keys.check()


class PartnerCounter(Counter):
    """Counts for two relations on intervals."""

    def __init__(self, query: Query, plan: Plan, inputs: Sequence[Input], table: GroupTable) -> None:
        assert plan.core is not None
        self._itself = _ITSELF[plan.core.shape]
        super().__init__(query, plan, inputs, table, self._itself > 0)

    def made(self) -> Counting:
        return Counting((self.weights[0], self.weights[1]), (self.recipe(0), self.recipe(1)), self._itself)

    def load(self, structure: Counting, version: int, found: Sequence[_Counted]) -> Iterator[Amounts]:
        """Load both trees at once, then measure the rows of the first side; load a set with itself row by row."""
        if not self._itself:
            structure.load(found[0].entries, found[1].entries, (found[0].weights, found[1].weights))
        yield from self.of_all(structure, found[0], 0, INSERT if self._itself else MEASURE)

    def make(self, structure: Counting, kind: Kinds, role: Kinds, taken: _Counted, former: Slots) -> Amounts:
        entries, weights = taken.entries, _widened(taken.weights, max(self.weights))
        measured = structure.follow(EventChanges(kind, role, entries.key, entries.left, entries.right, entries.slot, former, weights))
        return Amounts(taken.codes, np.where(kind == DELETE, -1, 1).astype(np.int8), measured.rows, measured.sums)

    def require_room(self, rows: Sequence[int], more: int) -> None:
        self.structure.require(rows[0], rows[-1])

    def entries(self, root: Any) -> int:
        return int(self.structure.intervals)


class ProductCounter(Counter):
    """Counts for relations on one key."""

    _changes = 0

    def made(self) -> Products:
        return Products(len(self.weights), self.sums)

    def load(self, structure: Products, version: int, found: Sequence[_Counted]) -> Iterator[Amounts]:
        for role, taken in enumerate(found):
            yield from self.of_all(structure, taken, role, INSERT)

    def make(self, structure: Products, kind: Kinds, role: Kinds, taken: _Counted, former: Slots) -> Amounts:
        """Problem `view-failed`: a group has more rows than can be counted."""
        signs = np.where(kind == DELETE, -1, 1).astype(np.int8)
        signs[kind == MOVE] = 0
        try:
            measured = structure.follow(Members(signs, role, taken.entries.key, taken.weights))
        except OverflowError as error:
            raise Problem("view-failed", f"{error}, which cannot be counted") from None
        self._changes += len(signs)
        return Amounts(taken.codes, signs, measured.rows, measured.sums)

    def require_room(self, rows: Sequence[int], more: int) -> None:
        assert self.keys is not None
        self.structure.require(self.keys.codes + more)

    @property
    def update_steps(self) -> int:
        """Number of changes: each visits the entry of its key."""
        return self._changes

    def entries(self, root: Any) -> int:
        """Number of keys."""
        assert self.keys is not None
        return self.keys.keys

    @property
    def bytes(self) -> int:
        assert self.keys is not None
        return self.keys.bytes + int(self.structure.bytes(self.keys.keys))

    def check(self) -> None:
        assert self.keys is not None
        self.structure.check(self.keys.codes)
        self.keys.check()


class VisitCounter(Counter):
    """Counts for two relations on intervals where each row of the first one in `plan.order` is a group."""

    def __init__(self, query: Query, plan: Plan, inputs: Sequence[Input], table: GroupTable) -> None:
        self._grouped = [input.alias for input in inputs].index(plan.order[0])
        self._version = 0
        super().__init__(query, plan, inputs, table)

    def has_groups(self, position: int) -> bool:
        return position == self._grouped

    def made(self) -> Visits:
        return Visits(self.weights[1 - self._grouped], self.recipe(self._grouped))

    def load(self, structure: Visits, version: int, found: Sequence[_Counted]) -> Iterator[Amounts]:
        rows, partners = found[self._grouped], found[1 - self._grouped]
        self._version = version
        structure.load(version, rows.entries, partners.entries, partners.weights)
        yield from self.of_all(structure, rows, self._grouped, MEASURE)

    def make(self, structure: Visits, kind: Kinds, role: Kinds, taken: _Counted, former: Slots) -> Amounts:
        """For rows that are only measured."""
        ((_, measured, _, _),) = structure.follow(self._version, self._changes(kind, role, taken, former))
        return Amounts(taken.codes, np.ones(len(kind), np.int8), measured.rows, measured.sums)

    def _changes(self, kind: Kinds, role: Kinds, taken: _Counted, former: Slots) -> EventChanges:
        entries, weights = taken.entries, _widened(taken.weights, max(self.weights))
        input = (role != self._grouped).astype(np.int8)
        return EventChanges(kind, input, entries.key, entries.left, entries.right, entries.slot, former, weights)

    def changed(self, version: int, offsets: Numbers, kind: Kinds, role: Kinds, taken: _Counted, former: Slots) -> Iterator[GroupAmounts]:
        """Measure the changed rows that are groups; a changed partner adds to each group that it overlaps."""
        self._version, done = version, 0
        sign = np.where(kind == DELETE, -1, 1).astype(np.int8)
        for end, measured, which, slots in self.structure.follow(version, self._changes(kind, role, taken, former)):
            own = done + np.flatnonzero(role[done:end] == self._grouped)
            met = self._roles[self._grouped].take(slots, False, self._look_up)
            at = np.concatenate((own, which))
            order = np.argsort(at, kind="stable")
            codes = np.concatenate((taken.codes[own], met.codes))[order]
            rows = np.concatenate((measured.rows[own], np.ones(len(which), np.int64)))[order]
            sums = np.concatenate((measured.sums[own], self._of_met(met, _part(taken, which))))[order]
            yield GroupAmounts(offsets[at[order]], Amounts(codes, sign[at[order]], rows, sums))
            done = end

    def _of_met(self, met: _Counted, partners: _Counted) -> npt.NDArray[np.int64]:
        """int64[n, sums, 3]: by what each sum changes for these pairs of rows and partners."""
        amounts = np.empty((len(met.which), len(self.sums), 3), np.int64)
        if not len(met.which):
            return amounts
        for index, ((kind, of), common, (owner, weight)) in enumerate(zip(self.outputs, self.common, self.sums, strict=True)):
            if not common:
                value = (met if owner == self._grouped else partners).weights[:, weight]
            else:
                one, other = met.entries, partners.entries
                value = np.minimum(one.right, other.right) - np.maximum(one.left, other.left) + 1 + self.more[of]
                there = value >= 0  # a length beyond int64, which is null, wraps to a negative one
                value = there.astype(np.int64) if kind == layout.COUNT else np.where(there, value, 0)
            amounts[:, index] = np.stack((value & layout.LOW32, (value >> 32) & layout.LOW32, value >> 63), axis=1)
        return amounts

    def require_room(self, rows: Sequence[int], more: int) -> None:
        self.structure.require(rows[self._grouped], rows[1 - self._grouped])

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return bool(self.structure.reclaim(oldest_needed, FREED_AT_ONCE)) or super().reclaim(oldest_needed, pins)

    def entries(self, root: Any) -> int:
        return int(self.structure.entries)

    @property
    def stores(self) -> Sequence[Store]:
        return (self.structure.rows.arena,)


def _part(taken: _Counted, part: slice | Numbers) -> _Counted:
    entries = Entries(*(np.ascontiguousarray(column[part]) for column in taken.entries))
    return _Counted(entries, taken.codes[part], np.ascontiguousarray(taken.weights[part]), taken.which[part])


def _widened(weights: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """Pad the weights of an alias with zeros to the width of another one's."""
    if weights.shape[1] >= width:
        return weights
    wide = np.zeros((len(weights), width), np.int64)
    wide[:, : weights.shape[1]] = weights
    return wide


def _together(parts: Sequence[_Counted]) -> _Counted:
    """Concatenate the parts; those with fewer weights are padded with zeros."""
    if len(parts) == 1:
        return parts[0]
    most = max(part.weights.shape[1] for part in parts)
    weights = [_widened(part.weights, most) for part in parts]
    entries = Entries(*(np.concatenate(columns) for columns in zip(*(part.entries for part in parts), strict=True)))
    codes, which = np.concatenate([part.codes for part in parts]), np.concatenate([part.which for part in parts])
    return _Counted(entries, codes, np.concatenate(weights), which)


def _equal(query: Query, ref: ColumnRef, alias: str) -> ColumnRef:
    """Return the column of this alias that is the given one, or equals it."""
    if ref.alias == alias:
        return ref
    both = next(one for one in equal_classes(query) if ref in one)
    return next(one for one in both if one.alias == alias)


def _of_alias(output: Output, alias: str) -> Output:
    """Return the output with another alias of the same relation."""
    column = output.column._replace(alias=alias) if output.column is not None else None
    return output._replace(column=column, intervals=tuple(IntervalRef(alias, ref.interval) for ref in output.intervals))


def _position(query: Query, output: Output) -> int:
    """Return the place of the alias that the output reads, or of the first one."""
    return next(position for position, (alias, _) in enumerate(query.aliases) if alias == output.refs[0].alias)


def _open_ends(output: Output, query: Query, definitions: Definitions) -> int:
    """By how much a length exceeds the one of its closed interval."""
    interval = definitions[dict(query.aliases)[output.intervals[0].alias]].intervals[output.intervals[0].interval]
    return int(interval.start_open) + int(interval.end_open)

"""Rows of one alias and their partners as the entries of a structure that stores both, and their changes as its moves.

A row that cannot meet the condition (because of a null, or a filter of the part) is stored under a key that no partner has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.planning.plans.plan import CountedJoin, InnerJoin, Plan
from service.tables.changes import DividedRun, Runs, order_of, parted, versions_of
from service.tables.domains import Domain
from service.tables.inputs import NEWEST, ChosenEntries, Codes, Input, Source, ends_of, joined, scanned
from service.tables.relations import Relation
from service.tables.resolution import Indices, Resolution, Slots
from service.views.joins.outer_join import named
from structures.core.entries import NO_ENTRIES, Entries
from structures.event_tree import runs as kinds
from structures.event_tree.matching import LONELY, Moves

_NO_OFFSETS = np.empty(0, np.int64)
_KINDS = 6  # of changes


class _Work(NamedTuple):
    """Entries, with the kind of each (`event_tree.runs`), the offset of its version, and, if it moves, the slot that it comes from."""

    kinds: npt.NDArray[np.int8]
    offsets: npt.NDArray[np.int64]
    entries: Entries
    former: Slots


class _WatchedColumns(NamedTuple):
    """As `changes.Watched`."""

    relation: Relation
    varying: list[str]


class InputRows:
    """The rows of one alias as entries, including those that can have no partner. `position`: of the alias in the view."""

    def __init__(self, kept: InnerJoin, source: Source, relations: Mapping[str, Relation]) -> None:
        self.position, self.never = kept.positions[0], kept.query.never
        self._present = Input(kept.query, 0, named(relations, kept.query.aliases[0][1]))
        self._source = source

    def chosen(self, slots: Slots) -> Indices | None:
        """Return the rows that are reported if they have no partner; None: all."""
        return _NO_OFFSETS if self.never else self._present.selected(slots)

    def entries(self, slots: Slots, codes: Codes | None) -> ChosenEntries:
        """As in a source."""
        if self.never:
            return ChosenEntries(NO_ENTRIES, _NO_OFFSETS)
        present = self._present.selected(slots)
        able, which = self._source.entries(slots if present is None else slots[present], codes)
        if which is None:
            return ChosenEntries(able, present)
        indices = np.arange(len(slots)) if present is None else present
        alone = np.ones(len(indices), np.bool_)
        alone[which] = False
        lonely = slots[indices[alone]]
        left, right = ends_of(self._source.input.relation.table, self._source.span, lonely)
        left = np.minimum(left, right)  # where nothing meets it, the left end lies beyond the right one
        others = Entries(np.zeros(len(lonely), np.uint8), np.full(len(lonely), LONELY, np.int32), left, right, lonely)
        return ChosenEntries(joined([able, others]), np.concatenate((indices[which], indices[alone])))


class OrderedMoves(NamedTuple):
    """Moves in the order in which a structure takes them, with the offset of each one's version."""

    offsets: npt.NDArray[np.int64]
    moves: Moves


class TwoInputs:
    """See the module docstring."""

    steps = np.arange(_KINDS, dtype=np.int8)  # within a version, the kinds of changes are taken one after another

    def __init__(self, kept: InnerJoin, support: InnerJoin, at: CountedJoin, shown: Sequence[Input], known: Domain | None = None) -> None:
        """`kept`: only the rows; `support`: their join with the partners, in which they are the alias `at`; `shown`: the sides of the view.
        `known`: the keys of all rows that can have a partner; with it keys are only looked up."""
        relations = {input.relation.name: input.relation for input in shown}
        plan = _planned(support)
        inputs = [Input(support.query, position, relations[name]) for position, (_, name) in enumerate(support.query.aliases)]
        sources = [Source(input, 0, plan.keys[input.position], plan.spans[input.position]) for input in inputs]
        own, self.partners = sources[at.position], sources[1 - at.position]
        self.own = own.input
        self.relation, self.never, self.span, self.columns = own.input.relation, support.query.never, own.span, own.columns
        self.rows = InputRows(kept, own, relations)
        self.input, self._partner_input = shown[kept.positions[0]], self.partners.input
        # What the view reads of a row, and what its partners depend on: for FULL JOIN also the conditions in ON on the row alone.
        self._watched = _WatchedColumns(self.relation, list(dict.fromkeys([*self.input.varying, *own.input.varying])))
        types = [self.relation.schema.field(name).type for name in self.columns]
        self.domain = known or (Domain(types) if types else None)
        self.look_up = self.domain.look_up_of if self.domain is not None else None
        self._acquire = self.domain.acquire_of if self.domain is not None and known is None else self.look_up

    @property
    def relations(self) -> tuple[Relation, Relation]:
        """The relation of the rows, and that of the partners."""
        return self.relation, self._partner_input.relation

    def read(self, version: int, progress: Callable[[float], None]) -> tuple[Entries, Entries]:
        """Read the rows of a version, and the partners. Cost: O(n)."""
        parts, entries_of = ([NO_ENTRIES], [NO_ENTRIES]), (self.rows.entries, self._partners)
        for at, slots in scanned(self.relations, version, progress):
            parts[at].append(entries_of[at](slots, self._acquire)[0])
        return joined(parts[0]), joined(parts[1])

    def now(self) -> tuple[Entries, Entries]:
        """Read the rows and the partners that the tables have now."""
        mine, others = (relation.table.scan(NEWEST, 0, relation.table.used + 1)[0] for relation in self.relations)
        return self.rows.entries(mine, self.look_up)[0], self._partners(others, self.look_up)[0]

    def _partners(self, slots: Slots, codes: Codes | None) -> ChosenEntries:
        return ChosenEntries(NO_ENTRIES, _NO_OFFSETS) if self.never else self.partners.entries(slots, codes)

    def rows_after(self, resolved: Mapping[str, Resolution]) -> tuple[int, int]:
        """Return how many rows and partners there may be after these changes. MemoryError: there is no room for their keys."""
        rows, texts = [0, 0], 0
        for index, relation in enumerate(self.relations):
            one = resolved.get(relation.name)
            rows[index] = relation.table.rows + (one.inserts.num_rows if one is not None else 0)
            texts += one.inserts.bytes if one is not None else 0
        if self.domain is not None:
            self.domain.require(sum(rows) - sum(relation.table.rows for relation in self.relations), texts)
        return rows[0], rows[1]

    def changed(self, runs: Runs, emitted: bool) -> OrderedMoves | None:
        """Return the changes that these runs make; None: none. `emitted`: as `followed` of `parted`."""
        work = list[_Work]()
        mine, others = self.relations
        if (run := runs.get(mine.name)) is not None:
            three = (kinds.OUTER_DELETE, kinds.OUTER_INSERT, kinds.OUTER_MOVE)
            self._collect(parted(self._watched, run, emitted), self.rows.entries, three, work)
        if (run := runs.get(others.name)) is not None:
            three = (kinds.PARTNER_DELETE, kinds.PARTNER_INSERT, kinds.PARTNER_MOVE)
            self._collect(parted(self._partner_input, run, emitted), self._partners, three, work)
        work = [one for one in work if len(one.offsets)]
        if not work:
            return None
        columns = zip(*[(one.kinds, one.offsets, one.former) for one in work], strict=True)
        kind, offsets, former = (np.concatenate(column) for column in columns)
        entries = joined([one.entries for one in work])
        if versions_of(runs) == 1:  # changes of a step from left to right, so that each finds the nodes that the previous one used
            order = order_of(offsets, self.steps[kind], *([] if self.domain is None else [entries.key]), entries.left)
        else:
            order = order_of(offsets, kind)
        taken, done = entries.take(order), np.zeros(len(order), np.int64)
        return OrderedMoves(offsets[order], Moves(kind[order], taken.key, taken.left, taken.right, taken.slot, former[order], done))

    def release(self, moves: Moves, version: int) -> None:
        """Release the keys of entries that these moves have deleted, once they are made."""
        if self.domain is not None:
            deleted = np.isin(moves.kind, (kinds.OUTER_DELETE, kinds.PARTNER_DELETE)) & (moves.key != LONELY)
            self.domain.release(moves.key[deleted], version)

    def _collect(
        self, part: DividedRun, entries_of: Callable[[Slots, Codes | None], ChosenEntries], three: Sequence[int], work: list[_Work]
    ) -> None:
        """Append deletes, inserts and moves of one alias's run to `work`; `three`: the kinds of changes to make of them."""
        delete, insert, move = three
        deleted, inserted, moved = part
        # the entries' slots, former ones
        there = [(delete, deleted.offsets, deleted.old, deleted.old), (move, moved.offsets, moved.new, moved.old)]
        new = [(insert, inserted.offsets, inserted.new, inserted.new)]
        # Only inserts acquire keys; without any, all are read at once.
        readings = [([*there, *new], None)] if self.domain is None else [(there, self.look_up), (new, self._acquire)]
        for some, codes in readings:
            kinds = np.repeat(np.array([one[0] for one in some], np.int8), [len(one[1]) for one in some])
            offsets, slots, former = (np.concatenate(each) for each in zip(*[one[1:] for one in some], strict=True))
            if len(slots):
                entries, which = entries_of(slots, codes)
                if which is not None:
                    kinds, offsets, former = kinds[which], offsets[which], former[which]
                work.append(_Work(kinds, offsets, entries, former))


def _planned(kept: InnerJoin) -> Plan:
    assert kept.plan is not None
    return kept.plan

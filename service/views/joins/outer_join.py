"""A join with parts (EXISTS, NOT EXISTS, LEFT and FULL JOIN) over any cores; `planning.plans.outer` describes its members.

For each count, an array by slot has the number of partners of each row in the newest version. A batch first goes through the joins that are
not tested, which report their deltas; these give the increments and decrements of each count, version by version. They determine which rows
a tested alias gains and loses (`flips`): the other joins receive these as changes of a relation of its own. A row whose last partner is
deleted while another is inserted stays.

Costs: those of the joins, O(1) a row of the delta of a part, a sort of these; 8 bytes a row and count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.planning.plans.plan import InnerJoin, Outer
from service.tables.changes import Run, Runs, of_versions, versions_of
from service.tables.inputs import NEWEST, Input
from service.tables.masks import Mask
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Indices, Resolution, Slots
from service.tables.steps import resolution_of
from service.tables.store import PIECE_ROWS
from service.views.deltas import UNBOUNDED, Combination, Sink
from service.views.joins.flips import Counts, Events, flips, segments
from service.views.joins.outer_cursor import CursorChain, PartSink, ShownCursor, scanned_for
from service.views.joins.product_join import SeparateJoins
from service.views.joins.protocol import Bounds, Enumeration, Join

Tests = tuple[tuple[int, bool], ...]
Make = Callable[[InnerJoin, Sequence[Input]], Join]


class _Version(NamedTuple):
    version: int


class Member:
    """One of the joins, and what its rows contribute to those of the view."""

    def __init__(self, kept: InnerJoin, relations: Mapping[str, Relation], make: Make) -> None:
        self.positions, self.tests = kept.positions, kept.tests
        self.inputs = [Input(kept.query, at, named(relations, name)) for at, (_, name) in enumerate(kept.query.aliases)]
        self.join = make(kept, self.inputs)

    @property
    def is_tested(self) -> bool:
        return any(self.tests)


class OuterJoin(SeparateJoins):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, outer: Outer, inputs: Sequence[Input], aliases: int, make: Make) -> None:
        """`inputs`: all that are read; the first `aliases` of them are those of the rows."""
        relations = {input.relation.name: input.relation for input in inputs}
        self._inputs, self._aliases = list(inputs[:aliases]), aliases
        self.members = [Member(kept, relations, make) for kept in outer.joins]
        self.joins = [member.join for member in self.members]
        self.counted = outer.counts
        self.counts = [Counts(self.members[one.join].inputs[one.position].relation) for one in outer.counts]
        self._resolved: Mapping[str, Resolution] = {}
        self._version = 0
        self.flips_made = 0

    @property
    def root(self) -> tuple[Any, ...]:
        return (_Version(self._version), *super().root)

    @property
    def flips(self) -> int:
        """Number of rows that gained their first partner or lost their last one, over all changes."""
        return self.flips_made

    # --- writing

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: that of the joins, and of counting all rows of the parts."""
        self._version = version
        for done, member in enumerate(self.members):
            with self._only_passing(member):
                member.join.build(version, lambda part, done=done: progress((done + part) / len(self.members)))  # type: ignore[misc]
            counted = zip(self.counts, self.counted, strict=True)
            _add_rows(member.join, [(counts, one.position) for counts, one in counted if one.join == done])

    @contextmanager
    def _only_passing(self, member: Member) -> Iterator[None]:
        """Context in which its sides have only the rows of the newest version that pass."""
        tested = [(input, tests) for input, tests in zip(member.inputs, member.tests, strict=True) if tests]
        for input, tests in tested:
            input.living = partial(self._passes, tests)
        try:
            yield
        finally:
            for input, _ in tested:
                input.living = None

    def _passes(self, tests: Tests, slots: Slots) -> np.ndarray:
        """bool[n], at the newest version."""
        passed = np.ones(len(slots), np.bool_)
        for index, wanted in tests:
            passed &= (self.counts[index].of(slots) > 0) == wanted
        return passed

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        self._resolved = resolved
        for member in self.members:
            member.join.require(self._with_own(member, {}))

    def _with_own(self, member: Member, own: Mapping[str, Resolution]) -> Mapping[str, Resolution]:
        """Rename the changes to this member's sides; a tested one gets the given changes, or all changes of its relation."""
        found = {}
        for input in member.inputs:
            name = input.relation.name
            one = own.get(name, self._resolved.get(name.partition("#")[0]))
            if one is not None:
                found[name] = one
        return found

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        self._version = version
        noted_events = [Events() for _ in self.counts]
        for index, member in enumerate(self.members):
            if not member.is_tested:
                noted = [(one.position, noted_events[at]) for at, one in enumerate(self.counted) if one.join == index]
                shown = self._sink_of(member, sink, 0)
                mine = {input.relation.name: runs[input.relation.name] for input in member.inputs if input.relation.name in runs}
                if mine:
                    member.join.apply(version, mine, _CountingSink(noted, shown) if noted else shown)
        emitted = [
            events.arrays(runs.get(counts.relation), counts.table.used) for counts, events in zip(self.counts, noted_events, strict=True)
        ]
        made: dict[tuple[str, Tests], Run | None] = {}
        for member in self.members:
            for input, tests in zip(member.inputs, member.tests, strict=True):
                name = input.relation.name
                if tests and (name, tests) not in made:
                    channels = [(self.counts[index], emitted[index], wanted) for index, wanted in tests]
                    found = flips(channels, runs.get(name.partition("#")[0]), versions_of(runs))
                    made[name, tests] = None if found is None else found.run
                    self.flips_made += 0 if found is None else found.made
        for counts, events in zip(self.counts, emitted, strict=True):
            counts.follow(events, runs.get(counts.relation))
        for member in self.members:
            if member.is_tested:
                self._apply_tested(member, version, runs, made, sink)

    def _apply_tested(
        self, member: Member, version: int, runs: Runs, made: Mapping[tuple[str, Tests], Run | None], sink: Sink | None
    ) -> None:
        """Apply the changes to a tested join, in runs in which a row is inserted or deleted once."""
        mine: dict[str, Run] = {}
        tested = list[Run]()
        for input, tests in zip(member.inputs, member.tests, strict=True):
            name = input.relation.name
            run = made[name, tests] if tests else runs.get(name)
            if run is not None:
                mine[name] = run
                if tests:
                    tested.append(run)
        if not mine:
            return
        for first, end in segments(tested, versions_of(mine)):
            if part := of_versions(mine, first, end):
                relations = {input.relation.name: input.relation for input in member.inputs}
                own = {name: resolution_of(relations[name], run) for name, run in part.items() if "#" in name}
                if own:
                    member.join.require(self._with_own(member, own))
                member.join.apply(version, part, self._sink_of(member, sink, first))

    def _sink_of(self, member: Member, sink: Sink | None, first: int) -> Sink | None:
        if sink is None or not member.positions:
            return None
        is_whole = len(member.positions) == self._aliases and first == 0
        return sink if is_whole else PartSink(sink, member.positions, self._aliases, first)

    # --- reading

    def rows(self, root: tuple[Any, ...], window: Bounds | None) -> Enumeration:
        return self._chained([partial(self._rows_of, root, index, window) for index in self._shown()])

    def _shown(self) -> list[int]:
        return [index for index, member in enumerate(self.members) if member.positions]

    def _chained(self, begins: list[Callable[[], Enumeration]]) -> Enumeration:
        return CursorChain(begins, self._aliases)

    def _rows_of(self, root: tuple[Any, ...], index: int, window: Bounds | None) -> Enumeration:
        member = self.members[index]
        within, others = self._windows(member, window)
        return ShownCursor(member.join.rows(root[1 + index], within), member.positions, self._aliases, others)

    def _windows(self, member: Member, window: Bounds | None) -> tuple[Bounds | None, list[tuple[Input, Any, tuple[int, int]]]]:
        """Split the windows: those of intervals that its structure handles, and the others of its aliases, to be checked row by row."""
        if not window:
            return None, []
        own = {span for input in member.inputs for span in input.spans.values()}
        within = {span: bounds for span, bounds in window.items() if span in own}
        there = {input.alias for input in member.inputs}
        others = [
            (self._inputs[position], span, bounds)
            for span, bounds in window.items() if span not in own and span.alias in there
            for position in member.positions if self._inputs[position].alias == span.alias
        ]  # fmt: skip
        return within or None, others

    def partners(self, root: tuple[Any, ...], position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        there = [index for index in self._shown() if position in self.members[index].positions]
        return self._chained([partial(self._partners_of, root, index, position, window, slots) for index in there])

    def _partners_of(self, root: tuple[Any, ...], index: int, position: int, window: Bounds | None, slots: Slots) -> Enumeration:
        member = self.members[index]
        at = member.positions.index(position)
        within, others = self._windows(member, window)
        passed = self._passing(root, member.tests[at], slots)
        return ShownCursor(member.join.partners(root[1 + index], at, passed, within), member.positions, self._aliases, others)

    def _passing(self, root: tuple[Any, ...], tests: Tests, slots: Slots) -> Slots:
        """Return the slots that pass the tests at this version: each is checked for a partner."""
        for index, wanted in tests:
            one = self.counted[index]
            join, its = self.members[one.join].join, root[1 + one.join]
            found = [_has_row(join.partners(its, one.position, slots[at : at + 1], None)) for at in range(len(slots))]
            slots = slots[np.array(found, np.bool_) == wanted]
        return slots

    def of_key(self, root: tuple[Any, ...], position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        there = [index for index in self._shown() if position in self.members[index].positions]
        return self._chained([partial(self._of_key_in, root, index, position, key, window) for index in there])

    def _of_key_in(self, root: tuple[Any, ...], index: int, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        """Uses the structure if these are its join columns and no alias is tested; otherwise scans the alias's relation."""
        member = self.members[index]
        at = member.positions.index(position)
        of = member.inputs[at]
        if of.is_keyed and set(of.equal) == set(key.schema.names) and not member.tests[at]:
            within, others = self._windows(member, window)
            return ShownCursor(member.join.of_key(root[1 + index], at, key, within), member.positions, self._aliases, others)
        partners = partial(self._partners_of, root, index, position, window)
        return scanned_for(self._inputs[position], root[0].version, key, partners, self._aliases)

    def is_empty(self, root: tuple[Any, ...]) -> bool | None:
        known = {self.members[index].join.is_empty(root[1 + index]) for index in self._shown()}
        return False if False in known else None if None in known else True

    def entries(self, root: tuple[Any, ...]) -> int:
        return super().entries(root[1:])

    @property
    def bytes(self) -> int:
        return super().bytes + sum(counts.bytes for counts in self.counts)

    def check(self) -> None:
        """Also verify the counts against the joins, and that the joins of a tested alias have exactly the rows that pass."""
        for member in self.members:
            with self._only_passing(member):
                member.join.check()
        for counts, one in zip(self.counts, self.counted, strict=True):
            again = Counts(self.members[one.join].inputs[one.position].relation)
            _add_rows(self.members[one.join].join, [(again, one.position)])
            assert counts == again, "the partners are miscounted"
        for index, member in enumerate(self.members):
            if member.is_tested and len(member.inputs) == 1:
                expected = np.concatenate(member.inputs[0].rows_of(NEWEST))
                expected = expected[self._passes(member.tests[0], expected)]
                cursor, found = member.join.rows(self.root[1 + index], None), [NO_SLOTS]
                while not cursor.done:
                    found.append(cursor.fill(PIECE_ROWS)[0])
                never = getattr(member.join, "never", False)
                kept, wanted = np.sort(np.concatenate(found)), np.sort(expected)
                assert never or np.array_equal(kept, wanted), f"rows that pass are not those kept: {kept} of {wanted}"


def _add_rows(join: Join, to: Sequence[tuple[Counts, int]]) -> None:
    """Count all rows of a join, each by its slot at a position."""
    cursor = join.rows(join.root, None)
    while to and not cursor.done:
        rows = cursor.fill(PIECE_ROWS)
        for counts, position in to:
            counts.add(rows[position].astype(np.int64), np.ones(len(rows[position]), np.int64))


def _has_row(cursor: Enumeration) -> bool:
    while not cursor.done:
        if len(cursor.fill(1)[0]):
            return True
    return False


def named(relations: Mapping[str, Relation], name: str) -> Relation:
    """Return the name of the relation, or for a tested alias a name of its own."""
    relation = relations[name.partition("#")[0]]
    return relation if "#" not in name else relation.renamed(name)


class _CountingSink:
    """Records everything that a join reports for the counts, and passes it on as long as it is wanted."""

    limit = UNBOUNDED

    def __init__(self, events: Sequence[tuple[int, Events]], shown: Sink | None) -> None:
        self._events, self._shown = events, shown

    def __call__(self, offsets: Indices, inserted: Mask, rows: Combination) -> bool:
        for position, events in self._events:
            events.note(offsets, inserted, rows[position])
        if self._shown is not None:
            self._shown(offsets, inserted, rows)
        return True

    def exceeded(self, offset: int) -> None:
        raise AssertionError("a delta without a limit exceeds it")

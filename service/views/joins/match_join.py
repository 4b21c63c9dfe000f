"""EXISTS, NOT EXISTS, LEFT and FULL JOIN on one condition on intervals, on equalities, or on both: a `Matching` maintains the rows without
a partner, or with one; LEFT and FULL JOIN also have their inner join. With equalities alone, all entries lie in one interval. For LEFT and
FULL JOIN on intervals, if the view reports its changes, `PairCounts` replace the `Matching` (`paired`).

    core       of LEFT and FULL JOIN the inner join, maintained by its own class; otherwise none
    matchings  one for each alias whose rows are reported alone: of EXISTS the rows with a partner, otherwise those without

A row that cannot meet the condition (because of a null, or a filter of the part) is stored under a key that no partner has. Costs: O(log n)
a changed row, and a row that gains its first or loses its last partner; plus those of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.planning.plans.plan import CountedJoin, InnerJoin, Outer
from service.tables.changes import Runs
from service.tables.inputs import Input
from service.tables.masks import Mask
from service.tables.resolution import NO_SLOTS, Resolution, Slots
from service.tables.store import FREED_AT_ONCE, Numbers
from service.views.deltas import Combination, Sink, emitted_rows
from service.views.joins.outer_cursor import CursorChain, Looked, PartSink, ShownCursor, scanned_for
from service.views.joins.overlap_join import OverlapJoin
from service.views.joins.paired import Counting, PairedJoin
from service.views.joins.protocol import Bounds, Enumeration, Join, Store
from service.views.joins.slots_cursor import Filtered, GivenRowsCursor, SlotsCursor, agreeing
from service.views.joins.two_inputs import TwoInputs
from structures.event_tree.matching import LONELY, Matching
from structures.event_tree.runs import STEPS_UNMATCHED


class MatchJoinRoot(NamedTuple):
    """A version: of the relations, of the core, if there is one, and of each matching."""

    version: int
    core: Any
    matchings: tuple[Any, ...]


class MatchedInputs(TwoInputs):
    """The rows of an alias that are reported alone, and their structures."""

    def __init__(self, kept: InnerJoin, support: InnerJoin, at: CountedJoin, shown: Sequence[Input]) -> None:
        super().__init__(kept, support, at, shown)
        ((_, wanted),) = kept.tests[0]
        assert support.plan is not None
        if not wanted:
            self.steps = STEPS_UNMATCHED
        self.matching = Matching(wanted, support.plan.shape == "self_not_equal")

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        self.matching.load(version, *self.read(version, progress))

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        self.matching.require(*self.rows_after(resolved))

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """`sink` takes slots of the rows. Cost: O(log n) a changed row, and a row that flips."""
        changed = self.changed(runs, sink is not None)
        if changed is None:
            return
        offsets, moves = changed
        deltas = self.matching.apply(version, moves, None if sink is None else sink.limit)
        if sink is not None:
            at, rows = emitted_rows(sink, offsets, deltas)
            inserted = rows[0] >= 0
            sink(offsets[at], inserted, (np.where(inserted, rows[0], ~rows[0]),))
        self.release(moves, version)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self.matching.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return self.domain is not None and self.domain.reclaim(oldest_needed, pins)

    @property
    def stores(self) -> Sequence[Store]:
        return self.matching.unmatched.arena, self.matching.matched.arena

    @property
    def bytes(self) -> int:
        return self.matching.bytes + (self.domain.bytes if self.domain is not None else 0)

    def check(self) -> None:
        self.matching.check()
        rows, partners = self.now()
        unmatched = self.matching.unmatched
        alone = int(np.count_nonzero(unmatched.holds(unmatched.root, rows)))
        assert alone == unmatched.root.counts[0], "rows without a partner are kept that are not there"
        assert self.matching.tree.events == 2 * len(partners.slot) + len(rows.slot) - alone, "rows or partners are kept that are not there"
        if self.domain is not None:
            self.domain.check()


class MatchJoin(Join):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(
        self, outer: Outer, inputs: Sequence[Input], aliases: int, make: Callable[[InnerJoin, Sequence[Input]], Join], followed: bool
    ) -> None:
        """`inputs`: all that are read; the first `aliases` of them are those of the rows. `make` makes the core. `followed`: its changes
        are usually reported, so partners are counted by these."""
        relations = {input.relation.name: input.relation for input in inputs}
        self._inputs, self._aliases = list(inputs[:aliases]), aliases
        self._core: Join | None = None
        self._reads: set[str] = set()
        for kept in outer.joins:
            if len(kept.positions) == 2:
                own = [Input(kept.query, position, relations[name]) for position, (_, name) in enumerate(kept.query.aliases)]
                self._core, self._reads = make(kept, own), {input.relation.name for input in own}
        tested = [kept for kept in outer.joins if any(kept.tests)]
        self.matched = list[MatchedInputs | PairedJoin]()
        self._paired = list[PairedJoin]()  # for all matchings, or empty
        for kept in tested:
            at = outer.counts[kept.tests[0][0][0]]
            if kept.query.aliases[0][0] != outer.joins[at.join].query.aliases[at.position][0]:  # FULL JOIN: the other side
                at = at._replace(position=1 - at.position)
            support = outer.joins[at.join]
            if followed and isinstance(self._core, OverlapJoin) and self._core.shape.kind == "pair":
                self._paired.append(PairedJoin(kept, support, at, inputs, self._core))
                self.matched.append(self._paired[-1])
            else:
                self.matched.append(MatchedInputs(kept, support, at, inputs))
        self._version = 0

    @property
    def root(self) -> MatchJoinRoot:
        core = None if self._core is None else self._core.root
        return MatchJoinRoot(self._version, core, tuple(one.matching.root for one in self.matched))

    @property
    def update_steps(self) -> int:
        return (0 if self._core is None else self._core.update_steps) + sum(one.matching.steps for one in self.matched)

    @property
    def flips(self) -> int:
        """Number of rows that gained their first partner or lost their last one, over all changes."""
        return sum(one.matching.flips for one in self.matched)

    # --- writing

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) for sorting."""
        self._version = version
        builds = [one.build for one in (self._core, *self.matched) if one is not None]
        for done, build in enumerate(builds):
            build(version, lambda part, done=done: progress((done + part) / len(builds)))  # type: ignore[misc]

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        for one in (self._core, *self.matched):
            if one is not None:
                one.require(resolved)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        self._version = version
        if self._core is not None and self._paired:
            for input in self._paired:
                input.begin(runs)
            counting = Counting(self._paired, sink, runs)
            self._core.apply(version, runs, counting)
            counting.end(version, self._aliases)
            return
        if self._core is not None and not self._reads.isdisjoint(runs):
            self._core.apply(version, runs, sink)
        for one in self.matched:
            assert isinstance(one, MatchedInputs)
            one.apply(version, runs, sink if sink is None or self._aliases == 1 else PartSink(sink, (one.rows.position,), self._aliases))

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self._core is not None and self._core.reclaim(oldest_needed, pins):
            return True
        return any(one.reclaim(oldest_needed, pins) for one in self.matched)

    # --- reading

    def _of_matched(self, one: MatchedInputs | PairedJoin, cursor: Enumeration, window: Bounds | None) -> Enumeration:
        """Return rows of one alias as rows of the view; `cursor` applies the window of the interval that joins it."""
        others: list[Looked] = []
        for span, bounds in (window or {}).items():
            if span.alias == self._inputs[one.rows.position].alias and span != one.span:
                others.append((self._inputs[one.rows.position], span, bounds))
        return ShownCursor(cursor, (one.rows.position,), self._aliases, others)

    @staticmethod
    def _own(one: MatchedInputs | PairedJoin, window: Bounds | None) -> tuple[int, int] | None:
        return (window or {}).get(one.span) if one.span is not None else None

    def _chained(self, core: Callable[[Join], Enumeration] | None, others: Sequence[Callable[[], Enumeration]]) -> Enumeration:
        begins = [partial(core, self._core)] if core is not None and self._core is not None else []
        return CursorChain([*begins, *others], self._aliases)

    def rows(self, root: MatchJoinRoot, window: Bounds | None) -> Enumeration:
        def alone(one: MatchedInputs | PairedJoin, at: Any) -> Enumeration:
            return self._of_matched(one, SlotsCursor(one.matching.rows(at, None, self._own(one, window))), window)

        others = [partial(alone, one, at) for one, at in zip(self.matched, root.matchings, strict=True)]
        return self._chained(lambda core: core.rows(root.core, window), others)

    def _there(self, root: MatchJoinRoot, position: int) -> list[tuple[MatchedInputs | PairedJoin, Any]]:
        return [(one, at) for one, at in zip(self.matched, root.matchings, strict=True) if one.rows.position == position]

    def partners(self, root: MatchJoinRoot, position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        def alone(one: MatchedInputs | PairedJoin, at: Any) -> Enumeration:
            entries, _ = one.rows.entries(slots, one.look_up)
            own = self._own(one, window)
            if own is not None:
                entries = entries.take((entries.left <= own[1]) & (own[0] <= entries.right))
            held = entries.slot[one.matching.holds(at, entries)]
            return self._of_matched(one, GivenRowsCursor((held,)), window)

        others = [partial(alone, one, at) for one, at in self._there(root, position)]
        return self._chained(lambda core: core.partners(root.core, position, slots, window), others)

    def of_key(self, root: MatchJoinRoot, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        """Uses the structures if these are their join columns; otherwise scans the alias's relation."""
        columns = {name for one in self.matched for name in one.columns}
        if columns != {*key.schema.names}:
            partners = partial(self.partners, root, position, window=window)
            return scanned_for(self._inputs[position], root.version, key, partners, self._aliases)

        def of_code(one: MatchedInputs | PairedJoin, at: Any) -> Enumeration:
            assert one.domain is not None
            code = int(one.domain.look_up(key.select(one.columns))[0])
            if code < 0:
                return GivenRowsCursor((NO_SLOTS,) * self._aliases)
            return self._of_matched(one, SlotsCursor(one.matching.rows(at, code, self._own(one, window))), window)

        def agree(rows: Combination) -> Mask:
            return np.isin(rows[0], agreeing(self._inputs[position], key, rows[0]))

        def lonely(one: MatchedInputs | PairedJoin, at: Any) -> Enumeration:
            cursor = SlotsCursor(one.matching.rows(at, LONELY, self._own(one, window)))
            return self._of_matched(one, Filtered(cursor, agree), window)

        there = self._there(root, position)
        others = [partial(begin, one, at) for one, at in there for begin in (of_code, lonely)]
        return self._chained(lambda core: core.of_key(root.core, position, key, window), others)

    def is_empty(self, root: MatchJoinRoot) -> bool | None:
        if any(one.matching.count(at) for one, at in zip(self.matched, root.matchings, strict=True)):
            return False
        return True if self._core is None else self._core.is_empty(root.core)

    def entries(self, root: MatchJoinRoot) -> int:
        mine = sum(one.matching.entries(at) for one, at in zip(self.matched, root.matchings, strict=True))
        return mine + (0 if self._core is None else self._core.entries(root.core))

    @property
    def bytes(self) -> int:
        mine = sum(one.bytes for one in self.matched)
        return mine + (0 if self._core is None else self._core.bytes)

    @property
    def stores(self) -> Sequence[Store]:
        lists = [store for one in self.matched for store in one.stores]
        return [*lists, *(() if self._core is None else self._core.stores)]

    def check(self) -> None:
        """Also verify that the lists have exactly the rows of the newest version that they should have."""
        for one in self.matched:
            one.check()
        if self._core is not None:
            self._core.check()

"""The rows of an alias that LEFT or FULL JOIN report alone, found by counting the pairs that their inner join reports.

In a view that reports its changes, the inner join visits all inserted and deleted pairs anyway: they are counted, and no event tree is
needed: with one, a change takes 1.7 times as long, alone or in a batch. The delta is passed on in pieces as it is reported. Pairs that the
view's sink does not want are counted too, with two exceptions:

    a single inserted outer row     some partners are enough (`guess`); when most of these are deleted, it is counted again
    a batch of very many pairs      the rest is not reported, and all rows are counted again, O(n log n)

Costs: O(log n) a changed row, O(1) an inserted or deleted pair, and O(log n) a row that gains its first partner or loses its last one.
Counting a row again takes O(1) for each pair that it has lost since the last time; rows that lose the same pairs are counted at different
times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from service.planning.plans.plan import CountedJoin, InnerJoin
from service.tables.changes import NOTHING, AliasChanges, DividedRun, Runs, parted, versions_of
from service.tables.inputs import Input
from service.tables.masks import Mask
from service.tables.resolution import NO_SLOTS, Indices, Resolution, Slots
from service.tables.store import FREED_AT_ONCE, Numbers
from service.views.deltas import UNBOUNDED, Combination, Sink
from service.views.joins.outer_cursor import widened
from service.views.joins.overlap_join import OverlapJoin
from service.views.joins.protocol import Store
from service.views.joins.two_inputs import TwoInputs
from structures.outer.counts import SILENT, OwnRows, PairCounts

_ENOUGH = 1024  # partners of a row to visit where they are not reported, and up to as many more
# With fewer left, a row is counted again. A group's single changes are fewer, so none of them deletes the last partner of a guessed row.
_LEAST = 512
_ANEW = 64  # pairs per row of the relations, beyond which it is faster to count all rows again


class PairedJoin(TwoInputs):
    """See the module docstring. `position`: of the rows in a pair."""

    def __init__(self, kept: InnerJoin, support: InnerJoin, at: CountedJoin, shown: Sequence[Input], core: OverlapJoin) -> None:
        super().__init__(kept, support, at, shown, core.domain)
        self.position, self._core = at.position, core
        self.matching = PairCounts(_LEAST)
        self._inserted = NO_SLOTS

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        self.matching.load(version, *self.read(version, progress))

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        mine = resolved.get(self.relation.name)
        self.matching.require(self.relation.table.rows + (mine.inserts.num_rows if mine is not None else 0))

    def begin(self, runs: Runs) -> None:
        """Prepare for these runs, before the core follows them."""
        changes = sum([len(run.offsets) for run in runs.values()])
        assert versions_of(runs) == 1 or changes < _LEAST, "single changes that go together are fewer"
        mine = runs.get(self.relation.name)
        parts = parted(self.own, mine, True) if mine is not None else DividedRun(NOTHING, NOTHING, NOTHING)
        deleted = self._chosen(parts.deleted, parts.deleted.old)
        inserted, moved = (self._chosen(part, part.new) for part in (parts.inserted, parts.moved))
        emitted = np.zeros(len(moved.new), np.uint8)
        if len(emitted):
            emitted = (~self.relation.table.same(self.input.varying, moved.old, moved.new)).view(np.uint8)
        self._inserted = inserted.new
        self.matching.begin(
            OwnRows(deleted.offsets, deleted.old, moved.offsets, moved.old, moved.new, emitted, inserted.offsets, inserted.new)
        )

    def _chosen(self, part: AliasChanges, slots: Slots) -> AliasChanges:
        """Return the changes whose rows are reported if they have no partner."""
        return part.only(self.rows.chosen(slots) if len(slots) else None)

    def guess(self) -> None:
        """Count some partners of a single inserted row, after the core has followed it without reporting all of them."""
        for slot in self._inserted.tolist():
            self.matching.overrule(slot, *self._some_partners(slot))

    def _some_partners(self, slot: int) -> tuple[int, bool]:
        """Return a row's number of partners, or of some if there are very many; and whether it is all of them."""
        cursor, found = self._core.partners(self._core.root, self.position, np.array([slot], np.int32), None), 0
        enough = _ENOUGH + slot % _ENOUGH  # so that rows that lose the same partners are not counted again all at once
        while not cursor.done and found < enough:
            found += len(cursor.fill(enough - found)[0])
        return found, cursor.done

    def end(self, version: int, sink: Sink | None, aliases: int, is_whole: bool) -> None:
        """Finish the run after the core has reported its pairs; if not all, the caller must call `count_anew` next."""
        at, slots = self.matching.end()
        self._inserted = NO_SLOTS
        if is_whole and len(self.matching.few):
            alone = [slot for slot in self.matching.few.tolist() if self.matching.recount(slot, *self._some_partners(slot))]
            at, slots = np.append(at, np.zeros(len(alone), np.int64)), np.append(slots, np.array(alone, np.int32))
        if len(slots):
            inserted = slots >= 0
            self._emit(version, sink, at, inserted, np.where(inserted, slots, ~slots), aliases)

    def _emit(self, version: int, sink: Sink | None, at: Indices, inserted: Mask, slots: Slots, aliases: int) -> None:
        entries, which = self.rows.entries(slots, self.look_up)
        self.matching.relist(version, entries, inserted if which is None else inserted[which])
        if sink is not None:
            if at.min() == SILENT:
                emitted = at != SILENT
                at, inserted, slots = at[emitted], inserted[emitted], slots[emitted]
            sink(at, inserted, widened((slots,), (self.rows.position,), aliases))

    def count_anew(self, version: int, sink: Sink | None, aliases: int) -> None:
        """Count all rows again after a batch whose pairs the core has not all reported."""
        rows, partners = self.read(version, lambda part: None)
        alone = self.matching.replace(rows, partners)
        flipped = np.flatnonzero(alone != self.matching.holds(self.matching.root, rows))
        if len(flipped):
            self._emit(version, sink, np.zeros(len(flipped), np.int64), alone[flipped], rows.slot[flipped], aliases)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return self.matching.reclaim(oldest_needed, pins, FREED_AT_ONCE)

    @property
    def stores(self) -> Sequence[Store]:
        return (self.matching.list.arena,)

    @property
    def bytes(self) -> int:
        return self.matching.bytes

    def check(self) -> None:
        self.matching.check(*self.now())


class Counting:
    """The core's sink: each side counts what is reported, and passes it on as long as it is wanted."""

    limit = UNBOUNDED

    def __init__(self, inputs: Sequence[PairedJoin], sink: Sink | None, runs: Runs) -> None:
        self._inputs, self._sink = inputs, sink
        self._enough: set[int] = set()
        changed = sum(len(run.offsets) for run in runs.values())
        mine, others = inputs[0].relations
        self._is_one_row = changed == 1 and len(inputs) == 1 and others.name not in runs
        self._may_stop = versions_of(runs) == 1
        self._left = _ANEW * (mine.table.rows + others.table.rows)
        self.stopped = False  # the reports of a batch were incomplete

    def __call__(self, offsets: Indices, inserted: Mask, rows: Combination) -> bool:
        if not len(inserted):
            return True
        for input in self._inputs:
            input.matching.take(offsets, inserted, rows[input.position])
        last = offsets.item(-1)
        wanted = self._sink is not None and last not in self._enough
        if wanted and self._sink is not None and not self._sink(offsets, inserted, rows):
            self._enough.add(last)
            wanted = False
        self._left -= len(inserted)
        if self._may_stop and not wanted and (self._left < 0 or self._is_one_row):
            self.stopped = True
        return not self.stopped

    def exceeded(self, offset: int) -> None:
        raise AssertionError("a delta without a bound exceeds it")

    def end(self, version: int, aliases: int) -> None:
        """Finish after the core has followed everything: report the rows without a partner."""
        if self.stopped and self._is_one_row:
            self._inputs[0].guess()
        for input in self._inputs:
            is_whole = not self.stopped or self._is_one_row
            input.end(version, self._sink, aliases, is_whole)
            if not is_whole:
                input.count_anew(version, self._sink, aliases)

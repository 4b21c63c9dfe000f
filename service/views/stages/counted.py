"""Groups whose rows are counted, not visited: a `Counter` reports what a change adds to its group, and no join is maintained.

    changed rows ──> amounts (`counting`) ──> accumulators by code ──> the table of groups, as in `groups`

Costs: O(log n) a changed row, however many rows of the join it inserts or deletes.
Source: docs/design/queries.md (*Groups*).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from service.planning.plans.plan import Plan, PlanShape
from service.query.model import Query
from service.tables.changes import Runs
from service.tables.inputs import Input
from service.tables.resolution import NO_SLOTS, Slots
from service.tables.store import Numbers
from service.views.collecting import RowCollector
from service.views.joins.protocol import Join
from service.views.stages.counting import Counter, PartnerCounter, ProductCounter, VisitCounter
from service.views.stages.groups import GroupsStage, LoadedGroups
from service.views.stages.table import GroupTable
from structures.aggregate.amounts import Amounts
from structures.aggregate.groups import Groups
from structures.core.reserve import SLOTS

_COUNTERS: Mapping[PlanShape, Callable[..., Counter]] = {"counted": PartnerCounter, "products": ProductCounter, "visits": VisitCounter}


def counter_by(query: Query, plan: Plan, inputs: Sequence[Input], table: GroupTable) -> Counter:
    """Return an empty counter; arguments as of `CountedStage`."""
    return _COUNTERS[plan.shape](query, plan, inputs, table)


class CountedStage(GroupsStage):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, query: Query, plan: Plan, inputs: Sequence[Input], table: GroupTable) -> None:
        """`plan`: of the groups; `table`: where the rows are stored. OSError, MemoryError: there is no room."""
        table.open()
        super().__init__(query, counter_by(query, plan, inputs, table), table, plan.shape != "visits", SLOTS)

    @property
    def _counter(self) -> Counter:
        """The core, whose rows are never read."""
        return cast(Counter, self.core)

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n), whatever the size of the join."""
        self._groups.begin()
        codes: list[Slots] = []
        for amounts in self._counter.loaded(version, progress):
            codes.append(self._add(amounts, None)[0])
        self._begin_with(version, codes)
        progress(1.0)

    def take_beside(self, taken: LoadedGroups, core: Join, report: Callable[[float], None]) -> None:
        """Nothing: without the rows of a relation, the join has none."""

    def follow_taken(self, taken: LoadedGroups, core: Join, version: int, runs: Runs, report: Callable[[float], None]) -> None:
        core.catch_up(version, runs)

    def apply_without(self, version: int, runs: Runs, sink: RowCollector | None, taken: LoadedGroups) -> None:
        super().apply_without(version, runs, sink, taken._replace(references=self._counter.take_over()))

    def _take_delta(self, version: int, runs: Runs, codes: list[Slots]) -> int:
        rows = 0
        for changed in self._counter.follow(version, runs):
            codes.append(self._add(changed.amounts, None)[0])
            rows += len(changed.offsets)
        return rows

    def _apply_run(self, version: int, runs: Runs, first: int, sink: RowCollector | None) -> int:
        parts = list(self._counter.follow(version, runs))
        if not parts:
            return 0
        offsets = np.concatenate([part.offsets for part in parts])
        amounts = Amounts(*(np.concatenate(columns) for columns in zip(*(part.amounts for part in parts), strict=True)))
        ends = np.append(np.flatnonzero(np.diff(offsets)) + 1, len(offsets))
        codes, emitted, cells = self._add(amounts, ends)
        self._write(version, codes, offsets[ends[emitted] - 1], cells, first, sink)
        return len(offsets)

    def _add(self, amounts: Amounts, ends: Numbers | None) -> tuple[Slots, Numbers, Numbers]:
        """As `Groups.add_amounts`. Problem `too-many-groups`."""
        self._groups.require(self._columns.codes, len(amounts.codes))
        found = self._groups.add_amounts(amounts, ends)
        self._require_few()
        return found

    def check(self) -> None:
        """Also verify that the groups equal recomputed ones."""
        super().check()
        anew = Groups(self._table.steps, self._table.results, self._table.width, max(1, self._columns.codes))
        codes = [NO_SLOTS]
        for amounts in self._counter.again():
            codes.append(anew.add_amounts(amounts, None)[0])
        some = np.concatenate(codes)
        assert anew.groups == self._groups.groups, "there are other groups"
        assert np.array_equal(anew.emit(some), self._groups.emit(some)), "a group differs from its rows"

"""Groups whose rows are counted, not visited: what a change adds to its group is told by a `Counter`, and no join is kept.

    changed rows ──> amounts (`counting`) ──> accumulators by code ──> the table of groups, as of `groups`

Costs: O(log n) a changed row, however many rows of the join come or go by it.
Source: docs/design/queries.md (*Groups*).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from service.planning.plans.plan import Plan
from service.query.model import Query
from service.tables.changes import Runs, versions_of
from service.tables.resolution import NO_SLOTS, Slots
from service.tables.sides import Side
from service.tables.store import Numbers
from service.views.deltas import Sink
from service.views.joins.protocol import Join
from service.views.stages.counting import Counter, PartnerCounter, ProductCounter
from service.views.stages.groups import GroupsStage, pieces_of
from service.views.stages.table import GroupTable
from structures.aggregate.amounts import Amounts
from structures.aggregate.groups import Groups
from structures.core.reserve import SLOTS


class CountedStage(GroupsStage):
    """See the module's head; what the methods do is said in `protocol`."""

    def __init__(self, query: Query, plan: Plan, sides: Sequence[Side], table: GroupTable) -> None:
        """`plan`: of the groups; `table`: is to have the rows. OSError, MemoryError: there is no room."""
        table.open()
        on_key = plan.spans[0] is None
        given = query, plan, sides, table
        self._counter: Counter = ProductCounter(*given) if on_key else PartnerCounter(*given)
        super().__init__(query, cast(Join, self._counter), table, True, SLOTS)  # nobody asks for its rows

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n), whatever the join has."""
        self._groups.begin()
        codes: list[Slots] = []
        for amounts in self._counter.build(version, progress):
            codes.append(self._add(amounts, None)[0])
        self._begin_with(version, codes)
        progress(1.0)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """The versions of a run are followed together."""
        offsets, amounts = self._counter.follow(version, runs)
        if not len(offsets):
            return
        if versions_of(runs) == 1:
            self._groups.begin()
            codes = self._add(amounts, None)[0]
            for part in pieces_of([codes]):
                self._write(version, part, np.zeros(len(part), np.int64), self._groups.tell(part), sink)
            return
        ends = np.append(np.flatnonzero(np.diff(offsets)) + 1, len(offsets))
        codes, told, cells = self._add(amounts, ends)
        self._write(version, codes, offsets[ends[told] - 1], cells, sink)

    def _add(self, amounts: Amounts, ends: Numbers | None) -> tuple[Slots, Numbers, Numbers]:
        """As `Groups.add_amounts`. Problem `too-many-groups`."""
        self._groups.require(self._columns.codes, len(amounts.codes))
        found = self._groups.add_amounts(amounts, ends)
        self._require_few()
        return found

    def check(self) -> None:
        """Also that the groups are as if made anew."""
        super().check()
        anew = Groups(self._table.steps, self._table.results, self._table.width, self._columns.codes)
        codes = [NO_SLOTS]
        for amounts in self._counter.again():
            codes.append(anew.add_amounts(amounts, None)[0])
        some = np.concatenate(codes)
        assert anew.groups == self._groups.groups, "there are other groups"
        assert np.array_equal(anew.tell(some), self._groups.tell(some)), "a group differs from its rows"

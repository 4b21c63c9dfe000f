"""Make what maintains a view, by its plan: a join, or a stage over one."""

from __future__ import annotations

from collections.abc import Sequence

from service.planning.plans.groups import core_of
from service.planning.plans.plan import Plan
from service.query.model import Query
from service.tables.indexes import SharedIndexes
from service.tables.inputs import Input
from service.views.joins.making import join_of
from service.views.joins.protocol import Join
from service.views.shown import Definitions, ShownColumns, shown
from service.views.stages.counted import CountedStage
from service.views.stages.coverage import CoverageStage
from service.views.stages.gaps import GapsStage
from service.views.stages.groups import GroupsStage
from service.views.stages.key_stretches import KeyStretches
from service.views.stages.latest import LatestStage
from service.views.stages.selection import Selection
from service.views.stages.table import GroupTable


def shown_of(query: Query, inputs: Sequence[Input], definitions: Definitions) -> ShownColumns:
    """Return the object that makes the view's rows; `inputs`: of its aliases."""
    if query.groups is None:
        return shown(query, inputs, definitions)
    return KeyStretches(query, inputs, definitions) if query.stretches is not None else GroupTable(query, inputs, definitions)


def kept_by(query: Query, plan: Plan, inputs: Sequence[Input], indexes: SharedIndexes | None, part: bool, rows: ShownColumns) -> Join:
    """Return an empty join or stage, with all its address space reserved; arguments as in `join_of`. `rows`: the result of `shown_of`,
    where groups store their rows. OSError, MemoryError: there is no room."""
    if isinstance(rows, KeyStretches):
        return CoverageStage(query, inputs, rows)
    if plan.core is not None and plan.algorithm == "event-tree":
        assert isinstance(rows, GroupTable)
        return CountedStage(query, plan, inputs, rows)
    core = core_by(query, plan, inputs, indexes, part)
    return GroupsStage(query, core, rows, isinstance(core, Selection)) if isinstance(rows, GroupTable) else core


def core_by(query: Query, plan: Plan, inputs: Sequence[Input], indexes: SharedIndexes | None, part: bool) -> Join:
    """As `kept_by`, for groups only the join whose delta a stage takes."""
    if plan.shape == "gaps":
        assert plan.outer is not None
        return GapsStage(query, plan.outer, inputs)
    if plan.shape == "latest":
        return LatestStage(query, plan, inputs[0])
    if plan.core is None:
        return join_of(query, plan, inputs, indexes, part)
    if plan.core.shape == "list":
        return Selection(inputs[0], query.never)
    return join_of(core_of(query), plan.core, inputs, None, part=True)

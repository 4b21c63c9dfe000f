"""Groups of two relations on one interval condition whose rows are counted, not visited: an event tree.

A row that comes or goes adds to the group of its key as many rows as it has partners, and to sums what its own value or theirs make, all of
which the tree of the other side tells. So groups go by columns of the join key, or there is one; the aggregates are COUNT, SUM and AVG of
whole numbers, lengths among them. The rows of the join are kept nowhere.
"""

from __future__ import annotations

from service.planning.meets import Relations, meets_of
from service.planning.plans import groups, pair
from service.planning.plans.plan import Plan, first_notes
from service.query.model import Aggregate, Output, Query

WORDS = "COUNT, SUM and AVG of whole numbers in groups by join columns, or in one group, of two relations on one interval condition"
_SUMS = ("sum", "avg")
_BOUNDED = ("date",)  # types of endpoints between which no length is beyond 64 bits


def make(query: Query, relations: Relations) -> Plan | str:
    """The plan; else what is in the way, "" if it is the join."""
    core = _core(query, relations)
    if core is None:
        return ""
    grouping = query.groups
    assert grouping is not None
    joined = {ref for both in query.equal for ref in both}
    for column in grouping.columns:
        if query.outputs[column.of].column not in joined:
            return f"{column.name} is no column of the join key; groups by columns of that alone, or one group, are counted"
    for one in grouping.aggregates:
        if (reason := _obstacle(query, one, relations)) is not None:
            return f"{reason}; without it groups are counted"
        if core.shape == "self_less" and one.of is not None:
            return "a self-join that has each pair once is counted for COUNT(*) alone"
    bounds = {"space": "O(n) and O(groups)", "update": "O(log n)", "delay": "O(log n)"}
    notes = (*first_notes(query, relations), "the partners of a changed row are counted, not visited; a start reads no row of the join")
    return Plan(
        f"{groups.words(query)} of: {core.cls}", "event-tree", None, "strict", bounds, notes, "counted", core.order,
        keys=core.keys, spans=core.spans, core=core,
    )  # fmt: skip


def _core(query: Query, relations: Relations) -> Plan | None:
    if query.parts or query.absent or query.branches or not meets_of(query, relations):
        return None
    made = pair.make(groups.core_of(query), relations)
    return made if made is not None and made.guarantee == "strict" else None


def _obstacle(query: Query, one: Aggregate, relations: Relations) -> str | None:
    """What is in the way of an aggregate, in words."""
    if one.of is None:
        return None
    output = query.outputs[one.of]
    name = "COUNT(DISTINCT)" if one.function == "count_distinct" else one.function.upper()
    of = str(output.column) if output.column is not None else f"duration({', '.join(map(str, output.intervals))})"
    if one.function not in (*_SUMS, "count"):
        return f"{name} of {of} goes by rows"
    if one.function in _SUMS and _kind_of(query, output, relations) == "float64":
        return f"{name} of {of}, a float64, goes by rows"
    if len(output.intervals) > 1 and not _is_bounded(query, output, relations):
        return f"{name} of {of}, whose length may be null, goes by rows"
    return None


def _kind_of(query: Query, output: Output, relations: Relations) -> str:
    """Of a column's values, or a length's ends."""
    by_alias = dict(query.aliases)
    if output.column is not None:
        return relations[by_alias[output.column.alias]].column(output.column.column).kind
    ref = output.intervals[0]
    definition = relations[by_alias[ref.alias]]
    return definition.column(definition.intervals[ref.interval].start_column).kind


def _is_bounded(query: Query, output: Output, relations: Relations) -> bool:
    """Whether the length in common is of the two that the join is on, and never null."""
    by_alias = dict(query.aliases)
    columns = []
    for ref in output.intervals:
        definition = relations[by_alias[ref.alias]]
        interval = definition.intervals[ref.interval]
        columns += [definition.column(interval.start_column), definition.column(interval.end_column)]
    return len(output.intervals) == 2 and all(not column.nullable and column.kind in _BOUNDED for column in columns)

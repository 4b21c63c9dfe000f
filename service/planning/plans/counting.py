"""Groups whose rows are counted, not visited: for two relations on one interval condition, by an event tree; for relations on one key, by
products of the numbers of rows that each of them has of the key.

An inserted or deleted row changes the group of its key by as many rows as it has partners, and its sums by its own value or theirs; the
structure of the other side provides all of these. So groups are by columns of the join key, or there is only one; the aggregates are COUNT,
SUM and AVG of whole numbers, including lengths. The rows of the join are not stored.
"""

from __future__ import annotations

from service.planning.binding import equal_classes
from service.planning.meets import Relations, is_natural, meets_of
from service.planning.plans import groups, pair, view_tree
from service.planning.plans.plan import Plan, PlanShape, first_notes
from service.query.conditions import ColumnRef
from service.query.model import Aggregate, Guarantee, Output, Query

WORDS = (
    "COUNT, SUM and AVG of whole numbers in groups by join columns, or in one group, of two relations on one interval condition, or of "
    "relations that are all equal in one key"
)
_COUNTED = "the partners of a changed row are counted, not visited; a restart reads no row of the join"
_MULTIPLIED = "rows are counted, not visited, by multiplying each relation's rows of a key; a restart reads no row of the join"
_SUMS = ("sum", "avg")
_COUNTED_ENDS = ("int64", "date", "timestamp")  # whose lengths are int64, and null where they are beyond it


def make(query: Query, relations: Relations) -> Plan | str:
    """The plan; otherwise what prevents it, "" if it is the join."""
    core = _core(query, relations)
    if core is None:
        return ""
    grouping = query.groups
    assert grouping is not None
    visited = None
    if (outside := _outside(query)) is not None:
        visited = _whole(query, relations) if core.shape == "pair" else None
        if visited is None:
            instead = "only groups by columns of the join key, by the whole key of one of two relations, or a single group can be counted"
            return f"{outside} is not a column of the join key; {instead}"
    for one in grouping.aggregates:
        if (reason := _obstacle(query, one, relations)) is not None:
            return f"{reason}; without it, groups could be counted"
        if core.shape == "self_less" and one.of is not None:
            return "in a self-join that has each pair once, only COUNT(*) can be counted"
    bounds = {"space": "O(n) and O(groups)", "update": "O(log n)", "delay": "O(log n)"}
    shape: PlanShape = "counted" if core.keys else "products"
    guarantee: Guarantee = "strict"
    order = core.order
    notes = (*first_notes(query, relations), _COUNTED if core.keys else _MULTIPLIED)
    if visited is not None:
        shape, order = "visits", tuple(sorted(core.order, key=lambda alias: alias != visited))
        bounds["update"] = f"O(log n) for a row of {order[0]}; for a row of {order[1]} O(log n), and O(log n) per group of its partners"
        notes = (*notes, f"a change of {order[1]} visits the partners of its row, and changes the group of each")
        if (reason := _unchanged(query)) is not None:
            guarantee, notes = "delay", (*notes, reason)
    return Plan(
        f"{groups.words(query)} of: {core.cls}", "event-tree", None, guarantee, bounds, notes, shape, order,
        keys=core.keys or _keys(query), spans=core.spans or (None,) * len(query.aliases), core=core,
    )  # fmt: skip


def _core(query: Query, relations: Relations) -> Plan | None:
    if query.subqueries or query.absent or query.branches:
        return None
    if _on_one_key(query, relations):
        return view_tree.make(groups.core_of(query), relations)
    if not meets_of(query, relations):
        return None
    made = pair.make(groups.core_of(query), relations)
    return made if made is not None and made.guarantee == "strict" else None


def _outside(query: Query) -> str | None:
    """A column by which rows are grouped that is not part of the join key."""
    assert query.groups is not None
    joined = {ref for both in query.equal for ref in both}
    return next((one.name for one in query.groups.columns if query.outputs[one.of].column not in joined), None)


def _whole(query: Query, relations: Relations) -> str | None:
    """The alias each of whose rows is a group and determines it: the columns contain its whole key, and nothing that its rows do not
    determine."""
    assert query.groups is not None
    refs = dict[ColumnRef | None, bool]()
    for one in query.groups.columns:
        ref = query.outputs[one.of].column
        refs[ref] = refs.get(ref, False) or one.trunc is None
    for alias, relation in query.aliases:
        mine = dict[ColumnRef, bool]()
        for ref, plain in refs.items():
            equals = [other for both in equal_classes(query) if ref in both for other in both if other.alias == alias]
            if ref is not None and (ref.alias == alias or equals):
                mine |= dict.fromkeys([ref] if ref.alias == alias else equals, plain)
            else:
                break
        else:
            if all(mine.get(ColumnRef(alias, column)) for column in relations[relation].key):
                return alias
    return None


def _unchanged(query: Query) -> str | None:
    """Why a group that is visited may remain unchanged."""
    assert query.groups is not None
    if query.groups.having:
        return "with HAVING there is no strict guarantee, because the groups that it excludes are visited too"
    if any(one.of is not None for one in query.groups.aggregates):
        return "a visited group may be left unchanged; only with COUNT(*) alone does each of them change"
    return None


def _on_one_key(query: Query, relations: Relations) -> bool:
    """Whether each equality holds between all aliases, by a column of each, and nothing else joins them."""
    every = [[alias for alias, _ in query.aliases]] * len(classes := equal_classes(query))
    return is_natural(query, relations) and not query.cross and [[ref.alias for ref in one] for one in classes] == every


def _keys(query: Query) -> tuple[tuple[str, ...], ...]:
    """For each alias its columns in the key."""
    return tuple(tuple(one[position].column for one in equal_classes(query)) for position in range(len(query.aliases)))


def _obstacle(query: Query, one: Aggregate, relations: Relations) -> str | None:
    """What prevents counting an aggregate, in words."""
    if one.of is None:
        return None
    output = query.outputs[one.of]
    if output.term is not None:
        return "an aggregate of an expression requires visiting rows"
    name = "COUNT(DISTINCT)" if one.function == "count_distinct" else one.function.upper()
    of = str(output.column) if output.column is not None else f"duration({', '.join(map(str, output.intervals))})"
    if one.function not in (*_SUMS, "count"):
        return f"{name} of {of} requires visiting rows"
    if one.function in _SUMS and _kind_of(query, output, relations) == "float64":
        return f"{name} of {of}, a float64, requires visiting rows"
    if len(output.intervals) > 1 and (reason := _uncounted(query, output, relations)) is not None:
        return f"{name} of {of}, {reason}, requires visiting rows"
    return None


def _kind_of(query: Query, output: Output, relations: Relations) -> str:
    """The kind of a column's values, or of the ends of a length."""
    by_alias = dict(query.aliases)
    if output.column is not None:
        return relations[by_alias[output.column.alias]].column(output.column.column).kind
    ref = output.intervals[0]
    definition = relations[by_alias[ref.alias]]
    return definition.column(definition.intervals[ref.interval].start_column).kind


def _uncounted(query: Query, output: Output, relations: Relations) -> str | None:
    """Why common lengths are not added up by counting."""
    by_alias = dict(query.aliases)
    for ref in output.intervals:
        definition = relations[by_alias[ref.alias]]
        interval = definition.intervals[ref.interval]
        for column in (definition.column(interval.start_column), definition.column(interval.end_column)):
            if column.kind not in _COUNTED_ENDS:
                return f"whose ends are {column.kind} (not int64, date or timestamp)"
            if column.nullable:
                return f"whose end {ref.alias}.{column.name} may be null"
    return None

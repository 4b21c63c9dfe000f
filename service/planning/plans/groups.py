"""Groups of the rows of a join, by rows: each row of the join's delta is added to its group, or removed from it, whatever keeps the join.

So a change costs as much as the rows of the join that it adds and removes: for one relation the row itself, for two or more the partners of
the row.
"""

from __future__ import annotations

from dataclasses import replace

from service.errors import Problem
from service.planning.meets import Relations
from service.planning.plans.plan import Plan, lengths_of, no_such_promise
from service.query.conditions import ColumnRef
from service.query.model import GUARANTEES, LISTS, Guarantee, Query

_OF_ALIASES: dict[int, Guarantee] = {1: "strict", 2: "delay"}
_LOGARITHMIC = ("min", "max", "count_distinct")
_ROWS = "a change costs as much as the rows of the join that it adds and removes"


def core_of(query: Query) -> Query:
    """The join whose rows are grouped."""
    return replace(query, groups=None, guarantee="best-effort")


def of_core(query: Query, relations: Relations, core: Plan, obstacle: str) -> Plan:
    """The plan over that of the join. `obstacle`: why groups are not counted instead, unless the join is the reason."""
    unnamed = lengths_of(core_of(query), relations)  # its columns have no names
    core = replace(core, notes=tuple(note for note in core.notes if note not in unnamed))
    groups = query.groups
    assert groups is not None
    guarantee = min(_OF_ALIASES.get(len(query.whole.aliases), "best-effort"), core.guarantee, key=GUARANTEES.index)
    ordered = sorted({one.function for one in groups.aggregates if one.function in _LOGARITHMIC})
    notes = [*lengths_of(query, relations), *core.notes]
    is_list = core.shape == "list"
    if is_list:
        update = "O(log n)"
        notes.append("rows are read from their relation; the view stores only its groups")
    else:
        update = f"{core.bounds['update']}, and O(log n) per row of the join that is added or removed"
        notes.append("groups are kept by rows: each added or removed row of the join is visited; a restart reads the whole join")
        notes += [obstacle] if obstacle else []
    space = "O(groups)" if is_list else f"{core.bounds['space']} and O(groups)"
    if ordered:
        names = " and ".join("COUNT(DISTINCT)" if one == "count_distinct" else one.upper() for one in ordered)
        space += " and O(distinct values of each group)"
        notes.append(f"{names}: each distinct value of a group is kept, with the number of its rows")
    if lists := sorted({one.function.upper() for one in groups.aggregates if one.function in LISTS}):
        space += " and O(values that are listed)"
        update += ", and O(text) per changed group"
        notes.append(f"{' and '.join(lists)}: the values are kept in order, and the text of each changed group is written anew")
    return replace(
        core,
        cls=f"{words(query)} of: {core.cls}",
        guarantee=guarantee,
        bounds={"space": space, "update": update, "delay": "O(log n)"},
        notes=tuple(notes),
        shape="groups",
        core=core,
    )


def of_distinct(query: Query, made: Plan) -> Plan:
    """The plan of rows that are distinct by their columns."""
    aliases = " and ".join(alias for alias, _ in query.aliases)
    note = f"the columns hold the key of {aliases}: each row is distinct anyway, so no groups are stored"
    return replace(made, cls=f"distinct rows of: {made.cls}", notes=(*made.notes, note))


def words(query: Query) -> str:
    """A description of the groups, as in a class."""
    groups = query.groups
    assert groups is not None
    if not groups.columns:
        return "one group"
    if not groups.aggregates:
        return "distinct rows"
    refs = [query.outputs[column.of].column if column.trunc is None else None for column in groups.columns]
    joined = {ref for pair in query.equal for ref in pair}
    if all(ref in joined for ref in refs) and _is_key(query, [ref for ref in refs if ref is not None]):
        return "groups by the join key"
    return f"groups by {', '.join(column.name for column in groups.columns)}"


def _is_key(query: Query, refs: list[ColumnRef]) -> bool:
    """Whether every equality is between columns by which rows are grouped, or their equals."""
    known, before = set(refs), 0
    while len(known) > before:
        before = len(known)
        for pair in query.equal:
            if known & set(pair):
                known |= set(pair)
    return all(set(pair) <= known for pair in query.equal)


def refusal(query: Query, made: Plan, obstacle: str) -> Problem:
    reason = _ROWS
    if len(query.whole.aliases) > 2:
        reason += ", whose number is not bounded by the partners of one row in joins of three or more relations"
    if made.core is not None and made.core.guarantee == "best-effort":
        reason += "; " + "; ".join(made.core.notes or (f"{made.core.algorithm} gives no guarantee",))
    reason += f"; {obstacle}" if obstacle else ""
    return no_such_promise(query, "groups that are kept by rows", made, reason)

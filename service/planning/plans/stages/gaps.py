"""What the rows of one relation leave uncovered of another's intervals, or cover: two trees of intervals that know where the gaps are.

The rows do not come from a join: a change of a partner is reported stretch by stretch, where it has rows, and a reading enumerates the
stretches of each row. So only the intervals of both sides are kept.
"""

from __future__ import annotations

from dataclasses import replace

from service.errors import Problem
from service.planning.meets import Relations
from service.planning.plans import pair, selection
from service.planning.plans.plan import CountedJoin, InnerJoin, Outer, Plan, first_notes, names, no_such_promise, promises, suffix
from service.query.filters import ordered
from service.query.model import Guarantee, Query

WORDS = "gaps and coverage of one relation's intervals by another's"
_NULLS = {
    "gaps": "a null matches nothing: a row with a null in a compared column is one gap",
    "coverage": "a null matches nothing: a row with a null in a compared column has no stretch",
}
EXCLUDED = "stretches that WHERE excludes are found first"
_COST = "a change of a partner visits the stretches within it that have rows, and those rows"


def make(query: Query, relations: Relations) -> Plan:
    """Problem `infeasible-view`: the requested algorithm or guarantee is not possible."""
    stretches = query.stretches
    assert stretches is not None
    if query.groups is not None:
        return _of_groups(query, relations)
    (part,) = query.subqueries
    rows = replace(query.core, stretches=None, outputs=query.outputs)
    filters = ordered({*part.join.filters, *(one for one in query.filters if one.alias == part.on)})
    join = replace(part.join, filters=filters)
    support, alone = pair.make(join, relations), selection.make(rows, relations)
    assert support is not None and support.shape == "pair" and alone is not None
    kept = InnerJoin(rows, alone, (0,), ((),)), InnerJoin(join, support, (), ((), ()))
    notes = (*dict.fromkeys(first_notes(query, relations) + first_notes(join, relations)), _NULLS[stretches.function], _COST)
    guarantee: Guarantee = "best-effort" if stretches.conditions else "delay"
    notes += (EXCLUDED,) if stretches.conditions else ()
    bounds = {
        "space": "O(n)",
        "update": "O(log n) per stretch with rows within a changed partner, and per stretch that is added or removed",
        "delay": "O(log n)",
    }
    made = Plan(
        f"{stretches.function}, 1-D, 2 relations{suffix(join, ())}", "event-tree", None, guarantee, bounds, notes, "gaps", names(query),
        outer=Outer(kept, (CountedJoin(1, 0),)),
    )  # fmt: skip
    _require_algorithm(query, made)
    if not promises(made, query.guarantee):
        raise no_such_promise(query, f"{stretches.function}(…)", made, notes[-1])
    return made


def _of_groups(query: Query, relations: Relations) -> Plan:
    """A key's merged runs: the structure has a row without ends for each key, which is the only one within a changed interval."""
    assert query.groups is not None
    columns = ", ".join(column.name for column in query.groups.columns)
    bounds = {"space": "O(n)", "update": "O(log n), and O(log n) per stretch that is added or removed", "delay": "O(log n)"}
    cls, notes = f"coverage{f' by {columns}' if columns else ''}, 1-D, 1 relation", first_notes(replace(query, overlaps=()), relations)
    made = Plan(cls, "event-tree", None, "strict", bounds, notes, "coverage", names(query))
    _require_algorithm(query, made)
    return made


def _require_algorithm(query: Query, made: Plan) -> None:
    if query.algorithm not in ("auto", made.algorithm):
        assert query.stretches is not None
        reason = f"only {made.algorithm} supports {query.stretches.function}(…)"
        raise Problem("infeasible-view", f'{reason}; write "algorithm": "{made.algorithm}" or "auto"', theorem=reason)

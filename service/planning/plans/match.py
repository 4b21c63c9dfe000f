"""EXISTS, NOT EXISTS, LEFT and FULL JOIN of two relations on one condition of intervals, or equalities, or both: a match tree.

The rows without a partner, or those with one, are kept, and a change finds them without visiting the partners that it meets: a row whose
last partner is deleted is found in O(log n). With equalities alone, all rows of a key are in one interval, and flip together. LEFT and FULL
JOIN also have their inner join. The joins are those of `outer`; the match tree keeps those that are tested.
"""

from __future__ import annotations

from dataclasses import replace

from service.planning.meets import Relations, is_natural
from service.planning.plans import outer, pair, selection, tree
from service.planning.plans.plan import Outer, Plan, first_notes, keys_of_two, names, suffix
from service.query.model import Query

WORDS = "EXISTS, NOT EXISTS, LEFT JOIN and FULL JOIN of two relations on one interval condition, or on equalities alone"


def make(query: Query, relations: Relations) -> Plan | None:
    subqueries, emitted = outer.subqueries_of(query), outer.joins_of(query)
    if isinstance(subqueries, str) or isinstance(emitted, str) or len(subqueries) != 1 or len(query.core.aliases) != 1:
        return None
    joins, counts = emitted
    support = _support(joins[counts[0].join].query, relations)
    if support is None:
        return None
    kept = []
    for one in joins:
        alone = selection.make(one.query, {name: relations[name.partition("#")[0]] for _, name in one.query.aliases})
        kept.append(replace(one, plan=alone if any(one.tests) else support))
    dimension, theorem = ("", None) if support.shape == "join_tree" else (", 1-D", support.theorem)
    kind = f"{outer.kind_of(subqueries)}{dimension}, 2 relations{suffix(joins[counts[0].join].query, ())}"
    bounds = {
        "space": "O(n)",
        "update": "O(log n), and O(log n) per row that gains its first or loses its last partner",
        "delay": "O(log n)",
    }
    notes = (*first_notes(query, relations), outer.NULLS, *(note for note in support.notes if note not in first_notes(query, relations)))
    return Plan(kind, "match-tree", theorem, "strict", bounds, notes, "match", names(query), outer=Outer(tuple(kept), counts))


def _support(query: Query, relations: Relations) -> Plan | None:
    """The plan of the join of the rows with their partners, with the key and the span of both."""
    if len(query.aliases) != 2:
        return None
    if is_natural(query, relations):
        made = tree.make(query, relations)
        return None if made is None else replace(made, keys=keys_of_two(query), spans=(None, None))
    made = pair.make(query, relations)
    return made if made is not None and made.guarantee == "strict" and made.shape in ("pair", "self_not_equal") else None

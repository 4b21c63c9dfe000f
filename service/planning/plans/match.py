"""EXISTS, NOT EXISTS, LEFT and FULL JOIN of two relations on one condition of intervals, with or without equalities: a match tree.

The rows without a partner are kept, or those with one, and found at a change without a visit to the partners that it meets: a row whose
last partner goes is found in O(log n). LEFT and FULL JOIN have their inner join beside it. The joins are those of `outer`, of which those
that are tested are kept by the match tree.
"""

from __future__ import annotations

from dataclasses import replace

from service.planning.meets import Relations
from service.planning.plans import outer, pair, selection
from service.planning.plans.plan import Outer, Plan, first_notes, names, suffix
from service.query.model import Query

WORDS = "EXISTS, NOT EXISTS, LEFT JOIN and FULL JOIN of two relations on one interval condition"


def make(query: Query, relations: Relations) -> Plan | None:
    parts, told = outer.parts_of(query), outer.joins_of(query)
    if isinstance(parts, str) or isinstance(told, str) or len(parts) != 1 or len(query.core.aliases) != 1:
        return None
    joins, counts = told
    support = pair.make(joins[counts[0].join].query, relations)
    if support is None or support.guarantee != "strict" or support.shape not in ("pair", "self_not_equal"):
        return None
    kept = []
    for one in joins:
        alone = selection.make(one.query, {name: relations[name.partition("#")[0]] for _, name in one.query.aliases})
        kept.append(replace(one, plan=alone if any(one.tests) else support))
    kind = f"{outer.kind_of(parts)}, 1-D, 2 relations{suffix(joins[counts[0].join].query, ())}"
    bounds = {
        "space": "O(n)",
        "update": "O(log n), and O(log n) per row that gains its first or loses its last partner",
        "delay": "O(log n)",
    }
    notes = (*first_notes(query, relations), outer.NULLS, *(note for note in support.notes if note not in first_notes(query, relations)))
    return Plan(kind, "match-tree", support.theorem, "strict", bounds, notes, "match", names(query), outer=Outer(tuple(kept), counts))

"""Two relations: for each row of one, the latest row of the other; points in the intervals during which rows are the latest of their key.

An inserted row shortens the interval of its predecessor, which is not reported; the points from its own position on are. So everything that
is enumerated is a row, and a change costs its delta.
"""

from __future__ import annotations

from service.errors import unsupported
from service.planning.meets import Relations, can_be_endpoint
from service.planning.plans.plan import THEOREM_1, Plan, first_notes, keys_of_two, names
from service.planning.plans.stages.latest import ties_of
from service.query.model import Query, Span

EXCLUDED = "rows that WHERE excludes by a condition on both relations, or on one that a row may lack, are found first"


def make(query: Query, relations: Relations) -> Plan:
    """Problem `unsupported-query`: a float that may be NaN."""
    as_of = query.as_of
    assert as_of is not None
    by_alias = dict(query.aliases)
    for ref in (as_of.of, as_of.point):
        if not can_be_endpoint(ref, relations[by_alias[ref.alias]]):
            instead = f'declare {{"at": "{ref.column}"}} as an interval of {by_alias[ref.alias]}, so that it cannot be NaN'
            raise unsupported(f"an ASOF JOIN by {ref}, which may be NaN,", instead)
    definition = relations[by_alias[as_of.of.alias]]
    own = {ref.column for pair in query.equal for ref in pair if ref.alias == as_of.of.alias}
    ties = ties_of(definition, own | {as_of.of.column}, 2)
    nulls = "a null matches nothing: such a row has no partner" + (", and is joined with nulls" if as_of.optional else "")
    notes = [*first_notes(query, relations), nulls, *([EXCLUDED] if as_of.conditions else [])]
    bounds = {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"}
    kind = f"{'left outer ' if as_of.optional else ''}as-of join, 1-D, 2 relations{', keyed' if query.equal else ''}"
    return Plan(
        kind, "interval-tree", THEOREM_1, "best-effort" if as_of.conditions else "strict", bounds, tuple(notes), "as_of", names(query),
        keys=keys_of_two(query), ties=ties,
        spans=tuple(Span(alias, ref.column, ref.column, declared=False) for alias in names(query)
                    for ref in (as_of.of, as_of.point) if ref.alias == alias),
    )  # fmt: skip

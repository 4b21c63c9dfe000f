"""Two to six aliases connected by overlaps of one interval each, with one common key or none: an IJ-heap.

Comparisons are checked row by row. Source: Tao and Yi, Theorem 4; docs/design/ij-heap.md (*One interval an alias*).
"""

from __future__ import annotations

from collections.abc import Mapping

from service.planning.binding import equal_classes
from service.planning.meets import Relations, half_lines_of, overlaps_of
from service.planning.plans.plan import (
    THEOREM_3,
    THEOREM_4,
    Plan,
    candidates,
    checked_row_by_row,
    connected,
    dimensions,
    first_notes,
    names,
    suffix,
    topology,
)
from service.query.model import Query, Residual, Span
from structures.multiway.topology import MOST

WORDS = f"joins of two to {MOST} relations with one interval each, and with one key common to all or no key"


def make(query: Query, relations: Relations) -> Plan | None:
    aliases = names(query)
    meets = (len(aliases) <= MOST and half_lines_of(query, relations)) or overlaps_of(query, relations)
    spans: dict[str, Span] = {}
    for meet in meets:
        for span in (meet.left, meet.right):
            if spans.setdefault(span.alias, span) != span:
                return None
    classes = equal_classes(query)
    common = all(tuple(ref.alias for ref in one) == aliases for one in classes)
    ends = ((aliases.index(meet.left.alias), aliases.index(meet.right.alias)) for meet in meets)
    edges = tuple(sorted({(min(pair), max(pair)) for pair in ends}))
    if not (common and 2 <= len(aliases) <= MOST and connected(len(aliases), edges)):
        return None
    others = [one for one in query.comparisons if all(one not in meet.comparisons for meet in meets)]
    residual: tuple[Residual, ...] = (*others, *query.across)
    guarantee, notes = "strict", first_notes(query, relations)
    bounds: Mapping[str, str] = {"space": "O(n)", "update": "O(polylog n)", "delay": "O(polylog n)"}
    if residual:
        guarantee, bounds = "best-effort", candidates("polylog n")
        notes += (checked_row_by_row(residual, "overlap"),)
    if len(aliases) > 2 and dimensions(query, relations) > 1:
        notes += (THEOREM_3,)
    return Plan(
        f"interval join, 1-D, {len(aliases)} relations, {topology(len(aliases), edges)}{suffix(query, residual)}", "ij-heap", THEOREM_4,
        guarantee, bounds, notes, "heap", aliases, residual,
        keys=tuple(tuple(one[position].column for one in classes) for position in range(len(aliases))),
        spans=tuple(spans[alias] for alias in aliases),
        edges=edges,
    )  # fmt: skip

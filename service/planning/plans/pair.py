"""Two aliases with one overlap or window, or else with one comparison as two rays: an interval tree.

Shapes
    pair            two sets (the same relation twice too: both orders and the diagonal)
    self_less       the aliases are interchangeable and `a.c < b.c`: one set, each unordered pair once, oriented by c
    self_not_equal  the aliases are interchangeable and `a.c <> b.c` tells any two rows of one key apart: one set, both orders

Comparisons outside these shapes are checked row by row (`residual`), which voids the promise on the delay.
Source: Tao and Yi, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.planning.meets import Relations, meets_of, overlaps_of
from service.planning.plans.plan import (
    THEOREM_1,
    Plan,
    PlanShape,
    candidates,
    checked_row_by_row,
    first_notes,
    interchangeable,
    keys_of_two,
    names,
    suffix,
    tells_apart,
)
from service.query.model import Meet, Query, Residual


def make(query: Query, relations: Relations) -> Plan | None:
    meets = meets_of(query, relations)
    if len(query.aliases) != 2 or len(overlaps_of(query, relations)) > 1 or not meets:
        return None
    meet = meets[0]
    comparisons = [one for one in query.comparisons if one not in meet.comparisons]
    bounds: Mapping[str, str] = {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"}
    notes = first_notes(query, relations)
    shape: PlanShape = "pair"
    kind, guarantee = "interval join, 1-D, 2 relations", "strict"
    if len(comparisons) == 1 and interchangeable(query) and comparisons[0].left.column == comparisons[0].right.column:
        one = comparisons[0]
        exact = tells_apart(query, one.left, relations)
        if one.op == "<>" and exact:
            kind, shape = "interval self-join, 1-D, both orders", "self_not_equal"
        if one.op == "<":
            kind, shape = "interval self-join, 1-D, each pair once", "self_less"
            if not exact:
                guarantee, bounds = "best-effort", candidates()
                note = f"pairs with equal {one.left.column} are skipped"
                notes += (f"{note}: {one.left.column} is not the key, and does not form one with the equality columns",)
    residual: tuple[Residual, ...] = (*comparisons, *query.across) if shape == "pair" else ()
    if residual:
        guarantee, bounds = "best-effort", candidates()
        notes += (checked_row_by_row(residual, _otherwise(meet)),)
    return Plan(
        kind + suffix(query, residual), "interval-tree", THEOREM_1, guarantee, bounds, notes, shape, names(query), residual,
        keys=keys_of_two(query),
        spans=tuple(meet.of(alias) for alias in names(query)),
    )  # fmt: skip


def _otherwise(meet: Meet) -> str:
    return "overlap" if meet.words.startswith("overlaps") else f"meet {meet.words}"

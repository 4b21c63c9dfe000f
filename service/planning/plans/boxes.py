"""Two aliases whose rows meet in two to eight dimensions: a box tree. Shapes and residual comparisons as for a `pair`.

Source: Tao and Yi, Theorem 2.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.planning.meets import Relations, meets_of, overlaps_of, residual_of
from service.planning.plans.plan import (
    THEOREM_2,
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
from service.query.model import Comparison, Query
from structures.box.layout import MOST_DIMENSIONS


def make(query: Query, relations: Relations) -> Plan | None:
    if len(query.aliases) != 2:
        return None
    shape: PlanShape = "pair"
    meets, residual, kind = meets_of(query, relations), residual_of(query, relations), "box join"
    one = _comparison_of_one_set(query, relations)
    if one is not None:
        meets, residual = overlaps_of(query, relations), ()
        shape = "self_less" if one.op == "<" else "self_not_equal"
        kind = "box self-join, each pair once" if one.op == "<" else "box self-join, both orders"
    if not 2 <= len(meets) <= MOST_DIMENSIONS:
        return None
    power, less = f"log^{len(meets)} n", "log n" if len(meets) == 2 else f"log^{len(meets) - 1} n"
    guarantee, notes = "strict", first_notes(query, relations)
    bounds: Mapping[str, str] = {"space": f"O(n {less})", "update": f"O({power}), amortised", "delay": f"O({power})"}
    if residual:
        guarantee, bounds = "best-effort", candidates(power) | {"space": bounds["space"]}
        notes += (checked_row_by_row(residual, "meet"),)
    return Plan(
        f"{kind}, {len(meets)}-D, 2 relations{suffix(query, residual)}", "box-tree", THEOREM_2, guarantee, bounds, notes, shape,
        names(query), residual,
        keys=keys_of_two(query),
        boxes=tuple(tuple(meet.of(alias) for meet in meets) for alias in names(query)),
    )  # fmt: skip


def _comparison_of_one_set(query: Query, relations: Relations) -> Comparison | None:
    """The `<` or `<>` that orders the two rows of a pair, if one set serves both aliases."""
    if len(query.overlaps) < 2 or len(query.comparisons) != 1:
        return None
    one = query.comparisons[0]
    orders = one.op in ("<", "<>") and one.left.column == one.right.column
    return one if orders and interchangeable(query) and tells_apart(query, one.left, relations) else None

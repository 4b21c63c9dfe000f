"""From what the structure enumerates to the rows of a view: orders, orientation, and comparisons that it does not know.

    pair            as they come
    self_less       an unordered pair once, the row with the smaller value first; equal values are passed over
    self_not_equal  an unordered pair in both orders
    list            one slot a row
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.deltas import Combination
from service.masks import compare, residual_columns, residual_mask
from service.planner import Plan
from service.resolution import Slots
from service.sides import Side
from service.terms import ColumnRef, Query


class Shape:
    """How one view's rows are made of enumerated slots. Any thread."""

    def __init__(self, query: Query, plan: Plan, sides: Sequence[Side]) -> None:
        self.kind = plan.shape
        self._sides = sides
        self._places = {side.alias: place for place, side in enumerate(sides)}
        self._residual = plan.residual
        self._less = query.less[0] if plan.shape == "self_less" else None
        self.factor = 2 if plan.shape == "self_not_equal" else 1  # rows of an enumerated pair
        self.exact = plan.shape in ("pair", "list", "self_not_equal") and not plan.residual  # no pair is passed over

    def combine(self, slots0: Slots, slots1: Slots) -> Combination:
        """The view's rows among enumerated pairs (slots1 empty for a list)."""
        if self.kind == "list":
            return (slots0,)
        if self.kind == "self_not_equal":
            return np.concatenate((slots0, slots1)), np.concatenate((slots1, slots0))
        if self._less is not None and len(slots0):
            return self._oriented(self._less, slots0, slots1)
        if self._residual and len(slots0):
            parts = {
                side.alias: side.relation.table.take(residual_columns(self._residual, side.alias), slots)
                for side, slots in zip(self._sides, (slots0, slots1), strict=True)
            }
            holds = residual_mask(self._residual, parts)
            return slots0[holds], slots1[holds]
        return slots0, slots1

    def _oriented(self, less: tuple[ColumnRef, ColumnRef], slots0: Slots, slots1: Slots) -> Combination:
        smaller = self._places[less[0].alias]
        table, name = self._sides[0].relation.table, less[0].column
        x, y = table.take([name], slots0).column(0), table.take([name], slots1).column(0)
        ascending, descending = compare("<", x, y), compare("<", y, x)
        low, high = np.where(ascending, slots0, slots1), np.where(ascending, slots1, slots0)
        kept = ascending | descending
        if not kept.all():
            low, high = low[kept], high[kept]
        return (low, high) if smaller == 0 else (high, low)

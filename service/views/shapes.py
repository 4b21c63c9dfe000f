"""From what the structure enumerates to the rows of a view: orders, orientation, and comparisons that the structure does not handle.

pair, heap      as enumerated, if they meet the residual comparisons
self_less       an unordered pair once, the row with the smaller value first; equal values are skipped
self_not_equal  an unordered pair in both orders
clique_less     an unordered combination once, in the order of the values; equal values are skipped
clique_not_equal  an unordered combination in all orders
list            one slot per row
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import factorial

import numpy as np
import pyarrow.compute as pc

from service.planning.plans.clique import in_order
from service.planning.plans.plan import Plan
from service.query.conditions import ColumnRef
from service.query.model import Query
from service.tables.inputs import Input
from service.tables.masks import Mask, compare, residual_columns, residual_mask
from service.tables.resolution import Indices, Slots
from service.tables.store import pieces
from service.views.deltas import Combination


class Shape:
    """How the rows of a view are made of enumerated slots. Any thread."""

    def __init__(self, query: Query, plan: Plan, inputs: Sequence[Input]) -> None:
        self.kind = plan.shape
        self._inputs = inputs
        self._positions = {input.alias: position for position, input in enumerate(inputs)}
        self._residual = plan.residual
        self._less = query.less[0] if plan.shape == "self_less" else None
        self._order = in_order(query) if plan.shape == "clique_less" else None
        self._column = query.less[0][0].column if self._order is not None else ""
        # Rows per enumerated combination.
        self.factor = {"self_not_equal": 2, "clique_not_equal": factorial(len(inputs))}.get(plan.shape, 1)
        self.drops = bool(plan.residual) or plan.shape == "self_less"  # an enumerated combination may not be a row
        self._is_plain = self.kind != "list" and self.factor == 1 and not self.drops and self._order is None  # combinations are rows

    def combine(self, *slots: Slots) -> Combination:
        """Return the view's rows among the enumerated combinations, an array per alias (of a list only the first)."""
        return self.emitted(*slots)[0]

    def emitted(self, *slots: Slots) -> tuple[Combination, Indices | None]:
        """As `combine`, with the number of the combination that each row comes from; None: each combination is one row."""
        if self._is_plain:
            return slots, None
        n = len(slots[0])
        if self.kind == "list":
            return slots[:1], None
        if self.factor > 1:
            orders = permutations(slots)  # one combination after the other, however many come at a time
            return tuple(np.stack(part, axis=1).reshape(-1) for part in zip(*orders, strict=True)), np.repeat(np.arange(n), self.factor)
        kept: Mask | None = None
        if n and self._order is not None:
            slots, kept = self._ascending(self._order, slots)
        elif n and self._less is not None:
            slots, kept = self._oriented(self._less, *slots)
        elif n and self._residual:
            kept = self._holds(slots)
        if kept is None or kept.all():
            return slots, None
        return tuple(part[kept] for part in slots), np.flatnonzero(kept)

    def combine_given(self, position: int, given: Slots, partners: Slots) -> Combination:
        """Return the rows of a self join that have each given row as alias `position`, and its partner."""
        rows = (given, partners) if position == 0 else (partners, given)
        if self._less is None:
            return rows
        low, high = (rows[self._positions[ref.alias]] for ref in self._less)
        ascending = self._is_less(self._less[0].column, low, high)
        return tuple(part[ascending] for part in rows)

    def _holds(self, pairs: Sequence[Slots]) -> Mask:
        """bool[n]: whether the combinations meet the residual comparisons."""
        read = [
            (input.alias, input.relation.table, names, slots)
            for input, slots in zip(self._inputs, pairs, strict=True)
            if (names := residual_columns(self._residual, input.alias))
        ]
        texts = np.zeros(len(pairs[0]), np.int64)
        for _, table, names, slots in read:
            texts += table.text_bytes(names, slots)
        holds = np.empty(len(texts), np.bool_)
        for part in pieces(texts):
            taken = {alias: table.take(names, slots[part]) for alias, table, names, slots in read}
            holds[part] = residual_mask(self._residual, taken)
        return holds

    def _ascending(self, order: Sequence[int], slots: Combination) -> tuple[Combination, Mask]:
        """Sort the slots of each combination by value, the least to alias order[0], and so on; and which combinations have no equal
        values."""
        table, count = self._inputs[0].relation.table, len(slots[0])
        texts = np.sum([table.text_bytes([self._column], part) for part in slots], axis=0)
        found = [np.empty(count, np.int32) for _ in slots]
        kept = np.empty(count, np.bool_)
        for part in pieces(texts):
            some = np.stack([each[part] for each in slots])
            values = table.take([self._column], some.reshape(-1)).column(0)
            ranks = np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64).reshape(some.shape)
            both = np.sort(np.ascontiguousarray(((ranks << 32) | some).T), axis=1)  # a rank and its slot in one number
            ranks = both >> 32
            kept[part] = (ranks[:, 1:] > ranks[:, :-1]).all(axis=1)
            for alias, ascending in zip(order, both.T, strict=True):
                found[alias][part] = ascending & 0xFFFFFFFF
        return tuple(found), kept

    def _oriented(self, less: tuple[ColumnRef, ColumnRef], slots0: Slots, slots1: Slots) -> tuple[Combination, Mask]:
        """Order the slots of each pair so that the smaller value is at its alias; and which pairs have no equal values."""
        smaller = self._positions[less[0].alias]
        ascending, descending = self._is_less(less[0].column, slots0, slots1), self._is_less(less[0].column, slots1, slots0)
        low, high = np.where(ascending, slots0, slots1), np.where(ascending, slots1, slots0)
        return ((low, high) if smaller == 0 else (high, low)), ascending | descending

    def _is_less(self, name: str, low: Slots, high: Slots) -> Mask:
        """bool[n]: whether the value of a column is less in the row at the first slot."""
        table, less = self._inputs[0].relation.table, np.empty(len(low), np.bool_)
        for part in pieces(table.text_bytes([name], low) + table.text_bytes([name], high)):
            less[part] = compare("<", table.take([name], low[part]).column(0), table.take([name], high[part]).column(0))
        return less

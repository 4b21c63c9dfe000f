"""The naive twin of `structures.outer`: nested loops that return the pairs of each change, as an inner join does."""

from __future__ import annotations

from collections.abc import Mapping

from structures.event_tree.matching import LONELY
from tests.naive.interval_join import Interval, meet

Inputs = tuple[dict[int, Interval], dict[int, Interval]]  # rows, and their partners, by slot


def met(one: Interval, others: Mapping[int, Interval]) -> list[int]:
    """Return the slots of the rows that it meets."""
    return [] if one.key == LONELY else [slot for slot, other in others.items() if meet(one, other)]


def alone(rows: Mapping[int, Interval], partners: Mapping[int, Interval]) -> set[int]:
    """Return the slots of the rows without a partner."""
    return {slot for slot, row in rows.items() if not met(row, partners)}


def rows_emitted(inputs: Inputs, input: int, one: Interval) -> list[int]:
    """Return the rows (of side 0) of the pairs that include an entry of a side."""
    found = met(one, inputs[1 - input])
    return [one.slot] * len(found) if input == 0 else found
